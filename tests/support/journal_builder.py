"""Journals made by hand, event by event, after the format's description, and a slow reader of
them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")


def format_description_body(
    *, server_version: str = "9.7.4", algorithm: int = 1, types: int = 42, table_map_header: int = 8
) -> bytes:
    lengths = bytearray([0] * types)
    lengths[1] = 13
    lengths[18] = table_map_header
    return (
        struct.pack("<H50sIB", 4, server_version.encode(), 0, 19)
        + bytes(lengths)
        + bytes([algorithm])
    )


@dataclass
class JournalBuilder:
    """Bytes of a journal; `offset` is that of the next event."""

    checksum: bool = True
    server_id: int = 7
    timestamp_s: int = 1_700_000_000
    data: bytearray = field(default_factory=lambda: bytearray(MAGIC))
    base: int = 0  # added to every offset: journals above 4 GiB

    @property
    def offset(self) -> int:
        return self.base + len(self.data)

    def event(
        self,
        event_type: int,
        body: bytes = b"",
        *,
        flags: int = 0,
        log_position: int | None = None,
        checksum: bool | None = None,
        server_id: int | None = None,
    ) -> bytes:
        server = self.server_id if server_id is None else server_id
        with_checksum = self.checksum if checksum is None else checksum
        length = HEADER.size + len(body) + (4 if with_checksum else 0)
        end = (self.offset + length) & 0xFFFFFFFF if log_position is None else log_position
        raw = HEADER.pack(self.timestamp_s, event_type, server, length, end, flags) + body
        if with_checksum:
            # The in-use flag is set after the checksum was made.
            counted = (
                raw if event_type != 15 else raw[:17] + struct.pack("<H", flags & ~1) + raw[19:]
            )
            raw += struct.pack("<I", zlib.crc32(counted))
        self.data += raw
        return raw

    def format_description(self, *, flags: int = 0, **body: object) -> bytes:
        algorithm = 1 if self.checksum else 0
        content = format_description_body(**{"algorithm": algorithm, **body})  # type: ignore[arg-type]
        return self.event(15, content, flags=flags, checksum=True)

    def rows(self, table_id: int, payload: bytes, *, event_type: int = 30, flags: int = 1) -> bytes:
        return self.event(
            event_type, table_id.to_bytes(6, "little") + struct.pack("<H", flags) + payload
        )


def slow_rows(data: bytes, *, offset: int = 4, checksum_bytes: int = 4) -> list[dict[str, int]]:
    """The slow twin of the framing pass: rows of a good journal without its magic number."""
    rows = []
    at = 0
    while at < len(data):
        timestamp_s, event_type, server_id, length, _, flags = HEADER.unpack_from(data, at)
        event = data[at : at + length]
        if event_type != 15 and checksum_bytes:
            assert zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little")
        has_table = event_type in (19, 23, 24, 25, 30, 31, 32)
        rows.append(
            {
                "start": at,
                "offset": offset + at,
                "next_offset": offset + at + length,
                "tx_offset": -1,
                "commit_ts_us": -1,
                "table_id": int.from_bytes(event[19:25], "little") if has_table else -1,
                "timestamp_s": timestamp_s,
                "server_id": server_id,
                "event_length": length,
                "tx_ordinal": 0,
                "parent": -1,
                "flags": flags,
                "event_type": event_type,
                "role": 0,
            }
        )
        at += length
    return rows
