"""Changes that a changelog lacks, appended to it once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import CdcError, ConfigError, LakeStateError, SnapshotError
from cdc_pipeline.lake.long_operations import GAP_FILLED_NOTE, OperationFolder, operations_of
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.backfill.gap import _Filling, fill_gap
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture import capture
from tests.operations.backfill.conftest import ALL_COLUMNS, DATABASE, History
from tests.support.captures import SPARK
from tests.support.comparison import lake_rows
from tests.support.kills import killed_at
from tests.support.memory_sink import MemoryLake

pytestmark = pytest.mark.mysql

MakeConfig = Callable[..., PipelineConfig]
ACCOUNT = f"{DATABASE}.account"


@pytest.fixture
def config(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> Callable[[str, int], PipelineConfig]:
    """By its lake, and by the journal from which on it captures."""

    def config_of(name: str, journal: int) -> PipelineConfig:
        return make_config(
            history.archive,
            tables={"include": [ACCOUNT]},
            targets=[{"tables": [ACCOUNT], "mode": "changelog"}],
            start={"journal": history.journals[journal]},
            sink={"lake_path": tmp_path / name, "spark": SPARK},
        )

    return config_of


def test_k18_a_gap_of_a_changelog_is_filled_once(
    history: History, config: Callable[[str, int], PipelineConfig], memory: MemoryLake
) -> None:
    """Killed before and after its record; the changelog is then as one that had no gap."""

    gapped, whole = config("gapped", 6), config("whole", 4)
    capture(whole, cursors=MemoryCursorStore())
    cursors = MemoryCursorStore()
    capture(gapped, cursors=cursors)
    stood = cursors.read()
    assert stood is not None
    begin, end = (PositionConfig(journal=history.journals[at]) for at in (4, 6))
    call = partial(fill_gap, gapped, table=ACCOUNT, cursors=cursors, start=begin, end=end)
    rule = gapped.targets[0].model_copy(update={"masks": {"note": "drop"}})
    masked = gapped.model_copy(update={"targets": (rule,)})
    for point in ("before_record", "after_record"):
        with killed_at(point):
            call()
        with pytest.raises((ConfigError, LakeStateError), match=r"masks changed|unfinished"):
            fill_gap(masked, table=ACCOUNT, cursors=cursors, start=begin, end=end)
    assert operations_of(gapped, None)
    capture(gapped, cursors=cursors)  # any run finishes what is recorded
    assert not operations_of(gapped, None)
    assert [call().outcome, call().outcome] == ["nothing_new", "nothing_new"]
    names = [*ALL_COLUMNS["account"], "_cdc_op", "_cdc_seq", "_cdc_ts", "_cdc_transaction"]
    rows, expected = (
        lake_rows(memory, one.sink.lake_path, DATABASE, "account_changelog", names)
        for one in (gapped, whole)
    )
    assert rows == expected
    after = cursors.read()
    assert after is not None
    assert (after.position, after.batch_number) == (stood.position, stood.batch_number + 1)
    cut = Cut.model_validate_json(
        LakePaths(gapped.sink.lake_path, "bank").cut(after.batch_number).read_text()
    )
    assert [note.kind for note in cut.notes] == [GAP_FILLED_NOTE]

    with pytest.raises(SnapshotError, match="already has changes of the range"):
        fill_gap(
            gapped,
            table=ACCOUNT,
            cursors=cursors,
            start=begin,
            end=PositionConfig(journal=history.journals[7]),
        )
    over_ddl = PositionConfig(journal=history.journals[3])
    with pytest.raises(CdcError):
        fill_gap(gapped, table=ACCOUNT, cursors=cursors, start=over_ddl, end=begin)
    assert cursors.read() == after
    mirror = gapped.model_copy(update={"targets": ()})
    with pytest.raises(ConfigError, match="no changelog"):
        fill_gap(mirror, table=ACCOUNT, cursors=cursors, start=begin, end=end)


def test_k18_a_gap_whose_batch_number_another_gap_got_is_filled(
    history: History, config: Callable[[str, int], PipelineConfig], memory: MemoryLake
) -> None:
    """And that it is over is not forgotten when its command fails later."""

    gapped, whole, cursors = config("gapped", 6), config("whole", 4), MemoryCursorStore()
    capture(whole, cursors=MemoryCursorStore())
    capture(gapped, cursors=cursors)

    def fill(begin: int, config: PipelineConfig = gapped, **how: Any) -> str:
        start, end = (PositionConfig(journal=history.journals[at]) for at in (begin, begin + 1))
        call = partial(fill_gap, config, table=ACCOUNT, cursors=cursors, start=start, end=end)
        return call(**how).outcome

    with killed_at("before_record"):
        fill(4)
    (left,) = operations_of(gapped, None)
    with killed_at("before_record"):
        fill(4, restart=True)
    (another,) = operations_of(gapped, None)
    assert another.operation_id != left.operation_id
    assert [fill(5), fill(4), fill(4)] == ["applied", "applied", "nothing_new"]
    begin, end = (PositionConfig(journal=history.journals[at]) for at in (4, 6))
    with pytest.raises(SnapshotError, match="already has changes"):  # of two fillings
        fill_gap(gapped, table=ACCOUNT, cursors=cursors, start=begin, end=end)
    rows, expected = (
        lake_rows(memory, one.sink.lake_path, DATABASE, "account_changelog", ["id", "_cdc_seq"])
        for one in (gapped, whole)
    )
    assert rows == expected

    with pytest.raises(ConfigError, match="no changelog"):
        fill(4, gapped.model_copy(update={"targets": ()}))
    assert fill(4) == "nothing_new"


@pytest.mark.parametrize(
    ("epoch", "seqs", "refusal"),
    [
        (1, [], ""),
        (1, [(1, 4)], "already has changes of the range"),
        (1, [(1, 9)], ""),
        (2, [], ""),
        (2, [(1, 4)], "may hold what was captured from another server"),
        (2, [(1, 4), (2, 9)], "may hold what was captured from another server"),
        (2, [(1, 4), (2, 2)], ""),
        (2, [(1, 4), (2, 2), (2, 5)], "already has changes of the range"),
    ],
)
def test_k18_a_range_that_an_earlier_server_may_have_told_is_refused(
    epoch: int, seqs: list[tuple[int, int]], refusal: str
) -> None:
    """Rows by epoch and journal; the range is journals 3 to 6."""
    rows = [seq_of_place(row_epoch, f"log.{journal:06}", 100) for row_epoch, journal in seqs]

    def rows_within(_name: str, *, low: int, high: int) -> Any:
        return SimpleNamespace(rows=sum(low <= seq <= high for seq in rows))

    unused: Any = None
    sink = SimpleNamespace(tables=SimpleNamespace(rows_within=rows_within))
    batch: Any = SimpleNamespace(cursor=SimpleNamespace(epoch=epoch), sink=sink)
    filling = _Filling(unused, unused, unused, batch)
    expected = pytest.raises(SnapshotError, match=refusal) if refusal else nullcontext()
    with expected:
        filling._check_empty(ACCOUNT, Position("log.000003", 4), Position("log.000006", 4))


def test_k18_a_part_of_a_filled_range_is_nothing_new(
    history: History,
    config: Callable[[str, int], PipelineConfig],
    memory: MemoryLake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a range that was given up is not filled, if the process dies while it is removed."""
    gapped, cursors = config("gapped", 6), MemoryCursorStore()
    capture(gapped, cursors=cursors)

    def fill(begin: int, end: int, **how: Any) -> str:
        places = [PositionConfig(journal=history.journals[at]) for at in (begin, end)]
        return fill_gap(
            gapped, table=ACCOUNT, cursors=cursors, start=places[0], end=places[1], **how
        ).outcome

    with killed_at("before_record"):
        fill(4, 6)
    with monkeypatch.context() as patch:
        patch.setattr(OperationFolder, "forget", _killed)
        with pytest.raises(KeyboardInterrupt):
            fill(4, 5, restart=True)
    assert fill(4, 6) == "applied"
    assert [fill(4, 5), fill(5, 6)] == ["nothing_new"] * 2


