"""What real servers said in each conversation, and the proxy that records it.

Rules:
- An exchange is a request and the payloads that answered it. Requests are known by what they ask,
  not by their place: salts, ids of connections and names of machines are in none of them.
- A greeting and the end of a login are exchanges too; what a client sent to log in is not kept.
- Rows of `SHOW GLOBAL VARIABLES` with paths or names of the machine are left out, and hashes of
  passwords are replaced.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import re
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, get_args

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.source.live.catalog import read_catalog
from cdc_pipeline.source.live.connection import ServerConnection
from tests.campaigns.liar import wire
from tests.campaigns.liar.conversations import NAMES, Name, Play
from tests.campaigns.network.conversations import Rows, Shop
from tests.conftest import temporary_database
from tests.servers import Flavor, Server
from tests.servers.listener import Listener

RECORDINGS: Final = Path(__file__).with_name("recordings")
GREETING: Final = b"greeting"
LOGIN: Final = b"login"
_UUID: Final = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH: Final = re.compile(rb"\*[0-9A-F]{40}")
_DUMP_ID: Final = {wire.DUMP: slice(7, 11), wire.DUMP_GTID: slice(3, 7)}


@dataclass
class Exchange:
    key: bytes
    packets: list[bytes]


@dataclass
class Recording:
    """A shop at a server, and each conversation with it. `starts`, `rows`: see `Shop`; `catalog`:
    what reading the tables' columns needs, for `Shop.schemas`.
    """

    flavor: Flavor
    database: str
    starts: dict[str, Any]
    rows: Rows
    catalog: list[Exchange] = field(default_factory=list)
    exchanges: dict[Name, list[Exchange]] = field(default_factory=dict)

    def save(self) -> None:
        content = {
            "database": self.database,
            "starts": self.starts,
            "rows": self.rows,
            "catalog": list(map(_as_json, self.catalog)),
            "exchanges": {name: list(map(_as_json, made)) for name, made in self.exchanges.items()},
        }
        data = json.dumps(content, default=_tagged).encode()
        (RECORDINGS / f"{self.flavor}.json.xz").write_bytes(lzma.compress(data, preset=9))

    @classmethod
    def load(cls, flavor: Flavor) -> Recording:
        data = lzma.decompress((RECORDINGS / f"{flavor}.json.xz").read_bytes())
        content = json.loads(data, object_hook=_untagged)
        return cls(
            flavor,
            content["database"],
            content["starts"],
            {name: list(map(tuple, rows)) for name, rows in content["rows"].items()},
            list(map(_from_json, content["catalog"])),
            {name: list(map(_from_json, made)) for name, made in content["exchanges"].items()},
        )


def _as_json(exchange: Exchange) -> list[Any]:
    return [exchange.key.hex(), [packet.hex() for packet in exchange.packets]]


def _from_json(made: list[Any]) -> Exchange:
    key, packets = made
    return Exchange(bytes.fromhex(key), list(map(bytes.fromhex, packets)))


def _tagged(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    assert isinstance(value, Decimal), value
    return {"decimal": str(value)}


def _untagged(found: dict[str, Any]) -> Any:
    match found:
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"decimal": str(digits)}:
            return Decimal(digits)
    return found


def key_of(request: bytes, prepared: bytes = b"") -> bytes:
    """What a request asks; `prepared` is the statement that an EXECUTE runs."""
    command = request[0]
    if command == wire.EXECUTE:
        return b"\x17" + prepared
    if command == wire.REGISTER:
        return b"\x15"
    if command in _DUMP_ID:
        at = _DUMP_ID[command]
        return request[: at.start] + request[at.stop :]
    return _UUID.sub(b"uuid", request) if b"_uuid" in request else request


class RecordingProxy(Listener):
    """Forwards connections without TLS and keeps what is said; a context manager. `port`: on
    127.0.0.1; `exchanges`: in the order of the requests.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.exchanges: list[Exchange] = []
        self._address = address
        self._threads: list[threading.Thread] = []
        super().__init__()

    def drop_connections(self) -> int:
        """They come to their own ends: what is on its way is kept."""
        for thread in self._threads:
            thread.join()
        return 0

    def accepted(self, client: socket.socket) -> None:
        thread = threading.Thread(target=self.talk, args=(client,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def talk(self, client: socket.socket) -> None:
        with (
            contextlib.closing(client),
            contextlib.closing(socket.create_connection(self._address)) as server,
            contextlib.suppress(OSError, EOFError),
        ):
            self._log_in(client, server)
            statements: dict[int, bytes] = {}
            while True:
                request = wire.take(client)
                server.sendall(wire.framed(request, 0))
                prepared = b""
                if request[0] in (wire.EXECUTE, wire.CLOSE):
                    prepared = statements.get(int.from_bytes(request[1:5], "little"), b"")
                if request[0] in (wire.QUIT, wire.CLOSE):
                    continue
                exchange = self._kept(key_of(request, prepared))
                number = 0

                def answer(exchange: Exchange = exchange) -> bytes:
                    nonlocal number
                    payload = wire.take(server)
                    number += 1
                    exchange.packets.append(payload)
                    # A client that has read enough of a dump is gone; the rest is kept all the same
                    with contextlib.suppress(OSError):
                        client.sendall(wire.framed(payload, number))
                    return payload

                _answered(request[0], answer)
                if request[0] == wire.PREPARE and exchange.packets[0][0] == 0:
                    statements[int.from_bytes(exchange.packets[0][1:5], "little")] = request[1:]

    def _kept(self, key: bytes) -> Exchange:
        exchange = Exchange(key, [])
        with self.lock:
            self.exchanges.append(exchange)
        return exchange

    def _log_in(self, client: socket.socket, server: socket.socket) -> None:
        greeting = wire.take(server)
        self._kept(GREETING).packets.append(greeting)
        client.sendall(wire.framed(greeting, 0))
        number = 1
        while True:
            server.sendall(wire.framed(wire.take(client), number))
            while True:
                answer = wire.take(server)
                client.sendall(wire.framed(answer, number + 1))
                number += 2
                if answer[0] == 0:
                    self._kept(LOGIN).packets.append(wire.OK)
                    return
                if answer != b"\x01\x03":  # the next packet is the server's again
                    break
                number -= 1


def _answered(command: int, answer: Callable[[], bytes]) -> None:
    first = answer()
    if command in (wire.DUMP, wire.DUMP_GTID):
        payload = first
        while not wire.is_end(payload):
            payload = answer()
    elif command == wire.PREPARE and first[0] == 0:
        for count in (first[7], first[5]):  # parameters, columns; fewer than 256
            for _ in range(count + 1 if count else 0):
                answer()
    elif command in (wire.QUERY, wire.EXECUTE) and first[0] not in (0, 0xFF):
        for _ in range(2):  # columns, rows
            while not wire.is_end(answer()):
                pass


def record(flavor: Flavor, folder: Path) -> Recording:
    with Server(flavor) as server, temporary_database(server) as database:
        shop = Shop.at(server, database)
        recording = Recording(flavor, database, shop.starts, shop.rows)
        with RecordingProxy((server.host, server.port)) as proxy:
            schemas_of(shop.source, database, proxy.port)
        recording.catalog = list(map(_published, proxy.exchanges))
        for name in NAMES:
            with RecordingProxy((server.host, server.port)) as proxy:
                rows = Play(shop, name, folder / f"{flavor}-{name}").run(proxy.port)
            assert rows == shop.rows, name
            recording.exchanges[name] = list(map(_published, proxy.exchanges))
    return recording


def schemas_of(source: dict[str, Any], database: str, port: int) -> list[TableSchema]:
    """The columns of the shop's tables, from the server at a port of this machine."""
    config = LiveSourceConfig.model_validate({**source, "port": port, "tls": {"mode": "off"}})
    server = ServerConnection(config)
    with contextlib.closing(server):
        found = read_catalog(server, lambda one, _table: one == database).tables
    return [found[database, table][0] for table in "ab"]


def _published(exchange: Exchange) -> Exchange:
    """An exchange without what belongs to the machine that recorded it."""
    packets = [_HASH.sub(b"*" + 40 * b"0", packet) for packet in exchange.packets]
    if b"VARIABLES" in exchange.key:
        host = socket.gethostname().encode()
        packets = [one for one in packets if b"/" not in one and host not in one]
    return Exchange(exchange.key, packets)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cdc-liar-") as folder:
        for flavor in get_args(Flavor):
            record(flavor, Path(folder)).save()


if __name__ == "__main__":
    main()
