"""Packets off: any blocks of a stream give the same event bytes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.byte_buffer import ByteBuffer
from cdc_pipeline.binlog.packets import PacketDeframer, PacketEnd
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


def deframe(stream: bytes, cuts: Sequence[int]) -> tuple[bytes, PacketEnd | None]:
    deframer, out = PacketDeframer(), ByteBuffer(1000)
    bounds = [0, *sorted(cuts), len(stream)]
    end = None
    for first, stop in itertools.pairwise(bounds):
        end = deframer.feed(np.frombuffer(stream[first:stop], dtype=np.uint8), out)
    return out.filled.tobytes(), end


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20), st.lists(st.integers(0, 1000), max_size=30))
def test_any_split_gives_the_events_and_the_end(events: list[bytes], cuts: list[int]) -> None:
    stream = packets([*(b"\0" + event for event in events), EOF_PACKET])
    got = deframe(stream, [min(cut, len(stream)) for cut in cuts])
    assert got == (b"".join(events), PacketEnd())


def test_sequence_ids_wrap() -> None:
    events = [bytes([number & 255]) * 3 for number in range(600)]
    assert deframe(packets([b"\0" + event for event in events]), [100, 101]) == (b"".join(events), None)


@pytest.mark.parametrize("size", [FULL - 2, FULL - 1, FULL, 2 * FULL - 1, 2 * FULL + 5])
def test_events_of_several_packets(size: int) -> None:
    event = random.Random(size).randbytes(size)
    stream = packets([b"\0" + event, b"\0after", EOF_PACKET])
    got, end = deframe(stream, range(1 << 20, len(stream), 1 << 20))
    assert got == event + b"after"
    assert end == PacketEnd()


def test_error_packets_come_after_the_events_before_them() -> None:
    stream = packets([b"\0abc", b"\xff\xd4\x04#HY000Could not find log"])
    for cut in range(len(stream)):
        assert deframe(stream, [cut]) == (b"abc", PacketEnd(1236, "HY000", "Could not find log"))


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
    buffer = ByteBuffer(64)
    model, kept = bytearray(), []
    numbers = random.Random(1)
    for _ in range(500):
        piece = numbers.randbytes(numbers.randint(0, 50))
        buffer.append(piece)
        model += piece
        view = buffer.filled
        assert view.tobytes() == model
        kept.append((view, bytes(model)))
        count = numbers.randint(0, len(model)) if numbers.random() < 0.5 else 0
        buffer.consume(count)
        del model[:count]
        assert len(buffer) == len(model)
    assert all(view.tobytes() == expected for view, expected in kept)
