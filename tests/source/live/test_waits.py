"""Every wait for a server ends: for connecting, for answers, for a dump of heartbeats alone (K25,
F19, F20)."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import ServerUnreachableError, SizeLimitError
from cdc_pipeline.position.position import Position
from cdc_pipeline.sink.delta_sink import time_limit
from cdc_pipeline.source.live import live
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.handover import DumpRequest, DumpSocket, ReplicaName, open_dump
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.source.rows.table_reader import TableReader
from tests.binlog.framing.test_packets import packets
from tests.servers import Server
from tests.support.journal_builder import HEADER, JournalBuilder
from tests.support.live_source import live_config

JOURNAL = "binlog.000001"
HOUR_S = 3600.0
Speak = Callable[[socket.socket], None]


def config(port: int, **timeouts: float) -> LiveSourceConfig:
    return LiveSourceConfig(
        kind="live",
        host="127.0.0.1",
        port=port,
        user="cdc",
        password="a secret",
        tls={"mode": "off"},
        **timeouts,
    )


@contextmanager
def serving(speak: Speak) -> Iterator[int]:
    """A server at a port, whose one conversation is `speak`."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            speak(peer)
            peer.settimeout(60)
            while peer.recv(1000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(60)
        assert not thread.is_alive(), "the connection was left open"


def say_nothing(_peer: socket.socket) -> None:
    """A server that accepts, and is silent at its greeting."""


def greet_and_fall_silent(peer: socket.socket) -> None:
    """A greeting, then no answer to the login."""
    capabilities = (0xF7DF).to_bytes(2, "little"), (0x0008).to_bytes(2, "little")
    greeting = (
        b"\x0a9.7.0\0"
        + bytes(4)
        + b"12345678\0"
        + capabilities[0]
        + b"\x2d\x02\0"
        + capabilities[1]
    )
    greeting += b"\x15" + bytes(10) + b"123456789012\0mysql_native_password\0"
    peer.sendall(len(greeting).to_bytes(3, "little") + b"\0" + greeting)


def connect_for_rows(config: LiveSourceConfig) -> None:
    TableReader(config).query("SELECT 1")


def connect_for_a_dump(config: LiveSourceConfig) -> None:
    open_dump(config, DumpRequest("mysql", JOURNAL, 4), ReplicaName(7, "u", "h"))


@pytest.mark.parametrize("connect", [connect_for_rows, connect_for_a_dump])
@pytest.mark.parametrize("speak", [say_nothing, greet_and_fall_silent])
def test_k25_f19_a_server_that_is_silent_while_connecting_is_given_up_soon(
    connect: Callable[[LiveSourceConfig], None], speak: Speak
) -> None:
    """However long rows and answers may take later."""
    with serving(speak) as port:
        waits = config(port, connect_timeout_s=0.2, read_timeout_s=HOUR_S, row_timeout_s=6 * HOUR_S)
        with pytest.raises(ServerUnreachableError, match="no connection") as caught:
            connect(waits)
    assert caught.value.retryable
    assert "a secret" not in str(caught.value)


def test_k25_f19_answers_are_waited_for_by_their_own_settings(server: Server) -> None:
    """Those of a session by the read timeout; once tables are read, a server may sort for hours."""
    settings = live_config(server, connect_timeout_s=9, read_timeout_s=20, row_timeout_s=300)
    with closing(ServerConnection(settings)) as control, TableReader(settings) as reader:
        for connection, timeout_s in ((control, 20), (reader, 300)):
            assert connection.query("SELECT 1")[1] == [(1,)]
            opened: Any = connection._connection
            assert opened._read_timeout == timeout_s
    impatient = TableReader(live_config(server, read_timeout_s=0.2, row_timeout_s=0.2))
    with pytest.raises(ServerUnreachableError):
        impatient.query("SELECT SLEEP(60)")


# -- dumps -----------------------------------------------------------------------------------------


def first_events() -> tuple[list[bytes], int]:
    """A made up rotate, the format description, one event; and where that ends."""
    builder = JournalBuilder()
    rotate = builder_event(4, (4).to_bytes(8, "little") + JOURNAL.encode(), flags=0x20)
    description = builder.format_description()
    event = builder.event(16, bytes(8))
    return [rotate, description, event], builder.offset


def builder_event(event_type: int, body: bytes, *, flags: int = 0, position: int = 0) -> bytes:
    """One without a place in the journal."""
    raw = HEADER.pack(0, event_type, 7, HEADER.size + len(body) + 4, position, flags) + body
    return raw + zlib.crc32(raw).to_bytes(4, "little")


class Dump:
    """A dump that goes on saying `again` until it is closed."""

    def __init__(self, again: bytes) -> None:
        self.server, client = socket.socketpair()
        events, self.end = first_events()
        self._again = again
        self._sequence = len(events) + 1
        self._closed = threading.Event()
        self.server.sendall(packets([b"\0" + event for event in events]))
        connection: Any = SimpleNamespace(_sock=client, _force_close=client.close)
        self.socket = DumpSocket(connection, address="db1:3306", read_timeout_s=20)
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        try:
            while not self._closed.wait(0.005):
                self.server.sendall(packets([b"\0" + self._again], sequence=self._sequence))
                self._sequence += 1
        except OSError:
            return

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.server.close()


def read(
    dump: Dump, monkeypatch: pytest.MonkeyPatch, *, in_python: bool, **settings: Any
) -> list[Any]:
    source = LiveSource(config(1, **settings), pipeline_name="shop")
    source.server = SimpleNamespace(flavor="mysql", uses_gtids=False, close=lambda: None)  # type: ignore[assignment]
    monkeypatch.setattr(live, "check_replica_id", lambda *_, **__: None)
    monkeypatch.setattr(live, "open_dump", lambda *_: dump.socket)
    if in_python:  # as an encrypted stream is read
        monkeypatch.setattr(DumpSocket, "descriptor", property(lambda _: None))
    try:
        return list(source.chunks(Position(JOURNAL, 4), Position(JOURNAL, 1 << 20)))
    finally:
        dump.close()


HEARTBEAT_AT_THE_END = first_events()[1]


@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize(
    "place", [0, HEARTBEAT_AT_THE_END], ids=["no place", "the place that was reached"]
)
def test_k25_f20_a_dump_of_heartbeats_alone_ends_with_a_retryable_error(
    monkeypatch: pytest.MonkeyPatch, place: int, in_python: bool
) -> None:
    """It is never silent, and the planned end never comes."""
    dump = Dump(builder_event(27, JOURNAL.encode(), position=place))
    with pytest.raises(ServerUnreachableError, match="connection to db1:3306 broke") as caught:
        read(dump, monkeypatch, in_python=in_python, read_timeout_s=0.3)
    assert "nothing but heartbeats came" in str(caught.value.got)
    assert caught.value.retryable
    assert (caught.value.journal, caught.value.offset) == (JOURNAL, dump.end)


@pytest.mark.parametrize("in_python", [False, True])
def test_k25_f18_an_event_above_the_setting_stops_the_dump_with_its_place(
    monkeypatch: pytest.MonkeyPatch, in_python: bool
) -> None:
    """It begins and never ends; what is before it was delivered."""
    dump = Dump(b"")
    limit = 1 << 24
    dump._closed.set()
    dump._thread.join()
    endless = packets([b"\0" + bytes(limit + 10)], sequence=4)
    sender = threading.Thread(target=dump.server.sendall, args=(endless,), daemon=True)
    sender.start()
    with pytest.raises(SizeLimitError) as caught:
        read(dump, monkeypatch, in_python=in_python, read_timeout_s=20, packet_bytes_max=limit)
    assert (caught.value.journal, caught.value.offset) == (JOURNAL, dump.end)
    assert caught.value.setting == "source.packet_bytes_max"


# -- Spark -----------------------------------------------------------------------------------------


def test_k25_f20_the_jobs_of_a_batch_that_takes_too_long_are_cancelled_until_it_has_ended() -> None:
    cancelled = threading.Event()
    with time_limit(0.01, cancelled.set) as is_late:
        assert cancelled.wait(60)
    assert is_late()
    with time_limit(HOUR_S, pytest.fail) as is_late:
        pass
    assert not is_late()
