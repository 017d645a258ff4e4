"""Transactions as real servers write them: every GTID is one transaction, and the start rules agree
with the server."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import EventSlice, Role, SliceKind
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.config.pipeline_config import GtidConfig, PositionConfig
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.source.archive.archive import ArchiveSource
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.servers import Server
from tests.support.live_source import live_source


@pytest.fixture
def recorded(server: Server, fresh_database: str, tmp_path: Path):
    """One journal with every kind of group that is applied, and the places and GTID sets between
    its parts."""
    server.flush_journal()
    name = server.end_position()[0]
    before = server.gtid_set()
    db = f"`{fresh_database}`"
    places: list[tuple[int, str]] = []

    def run(*statements: str) -> None:
        connection = server.root_connection(autocommit=False)
        with connection, connection.cursor() as cursor:
            cursor.execute(f"USE {db}")
            for statement in statements:
                cursor.execute(statement)
        # Of one moment: the end of a session of another test may come between two questions.
        if server.flavor == "mysql":
            (status,) = server.query("SHOW BINARY LOG STATUS")
            offset, executed = int(status[1]), str(status[4]).replace("\n", "")
        else:
            offset = server.end_position()[1]
            ((executed,),) = server.query("SELECT BINLOG_GTID_POS(%s, %s)", (name, offset))
        places.append((offset, executed))

    run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=InnoDB")
    run("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    run("INSERT INTO t VALUES (1,'a'),(2,'b')", "UPDATE t SET v='c' WHERE id=1", "COMMIT")
    run("INSERT INTO m VALUES (1),(2)", "COMMIT")
    run(
        "SAVEPOINT s1",
        "INSERT INTO t VALUES (3,'x')",
        "SAVEPOINT s2",
        "DELETE FROM t WHERE id=2",
        "COMMIT",
    )
    run("INSERT INTO t VALUES (9,'no')", "ROLLBACK")
    run("CREATE TABLE c (id INT PRIMARY KEY) ENGINE=InnoDB SELECT id FROM t")
    run("ALTER TABLE t ADD COLUMN n INT")
    run("/* a comment */ DROP TABLE c")
    run("INSERT INTO t (id) SELECT 100 + a.id * 10 + b.id FROM t a, t b", "COMMIT")
    server.flush_journal()
    directory = tmp_path / "journals"
    directory.mkdir()
    shutil.copy2(server.datadir / name, directory / name)
    return server, directory, name, before, places


def collect(directory: Path, *, chunk_bytes: int, slice_events_max: int = 1024):
    source = ArchiveSource(directory, chunk_bytes=chunk_bytes)
    slices: list[EventSlice] = []
    buffer = TransactionBuffer(
        lambda parts: slices.extend(parts) or True,
        is_isolated=lambda query: "TABLE" in query.sql,
        source=str(source.identity),
        slice_events_max=slice_events_max,
    )
    for chunk in source.chunks(source.earliest_position(), source.end_position()):
        buffer.feed(chunk)
    buffer.finish()
    return buffer, slices


@pytest.mark.parametrize(("chunk_bytes", "slice_events_max"), [(1 << 20, 1024), (256, 4)])
def test_t1_each_gtid_of_the_server_is_one_transaction(
    recorded, chunk_bytes: int, slice_events_max: int
) -> None:
    server, directory, _, before, places = recorded
    buffer, slices = collect(directory, chunk_bytes=chunk_bytes, slice_events_max=slice_events_max)
    found = parse_gtid_set(before, server.flavor)
    count = 0
    for part in slices:
        for key, numbers in gtid.executed(part.chunk, part.first, part.stop).items():
            found = found.add_many(key, numbers)
            count += len(numbers)
    assert str(found) == str(parse_gtid_set(places[-1][1], server.flavor))
    assert buffer.transactions.transactions + buffer.transactions.rolled_back == count
    assert buffer.transactions.abandoned == 0
    ends = [
        int(part.events["next_offset"][-1])
        for part in slices
        if part.kind is not SliceKind.OPEN_PIECE
    ]
    assert {offset for offset, _ in places} <= set(ends) | {
        int(offset)
        for part in slices
        for offset in part.events["next_offset"][part.events["role"] >= Role.TRANSACTIONEND]
    }
    isolated = [part.sql for part in slices if part.kind is SliceKind.STATEMENT]
    assert sum("ALTER TABLE t" in sql for sql in isolated) == 1
    assert sum("DROP TABLE" in sql for sql in isolated) == 1
    times = np.concatenate(
        [part.events["commit_ts_us"][part.events["tx_offset"] >= 0] for part in slices]
    )
    assert times.min() > 1_600_000_000_000_000


def test_pitfall_4_the_gtids_before_an_offset_are_those_of_the_server(recorded) -> None:
    server, directory, name, _, places = recorded
    source = ArchiveSource(directory)
    for offset, executed in places:
        decision = resolve_start(
            cursor=None, start=PositionConfig(journal=name, offset=offset), source=source
        )
        assert decision.position.gtid_set == str(parse_gtid_set(executed, server.flavor))


def test_a_gtid_set_is_found_in_an_archive_where_the_server_had_it(recorded) -> None:
    _, directory, name, _, places = recorded
    source = ArchiveSource(directory)
    for offset, executed in places[:-1]:
        decision = resolve_start(cursor=None, start=GtidConfig(gtid_set=executed), source=source)
        assert (decision.position.journal, decision.position.offset) == (name, offset)


def test_p7_an_offset_inside_a_transaction_goes_back_to_its_begin(recorded) -> None:
    server, directory, name, _, places = recorded
    _, slices = collect(directory, chunk_bytes=1 << 20)
    rows = np.concatenate([part.events for part in slices])
    inside = rows[rows["tx_ordinal"] > 0]
    source = ArchiveSource(directory)
    executed = {offset: str(parse_gtid_set(text, server.flavor)) for offset, text in places}
    compared = 0
    for event in inside[:: max(1, len(inside) // 8)]:
        start = PositionConfig(journal=name, offset=int(event["offset"]))
        decision = resolve_start(cursor=None, start=start, source=source)
        assert decision.position.offset == event["tx_offset"]
        assert "back to its beginning" in " ".join(decision.reasons)
        if decision.position.offset in executed:
            compared += 1
            assert decision.position.gtid_set == executed[decision.position.offset]
    assert compared


def test_pitfall_4_a_live_server_gives_the_same_gtids_before_an_offset(recorded) -> None:
    server, _, name, before, places = recorded
    source = live_source(server)
    source.check()
    try:
        first = resolve_start(
            cursor=None, start=PositionConfig(journal=name), source=source
        ).position
        assert first.gtid_set == str(parse_gtid_set(before, server.flavor))
        for offset, executed in places[::4]:
            decision = resolve_start(
                cursor=None, start=PositionConfig(journal=name, offset=offset), source=source
            )
            assert decision.position.gtid_set == str(parse_gtid_set(executed, server.flavor))
        middle = parse_gtid_set(places[4][1], server.flavor)
        decision = resolve_start(cursor=None, start=GtidConfig(gtid_set=str(middle)), source=source)
        end = source.end_position()
        seen = parse_gtid_set("", server.flavor)
        for chunk in source.chunks(decision.position, end):
            for key, numbers in gtid.executed(chunk, 0, len(chunk.events)).items():
                seen = seen.add_many(key, numbers)
        assert str(middle.union(seen)) == str(parse_gtid_set(end.gtid_set, server.flavor))
        if server.flavor == "mysql":
            assert not seen.subtract(seen.subtract(middle))  # nothing that was executed came again
    finally:
        source.close()
