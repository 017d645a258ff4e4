"""Journals of many small transactions, written by hand and kept in the cache folder."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from benchmarks.decode.workloads import cache_folder
from cdc_pipeline.binlog.event_types import MAGIC, EventType

TRANSACTION_EVENTS = 8
_POST_HEADER_BYTES: dict[int, int] = {
    EventType.QUERY: 13,
    EventType.GTID: 42,
    EventType.TABLE_MAP: 8,
    EventType.WRITE_ROWS_V2: 10,
}
_TYPES = 42  # as MySQL 9.7 announces them
_TIMESTAMP_S = 1_700_000_000
_SERVER_ID = 7
_SOURCE_ID = bytes(range(16))


def small_transactions(count: int) -> Path:
    """A folder with one journal of `count` transactions of eight events each: GTID, BEGIN, table
    map, four row events, XID; every event with its CRC32. Written where missing."""
    folder = cache_folder() / f"small-transactions-1-{count}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    with (partial / "binlog.000001").open("wb") as file:
        offset = file.write(MAGIC)
        offset += file.write(_event(EventType.FORMAT_DESCRIPTION, _format_body(), offset))
        for number in range(1, count + 1):
            for event_type, body in _transaction(number):
                offset += file.write(_event(event_type, body, offset))
        file.write(_event(EventType.STOP, b"", offset))
    partial.rename(folder)
    return folder


def _event(event_type: int, body: bytes, offset: int) -> bytes:
    length = 19 + len(body) + 4
    header = struct.pack(
        "<IBIIIH", _TIMESTAMP_S, event_type, _SERVER_ID, length, (offset + length) & 0xFFFFFFFF, 0
    )
    event = header + body
    return event + struct.pack("<I", zlib.crc32(event))


def _format_body() -> bytes:
    lengths = bytes(_POST_HEADER_BYTES.get(event_type, 0) for event_type in range(1, _TYPES + 1))
    return struct.pack("<H50sIB", 4, b"9.7.4", _TIMESTAMP_S, 19) + lengths + b"\x01"


def _transaction(number: int) -> list[tuple[int, bytes]]:
    commit_us = _TIMESTAMP_S * 1_000_000 + number
    times = commit_us.to_bytes(7, "little") + b"\xfc\x00\x02" + struct.pack("<I", 90704)
    gtid = b"\x01" + _SOURCE_ID + struct.pack("<qBqq", number, 2, number - 1, number) + times
    begin = struct.pack("<IIBHH", 7, 0, 4, 0, 5) + b"\0\x01\x02\x03\x04shop\0BEGIN"
    table_id = (number % 50 + 90).to_bytes(6, "little")
    table = table_id + b"\x01\x00" + b"\x04shop\0\x05order\0" + b"\x03\x03\x08\x0f\x02\x90\x01\x04"
    rows = [
        table_id
        + struct.pack("<HHB", 1 if row == 3 else 0, 2, 3)
        + b"\xff\x00"
        + struct.pack("<iqH", row, number, 24)
        + b"%024d" % number
        for row in range(4)
    ]
    return [
        (EventType.GTID, gtid),
        (EventType.QUERY, begin),
        (EventType.TABLE_MAP, table),
        *((EventType.WRITE_ROWS_V2, body) for body in rows),
        (EventType.XID, struct.pack("<Q", number)),
    ]
