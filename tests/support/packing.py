"""Packs events by hand, and the slow twin of unpacking: bytes of a journal to its plain events."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import pyarrow as pa

HEADER = struct.Struct("<IBIIIH")
PLAIN = {165: 2, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
ZSTD = pa.Codec("zstd")


class PlainEvent(NamedTuple):
    """An event as it is after unpacking; `body` has neither header nor checksum."""

    event_type: int
    body: bytes
    offset: int
    next_offset: int
    parent: int


def length_encoded(value: int) -> bytes:
    if value < 0xFB:
        return bytes([value])
    if value < 1 << 16:
        return b"\xfc" + struct.pack("<H", value)
    if value < 1 << 24:
        return b"\xfd" + struct.pack("<I", value)[:3]
    return b"\xfe" + struct.pack("<Q", value)


def child(
    event_type: int, body: bytes = b"", *, flags: int = 0, length: int | None = None
) -> bytes:
    size = HEADER.size + len(body) if length is None else length
    return HEADER.pack(1_700_000_001, event_type, 7, size, 0, flags) + body


def field(kind: int, value: int) -> bytes:
    packed = length_encoded(value)
    return length_encoded(kind) + length_encoded(len(packed)) + packed


def payload(
    inside: bytes, *, algorithm: int = 0, packed: bytes | None = None,
    packed_bytes: int | None = None,
    unpacked_bytes: int | None = None,
) -> bytes:  # fmt: skip
    if packed is None:
        packed = ZSTD.compress(inside, asbytes=True) if algorithm == 0 else inside
    fields = field(2, algorithm)
    if algorithm != 255 or unpacked_bytes is not None:
        fields += field(3, len(inside) if unpacked_bytes is None else unpacked_bytes)
    return fields + field(1, len(packed) if packed_bytes is None else packed_bytes) + b"\0" + packed


def record(
    plain: bytes,
    *,
    size_bytes: int = 0,
    mark: int = 0x80,
    size: int | None = None,
    packed: bytes | None = None,
) -> bytes:
    """Of MariaDB."""
    number = len(plain) if size is None else size
    size_bytes = size_bytes or max(1, (number.bit_length() + 7) // 8)
    return (
        bytes([mark | size_bytes])
        + number.to_bytes(size_bytes, "big")
        + (packed or zlib.compress(plain))
    )


def _encoded(raw: bytes, at: int) -> tuple[int, int]:
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(raw[at], 0)
    return (
        int.from_bytes(raw[at + 1 : at + 1 + width], "little") if width else raw[at]
    ), at + 1 + width


def _record_at(event_type: int, body: bytes) -> int:
    if event_type == 165:
        return 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
    at = 8
    if event_type >= 169:
        at += int.from_bytes(body[8:10], "little")
    columns, at = _encoded(body, at)
    return at + (columns + 7) // 8 * (2 if event_type in (167, 170) else 1)


def slow_unpack(data: bytes, *, offset: int = 4, checksum_bytes: int = 4) -> list[PlainEvent]:
    events: list[PlainEvent] = []
    at = 0
    while at < len(data):
        _, event_type, _, length, _, _ = HEADER.unpack_from(data, at)
        body = data[at + 19 : at + length - checksum_bytes]
        place = (offset + at, offset + at + length)
        if event_type == 40:
            fields: dict[int, int] = {}
            i = 0
            while True:
                kind, i = _encoded(body, i)
                if kind == 0:
                    break
                size, i = _encoded(body, i)
                fields[kind] = _encoded(body, i)[0]
                i += size
            events.append(PlainEvent(40, body[:i], *place, -1))
            parent = len(events) - 1
            inside = body[i:]
            if fields[2] == 0:
                inside = ZSTD.decompress(inside, fields[3], asbytes=True)
            while inside:
                size = HEADER.unpack_from(inside)[3]
                events.append(PlainEvent(inside[4], inside[19:size], *place, parent))
                inside = inside[size:]
        elif event_type in PLAIN:
            i = _record_at(event_type, body)
            size_bytes = body[i] & 7
            events.append(
                PlainEvent(
                    PLAIN[event_type],
                    body[:i] + zlib.decompress(body[i + 1 + size_bytes :]),
                    *place,
                    -1,
                )
            )
        else:
            events.append(PlainEvent(event_type, body, *place, -1))
        at += length
    return events
