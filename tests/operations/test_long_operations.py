"""Each kind of long operation, killed at every fault point that it reaches: the same command ends
with what one without a kill has made, each change once, and until then `status` has it in its list
with a command that resumes it (K2, K17, K18)."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from cdc_pipeline.cli.backfill import command as backfill_command
from cdc_pipeline.cli.snapshot import command as snapshot_command
from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake import long_operations
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.state import pending_record
from cdc_pipeline.lake.storage.storage import Storage
from cdc_pipeline.operations.backfill.backfill import backfill
from cdc_pipeline.operations.backfill.gap import fill_gap
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.status import status
from cdc_pipeline.operations.verify.reread import repair
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.bounds import end_of, start_of
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import AtPoint, Killed, end_run

# They say nothing about an operation's own state, and a listener must not raise there.
_NOT_KILLED = {"put", "spill"}
SWAP = "snapshot_swapping"


class Play(NamedTuple):
    """An operation in the lake of `config`: its command, and the lake and table that it makes."""

    config: PipelineConfig
    command: Callable[[], Any]
    lake: Path
    table: str
    columns: tuple[str, ...] = ("id", "v")


class Shop(NamedTuple):
    """A server with a table that was made, filled and changed; `begin` is before all of that,
    `filled` behind its CREATE TABLE, `late` before its last changes."""

    server: Server
    database: str
    begin: PositionConfig
    filled: PositionConfig
    late: PositionConfig
    end: PositionConfig

    def play(self, kind: str, folder: Path, cursors: MemoryCursorStore) -> Play:
        table, lake = f"{self.database}.a", folder / "lake"
        mode = "changelog" if kind in ("gap", "view") else "mirror"
        config = PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": live(self.server),
                "tables": {"include": [table]},
                "targets": [{"tables": [table], "mode": mode, "name": "{schema}.{table}"}],
                "start": {"reread": self.begin, "view": self.end}.get(kind, self.late).model_dump(),
                "snapshot": {"chunk_rows": 15, "readers": 1},
                "sink": {"lake_path": lake, "spark": SPARK},
            }
        )
        wanted = {"tables": [table], "start": self.begin}
        into = folder / "side"
        commands: dict[str, Callable[[], Any]] = {
            "snapshot": partial(take_snapshot, config, cursors=cursors, tables=[table]),
            "view": partial(take_snapshot, config, cursors=cursors),
            "rebuild": partial(rebuild, config, cursors=cursors, **wanted),
            "backfill": partial(backfill, config, into=into, **wanted),
            "gap": partial(
                fill_gap, config, table=table, cursors=cursors, start=self.filled, end=self.late
            ),
            "reread": partial(repair, config, table=table, where="id >= 0", cursors=cursors),
        }
        made = into if kind == "backfill" else lake
        columns = ("id", "v", "_cdc_op") if mode == "changelog" else ("id", "v")
        return Play(config, commands[kind], made, table, columns)


@pytest.fixture
def shop(mysql_server: Server, mysql_database: str) -> Shop:
    server, database = mysql_server, mysql_database
    begin = PositionConfig(**here(server))
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))",
    )
    filled = PositionConfig(**here(server))
    server.execute_all(
        f"USE `{database}`",
        "INSERT INTO a VALUES " + ", ".join(f"({key}, 'first')" for key in range(40)),
        "UPDATE a SET v = 'second' WHERE id < 9",
        "DELETE FROM a WHERE id = 30",
    )
    late = PositionConfig(**here(server))
    server.execute(f"UPDATE `{database}`.a SET v = 'third' WHERE id % 7 = 3")
    return Shop(server, database, begin, filled, late, PositionConfig(**here(server)))


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["snapshot", "view", "rebuild", "backfill", "gap", "reread"])
def test_k2_k17_k18_an_operation_killed_anywhere_goes_on(
    kind: str,
    shop: Shop,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # A mirror needs no JVM; a changelog does, and is in memory.
    memory = request.getfixturevalue("memory") if kind in ("gap", "view") else None
    if kind != "reread":  # a place that has rows already is counted by Spark
        monkeypatch.setattr(SparkProvider, "session", _no_jvm)
    prepared = MemoryCursorStore()
    before = shop.play(kind, tmp_path / "before", prepared)
    if kind != "backfill":
        capture(before.config, cursors=prepared)

    def copied(name: str) -> tuple[Play, MemoryCursorStore]:
        lake, cursors = tmp_path / name / "lake", MemoryCursorStore(prepared.read(), source="bank")
        if before.config.sink.lake_path.exists():
            shutil.copytree(before.config.sink.lake_path, lake)
        for folder, table in list(memory.tables.items()) if memory is not None else ():
            if folder.is_relative_to(before.config.sink.lake_path):
                to = lake / folder.relative_to(before.config.sink.lake_path)
                memory.tables[to] = replace(table, commits=list(table.commits))
        return shop.play(kind, tmp_path / name, cursors), cursors

    def rows(play: Play) -> list[tuple[Any, ...]]:
        return lake_rows(memory, play.lake, shop.database, "a", list(play.columns))

    whole, _ = copied("whole")
    points: list[str] = []
    with listening(points.append):
        whole.command()
    expected = rows(whole)
    if memory is None:
        assert expected == server_rows(shop.server, shop.database, "a", ["id", "v"])
    assert status(whole.config).operations == ()

    swaps = points[points.index(SWAP) + 1 :] if SWAP in points else []
    kills = [*dict.fromkeys(points), *(f"{SWAP}/{point}" for point in dict.fromkeys(swaps))]
    begun, shown = 0, set()
    play, cursors = copied("0")
    for kill in kills:
        if kill in _NOT_KILLED:
            continue
        # Each goes on where the one before was killed, or begins if that was at its very end.
        while not _is_killed(play.command, kill):
            assert rows(play) == expected, kill
            begun += 1
            play, cursors = copied(str(begun))
        for left in status(play.config).operations:
            assert (left.tables, left.is_running) == ((play.table,), False), kill
            play = play._replace(command=as_printed(play.command, left.command))
            shown.add(kill)
        if left_recorded(play.config) and kind == "gap":
            capture(play.config, cursors=cursors)  # it captures nothing itself, and says so
    play.command()
    for owner, name, act in _INSIDE if SWAP in points and memory is None else ():
        play, cursors = copied(name)
        with patch.object(owner, name, act), pytest.raises(Killed):
            play.command()
        play.command()
        assert rows(play) == expected, name
    if kind != "backfill":
        capture(play.config, cursors=cursors)
    assert rows(play) == expected
    assert_each_batch_once(LakePaths(play.lake, "bank"))
    paths = LakePaths(play.config.sink.lake_path, "bank")
    left = [at.name for at in (paths.state / long_operations.OPERATIONS_FOLDER).iterdir()]
    is_remembered = kind in ("backfill", "gap")
    assert len(left) == 2 if is_remembered else left == ["operations.lock"], "no side lake"
    assert not list(paths.staging_root.glob("*"))
    assert status(play.config).operations == ()
    assert shown >= {"after_record", "before_cut"}, "most of them are in the midst of it"
    assert begun <= len(kills) // 2


def _no_jvm(_: SparkProvider) -> None:
    raise AssertionError("Spark starts")


def _half_removed(folder: Path) -> int:
    for file in sorted(file for file in folder.rglob("*") if file.is_file())[::2]:
        file.unlink()
    raise Killed


def _shared(storage: Storage, path: Path, target: Path) -> None:
    _SHARE(storage, path, target)
    raise Killed


_SHARE = Storage.share
# Where no fault point is: a file of a table has its name in the target's folder; some of a side
# lake's files are gone.
_INSIDE: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (Storage, "share", _shared),
    (long_operations, "remove_tree", _half_removed),
)


def as_printed(call: Callable[..., Any], printed: str) -> Callable[[], Any]:
    """The call, with what the command line reads from a command that `status` prints."""
    name, *words = shlex.split(printed.removeprefix("cdc-pipeline "))
    command = {"backfill": backfill_command, "snapshot": snapshot_command}[name]
    asked = command.make_context(name, words).params
    if name == "snapshot":
        return call  # all of the source's, or of a condition that is not printed
    given: dict[str, Any] = {"start": start_of(asked["begin"]), "archive": asked["archive"]}
    if asked["is_gap"]:
        (given["table"],) = asked["tables"]
    else:
        given["tables"] = asked["tables"]
    given |= {"into": asked["into"]} if asked["into"] else {}
    return partial(call, **given, **({} if asked["is_rebuild"] else {"end": end_of(asked["end"])}))


def assert_each_batch_once(paths: LakePaths) -> None:
    numbers = list_numbers(paths.cuts)
    assert numbers == list(range(1, len(numbers) + 1))
    for log in paths.lake.glob("[!_]*/*/_delta_log"):
        lines = (line for file in log.glob("*.json") for line in file.read_text().splitlines())
        marks = (json.loads(line).get("txn") for line in lines)
        versions = Counter((mark["appId"], mark["version"]) for mark in marks if mark)
        assert set(versions.values()) <= {1}, log


def left_recorded(config: PipelineConfig) -> bool:
    return pending_record(LakePaths(config.sink.lake_path, config.name)) is not None


def _is_killed(command: Callable[[], Any], points: str) -> bool:
    try:
        with listening(AtPoint(points, end_run)):
            command()
    except Killed:
        return True
    return False
