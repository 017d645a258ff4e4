"""MySQL packets off: what a server sends after a dump command becomes contiguous event bytes.

Rules:
- A packet is 3 bytes length, 1 byte sequence id, payload. A payload of 0xffffff bytes goes on in the next packet. The
  first byte of a logical packet says what it is: 0x00 an event, 0xfe with fewer than 9 bytes the end, 0xff an error.
- Bytes are moved once, as they arrive: an event of a gigabyte is never gathered here, only the state between two
  blocks is kept (partial header, bytes left in the packet).
- A sequence id out of order ends the stream: bytes were lost.

Source: MySQL client/server protocol, "MySQL Packets", "EOF_Packet", "ERR_Packet".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.byte_buffer import ByteBuffer
from cdc_pipeline.binlog.kernels.compiling import njit
from cdc_pipeline.binlog.kernels.memory import copy_block
from cdc_pipeline.errors import BinlogError

_DONE: Final = 0
_SPECIAL: Final = 1  # a logical packet that is no event: Python reads it
_BAD_SEQUENCE: Final = 2
_EMPTY: Final = 3  # a logical packet without any byte

# Fields of the state array.
_LEFT: Final = 0  # payload bytes of the current packet that have not come yet
_HEADER: Final = 1  # bytes of the next header that have come
_LENGTH: Final = 2  # its length, as far as it has come
_SEQUENCE: Final = 3  # expected sequence id
_STATUS_DUE: Final = 4  # 1 where the next payload byte begins a logical packet
_CONTINUES: Final = 5  # 1 where the current packet is one of 0xffffff bytes
_GOT: Final = 6  # sequence id that came instead
_STATE_FIELDS: Final = 7


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


@njit(cache=True, nogil=True)
def deframe(data: NDArray[np.uint8], out: NDArray[np.uint8], state: NDArray[np.int64]) -> tuple[int, int, int]:
    """Copy event bytes from `data` to `out`.

    Args:
        data: uint8 (n,), the next bytes of the stream.
        out: uint8, at least n bytes of room.
        state: int64 (7,), kept from call to call.

    Returns:
        (status, bytes of `data` used, bytes of `out` written). At a packet that is no event it stops before its first
        payload byte.
    """
    at = 0
    written = 0
    size = len(data)
    while at < size:
        if state[_LEFT] == 0 and state[_HEADER] < 4:
            index = state[_HEADER]
            byte = np.int64(data[at])
            at += 1
            if index < 3:
                state[_LENGTH] |= byte << (8 * index)
                state[_HEADER] = index + 1
                continue
            if byte != state[_SEQUENCE]:
                state[_GOT] = byte
                return _BAD_SEQUENCE, at, written
            state[_SEQUENCE] = (byte + 1) & 0xFF
            length = state[_LENGTH]
            if state[_CONTINUES] == 0:
                if length == 0:
                    return _EMPTY, at, written
                state[_STATUS_DUE] = 1
            state[_CONTINUES] = 1 if length == 0xFFFFFF else 0
            state[_LEFT] = length
            state[_LENGTH] = 0
            state[_HEADER] = 0
            continue
        if state[_STATUS_DUE] == 1:
            if data[at] != 0:
                return _SPECIAL, at, written
            state[_STATUS_DUE] = 0
            state[_LEFT] -= 1
            at += 1
            continue
        count = min(state[_LEFT], size - at)
        copy_block(data, at, count, out, written)
        state[_LEFT] -= count
        at += count
        written += count
    return _DONE, at, written


class PacketDeframer:
    """Deframes one stream of packets, block by block.

    Args:
        next_sequence: sequence id of the first packet; 1 after a command.
    """

    def __init__(self, *, next_sequence: int = 1) -> None:
        self._state = np.zeros(_STATE_FIELDS, dtype=np.int64)
        self._state[_SEQUENCE] = next_sequence
        self._special = bytearray()
        self.end: PacketEnd | None = None

    def feed(self, data: NDArray[np.uint8], out: ByteBuffer) -> PacketEnd | None:
        """Append the event bytes in `data` to `out`.

        Args:
            data: uint8 (n,), all bytes that came since the last call; they are used up.
            out: where event bytes go; events may still be incomplete there.

        Returns:
            How the stream ended, once it did (bytes after the end are not looked at); else None.

        Raises:
            BinlogError: a sequence id out of order, or a packet that is neither event, end nor error.
        """
        if self.end is not None:
            return self.end
        used = 0
        if not self._special:
            status, used, written = deframe(data, out.room(len(data)), self._state)
            out.commit(written)
            if status == _DONE:
                return None
            if status == _BAD_SEQUENCE:
                raise BinlogError(
                    "a packet of the server is out of order: bytes were lost",
                    expected=f"sequence id {int(self._state[_SEQUENCE])}",
                    got=int(self._state[_GOT]),
                    next_step="start the run again; it goes on at the last acked position",
                )
            if status == _EMPTY:
                raise _not_understood(b"")
        self._special += data[used : used + int(self._state[_LEFT])].tobytes()
        self._state[_LEFT] = max(0, int(self._state[_LEFT]) - (len(data) - used))
        if self._state[_LEFT] == 0:
            self.end = parse_end(bytes(self._special))
        return self.end


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
