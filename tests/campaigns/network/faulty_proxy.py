"""A TCP proxy that does one thing wrong, at one byte of one connection.

Rules:
- Connections are numbered in the order in which they were accepted, from 0. A byte is counted in
  its direction, as the client or the server sent it: what TLS encrypts is counted encrypted.
- Up to the byte of the fault everything is forwarded. A fault happens once; connections after it
  are forwarded as they are.
- Nothing waits by sleeping, except the fault whose meaning is to come late.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from tests.servers.listener import Listener, close, without_delay

Direction = Literal["to_client", "to_server"]
Kind = Literal["reset", "end", "half_end", "stall", "vanish", "trickle", "delay", "stop"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""What happens at the byte:

reset: both sides get RST. end: both sides get FIN. half_end: the receiver gets FIN, and its own
bytes still arrive. stall: nothing is forwarded any more, in this direction. vanish: nothing is
forwarded any more in either direction, and the server sees the connection end. trickle: what
follows comes byte by byte. delay: what follows comes late. stop: the server process is stopped.
"""
_BLOCK_BYTES: Final = 1 << 16
_TRICKLED_BYTES: Final = 2000


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    connection: int
    direction: Direction
    at_byte: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.connection}:{self.direction}:{self.at_byte}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        kind, connection, direction, at_byte = text.split(":")
        assert kind in KINDS
        assert direction in get_args(Direction)
        return cls(kind, int(connection), direction, int(at_byte))  # type: ignore[arg-type]


class FaultyProxy(Listener):
    """`address`: host and port of the server; `fault`: None forwards everything; `delay_s`: how
    late what follows a delay comes; `stop`: stops the server's process, for the fault of that name.
    `sent`: for each connection, the lengths of the blocks that were forwarded, by direction;
    `happened`: set once the fault has happened.
    """

    def __init__(
        self,
        address: tuple[str, int],
        fault: Fault | None = None,
        *,
        delay_s: float = 0.2,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.sent: list[dict[Direction, list[int]]] = []
        self.happened = threading.Event()
        self._address = address
        self._fault = fault
        self._delay_s = delay_s
        self._stop = stop
        super().__init__()

    def accepted(self, client: socket.socket) -> None:
        server = socket.create_connection(self._address)
        number = len(self.sent)
        self.sent.append({"to_client": [], "to_server": []})
        self.keep(client, server)
        without_delay((client, server))
        for way in get_args(Direction):
            pair = (server, client) if way == "to_client" else (client, server)
            threading.Thread(
                target=self._pump, args=(number, way, *pair), name="proxy-pump", daemon=True
            ).start()

    def _pump(
        self, number: int, way: Direction, source: socket.socket, target: socket.socket
    ) -> None:
        fault = self._fault
        left = None
        if fault is not None and (fault.connection, fault.direction) == (number, way):
            left = fault.at_byte
        sent = self.sent[number][way]
        with contextlib.suppress(OSError):
            if left == 0 and not self._happens(way, source, target, b""):
                return
            while block := source.recv(_BLOCK_BYTES):
                if left is not None and 0 < left <= len(block):
                    target.sendall(block[:left])
                    sent.append(left)
                    block, left = block[left:], None
                    if not self._happens(way, source, target, block):
                        return
                    continue
                if left:
                    left -= len(block)
                target.sendall(block)
                sent.append(len(block))
            target.shutdown(socket.SHUT_WR)
            return
        for one in (source, target):
            close(one)

    def _happens(
        self, way: Direction, source: socket.socket, target: socket.socket, rest: bytes
    ) -> bool:
        """Do what the fault says; whether this direction goes on."""
        assert self._fault is not None
        kind = self._fault.kind
        self.happened.set()
        if kind == "reset":
            for one in (source, target):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # close alone leaves the connection open while the other pump waits in recv
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RD)
                one.close()
        elif kind == "end":
            for one in (source, target):
                close(one)
        elif kind == "half_end":
            target.shutdown(socket.SHUT_WR)
        elif kind == "vanish":
            close(source if way == "to_client" else target)
        elif kind == "trickle":
            for at in range(min(len(rest), _TRICKLED_BYTES)):
                target.sendall(rest[at : at + 1])
            target.sendall(rest[_TRICKLED_BYTES:])
        elif kind == "delay":
            time.sleep(self._delay_s)
            target.sendall(rest)
        elif kind == "stop":
            self._stop()
            target.sendall(rest)
        return kind in ("trickle", "delay", "stop")
