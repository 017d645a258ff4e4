"""Compressed events made by hand: every layout, every chunk border, every kind of damage."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, Role, SliceKind
from cdc_pipeline.binlog.events.query import parse_query
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    UnknownEventError,
    UnsupportedEventError,
)
from cdc_pipeline.position.position import Position
from cdc_pipeline.store.ring import RingStore
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.support.event_builder import gtid_body, query_body
from tests.support.journal_builder import JournalBuilder
from tests.support.packing import ZSTD, PlainEvent, child, payload, record, slow_unpack

JOURNAL = "binlog.000001"
TABLE = struct.pack("<IHH", 77, 0, 1)


def frame_all(
    data: bytes, *, sizes: list[int] | None = None
) -> tuple[list[Chunk], CdcError | None]:
    """Chunks of the bytes behind the magic number, fed in pieces, and the error after them."""
    framer = EventFramer(JOURNAL)
    chunks: list[Chunk] = []
    left = np.empty(0, np.uint8)
    stops = [*np.cumsum(sizes or [len(data)]).tolist(), len(data)]
    first = 0
    try:
        for stop in stops:
            left = np.concatenate([left, np.frombuffer(data[first:stop], np.uint8)])
            first = max(first, min(stop, len(data)))
            while len(left):
                chunk, used = framer.feed(left)
                left = left[used:]
                if chunk is not None:
                    chunks.append(chunk)
                if used == 0:
                    break
        framer.finish(len(left))
    except CdcError as error:
        return chunks, error
    return chunks, None


def plain(chunks: list[Chunk]) -> list[PlainEvent]:
    """Events of the chunks, with parents counted over all of them."""
    found: list[PlainEvent] = []
    for chunk in chunks:
        base = len(found)
        for row, event in enumerate(chunk.events):
            body = bytes(chunk.body(row))
            parent = int(event["parent"])
            found.append(
                PlainEvent(
                    int(event["event_type"]), body, int(event["offset"]), int(event["next_offset"]),
                    parent + base if parent >= 0 else -1,
                )
            )  # fmt: skip
    return found


def transaction(rows: int = 2, *, sql: str = "BEGIN") -> bytes:
    """The events of a payload: BEGIN, table map, rows, XID."""
    return b"".join(
        [
            child(2, query_body(sql)),
            child(19, TABLE + b"table" * 4),
            *(child(30, TABLE + b"\2\0" + bytes([number % 256]) * 40) for number in range(rows)),
            child(16, bytes(8)),
        ]
    )


def begun(*, checksum: bool = True, mariadb: bool = False) -> JournalBuilder:
    builder = JournalBuilder(checksum=checksum)
    if mariadb:
        builder.format_description(server_version="10.11.19-MariaDB-log", types=171)
    else:
        builder.format_description()
    return builder


def mysql_journal(*, checksum: bool = True, transactions: int = 3) -> JournalBuilder:
    builder = begun(checksum=checksum)
    for number in range(transactions):
        builder.event(33, gtid_body(number + 1))
        builder.event(40, payload(transaction(number + 1), algorithm=255 if number == 1 else 0))
    builder.event(33, gtid_body(transactions + 1))
    builder.event(2, query_body("ALTER TABLE t ADD COLUMN c INT"))
    return builder


def rows_head(event_type: int, columns: int = 300) -> bytes:
    width = (columns + 7) // 8 * (2 if event_type in (167, 170) else 1)
    extra = b"\5\0abc" if event_type >= 169 else b""
    return TABLE + extra + b"\xfc" + struct.pack("<H", columns) + b"\xff" * width


def mariadb_journal(*, checksum: bool = True) -> JournalBuilder:
    builder = begun(checksum=checksum, mariadb=True)
    builder.event(162, struct.pack("<QIB", 1, 0, 0) + bytes(6))
    builder.event(19, TABLE + b"table" * 4)
    for event_type in range(166, 172):
        for size in (1, 255, 256, 70_000):
            builder.event(
                event_type, rows_head(event_type) + record(bytes([event_type]) * size), flags=1
            )
    # More length bytes than the number needs are as good.
    builder.event(166, rows_head(166) + record(b"row", size_bytes=4))
    builder.event(16, bytes(8))
    builder.event(162, struct.pack("<QIB", 2, 0, 1) + bytes(6))
    builder.event(165, query_body("", "shop") + record(b"CREATE TABLE t (a INT)"))
    return builder


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("journal", [mysql_journal, mariadb_journal])
def test_unpacked_events_are_those_of_the_slow_twin(journal, checksum: bool) -> None:
    data = bytes(journal(checksum=checksum).data[4:])
    chunks, error = frame_all(data)
    assert error is None
    assert plain(chunks) == slow_unpack(data, checksum_bytes=4 if checksum else 0)


def test_payloads_that_are_unpacked_together_are_those_of_the_slow_twin() -> None:
    """Frames with and without their own size (one and more bytes wide), large ones and stored ones,
    mixed."""
    generator = random.Random(3)
    builder = begun()
    for number in range(300):
        builder.event(33, gtid_body(number + 1))
        inside = transaction(generator.choice((0, 1, 3, 20, 700, 2000)))
        algorithm = generator.choice((0, 0, 0, 255))
        stream = None
        if algorithm == 0 and generator.randrange(4) == 0:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "zstd") as out:
                out.write(inside)  # a stream does not know its size when it begins
            stream = sink.getvalue().to_pybytes()
        builder.event(40, payload(inside, algorithm=algorithm, packed=stream))
    data = bytes(builder.data[4:])
    chunks, error = frame_all(data)
    assert error is None
    assert plain(chunks) == slow_unpack(data)


@pytest.mark.parametrize("bad", [0, 3, 5])
def test_a_bad_payload_among_many_is_found(bad: int) -> None:
    """Two wrong sizes that add up, or a flipped bit in one frame: the first of them is named."""
    inside = transaction(3)
    packed = ZSTD.compress(inside, asbytes=True)
    for broken in (
        {
            bad: payload(inside, unpacked_bytes=len(inside) + 1),
            bad + 1: payload(inside, unpacked_bytes=len(inside) - 1),
        },
        {bad: payload(inside, packed=packed[:-5] + bytes([packed[-5] ^ 0xFF]) + packed[-4:])},
        {
            bad: payload(inside, packed=packed[:-1]),
            bad + 1: payload(inside, packed=packed[-1:] + packed),
        },
        {bad: payload(inside, packed=packed + packed)},
    ):
        builder = begun(checksum=False)
        offsets = []
        for number in range(8):
            offsets.append(builder.offset)
            builder.event(40, broken.get(number, payload(inside)))
        chunks, error = frame_all(bytes(builder.data[4:]))
        assert isinstance(error, DamagedJournalError)
        assert error.offset == offsets[bad]
        assert sum(int((chunk.events["event_type"] == 40).sum()) for chunk in chunks) == bad


@pytest.mark.parametrize("journal", [mysql_journal, mariadb_journal])
def test_chunk_borders_change_nothing(journal) -> None:
    data = bytes(journal().data[4:])
    whole = slow_unpack(data)
    generator = random.Random(5)
    for _ in range(30):
        sizes = [generator.randrange(1, 400) for _ in range(40)]
        chunks, error = frame_all(data, sizes=sizes)
        assert error is None
        assert plain(chunks) == whole


@pytest.mark.parametrize("journal", [mysql_journal, mariadb_journal])
def test_lengths_are_the_memory_and_offsets_the_journal(journal) -> None:
    data = bytes(journal().data[4:])
    (chunk,), _ = frame_all(data)
    events = chunk.events
    assert int(events["event_length"].sum()) == len(chunk.data)
    stops = events["start"] + events["event_length"]
    assert stops[:-1].tolist() == events["start"][1:].tolist()
    assert np.all(np.diff(events["offset"]) >= 0)
    assert np.all(np.diff(events["next_offset"]) >= 0)
    piece = EventSlice(chunk, 0, len(events))
    assert piece.event_bytes == len(chunk.data)
    assert piece.journal_bytes == len(data) == chunk.end_offset - 4
    cuts = [piece.part(row, row + 1) for row in range(len(events))]
    assert sum(part.journal_bytes for part in cuts) == len(data)


@pytest.mark.parametrize("journal", [mysql_journal, mariadb_journal])
def test_rewritten_events_are_whole_with_a_checksum_of_their_own(journal) -> None:
    (chunk,), _ = frame_all(bytes(journal().data[4:]))
    for event in chunk.events[chunk.events["parent"] < 0]:
        raw = chunk.data[event["start"] : event["start"] + event["event_length"]].tobytes()
        _, event_type, _, length, _, _ = struct.unpack_from("<IBIIIH", raw)
        assert (event_type, length) == (event["event_type"], event["event_length"])
        if event_type != 15:
            assert zlib.crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little")


def test_k1_ordinals_count_payloads_and_their_events() -> None:
    (chunk,), _ = frame_all(bytes(mysql_journal().data[4:]))
    TransactionPass().apply(chunk)
    events = chunk.events
    members = events[events["tx_offset"] >= 0]
    for offset in np.unique(members["tx_offset"]):
        own = members[members["tx_offset"] == offset]
        assert own["tx_ordinal"].tolist() == list(range(len(own)))
    ends = events[events["role"] == Role.TRANSACTIONEND]
    assert len(ends) == 3
    assert np.all(ends["parent"] >= 0)
    payloads = events[events["event_type"] == 40]
    assert ends["next_offset"].tolist() == payloads["next_offset"].tolist()


def test_a_log_without_gtid_events_begins_its_transaction_inside_the_payload() -> None:
    builder = begun()
    builder.event(40, payload(transaction()))
    (chunk,), _ = frame_all(bytes(builder.data[4:]))
    bounds = TransactionPass().apply(chunk)
    assert chunk.events["role"].tolist()[1:3] == [Role.OTHER, Role.TRANSACTIONBEGIN]
    assert bounds.boundaries.tolist() == [1, 2, 6 + 1]
    assert set(chunk.events["tx_offset"][2:].tolist()) == {int(chunk.events["offset"][1])}


@pytest.mark.parametrize("first_bytes", [0, 230])
def test_a_statement_inside_a_payload_is_isolated_with_its_gtid(first_bytes: int) -> None:
    """Servers do not write this today; a chunk border between the GTID event and the payload
    changes nothing."""
    builder = begun()
    builder.event(33, gtid_body(1))
    gtid_end = len(builder.data) - 4
    builder.event(40, payload(child(2, query_body("ALTER TABLE t ADD COLUMN c INT"))))
    chunks, error = frame_all(
        bytes(builder.data[4:]), sizes=[gtid_end + 30 if first_bytes else len(builder.data)]
    )
    assert error is None
    assert len(chunks) == (2 if first_bytes else 1)
    slices: list[EventSlice] = []
    buffer = TransactionBuffer(
        lambda parts: slices.extend(parts) or True,
        is_isolated=lambda query: "ALTER" in query.sql,
        source="mysql:1",
    )
    for chunk in chunks:
        buffer.feed(chunk)
    buffer.finish()
    statement = slices[-1]
    assert statement.kind is SliceKind.STATEMENT
    assert statement.events["event_type"].tolist() == [33, 40, 2]
    assert statement.events["parent"].tolist() == [-1, -1, statement.first + 1]
    assert parse_query(statement.chunk, statement.stop - 1).sql == "ALTER TABLE t ADD COLUMN c INT"


@pytest.mark.parametrize("size", [1, 3, 7])
def test_s8_s9_a_store_may_cut_inside_a_payload(size: int) -> None:
    (chunk,), _ = frame_all(bytes(mysql_journal().data[4:]))
    store = RingStore(64, batch_mode="itemsize")
    store.start()
    buffer = TransactionBuffer(store.put, is_isolated=lambda _query: False, source="mysql:1")
    buffer.feed(chunk)
    store.end_of_input()
    events = []
    acked: list[Position] = []
    while not store.is_drained:
        batch = store.get(size)
        for piece in batch.slices:
            events += piece.events["start"].tolist()
        assert batch.range is not None
        if batch.range.ack is not None:
            store.ack(batch.range.ack)
            assert batch.range.resume is not None
            acked.append(batch.range.resume)
    assert events == chunk.events["start"].tolist()
    ends = chunk.events["next_offset"][
        np.isin(chunk.events["role"], [Role.TRANSACTIONEND])
    ].tolist()
    assert {position.offset for position in acked} <= {*ends, chunk.end_offset}
    assert acked[-1].offset == chunk.end_offset
    assert all(
        position.gtid_set.endswith(f":{number + 1}")
        for number, position in enumerate(acked)
        if size == 1
    )


# -- damage ----------------------------------------------------------------------------------------

INSIDE = transaction()
DAMAGED = {
    "bad zstd": (40, payload(INSIDE, packed=b"\x28\xb5\x2f\xfd" + b"\xff" * 60)),
    "zstd cut": (40, payload(INSIDE, packed=ZSTD.compress(INSIDE, asbytes=True)[:-4])),
    "size too small": (40, payload(INSIDE, unpacked_bytes=len(INSIDE) - 1)),
    "size too large": (40, payload(INSIDE, unpacked_bytes=len(INSIDE) + 1)),
    "size that cannot be": (40, payload(INSIDE, unpacked_bytes=1 << 50)),
    "size above 2**63": (40, payload(INSIDE, unpacked_bytes=(1 << 64) - 1)),
    "size 0": (40, payload(b"")),
    "stored 0": (40, payload(b"", algorithm=255)),
    "stored with another size": (40, payload(INSIDE, algorithm=255, unpacked_bytes=7)),
    "unknown algorithm": (40, payload(INSIDE, algorithm=1)),
    "packed size": (40, payload(INSIDE, packed_bytes=12)),
    "no fields": (40, b""),
    "fields without end": (40, b"\2\1\0"),
    "field over the end": (40, b"\2\xfe"),
    "field value shorter than its size": (40, b"\2\2\0\0\0" + INSIDE),
    "child length 0": (40, payload(INSIDE + child(30, TABLE, length=0))),
    "child over the end": (40, payload(INSIDE + child(30, TABLE, length=100))),
    "half a header": (40, payload(INSIDE + bytes(10))),
    "rows without room": (40, payload(INSIDE + child(30, b"\1"))),
    "payload in payload": (40, payload(child(40, payload(INSIDE)))),
    "gtid in payload": (40, payload(child(33, gtid_body()))),
    "rotate in payload": (40, payload(child(4, bytes(8) + b"binlog.000002"))),
    "format description in payload": (40, payload(child(15, bytes(57)))),
    "heartbeat in payload": (40, payload(child(27, b"binlog.000001"))),
    "bad zlib": (166, rows_head(166) + record(b"rows", packed=b"\x78\x9c\xff\xff\xff")),
    "zlib cut": (166, rows_head(166) + record(b"rows" * 9, packed=zlib.compress(b"rows" * 9)[:-3])),
    "zlib size": (166, rows_head(166) + record(b"rows", size=5)),
    "zlib size that cannot be": (166, rows_head(166) + record(b"rows", size=1 << 31)),
    "zlib size 0": (166, rows_head(166) + record(b"rows", size=0, size_bytes=1)),
    "another algorithm": (166, rows_head(166) + record(b"rows", mark=0x90)),
    "no mark": (166, rows_head(166) + record(b"rows", mark=0)),
    "five length bytes": (166, rows_head(166) + record(b"rows", size_bytes=5)),
    "no length bytes": (166, rows_head(166) + b"\x80"),
    "no record": (167, rows_head(166)),
    "bitmaps cut": (166, TABLE + b"\xfe" + b"\xff" * 7 + b"\x7f"),
    "query without text": (165, query_body("", "shop")),
    "query head cut": (165, query_body("", "shop")[:9]),
    "query variables cut": (165, query_body("", "shop")[:11] + b"\xff\xff" + bytes(20)),
}


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_with_journal_and_offset_after_what_is_good(
    name: str, checksum: bool
) -> None:
    event_type, body = DAMAGED[name]
    builder = begun(checksum=checksum, mariadb=event_type > 100)
    if event_type == 40:
        builder.event(40, payload(INSIDE))
    good = slow_unpack(bytes(builder.data[4:]), checksum_bytes=4 if checksum else 0)
    offset = builder.offset
    builder.event(event_type, body)
    builder.event(3)
    for sizes in (None, [64] * 40):
        chunks, error = frame_all(bytes(builder.data[4:]), sizes=sizes)
        assert plain(chunks) == good
        assert isinstance(error, DamagedJournalError)
        assert (error.journal, error.offset) == (JOURNAL, offset)
        assert chunks[-1].end_offset == offset
        assert error.expected
        assert error.got
        assert error.next_step


def test_a_failing_event_leaves_its_bytes_to_the_feeder() -> None:
    """A dump that has passed its end by count must not hide the error: the framer stays before
    it."""
    builder = begun()
    builder.event(33, gtid_body())
    offset = builder.offset
    builder.event(40, DAMAGED["bad zstd"][1])
    data = np.frombuffer(bytes(builder.data[4:]), np.uint8)
    framer = EventFramer(JOURNAL)
    chunk, used = framer.feed(data)
    assert chunk is not None
    assert used == offset - 4 == framer.offset - 4
    with pytest.raises(DamagedJournalError):
        framer.feed(data[used:])
    alone = EventFramer(JOURNAL, offset=offset, journal_format=framer.journal_format)
    with pytest.raises(DamagedJournalError):
        alone.feed(data[used:])


def test_unknown_and_refused_types_inside_a_payload() -> None:
    builder = begun()
    offset = builder.offset
    builder.event(40, payload(child(99, b"x")))
    _, error = frame_all(bytes(builder.data[4:]))
    assert isinstance(error, UnknownEventError)
    assert error.offset == offset
    assert "99" in str(error.got)

    builder = begun()
    builder.event(40, payload(child(26, b"\1\0")))
    _, error = frame_all(bytes(builder.data[4:]))
    assert isinstance(error, UnsupportedEventError)
    assert error.offset == offset
    assert "INCIDENT" in error.what

    builder = begun()
    builder.event(40, payload(child(99, b"x", flags=0x80) + INSIDE))
    framer = EventFramer(JOURNAL)
    chunk, _ = framer.feed(np.frombuffer(bytes(builder.data[4:]), np.uint8))
    assert chunk is not None
    assert len(chunk.events) == 2 + 1 + 5
    assert framer.ignored_events == {99: 1}


@pytest.mark.parametrize("journal", [mysql_journal, mariadb_journal])
def test_mutated_journals_end_in_a_clear_error_or_in_whole_events(journal) -> None:
    """Without checksums nothing else stands between a flipped bit and the unpacking."""
    good = bytes(journal(checksum=False).data[4:])
    first = len(begun(checksum=False, mariadb=journal is mariadb_journal).data) - 4
    generator = random.Random(11)
    failed = 0
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(generator.choice((1, 1, 2, 5))):
            data[generator.randrange(first, len(data))] = generator.randrange(256)
        chunks, error = frame_all(bytes(data))
        for chunk in chunks:
            events = chunk.events
            assert int((events["start"] + events["event_length"]).max()) <= len(chunk.data)
            assert np.all(events["parent"] < np.arange(len(events)))
            assert np.all(np.diff(events["offset"]) >= 0)
        if error is not None:
            failed += 1
            assert error.journal == JOURNAL
            assert error.offset is not None
            assert error.offset >= 4
    assert failed > 200
