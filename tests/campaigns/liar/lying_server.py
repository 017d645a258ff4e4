"""A server that answers as it was recorded, but for its lies.

Rules:
- A request is answered by the recorded answer to the same request: the first time by the first, and
  so on; the last one is repeated. What was never asked in the recording is answered by an error.
- Whoever logs in is let in, with TLS if there is a context for it. Every byte that comes is kept as
  it is without TLS, for the judge to search.
- It runs in threads of this process; all of it ends with the context.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from typing import Final

from tests.campaigns.liar import wire
from tests.campaigns.liar.recording import GREETING, LOGIN, Exchange, key_of
from tests.servers.listener import Listener, without_delay

_TLS: Final = 0x0800  # the capability
_TLS_REQUEST_BYTES: Final = 32
_BLOCK_BYTES: Final = 1 << 18
_PAUSE_S: Final = 0.02


@dataclass
class Answer:
    """What is sent for a request. `packets`: payloads; `endless`: payloads that are sent again and
    again after them; `slowly` with pauses. `is_immense`: whether a packet without an end
    follows; `numbers`: changes of the sequence numbers, by index of the packet; `lengths`:
    lengths that headers have instead of the right ones, by index of the packet; `closes`:
    whether the connection is closed afterwards.
    """

    packets: list[bytes]
    endless: tuple[bytes, ...] = ()
    slowly: bool = False
    is_immense: bool = False
    numbers: dict[int, int] | None = None
    lengths: dict[int, int] | None = None
    closes: bool = False

    def framed(self, first: int) -> Iterator[bytes]:
        """The bytes to send, block by block; the first packet has this number."""
        block = b""
        for index, payload in enumerate(chain(self.packets, _cycled(self.endless))):
            number = first + index + (self.numbers or {}).get(index, 0)
            framed = wire.framed(payload, number)
            if self.lengths and index in self.lengths:
                framed = self.lengths[index].to_bytes(3, "little") + framed[3:]
            block += framed
            is_endless = index >= len(self.packets)
            if len(block) >= _BLOCK_BYTES or (is_endless and self.slowly):
                yield block
                block = b""
        yield block
        if self.is_immense:
            for number in count(first + len(self.packets)):
                yield b"\xff\xff\xff" + bytes([number & 0xFF]) + bytes((1 << 24) - 1)


def _cycled(payloads: tuple[bytes, ...]) -> Iterator[bytes]:
    return chain.from_iterable(repeat(payloads)) if payloads else iter(())


Lie = Callable[[int, Answer], Answer]


class LyingServer(Listener):
    """`exchanges`: what it says, see the module; `lie`: makes what is sent out of the exchange's
    index and its recorded answer; `tls`: with which clients that ask for TLS are answered; None for
    a server that has none. `received`: every payload that came; `asked`: indices of the exchanges
    that were asked for.
    """

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        lie: Lie = lambda _index, answer: answer,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.received: list[bytes] = []
        self.asked: set[int] = set()
        self._exchanges = exchanges
        self._lie = lie
        self._tls = tls
        self._places: dict[bytes, list[int]] = {}
        for index, exchange in enumerate(exchanges):
            self._places.setdefault(exchange.key, []).append(index)
        self._counts: Counter[bytes] = Counter()
        self._ended = threading.Event()
        super().__init__()

    def close(self) -> None:
        self._ended.set()
        super().close()

    def talk(self, client: socket.socket) -> None:
        self.keep(client)
        without_delay((client,))
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(OSError, EOFError))
            stack.enter_context(contextlib.closing(client))
            self._answer(client, GREETING, 0)
            number = 2
            if len(self._take(client)) == _TLS_REQUEST_BYTES and self._tls is not None:
                client = stack.enter_context(self._with_tls(self._tls, client))
                self._take(client)
                number = 3
            self._answer(client, LOGIN, number)
            statements: list[bytes] = [b""]
            while True:
                request = self._take(client)
                if request[0] in (wire.QUIT, wire.CLOSE):
                    continue
                if request[0] == wire.PREPARE:
                    statements.append(request[1:])
                prepared = statements[-1] if request[0] == wire.EXECUTE else b""
                self._answer(client, key_of(request, prepared), 1)
        self.let_go(client)

    def _with_tls(self, tls: ssl.SSLContext, client: socket.socket) -> socket.socket:
        wrapped = tls.wrap_socket(client, server_side=True)  # what it was has no descriptor now
        self.let_go(client)
        self.keep(wrapped)
        return wrapped

    def _take(self, client: socket.socket) -> bytes:
        request = wire.take(client)
        self.received.append(request)
        return request or b"\0"

    def _answer(self, client: socket.socket, key: bytes, first: int) -> None:
        index = self._index(key)
        if index is None:
            client.sendall(wire.framed(wire.error(1105, "this was not asked before"), first))
            return
        packets = list(self._exchanges[index].packets)
        if key == GREETING:
            packets[0] = _greeting(packets[0], has_tls=self._tls is not None)
        answer = self._lie(index, Answer(packets))
        for block in answer.framed(first):
            client.sendall(block)
            if answer.slowly and self._ended.wait(_PAUSE_S):
                raise EOFError
        if answer.closes:
            raise EOFError

    def _index(self, key: bytes) -> int | None:
        with self.lock:
            places = self._places.get(key)
            if places is None:
                return None
            index = places[min(self._counts[key], len(places) - 1)]
            self._counts[key] += 1
            self.asked.add(index)
            return index


def _greeting(recorded: bytes, *, has_tls: bool) -> bytes:
    """A recorded greeting, of a server that has TLS or not."""
    at = recorded.index(b"\0", 1) + 1 + 4 + 8 + 1
    capabilities = int.from_bytes(recorded[at : at + 2], "little") & ~_TLS
    capabilities |= _TLS * has_tls
    return recorded[:at] + capabilities.to_bytes(2, "little") + recorded[at + 2 :]
