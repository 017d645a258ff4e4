"""K12: who is exact, and each cause that ends it for good; what it is good for:
tests/sink/apply/test_append.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import MergeError
from cdc_pipeline.lake.records import BatchKind, BatchRecord, Cut, Interval, RecordedTarget
from cdc_pipeline.position.cursor import CursorState, Suspension
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import StatementContext
from cdc_pipeline.sink.delta.table_log import TableLog
from cdc_pipeline.sink.next_cut import next_cut
from cdc_pipeline.targets.decided import decided, known
from cdc_pipeline.targets.targets import Targets, targets_at

INTERVAL = Interval(start=Position("b.000001"), end=Position("b.000001", 100))
STANDS = Suspension(
    batch_number=1, error="MergeError", what="it failed", journal="b.000001", offset=4
)


def config(**sections: Any) -> PipelineConfig:
    source = {"kind": "archive", "directory": Path("journals")}
    return PipelineConfig.model_validate(
        {"name": "bank", "source": source, "sink": {"lake_path": "lake"}, **sections}
    )


def said(targets: Targets, sql: str, **policies: Any) -> Targets:
    policy = SchemaChangePolicy(**policies)
    decision = decide(
        StatementContext(
            parse_statement(sql, "d"),
            captured=lambda *_: True,
            known=lambda *table: (
                (recorded := known(targets, *table)) and replace(recorded, policy=policy)
            ),
        )
    )
    return decided(targets, decision)[0]


def created(sql: str = "CREATE TABLE t (a INT PRIMARY KEY, b INT)", **sections: Any) -> Targets:
    return said(targets_at(config(**sections), None), sql)


def exact(targets: Targets) -> bool:
    (target,) = targets.following("d", "t")
    return target.state.exact


def cut_after(
    targets: Targets,
    previous: Cut | None = None,
    *,
    kind: BatchKind = "batch",
    failing: bool = False,
    rows: bool = True,
) -> Cut:
    """The cut of a batch of the targets as they are."""
    number = 1 if previous is None else previous.batch_number + 1
    record = BatchRecord(
        source="bank",
        batch_number=number,
        kind=kind,
        start=INTERVAL.start,
        interval=INTERVAL,
        cursor_after=CursorState(
            source="bank", batch_number=number, flavor="mysql", server_id=1, journal="b.000001",
            offset=100,
            targets=targets.states({"d.t"}),
        ),
        targets=tuple(
            RecordedTarget(
                table=target.name, app_id=target.state.app_id,
                spec=target.spec.compact(target.name),
                exact=target.state.exact,
            )
            for target in targets.following("d", "t") if rows
        ),
    )  # fmt: skip
    log = TableLog(version=number, app_id="", transaction_version=-1, columns={}, properties={})
    return next_cut(
        record, previous, {"d.t": log}, {"d.t": MergeError("it failed")} if failing else {}
    )


def later(cut: Cut) -> Targets:
    """The targets of the next run."""
    return targets_at(config(), cut)


def test_k12_a_table_created_in_the_log_is_exact_from_run_to_run() -> None:
    targets = created()
    assert exact(targets)
    cut = cut_after(targets)
    assert cut.cursor.targets["d.t"].exact
    targets = later(cut)
    targets = said(targets, "ALTER TABLE t ADD c INT, ADD INDEX (b)")
    targets = said(targets, "CREATE INDEX i ON t (b)")
    targets = said(targets, "ALTER TABLE elsewhere TRUNCATE PARTITION p1")
    assert exact(targets)
    assert not targets.has_lost_exactness
    assert exact(later(cut_after(targets, cut, rows=False)))


@pytest.mark.parametrize(
    "sql",
    ["CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)",
     "CREATE TABLE t (a INT PRIMARY KEY, b INT REFERENCES u (a) ON DELETE CASCADE)",
     "CREATE TABLE t (a INT PRIMARY KEY, b INT, FOREIGN/**/KEY (b) REFERENCES u (a) ON "
     "UPDATE SET NULL)",
     "CREATE TABLE t (a INT PRIMARY KEY) ENGINE=MEMORY",
     "CREATE TABLE t (a INT PRIMARY KEY) PARTITION BY HASH (a)"],
)  # fmt: skip
def test_k12_not_exact_where_rows_may_be_older_or_go_without_row_events(sql: str) -> None:
    assert not exact(created(sql))


@pytest.mark.parametrize(
    "rule",
    [
        {"mode": "soft_delete"},
        {"mode": "history", "name": "{schema}.{table}"},
        {"shard_column": "shard"},
    ],
)
def test_k12_not_exact_where_the_target_is_no_plain_mirror(rule: dict[str, Any]) -> None:
    assert not exact(created(targets=[{"tables": ["d.*"], **rule}]))
    assert exact(created(targets=[{"tables": ["d.*"], "name": "{schema}.{table}_copy"}]))


def test_k12_not_exact_where_the_first_rows_were_never_seen() -> None:
    cut = cut_after(created())
    state = cut.cursor.targets["d.t"].model_copy(update={"partial": True, "exact": False})
    old = cut.model_copy(
        update={"cursor": cut.cursor.model_copy(update={"targets": {"d.t": state}})}
    )
    assert not exact(later(old))


@pytest.mark.parametrize(
    "sql",
    ["ALTER TABLE t ADD c INT, DROP COLUMN b",
        "ALTER TABLE t ADD c INT, ADD FOREIGN KEY (c) REFERENCES u (a)",
     "ALTER TABLE t ADD c INT, CLAUSE OF TOMORROW",
     "ALTER TABLE t ENGINE=MyISAM", "REPAIR TABLE t", "ALTER TABLE t DROP FOREIGN KEY f"],
)  # fmt: skip
def test_k12_statements_that_may_change_rows_in_silence_end_it(sql: str) -> None:
    """The statement alone makes a batch: a cursor without a cut would forget it."""
    cut = cut_after(created())
    targets = later(cut)
    decision = decide(
        StatementContext(parse_statement(sql, "d"), captured=lambda *_: True, known=lambda *_: None)
    )
    targets, _ = decided(targets, decision)
    assert not exact(targets)
    assert targets.has_lost_exactness
    after = cut_after(targets, cut, rows=False)
    assert not exact(later(after))
    targets = targets.at_cut(after)
    assert not targets.has_lost_exactness


@pytest.mark.parametrize("rows", [True, False])
def test_k7_k12_an_overlap_ends_it(rows: bool) -> None:
    """So do a replay and a quarantine: they call the same."""
    cut = cut_after(created())
    targets = later(cut)
    targets = targets.without_exactness()
    assert not exact(targets)
    assert not exact(later(cut_after(targets, cut, rows=rows)))


def test_k3_k12_a_cursor_set_by_a_person_ends_it() -> None:
    cut = cut_after(created())
    assert not exact(later(cut_after(later(cut), cut, kind="cursor_set", rows=False)))


def test_k4_k12_standing_still_and_catching_up_end_it() -> None:
    cut = cut_after(created())
    failed = cut_after(later(cut), cut, failing=True)
    assert not failed.cursor.targets["d.t"].exact
    targets = later(cut)
    targets, _ = targets.suspending("d.t", STANDS)
    suspended = cut_after(targets, cut, rows=False)
    assert not suspended.cursor.targets["d.t"].exact
    catching = targets_at(config(), suspended, catching_up="d.t")
    assert not exact(catching)
    assert not cut_after(catching, suspended, kind="catch_up").cursor.targets["d.t"].exact
    assert not cut_after(later(cut), cut, kind="catch_up").cursor.targets["d.t"].exact
