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

from tests.servers.listener import Listener, close, without_delay

_BLOCK_BYTES = 1 << 18


class Backend(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Forwarder(Listener):
    """Without a backend connections are closed as soon as they are accepted."""

    def __init__(self, backend: Backend | None = None) -> None:
        self._backend = backend
        super().__init__()

    def point_to(self, backend: Backend | None) -> None:
        with self.lock:
            self._backend = backend
        self.drop_connections()

    def accepted(self, client: socket.socket) -> None:
        backend = self._backend
        try:
            if backend is None:
                raise ConnectionRefusedError
            server = socket.create_connection((backend.host, backend.port), timeout=10)
        except OSError:
            close(client)
            return
        server.settimeout(None)
        self.keep(client, server)
        if self.is_closed or self._backend is not backend:  # moved while we connected
            self.drop_connections()
            return
        without_delay((client, server))
        for source, target in ((client, server), (server, client)):
            threading.Thread(
                target=self._pump, args=(source, target), name="forwarder-pump", daemon=True
            ).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(_BLOCK_BYTES):
                target.sendall(block)
        self.let_go(source, target)
        for one in (source, target):
            close(one)
