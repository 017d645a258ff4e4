"""What is fuzzed: each target takes bytes, and does one thing with them.

An input may be refused with a CdcError; anything else that is raised is a finding. The fuzzer
(`child.py`) runs these over kernels that are plain Python, `test_corpus.py` over compiled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, EventSlice
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.framing.framing_kernel import PREFIX_BYTES
from cdc_pipeline.binlog.framing.packets import PacketBuffer
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.binlog.rows.result_columns import ResultPlan, result_plan
from cdc_pipeline.binlog.rows.result_set import ResultSet
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import CdcError
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.position.position import Flavor
from cdc_pipeline.schema.catalog import column_of
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.published import published
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.campaigns.fuzz import journal as wire
from tests.campaigns.fuzz.judge import decoded

JOURNAL: Final = "binlog.000001"
_SIZE_MAX: Final = 1 << 16
_PLACE: Final[dict[str, Any]] = {"journal": JOURNAL, "offset": 4}
_KINDS: Final = (
    EventType.GTID,
    EventType.GTID_TAGGED,
    EventType.PREVIOUS_GTIDS,
    EventType.MARIADB_GTID_LIST,
    EventType.MARIADB_GTID,
)
_ROOM_BYTES: Final = 5000


def framing(data: bytes) -> None:
    transactions = TransactionPass()
    for chunk in _chunks(_with_checksums(wire.MAGIC + data)):
        transactions.apply(chunk)


def packets(data: bytes) -> None:
    taken = PacketBuffer(BlockPool(1 << 16, spare_blocks_max=2), room_bytes=_ROOM_BYTES,
                         packet_bytes_max=_SIZE_MAX)  # fmt: skip
    framer = EventFramer(
        JOURNAL, dump=True, prefix_bytes=PREFIX_BYTES, unpacked_bytes_max=_SIZE_MAX
    )
    for at in range(0, len(data), _ROOM_BYTES):
        piece = np.frombuffer(data[at : at + _ROOM_BYTES], np.uint8)
        taken.room()[: len(piece)] = piece
        ended = taken.commit(len(piece))
        while True:
            chunk, used = framer.feed(taken.events)
            taken.consume(used)
            if chunk is None and not used:
                break
        if ended is not None:
            return


def table_maps(data: bytes) -> None:
    """The body of a table map behind a byte: the kind of the server."""
    table_map.parse(data[1:], is_mariadb=data[:1] > b"\x7f", **_PLACE)


def ddl(data: bytes) -> None:
    """A statement behind a byte: the kind of the server."""
    sql = data[1:].decode("utf-8", "replace")
    is_mariadb = data[:1] > b"\x7f"
    parse_statement(sql, "shop", is_mariadb=is_mariadb)
    published(parse_statement(sql, "shop", is_mariadb=is_mariadb))


def gtids(data: bytes) -> None:
    """A set of GTIDs as text, or an event that has some, behind a byte that says which."""
    kind, body = data[0] if data else 0, data[1:]
    if kind < len(_KINDS):
        event = _KINDS[kind]
        if event == EventType.MARIADB_GTID:
            gtid.parse_mariadb(body, 1, **_PLACE)
        elif event in (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST):
            _same_set(gtid.previous_set(body, event, **_PLACE), _flavor(event))
        else:
            gtid.parse(body, event, **_PLACE)
        return
    _same_set(body.decode("latin1"), "mariadb" if kind > 0x7F else "mysql")


def _flavor(event: int) -> Flavor:
    return "mariadb" if event == EventType.MARIADB_GTID_LIST else "mysql"


def _same_set(text: str, flavor: Flavor) -> None:
    if not text:
        return
    found: Any = parse_gtid_set(text, flavor)
    assert parse_gtid_set(str(found), flavor) == found
    assert found.contains(found)
    assert not found.subtract(found)
    assert found.union(found) == found


def json_changes(data: bytes) -> None:
    """The body of an event with differences of JSON documents, and its table's map before it."""
    before, after = _partial()
    event = bytearray(before[-1][: wire.HEADER_BYTES] + data + bytes(wire.CRC_BYTES))
    journal = wire.joined(
        [*map(bytearray, before[:-1]), event, *map(bytearray, after)],
        checksums=True, lengths=True, positions=True,
    )  # fmt: skip
    for _ in decoded(_slices(journal)):
        pass


def results(data: bytes) -> None:
    """A result set of the binary protocol, behind a byte: the kind of the server."""
    result = ResultSet(
        _plan(), is_mariadb=data[:1] > b"\x7f", batch_rows=4, batch_bytes=4096,
        packet_bytes_max=_SIZE_MAX,
    )  # fmt: skip
    piece = np.frombuffer(data[1:], np.uint8)
    result.room()[: len(piece)] = piece
    result.commit(len(piece))
    while (batch := result.take()) is not None:
        batch.rows.validate(full=True)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "framing": framing,
    "packets": packets,
    "table_maps": table_maps,
    "ddl": ddl,
    "gtids": gtids,
    "json_changes": json_changes,
    "results": results,
}


