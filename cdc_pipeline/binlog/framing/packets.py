"""MySQL packets in place: where a server sends after a dump command, events are framed without moving them.

Rules:
- A packet is 3 bytes length, 1 byte sequence id, payload. A payload of 0xffffff bytes goes on in the next packet. The
  first byte of a logical packet says what it is: 0x00 an event, 0xfe with fewer than 9 bytes the end, 0xff an error.
- Bytes are received where they stay, with their packets' headers between them. Before an event the header and the 0x00
  become its prefix (`framing_kernel.PREFIX_BYTES`). Only the headers inside an event of several packets are taken out,
  as they come: what was just received behind one moves down by four bytes.
- The CRC32 of an event is computed as soon as it is whole, while its bytes are in the processor's cache; what it says
  is left in the prefix. Framing, a chunk at a time, decides what that means.
- Bytes that were handed out (`events`) are never moved or written again, so chunks may keep views of them. Where a
  block's room ends, only what was not consumed is copied to the next.
- A logical packet that is larger than the limit ends the stream as soon as a header says so, before memory is taken for
  what it announces (K25).
- A sequence id out of order ends the stream: bytes were lost. Events before that, and before an end, come first.

Source: MySQL client/server protocol, "MySQL Packets", "EOF_Packet", "ERR_Packet".
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.framing import packets_kernel as kernel
from cdc_pipeline.binlog.framing import receiving
from cdc_pipeline.binlog.framing.framing_kernel import EVENT_BYTES_MAX
from cdc_pipeline.binlog.framing.receiving import Received
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.errors import BinlogError, SizeLimitError


@dataclass(frozen=True, slots=True)
class PacketEnd:
    """Why the server stopped sending: `code` 0 for the end of a non-blocking dump, else its error.

    Attributes:
        code: MySQL error number; 0 for an EOF packet.
        sqlstate: five characters; "" for an EOF packet.
        message: the server's text.
    """

    code: int = 0
    sqlstate: str = ""
    message: str = ""


class PacketBuffer:
    """The packets of one stream, in the memory that they are received into.

    Args:
        pool: gives that memory.
        room_bytes: a block is full when it has less room than this.
        next_sequence: sequence id of the first packet; 1 after a command.
        packet_bytes_max: largest logical packet that is taken; an event is a byte shorter.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        room_bytes: int,
        next_sequence: int = 1,
        packet_bytes_max: int = EVENT_BYTES_MAX + 1,
    ) -> None:
        self._pool = pool
        self._room_bytes = room_bytes
        self._data = pool.take()
        self._first = 0  # where what was not consumed begins
        self._state = np.zeros(kernel.STATE_FIELDS, dtype=np.int64)
        self._state[kernel.SEQUENCE] = next_sequence
        self._state[kernel.HAS_CHECKSUMS] = 1
        self._state[kernel.LIMIT] = packet_bytes_max
        self._waiting = np.zeros(2, dtype=np.int32)
        self._now = np.zeros(2, dtype=np.int64)
        self.end: PacketEnd | None = None

    @property
    def events(self) -> NDArray[np.uint8]:
        """View of the whole events that were not consumed, each behind its PREFIX_BYTES."""
        return self._data[self._first : self._state[kernel.WHOLE]]

    @property
    def event_bytes(self) -> int:
        """Length of `events`."""
        return int(self._state[kernel.WHOLE]) - self._first

    @property
    def partial_bytes(self) -> int:
        """Received bytes of an event that is not whole yet."""
        return int(self._state[kernel.STOP] - self._state[kernel.WHOLE])

    def expect_checksums(self, expected: bool) -> None:
        """Whether computing checksums is worth it; where they are not computed here, framing does."""
        self._state[kernel.HAS_CHECKSUMS] = int(expected)

    @property
    def is_full(self) -> bool:
        """True where the next room is in another block, so that what can be consumed should be."""
        return bool(len(self._data) - self._state[kernel.STOP] < self._room_bytes)

    def room(self) -> NDArray[np.uint8]:
        """Writable view behind the received bytes; `commit` says how many of them were written."""
        if self.is_full:
            kept = self._data[self._first : self._state[kernel.STOP]]
            # An event larger than a block: twice what there is of it, so that it is copied few times.
            block = self._pool.take(2 * len(kept) + self._room_bytes)
            block[: len(kept)] = kept
            self._state[: kernel.NEXT + 1] -= self._first
            self._data, self._first = block, 0
        first = int(self._state[kernel.STOP])
        return self._data[first : first + self._room_bytes]

    def commit(self, count: int) -> PacketEnd | None:
        """Count the first `count` bytes of the last `room` as received.

        Returns:
            How the stream ended, once it did (bytes after the end are not looked at); else None.

        Raises:
            BinlogError: a sequence id out of order, or a packet that is neither event, end nor error. `events` are
                those before it.
            SizeLimitError: a packet larger than the limit; likewise.
        """
        if self.end is not None:
            return self.end
        self._state[kernel.STOP] += count
        return self._judge(kernel.walk_packets(self._data, self._state))

    def receive(self, descriptor: int, goal_bytes: int, *, timeout_s: float) -> tuple[PacketEnd | None, Received]:
        """Read a socket that does not block until `events` have `goal_bytes`, the block is full, nothing came for
        `timeout_s`, or so much time has passed and bytes still come.

        Returns:
            (as `commit`, why it returned). After Received.FAILED read by the socket's own means, which tell the error.

        Raises:
            BinlogError: as `commit`.
        """
        self.room()
        goal, timeout_ms = self._first + goal_bytes, int(timeout_s * 1000)
        late_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        status, received = receiving.receive(
            descriptor, self._data, goal, self._room_bytes, timeout_ms, late_ns, self._waiting, self._now, self._state
        )
        return self._judge(status), Received(received)

    def _judge(self, status: int) -> PacketEnd | None:
        if status == kernel.NEED_MORE:
            return None
        if status == kernel.BAD_SEQUENCE:
            raise BinlogError(
                "a packet of the server is out of order: bytes were lost",
                expected=f"sequence id {int(self._state[kernel.SEQUENCE])}",
                got=int(self._state[kernel.GOT]),
                next_step="start the run again; it goes on at the last acked position",
            )
        if status == kernel.TOO_LARGE:
            raise packet_too_large("an event", int(self._state[kernel.LIMIT]), int(self._state[kernel.GOT]))
        if status == kernel.EMPTY:
            raise _not_understood(b"")
        first = int(self._state[kernel.WHOLE]) + kernel.HEADER_BYTES
        length = int.from_bytes(self._data[first - kernel.HEADER_BYTES : first - 1].tobytes(), "little")
        if self._state[kernel.STOP] >= first + length:
            self.end = parse_end(self._data[first : first + length].tobytes())
        return self.end

    def consume(self, count: int) -> None:
        """Give up the first `count` bytes of `events`; whoever holds a view of them keeps them."""
        self._first += count


