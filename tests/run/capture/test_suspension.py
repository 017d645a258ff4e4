"""K4: a target that fails stays where it is, the others go on, and it is caught up to the
transaction.

One lake lives through many failures: each test of a kind shares its server's journal and its lake.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.operations.status import status
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.run.report import CapturePlan
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import AtPoint, Killed, killed_at
from tests.support.lake_log import assert_each_batch_once, cuts_of
from tests.support.memory_sink import MemoryLake

pytestmark = pytest.mark.mysql

MakeConfig = Callable[..., PipelineConfig]
COLUMNS = {"t": ["id", "d"], "u": ["id", "d"], "v": ["id", "d"]}


class Shop:
    """Three tables, a lake and a cursor."""

    def __init__(self, server: Server, database: str, config: PipelineConfig, tables: Any) -> None:
        self.server = server
        self.database = database
        self.config = config
        self.cursors = MemoryCursorStore()
        self.paths = LakePaths(config.sink.lake_path, config.name)
        self.tables = tables  # Spark's session, or a `MemoryLake`
        self._next = 0

    def name(self, table: str) -> str:
        return f"{self.database}.{table}"

    def execute(self, *statements: str) -> None:
        connection = self.server.root_connection(database=self.database)
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.close()

    def work(self, transactions: int = 3) -> None:
        """Transactions that insert into, update and delete from all three tables."""
        connection = self.server.root_connection(database=self.database, autocommit=False)
        with connection.cursor() as cursor:
            for _ in range(transactions):
                self._next += 10
                for table in COLUMNS:
                    for number in range(self._next, self._next + 4):
                        cursor.execute(
                            f"INSERT INTO {table} (id, d) VALUES ({number}, '2026-01-01')"
                        )
                    cursor.execute(
                        f"UPDATE {table} SET d = '2026-02-02' WHERE id IN ({self._next}, "
                        f"{self._next - 10})"
                    )
                    cursor.execute(f"UPDATE {table} SET id = id + 5 WHERE id = {self._next + 1}")
                    cursor.execute(f"DELETE FROM {table} WHERE id = {self._next - 8}")
                connection.commit()
        connection.close()

    def run(self, *tables: str, **rest: Any) -> Any:
        return capture(
            self.config,
            cursors=self.cursors,
            tables=[self.name(table) for table in tables] if tables else None,
            **rest,
        )

    def fails(self, *tables: str, **rest: Any) -> TargetSuspendedError:
        with pytest.raises(TargetSuspendedError) as caught:
            self.run(*tables, **rest)
        return caught.value

    @property
    def suspended(self) -> dict[str, str]:
        """Suspended tables and their errors."""
        assert self.cursors.cursor is not None
        return {
            name.split(".")[1]: held.error for name, held in self.cursors.cursor.suspended.items()
        }

    def cuts(self) -> list[Cut]:
        return cuts_of(self.paths.lake, self.paths.source)

    def folder(self, table: str) -> Path:
        return self.paths.table(self.name(table))

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            columns = COLUMNS[table]
            expected = server_rows(self.server, self.database, table, columns)
            assert expected
            assert (
                lake_rows(self.tables, self.config.sink.lake_path, self.database, table, columns)
                == expected
            ), table

    def assert_sound(self) -> None:
        """No batch twice in a table, numbers without a gap, intervals that join, and stretches of
        each target too."""
        assert_each_batch_once(self.paths.lake, self.paths.source)
        cuts = self.cuts()
        for before, after in pairwise(cuts):
            start = after.interval.start.order
            assert before.interval.end.order <= start
            if after.kind == "catch_up":
                assert start == after.interval.end.order, "the cursor stands still"
            for note in after.notes:
                if note.kind == "caught_up" and note.journal:
                    held = before.cursor.suspended[note.table]
                    assert (note.journal, note.offset) == (held.journal, held.offset), (
                        "continuity of the target"
                    )
        main = [cut.interval for cut in cuts if cut.kind == "batch"]
        for one, other in pairwise(main):
            assert one.end.order <= other.start.order


def make_shop(server: Server, database: str, make_config: MakeConfig, tables: Any) -> Shop:
    include = [f"{database}.{table}" for table in (*COLUMNS, "k")]
    sections: dict[str, Any] = {
        "store": {"ring_events": 64},
        "targets": [{"tables": [f"{database}.k"], "keyless": "stop"}],
    }
    config = make_config(live(server), include=include, start=here(server), **sections)
    config = config.model_copy(
        update={"sink": config.sink.model_copy(update={"on_invalid_value": "fail"})}
    )
    made = Shop(server, database, config, tables)
    made.execute(*(f"CREATE TABLE {table} (id INT PRIMARY KEY, d DATE NULL)" for table in COLUMNS))
    made.work()
    return made


@pytest.fixture
def shop(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, memory: MemoryLake
) -> Shop:
    return make_shop(mysql_server, mysql_database, make_config, memory)


def _including(config: PipelineConfig, **tables: Any) -> PipelineConfig:
    return config.model_copy(update={"tables": config.tables.model_copy(update=tables)})


def test_k4_a_value_and_a_statement_suspend_their_tables_alone(shop: Shop) -> None:
    """Two targets at two positions; then out by the way that the error names: excluded, moved away,
    included again."""
    shop.run()
    shop.execute("SET sql_mode = ''", "INSERT INTO t VALUES (9001, '0000-00-00')")
    shop.work()
    shop.execute("ALTER TABLE u MODIFY d VARCHAR(20)")
    shop.work()
    shop.execute("CREATE TABLE k (a INT)", "INSERT INTO k VALUES (1)")
    shop.work()
    error = shop.fails()
    assert not error.retryable
    for table in ("t", "u", "k"):
        assert f"{shop.name(table)} is suspended at" in str(error)
    assert "exclude" in str(error)
    assert shop.suspended == {
        "k": "KeylessTableError",
        "t": "UnrepresentableValueError",
        "u": "UnsupportedDdlError",
    }
    shop.assert_equal("v")
    cut = shop.cuts()[-1]
    at = {
        name.split(".")[1]: (held.journal, held.offset)
        for name, held in cut.cursor.suspended.items()
    }
    assert at["t"] < at["u"] < at["k"] < (cut.cursor.journal, cut.cursor.offset)
    assert cut.interval.row_events_suspended > 0
    assert cut.interval.statements_suspended == 1
    assert {note.table.split(".")[1] for note in cut.notes if note.kind == "suspended"} == {
        "t",
        "u",
        "k",
    }

    # What came before the failure is there; what people see names cause, position and way out.
    rows = lake_rows(shop.tables, shop.config.sink.lake_path, shop.database, "t", ["id"])
    assert (9001,) not in rows
    assert rows
    shown = status(shop.config, cursors=shop.cursors)
    assert shown.tables[shop.name("t")].suspended == cut.cursor.suspended[shop.name("t")]
    assert shown.tables[shop.name("k")].delta_version == -1
    assert plan(shop.config, cursors=shop.cursors).suspended == cut.cursor.suspended

    # The next run goes on with the others, meets the same walls, and records nothing for them.
    shop.execute("ALTER TABLE u ADD COLUMN e INT")
    shop.work(1)
    shop.fails()
    assert len(shop.cuts()) == cut.batch_number + 1
    after = shop.cuts()[-1]
    assert after.cursor.suspended == cut.cursor.suspended
    assert after.interval.statements_suspended == 1
    shop.assert_equal("v")
    with pytest.raises(TargetSuspendedError, match=r"\.t "):
        shop.run("t", "v")

    whole = shop.config
    shop.config = _including(whole, include=(shop.name("v"),))
    shop.execute("DELETE FROM t WHERE id = 9001")  # its image holds the value once more
    report = shop.run()
    assert sorted(note.table for note in report.notes if note.kind == "dropped") == [
        shop.name("k"),
        shop.name("t"),
        shop.name("u"),
    ]
    assert set(shop.cuts()[-1].tables) == {shop.name("v")}

    # Included with its old table in place it is suspended again; moved away, it begins again,
    # partial.
    shop.config = _including(whole, include=tuple(shop.name(table) for table in COLUMNS))
    shop.tables.tables.pop(shop.folder("u"))
    shop.execute("UPDATE t SET d = '2026-03-03'", "UPDATE u SET d = '2026-03-03'")
    shop.work(1)
    error = shop.fails()
    assert shop.suspended == {"t": "LakeStateError"}
    assert error.table == shop.name("t")
    shop.assert_equal("u", "v")
    shop.tables.tables.pop(shop.folder("t"))
    report = shop.run()
    assert report.suspended == {}
    assert report.tables[shop.name("t")].partial
    shop.assert_equal(*COLUMNS)
    shop.assert_sound()


@pytest.mark.whole
@pytest.mark.spark
def test_k3_k4_a_table_restored_and_a_table_gone(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, spark: Any
) -> None:
    """K3: such a target needs its old state back, or a load; when it is back, catching up does the
    rest."""
    shop = make_shop(mysql_server, mysql_database, make_config, spark)
    shop.run()
    for table in ("t", "u"):
        shutil.copytree(shop.folder(table), shop.paths.lake / "backup" / table)
    shop.tables.sql(f"RESTORE TABLE delta.`{shop.folder('t')}` TO VERSION AS OF 0").collect()
    shutil.rmtree(shop.folder("u"))
    shop.folder("u").mkdir()
    (shop.folder("u") / "notes.txt").write_text("no table")
    shop.work()
    error = shop.fails()
    assert "RESTORE" in str(error)
    assert "is gone" in str(error)
    assert all(held.needs_snapshot for held in shop.cuts()[-1].cursor.suspended.values())
    shop.assert_equal("v")
    shop.fails()  # nothing new, and still named
    number = shop.cuts()[-1].batch_number
    shop.fails("u")
    assert shop.cuts()[-1].batch_number == number

    for table in ("t", "u"):
        shutil.rmtree(shop.folder(table))
        shutil.copytree(shop.paths.lake / "backup" / table, shop.folder(table))
    at = shop.cursors.cursor
    report = shop.run("t")
    assert report.outcome == "applied"
    assert set(shop.suspended) == {"u"}
    assert shop.cursors.cursor is not None
    assert at is not None
    assert shop.cursors.cursor.position == at.position, "the main cursor stands still"
    shop.assert_equal("t", "v")
    shop.work(1)
    assert shop.run().suspended == {}
    shop.assert_equal(*COLUMNS)
    assert "nothing to catch up" in shop.run("t", "u").reason
    shop.assert_sound()

    # All of them at once, and back again: nothing is wedged (K22).
    for table in COLUMNS:
        shutil.move(shop.folder(table), shop.paths.lake / f"away_{table}")
    assert "is gone" in str(shop.fails())
    assert set(shop.suspended) == set(COLUMNS)
    for table in COLUMNS:
        shutil.move(shop.paths.lake / f"away_{table}", shop.folder(table))
    assert shop.run().suspended == {}


class _StopsCatchUp(RunObserver):
    """Ends a run as a kill would when it begins to catch up."""

    def planned(self, plan: CapturePlan) -> None:
        if "caught up" in plan.start_reasons[0]:
            raise Killed


@pytest.mark.whole
def test_k4_a_staged_file_damaged_between_record_and_finish(shop: Shop) -> None:
    """In a run, and in the recovery of a batch that a kill left; caught up in several batches, the
    DDL in between."""
    shop.run()

    def damage() -> None:
        record = BatchRecord.model_validate_json(
            max(shop.paths.batches.glob("*.json")).read_bytes()
        )
        (target,) = (target for target in record.targets if target.table == shop.name("t"))
        file = shop.paths.lake / target.files[0].path
        content = file.read_bytes()
        file.write_bytes(content[:-5] + b"XXXXX")

    shop.work()
    with listening(AtPoint("after_record", damage)):
        error = shop.fails()
    assert error.table == shop.name("t")
    assert shop.suspended == {"t": "StagingError"}
    cut = shop.cuts()[-1]
    held = cut.cursor.suspended[shop.name("t")]
    assert held.position.order == cut.interval.start.order
    assert held.gtid_set, "a whole position"
    shop.assert_equal("u", "v")

    shop.work(6)
    shop.execute("ALTER TABLE t ADD COLUMN e INT NOT NULL DEFAULT 7")
    shop.work(3)
    whole = shop.config
    small = {"batch": whole.batch.model_copy(update={"merge_rows": 24, "get_bytes": 1024})}
    with pytest.raises(Killed):
        shop.run(observer=_StopsCatchUp())
    batches = len(shop.cuts())

    shop.config = whole.model_copy(update=small)
    with killed_at("before_cut", 2):
        shop.run("t")
    moved = shop.cuts()[-1]
    assert moved.kind == "catch_up"
    assert len(shop.cuts()) == batches + 1
    assert moved.cursor.suspended[shop.name("t")].offset > held.offset
    assert shop.run("t").suspended == {}
    assert len(shop.cuts()) > batches + 3, "several batches"
    report = shop.run()
    assert report.suspended == {}
    columns = [*COLUMNS["t"], "e"]
    assert lake_rows(shop.tables, shop.paths.lake, shop.database, "t", columns) == server_rows(
        shop.server, shop.database, "t", columns
    )
    shop.assert_equal("u", "v")
    shop.assert_sound()

    # Recorded by a run that is killed, damaged, and taken up by the next.
    shop.config = whole
    shop.work(2)
    with killed_at("after_record"):
        shop.run()
    damage()
    shop.fails()
    assert shop.suspended == {"t": "StagingError"}
    shop.assert_equal("u", "v")
    assert shop.run().suspended == {}
    shop.assert_equal(*COLUMNS)
    shop.assert_sound()


@pytest.mark.whole
def test_k4_what_concerns_the_log_or_everyone_stops_the_run(shop: Shop) -> None:
    """A transaction's tables fail one after the other until none is left: then nothing is suspended
    at all."""
    shop.run()
    assert shop.cursors.cursor is not None
    before = shop.cursors.cursor
    shop.execute(
        "SET sql_mode = ''",
        "BEGIN",
        *(f"INSERT INTO {t} VALUES (9001, '0000-00-00')" for t in COLUMNS),
        "COMMIT",
    )
    shop.config = _including(shop.config, include=tuple(shop.name(table) for table in COLUMNS))
    with pytest.raises(Exception, match="cannot hold"):
        shop.run()
    assert shop.suspended == {}
    assert shop.cursors.cursor.batch_number == before.batch_number
    assert shop.cursors.cursor.position.order == before.position.order

    lake = {
        "sink": shop.config.sink.model_copy(
            update={"lake_path": shop.config.sink.lake_path / "other"}
        )
    }
    shop.config = shop.config.model_copy(
        update={"start": PositionConfig(**here(shop.server)), **lake}
    )
    shop.cursors = MemoryCursorStore()
    shop.execute(
        "INSERT INTO u VALUES (9003, NULL)",
        "SET binlog_format = STATEMENT",
        "DELETE FROM t WHERE id > 9000",
    )
    with pytest.raises(TargetSuspendedError, match="statement"):
        shop.run()
    assert sorted(shop.suspended) == ["t", "u"]  # whether a trigger led to `u` is not known


@pytest.mark.whole
def test_k4_a_large_transaction_goes_on_without_the_table_that_fails_inside_it(shop: Shop) -> None:
    """Pieces of an open transaction: those of the failing table are taken out, the others stay one
    transaction."""
    shop.run()
    rows = ", ".join(f"({number}, '2026-01-01')" for number in range(20_000, 20_010))
    inserts = [
        f"INSERT INTO {table} VALUES ({number}, NULL)"
        for number in range(9_000, 9_060)
        for table in ("t", "u")
    ]
    failing = [
        f"INSERT INTO v VALUES {rows}",
        "INSERT INTO t VALUES (9990, '0000-00-00')",
        "INSERT INTO u VALUES (9990, NULL)",
        "INSERT INTO t VALUES (9991, NULL)",
    ]
    shop.execute("SET sql_mode = ''", "BEGIN", *inserts, *failing, "COMMIT")
    shop.work(1)
    shop.fails()
    assert shop.suspended == {"t": "UnrepresentableValueError"}
    shop.assert_equal("u", "v")
    assert all(
        row[0] < 9_000
        for row in lake_rows(shop.tables, shop.paths.lake, shop.database, "t", ["id"])
    )


@pytest.mark.whole
def test_k4_purged_journals_are_named(
    start_server: Any, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """The main cursor has passed them; the suspended target needs a load, and says so."""
    server = start_server("mysql")
    server.execute("CREATE DATABASE p")
    config = make_config(live(server), include=["p.*"], start=here(server))
    config = config.model_copy(
        update={"sink": config.sink.model_copy(update={"on_invalid_value": "fail"})}
    )
    shop = Shop(server, "p", config, memory)
    shop.execute(*(f"CREATE TABLE {table} (id INT PRIMARY KEY, d DATE NULL)" for table in COLUMNS))
    shop.execute("SET sql_mode = ''", "INSERT INTO t VALUES (9001, '0000-00-00')")
    shop.work(1)
    shop.fails()
    server.flush_journal()
    server.purge_to(server.end_position()[0])
    error = shop.fails()
    assert shop.cuts()[-1].cursor.suspended["p.t"].needs_snapshot
    assert "purged" in str(error).lower()
    assert "take a new snapshot of it" in str(error)
    shop.assert_equal("u", "v")
