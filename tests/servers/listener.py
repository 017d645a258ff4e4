"""What listens on loopback in the tests' own process: the part that stand-ins of servers share."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable
from typing import Self


class Listener:
    """Listens from construction on; a context manager that closes it and everything open. Nothing
    waits by sleeping: each client has a thread that ends with its socket.
    """

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_closed = False
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((self.host, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="listener", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True
        # shutdown wakes the thread in accept; close alone does not
        close(self._listener)
        self.drop_connections()

    def drop_connections(self) -> int:
        with self.lock:
            sockets, self._open = self._open, set()
        for one in sockets:
            close(one)
        return len(sockets)

    def keep(self, *sockets: socket.socket) -> None:
        """They are closed at the end, if not before."""
        with self.lock:
            self._open.update(sockets)

    def let_go(self, *sockets: socket.socket) -> None:
        with self.lock:
            self._open.difference_update(sockets)

    def accepted(self, client: socket.socket) -> None:
        """Called for one client after the other; by default starts `talk` in a thread."""
        threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                self.accepted(client)
            except OSError:
                return


def without_delay(sockets: Iterable[socket.socket]) -> None:
    for one in sockets:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
