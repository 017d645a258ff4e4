"""What a server or a journal claims is bounded before memory is taken for it (K25, F18)."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.framing.packets import PacketBuffer
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.binlog.tables import table_map_metadata
from cdc_pipeline.binlog.tables.table_map_metadata import ColumnCounts
from cdc_pipeline.errors import SizeLimitError
from tests.binlog.framing.test_packets import FULL, packets, prefixed, sealed
from tests.binlog.framing.test_unpacking import gtid_body, rows_head, transaction
from tests.support.journal_builder import JournalBuilder
from tests.support.packing import payload, record

LIMIT = 5_000
ROOM = 1_000


def buffer(limit: int) -> PacketBuffer:
    return PacketBuffer(
        BlockPool(4_000, spare_blocks_max=2), room_bytes=ROOM, packet_bytes_max=limit
    )


def feed(buffer: PacketBuffer, stream: bytes) -> None:
    for at in range(0, len(stream), ROOM):
        piece = np.frombuffer(stream[at : at + ROOM], np.uint8)
        buffer.room()[: len(piece)] = piece
        buffer.commit(len(piece))


def test_k25_f18_an_event_larger_than_the_limit_stops_at_its_header_after_what_came_before() -> (
    None
):
    good = sealed(b"a good event")
    stream = packets([b"\0" + good, b"\0" + bytes(LIMIT)])
    header_ends = len(packets([b"\0" + good])) + 5
    packets_ = buffer(LIMIT)
    with pytest.raises(SizeLimitError) as caught:
        feed(packets_, stream[:header_ends])
    assert packets_.events.tobytes() == prefixed([good])
    assert caught.value.setting == "source.packet_bytes_max"
    assert caught.value.got == f"{LIMIT + 1} bytes or more"
    assert caught.value.next_step
    with pytest.raises(SizeLimitError):
        packets_.commit(0)

    whole = buffer(LIMIT + 1)
    feed(whole, stream)
    assert whole.events.tobytes() == prefixed([good, bytes(LIMIT)])


def test_k25_f18_an_event_of_many_packets_stops_where_they_exceed_the_limit() -> None:
    """Each of them says only how long it is itself: the endless one is never whole."""
    limit = FULL + 10
    first = packets([b"\0" + bytes(FULL - 1 + 10)])
    exact = PacketBuffer(
        BlockPool(1 << 20, spare_blocks_max=2), room_bytes=1 << 20, packet_bytes_max=limit
    )
    longer = PacketBuffer(
        BlockPool(1 << 20, spare_blocks_max=2), room_bytes=1 << 20, packet_bytes_max=limit
    )
    endless = first[: 4 + FULL] + b"\xff\xff\xff\x02"

    def give(packets_: PacketBuffer, stream: bytes) -> None:
        for at in range(0, len(stream), 1 << 20):
            piece = np.frombuffer(stream[at : at + (1 << 20)], np.uint8)
            packets_.room()[: len(piece)] = piece
            packets_.commit(len(piece))

    give(exact, first)
    assert exact.event_bytes == FULL + 10 + 4
    with pytest.raises(SizeLimitError) as caught:
        give(longer, endless)
    assert caught.value.got == f"{2 * FULL} bytes or more"
    assert len(longer._data) < 3 * FULL, "no memory was taken for what the second packet announces"


def test_k25_f18_a_socket_is_bounded_likewise() -> None:
    server, client = socket.socketpair()
    with server, client:
        client.settimeout(10)
        server.sendall(packets([b"\0" + bytes(LIMIT)])[:100])
        with pytest.raises(SizeLimitError):
            buffer(LIMIT).receive(client.fileno(), 1, timeout_s=10)


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_k25_f18_a_compressed_event_may_not_claim_to_unpack_to_more_than_the_limit(
    flavor: str,
) -> None:
    """A bomb: its packed bytes could hold what it claims, so that its size alone tells nothing."""
    builder = JournalBuilder()
    if flavor == "mysql":
        builder.format_description()
        builder.event(33, gtid_body(1))
        inside = transaction() + bytes(1 << 20)
        offset = builder.offset
        builder.event(40, payload(inside))
        size = len(inside)
    else:
        builder.format_description(server_version="10.11.19-MariaDB-log", types=171)
        builder.event(162, bytes(19))
        offset = builder.offset
        builder.event(166, rows_head(166) + record(bytes(1 << 20)), flags=1)
        size = 1 << 20
    data = np.frombuffer(bytes(builder.data[4:]), np.uint8)
    framer = EventFramer("binlog.000001", unpacked_bytes_max=size - 1)
    chunk, used = framer.feed(data)
    assert chunk is not None
    assert chunk.end_offset == offset, "what is before it is delivered"
    with pytest.raises(SizeLimitError) as caught:
        framer.feed(data[used:])
    assert (caught.value.journal, caught.value.offset) == ("binlog.000001", offset)
    assert caught.value.setting == "source.unpacked_bytes_max"
    assert caught.value.got == f"{size} bytes"
    if flavor == "mariadb":
        chunk, used = EventFramer("binlog.000001", unpacked_bytes_max=size).feed(data)
        assert chunk is not None
        assert used == len(data)


COUNTS = ColumnCounts(all=2, numeric=0, text=0, labelled=1)


def field(kind: int, value: bytes) -> bytes:
    return bytes([kind, 0xFD]) + len(value).to_bytes(3, "little") + value


@pytest.mark.parametrize(
    "block",
    [
        field(table_map_metadata.ENUM_LABELS, bytes(1 << 16)),
        field(table_map_metadata.SET_LABELS, bytes(2)),
        field(table_map_metadata.ENUM_LABELS, b"\xfd\x00\x00\x01" + bytes(1 << 16)),
        field(table_map_metadata.SIMPLE_PRIMARY_KEY, bytes(1 << 16)),
        field(table_map_metadata.PRIMARY_KEY_WITH_PREFIX, bytes(6)),
        field(table_map_metadata.VECTOR_DIMENSIONALITY, bytes(1 << 16)),
    ],
    ids=[
        "columns of labels",
        "two sets of one column",
        "labels of a column",
        "keys",
        "prefixes",
        "vectors",
    ],
)
def test_k25_a_table_map_with_counts_that_no_table_has_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match=r"labels of column|more than"):
        table_map_metadata.parse(block, COUNTS)