def packet_too_large(what: str, limit_bytes: int, got_bytes: int, *, table: str | None = None) -> SizeLimitError:
    """Return the error for a logical packet that exceeds `source.packet_bytes_max`."""
    return SizeLimitError(
        f"{what} is larger than what this pipeline takes from a server",
        table=table,
        setting="source.packet_bytes_max",
        expected=f"at most {limit_bytes} bytes",
        got=f"{got_bytes} bytes or more",
        next_step="no server sends more than its max_allowed_packet, 1 GiB at most, and its headers: check that the "
        "address leads to your server; if the setting is lower than that, raise it and run again",
    )


def parse_end(payload: bytes) -> PacketEnd:
    """What a logical packet says that ends a stream.

    Raises:
        BinlogError: it is neither an end nor an error.
    """
    if payload[0] == 0xFE and len(payload) < 9:
        return PacketEnd()
    if payload[0] == 0xFF and len(payload) >= 3:
        text = payload[3:]
        sqlstate = ""
        if text[:1] == b"#":
            sqlstate, text = text[1:6].decode("ascii", "replace"), text[6:]
        return PacketEnd(int.from_bytes(payload[1:3], "little"), sqlstate, text.decode("utf-8", "replace"))
    raise _not_understood(payload)


def _not_understood(payload: bytes) -> BinlogError:
    return BinlogError(
        "a packet of the server is neither event, end nor error",
        expected="first byte 0x00, 0xfe or 0xff",
        got=f"{payload[:1].hex() or 'nothing'}, {len(payload)} bytes",
        next_step="start the run again; it goes on at the last acked position",
    )