def test_k18_f247_a_part_of_what_a_run_has_filled_for_a_killed_process_is_nothing_new(
    history: History, config: Callable[[str, int], PipelineConfig], memory: MemoryLake
) -> None:
    gapped, cursors = config("gapped", 6), MemoryCursorStore()
    capture(gapped, cursors=cursors)
    places = [PositionConfig(journal=history.journals[at]) for at in (4, 5, 6)]
    call = partial(fill_gap, gapped, table=ACCOUNT, cursors=cursors, start=places[0])
    with killed_at("after_record"):
        call(end=places[2])
    capture(gapped, cursors=cursors)
    assert call(end=places[1]).outcome == "nothing_new"


def test_k18_a_filled_gap_is_filled_in_a_younger_changelog_too(
    history: History, config: Callable[[str, int], PipelineConfig], memory: MemoryLake
) -> None:
    """Also if a process was killed when it had filled the older one; and in one that was created
    again."""
    cursors = MemoryCursorStore()
    gapped = config("gapped", 6)
    again = gapped.targets[0].model_copy(update={"name": "{schema}.again"})
    both = gapped.model_copy(update={"targets": (*gapped.targets, again)})
    names = [*ALL_COLUMNS["account"], "_cdc_op", "_cdc_seq", "_cdc_ts", "_cdc_transaction"]

    def rows(table: str) -> list[Any]:
        return lake_rows(memory, gapped.sink.lake_path, DATABASE, table, names)

    def fill(begin: int, end: int, config: PipelineConfig) -> tuple[str, dict[str, int]]:
        places = [PositionConfig(journal=history.journals[at]) for at in (begin, end)]
        report = fill_gap(config, table=ACCOUNT, cursors=cursors, start=places[0], end=places[1])
        return report.outcome, report.rows

    bound = PositionConfig(journal=history.journals[7])
    capture(gapped, cursors=cursors, bound=bound)
    captured = rows("account_changelog")
    first, second = f"{DATABASE}.account_changelog", f"{DATABASE}.again"
    with killed_at("after_record"):
        fill(4, 6, gapped)
    capture(gapped, cursors=cursors, bound=bound)
    filled = rows("account_changelog")
    added = len(filled) - len(captured)
    assert added > 0
    capture(both, cursors=cursors)
    whole, kept = rows("account_changelog"), rows("again")
    assert fill(4, 6, both) == ("applied", {first: 0, second: added})
    assert fill(4, 6, both) == fill(4, 5, both) == ("nothing_new", {first: 0, second: 0})
    gap = [row for row in filled if row not in captured]
    assert rows("account_changelog") == whole
    assert rows("again") == sorted([*kept, *gap], key=repr)

    place = LakePaths(gapped.sink.lake_path, "bank").table(second)
    commits = memory.tables[place].commits
    commits[-1] = replace(commits[-1], rows=commits[-1].rows[: len(kept)])
    assert fill(4, 6, both) == ("applied", {first: 0, second: added})
    assert fill(4, 6, both)[0] == "nothing_new"
    assert rows("account_changelog") == whole
    assert rows("again") == sorted([*kept, *gap], key=repr)


def _killed(_folder: OperationFolder) -> None:
    raise KeyboardInterrupt
