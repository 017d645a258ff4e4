"""A journal as a list of events, so that it can be damaged on purpose and put together again.

The bytes are those of the wire: header of 19 bytes (timestamp u32, type u8, server id u32, length
u32, end position u32, flags u16), body, checksum u32 where the format description says so.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from functools import cache
from pathlib import Path

import pyarrow as pa

SEEDS = Path(__file__).with_name("seeds")
MAGIC = b"\xfebin"
HEADER_BYTES = 19
CRC_BYTES = 4
PAYLOAD, FORMAT_DESCRIPTION = 40, 15
ROWS_COMPRESSED = range(166, 172)
QUERY_COMPRESSED = 165
_IN_USE_AT = 17


@cache
def seed_names() -> list[str]:
    return sorted(file.stem for file in SEEDS.glob("*.xz"))


@cache
def seed(name: str) -> bytes:
    return lzma.decompress((SEEDS / f"{name}.xz").read_bytes())


def length_of(event: bytes) -> int:
    return int.from_bytes(event[9:13], "little")


def split(journal: bytes) -> list[bytearray]:
    events, at = [], len(MAGIC)
    while len(journal) - at >= HEADER_BYTES:
        length = int.from_bytes(journal[at + 9 : at + 13], "little")
        if length < HEADER_BYTES or length > len(journal) - at:
            break
        events.append(bytearray(journal[at : at + length]))
        at += length
    return events


def has_checksums(events: list[bytearray]) -> bool:
    return (
        bool(events)
        and len(events[0]) > HEADER_BYTES + CRC_BYTES + 1
        and events[0][-CRC_BYTES - 1] == 1
    )


def joined(events: list[bytearray], *, checksums: bool, lengths: bool, positions: bool) -> bytes:
    out = bytearray(MAGIC)
    with_crc = has_checksums(events)
    for index, event in enumerate(events):
        if lengths and len(event) >= HEADER_BYTES:
            struct.pack_into("<I", event, 9, len(event))
        if positions and len(event) >= HEADER_BYTES and event[13:17] != b"\0\0\0\0":
            struct.pack_into("<I", event, 13, (len(out) + len(event)) & 0xFFFFFFFF)
        # The format description has a checksum in any case.
        if checksums and (with_crc or index == 0) and len(event) >= HEADER_BYTES + CRC_BYTES:
            struct.pack_into("<I", event, len(event) - CRC_BYTES, crc_of(event))
        out += event
    return bytes(out)


def crc_of(event: bytes | bytearray) -> int:
    """CRC32 of an event that ends with one; of a format description as if it were not in use."""
    checked = bytearray(event[:-CRC_BYTES])
    if checked[4] == FORMAT_DESCRIPTION:
        checked[_IN_USE_AT] &= 0xFE
    return zlib.crc32(checked)


def wrong_checksum(journal: bytes) -> int | None:
    """Index of the first event whose checksum is wrong; None where all are right, or there are
    none."""
    events = split(journal)
    with_crc = has_checksums(events)
    for index, event in enumerate(events):
        if (with_crc or index == 0) and int.from_bytes(event[-CRC_BYTES:], "little") != crc_of(
            event
        ):
            return index
    return None


def lenenc(value: int) -> bytes:
    if value < 0xFB:
        return bytes([value])
    for first, width in ((0xFC, 2), (0xFD, 3)):
        if value < 1 << 8 * width:
            return bytes([first]) + value.to_bytes(width, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def read_lenenc(data: bytes | bytearray, at: int) -> tuple[int, int]:
    first = data[at]
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    return (
        int.from_bytes(data[at + 1 : at + 1 + width], "little") if width else first
    ), at + 1 + width


def packed_content(event: bytearray, crc_bytes: int) -> bytes | None:
    at = _packed_at(event, crc_bytes)
    if at is None:
        return None
    packed = bytes(event[at:])[: len(event) - crc_bytes - at]
    if event[4] == PAYLOAD:
        size = next(value for field, value in _payload_fields(event) if field == 3)
        return bytes(pa.Codec("zstd").decompress(packed, size, asbytes=True))
    return zlib.decompress(packed[1 + (packed[0] & 7) :])


def with_content(event: bytearray, content: bytes, crc_bytes: int) -> bytearray:
    at = _packed_at(event, crc_bytes)
    assert at is not None
    if event[4] == PAYLOAD:
        packed = bytes(pa.Codec("zstd").compress(content, asbytes=True))
        fields = b""
        for field, value in ((2, 0), (3, len(content)), (1, len(packed))):
            number = lenenc(value)
            fields += bytes([field]) + lenenc(len(number)) + number
        body = fields + b"\0" + packed
        return event[:HEADER_BYTES] + body + b"\0" * crc_bytes
    body = b"\x84" + len(content).to_bytes(4, "big") + zlib.compress(content)
    return event[:at] + body + b"\0" * crc_bytes


def _payload_fields(event: bytearray) -> list[tuple[int, int]]:
    found, at = [], HEADER_BYTES
    while event[at]:
        field, at = read_lenenc(event, at)
        size, at = read_lenenc(event, at)
        found.append((field, read_lenenc(event, at)[0]))
        at += size
    return [*found, (0, at + 1)]


def _packed_at(event: bytearray, crc_bytes: int) -> int | None:
    """Index of the packed record of an undamaged event."""
    kind = event[4]
    if kind == PAYLOAD:
        return _payload_fields(event)[-1][1]
    at = HEADER_BYTES
    if kind == QUERY_COMPRESSED:
        at += 13 + int.from_bytes(event[at + 11 : at + 13], "little") + event[at + 8] + 1
    elif kind in ROWS_COMPRESSED:
        at += 8
        if kind >= 169:
            at += int.from_bytes(event[at : at + 2], "little")
        columns, at = read_lenenc(event, at)
        at += (columns + 7) // 8 * (2 if kind in (167, 170) else 1)
    else:
        return None
    return at if at < len(event) - crc_bytes else None
