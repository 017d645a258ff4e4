"""pymysqlreplication's decoder over the same bytes: no server, one thread, its own packet wrapper around each event."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from types import SimpleNamespace

from pymysqlreplication.constants import BINLOG
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent

from cdc_pipeline.binlog.event_types import MAGIC, ROWS_TYPES

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


def peer_seconds(path: Path, rows_wanted: int) -> float:
    """CPU-seconds per million row changes over the journal's first `rows_wanted` changes."""
    events = _events(path)
    connection = SimpleNamespace(charset="utf8mb4", _get_dbms=lambda: "mysql")
    table_map: dict[int, object] = {}
    rows = 0
    begin = time.process_time()
    for event in events:
        wrapper = BinLogPacketWrapper(
            _Packet(b"\0" + event), table_map, connection, (9, 7, 0), True, _ALLOWED, None, None, None, None, False,
            False, False, True, False, False, None,
        )  # fmt: skip
        if isinstance(wrapper.event, TableMapEvent):
            table_map[wrapper.event.table_id] = wrapper.event.get_table()
        elif wrapper.event is not None:
            rows += len(wrapper.event.rows)
        if rows >= rows_wanted:
            break
    return (time.process_time() - begin) * 1e6 / rows


def _events(path: Path) -> list[bytes]:
    """Table maps and rows events of the journal's first part, enough for the measure."""
    found = []
    with path.open("rb") as file:
        file.seek(len(MAGIC))
        while len(found) < 20_000 and (header := file.read(19)):
            _, event_type, _, length = struct.unpack_from("<IBII", header)
            body = file.read(length - 19)
            if event_type in _WANTED:
                found.append(header + body)
    return found
