"""Journals made by hand: real event bytes with their rows, as framing gives them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk, JournalFormat
from cdc_pipeline.binlog.event_types import EventType

MYSQL = JournalFormat(4, "9.7.4", False, 1_700_000_000, 1, 4, (13,) * 42, False)
MARIADB = JournalFormat(4, "10.11.19-MariaDB-log", True, 1_700_000_000, 1, 4, (13,) * 171, False)
COMMIT_US = 1_700_000_100_123_456


def query_body(sql: str, database: str = "shop", status: bytes = b"\x00\x01\x02\x03\x04") -> bytes:
    name = database.encode()
    head = struct.pack("<IIBHH", 7, 0, len(name), 0, len(status))
    return head + status + name + b"\0" + sql.encode()


def gtid_body(gno: int = 1, commit_us: int = COMMIT_US) -> bytes:
    head = b"\x01" + bytes(range(16)) + struct.pack("<q", gno)
    return (
        head
        + b"\x02"
        + struct.pack("<qq", 0, 1)
        + commit_us.to_bytes(7, "little")
        + b"\x10"
        + b"\x01\x36\x01\x00"
    )


def mariadb_gtid_body(flags: int, seq_no: int = 1, domain: int = 0, extra_flags: int = 0) -> bytes:
    body = struct.pack("<QIB", seq_no, domain, flags)
    if flags & 0x02:
        body += struct.pack("<Q", 99)  # group commit
    if flags & 0xC0:
        body += struct.pack("<IBB", 1, 2, 1) + b"gtb"
    body += bytes([extra_flags])
    if extra_flags & 0x0C:
        body += struct.pack("<Q", seq_no - 1)
    return body.ljust(19, b"\0")


@dataclass
class JournalBuilder:
    """Appends events; `chunks` cuts what was appended."""

    journal: str = "binlog.000001"
    journal_format: JournalFormat = MYSQL
    offset: int = 4
    timestamp_s: int = 1_700_000_000
    server_id: int = 1
    _bodies: list[tuple[int, bytes, int, int]] = field(default_factory=list)

    def add(self, event_type: int, body: bytes = b"", *, flags: int = 0) -> JournalBuilder:
        self._bodies.append((event_type, body, flags, self.timestamp_s))
        self.timestamp_s += 1
        return self

    def fde(self) -> JournalBuilder:
        return self.add(EventType.FORMAT_DESCRIPTION, bytes(57))

    def gtid(self, gno: int = 1) -> JournalBuilder:
        return self.add(EventType.GTID, gtid_body(gno))

    def mariadb_gtid(self, flags: int = 0, seq_no: int = 1, extra_flags: int = 0) -> JournalBuilder:
        return self.add(
            EventType.MARIADB_GTID, mariadb_gtid_body(flags, seq_no, extra_flags=extra_flags)
        )

    def load(self, sql: str, database: str = "shop") -> JournalBuilder:
        """LOAD DATA as a statement: file blocks, then a query with more fields at its head."""
        body = query_body(sql, database)
        self.add(EventType.BEGIN_LOAD_QUERY, b"\1\0\0\0" + b"1\t2\n").add(
            EventType.APPEND_BLOCK, b"\1\0\0\0x"
        )
        return self.add(EventType.EXECUTE_LOAD_QUERY, body[:13] + bytes(13) + body[13:])

    def query(self, sql: str, database: str = "shop") -> JournalBuilder:
        return self.add(EventType.QUERY, query_body(sql, database))

    def rows(self, count: int = 1) -> JournalBuilder:
        self.add(EventType.TABLE_MAP, bytes(20))
        for _ in range(count):
            self.add(EventType.WRITE_ROWS_V2, bytes(30))
        return self

    def xid(self) -> JournalBuilder:
        return self.add(EventType.XID, bytes(8))

    def transaction(self, rows: int = 1) -> JournalBuilder:
        """GTID, BEGIN, table map, rows, XID: rows + 4 events."""
        return self.gtid().query("BEGIN").rows(rows).xid()

    def ddl(self, sql: str, database: str = "shop") -> JournalBuilder:
        return self.gtid().query(sql, database)

    def chunk(self) -> Chunk:
        checksum = self.journal_format.checksum_bytes
        events = np.zeros(len(self._bodies), dtype=EVENT_DTYPE)
        data = bytearray()
        for row, (event_type, body, flags, timestamp_s) in enumerate(self._bodies):
            length = 19 + len(body) + checksum
            next_offset = self.offset + length
            event = events[row]
            event["start"], event["offset"], event["next_offset"] = (
                len(data),
                self.offset,
                next_offset,
            )
            event["tx_offset"] = event["commit_ts_us"] = event["table_id"] = event["parent"] = -1
            event["timestamp_s"], event["server_id"], event["event_length"] = (
                timestamp_s,
                self.server_id,
                length,
            )
            event["flags"], event["event_type"] = flags, event_type
            data += struct.pack(
                "<IBIIIH", timestamp_s, event_type, self.server_id, length, next_offset, flags
            )
            data += body + bytes(checksum)
            self.offset = next_offset
        self._bodies = []
        return Chunk(
            self.journal,
            self.journal_format,
            np.frombuffer(bytes(data), np.uint8),
            events,
            self.offset,
        )


def cut(chunk: Chunk, sizes: list[int]) -> list[Chunk]:
    """Chunks of `sizes` events, the rest as the last one; each with bytes of its own."""
    parts = []
    first = 0
    for stop in [*np.cumsum(sizes).tolist(), len(chunk.events)]:
        stop = min(stop, len(chunk.events))
        if stop <= first:
            continue
        events = chunk.events[first:stop].copy()
        base = int(events["start"][0])
        last = int(events["start"][-1]) + int(events["event_length"][-1])
        events["start"] -= base
        data = chunk.data[base:last].copy()
        parts.append(
            Chunk(chunk.journal, chunk.journal_format, data, events, int(events["next_offset"][-1]))
        )
        first = stop
    return parts
