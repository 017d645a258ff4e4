"""Packets in place: any blocks of a stream give the same events, each behind its prefix, and
verified."""

from __future__ import annotations

import itertools
import random
import socket
import threading
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.framing.framing_kernel import CHECKED, PREFIX_BYTES
from cdc_pipeline.binlog.framing.packets import PacketBuffer, PacketEnd
from cdc_pipeline.binlog.framing.receiving import Received
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.binlog.native.byte_buffer import ByteBuffer
from cdc_pipeline.errors import BinlogError

FULL = 0xFFFFFF
EOF_PACKET = b"\xfe\0\0\0\0"


def packets(payloads: Sequence[bytes], *, sequence: int = 1) -> bytes:
    out = bytearray()
    for payload in payloads:
        at = 0
        while True:
            part = payload[at : at + FULL]
            out += len(part).to_bytes(3, "little") + bytes([sequence & 255]) + part
            sequence += 1
            at += len(part)
            if len(part) < FULL:
                break
    return bytes(out)


def buffer(room_bytes: int = 1000, block_bytes: int = 4000) -> PacketBuffer:
    return PacketBuffer(BlockPool(block_bytes, spare_blocks_max=2), room_bytes=room_bytes)


def prefixed(events: Sequence[bytes]) -> bytes:
    """What the buffer makes of them; the slow twin of the kernel."""
    out = b""
    for event in events:
        is_checked = len(event) >= 4 and zlib.crc32(event[:-4]).to_bytes(4, "little") == event[-4:]
        out += (len(event) + 1).to_bytes(4, "little") + bytes([is_checked]) + event
    return out


def sealed(event: bytes) -> bytes:
    return event + zlib.crc32(event).to_bytes(4, "little")


def deframe(
    stream: bytes, cuts: Sequence[int], packets: PacketBuffer | None = None
) -> tuple[bytes, PacketEnd | None]:
    """Fed in these pieces and smaller ones, consumed at every other; all views are kept and read at
    the end."""
    packets = packets or buffer()
    bounds = [0, *sorted(cuts), len(stream)]
    end: PacketEnd | None = None
    views = []
    for number, (first, stop) in enumerate(itertools.pairwise(bounds)):
        while first < stop:
            room = packets.room()[: stop - first]
            room[:] = np.frombuffer(stream[first : first + len(room)], dtype=np.uint8)
            first += len(room)
            end = packets.commit(len(room))
        if number % 2:
            views.append(packets.events)
            packets.consume(len(views[-1]))
    views.append(packets.events)
    return b"".join(view.tobytes() for view in views), end


@settings(max_examples=100)
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=20),
    st.lists(st.integers(0, 1000), max_size=30),
    st.sampled_from([(1000, 4000), (7, 20), (1, 3), (64, 64)]),
)
def test_any_split_gives_the_events_and_the_end(
    events: list[bytes], cuts: list[int], numbers: tuple[int, int]
) -> None:
    events = [sealed(event) if len(event) % 2 else event for event in events]
    stream = packets([*(b"\0" + event for event in events), EOF_PACKET])
    got = deframe(stream, [min(cut, len(stream)) for cut in cuts], buffer(*numbers))
    assert got == (prefixed(events), PacketEnd())


def test_sequence_ids_wrap() -> None:
    events = [bytes([number & 255]) * 3 for number in range(600)]
    assert deframe(packets([b"\0" + event for event in events]), [100, 101]) == (
        prefixed(events),
        None,
    )


@pytest.mark.parametrize("size", [FULL - 2, FULL - 1, FULL, 2 * FULL - 1, 2 * FULL + 5])
def test_events_of_several_packets(size: int) -> None:
    event = sealed(random.Random(size).randbytes(size - 4))
    stream = packets([b"\0" + event, b"\0after", EOF_PACKET])
    got, end = deframe(stream, [], buffer(1 << 20, 8 << 20))
    assert got == prefixed([event, b"after"])
    assert got[PREFIX_BYTES - 1] == CHECKED
    assert end == PacketEnd()


@pytest.mark.parametrize("cut", range(-7, 8))
def test_a_header_inside_an_event_may_come_in_pieces(cut: int) -> None:
    event = bytes(FULL + 100)
    stream = packets([b"\0" + event, EOF_PACKET])
    got, end = deframe(stream, [4 + FULL + cut], buffer(8 << 20, 20 << 20))
    assert got == prefixed([event])
    assert end == PacketEnd()


