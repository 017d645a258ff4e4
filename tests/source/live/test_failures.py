"""What happens when the stream breaks: everything before is delivered, then one error with its
place."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

import pymysql
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.errors import (
    DamagedJournalError,
    MissingGrantError,
    ReplicaIdError,
    ServerUnreachableError,
    TruncatedJournalError,
)
from cdc_pipeline.position.position import Position
from tests.servers import Flavor, Server
from tests.support.live_source import (
    Event,
    archived_events,
    events_of,
    live_source,
    position,
    read_failing,
)
from tests.support.waits import wait_until

MARIADB = [pytest.mark.mariadb, pytest.mark.whole]
FLAVORS = pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=MARIADB),
    ],
)


@dataclass(frozen=True)
class BigLog:
    """A server with about 60 MB of log, more than sockets and buffers hold; each test leaves it
    running."""

    server: Server
    gtid_set: str
    start: Position
    end: Position

    def dump_id(self) -> int:
        (dump,) = [
            row[0] for row in self.server.query("SHOW PROCESSLIST") if "Binlog Dump" in str(row[4])
        ]
        return int(dump)


@pytest.fixture(scope="module")
def big_logs() -> Iterator[Callable[[Flavor], BigLog]]:
    """The log of a flavor, on a server that is started when it is used first."""
    with ExitStack() as stack:

        @cache
        def of(flavor: Flavor) -> BigLog:
            server = stack.enter_context(Server(flavor))
            gtid_set = server.gtid_set()
            server.execute_all(
                "CREATE DATABASE big", "CREATE TABLE big.t (k INT PRIMARY KEY AUTO_INCREMENT, "
                "b LONGBLOB)",
            )  # fmt: skip
            start = position(server)
            for _ in range(60):
                server.execute("INSERT INTO big.t (b) VALUES (REPEAT('x', 1000000))")
            return BigLog(server, gtid_set, start, position(server))

        yield of


@pytest.fixture
def log(big_logs: Callable[[Flavor], BigLog], flavor: Flavor) -> BigLog:
    return big_logs(flavor)


# GTID, BEGIN or text, table map, rows and end of the first transaction: the first chunk, and what
# surely came.
FIRST_EVENTS = 4


def assert_first_events(chunks: list[Chunk], log: BigLog) -> None:
    last = chunks[-1]
    got, end = events_of(chunks), Position(last.journal, last.end_offset)
    assert got == archived_events(log.server.journals(), log.start, end)
    assert len(got) >= FIRST_EVENTS


@FLAVORS
def test_a_killed_server_ends_the_dump_after_what_came(log: BigLog) -> None:
    """No reconnect, no event twice; the error is retryable and tells how far it came."""
    source = live_source(log.server)

    def crash() -> None:
        log.server.kill()
        log.server.start()  # it is back at once: a reader that reconnects would go on

    chunks, error = read_failing(source, log.start, log.end, after_first=crash)
    assert isinstance(error, ServerUnreachableError)
    assert error.retryable
    assert_first_events(chunks, log)
    assert (error.journal, error.offset) == (chunks[-1].journal, chunks[-1].end_offset)
    # The same source reads on from there.
    rest = list(source.chunks(Position(chunks[-1].journal, chunks[-1].end_offset), log.end))
    assert events_of(chunks + rest) == archived_events(log.server.journals(), log.start, log.end)


@FLAVORS
@pytest.mark.parametrize("by_gtid", [False, True])
def test_a_killed_dump_is_a_lost_connection(log: BigLog, by_gtid: bool) -> None:
    """MariaDB says EOF, as at the end of the log: only the position tells that it is not."""
    start = dataclasses.replace(log.start, gtid_set=log.gtid_set if by_gtid else "")
    chunks, error = read_failing(
        live_source(log.server),
        start,
        log.end,
        after_first=lambda: log.server.execute(f"KILL {log.dump_id()}"),
    )
    assert isinstance(error, ServerUnreachableError)
    assert error.retryable
    if not by_gtid:
        assert_first_events(chunks, log)


@pytest.mark.parametrize("flavor", [pytest.param("mariadb", marks=MARIADB)])
def test_an_orderly_stop_of_mariadb_is_a_lost_connection(log: BigLog) -> None:
    """EOF as well. It waits for a reader without progress: reading goes on during the shutdown."""
    server, source = log.server, live_source(log.server)
    idle = server.root_connection()

    def begin_stop() -> None:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGTERM)
        with pytest.raises(pymysql.Error):
            idle._read_packet()  # connections are closed first, dumps last

    chunks, error = read_failing(source, log.start, log.end, after_first=begin_stop)
    server.stop()
    assert isinstance(error, ServerUnreachableError)
    assert_first_events(chunks, log)
    server.start()


# Flavor, name of the second capture, whether the first may see it, and what its error says of it.
# MySQL tells names apart by their uuid and lets both read; MariaDB goes by the server id alone, and
# shows replicas to REPLICATION MASTER ADMIN only.
CLASHES = [
    pytest.param(
        "mysql",
        "shop",
        True,
        "another capture of the same name, cdc-shop@",
        marks=pytest.mark.mysql,
    ),
    pytest.param(
        "mariadb",
        "shop",
        True,
        "another capture of the same name, cdc-shop@",
        marks=MARIADB,
    ),
    pytest.param("mariadb", "stock", True, "cdc-stock@", marks=MARIADB),
    pytest.param(
        "mariadb",
        "stock",
        False,
        "REPLICATION MASTER ADMIN",
        marks=MARIADB,
    ),
]


@pytest.mark.parametrize(("flavor", "name", "may_see", "other_text"), CLASHES)
def test_a_second_reader_with_our_id_ends_the_first(
    log: BigLog, name: str, may_see: bool, other_text: str
) -> None:
    """The first is thrown out by the server, and says by whom; it does not throw out in turn."""
    server = log.server
    seeing = dict(
        zip(
            ("user", "password"),
            server.create_replication_user("cdc_all", grants=("ALL",)),
            strict=True,
        )
    )
    source = live_source(server, replica_server_id=4_000_000_001, **(seeing if may_see else {}))
    # An account that does not see the first one, so that its check lets it pass.
    other = live_source(server, name=name, replica_server_id=4_000_000_001)
    second: list[Event] = []
    go_on = threading.Event()

    def read_second() -> None:
        for chunk in other.chunks(log.start, log.end):
            second.extend(events_of([chunk]))
            assert go_on.wait(60)

    thread = threading.Thread(target=read_second)

    def begin_second() -> None:
        first = log.dump_id()
        other.check()
        thread.start()

        def second_is_there_or_waits_for_the_first() -> bool:
            now = {row[0]: str(row[4]) for row in server.query("SHOW PROCESSLIST")}
            others = [command for number, command in now.items() if number != first]
            return now.get(first) == "Killed" or any("Binlog Dump" in one for one in others)

        wait_until(second_is_there_or_waits_for_the_first)

    try:
        chunks, error = read_failing(source, log.start, log.end, after_first=begin_second)
    finally:
        go_on.set()
    thread.join(60)
    assert isinstance(error, ReplicaIdError)
    assert not error.retryable
    assert error.setting == "source.replica_server_id"
    expected = str(error.expected)
    assert expected.startswith("only cdc-shop@")
    assert expected.endswith("with 4000000001")
    assert other_text in str(error.got)
    assert "same server_uuid/server_id" in str(error.got)
    assert_first_events(chunks, log)
    assert second == archived_events(server.journals(), log.start, log.end)


@pytest.mark.whole
@pytest.mark.mysql
@pytest.mark.parametrize("flavor", ["mysql"])
def test_mysql_lets_two_names_with_one_id_read(log: BigLog) -> None:
    """Both got past their checks: nobody is thrown out, since their uuids differ."""
    source = live_source(log.server, replica_server_id=4_000_000_001)
    other = live_source(log.server, name="stock", replica_server_id=4_000_000_001)
    first = source.chunks(log.start, log.end)
    got = events_of([next(first)])
    # its check sees the first's name
    other.replica = dataclasses.replace(other.replica, host=source.replica.host)
    expected = archived_events(log.server.journals(), log.start, log.end)
    assert events_of(other.chunks(log.start, log.end)) == expected
    assert got + events_of(first) == expected


@FLAVORS
def test_a_silent_server_times_out(log: BigLog) -> None:
    """A server that stopped answering: the read timeout ends the wait."""
    source, pid = live_source(log.server, read_timeout_s=1), log.server.pid
    assert pid is not None
    try:
        chunks, error = read_failing(
            source, log.start, log.end, after_first=lambda: os.kill(pid, signal.SIGSTOP)
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    assert isinstance(error, ServerUnreachableError)
    assert "nothing came for 1 s" in str(error.got)
    assert_first_events(chunks, log)


@FLAVORS
def test_a_flipped_bit_on_the_server_stops_at_its_event(
    start_server: Callable[..., Server], flavor: Flavor
) -> None:
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
    chunks, error = read_failing(source, start, end)
    got = events_of(chunks)
    assert isinstance(error, DamagedJournalError)
    assert got == good[: len(got)]
    assert error.offset is not None
    assert middle.offset < error.offset < end.offset
    assert got[-1].fields[1] == error.offset


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
    chunks, error = read_failing(source, start, end)
    assert isinstance(error, TruncatedJournalError)
    assert events_of(chunks) == good[:-1]
    assert (error.journal, error.offset) == (end.journal, good[-1].fields[0])
    assert error.next_step


def test_a_dump_without_the_grant_names_it(server: Server) -> None:
    client = "REPLICATION CLIENT" if server.flavor == "mysql" else "BINLOG MONITOR"
    user, password = server.create_replication_user("no_slave", grants=(client,))
    source = live_source(server, user=user, password=password)
    end = Position(*server.end_position())
    with pytest.raises(MissingGrantError) as caught:
        list(source.chunks(Position(end.journal, 4), end))
    assert caught.value.setting == "REPLICATION SLAVE"
