"""Where slices, chunks, gets and runs cut the log means nothing: XA, savepoints, rollbacks and
statements of real servers' logs, cut at every place (K34)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import TransactionError
from cdc_pipeline.operations.cursor.cursor_change import apply_set, plan_set
from cdc_pipeline.run.capture import interpret, xa
from cdc_pipeline.run.decode import transaction_control
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import server_rows
from tests.support.event_builder import cut
from tests.support.memory_shop import MemoryShop
from tests.support.xa_session import XaSession

COLUMNS = ["id", "v"]
CHUNK_EVENTS = 9
STORY = (
    "XA START 'again'", "INSERT INTO t VALUES (10, 1), (11, 1)", "XA END 'again'",
    "XA PREPARE 'again'", "XA COMMIT 'again'",
    "XA START 'again'", "UPDATE t SET v = 2 WHERE id IN (1, 10)", "XA END 'again'",
    "XA PREPARE 'again'", "XA ROLLBACK 'again'",
    "UPDATE t SET v = v + 10 WHERE id = 10",
    "XA START 'again'", "INSERT INTO m VALUES (1, 1)", "DELETE FROM t WHERE id = 11",
    "SAVEPOINT s", "INSERT INTO t VALUES (12, 2)", "ROLLBACK TO s", "INSERT INTO t VALUES (13, 3)",
    "XA END 'again'", "XA PREPARE 'again'", "XA COMMIT 'again'",
    "XA START 'one'", "INSERT INTO t VALUES (20, 1)", "UPDATE t SET v = 7 WHERE id = 1",
    "XA END 'one'", "XA COMMIT 'one' ONE PHASE",
    "BEGIN", "INSERT INTO m VALUES (2, 1)", "UPDATE t SET v = 8 WHERE id = 1", "SAVEPOINT `a b`",
    "INSERT INTO t VALUES (30, 1)", "ROLLBACK TO `a b`", "RELEASE SAVEPOINT `a b`",
    "INSERT INTO t VALUES (31, 1)", "COMMIT",
    "BEGIN", "INSERT INTO m VALUES (3, 1)", "INSERT INTO t VALUES (40, 1)", "ROLLBACK",
    "CREATE TABLE other.x (id INT PRIMARY KEY)", "INSERT INTO other.x VALUES (1)",
    "DROP TABLE other.x",
    "INSERT INTO t VALUES (50, 1)",
)  # fmt: skip


def _tables(server: Server, database: str) -> None:
    server.execute_all(
        "CREATE DATABASE IF NOT EXISTS other",
        f"USE `{database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
    )


class Story:
    """A journal of a real server, and the rows that the server has behind it."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.database, self.folder = database, folder
        _tables(server, database)
        later = XaSession(server, database, "'later'").run("INSERT INTO t VALUES (60, 1)").prepare()
        gone = XaSession(server, database, "'gone'").run("INSERT INTO t VALUES (61, 1)").prepare()
        with server.root_connection(database=database) as connection, connection.cursor() as cursor:
            for statement in STORY:
                cursor.execute(statement)
        gone.rollback()
        later.commit()
        self.rows = {name: server_rows(server, database, name, COLUMNS) for name in ("t", "m")}
        journal, _ = server.end_position()
        server.flush_journal()
        (folder / "journals").mkdir()
        content = (server.datadir / journal).read_bytes()
        (folder / "journals" / "binlog.000001").write_bytes(content)

    def shop(self, name: str, **sections: Any) -> MemoryShop:
        document = {
            "name": name,
            "source": {"kind": "archive", "directory": self.folder / "journals"},
            "tables": {"include": [f"{self.database}.*"]},
            "start": "earliest",
            "sink": {"lake_path": self.folder / name},
            **sections,
        }
        return MemoryShop(PipelineConfig.model_validate(document))

    def assert_equal(self, shop: MemoryShop) -> None:
        for name, rows in self.rows.items():
            assert _rows(shop, f"{self.database}.{name}") == rows, name
        assert shop.cursors.cursor is not None
        assert shop.cursors.cursor.open_xa == ()


def _rows(shop: MemoryShop, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in COLUMNS) for row in shop.rows(table)), key=repr)


@pytest.fixture
def story(server: Server, fresh_database: str, tmp_path: Path) -> Story:
    return Story(server, fresh_database, tmp_path)


def test_k34_f71_a_ring_of_any_size_and_runs_of_any_length_read_the_same(story: Story) -> None:
    whole = story.shop("whole")
    expected = whole.run().interval
    story.assert_equal(whole)
    assert (expected.xa_prepared, expected.xa_committed, expected.xa_rolled_back) == (5, 3, 2)
    for kind, ring_events in (("memory", 2), ("mixed", 4), ("file", 8)):
        store = {"kind": kind, "ring_events": ring_events, "directory": story.folder / "store"}
        shop = story.shop(kind, store=store, batch={"get_bytes": 1})
        assert shop.run().interval == expected
        story.assert_equal(shop)
    short = story.shop("short", store={"ring_events": 2})
    while short.run(1).interval.transactions_seen:
        pass
    story.assert_equal(short)


@contextmanager
def _chunks_end_before(first: int) -> Iterator[list[int]]:
    """The reader's chunks end before event `first` and each CHUNK_EVENTS events later; yields how
    many events there were."""
    feed, counts = TransactionBuffer.feed, [0]

    def feed_cut(buffer: TransactionBuffer, chunk: Chunk) -> None:
        head = (first - counts[0]) % CHUNK_EVENTS
        counts[0] += len(chunk.events)
        rest = (len(chunk.events) - head) // CHUNK_EVENTS
        for part in cut(chunk, [head] + [CHUNK_EVENTS] * rest):
            feed(buffer, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionBuffer, "feed", feed_cut)
        yield counts


