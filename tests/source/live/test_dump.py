"""Dumps: the live source gives the same rows as the journals' files."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import PositionError, ReplicaIdError, SourceError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.handover import DumpRequest, open_dump
from cdc_pipeline.source.live.live import replica_name
from tests.servers import Server, at_rest
from tests.support.live_source import (
    archived_events,
    events_of,
    live_config,
    live_source,
    place,
    position,
    read_failing,
)


@pytest.fixture
def log(server: Server, fresh_database: str) -> list[Position]:
    """In three journals: 0 the start, then one after each transaction; with GTID sets."""
    server.flush_journal()
    server.execute(f"CREATE TABLE {fresh_database}.t (a INT PRIMARY KEY, b VARCHAR(50))")
    places = [position(server, gtid_set=server.gtid_set())]
    for number in range(9):
        server.execute(
            f"INSERT INTO {fresh_database}.t VALUES ({number}, 'row'), ({number + 100}, 'row')"
        )
        places.append(position(server, gtid_set=server.gtid_set()))
        if number % 3 == 2 and number < 8:
            server.flush_journal()
    return places


def by_offset(place_: Position) -> Position:
    return Position(place_.journal, place_.offset)


@pytest.mark.parametrize(("first", "last"), [(0, 9), (0, 1), (4, 5), (2, 7), (3, 9), (6, 9)])
def test_a_dump_by_offset_gives_the_rows_of_the_files(
    server: Server, log: list[Position], first: int, last: int
) -> None:
    start, end = by_offset(log[first]), by_offset(log[last])
    source = live_source(server)
    chunks = list(source.chunks(start, end))
    source.close()
    got = events_of(chunks)
    assert got
    assert got == archived_events(server.journals(), start, end)
    assert (chunks[-1].journal, chunks[-1].end_offset) == (end.journal, end.offset)


@pytest.mark.parametrize(("first", "last"), [(0, 9), (4, 5), (2, 7), (6, 9)])
def test_a_dump_by_gtid_set_gives_the_rows_of_the_files(
    server: Server, log: list[Position], first: int, last: int
) -> None:
    source = live_source(server)
    got = events_of(source.chunks(log[first], log[last]))
    source.close()
    expected = archived_events(server.journals(), log[first], log[last])
    marks = {EventType.FORMAT_DESCRIPTION, EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST}
    marks |= {EventType.MARIADB_BINLOG_CHECKPOINT, EventType.ROTATE}
    # Before the start only marks of the journal may come.
    early = [event for event in got if place(event) < log[first].order]
    assert {event.fields[-1] for event in early} <= marks
    if got[0].journal != log[first].journal:
        # All of the start's journal is in the set: the server begins with the next one, after the
        # rotate event.
        assert expected.pop(0).fields[-1] == EventType.ROTATE
    assert [event for event in got if place(event) >= log[first].order] == expected


def test_chunks_have_the_format_of_their_own_journal(server: Server, log: list[Position]) -> None:
    source = live_source(server)
    for chunk in source.chunks(by_offset(log[1]), by_offset(log[9])):
        assert chunk.journal_format.server_id == server.server_id
        assert chunk.journal_format.created_s == int.from_bytes(
            (server.datadir / chunk.journal).read_bytes()[4:8], "little"
        )
        assert chunk.journal_format.is_mariadb == (server.flavor == "mariadb")


def test_an_end_that_other_writers_pass_is_still_the_end(
    server: Server, fresh_database: str
) -> None:
    """The end is fixed before; what is written meanwhile is not delivered."""
    server.execute(f"CREATE TABLE {fresh_database}.t (a INT PRIMARY KEY)")
    source = live_source(server)
    start = source.end_position()
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (1)")
    end = source.end_position()
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (2)")
    server.flush_journal()
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (3)")
    for begin in (start, by_offset(start)):
        got = [
            event for event in events_of(source.chunks(begin, end)) if place(event) >= start.order
        ]
        assert got == archived_events(server.journals(), start, end)


def test_nothing_is_read_between_equal_positions(server: Server, log: list[Position]) -> None:
    source = live_source(server)
    assert list(source.chunks(log[4], log[4])) == []
    assert list(source.chunks(by_offset(log[4]), by_offset(log[4]))) == []


def test_a_set_that_holds_the_end_reads_nothing_but_marks(
    server: Server, log: list[Position]
) -> None:
    """The start's set decides, not its journal and offset: they may be those of another server."""
    source = live_source(server)
    behind = Position(log[2].journal, log[2].offset, gtid_set=log[9].gtid_set)
    assert list(source.chunks(behind, log[8])) == []


def test_an_end_without_known_gtids_is_reached_by_skipping(
    server: Server, log: list[Position]
) -> None:
    """All before the end is in the start's set: the server sends none, and the run ends well."""
    source = live_source(server)
    chunks = list(source.chunks(log[9], by_offset(log[9])))
    assert {event.fields[-1] for event in events_of(chunks)} <= {
        EventType.FORMAT_DESCRIPTION,
        EventType.PREVIOUS_GTIDS,
        EventType.MARIADB_GTID_LIST,
        EventType.MARIADB_BINLOG_CHECKPOINT,
    }


def test_an_end_beyond_the_log_is_an_error_with_both_places(
    server: Server, log: list[Position]
) -> None:
    source = live_source(server)
    last = Position(*at_rest(server))
    end = Position(last.journal, last.offset + 1000)
    delivered, error = read_failing(source, by_offset(log[7]), end)
    assert isinstance(error, PositionError)
    assert (str(error.expected), str(error.got)) == (str(end), str(last))
    assert events_of(delivered) == archived_events(server.journals(), log[7], last)


