"""Packets of the client/server protocol, as payloads."""

from __future__ import annotations

import socket
import struct
from typing import Final

QUIT: Final = 0x01
QUERY: Final = 0x03
DUMP: Final = 0x12
REGISTER: Final = 0x15
PREPARE: Final = 0x16
EXECUTE: Final = 0x17
CLOSE: Final = 0x19
DUMP_GTID: Final = 0x1E
OK: Final = b"\0\0\0\x02\0\0\0"
EOF: Final = b"\xfe\0\0\x02\0"
_PACKET_BYTES_MAX: Final = (1 << 24) - 1


def error(number: int, text: str) -> bytes:
    return b"\xff" + struct.pack("<H", number) + b"#HY000" + text.encode()


def is_end(payload: bytes) -> bool:
    """Whether a packet ends rows: an error, or an end of five bytes."""
    return payload[:1] == b"\xff" or (payload[:1] == b"\xfe" and len(payload) < 9)


def framed(payload: bytes, number: int) -> bytes:
    parts = []
    while True:
        piece, payload = payload[:_PACKET_BYTES_MAX], payload[_PACKET_BYTES_MAX:]
        parts.append(len(piece).to_bytes(3, "little") + bytes([number & 0xFF]) + piece)
        number += 1
        if len(piece) < _PACKET_BYTES_MAX:
            return b"".join(parts)


def take(wire: socket.socket) -> bytes:
    """The payload of the next packet. Raises EOFError: the other side has closed."""
    payload = b""
    while True:
        size = int.from_bytes(_exactly(wire, 4)[:3], "little")
        payload += _exactly(wire, size)
        if size < _PACKET_BYTES_MAX:
            return payload


def _exactly(wire: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = wire.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


def cells(row: bytes) -> list[bytes | None] | None:
    """The values of a row in text form; None if it is no such row."""
    found: list[bytes | None] = []
    at = 0
    while at < len(row):
        first = row[at]
        at += 1
        if first == 0xFB:
            found.append(None)
            continue
        if first > 0xFD:
            return None
        width = {0xFC: 2, 0xFD: 3}.get(first, 0)
        size = int.from_bytes(row[at : at + width], "little") if width else first
        at += width
        found.append(row[at : at + size])
        at += size
    return found if at == len(row) else None


def from_cells(values: list[bytes | None]) -> bytes:
    return b"".join(b"\xfb" if value is None else text(value) for value in values)


def text(value: bytes) -> bytes:
    size = len(value)
    if size < 0xFB:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + value
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little") + value
    return b"\xfe" + size.to_bytes(8, "little") + value
