"""An HTTP proxy before an S3 server that does one thing wrong, at one request.

Rules:
- Requests are numbered in the order in which they arrived, from 0. They are forwarded as they are,
  headers and all: what signs them names the proxy as their host.
- A fault happens once, at its request or, for a kind that needs one, at the first fitting request
  after it. Those that need a condition change only requests that have one: a store answers 409 and
  412 to nothing else.
- Nothing waits by sleeping, except the faults whose meaning is to come late.
"""

from __future__ import annotations

import http.client
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, get_args

Kind = Literal[
    "500", "503", "409", "412", "500_after", "503_after", "412_after",
    "close", "close_after", "reset_after", "half_put", "half_get", "late", "stall", "away", "stop",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""What happens at the request:

500, 503, 409, 412: this answer, and the server never sees the request. With ``_after`` the server
has carried it out. close, close_after: the connection ends before or after that; reset_after: with
RST. half_put: it ends in the middle of the body that is sent, half_get of the body that is
answered. late: the answer comes late. stall: no answer, and the connection stays. away: nobody
answers for a while, whoever asks. stop: the server's process is stopped for a while.
"""
_CONDITIONS: Final = ("if-match", "if-none-match")
_CONDITIONAL: Final = ("409", "412", "412_after")
_CODES: Final = {
    "500": (500, "InternalError"),
    "503": (503, "SlowDown"),
    "409": (409, "ConditionalRequestConflict"),
    "412": (412, "PreconditionFailed"),
}
_GOES_ON: Final = ("late", "stop")
_HOP_BY_HOP: Final = ("connection", "transfer-encoding", "content-length", "keep-alive", "date")


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    at_request: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.at_request}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        kind, _, at_request = text.partition(":")
        assert kind in KINDS
        return cls(kind, int(at_request))


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    is_conditional: bool
    body: bytes = field(default=b"", repr=False)

    def fits(self, kind: Kind) -> bool:
        if kind in _CONDITIONAL:
            return self.is_conditional
        return self.method == {"half_put": "PUT", "half_get": "GET"}.get(kind, self.method)


class FaultyStore:
    """Listens from construction on; a context manager that closes it. `endpoint`: of the server;
    `fault`: None forwards everything; `late_s`: how late an answer comes, and how long nobody
    answers; `stop`: stops the server's process, for the fault of that name; `on_request`: called
    with the number of each request before anything is done with it. `endpoint`: the address that
    clients are given; `requests`: those that arrived; `answered`: how many of them the server
    has answered. `happened`: set once the fault has happened.
    """

    def __init__(
        self,
        endpoint: str,
        fault: Fault | None = None,
        *,
        late_s: float = 0.3,
        stop: Callable[[], None] = lambda: None,
        on_request: Callable[[int, Request], None] = lambda _number, _request: None,
    ) -> None:
        self.requests: list[Request] = []
        self.answered = 0
        self.happened = threading.Event()
        self.server_address = endpoint.removeprefix("http://")
        self.late_s = late_s
        self.stop = stop
        self.on_request = on_request
        self.ended = threading.Event()
        self._fault = fault
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._away_until_s = 0.0
        self._open: set[socket.socket] = set()
        self._http = _Server(self)
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> FaultyStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        with self._lock:
            sockets, self._open = self._open, set()
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def has_answered(self) -> None:
        with self._changed:
            self.answered += 1
            self._changed.notify_all()

    def wait_for_answers(self, count: int, timeout_s: float = 30.0) -> bool:
        """Wait until the server has answered so many requests; whether it did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.answered >= count, timeout_s)

    def fault_of(self, request: Request) -> Kind | None:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
            fault = self._fault
            if time.monotonic() < self._away_until_s:
                found: Kind | None = "close"
            elif (
                fault is not None
                and number >= fault.at_request
                and request.fits(fault.kind)
                and not self.happened.is_set()
            ):
                self.happened.set()
                found = fault.kind
                if found == "away":
                    self._away_until_s, found = time.monotonic() + self.late_s, "close"
            else:
                found = None
        self.on_request(number, request)
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()
        self._upstream = http.client.HTTPConnection(self.server.store.server_address)
        self.server.store.opened(self.request)

    def finish(self) -> None:
        self._upstream.close()
        with suppress(OSError):
            super().finish()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, http.client.HTTPException):
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """The tests tell what happened."""

    def _any(self) -> None:
        store = self.server.store
        body = self._body()
        names = {name.lower() for name in self.headers}
        request = Request(self.command, self.path, not names.isdisjoint(_CONDITIONS), body)
        kind = store.fault_of(request)
        if kind is None or kind in _GOES_ON:
            if kind == "stop":
                store.stop()
            status, headers, content = self._forwarded(body)
            if kind == "late":
                time.sleep(store.late_s)
            self._answer(status, headers, content)
            return
        if kind.endswith("_after") or kind == "half_get":
            status, headers, content = self._forwarded(body)
            if kind == "half_get":
                self._answer(status, headers, content, bytes_sent=len(content) // 2)
        elif kind == "half_put":
            self._send(body, bytes_sent=len(body) // 2)
            self._upstream.close()
        what = kind.removesuffix("_after")
        if what in _CODES:
            code, name = _CODES[what]
            text = f"<Error><Code>{name}</Code><Message>by the test</Message></Error>"
            self._answer(code, [("Content-Type", "application/xml")], text.encode())
        elif what == "stall":
            store.ended.wait()
        elif what == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if what not in _CODES:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _any  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, body: bytes, *, bytes_sent: int) -> None:
        upstream = self._upstream
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "expect", "content-length"):
                upstream.putheader(name, value)
        if body or self.command in ("PUT", "POST"):
            upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body[:bytes_sent] or None)

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        for is_last in (False, True):
            try:
                self._send(body, bytes_sent=len(body))
                answer = self._upstream.getresponse()
                found = answer.status, answer.getheaders(), answer.read()
                self.server.store.has_answered()
                return found
            except (http.client.RemoteDisconnected, ConnectionError):
                self._upstream.close()  # an idle connection that the server has closed meanwhile
                if is_last:
                    raise
        raise AssertionError

    def _answer(
        self,
        status: int,
        headers: list[tuple[str, str]],
        content: bytes,
        *,
        bytes_sent: int | None = None,
    ) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP or (is_head and name.lower() == "content-length"):
                self.send_header(name, value)
        self.send_header("Date", self.date_time_string())
        if not is_head and status not in (204, 304):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not is_head:
            self.wfile.write(content if bytes_sent is None else content[:bytes_sent])
        self.wfile.flush()


def faults(count: int, requests: list[Request], chance: Any) -> list[Fault]:
    """So many faults: each kind in turn, at any request that it can happen to."""
    found = []
    for kind in itertools.islice(itertools.cycle(KINDS), count):
        places = [at for at, request in enumerate(requests) if request.fits(kind)]
        if places:
            found.append(Fault(kind, chance.choice(places)))
    return found