def run(name: str, data: bytes) -> None:
    """Give a target an input; a refusal is no finding."""
    with suppress(CdcError):
        TARGETS[name](data)


# -- what targets are made of ----------------------------------------------------------------------


def _with_checksums(journal: bytes) -> bytes:
    """The journal with right checksums, so that what is behind them is reached; what is no event
    stays at its end."""
    events = wire.split(journal)
    rest = journal[len(wire.MAGIC) + sum(map(len, events)) :]
    return wire.joined(events, checksums=True, lengths=False, positions=True) + rest


def _chunks(journal: bytes) -> Iterator[Chunk]:
    framer = EventFramer(JOURNAL, unpacked_bytes_max=_SIZE_MAX)
    data, at = np.frombuffer(journal, np.uint8), len(wire.MAGIC)
    while True:
        chunk, used = framer.feed(data[at:])
        at += used
        if chunk is not None:
            yield chunk
        elif not used:
            return


def _slices(journal: bytes) -> Iterator[EventSlice]:
    taken: list[EventSlice] = []

    def take(parts: Sequence[EventSlice]) -> bool:
        taken.extend(parts)
        return True

    buffer = TransactionBuffer(
        take, is_isolated=lambda _query: False, source="", slice_events_max=64
    )
    for chunk in _chunks(journal):
        buffer.feed(chunk)
        yield from taken
        taken.clear()


@cache
def _partial() -> tuple[list[bytes], list[bytes]]:
    """The events of a recorded journal up to its first with differences, and those behind it."""
    events = list(map(bytes, wire.split(wire.seed("mysql-partial"))))
    at = next(at for at, event in enumerate(events) if event[4] == EventType.PARTIAL_UPDATE_ROWS)
    return events[: at + 1], events[at + 1 :]


@cache
def _plan() -> ResultPlan:
    """Of the table that the recordings of `tests.campaigns.liar` have."""
    declared = {"id": "int", "v": "varchar(40)", "n": "decimal(10,2)", "w": "int"}
    columns = [
        column_of(
            {
                "column_name": name,
                "column_type": kind,
                "character_set_name": "utf8mb4",
                "is_nullable": "NO" if name == "id" else "YES",
                "extra": "",
            },
            is_mariadb=False,
        )
        for name, kind in declared.items()
    ]
    return result_plan(TableSchema("shop", "a", tuple(filter(None, columns)), (0,)))


# -- where it begins -------------------------------------------------------------------------------


def beginnings(name: str) -> list[bytes]:
    """Inputs that are valid, cut out of the recordings of the other campaigns."""
    events = [
        (seed, bytes(event)) for seed in wire.seed_names() for event in wire.split(wire.seed(seed))
    ]

    def bodies(*kinds: int) -> list[tuple[str, int, bytes]]:
        return [
            (seed, event[4], event[wire.HEADER_BYTES : -wire.CRC_BYTES])
            for seed, event in events
            if event[4] in kinds
        ]

    def server(seed: str) -> bytes:
        return b"\xff" if seed.startswith("mariadb") else b"\0"

    if name == "framing":
        return [wire.seed(seed)[len(wire.MAGIC) :][:2000] for seed in wire.seed_names()]
    if name == "packets":
        return [_dump(seed) for seed in wire.seed_names()]
    if name == "table_maps":
        return [server(seed) + body for seed, _, body in bodies(EventType.TABLE_MAP)]
    if name == "ddl":
        return [server(seed) + body[-200:] for seed, _, body in bodies(EventType.QUERY)]
    if name == "gtids":
        texts = ("0-1-5,1-2-3", "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:7:tag:1-3")
        return [
            bytes([_KINDS.index(EventType(kind))]) + body for _, kind, body in bodies(*_KINDS)
        ] + [server + text.encode() for server, text in zip((b"\xff", b"\x7f"), texts, strict=True)]
    if name == "json_changes":
        return [body for _, _, body in bodies(EventType.PARTIAL_UPDATE_ROWS)]
    return _results()


def _dump(seed: str) -> bytes:
    stream = b""
    for number, event in enumerate(wire.split(wire.seed(seed))[:12]):
        stream += (len(event) + 1).to_bytes(3, "little") + bytes([number + 1]) + b"\0" + event
    return stream


def _results() -> list[bytes]:
    from tests.campaigns.liar.lies import FLAVORS, recording
    from tests.campaigns.liar.wire import EXECUTE

    found = []
    for flavor in FLAVORS:
        for exchange in recording(flavor).exchanges["rows"]:
            if exchange.key[0] == EXECUTE and exchange.packets[0] == b"\x04":
                stream = b"".join(
                    len(one).to_bytes(3, "little") + bytes([number + 1 & 0xFF]) + one
                    for number, one in enumerate(exchange.packets)
                )
                found.append((b"\xff" if flavor == "mariadb" else b"\0") + stream[:2000])
    return found