def test_an_end_inside_an_event_is_an_error_after_what_comes_before(
    server: Server, log: list[Position]
) -> None:
    source = live_source(server)
    end = Position(log[9].journal, log[9].offset - 10)
    chunks, error = read_failing(source, by_offset(log[8]), end)
    assert isinstance(error, PositionError)
    assert "inside an event" in str(error)
    assert events_of(chunks) == archived_events(server.journals(), log[8], log[9])[:-1]


@pytest.mark.parametrize("length", [16_777_155, 17 << 20])
def test_events_of_more_than_one_packet(server: Server, fresh_database: str, length: int) -> None:
    """A packet holds 2**24 - 1 bytes; an event of exactly that size comes in two."""
    server.execute(f"CREATE TABLE {fresh_database}.t (a INT PRIMARY KEY, b LONGBLOB)")
    start = position(server)
    server.execute(
        f"INSERT INTO {fresh_database}.t VALUES (1, REPEAT('x', {length})), (2, 'small')"
    )
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (3, 'after')")
    end = position(server)
    got = events_of(live_source(server).chunks(start, end))
    assert max(event.fields[5] for event in got) > length
    assert got == archived_events(server.journals(), start, end)


@pytest.mark.parametrize("mode", ["preferred", "verify_ca"])
def test_a_dump_over_tls(mysql_server: Server, mysql_database: str, mode: str) -> None:
    start = position(mysql_server)
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (a INT PRIMARY KEY, b LONGBLOB)")
    mysql_server.execute(f"INSERT INTO {mysql_database}.t VALUES (1, REPEAT('x', 3000000))")
    end = position(mysql_server)
    user, password = mysql_server.create_replication_user("tls_only")
    mysql_server.execute(f"ALTER USER {user} REQUIRE SSL")
    tls = {"mode": mode} | (
        {} if mode == "preferred" else {"ca_file": mysql_server.datadir / "ca.pem"}
    )
    source = live_source(mysql_server, user=user, password=password, tls=tls)
    source.check()
    got = source.chunks(start, end)
    first = next(got)
    assert source._dump is not None
    assert source._dump.encrypted
    assert events_of([first, *got]) == archived_events(mysql_server.journals(), start, end)


def processes(server: Server) -> list[Any]:
    return list(server.query("SHOW PROCESSLIST"))


def test_close_from_another_thread_stops_a_reader(server: Server, fresh_database: str) -> None:
    server.execute(
        f"CREATE TABLE {fresh_database}.t (a INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)"
    )
    start = position(server)
    for _ in range(5):
        server.execute(f"INSERT INTO {fresh_database}.t (b) VALUES (REPEAT('x', 8000000))")
    source, others = live_source(server), {row[0] for row in processes(server)}
    end = Position(server.end_position()[0], server.end_position()[1])
    got_first, errors = threading.Event(), []
    go_on = threading.Event()

    def read() -> None:
        try:
            for _ in source.chunks(start, end):
                got_first.set()
                go_on.wait(30)
        except SourceError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert got_first.wait(30)
    source.close()
    source.close()
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()
    assert len(errors) == 1
    assert "closed" in str(errors[0])
    # F214: its dump has ended at the server, too, though it was in a write.
    until_s = time.monotonic() + 20
    while any("Dump" in row[4] and row[0] not in others for row in processes(server)):
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_clash_of_replica_ids_names_both(server: Server, fresh_database: str) -> None:
    """A reader with our server id that is not ours stops us before we throw it out."""
    server.execute(f"CREATE TABLE {fresh_database}.t (a INT PRIMARY KEY, b LONGBLOB)")
    user, password = server.create_replication_user("cdc_all", grants=("ALL",))
    first, second = (
        live_source(
            server, name=name, replica_server_id=4_000_000_001, user=user, password=password
        )
        for name in ("first", "second")
    )
    start = position(server)
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (1, REPEAT('x', 30000000))")
    end = position(server)
    # The first reads nothing yet, so that its dump lasts.
    held = open_dump(
        first.config, DumpRequest(server.flavor, start.journal, start.offset), first.replica
    )
    try:
        for refused in (second.check, lambda: list(second.chunks(start, end))):
            with pytest.raises(ReplicaIdError, match="4000000001") as caught:
                refused()
            assert "cdc-first" in str(caught.value)
            assert "cdc-second" in str(caught.value)
            assert caught.value.setting == "source.replica_server_id"
        first.check()  # what is listed under our own name is our own
    finally:
        held.close()


def test_the_servers_own_id_is_refused(server: Server) -> None:
    with pytest.raises(ReplicaIdError, match=str(server.server_id)) as caught:
        live_source(server, name="stock", replica_server_id=server.server_id).check()
    assert "stock" in str(caught.value.got)
    assert f"127.0.0.1:{server.port}" in str(caught.value.got)


def test_replica_names_are_stable_and_differ(mysql_server: Server) -> None:
    config = live_config(mysql_server)
    one, other = replica_name(config, "shop"), replica_name(config, "stock")
    assert one == replica_name(config, "shop")
    assert one.server_id != other.server_id
    assert one.uuid != other.uuid
    for name in (one, other, replica_name(config, "n" * 200)):
        assert 1 << 31 <= name.server_id <= (1 << 32) - 2
        assert len(name.host.encode()) <= 60
        assert re.fullmatch(r"[0-9a-f-]{36}", name.uuid)


def test_offsets_above_32_bits_need_gtids(mysql_server: Server) -> None:
    source = live_source(mysql_server)
    journal = mysql_server.end_position()[0]
    with pytest.raises(PositionError, match="4294967295"):
        list(source.chunks(Position(journal, 1 << 32), Position(journal, (1 << 32) + 1)))
