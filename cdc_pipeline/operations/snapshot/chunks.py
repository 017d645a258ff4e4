"""Read the rows of a snapshot's tables in chunks into its side lake (K17).

Rules:
- Chunks are read with the columns that the catalog shows before and after: a batch of chunks counts
  only if no DDL came in between. After a DDL, main and side lake are captured past it, and the
  remaining rows are read with the new columns; these rows carry the side lake's position at that
  time, and are merged.
- Everything before the place that rows carry is proved to be committed before their view is opened.
- Tables that need one view are read first, at exactly the place where the side lake begins. If a
  snapshot is killed before they are all read, it starts again, because the view is lost.
- Small tables share a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.selected import SelectedRows, next_seq
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import (
    SchemaError,
    SnapshotError,
    TableChangedError,
    UnrepresentableValueError,
)
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.long_operations import Progress, TableProgress
from cdc_pipeline.operations.snapshot.begin import Started
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.read_ahead import Chunk, ChunkReader, KeyChangedError
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.operations.snapshot.side import SideBatch, SnapshotLake
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.rows.table_reader import ALL_ROWS, KeyRange, TableReader

_NOT_LAST: Final = KeyRange(None, ())  # of a view, which no other process can open again
# Without a row read in between: the table changes faster than it can be read.
_PASSES_MAX: Final = 10


@dataclass
class SnapshotChunks:
    side: SnapshotLake
    main: MainLake
    source: SnapshotSource

    def __post_init__(self) -> None:
        self._progress = self.side.folder.read_progress()
        self._passes: dict[str, int] = {}

    @property
    def high(self) -> Position:
        """The log's end when the last view was open: the tables are whole from there on."""
        begin = self.side.state.cursor.position
        if not self._progress.high_journal:
            return begin
        return max(
            Position(self._progress.high_journal, self._progress.high_offset),
            begin,
            key=lambda at: at.order,
        )

    def run(self, started: Started | None) -> None:
        """Read what is left; `started`: of a snapshot that begins, None if it resumes."""
        schemas = None if started is None else dict(started.schemas)
        if started is not None and started.view is not None:
            exact = {name: started.schemas[name] for name in started.state.exact}
            at, rows_max = started.state.cursor.position, self.main.config.snapshot.chunk_rows
            chunks = _view_chunks(started.view, exact.values(), at=at, rows_max=rows_max)
            try:
                while self._batch(chunks, exact):
                    pass
            except (TableChangedError, SchemaError, UnrepresentableValueError) as error:
                for name in exact:  # half a view is worthless
                    own = error if error.table == name else SnapshotError(error.what)
                    self.side.leave_source(name, own)
            finally:
                started.view.close()
        self.main.observer.operation_progressed(self.side.state, self._progress)
        while todo := self._todo():
            self.main.observer.step(f"reading {', '.join(todo)}")
            if schemas is None:
                schemas = self.source.schemas(todo)
            try:
                if gone := [name for name in todo if name not in schemas]:
                    what = "the table is gone or has a column of an unknown type"
                    raise _TableGoneError(what, table=gone[0])
                self._stretch({name: schemas[name] for name in todo})
            except (TableChangedError, SchemaError, UnrepresentableValueError) as error:
                self._pass(error)
            schemas = None

    def _todo(self) -> list[str]:
        return [
            name
            for name in self.side.state.sources
            if not self._progress_of(name).is_done and not self.side.is_left(name)
        ]

    def _progress_of(self, name: str) -> TableProgress:
        return self._progress.tables.get(name, TableProgress())

    # -- chunks ------------------------------------------------------------------------------------

    def _stretch(self, schemas: Mapping[str, TableSchema]) -> None:
        side = self.side
        at = side.cursor.position
        if self.source.proved(at).order != at.order:
            raise SnapshotError(
                "nothing proves that everything before the side lake's position is committed",
                at=at,
                setting="gtid_mode",
                expected="GTIDs, or a new journal since then",
                next_step="run again after FLUSH BINARY LOGS, or with --restart",
            )
        sizes = self.source.sizes(schemas)
        average = {name: size for name, (_, size) in sizes.items()}
        with ChunkReader(
            self.source.reader, self.main.config.snapshot, average_bytes=average
        ) as reader:
            of_schema = {schema: self._progress_of(name) for name, schema in schemas.items()}
            chunks = reader.chunks(of_schema)
            while self._batch(chunks, schemas):
                if any(
                    side.is_left(name) and not self._progress_of(name).is_done for name in schemas
                ):
                    return  # the rest of it is not needed

    def _batch(self, chunks: Iterator[Chunk], schemas: Mapping[str, TableSchema]) -> bool:
        is_more, rows, progress, taken = True, 0, self._progress, set[str]()
        with self.side.reading() as batch:
            while rows < self.main.config.snapshot.chunk_rows:
                chunk = next(chunks, None)
                if chunk is None:
                    is_more = False
                    break
                name = chunk.schema.full_name
                if self.side.is_left(name):
                    continue
                rows += len(chunk)
                progress = self._take(batch, progress, chunk)
                taken.add(name)
            if not taken:
                return is_more
            self._check_unchanged({name: schemas[name] for name in taken})
            batch.commit(progress)
        self._progress = progress
        self._passes.clear()
        self.main.observer.operation_progressed(self.side.state, progress)
        reach("snapshot_chunks")
        return is_more

    def _take(self, batch: SideBatch, progress: Progress, chunk: Chunk) -> Progress:
        name = chunk.schema.full_name
        known = progress.tables.get(name, TableProgress())
        rows = known.rows
        while chunk.parts:
            part = chunk.parts.pop(0)  # what is staged need not stay in memory
            inserts = part.as_inserts(
                seq_first=next_seq(batch.place.seq, rows), commit_ts_us=batch.place.time_us
            )
            batch.take(inserts, first=rows)
            rows += len(part)
        upto, high = chunk.bounds.upto, chunk.high
        table = TableProgress(
            rows=rows,
            chunks=known.chunks + 1,
            after=upto,
            layout=chunk.layout,
            is_done=upto is None,
        )
        update: dict[str, object] = {"tables": {**progress.tables, name: table}}
        if high.order > Position(progress.high_journal or high.journal, progress.high_offset).order:
            update |= {"high_journal": high.journal, "high_offset": high.offset}
        return progress.model_copy(update=update)

    # -- DDL ---------------------------------------------------------------------------------------

    def _check_unchanged(self, schemas: Mapping[str, TableSchema]) -> None:
        now = self.source.schemas(schemas)
        for name, schema in schemas.items():
            if now.get(name) != schema:
                raise TableChangedError(
                    "the table's columns changed while it was being read", table=name
                )

    def _pass(self, error: TableChangedError | SchemaError | UnrepresentableValueError) -> None:
        """Bring main and side lake past a DDL. A table that contradicts the side lake even then, or
        has a row that cannot be applied, leaves the snapshot.
        """
        name = error.table or ""
        if name not in self.side.state.sources:
            raise error
        self._passes[name] = self._passes.get(name, 0) + 1
        is_again = isinstance(error, SchemaError | _TableGoneError) and self._passes[name] > 1
        is_again |= isinstance(error, UnrepresentableValueError | KeyChangedError)
        if is_again or self._passes[name] > _PASSES_MAX or name in self.side.state.exact:
            self.side.leave_source(name, error)
            return
        self.main.observer.step(f"DDL changed {name}: capturing up to the change")
        cursor = self.main.capture(snapshot_of=self.side.state.targets)
        self.side.capture_to(cursor.position)
        reach("snapshot_passed_ddl")


class _TableGoneError(TableChangedError):
    """The table is gone. If it was recreated, the snapshot of that new table is another one."""


def _view_chunks(
    view: TableReader, schemas: Collection[TableSchema], *, at: Position, rows_max: int
) -> Iterator[Chunk]:
    for schema in schemas:
        parts: list[SelectedRows] = []
        for part in view.select(schema):
            parts.append(part)
            if sum(map(len, parts)) >= rows_max:
                yield Chunk(schema, _NOT_LAST, parts, at)
                parts = []
        yield Chunk(schema, ALL_ROWS, parts, at)