def test_k34_f71_a_cut_before_any_event_changes_nothing(story: Story) -> None:
    for first in range(CHUNK_EVENTS):
        shop = story.shop(f"cut_{first}")
        with _chunks_end_before(first) as counts:
            shop.run()
        story.assert_equal(shop)
        assert counts[0] > 60


def test_k34_f71_every_one_of_many_small_xa_transactions_counts(
    server: Server, fresh_database: str, make_config: Callable[..., PipelineConfig]
) -> None:
    """As at default settings, scaled down from a ring of 16,384 events."""
    _tables(server, fresh_database)
    config = make_config(
        live(server),
        include=[f"{fresh_database}.*"],
        start=here(server),
        store={"ring_events": 256},
    )
    with (
        server.root_connection(database=fresh_database) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE n (id INT PRIMARY KEY, v INT)")
        for number in range(900):
            xid = f"'{number % 7}'"
            for statement in (
                f"XA START {xid}", f"INSERT INTO n VALUES ({number}, 1)", f"XA END {xid}",
                f"XA PREPARE {xid}", f"XA {'ROLLBACK' if number % 9 == 8 else 'COMMIT'} {xid}",
            ):  # fmt: skip
                cursor.execute(statement)
    shop = MemoryShop(config)
    report = shop.run()
    assert (report.interval.xa_committed, report.interval.xa_rolled_back) == (800, 100)
    assert report.cursor is not None
    assert report.cursor.open_xa == ()
    expected = server_rows(server, fresh_database, "n", COLUMNS)
    assert _rows(shop, f"{fresh_database}.n") == expected


def _left_open(
    server: Server, database: str, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> MemoryShop:
    """A lake in which a program that drops ends has left an XA transaction open."""
    shop = MemoryShop(config)
    shop.take_place(monkeypatch)
    shop.run()
    for xid, row in (("'lost'", 70), ("'empty'", 71)):
        table = "t" if xid == "'lost'" else "other.y"
        XaSession(server, database, xid).run(f"INSERT INTO {table} VALUES ({row}, 1)").prepare()
    shop.run()
    read = transaction_control.ControlReader.read

    def without_ends(*arguments: Any) -> transaction_control.TransactionControl:
        return replace(read(*arguments), xa_ends=())

    for xid in ("'lost'", "'empty'"):
        with server.root_connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"XA COMMIT {xid}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_control.ControlReader, "read", without_ends)
        with pytest.raises(TransactionError):
            shop.run()
    assert shop.cursors.cursor is not None
    assert [xa.xid for xa in shop.cursors.cursor.open_xa] == ["X'6c6f7374',X'',1"]
    return shop


def test_k22_k34_f71_a_lake_whose_xa_transaction_lost_its_end_says_so_and_both_ways_out_work(
    server: Server,
    fresh_database: str,
    make_config: Callable[..., PipelineConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, start = live(server), here(server)
    _tables(server, fresh_database)
    server.execute("CREATE TABLE IF NOT EXISTS other.y (id INT PRIMARY KEY, v INT)")
    if server.flavor == "mysql":
        server.execute(f"GRANT XA_RECOVER_ADMIN ON *.* TO `{source['user']}`@'%'")
    table = f"{fresh_database}.t"
    config = make_config(source, include=[f"{fresh_database}.*"], start=start)
    shop = _left_open(server, fresh_database, config, monkeypatch)
    (lost,) = shop.cursors.cursor.open_xa  # type: ignore[union-attr]
    expected = server_rows(server, fresh_database, "t", COLUMNS)
    with pytest.raises(TransactionError, match="still open in the lake") as caught:
        shop.run()
    error = caught.value
    place = str(lost.begin)
    assert (error.table, error.journal, error.offset) == (
        table, lost.begin.journal, lost.begin.offset,
    )  # fmt: skip
    assert f"cursor set bank --from {place}" in str(error.next_step)
    assert f"snapshot bank --table {table}" in str(error.next_step)
    assert _rows(shop, table) != expected

    # The log is gone, or has no end of it: the rows are dropped, and a load is possible again.
    before = shop.cursors.cursor
    accept = config.accept.model_copy(update={"unknown_xa": ("'lost'",)})
    shop.config = config.model_copy(update={"accept": accept})
    assert [note.kind for note in shop.run().notes] == ["accepted_unknown_xa"]
    assert shop.cursors.cursor is not None
    assert shop.cursors.cursor.open_xa == ()
    assert shop.run().notes == ()

    # The log is there: it is read again.
    shop.config, shop.cursors.cursor = config, before
    there = PositionConfig(journal=lost.begin.journal, offset=lost.begin.offset)
    change = plan_set(config, cursors=shop.cursors, to=there, who="a test")
    apply_set(config, cursors=shop.cursors, change=change)
    shop.run()
    assert _rows(shop, table) == expected
    assert shop.cursors.cursor is not None
    assert shop.cursors.cursor.open_xa == ()


def test_k34_f71_there_is_one_way_to_read_a_transaction() -> None:
    """No second reading of pieces beside that of whole transactions: what a unit is does not decide
    which code reads it."""
    readers = {
        name
        for name, method in inspect.getmembers(interpret.Interpreter, inspect.isfunction)
        if method.__annotations__.get("return") == "Changes"
    }
    assert readers == {"read", "_read"}
    for kind in (transaction_control.ControlReader, xa.XaPlanner):
        public = {
            name for name, method in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"
        }
        assert public in ({"read"}, {"plan"})
