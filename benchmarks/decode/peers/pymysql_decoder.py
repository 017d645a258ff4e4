"""pymysqlreplication's decoder over the same bytes: no server, one thread, its own packet wrapper
around each event.

python -m benchmarks.decode.peers.pymysql_decoder JOURNAL CHANGES
"""

from __future__ import annotations

import json
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from pymysqlreplication.constants import BINLOG
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from cdc_pipeline.binlog.event_types import MAGIC, ROWS_TYPES

PART_CHANGES = 10_000

_WANTED = {int(kind) for kind in ROWS_TYPES} | {BINLOG.TABLE_MAP_EVENT}
_ALLOWED = frozenset({TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent})


class _Packet:
    """What the wrapper needs of a network packet."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int) -> bytes:
        part = self._data[self._position : self._position + size]
        self._position += size
        return part

    def advance(self, size: int) -> None:
        self._position += size


def decode(path: Path, changes_max: int) -> dict[str, float]:
    """The journal's first `changes_max` changes, or a few more: what an event holds is decoded
    together."""
    events = _events(path)
    connection = SimpleNamespace(charset="utf8mb4", _get_dbms=lambda: "mysql")
    table_map: dict[int, object] = {}
    changes = images = cells = nulls = 0
    cpu_s = 0.0
    for event in events:
        begin = time.process_time()
        wrapper = BinLogPacketWrapper(
            _Packet(b"\0" + event), table_map, connection, (9, 7, 0), True, _ALLOWED, None, None,
            None, None, False,
            False, False, True, False, False, None,
        )  # fmt: skip
        if isinstance(wrapper.event, TableMapEvent):
            table_map[wrapper.event.table_id] = wrapper.event.get_table()
        rows = (
            []
            if wrapper.event is None or isinstance(wrapper.event, TableMapEvent)
            else wrapper.event.rows
        )
        cpu_s += time.process_time() - begin
        changes += len(rows)
        for row in rows:
            for name in ("values", "before_values", "after_values"):
                if name in row:
                    images += 1
                    cells += len(row[name])
                    nulls += sum(value is None for value in row[name].values())
        if changes >= changes_max:
            break
    return {"changes": changes, "images": images, "cells": cells, "nulls": nulls, "cpu_s": cpu_s}


def _events(path: Path) -> list[bytes]:
    """Table maps and rows events of the journal's first part, enough for the measure."""
    found: list[bytes] = []
    with path.open("rb") as file:
        file.seek(len(MAGIC))
        while len(found) < 20_000 and (header := file.read(19)):
            _, event_type, _, length = struct.unpack_from("<IBII", header)
            body = file.read(length - 19)
            if event_type in _WANTED:
                found.append(header + body)
    return found


if __name__ == "__main__":
    print(json.dumps(decode(Path(sys.argv[1]), int(sys.argv[2]))))
