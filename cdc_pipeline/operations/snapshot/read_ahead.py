"""Read source tables in chunks, ahead of their consumer (K17).

Rules:
- A chunk is one read view: its rows are of the same moment. A mark is read after the view is
  opened, so that no change visible in the view lies behind the mark.
- Readers work ahead in threads, each with its own connection. Chunks are delivered in order, so
  that a table's progress is one key. Memory holds one chunk for each reader, and the one being
  consumed.
- A chunk is limited in rows, and in bytes as estimated from the catalog's average row.
- A read that the server interrupts is repeated in a new view.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.selected import SelectedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import SnapshotConfig
from cdc_pipeline.errors import TableChangedError, TableReadInterruptedError, located
from cdc_pipeline.lake.long_operations import TableProgress
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.rows.key_ranges import key_layout, plan_ranges
from cdc_pipeline.source.rows.table_reader import KeyRange, TableReader

TRIES_MAX: Final = 3


class KeyChangedError(TableChangedError):
    """The key is another one than that of the rows that were read: which are left, is unknown."""


@dataclass(frozen=True, slots=True)
class Work:
    schema: TableSchema
    bounds: KeyRange
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows of a range, of one view; `high`: the end of the log after the view was opened."""

    schema: TableSchema
    bounds: KeyRange
    parts: list[SelectedRows]
    high: Position
    layout: str = ""

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)


class ChunkReader:
    """Readers of one server's tables; `average_bytes`: of a row, 0 or absent where unknown."""

    def __init__(
        self,
        new_reader: Callable[[], TableReader],
        snapshot: SnapshotConfig,
        *,
        average_bytes: Mapping[str, int],
    ) -> None:
        self._new_reader = new_reader
        self._snapshot = snapshot
        self._average_bytes = average_bytes
        self._stack = ExitStack()
        self._idle: queue.SimpleQueue[tuple[TableReader, ServerConnection]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(snapshot.readers, "snapshot-reader")
        self._is_closing = False

    def __enter__(self) -> ChunkReader:
        for _ in range(self._snapshot.readers + 1):  # one finds the bounds
            reader = self._stack.enter_context(self._new_reader())
            server = ServerConnection(reader.config)
            self._stack.callback(server.close)
            self._idle.put((reader, server))
        self._planner = self._idle.get()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._stack.close()

    def rows_per_chunk(self, schema: TableSchema) -> int:
        average = self._average_bytes.get(schema.full_name, 0)
        by_bytes = self._snapshot.chunk_bytes // average if average else self._snapshot.chunk_rows
        return max(1, min(self._snapshot.chunk_rows, by_bytes))

    def chunks(self, tables: Mapping[TableSchema, TableProgress]) -> Iterator[Chunk]:
        """One table after the other, each in key order; TableChangedError: not as its schema."""
        work = self._work(tables)
        ahead: deque[Future[Chunk]] = deque()
        try:
            while True:
                while (
                    len(ahead) < self._snapshot.readers and (item := next(work, None)) is not None
                ):
                    ahead.append(self._threads.submit(self._read, item))
                if not ahead:
                    return
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()

    def _work(self, tables: Mapping[TableSchema, TableProgress]) -> Iterator[Work]:
        for schema, progress in tables.items():
            with located(table=schema.full_name):
                rows, after = self.rows_per_chunk(schema), progress.after
                layout = key_layout(self._planner, schema)
                if after is not None and layout != progress.layout:
                    raise KeyChangedError("the table's key changed while it was being read")
                for bounds in plan_ranges(self._planner, schema, rows, after=after):
                    yield Work(schema, bounds, layout)

    def _read(self, work: Work) -> Chunk:
        reader, server = self._idle.get()
        try:
            for tries in range(1, TRIES_MAX + 1):
                try:
                    return read_chunk(reader, server, work)
                except TableReadInterruptedError:
                    if tries == TRIES_MAX or self._is_closing:
                        raise
            raise AssertionError("the last attempt returns or raises")
        finally:
            self._idle.put((reader, server))


def read_chunk(reader: TableReader, server: ServerConnection, work: Work) -> Chunk:
    try:
        reader.begin_view()
        high = server.end_position()  # the end mark: nothing after it is in the view
        parts = list(reader.select(work.schema, bounds=work.bounds))
        reader.end_view()
    except BaseException:
        reader.close()  # the view ends with its connection
        raise
    return Chunk(work.schema, work.bounds, parts, high, work.layout)
