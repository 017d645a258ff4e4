"""MySQL packets in place: frame the events of a dump without moving them.

Rules:
- A packet is 3 bytes length, 1 byte sequence id, payload. A payload of 0xffffff bytes continues in
  the next packet. The first byte of a logical packet is its kind: 0x00 an event, 0xfe with fewer
  than 9 bytes the end, 0xff an error.
- Bytes stay where they are received, with the packets' headers between them. The header and the
  0x00 before an event become its prefix (`framing_kernel.PREFIX_BYTES`). Only the headers inside an
  event of several packets are removed as they come: the bytes just received after one move down by
  four.
- The CRC32 of an event is computed as soon as it is complete, while its bytes are in the
  processor's cache. The result is stored in the prefix for framing, which runs chunk by chunk.
- Bytes returned by `events` are never moved or written again, so chunks may keep views of them.
  When a block is full, only bytes that were not consumed are copied to the next.
- A logical packet above the limit ends the stream as soon as a header announces it, before memory
  is allocated (K25: no input may exhaust memory).
- A sequence id out of order ends the stream, because bytes were lost. Events before that or before
  an end are delivered first.

Source: MySQL client/server protocol, "MySQL Packets", "EOF_Packet", "ERR_Packet".
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.framing import packets_kernel as kernel
from cdc_pipeline.binlog.framing import receiving
from cdc_pipeline.binlog.framing.ahead import FramedAhead, nothing_ahead
from cdc_pipeline.binlog.framing.framing_kernel import EVENT_BYTES_MAX
from cdc_pipeline.binlog.framing.receiving import Received
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.binlog.native.compiling import Integer
from cdc_pipeline.errors import BinlogError, SizeLimitError


@dataclass(frozen=True, slots=True)
class PacketEnd:
    """Why the server stopped sending: `code` 0 for the end of a non-blocking dump, else its error.

    Attributes:
        code: MySQL error number; 0 for an EOF packet.
        message: the server's message.
    """

    code: int = 0
    message: str = ""


class PacketBuffer:
    """The packets of one stream, in the memory that receives them.

    Args:
        pool: allocates that memory.
        room_bytes: a block is full when it has less room than this.
        packet_bytes_max: largest logical packet that is accepted; an event is one byte shorter.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        room_bytes: int,
        packet_bytes_max: int = EVENT_BYTES_MAX + 1,
    ) -> None:
        self._pool = pool
        self._room_bytes = room_bytes
        self._data = pool.take()
        self._first = 0  # where the unconsumed bytes begin
        self._state = np.zeros(kernel.STATE_FIELDS, dtype=np.int64)
        self._state[kernel.SEQUENCE] = 1  # after a command
        self._state[kernel.HAS_CHECKSUMS] = 1
        self._state[kernel.LIMIT] = packet_bytes_max
        self._waiting = np.zeros(2, dtype=np.int32)
        self._now = np.zeros(2, dtype=np.int64)
        self._nothing_ahead = nothing_ahead()
        self.end: PacketEnd | None = None

    @property
    def events(self) -> NDArray[np.uint8]:
        """A view of the complete events that were not consumed, each after its PREFIX_BYTES."""
        return self._data[self._first : self._state[kernel.WHOLE]]

    @property
    def event_bytes(self) -> int:
        return int(self._state[kernel.WHOLE]) - self._first

    @property
    def partial_bytes(self) -> int:
        return int(self._state[kernel.STOP] - self._state[kernel.WHOLE])

    def expect_checksums(self, expected: bool) -> None:
        """Set whether to compute checksums here; otherwise framing does."""
        self._state[kernel.HAS_CHECKSUMS] = int(expected)

    @property
    def is_full(self) -> bool:
        """Whether the next room is in another block, so that events should be consumed first."""
        return bool(len(self._data) - self._state[kernel.STOP] < self._room_bytes)

    def room(self) -> NDArray[np.uint8]:
        """A writable view after the received bytes; `commit` takes the number of bytes written."""
        if self.is_full:
            kept = self._data[self._first : self._state[kernel.STOP]]
            # For an event larger than a block, double its size so far, so that it is copied only a
            # few times.
            block = self._pool.take(2 * len(kept) + self._room_bytes)
            block[: len(kept)] = kept
            self._state[: kernel.NEXT + 1] -= self._first
            self._data, self._first = block, 0
        first = int(self._state[kernel.STOP])
        return self._data[first : first + self._room_bytes]

    def commit(self, count: int) -> PacketEnd | None:
        """Count the first `count` bytes of the last `room` as received. Returns how the stream
        ended, if it did (bytes after the end are ignored); else None. Raises BinlogError: a
        sequence id is out of order, or a packet is neither event, end nor error. `events` are
        those before it; SizeLimitError: a packet is larger than the limit. `events` are those
        before it.
        """
        if self.end is not None:
            return self.end
        self._state[kernel.STOP] += count
        return self._judge(kernel.walk_packets(self._data, self._state))

    def receive(
        self,
        descriptor: int,
        goal_bytes: int,
        *,
        timeout_s: float,
        ahead: FramedAhead | None = None,
    ) -> tuple[PacketEnd | None, Received]:
        """Read a non-blocking socket until `events` have `goal_bytes`, the block is full, or
        `timeout_s` has passed, with or without new bytes. `ahead`: where to frame events as they
        come; enough of them also end it. Returns (as `commit`, why it returned). After
        Received.FAILED, read through the socket object, which raises the error. Raises
        BinlogError: as `commit`.
        """
        self.room()
        ahead = ahead or self._nothing_ahead
        goal, timeout_ms = self._first + goal_bytes, int(timeout_s * 1000)
        late_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        status, received = receiving.receive(
            descriptor,
            self._data,
            goal,
            self._room_bytes,
            timeout_ms,
            late_ns,
            self._waiting,
            self._now,
            self._state,
            self._first,
            ahead.events,
            ahead.state,
        )
        return self._judge(status), Received(received)

    def _judge(self, status: int) -> PacketEnd | None:
        if status == kernel.NEED_MORE:
            return None
        if status == kernel.BAD_SEQUENCE:
            raise out_of_order(self._state[kernel.SEQUENCE], self._state[kernel.GOT])
        if status == kernel.TOO_LARGE:
            raise packet_too_large(
                "an event", int(self._state[kernel.LIMIT]), int(self._state[kernel.GOT])
            )
        if status == kernel.EMPTY:
            raise _not_understood(b"")
        first = int(self._state[kernel.WHOLE]) + kernel.HEADER_BYTES
        length = int.from_bytes(
            self._data[first - kernel.HEADER_BYTES : first - 1].tobytes(), "little"
        )
        self.end = parse_end(self._data[first : first + length].tobytes())
        return self.end

    def consume(self, count: int) -> None:
        """Drop the first `count` bytes of `events`; existing views stay valid."""
        self._first += count


