"""XA transactions the whole way on real servers: the lake equals the server's SELECT after every
run (K8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import StagingError, TargetSuspendedError, UnknownXaError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.plan_text import xa_line
from cdc_pipeline.operations.status import status
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.run.report import CaptureReport
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import assert_equal, lake_rows, server_rows
from tests.support.memory_sink import MemoryLake
from tests.support.shown_journals import inspect
from tests.support.xa_session import XaSession

MakeConfig = Callable[..., PipelineConfig]
COLUMNS = {"t": ["id", "v", "n"], "u": ["a", "b", "d"]}


class Way:
    """A server with two tables, and captures of it into one lake."""

    def __init__(
        self,
        server: Server,
        database: str,
        make_config: MakeConfig,
        memory: MemoryLake,
        **sections: Any,
    ) -> None:
        self.server, self.database, self.memory = server, database, memory
        self.config = make_config(
            live(server), include=[f"{database}.*"], start=here(server), **sections
        )
        self.cursors = MemoryCursorStore()
        server.execute_all(
            f"USE `{database}`",
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(400), n INT NOT NULL DEFAULT 0)",
            "CREATE TABLE u (a INT, b VARCHAR(20), d DECIMAL(12,3), PRIMARY KEY (a, b))",
            "INSERT INTO t VALUES (1,'one',1),(2,'two',2),(3,'three',3)",
        )

    def begin(self, xid: str) -> XaSession:
        return XaSession(self.server, self.database, xid)

    def run(self) -> CaptureReport:
        """A capture, and the proof that the lake holds what a reader of the server sees."""
        report = capture(self.config, cursors=self.cursors)
        self.assert_equal()
        return report

    def assert_equal(self) -> None:
        assert_equal(self.memory, self.config, self.server, self.database, COLUMNS)

    @property
    def cursor(self) -> CursorState:
        assert self.cursors.cursor is not None
        return self.cursors.cursor

    def open_xids(self) -> list[str]:
        return [xa.xid for xa in self.cursor.open_xa]

    def parked_files(self) -> list[Path]:
        return sorted(self.config.sink.lake_path.glob("_cdc/*/xa/*/*"))

    def execute(self, *statements: str) -> None:
        self.server.execute_all(f"USE `{self.database}`", *statements)


@pytest.fixture
def way(server: Server, fresh_database: str, make_config: MakeConfig, memory: MemoryLake) -> Way:
    return Way(server, fresh_database, make_config, memory, store={"ring_events": 64})


def test_k8_prepared_rows_become_changes_at_their_xa_commit(way: Way, tmp_path: Path) -> None:
    """In the same run, in a later run, journals later, rolled back, in one phase; interleaved with
    other changes."""
    same = (
        way.begin("'same'")
        .run("INSERT INTO t VALUES (10,'same',0)", "UPDATE t SET v='ONE' WHERE id = 1")
        .prepare()
    )
    way.execute("INSERT INTO t VALUES (9,'neighbour',0),(11,'neighbour',0)")
    later = way.begin("X'00ff27',X'0102',7").run(
        "DELETE FROM t WHERE id = 2", "INSERT INTO u VALUES (1,'x',1.5)"
    )
    later.prepare()
    gone = way.begin("'a''b','\"`'").run(
        "UPDATE t SET id = 103 WHERE id = 3", "INSERT INTO t VALUES (20,'no',0)"
    )
    gone.prepare()
    same.commit()
    way.begin("'1p'").run("INSERT INTO t VALUES (30,'one phase',0)").commit_one_phase()
    first = way.run()
    assert first.interval.xa_prepared == 3
    assert first.interval.xa_committed == 1
    assert way.open_xids() == ["X'00ff27',X'0102',7", "X'612762',X'2260',1"]
    assert [sorted(file.table.split(".")[1] for file in xa.files) for xa in way.cursor.open_xa] == [
        ["t", "u"],
        ["t"],
    ]
    assert [xa.rows for xa in way.cursor.open_xa] == [2, 2]
    assert all(bool(xa.gtid) for xa in way.cursor.open_xa)
    assert len(way.parked_files()) == 3
    shown = status(way.config, cursors=way.cursors)
    assert [(xa.xid, xa.rows) for xa in shown.open_xa] == [(xa.xid, 2) for xa in way.cursor.open_xa]
    assert plan(way.config, cursors=way.cursors).open_xa == shown.open_xa
    line = xa_line(shown.open_xa[0])
    assert line.startswith("X'00ff27',X'0102',7 since 20")
    assert line.endswith(f"{shown.open_xa[0].begin.offset}, 2 rows parked")
    summary = inspect([way.server.datadir / shown.open_xa[0].begin.journal])
    assert summary.error is None
    assert summary.prepared >= 3

    # The neighbours change while both are open.
    way.execute("UPDATE t SET n = n + 1 WHERE id IN (1, 9, 11)", "FLUSH BINARY LOGS")
    second = way.run()
    assert second.interval.xa_prepared == 0
    assert len(way.cursor.open_xa) == 2

    # Archived journals give the same rows, and the same open transactions at their end.
    way.server.flush_journal()
    way.server.copy_journals(tmp_path / "journals")
    archived = way.config.model_copy(
        update={
            "name": "archived",
            "source": ArchiveSourceConfig(kind="archive", directory=tmp_path / "journals"),
            "sink": way.config.sink.model_copy(update={"lake_path": tmp_path / "side"}),
        }
    )
    copy = capture(archived, cursors=MemoryCursorStore())
    assert copy.cursor is not None
    assert [(xa.xid, xa.rows) for xa in copy.cursor.open_xa] == [
        (xa.xid, 2) for xa in way.cursor.open_xa
    ]
    expected = server_rows(way.server, way.database, "t", COLUMNS["t"])
    assert lake_rows(way.memory, tmp_path / "side", way.database, "t", COLUMNS["t"]) == expected

    later.commit()
    gone.rollback()
    third = way.run()
    assert (third.interval.xa_committed, third.interval.xa_rolled_back) == (1, 1)
    assert way.cursor.open_xa == ()
    assert way.parked_files() == []

    # The order of commits decides, not that of prepares: a row that changed after the prepare of
    # another.
    slow = way.begin("'slow'").run("INSERT INTO t VALUES (40,'slow',0)").prepare()
    way.execute("INSERT INTO t VALUES (41,'fast',0)", "DELETE FROM t WHERE id = 9")
    slow.commit()
    way.execute("UPDATE t SET v = 'after' WHERE id = 40")
    way.run()
    assert way.run().outcome == "nothing_new"


def test_k8_the_cursor_alone_passes_prepares_and_rollbacks(way: Way) -> None:
    """No batch where nothing changes; a lost cursor finds its parked rows by the last cut, or reads
    them again."""
    parked = way.begin("'p'").run("INSERT INTO t VALUES (50,'p',0)").prepare()
    way.run()
    cut = way.cursor
    assert way.open_xids() == ["X'70',X'',1"]
    alone = way.begin("'q'").run("INSERT INTO u VALUES (9,'q',0)").prepare()
    report = way.run()
    assert report.outcome == "nothing_new"
    assert not report.batches
    assert way.cursor.batch_number == cut.batch_number
    assert way.open_xids() == ["X'70',X'',1", "X'71',X'',1"]
    parked.rollback()
    assert way.run().outcome == "nothing_new"
    assert way.open_xids() == ["X'71',X'',1"]
    # The last cut still refers to the rows that were rolled back: a cursor rebuilt from it must
    # find them.
    assert len(way.parked_files()) == 2

    way.cursors.cursor = None
    alone.commit()
    report = way.run()
    assert (report.interval.xa_committed, report.interval.xa_rolled_back) == (1, 1)
    assert way.cursor.open_xa == ()
    assert way.parked_files() == []


def test_k8_an_xa_transaction_larger_than_the_ring(way: Way) -> None:
    """In pieces, spilled, with and without one phase, over several runs; one that is rolled back
    leaves nothing."""
    rows = ", ".join(f"({number}, REPEAT('x', 300), 0)" for number in range(1000, 1400))
    big = way.begin("'big'")
    for number in range(200, 500):
        big.run(f"INSERT INTO t VALUES ({number}, REPEAT('é', 100), {number})")
    big.run(
        "UPDATE t SET n = -n WHERE id BETWEEN 250 AND 300", "DELETE FROM t WHERE id = 499"
    ).prepare()
    other = way.begin("'other'").run(f"INSERT INTO t VALUES {rows}")
    for number in range(100):
        other.run(f"INSERT INTO u VALUES ({number}, 'b', {number}.125)")
    other.prepare()
    whole = way.begin("'whole'")
    for number in range(2000, 2150):
        whole.run(f"INSERT INTO t VALUES ({number}, 'whole', 1)")
    whole.commit_one_phase()
    first = way.run()
    assert first.interval.xa_prepared == 2
    assert [xa.rows for xa in way.cursor.open_xa] == [352, 500]
    big.commit()
    way.run()
    other.rollback()
    way.execute("DELETE FROM t WHERE id = 2000")
    way.run()
    assert way.cursor.open_xa == ()
    assert way.parked_files() == []


def test_k8_k19_a_target_is_created_by_the_commit_not_by_the_prepare(way: Way) -> None:
    """Tables first met in a prepared transaction: rolled back, they leave no target; committed,
    they are partial."""
    way.server.execute(f"CREATE TABLE `{way.database}`.late (id INT PRIMARY KEY)")
    way.run()
    name = f"{way.database}.late"
    way.cursors.cursor = None
    lake = way.config.sink.lake_path
    other = way.config.model_copy(
        update={"name": "other", "start": way.config.start.model_validate(here(way.server))}
    )
    other = other.model_copy(
        update={"sink": other.sink.model_copy(update={"lake_path": lake / "side"})}
    )
    cursors = MemoryCursorStore()
    one = way.begin("'one'").run("INSERT INTO late VALUES (1)").prepare()
    assert capture(other, cursors=cursors).tables == {}
    one.rollback()
    assert capture(other, cursors=cursors).tables == {}
    two = way.begin("'two'").run("INSERT INTO late VALUES (2)").prepare()
    capture(other, cursors=cursors)
    two.commit()
    report = capture(other, cursors=cursors)
    assert report.tables[name].partial
    expected = server_rows(way.server, way.database, "late", ["id"])
    assert lake_rows(way.memory, other.sink.lake_path, way.database, "late", ["id"]) == expected


def test_k8_a_commit_whose_prepare_was_not_seen_stops_by_name(
    server: Server, fresh_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    server.execute(f"CREATE TABLE `{fresh_database}`.old (id INT PRIMARY KEY)")
    unseen = (
        XaSession(server, fresh_database, "'unseen','b',3")
        .run("INSERT INTO old VALUES (1)")
        .prepare()
    )
    dropped = (
        XaSession(server, fresh_database, "'dropped'").run("INSERT INTO old VALUES (2)").prepare()
    )
    way = Way(server, fresh_database, make_config, memory)
    dropped.rollback()  # of no concern: its rows never counted
    unseen.commit()
    way.execute("INSERT INTO t VALUES (60,'after',0)")
    with pytest.raises(UnknownXaError) as caught:
        way.run()
    assert "X'756e7365656e',X'62',3" in caught.value.what
    assert caught.value.setting == "accept.unknown_xa"
    assert (caught.value.journal, caught.value.next_step) != (None, None)
    lake = way.config.sink.lake_path
    assert [row[0] for row in lake_rows(memory, lake, fresh_database, "t", ["id"])] == [
        1,
        2,
        3,
    ]
    accept = way.config.accept.model_copy(update={"unknown_xa": ("'unseen','b',3",)})
    way.config = way.config.model_copy(update={"accept": accept})
    report = way.run()
    assert [note.kind for note in report.notes] == ["accepted_unknown_xa"]
    assert report.interval.xa_unknown == 1


def test_k8_damaged_parked_rows_stop_before_anything_of_their_commit(way: Way) -> None:
    lost = way.begin("'lost'").run("INSERT INTO t VALUES (70,'lost',0)").prepare()
    way.run()
    (file,) = way.parked_files()
    file.write_bytes(file.read_bytes()[:-1] + b"\x00" + b"!")
    way.execute("INSERT INTO t VALUES (71,'before',0)")
    lost.commit()
    with pytest.raises(
        StagingError, match="parked rows of the prepared XA transaction X'6c6f7374'"
    ) as caught:
        capture(way.config, cursors=way.cursors)
    assert caught.value.journal
    rows = lake_rows(way.memory, way.config.sink.lake_path, way.database, "t", ["id"])
    assert [row[0] for row in rows] == [1, 2, 3, 71]


@pytest.mark.whole
def test_k4_k8_a_suspended_target_waits_for_a_prepared_transaction_and_loses_nothing_of_it(
    way: Way,
) -> None:
    way.execute("INSERT INTO u VALUES (1, 'one', 1)")
    way.run()
    xa = way.begin("'held'").run(
        "UPDATE t SET v = 'by xa' WHERE id = 1", "INSERT INTO u VALUES (2, 'by xa', 2)"
    )
    xa.prepare()
    way.run()
    (prepared,) = way.cursor.open_xa
    assert len(prepared.files) == 2

    name = f"{way.database}.t"
    folder = LakePaths(way.config.sink.lake_path, way.config.name).table(name)
    kept = way.memory.tables.pop(folder)
    way.execute("INSERT INTO t VALUES (4, 'four', 4)", "INSERT INTO u VALUES (4, 'four', 4)")
    with pytest.raises(TargetSuspendedError, match="is gone"):
        capture(way.config, cursors=way.cursors)
    held = way.cursor.suspended[name]
    assert (held.journal, held.offset) == (prepared.begin.journal, prepared.begin.offset), (
        "before its rows"
    )

    # The table is back, but what the transaction changes cannot be known before its end.
    way.memory.tables[folder] = kept
    way.execute("INSERT INTO t VALUES (5, 'five', 5)")
    with pytest.raises(TargetSuspendedError, match="waits for the XA transactions"):
        capture(way.config, cursors=way.cursors)
    assert way.open_xids() == [prepared.xid]

    xa.commit()
    way.execute("UPDATE u SET d = d + 1")
    report = way.run()  # equal to the server's SELECT, both tables
    assert report.suspended == {}
    assert way.open_xids() == []


def test_k4_k22_parked_rows_that_do_not_fit_another_key_suspend_their_table_alone(
    server: Server, fresh_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """The checks were made while the rows were staged: the source stopped in every run."""
    way = Way(server, fresh_database, make_config, memory)
    way.execute("INSERT INTO u VALUES (1, 'one', 1)")
    include = [f"{way.database}.*"]
    before = make_config(live(server), include=include, start=here(server))
    xa = XaSession(server, way.database, "'minimal'")
    xa.run("SET SESSION binlog_row_image = 'MINIMAL'")
    xa.run("UPDATE t SET v = 'by xa' WHERE id = 1", "INSERT INTO u VALUES (2, 'by xa', 2)")
    xa.prepare()
    capture(before, cursors=way.cursors)
    (prepared,) = way.cursor.open_xa
    rule = {"tables": ["*.t"], "key": ["n"]}
    config = make_config(live(server), include=include, start=before.start, targets=[rule])
    xa.commit()
    way.execute("INSERT INTO u VALUES (3, 'three', 3)")
    with pytest.raises(TargetSuspendedError, match="lack"):
        capture(config, cursors=way.cursors)
    held = way.cursor.suspended[f"{way.database}.t"]
    assert (held.journal, held.offset) == (prepared.begin.journal, prepared.begin.offset)
    rows = lake_rows(memory, config.sink.lake_path, way.database, "u", ["a"])
    assert [row[0] for row in rows] == [2, 3]
