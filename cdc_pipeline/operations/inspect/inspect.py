"""Show what journals hold: a summary, JSON lines, or Parquet files. Needs no server.

Rules:
- Journals are read in the order of their numbers; each must begin at its start (the magic bytes).
- What cannot be shown stops with journal and offset, after everything before it.
- Changes appear in the order of the log, by the rules of `change_log`.
- An incomplete table map (binlog_row_metadata below FULL) is completed from the CREATE and ALTER
  TABLE statements of the journals themselves, for all tables, chosen or not. `bare_table_maps`
  fills in and notes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.errors import CdcError
from cdc_pipeline.operations.inspect.bare_table_maps import BareTableMaps, BareTables
from cdc_pipeline.operations.inspect.change_lines import lines_of
from cdc_pipeline.operations.inspect.change_log import ChangeLog, LogPiece
from cdc_pipeline.operations.inspect.inputs import FileChunk, read_all
from cdc_pipeline.operations.inspect.journal_stream import numbered
from cdc_pipeline.operations.inspect.selection import OPERATIONS, STATEMENT, Selection
from cdc_pipeline.operations.inspect.summary import JournalSummary, SummaryBuilder
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.decode.schemas import journal_schemas

__all__ = ["Inspection", "JournalSummary", "changes", "inspect"]


class _ChangeWriter(Protocol):
    def add(self, piece: LogPiece, journal: str) -> None: ...


class Inspection:
    """One reading of some journals; `unknown_charset`: ``binary`` shows such texts as hex."""

    def __init__(
        self,
        selection: Selection | None = None,
        *,
        unknown_charset: str = "utf8mb4",
        annotations: bool = False,
    ) -> None:
        self.selection = selection or Selection()
        self._names: dict[str, str] = {}  # for people, by the names that the chunks have
        self.bare_tables = BareTables(unknown_charset)
        # another table may be renamed to a wanted name
        self._schemas = journal_schemas(lambda _database, _table: True)
        self.log = ChangeLog(
            self.selection,
            table_maps=lambda wanted: BareTableMaps(
                wanted,
                bare_tables=self.bare_tables,
                schemas=self._schemas,
                names=self.selection.names,
            ),
            on_statement=self._take_statement,
            annotations=annotations,
        )

    def _take_statement(self, query: Query, chunk: Chunk, row: int) -> None:
        event = chunk.events[row]
        self._schemas.apply(
            query,
            self.selection.parse(query, is_mariadb=chunk.journal_format.is_mariadb),
            journal=chunk.journal,
            offset=int(event["offset"]),
            time_us=int(event["commit_ts_us"]),
        )

    def pieces(
        self, chunks: Iterable[FileChunk], builder: SummaryBuilder | None = None
    ) -> Iterator[tuple[str, LogPiece]]:
        """With the journal's name for people; CdcError comes after everything before it."""
        for file_chunk in chunks:
            self._names[numbered(file_chunk.name)] = file_chunk.name
            with self._named_in_errors():
                if builder is not None:
                    builder.add_chunk(file_chunk.name, file_chunk.path, file_chunk.chunk)
                for piece in self.log.feed(file_chunk.chunk):
                    yield self._names[piece.chunk.journal], piece
            if self._is_past(file_chunk):
                break
        self.log.finish()

    @contextmanager
    def _named_in_errors(self) -> Iterator[None]:
        """Give an error the journal's name for people: inside, each name has a number."""
        try:
            yield
        except CdcError as error:
            error.journal = self._names.get(error.journal or "", error.journal)
            raise

    def lines(self, chunks: Iterable[FileChunk]) -> Iterator[bytes]:
        """Whole lines of JSON. Raises as `pieces`."""
        for name, piece in self.pieces(chunks):
            with self._named_in_errors():
                yield from lines_of(piece, self.selection, journal=name)

    def write(self, chunks: Iterable[FileChunk], writer: _ChangeWriter) -> None:
        """Pass all changes to `writer`. Raises as `pieces`, and what the writer raises."""
        for name, piece in self.pieces(chunks):
            with self._named_in_errors():
                writer.add(piece, name)

    def summary(self, chunks: Iterable[FileChunk]) -> JournalSummary:
        """An error is part of the summary."""
        builder = SummaryBuilder(everything=self.selection.is_everything)
        error: dict[str, object] | None = None
        try:
            for name, piece in self.pieces(chunks, builder):
                with self._named_in_errors():
                    builder.add_piece(name, piece)
        except CdcError as failure:
            error = failure.as_dict()
        counts = self.log.counts
        return builder.summary(
            abandoned=counts.abandoned, unfinished=counts.unfinished, error=error
        )

    def _is_past(self, found: FileChunk) -> bool:
        """Whether nothing wanted can follow: past the last position, outside a transaction."""
        place = self.selection.to_position
        if place is None or self.log.is_open:
            return False
        return Position(numbered(found.name), found.chunk.end_offset).order >= place.order


def inspect(
    paths: Sequence[Path], selection: Selection | None = None, *, stdin: BinaryIO | None = None
) -> JournalSummary:
    """Count what the journals hold, by event type and table."""
    inspection = Inspection(selection)
    return inspection.summary(read_all(paths, inspection.selection, stdin=stdin))


def changes(paths: Sequence[Path], *, table_patterns: Sequence[str] = ()) -> Iterator[str]:
    """Every change as a line of JSON, of tables that match shell patterns (by default all).

    Raises CdcError with journal and offset; what came before was yielded.
    """
    selection = Selection(
        tables=tuple(table_patterns), operations=frozenset(OPERATIONS) - {STATEMENT}
    )
    inspection = Inspection(selection)
    for block in inspection.lines(read_all(paths, selection)):
        yield from bytes(block).decode().split("\n")[:-1]
