"""What happens when the stream breaks: everything before is delivered, then one error with its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    MissingGrantError,
    ServerUnreachableError,
    SourceError,
)
from cdc_pipeline.position.position import Position
from tests.servers import Flavor, Server
from tests.source_live.helpers import archived_events, events_of, live_source, position

pytestmark = pytest.mark.timeout(120)
FLAVORS = pytest.mark.parametrize(
    "flavor", [pytest.param("mysql", marks=pytest.mark.mysql), pytest.param("mariadb", marks=pytest.mark.mariadb)]
)


def big_log(server: Server) -> tuple[Position, Position]:
    """About 60 MB of log: more than sockets and buffers hold. Start and end."""
    server.execute_all("CREATE DATABASE a", "CREATE TABLE a.t (k INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)")
    start = position(server)
    for _ in range(60):
        server.execute("INSERT INTO a.t (b) VALUES (REPEAT('x', 1000000))")
    return start, position(server)


def delivered_before(chunks: list[Chunk], server: Server, start: Position) -> int:
    """Assert that `chunks` are the first events of the log; how many they are."""
    got = events_of(chunks)
    last = chunks[-1]
    assert got == archived_events(server.journals(), start, Position(last.journal, last.end_offset))
    return len(got)


@FLAVORS
def test_p24_a_killed_server_ends_the_dump_after_what_came(start_server: Callable[..., Server], flavor: Flavor) -> None:
    """Pitfall 24: no reconnect, no event twice; the error is retryable and tells how far it came."""
    server = start_server(flavor)
    source = live_source(server)
    start, end = big_log(server)
    chunks: list[Chunk] = []
    with pytest.raises(ServerUnreachableError) as caught:
        for chunk in source.chunks(start, end):
            if not chunks:
                server.kill()
                server.start()  # it is back at once: a reader that reconnects would go on
            chunks.append(chunk)
    assert caught.value.retryable
    assert delivered_before(chunks, server, start) > 5
    assert (caught.value.journal, caught.value.offset) == (chunks[-1].journal, chunks[-1].end_offset)
    # The same source reads on from there.
    rest = list(source.chunks(Position(chunks[-1].journal, chunks[-1].end_offset), end))
    assert events_of(chunks + rest) == archived_events(server.journals(), start, end)


@FLAVORS
def test_a_killed_connection_is_a_lost_one(start_server: Callable[..., Server], flavor: Flavor) -> None:
    server = start_server(flavor)
    source = live_source(server)
    start, end = big_log(server)
    chunks: list[Chunk] = []
    with pytest.raises(ServerUnreachableError) as caught:
        for chunk in source.chunks(start, end):
            if not chunks:
                (dump,) = [row[0] for row in server.query("SHOW PROCESSLIST") if "Binlog Dump" in str(row[4])]
                server.execute(f"KILL {dump}")
            chunks.append(chunk)
    assert caught.value.retryable
    assert delivered_before(chunks, server, start) > 5


@FLAVORS
def test_an_orderly_stop_of_the_server_is_a_lost_connection(
    start_server: Callable[..., Server], flavor: Flavor
) -> None:
    server = start_server(flavor)
    source = live_source(server)
    start, end = big_log(server)
    chunks: list[Chunk] = []
    with pytest.raises(ServerUnreachableError):
        for chunk in source.chunks(start, end):
            if not chunks:
                server.stop()
            chunks.append(chunk)
    assert delivered_before(chunks, server, start) > 5


@FLAVORS
def test_p13_a_second_reader_with_our_id_is_named(start_server: Callable[..., Server], flavor: Flavor) -> None:
    """Pitfall 13: the one that came first is thrown out by the server, and knows why."""
    server = start_server(flavor)
    source = live_source(server)
    start, end = big_log(server)
    chunks: list[Chunk] = []
    with pytest.raises((SourceError, ServerUnreachableError)) as caught:
        for chunk in source.chunks(start, end):
            if not chunks:
                other = live_source(server)
                assert events_of(other.chunks(start, end))
            chunks.append(chunk)
    assert delivered_before(chunks, server, start) > 5
    assert caught.value.next_step


@FLAVORS
def test_a_silent_server_times_out(start_server: Callable[..., Server], flavor: Flavor) -> None:
    """A server that stopped answering: the read timeout ends the wait."""
    import os
    import signal

    server = start_server(flavor)
    source = live_source(server, read_timeout_s=1)
    start, end = big_log(server)
    chunks: list[Chunk] = []
    assert server.pid is not None
    # The program itself, where a helper started it.
    with contextlib.ExitStack() as stack, pytest.raises(ServerUnreachableError, match="nothing came for 1 s"):
        for chunk in source.chunks(start, end):
            if not chunks:
                os.kill(server.pid, signal.SIGSTOP)
                stack.callback(os.kill, server.pid, signal.SIGCONT)
            chunks.append(chunk)
    assert delivered_before(chunks, server, start) > 5


@FLAVORS
def test_a_flipped_bit_on_the_server_stops_at_its_event(start_server: Callable[..., Server], flavor: Flavor) -> None:
    """Servers send damaged events without a word (their verification is off by default)."""
    server = start_server(flavor)
    source = live_source(server)
    server.execute_all("CREATE DATABASE a", "CREATE TABLE a.t (k INT PRIMARY KEY, b VARCHAR(100))")
    start = position(server)
    server.execute("INSERT INTO a.t VALUES (1, 'before')")
    middle = position(server)
    server.execute("INSERT INTO a.t VALUES (2, 'find-this-text')")
    end = position(server)
    server.flush_journal()
    path = server.datadir / end.journal
    content = bytearray(path.read_bytes())
    content[content.rindex(b"find-this-text")] ^= 1
    good = archived_events([path], start, end)
    path.write_bytes(content)
    got = []
    with pytest.raises(DamagedJournalError) as caught:
        for chunk in source.chunks(start, end):
            got += events_of([chunk])
    assert got == good[: len(got)]
    assert middle.offset < int(caught.value.offset or 0) < end.offset
    assert got[-1].fields[1] == caught.value.offset


@FLAVORS
def test_a_truncated_journal_is_told(start_server: Callable[..., Server], flavor: Flavor) -> None:
    server = start_server(flavor)
    source = live_source(server)
    server.execute_all("CREATE DATABASE a", "CREATE TABLE a.t (k INT PRIMARY KEY, b VARCHAR(100))")
    start = position(server)
    server.execute("INSERT INTO a.t VALUES (1, 'before')")
    end = position(server)
    server.flush_journal()
    path = server.datadir / end.journal
    good = archived_events([path], start, end)
    with path.open("r+b") as file:
        file.truncate(end.offset - 5)
    got = []
    with pytest.raises(CdcError) as caught:
        for chunk in source.chunks(start, end):
            got += events_of([chunk])
    assert got == good[:-1]
    assert caught.value.journal == end.journal
    assert caught.value.next_step


def test_a_dump_without_the_grant_names_it(server: Server) -> None:
    client = "REPLICATION CLIENT" if server.flavor == "mysql" else "BINLOG MONITOR"
    user, password = server.create_replication_user("no_slave", grants=(client,))
    source = live_source(server, user=user, password=password)
    end = Position(*server.end_position())
    with pytest.raises(MissingGrantError) as caught:
        list(source.chunks(Position(end.journal, 4), end))
    assert caught.value.setting == "REPLICATION SLAVE"
