"""Tables loaded while they are written to, killed on the way: what the lake holds then is what the
server's SELECT says (K17, K19)."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.long_operations import operations_of
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.status import status
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.reread import repair
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.operations.snapshot.writer import KEYS, Writer
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.comparison import server_rows
from tests.support.crash_children import run_child
from tests.support.delta_reader import Row, chosen_rows, is_open, lives
from tests.support.kills import AtPoint, killed_at

pytestmark = pytest.mark.spark

# Each run goes on where the one before was killed: among chunks, in a chunk's own batch (by night
# the whole process), and among the tables that take their places.
# `tests/operations/test_long_operations.py` has the other points.
KILLS = (
    "snapshot_chunks/snapshot_chunks",
    "snapshot_chunks/after_record",
    "snapshot_swapping/between_merges",
)
PROCESS_KILLED_AT = "snapshot_chunks/after_record"


def project(
    server: Server,
    database: str,
    folder: Path,
    targets: list[dict[str, Any]],
    *,
    chunk_rows: int = KEYS // 2,
) -> PipelineConfig:
    document: dict[str, Any] = {
        "name": "bank",
        "source": live(server),
        "tables": {"include": [f"{database}.*"]},
        "start": here(server),
        "targets": targets,
        "snapshot": {"chunk_rows": chunk_rows},
        "sink": {"lake_path": str(folder / "lake"), "spark": SPARK},
    }
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return PipelineConfig.model_validate(document)


def create_a(server: Server, database: str) -> None:
    rows = ", ".join(f"({key}, 'first', {key})" for key in range(KEYS))
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
        f"INSERT INTO a VALUES {rows}",
    )


class Lake:
    """The lake's tables, against the server's; read without Spark (see `comparison.lake_rows`)."""

    def __init__(self, config: PipelineConfig, server: Server, database: str) -> None:
        self._config, self._server, self._database = config, server, database

    def rows(
        self, table: str, columns: list[str], where: Callable[[Row], bool] = bool
    ) -> list[tuple[Any, ...]]:
        folder = Path(str(self._config.sink.lake_path)) / self._database / table
        return chosen_rows(folder, columns, where)

    def check(
        self,
        table: str,
        columns: list[str],
        where: Callable[[Row], bool] = bool,
        *,
        source: str = "",
    ) -> None:
        expected = server_rows(self._server, self._database, source or table, columns)
        assert self.rows(table, columns, where) == expected, table


@pytest.mark.parametrize(
    "process_killed_at",
    [
        pytest.param("", marks=pytest.mark.whole),
        pytest.param(PROCESS_KILLED_AT, marks=pytest.mark.nightly),
    ],
)
def test_k17_killed_again_and_again_under_constant_writes(
    mysql_server: Server, mysql_database: str, spark: Any, tmp_path: Path, process_killed_at: str
) -> None:
    """A mirror, its soft deletes and a history in one load; ADD COLUMN comes among its chunks."""
    server, database = mysql_server, mysql_database
    create_a(server, database)
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE h (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE e (id INT PRIMARY KEY)",
        "INSERT INTO h VALUES (1, 1), (2, 2), (3, 3)",
    )
    item = {"tables": [f"{database}.a"]}
    soft = {**item, "mode": "soft_delete", "name": "{schema}.{table}_soft"}
    config = project(
        server, database, tmp_path, [item, soft, {"tables": [f"{database}.h"], "mode": "history"}]
    )
    resumed = Resumed()

    def of_a_new_process() -> DeltaCursorStore:
        return DeltaCursorStore(tmp_path / "cursors", source="bank")

    with Writer(server, database, "ah", seed=17, pause_s=0.2) as writer:
        writer.wait_for(5)
        for kill in KILLS:
            if kill == process_killed_at:
                done = run_child(
                    [str(tmp_path / "config.json"), str(tmp_path / "cursors"), kill],
                    environment={},
                    folder=tmp_path,
                    module="tests.operations.snapshot.crash_child",
                )
                assert done.returncode == -signal.SIGKILL, f"{kill}: {done.stdout}\n{done.stderr}"
            else:
                with killed_at(kill):
                    take_snapshot(config, cursors=of_a_new_process())
            if kill == KILLS[0]:
                (found,) = operations_of(config, last_cut(LakePaths(config.sink.lake_path, "bank")))
                assert not found.is_running
                assert found.progress[f"{database}.h"].is_done
                assert not found.progress[f"{database}.a"].is_done
                assert 0 < found.percent < 100
                server.execute(f"ALTER TABLE `{database}`.a ADD COLUMN m INT NOT NULL DEFAULT 7")
            writer.wait_for(5)
        cursors = of_a_new_process()
        report = take_snapshot(config, cursors=cursors, observer=resumed)
        writer.wait_for(5)
        again = repair(config, cursors=cursors, table=f"{database}.a", where="id >= 0")
        writer.wait_for(5)
    assert report.resumed == tuple(resumed.loads)
    assert again.rows_written > 0
    assert again.rows_left == 0
    assert len(resumed.loads) <= 1
    capture(config, cursors=cursors)
    lake, columns = Lake(config, server, database), ["id", "v", "n", "m"]
    lake.check("a", columns)
    lake.check("a_soft", columns, lives, source="a")
    lake.check("e", ["id"])
    lake.check("h_history", ["id", "v"], is_open, source="h")
    versions = lake.rows("h_history", ["id", "__START_AT", "__END_AT"])
    assert len({(key, start) for key, start, _ in versions}) == len(versions), (
        "a version is there twice"
    )
    told = status(config, cursors=cursors)
    assert {name for name, table in told.tables.items() if table.partial} == set()
    assert told.operations == ()
    paths = LakePaths(config.sink.lake_path, "bank")
    assert [at.name for at in (paths.state / "operations").iterdir()] == ["operations.lock"]
    assert writer.transactions > 30


class Resumed(RunObserver):
    """Remembers which loads were gone on with."""

    def __init__(self) -> None:
        self.loads: list[str] = []

    def operation_began(self, state: Any, *, resumed: bool) -> None:
        if resumed:
            self.loads.append(state.operation_id)


@pytest.mark.whole
def test_k17_k19_partial_and_suspended_tables_become_whole(
    mariadb_server: Server, mariadb_database: str, spark: Any, tmp_path: Path
) -> None:
    """A table that is partial, one that is suspended, and one that changes its type while it is
    loaded; what was there stays readable until it is replaced."""
    server, database = mariadb_server, mariadb_database
    create_a(server, database)
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE k (v INT, w VARCHAR(5))",
        "INSERT INTO k VALUES (1, 'x'), (1, 'x'), (2, NULL)",
    )
    keyless = {"tables": [f"{database}.k"], "keyless": "row_hash"}
    config = project(server, database, tmp_path, [keyless], chunk_rows=KEYS)
    cursors = DeltaCursorStore(tmp_path / "cursors", source="bank")
    lake = Lake(config, server, database)
    server.execute_all(
        f"USE `{database}`",
        f"UPDATE a SET n = 1 WHERE id < {KEYS // 2}",
        "CREATE TABLE s (id INT PRIMARY KEY, price DECIMAL(8,2))",
        "INSERT INTO s VALUES (1, 1.25), (2, 2.5)",
    )
    capture(config, cursors=cursors)
    server.execute_all(
        f"USE `{database}`",
        "ALTER TABLE s MODIFY price DECIMAL(8,1)",
        "INSERT INTO s VALUES (3, 3.5)",
    )
    with pytest.raises(TargetSuspendedError):
        capture(config, cursors=cursors)
    told = status(config, cursors=cursors)
    assert told.tables[f"{database}.a"].partial
    assert (
        f"cdc-pipeline snapshot bank --table {database}.a" in told.tables[f"{database}.a"].next_step
    )
    assert lake.rows("s", ["id"]) == [(1,), (2,)]

    seen: list[Any] = []

    def look() -> None:
        seen.append(lake.rows("s", ["id"]))

    def change() -> None:
        server.execute(
            f"ALTER TABLE `{database}`.a MODIFY v VARCHAR(3000), ADD COLUMN m "
            "VARCHAR(9) DEFAULT 'seven'"
        )

    with Writer(server, database, "ak", seed=19, pause_s=0.1) as writer:
        writer.wait_for(5)
        names = [f"{database}.a", f"{database}.k", f"{database}.s"]
        with (
            listening(AtPoint("snapshot_created", change)),
            listening(AtPoint("snapshot_caught_up", look)),
        ):
            report = take_snapshot(config, cursors=cursors, tables=names)
        writer.wait_for(5)
    assert seen == [[(1,), (2,)]]
    assert list(report.targets) == names
    assert report.targets[f"{database}.a"].rows_read >= 10
    capture(config, cursors=cursors)
    lake.check("a", ["id", "v", "n", "m"])
    lake.check("k", ["v", "w"])
    assert [str(price) for _, price in lake.rows("s", ["id", "price"])] == ["1.3", "2.5", "3.5"]
    told = status(config, cursors=cursors)
    assert {
        name: (table.partial, table.suspended) for name, table in told.tables.items()
    } == dict.fromkeys(names, (False, None))
    assert take_snapshot(config, cursors=cursors).outcome == "nothing_to_do"

    # What the log does not tell is read again by a condition; a comparison finds what is gone.
    gone = lake.rows("a", ["id"])[0][0]

    def unlogged(*statements: str) -> None:
        with server.root_connection(database=database) as session, session.cursor() as cursor:
            for sql in ("SET sql_log_bin = 0", *statements, "COMMIT"):
                cursor.execute(sql)

    unlogged(f"DELETE FROM a WHERE id = {gone}", "UPDATE a SET v = 'unseen' WHERE id % 20 = 7")
    again = repair(config, cursors=cursors, table=f"{database}.a", where="v = 'unseen'")
    assert again.rows_written == len(
        server_rows(server, database, "a", ["id"], where="WHERE v = 'unseen'")
    )
    assert (again.rows_left, len(again.batches)) == (0, 1)
    assert (gone,) in lake.rows("a", ["id"])
    asked = VerifyOptions(tables=(f"{database}.a",), repair=True)
    found = verify(config, cursors=cursors, options=asked).tables[f"{database}.a"]
    assert (found.status, found.repaired) == ("equal", {"deleted": 1})
    lake.check("a", ["id", "v", "n", "m"])
    unlogged("UPDATE a SET v = 'twice' WHERE v = 'unseen'")
    # at the same place of the log
    repair(config, cursors=cursors, table=f"{database}.a", where="v = 'twice'")
    lake.check("a", ["id", "v", "n", "m"])

    # All changes of this table are in the log (K12), up to the one that is not.
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE x (id INT PRIMARY KEY, v INT)",
        "INSERT INTO x VALUES (1, 1)",
    )
    capture(config, cursors=cursors)
    unlogged("UPDATE x SET v = 2")
    assert repair(config, cursors=cursors, table=f"{database}.x", where="id = 1").rows_written == 1
    assert lake.rows("x", ["id", "v"]) == [(1, 2)]
    state = cursors.read()
    assert state is not None
    assert not state.targets[f"{database}.x"].exact