def out_of_order(expected: Integer, got: Integer, *, table: str | None = None) -> BinlogError:
    """By the sequence ids of packets."""
    return BinlogError(
        "a packet from the server is out of order: bytes were lost",
        table=table,
        expected=f"sequence id {int(expected)}",
        got=int(got),
        next_step="run again: reading continues after what was kept",
    )


def packet_too_large(
    what: str, limit_bytes: int, got_bytes: int, *, table: str | None = None
) -> SizeLimitError:
    """The error for a logical packet that exceeds `source.packet_bytes_max`."""
    return SizeLimitError(
        f"{what} is larger than this pipeline accepts from a server",
        table=table,
        setting="source.packet_bytes_max",
        expected=f"at most {limit_bytes} bytes",
        got=f"{got_bytes} bytes or more",
        next_step="no server sends more than its max_allowed_packet (at most 1 GiB) plus "
        "headers: check that the address leads to your server; if the setting is "
        "lower than that, raise it and run again",
    )


def parse_end(payload: bytes) -> PacketEnd:
    """Parse a logical packet that ends a stream. Raises BinlogError: it is neither an end nor an
    error.
    """
    if payload[:1] == b"\xfe" and len(payload) < 9:
        return PacketEnd()
    if payload[:1] == b"\xff" and len(payload) >= 3:
        text = payload[9:] if payload[3:4] == b"#" else payload[3:]  # behind the SQLSTATE
        return PacketEnd(int.from_bytes(payload[1:3], "little"), text.decode("utf-8", "replace"))
    raise _not_understood(payload)


def _not_understood(payload: bytes) -> BinlogError:
    return BinlogError(
        "a packet from the server is neither event, end nor error",
        expected="first byte 0x00, 0xfe or 0xff",
        got=f"{payload[:1].hex() or 'nothing'}, {len(payload)} bytes",
        next_step="run again: reading continues at the last acked position",
    )
