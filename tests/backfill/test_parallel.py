"""Journals of an archive, decoded side by side: the same rows as one after the other, seq included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config import PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.pipeline.backfill import backfill
from cdc_pipeline.pipeline.backfill_lake import SideLake
from cdc_pipeline.pipeline.backfill_parallel import Parallel
from cdc_pipeline.pipeline.backfill_pieces import Piece, pieces
from cdc_pipeline.pipeline.backfill_survey import JournalSurvey, Look, survey
from cdc_pipeline.sink.lake import LakePaths
from cdc_pipeline.sink.manifest import Cut
from tests.backfill.conftest import DATABASE, MASKED, History
from tests.backfill.test_into import Killed, KilledAt
from tests.pipeline.comparison import lake_rows
from tests.servers import Server

pytestmark = pytest.mark.mysql

MakeConfig = Callable[..., PipelineConfig]
ACCOUNT, LABEL = f"{DATABASE}.account", f"{DATABASE}.label"
EVERYTHING = Parallel(stretch_bytes_min=0)


@pytest.mark.spark
def test_k18_k1_in_parallel_every_row_is_as_one_after_the_other(
    history: History, make_config: MakeConfig, spark: Any, tmp_path: Path
) -> None:
    """A mirror and a changelog with a mask, over a DDL; killed after a record, and gone on with."""
    masks = {"name": {"truncate": 1}}
    rules = [{"tables": [ACCOUNT], "masks": masks}, {"tables": [ACCOUNT], "mode": "changelog", "masks": masks}]
    config = make_config(history.archive, targets=rules)
    in_order = backfill(config, tables=[ACCOUNT], into=tmp_path / "in_order")
    call = partial(backfill, config, tables=[ACCOUNT], into=tmp_path / "parallel", parallel=EVERYTHING)
    with pytest.raises(Killed):
        call(observer=KilledAt("after_record", 2))  # the first is of the first table's own DDL
    report = call()
    assert report.parallel is not None
    assert report.parallel.batches >= 1
    assert report.parallel.tasks >= 4
    assert any("a statement that concerns the tables" in why for why in report.parallel.one_after_the_other)
    assert report.end == in_order.end

    columns = [*history.columns["account"], "_cdc_op", "_cdc_seq", "_cdc_ts"]
    expected = sorted(((key, name and name[:1], *rest) for key, name, *rest in history.rows["account"]), key=repr)
    assert lake_rows(spark, tmp_path / "parallel", DATABASE, "account", history.columns["account"]) == expected
    log = [*columns, "_cdc_transaction"]
    for table, names in {"account": columns, "account_changelog": log}.items():
        there = [lake_rows(spark, tmp_path / way, DATABASE, table, names) for way in ("parallel", "in_order")]
        assert there[0], table
        assert there[0] == there[1], table
    ends = [_last_cut(tmp_path / way) for way in ("parallel", "in_order")]
    for name in ("account", "account_changelog"):
        states = [end.cursor.targets[f"{DATABASE}.{name}"] for end in ends]
        assert states[0].partial == states[1].partial
        assert ends[0].tables[f"{DATABASE}.{name}"].columns == ends[1].tables[f"{DATABASE}.{name}"].columns
    assert ends[0].cursor.gtid_set == ends[1].cursor.gtid_set
    assert sum(cut.interval.transactions_applied for cut in _cuts(tmp_path / "parallel")) == sum(
        cut.interval.transactions_applied for cut in _cuts(tmp_path / "in_order")
    )
    assert not list((tmp_path / "parallel" / "_cdc" / "bank" / "staging").iterdir())


def test_k14_salts_do_not_leave_the_process_and_servers_are_not_read_side_by_side(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(history.archive, targets=[{"tables": [f"{DATABASE}.nothing"], "masks": MASKED["masks"]}])
    report = backfill(config, tables=[f"{DATABASE}.nothing"], into=tmp_path / "side", parallel=EVERYTHING)
    assert report.parallel is not None
    (why,) = report.parallel.one_after_the_other
    assert "salt" in why
    assert report.parallel.tasks == 0
    live = make_config({"kind": "live", "host": "127.0.0.1", "port": 1, "user": "u", "password": "p"})
    side = SideLake(live, path=tmp_path / "other", tables=[ACCOUNT])
    from cdc_pipeline.pipeline.backfill_parallel import fill_in_parallel
    from cdc_pipeline.pipeline.report import SilentObserver

    with pytest.raises(ConfigError, match="only archives"):
        fill_in_parallel(
            side.config,
            tables=[ACCOUNT],
            cursors=side.cursors(),
            observer=SilentObserver(),
            run_id="",
            parallel=EVERYTHING,
        )


def test_k5_k8_what_spans_journals_is_read_one_after_the_other(
    history: History, make_config: MakeConfig, tmp_path: Path
) -> None:
    """An XA transaction from one journal to a later one, a DDL, and an end without ROTATE."""
    with Server("mysql") as server:
        server.execute_all(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {ACCOUNT} (id INT PRIMARY KEY)")
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
    side = SideLake(config, path=tmp_path / "side", tables=[ACCOUNT])
    files = sorted(archive.glob("binlog.0*"))
    surveys = [survey(Look(path=str(file)), config=side.config) for file in files]
    assert [len(one.alone) for one in surveys] == [2, *[0] * (len(surveys) - 1)], "CREATE DATABASE and TABLE"
    assert [one.journal[-1] for one in surveys if one.prepared] == ["3"]
    assert [one.journal[-1] for one in surveys if one.ended] == ["4"]
    assert [one.journal[-1] for one in surveys if not one.is_closed] == ["6", surveys[-1].journal[-1]]
    made = pieces(surveys, stretch_bytes_min=0)
    words = ["alone to 1", "2:4- 3:4-: a task each", "alone to 4", "4:- 5:4-: a task each", "alone to 8"]
    assert _in_words(made) == words
    prepared = surveys[2].prepared[0]
    assert made[1].segments[-1].stop == prepared.start
    assert made[2].stop == surveys[3].ended[0].stop
    following = [(one.journal, one.stop) for one in made]
    assert following[-1] == (surveys[-1].journal, surveys[-1].end)
    assert following == sorted(following)
    assert pieces(surveys, stretch_bytes_min=1 << 30) == [
        Piece(surveys[-1].journal, surveys[-1].end, why=made[0].why)
    ], "too small for tasks: one piece"


def _in_words(made: list[Piece]) -> list[str]:
    return [
        " ".join(f"{one.journal[-1]}:{one.start if one.start == 4 else ''}-" for one in piece.segments)
        + ": a task each"
        if piece.segments
        else f"alone to {piece.journal[-1]}"
        for piece in made
    ]


def test_a_journal_that_cannot_be_looked_at_is_told(history: History, make_config: MakeConfig, tmp_path: Path) -> None:
    config = SideLake(make_config(history.archive), path=tmp_path / "side", tables=[ACCOUNT]).config
    damaged = tmp_path / "binlog.000001"
    content = bytearray((history.archive / history.journals[1]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    found = survey(Look(path=str(damaged)), config=config)
    assert found.failed
    whole = JournalSurvey(journal="binlog.000002", start=4, end=1000, is_closed=True)
    assert not any(piece.segments for piece in pieces([found, whole], stretch_bytes_min=0))


def _cuts(lake: Path) -> list[Cut]:
    paths = LakePaths(lake, "bank")
    return [Cut.model_validate_json(file.read_text()) for file in sorted(paths.cuts.glob("*.json"))]


def _last_cut(lake: Path) -> Cut:
    return _cuts(lake)[-1]
