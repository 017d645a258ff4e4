"""Show what journals hold: a summary, JSON lines, or Parquet files. Needs no server.

Rules:
- Journals are read in the order of their numbers; each must begin at its start (the magic bytes).
- What cannot be shown stops with journal and offset, after everything before it.
- An incomplete table map (binlog_row_metadata below FULL) is completed from the CREATE and ALTER
  TABLE statements of the journals themselves, for all tables, chosen or not. `bare_table_maps`
  fills in and notes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.errors import CdcError
from cdc_pipeline.operations.inspect.bare_table_maps import BareTables
from cdc_pipeline.operations.inspect.change_log import ChangeLog, Changes, LogPiece
from cdc_pipeline.operations.inspect.inputs import FileChunk, shown_name
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.operations.inspect.summary import JournalSummary, SummaryBuilder
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.decode.schemas import AskCatalog, journal_schemas
from cdc_pipeline.transaction.table_maps import TableMaps

if TYPE_CHECKING:
    from cdc_pipeline.operations.inspect.change_files import ChangeFiles

# The seq of a statement in epoch 1, and the new names by the old ones, in small letters.
ColumnRenames = tuple[int, dict[str, str]]


class Inspection:
    """One reading of some journals; `unknown_charset`: ``binary`` shows such texts as hex; `ask`:
    for a server's catalog, if one is there; `annotations`, `current`: as `ChangeLog`; `to_end`:
    read statements behind the selection, too. `renames`: of columns of wanted tables, in order;
    `is_done`: nothing wanted can follow.
    """

    def __init__(
        self,
        selection: Selection | None = None,
        *,
        unknown_charset: str = "utf8mb4",
        annotations: bool = False,
        current: bool = False,
        to_end: bool = False,
        ask: AskCatalog = lambda _captured: None,
    ) -> None:
        self.selection = selection or Selection()
        self.renames: list[ColumnRenames] = []
        self._to_end = to_end
        self.is_done = False
        self.bare_tables = BareTables(unknown_charset)
        # another table may be renamed to a wanted name
        self.schemas = journal_schemas(ask)
        maps = TableMaps(
            self.selection.wants_table,
            schemas=self.schemas,
            completes=self.bare_tables.completed,
            names=self.selection.names,
        )
        self.log = ChangeLog(
            self.selection,
            maps,
            on_statement=self._take_statement,
            annotations=annotations,
            current=current,
        )

    def _take_statement(self, query: Query, chunk: Chunk, row: int) -> None:
        event = chunk.events[row]
        statement = self.selection.parse(query, is_mariadb=chunk.journal_format.is_mariadb)
        renamed = {a.name.lower(): a.new_name.lower() for a in statement.actions if a.new_name}
        if renamed and any(self.selection.wants_table(*table) for table in statement.tables):
            place = seq_of_place(1, chunk.journal, int(event["offset"]))
            self.renames.append((place, renamed))
        self.schemas.apply(
            query,
            statement,
            lambda _database, _table: True,
            journal=chunk.journal,
            offset=int(event["offset"]),
            time_us=int(event["commit_ts_us"]),
        )

    def changes(self, chunks: Iterable[FileChunk]) -> Iterator[tuple[LogPiece, Changes]]:
        for _, chunk in chunks:
            for piece in self.log.feed(chunk):
                yield from piece.decoded()
            self.is_done = self.is_done or self._is_past(chunk)
            if self.is_done and not self._to_end:
                break
        self.log.finish()

    def lines(self, chunks: Iterable[FileChunk]) -> Iterator[bytes]:
        """Whole lines of JSON. CdcError comes after everything before it."""
        from cdc_pipeline.operations.inspect.change_lines import lines_of  # late: lines alone

        with _shown_in_errors():
            for piece, its_changes in self.changes(chunks):
                yield from lines_of(piece, its_changes, self.selection)

    def write(self, chunks: Iterable[FileChunk], writer: ChangeFiles) -> None:
        """Raises CdcError, after everything before it was passed on, and as `writer`."""
        with _shown_in_errors():
            for piece, its_changes in self.changes(chunks):
                writer.add(piece, its_changes)

    def summary(self, chunks: Iterable[FileChunk]) -> JournalSummary:
        """An error is part of the summary."""
        builder = SummaryBuilder(everything=self.selection == Selection())
        try:
            with _shown_in_errors():
                for piece, its_changes in self.changes(builder.seen(chunks)):
                    builder.add_piece(piece, its_changes)
        except CdcError as error:
            builder.summary.error = error.as_dict()
        builder.summary.abandoned = self.log.counts.abandoned
        builder.summary.unfinished = self.log.counts.unfinished
        return builder.finish()

    def _is_past(self, chunk: Chunk) -> bool:
        """Whether nothing wanted can follow: past the last position, outside a transaction."""
        place = self.selection.to_position
        if place is None or self.log.is_open:
            return False
        return Position(chunk.journal, chunk.end_offset).order >= place.order


@contextmanager
def _shown_in_errors() -> Iterator[None]:
    try:
        yield
    except CdcError as error:
        error.journal = None if error.journal is None else shown_name(error.journal)
        raise
