"""Rows events made by hand, from plain Python values, and the slow twin that reads them back.

The writer follows the format's own words (MySQL `Rows_event`); it shares no code with the decoder.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk, JournalFormat
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema

WRITE, UPDATE, DELETE = 30, 31, 32
HEADER_BYTES, CHECKSUM_BYTES = 19, 4


def journal_format(
    *, is_mariadb: bool = False, checksum_bytes: int = CHECKSUM_BYTES
) -> JournalFormat:
    lengths = [0] * 42
    lengths[22:25] = [8] * 3
    lengths[29:32] = [10] * 3
    return JournalFormat(
        binlog_version=4, server_version="9.7.4", is_mariadb=is_mariadb, created_s=0, server_id=1,
        checksum_bytes=checksum_bytes, post_header_lengths=tuple(lengths), in_use=False,
    )  # fmt: skip


@dataclass(frozen=True)
class Image:
    values: tuple[bytes | None, ...]
    present: tuple[bool, ...]

    def encode(self) -> bytes:
        values = [value for value, there in zip(self.values, self.present, strict=True) if there]
        return bits([value is None for value in values]) + b"".join(
            value for value in values if value is not None
        )


def full(*values: bytes | None) -> Image:
    return Image(values, (True,) * len(values))


def bits(flags: Sequence[bool]) -> bytes:
    out = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        out[index // 8] |= flag << index % 8
    return bytes(out)


def rows_body(event_type: int, images: Sequence[Image], *, extra: bytes = b"") -> bytes:
    """Of an update the images alternate before, after."""
    columns = len(images[0].values)
    body = bytes(6) + b"\x01\x00"
    if event_type >= WRITE:
        body += struct.pack("<H", 2 + len(extra)) + extra
    body += bytes([columns]) if columns < 251 else b"\xfc" + struct.pack("<H", columns)
    body += bits(images[0].present)
    if event_type in (UPDATE, 24):
        body += bits(images[1].present)
    return body + b"".join(image.encode() for image in images)


def chunk_of(
    bodies: Sequence[tuple[int, bytes]], *, journal: str = "binlog.000007", first_offset: int = 4,
    is_mariadb: bool = False, checksum_bytes: int = CHECKSUM_BYTES,
) -> Chunk:  # fmt: skip
    """All in one transaction at `first_offset`."""
    events = np.zeros(len(bodies), EVENT_DTYPE)
    data = bytearray(b"\xaa" * 5)  # the first event does not begin at index 0
    for row, (event_type, body) in enumerate(bodies):
        event = events[row]
        event["start"] = len(data)
        event["offset"] = first_offset + len(data)
        event["event_length"] = HEADER_BYTES + len(body) + checksum_bytes
        event["event_type"] = event_type
        event["tx_offset"] = first_offset
        event["tx_ordinal"] = row + 1
        event["commit_ts_us"] = 1_700_000_000_000_000 + row
        event["parent"] = -1
        data += bytes(HEADER_BYTES) + body + b"\xee" * checksum_bytes
    return Chunk(
        journal, journal_format(is_mariadb=is_mariadb, checksum_bytes=checksum_bytes),
        np.frombuffer(bytes(data), np.uint8), events, first_offset + len(data),
    )  # fmt: skip


def schema_of(*columns: Column) -> TableSchema:
    return TableSchema("shop", "orders", columns, (0,))


def int_column(name: str = "id", **more: object) -> Column:
    return Column(name, Kind.INT32, 3, 0, True, **more)  # type: ignore[arg-type]


def text_column(name: str = "note", charset: str = "utf8mb4") -> Column:
    return Column(name, Kind.TEXT, 252, 2, True, charset=charset)


def prefixed(raw: bytes, length_bytes: int = 2) -> bytes:
    return len(raw).to_bytes(length_bytes, "little") + raw
