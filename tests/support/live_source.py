"""What the tests of the live source share: a source on a test server, and journals framed from
their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.live import LiveSource
from tests.servers import Server

FIELDS = [
    "offset",
    "next_offset",
    "table_id",
    "timestamp_s",
    "server_id",
    "event_length",
    "event_type",
]


class Event(NamedTuple):
    """One event as a test compares it.

    The format description of the journal that is being written has a flag (0x1, in use) that a
    server takes off before it sends the event: flag and bytes are left out for this type.
    """

    journal: str
    fields: tuple[int, ...]
    flags: int
    content: bytes


def live_config(server: Server, **changes: Any) -> LiveSourceConfig:
    """With an account that may capture, unless `user` and `password` are given."""
    settings: dict[str, Any] = {
        "kind": "live",
        "host": server.host,
        "port": server.port,
        "read_timeout_s": 20,
    }
    if "user" not in changes:
        settings["user"], settings["password"] = server.create_replication_user()
    return LiveSourceConfig(**(settings | changes))


def live_source(server: Server, *, name: str = "shop", **changes: Any) -> LiveSource:
    return LiveSource(live_config(server, **changes), pipeline_name=name)


def position(server: Server, **changes: Any) -> Position:
    """By journal and offset only."""
    journal, offset = server.end_position()
    return Position(journal, offset, **changes)


def events_of(chunks: Iterable[Chunk]) -> list[Event]:
    found = []
    for chunk in chunks:
        rows = chunk.events
        for row, fields in enumerate(rows[FIELDS].tolist()):
            marks = rows["event_type"][row] == EventType.FORMAT_DESCRIPTION
            start = int(rows["start"][row])
            content = (
                b""
                if marks
                else chunk.data[start : start + int(rows["event_length"][row])].tobytes()
            )
            found.append(
                Event(chunk.journal, fields, 0 if marks else int(rows["flags"][row]), content)
            )
    return found


def archived_events(journals: Iterable[Path], start: Position, end: Position) -> list[Event]:
    found = []
    for path in journals:
        data = np.frombuffer(path.read_bytes(), dtype=np.uint8)[4:]
        chunk, used = EventFramer(path.name).feed(data)
        assert chunk is not None
        if path.name != end.journal:
            assert used == len(data)
        found += events_of([chunk])
    return [event for event in found if start.order <= place(event) and place(event) < end.order]


def place(event: Event) -> tuple[int, int]:
    return Position(event.journal, event.fields[0]).order


def read_failing(
    source: LiveSource,
    start: Position,
    end: Position,
    *,
    after_first: Callable[[], object] | None = None,
) -> tuple[list[Chunk], CdcError]:
    """Read until the error that must come; `after_first` is called once, at the first chunk."""
    chunks: list[Chunk] = []
    try:
        for chunk in source.chunks(start, end):
            chunks.append(chunk)
            if len(chunks) == 1 and after_first is not None:
                after_first()
    except CdcError as error:
        return chunks, error
    raise AssertionError(f"no error after {len(chunks)} chunks")
