"""A backfill into a lake of its own: whole, resumable, done once, and apart from the pipeline's own
lake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import ConfigError, LakeStateError, PositionError
from cdc_pipeline.lake.long_operations import unfinished
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.backfill.backfill import backfill
from cdc_pipeline.run.bounds import end_of, start_of
from tests.operations.backfill.conftest import DATABASE, History
from tests.support.comparison import lake_rows
from tests.support.kills import killed_at
from tests.support.memory_sink import MemoryLake
from tests.support.workload import COLUMNS

pytestmark = pytest.mark.mysql

MakeConfig = Callable[..., PipelineConfig]
ACCOUNT, LABEL = f"{DATABASE}.account", f"{DATABASE}.label"


def assert_untouched(config: PipelineConfig) -> None:
    """The pipeline's lake, cursor and lock: beside the operation there is nothing."""
    paths = LakePaths(config.sink.lake_path, config.name)
    assert [at.name for at in paths.lake.iterdir()] == ["_cdc"]
    assert [at.name for at in paths.state.iterdir()] == ["operations"]


def test_k18_old_journals_go_into_a_lake_of_their_own(
    history: History, make_config: MakeConfig, memory: MemoryLake, tmp_path: Path
) -> None:
    """Killed between record and merge, gone on with, done once; masks hold; the pipeline's own lake
    is not there."""
    config, into, end = (
        make_config(history.archive),
        tmp_path / "side",
        PositionConfig(journal=history.journals[3]),
    )
    with killed_at("after_record"):
        backfill(config, tables=[ACCOUNT, LABEL], into=into, end=end)
    report = backfill(config, tables=[LABEL, ACCOUNT], into=into, end=end)
    assert report.outcome == "applied"
    assert report.capture is not None
    assert report.capture.recovered_batch == 1
    assert report.partial == ()
    assert (
        lake_rows(memory, into, DATABASE, "account", COLUMNS["account"]) == history.early["account"]
    )
    codes = [(code, kind) for code, _, kind in history.early["label"]]
    assert lake_rows(memory, into, DATABASE, "label", ["code", "kind"]) == sorted(codes, key=repr)
    texts = [row[0] for row in lake_rows(memory, into, DATABASE, "label", ["text"])]
    assert {len(text) for text in texts if text is not None} == {64}, "hashed"
    assert into / DATABASE / "transfer" not in memory.tables
    assert_untouched(config)

    again = backfill(config, tables=[ACCOUNT, LABEL], into=into, end=end)
    assert (again.outcome, again.capture, again.end) == ("nothing_new", None, report.end)
    for other in ({"tables": [ACCOUNT]}, {"end": PositionConfig(journal=history.journals[1])}):
        with pytest.raises(ConfigError, match=r"was started with (other tables|another range)"):
            backfill(config, into=into, **{"tables": [ACCOUNT, LABEL], "end": end, **other})  # type: ignore[arg-type]


def test_k18_the_end_is_fixed_in_advance_and_what_is_done_is_not_read_again(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    """A table without changes in the range starts no JVM; journals that come later are not in the
    range."""
    archive = tmp_path / "archive"
    archive.mkdir()
    for name in history.journals[:3]:
        (archive / name).write_bytes((history.archive / name).read_bytes())
    config, into = make_config(archive), tmp_path / "side"
    table = f"{DATABASE}.nothing"
    with killed_at("put"):
        backfill(config, tables=[table], into=into)
    ((_, begun),) = unfinished(config, None)
    assert begun.sources == (table,)
    assert begun.end is not None
    assert begun.end.journal == history.journals[2]
    (archive / history.journals[3]).write_bytes(
        (history.archive / history.journals[3]).read_bytes()
    )
    report = backfill(config, tables=[table], into=into)
    assert report.outcome == "nothing_new"
    assert f"the range has no change of {table}" in report.reason
    assert report.capture is not None
    assert not report.capture.spark_started
    assert report.end.journal == history.journals[2]
    assert report.capture.interval.transactions_seen > 0
    cursor = report.capture.cursor
    assert cursor is not None
    assert cursor.position.order <= begun.end.order
    assert backfill(config, tables=[table], into=into).capture is None
    with pytest.raises(ConfigError, match="was started with other tables"):
        backfill(config, tables=[ACCOUNT], into=into)
    assert_untouched(config)


def test_k18_a_range_is_a_journal_a_gtid_or_a_time(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(history.archive)

    def seen(name: str, begin: str, end: str) -> tuple[int, str]:
        report = backfill(
            config,
            tables=["shop.nothing"],
            into=tmp_path / name,
            start=start_of(begin),
            end=end_of(end),
        )
        assert report.capture is not None
        return report.capture.interval.transactions_seen, report.end.gtid_set

    second, third = history.journals[1:3]
    count, executed = seen("journals", second, f"{third}:4")
    assert count == 7, "six of the workload and one elsewhere; what was rolled back is not logged"
    uuid, _, numbers = executed.rpartition(":")
    last = numbers.partition("-")[2]
    assert seen("gtid", f"{uuid}:1-{int(last) - 3}", f"{uuid}:{last}") == (3, executed)
    with pytest.raises(PositionError, match="executed before its start"):
        seen("before", third, f"{uuid}:2")
    with pytest.raises(PositionError, match="end before it begins"):
        seen("turned", third, f"{second}:4")
    with pytest.raises(PositionError, match="beyond the end"):
        seen("beyond", second, "binlog.000999:4")
    assert seen("time", "1999-01-01T00:00:00+00:00", "1999-01-02T00:00:00+00:00") == (0, "")
    for wrong in ("yesterday", "2026-01-31", "2026-01-31T08:00:00", "binlog.000001:2"):
        with pytest.raises(ConfigError, match="--from cannot be understood"):
            start_of(wrong)


def test_k18_what_a_side_lake_cannot_be(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(history.archive, tables={"include": [f"{DATABASE}.*"], "exclude": [LABEL]})
    lake = config.sink.lake_path
    for into in (lake, lake / DATABASE, lake.parent, f"{lake.parent}/side/../{lake.name}"):
        with pytest.raises(ConfigError, match="must be separate"):
            backfill(config, tables=[ACCOUNT], into=into)
    for tables in ([LABEL], ["account"], []):
        with pytest.raises(ConfigError, match=r"these tables are not captured|no table was given"):
            backfill(config, tables=tables, into=tmp_path / "side")
    (tmp_path / "other" / "_cdc" / "bank" / "cuts").mkdir(parents=True)
    (tmp_path / "other" / "_cdc" / "bank" / "cuts" / f"{1:020d}.json").write_text("{}")
    with pytest.raises(LakeStateError, match="no backfill of this pipeline has made"):
        backfill(config, tables=[ACCOUNT], into=tmp_path / "other")
