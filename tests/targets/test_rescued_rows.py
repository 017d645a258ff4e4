"""From decoded changes with values that no Delta type holds to staged rows with `_cdc_rescued`;
from XA files too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.binlog.decoded import DecodedRows, InvalidValue, joined
from cdc_pipeline.binlog.rows.partial_rows import NO_DOCUMENT
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import PipelineConfig, SinkConfig
from cdc_pipeline.errors import IncompleteRowsError
from cdc_pipeline.lake.prepared_rows import Spool
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.rescue import NULLED, counted, rescued_names, with_rescued
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.row_policies import (
    RowPolicy,
    judged,
    policy_of,
    strictest_policy,
    without_hidden,
)
from tests.support.sink_values import (
    Change,
    column,
    decoded,
    delete,
    head_of,
    insert,
    table_schema,
    target_of,
    update,
)

SCHEMA = table_schema(
    "shop.t",
    [column("id", Kind.INT32), column("d", Kind.DATE), column("n", Kind.TEXT, charset="ascii")],
    "id",
)
ZERO = "0000-00-00"


def bad_date(row: int, image: str = "after", text: str = ZERO) -> InvalidValue:
    return InvalidValue(row, image, 1, "zero or partial date", text)


def bad_text(row: int, image: str = "after") -> InvalidValue:
    return InvalidValue(row, image, 2, "bytes are not valid ascii", "ff61")


def rows_of(changes: list[Change], *invalid: InvalidValue) -> DecodedRows:
    return decoded(SCHEMA, changes, first_place=1, invalid=list(invalid))


def whole(key: int, d: Any = None, n: Any = "a") -> dict[str, Any]:
    return {"id": key, "d": d, "n": n}


def maps(rows: DecodedRows, image: str = "after") -> list[dict[str, str] | None]:
    batch = rows.after if image == "after" else rows.before
    return [
        None if value is None else dict(value) for value in batch.column("_cdc_rescued").to_pylist()
    ]


def bits(rows: DecodedRows, image: str = "after") -> list[bool]:
    at = len(rows.schema.columns) - 1
    bitmap = rows.after_present if image == "after" else rows.before_present
    return [bool(line[at // 8] >> at % 8 & 1) for line in bitmap]


def test_texts_stand_in_the_image_that_has_the_value_and_a_healed_value_clears_them() -> None:
    changes = [
        insert(**whole(1)),
        update(whole(1), whole(1, 5)),
        delete(**whole(2)),
        insert(**whole(3, 7)),
    ]
    rows = with_rescued(
        judged(
            rows_of(
                changes, bad_date(0), bad_text(0), bad_date(1, "before"), bad_date(2, "before")
            ),
            RowPolicy(),
        ).rows,
        ("d", "n"),
    )
    assert rows.invalid == []
    assert maps(rows) == [{"d": ZERO, "n": "0xFF61"}, None, None, None]
    assert maps(rows, "before") == [None, {"d": ZERO}, {"d": ZERO}, None]
    assert bits(rows) == [True, True, False, True]
    assert bits(rows, "before") == [False, True, True, False]
    assert rows.all_present


def test_k10_a_partial_image_says_all_of_it_or_nothing() -> None:
    """MINIMAL: an update without the column keeps what is there, one with it says it again, one
    between is refused."""
    silent = update({"id": 1}, {"n": "b"})
    heals = update({"id": 1}, {"d": 4})
    again = update({"id": 1}, {"d": None})
    rows = rows_of([silent, heals, again], bad_date(2))
    assert rescued_names(rows, "mirror") == {"d"}
    made = with_rescued(rows, ("d",))
    assert bits(made) == [False, True, True]
    assert maps(made) == [None, None, {"d": ZERO}]
    with pytest.raises(IncompleteRowsError, match="d, n"):
        with_rescued(rows, ("d", "n"))
    both = rows_of([update({"id": 1}, {"d": 4, "n": "x"}), update({"id": 1}, {"id": 2})])
    assert bits(with_rescued(both, ("d", "n"))) == [True, False]
    # What a before image tells and the after image lacks did not change.
    kept = rows_of([update(whole(1), {"n": "b"})], bad_date(0, "before"))
    assert maps(with_rescued(kept, ("d", "n"))) == [{"d": ZERO}]


def test_policies_decide_and_keys_have_no_rescue() -> None:
    key = InvalidValue(0, "after", 0, "bytes are not valid ascii", "ff")
    rows = rows_of([insert(**whole(1)), insert(**whole(2))], bad_date(0), bad_text(1))
    assert judged(rows, RowPolicy(zero_dates="fail")).failing == bad_date(0)
    assert judged(rows, RowPolicy(on_invalid_value="fail")).failing == bad_text(1)
    found = judged(rows, RowPolicy(zero_dates="null"))
    assert [(value.column, value.reason, value.text) for value in found.rows.invalid] == [
        (1, NULLED, ""), (2, "bytes are not valid ascii", "0xFF61"),
    ]  # fmt: skip
    assert counted(found.rows) == {"d": 1, "n": 1}
    assert rescued_names(found.rows, "mirror") == {"n"}
    assert judged(rows, RowPolicy(on_invalid_value="quarantine")).bad == (bad_text(1),)
    healing = rows_of([update(whole(1), whole(1))], bad_date(0, "before"))
    found = judged(healing, RowPolicy(zero_dates="quarantine"))
    assert (found.bad, found.rows.invalid) == ((), [bad_date(0, "before")])
    assert rescued_names(found.rows, "mirror") == set()
    assert rescued_names(found.rows, "changelog") == {"d"}
    with_key = rows_of([insert(**whole(1))], key)
    assert judged(with_key, RowPolicy(), keys=("id",)).failing == key
    assert judged(with_key, RowPolicy(on_bad_row="quarantine"), keys=("id",)).bad == (key,)
    document = bad_text(0)._replace(reason=NO_DOCUMENT)
    assert judged(rows_of([insert(**whole(1))], document), RowPolicy()).failing == document


def test_the_strictest_of_a_tables_targets_counts_and_a_rule_wins_over_the_sink() -> None:
    def policy(sink: dict[str, Any], *targets: dict[str, Any]) -> RowPolicy:
        source = {"kind": "archive", "directory": "/a"}
        config = PipelineConfig.model_validate(
            {
                "name": "s",
                "source": source,
                "sink": {"lake_path": "/l", **sink},
                "targets": list(targets),
            }
        )
        routes = Routes(config).of_table(SCHEMA.full_name)
        return strictest_policy([policy_of(route.rule, config.sink) for route in routes])

    assert policy({}) == RowPolicy("rescue", "rescue", "when_needed", "fail")
    assert policy({"on_invalid_value": "fail"}).zero_dates == "fail"
    assert (
        policy({"on_invalid_value": "fail"}, {"on_invalid_value": "rescue"}).on_invalid_value
        == "rescue"
    )
    both = policy({}, {"zero_dates": "null"}, {"mode": "changelog", "zero_dates": "quarantine"})
    assert (both.on_invalid_value, both.zero_dates) == ("rescue", "quarantine")


def test_k14_the_text_of_a_hidden_column_goes_nowhere() -> None:
    rows = without_hidden(rows_of([insert(**whole(1))], bad_date(0), bad_text(0)), {"n"})
    rows = judged(rows, RowPolicy()).rows
    assert "ff61" not in str(rows.invalid).lower()
    made = with_rescued(rows, sorted(rescued_names(rows, "mirror")))
    assert maps(made) == [{"d": ZERO}]
    assert counted(rows) == {"d": 1, "n": 1}, "never in silence"


def test_parts_selections_and_joins_keep_their_values() -> None:
    rows = rows_of(
        [insert(**whole(key)) for key in range(6)],
        bad_date(1),
        bad_text(4),
        bad_date(4, text="2026-00-00"),
    )
    assert rows.part(1, 3).invalid == [bad_date(0)]
    assert rows.where(np.array([0, 0, 1, 1, 1, 0], np.bool_)).invalid == [
        bad_text(2),
        bad_date(2, text="2026-00-00"),
    ]
    assert joined([rows.part(0, 2), rows.part(2, 6)]).invalid == rows.invalid


def test_k8_parked_rows_keep_their_values() -> None:
    rows = rows_of(
        [insert(**whole(1)), update(whole(1), whole(2))], bad_date(1, "before"), bad_text(1)
    )
    spool = Spool(SCHEMA)
    spool.add(rows)
    (back,) = spool.read()
    assert back.invalid == rows.invalid


def test_k2_staged_files_hold_the_column_only_from_where_it_is_needed(tmp_path: Path) -> None:
    """And the record counts rows and values."""
    from dataclasses import replace

    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))
    plan = target_of(SCHEMA)
    with sink.lock():
        batch = sink.begin(1)
        batch.create(plan)
        batch.add(rows_of([insert(**whole(1))]), plan)
        bad = judged(
            rows_of(
                [insert(**whole(2)), insert(**whole(3))], bad_date(0), bad_text(0), bad_date(1)
            ),
            RowPolicy(),
        )
        batch.add(bad.rows, replace(plan, rescued=("d", "n")))
        open_rows = judged(rows_of([insert(**whole(4))], bad_date(0)), RowPolicy()).rows
        batch.add(open_rows, replace(plan, rescued=("d", "n")), open_transaction=True)
        batch.undo_open(np.array([[0, 1 << 20]], np.int64))
        batch.close_open()
        record = batch.record(head_of(1))
    (target,) = record.targets
    assert (target.rescues, target.rescued, target.rescued_rows) == (True, {"d": 2, "n": 1}, 2)
    assert target.spec.columns == plan.spec.columns, "our own columns are not the source's"
    files = [pq.read_table(sink.paths.lake / file.path) for file in target.files]
    assert [file.num_rows for file in files] == [1, 2]
    assert "c3" not in files[0].column_names
    assert [dict(value) for value in files[1].column("c3").to_pylist()] == [
        {"d": ZERO, "n": "0xFF61"},
        {"d": ZERO},
    ]
