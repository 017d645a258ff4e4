"""Journals of an archive, decoded side by side: the same rows as one after the other, seq
included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedTarget
from cdc_pipeline.operations.backfill.backfill import _resolved, backfill
from cdc_pipeline.operations.backfill.lake import BackfillLake, as_text
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.run.capture.segments.join import joined
from cdc_pipeline.run.capture.segments.pieces import RangePiece, pieces
from cdc_pipeline.run.capture.segments.segment import WaveInputs, decode_segment
from cdc_pipeline.run.capture.segments.survey import JournalSurvey, Segment, survey
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.source.archive.archive import ArchiveSource
from tests.operations.backfill.conftest import ALL_COLUMNS, DATABASE, MASKED, History
from tests.servers import Server
from tests.support.comparison import lake_rows
from tests.support.kills import killed_at
from tests.support.lake_log import cuts_of
from tests.support.memory_sink import MemoryLake

pytestmark = pytest.mark.mysql

MakeConfig = Callable[..., PipelineConfig]
ACCOUNT, LABEL = f"{DATABASE}.account", f"{DATABASE}.label"
MODES = ("mirror", "changelog", "history")
EVERYTHING = Parallel(stretch_bytes_min=0)


def test_k18_k1_in_parallel_every_row_is_as_one_after_the_other(
    history: History, make_config: MakeConfig, memory: MemoryLake, tmp_path: Path
) -> None:
    """Over a DDL, with a mask; killed after a record, and gone on with."""
    config = make_config(
        history.archive, targets=[{"tables": [ACCOUNT], "masks": {"name": {"truncate": 1}}}]
    )
    in_order = backfill(config, tables=[ACCOUNT], into=tmp_path / "in_order")
    call = partial(
        backfill, config, tables=[ACCOUNT], into=tmp_path / "parallel", parallel=EVERYTHING
    )
    with killed_at("after_record", 2):  # the first is of the table's creation
        call()
    report = call()
    assert report.parallel is not None
    assert report.parallel.batches == 1, "the other one was recorded by the process that was killed"
    assert report.parallel.tasks == 6
    assert any(
        "a statement that affects the tables" in why for why in report.parallel.one_after_the_other
    )
    assert report.end == in_order.end

    names = ALL_COLUMNS["account"]
    expected = sorted(
        ((key, name and name[:1], *rest) for key, name, *rest in history.rows["account"]), key=repr
    )
    assert lake_rows(memory, tmp_path / "parallel", DATABASE, "account", names) == expected
    names = [*names, "_cdc_op", "_cdc_seq", "_cdc_ts"]
    ways = [tmp_path / way for way in ("parallel", "in_order")]
    rows, other_rows = (lake_rows(memory, way, DATABASE, "account", names) for way in ways)
    assert rows == other_rows
    cut, other_cut = (_cuts(way)[-1] for way in ways)
    assert cut.cursor.targets[ACCOUNT].partial is other_cut.cursor.targets[ACCOUNT].partial is False
    assert cut.tables[ACCOUNT].spec.columns == other_cut.tables[ACCOUNT].spec.columns
    assert cut.cursor.gtid_set == other_cut.cursor.gtid_set
    counts, other_counts = (
        sum(cut.interval.transactions_applied for cut in _cuts(way)) for way in ways
    )
    assert counts == other_counts
    assert not list((tmp_path / "parallel" / "_cdc" / "bank" / "staging").iterdir())


def test_k18_k10_tasks_stage_what_one_process_stages(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    """In each mode, file by file joined; no JVM: the sequential way is ended after its record."""
    rules = [{"tables": [ACCOUNT], "mode": mode, "name": f"shop.{mode}"} for mode in MODES]
    config = make_config(history.archive, targets=rules)
    start, end = (
        PositionConfig(journal=history.journals[4]),
        PositionConfig(journal=history.journals[7]),
    )
    sides = [
        BackfillLake(config, path=tmp_path / way, tables=[ACCOUNT])
        for way in ("in_order", "parallel")
    ]
    asked = {"from": as_text(start), "to": as_text(end)}
    records = [_resolved(side, asked, start=start, end=end) for side in sides]
    lakes = [
        side.filling(record, observer=RunObserver(), run_id="")
        for side, record in zip(sides, records, strict=True)
    ]
    runs = [lake.config for lake in lakes]
    with killed_at("after_record"):
        lakes[0].capture()
    paths = LakePaths(runs[0].sink.lake_path, "bank")
    expected = BatchRecord.model_validate_json(paths.batch(1).read_text())

    lakes[1].capture(start)  # a cursor, and nothing else
    before = lakes[1].cursor
    archive = ArchiveSource(history.archive)
    given = WaveInputs(
        config=runs[1],
        directory=history.archive,
        cut="",
        cursor=before.model_dump_json(),
        identity=archive.identity,
        uses_gtids=True,
        number=1,
        epoch=1,
    )
    tasks = [
        Segment(
            journal=one.journal,
            start=one.start,
            stop=one.end,
            created_s=archive.journal_created_s(one.journal),
        )
        for one in (
            survey(Segment(journal=name), directory=history.archive, config=runs[1])
            for name in history.journals[4:7]
        )
    ]
    results = [decode_segment(task, given) for task in tasks]
    assert not [result.refused for result in results if result.refused]
    record = joined(before, results)
    assert [target.table for target in record.targets] == [f"shop.{mode}" for mode in sorted(MODES)]
    for target, other in zip(record.targets, expected.targets, strict=True):
        assert len(target.files) == 3
        staged, other_staged = (
            _staged(run, of) for run, of in ((runs[1], target), (runs[0], other))
        )
        assert staged.equals(other_staged), target.table
        without = {"files", "app_id"}
        assert target.model_dump(exclude=without) == other.model_dump(exclude=without)
    assert record.interval.transactions_applied == expected.interval.transactions_applied
    assert {
        name: state.partial for name, state in record.cursor_after.targets.items()
    } == dict.fromkeys((f"shop.{mode}" for mode in MODES), True)
    across = Segment(
        journal=history.journals[3],
        start=4,
        stop=tasks[0].stop,
        created_s=archive.journal_created_s(history.journals[3]),
    )
    alter = survey(Segment(journal=across.journal), directory=history.archive, config=runs[1])
    refused = decode_segment(across.model_copy(update={"stop": alter.end}), given)
    assert "cannot be decoded separately" in refused.refused, "a DDL of a target"


def _staged(config: PipelineConfig, target: RecordedTarget) -> pa.Table:
    files = [pq.read_table(config.sink.lake_path / file.path) for file in target.files]
    return (
        pa.concat_tables(files)
        .sort_by([("_seq", "ascending"), ("_op", "ascending")])
        .combine_chunks()
    )


def test_k14_salts_do_not_leave_the_process_and_servers_are_not_read_side_by_side(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(
        history.archive, targets=[{"tables": [f"{DATABASE}.nothing"], "masks": MASKED["masks"]}]
    )
    report = backfill(
        config, tables=[f"{DATABASE}.nothing"], into=tmp_path / "side", parallel=EVERYTHING
    )
    assert report.parallel is not None
    (why,) = report.parallel.one_after_the_other
    assert "salt" in why
    assert report.parallel.tasks == 0
    live = make_config(
        {"kind": "live", "host": "127.0.0.1", "port": 1, "user": "u", "password": "p"}
    )
    with pytest.raises(ConfigError, match="only archives"):
        backfill(live, tables=[ACCOUNT], into=tmp_path / "other", parallel=EVERYTHING)


def test_k5_k8_what_spans_journals_is_read_one_after_the_other(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    """An XA transaction from one journal to a later one, a DDL, and an end without ROTATE."""
    with Server("mysql") as server:
        server.execute_all(
            f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {ACCOUNT} (id INT PRIMARY KEY)"
        )
        server.flush_journal()
        for number in range(6):
            server.execute(f"INSERT INTO {ACCOUNT} VALUES ({number})")
            if number == 1:
                for statement in ("START '1'", "END '1'", "PREPARE '1'"):
                    server.execute(f"XA {statement}")
                    if statement == "START '1'":
                        server.execute(f"INSERT INTO {ACCOUNT} VALUES (100)")
            if number == 2:
                server.new_session()
                server.execute("XA COMMIT '1'")
                server.execute(f"INSERT INTO {ACCOUNT} VALUES (200)")
            if number == 4:
                server.kill()
                server.start()
            else:
                server.flush_journal()
        archive = tmp_path / "archive"
        server.copy_journals(archive)
    config = make_config(archive)
    side = BackfillLake(config, path=tmp_path / "side", tables=[ACCOUNT])
    files = sorted(archive.glob("binlog.0*"))
    surveys = [
        survey(Segment(journal=file.name), directory=archive, config=side.config) for file in files
    ]
    assert [len(one.alone) for one in surveys] == [2, *[0] * (len(surveys) - 1)], (
        "CREATE DATABASE and TABLE"
    )
    assert [one.journal[-1] for one in surveys if one.prepared] == ["3"]
    assert [one.journal[-1] for one in surveys if one.ended] == ["4"]
    assert [one.journal[-1] for one in surveys if not one.is_closed] == [
        "6",
        surveys[-1].journal[-1],
    ]
    made = pieces(surveys, stretch_bytes_min=0)
    words = [
        "alone to 1",
        "2:4- 3:4-: a task each",
        "alone to 4",
        "4:- 5:4-: a task each",
        "alone to 8",
    ]
    assert _in_words(made) == words
    prepared = surveys[2].prepared[0]
    assert made[1].segments[-1].stop == prepared.start
    assert made[2].stop.offset == surveys[3].ended[0].stop
    end = Position(surveys[-1].journal, surveys[-1].end)
    following = [one.stop.order for one in made]
    assert following[-1] == end.order
    assert following == sorted(following)
    assert pieces(surveys, stretch_bytes_min=1 << 30) == [RangePiece(end, why=made[0].why)], (
        "too small for tasks: one piece"
    )


def _in_words(made: list[RangePiece]) -> list[str]:
    return [
        " ".join(
            f"{one.journal[-1]}:{one.start if one.start == 4 else ''}-" for one in piece.segments
        )
        + ": a task each"
        if piece.segments
        else f"alone to {piece.stop.journal[-1]}"
        for piece in made
    ]


def test_a_journal_that_cannot_be_looked_at_is_told(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = BackfillLake(
        make_config(history.archive), path=tmp_path / "side", tables=[ACCOUNT]
    ).config
    damaged = tmp_path / "binlog.000001"
    content = bytearray((history.archive / history.journals[1]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    found = survey(Segment(journal=damaged.name), directory=tmp_path, config=config)
    assert found.failed
    whole = JournalSurvey(journal="binlog.000002", start=4, end=1000, is_closed=True)
    assert not any(piece.segments for piece in pieces([found, whole], stretch_bytes_min=0))


def _cuts(lake: Path) -> list[Cut]:
    return cuts_of(lake, "bank")
