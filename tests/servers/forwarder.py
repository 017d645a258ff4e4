"""A TCP forwarder on loopback that plays a virtual IP: one address, and now this server and then
that one behind it.

Rules:
- A connection belongs to the server that was behind the address when it was opened. `point_to`
  closes all of them, as the loss of an address does; new ones reach the new server.
- Nothing waits by sleeping: a thread per direction copies until its socket ends.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Protocol

_BLOCK_BYTES = 1 << 18


class Backend(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Forwarder:
    """Listens from construction on; a context manager that closes it. Without a backend
    connections are closed as soon as they are accepted; `accepted` counts them.
    """

    host = "127.0.0.1"

    def __init__(self, backend: Backend | None = None) -> None:
        self.accepted = 0
        self._backend = backend
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server((self.host, 0))
        self.port = int(self._listener.getsockname()[1])
        self._closed = False
        threading.Thread(target=self._accept, name="forwarder", daemon=True).start()

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def point_to(self, backend: Backend | None) -> None:
        with self._lock:
            self._backend = backend
        self.drop_connections()

    def drop_connections(self) -> int:
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            _close(one)
        return len(sockets)

    def close(self) -> None:
        self._closed = True
        # shutdown wakes the thread in accept; close alone does not
        _close(self._listener)
        self.drop_connections()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        with self._lock:
            backend = self._backend
        try:
            if backend is None:
                raise ConnectionRefusedError
            server = socket.create_connection((backend.host, backend.port), timeout=10)
        except OSError:
            _close(client)
            return
        server.settimeout(None)
        with self._lock:
            # the address may have moved while we connected
            is_current = not self._closed and self._backend is backend
            if is_current:
                self._sockets |= {client, server}
        if not is_current:
            _close(client)
            _close(server)
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((client, server), (server, client)):
            threading.Thread(
                target=self._pump, args=(source, target), name="forwarder-pump", daemon=True
            ).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(_BLOCK_BYTES):
                target.sendall(block)
        for one in (source, target):
            with self._lock:
                self._sockets.discard(one)
            _close(one)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