def test_error_packets_come_after_the_events_before_them() -> None:
    stream = packets([b"\0abc", b"\xff\xd4\x04#HY000Could not find log"])
    for cut in range(len(stream)):
        assert deframe(stream, [cut]) == (
            prefixed([b"abc"]),
            PacketEnd(1236, "Could not find log"),
        )


def test_lost_bytes_and_unknown_packets_stop() -> None:
    with pytest.raises(BinlogError, match="out of order"):
        deframe(packets([b"\0abc"]) + packets([b"\0abc"], sequence=3), [])
    with pytest.raises(BinlogError, match="neither event"):
        deframe(packets([b"\x07abc"]), [])
    with pytest.raises(BinlogError, match="neither event"):
        deframe(packets([b""]), [])
    with pytest.raises(BinlogError, match="neither event"):
        deframe(packets([b"\xfe" + bytes(20)]), [])


def test_the_buffer_never_moves_bytes_that_were_handed_out() -> None:
    bytes_ = ByteBuffer(64)
    model, kept = bytearray(), []
    numbers = random.Random(1)
    for _ in range(500):
        piece = numbers.randbytes(numbers.randint(0, 50))
        bytes_.append(piece)
        model += piece
        view = bytes_.filled
        assert view.tobytes() == model
        kept.append((view, bytes(model)))
        count = numbers.randint(0, len(model)) if numbers.random() < 0.5 else 0
        bytes_.consume(count)
        del model[:count]
        assert len(bytes_) == len(model)
    assert all(view.tobytes() == expected for view, expected in kept)


def test_what_is_good_before_an_error_can_be_had() -> None:
    packets_ = buffer()
    stream = packets([b"\0abc"]) + packets([b"\0def"], sequence=7)
    packets_.room()[: len(stream)] = np.frombuffer(stream, np.uint8)
    with pytest.raises(BinlogError, match="out of order"):
        packets_.commit(len(stream))
    assert packets_.events.tobytes() == prefixed([b"abc"])


@pytest.mark.parametrize("goal_bytes", [1, 5000, 1 << 30])
def test_a_socket_gives_the_same(goal_bytes: int) -> None:
    numbers = random.Random(3)
    events = [sealed(numbers.randbytes(numbers.randrange(20, 3000))) for _ in range(400)]
    stream = packets([*(b"\0" + event for event in events), EOF_PACKET])
    server, client = socket.socketpair()
    with server, client:
        client.settimeout(10)
        sender = threading.Thread(target=server.sendall, args=(stream,))
        sender.start()
        packets_, got, end = buffer(1 << 14, 1 << 16), b"", None
        while end is None:
            end, received = packets_.receive(client.fileno(), goal_bytes, timeout_s=10)
            assert received is Received.ENOUGH
            got += packets_.events.tobytes()
            packets_.consume(packets_.event_bytes)
        sender.join()
    assert got == prefixed(events)
    assert end == PacketEnd()


def test_an_end_that_comes_in_pieces_is_waited_for() -> None:
    stream = packets([b"\0abc", b"\xff\xd4\x04#HY000Could not find log"])
    server, client = socket.socketpair()
    with server, client:
        client.settimeout(10)
        server.sendall(stream[:-3])
        packets_ = buffer()
        assert packets_.receive(client.fileno(), 100, timeout_s=0.01) == (None, Received.TIMEOUT)
        server.sendall(stream[-3:])
        end, received = packets_.receive(client.fileno(), 100, timeout_s=10)
    assert (end, received) == (PacketEnd(1236, "Could not find log"), Received.ENOUGH)
    assert packets_.events.tobytes() == prefixed([b"abc"])


def test_a_silent_closed_or_broken_socket_is_told() -> None:
    server, client = socket.socketpair()
    client.settimeout(10)
    packets_ = buffer()
    assert packets_.receive(client.fileno(), 100, timeout_s=0.01) == (None, Received.TIMEOUT)
    server.sendall(packets([b"\0abc"])[:6])
    assert packets_.receive(client.fileno(), 100, timeout_s=0.01) == (None, Received.TIMEOUT)
    server.close()
    assert packets_.receive(client.fileno(), 100, timeout_s=10) == (None, Received.CLOSED)
    descriptor = client.fileno()
    client.close()
    assert packets_.receive(descriptor, 100, timeout_s=10) == (None, Received.FAILED)
