"""Schema history of a run: queried by table maps, updated by DDL, stored with the lake.

Rules:
- It begins as it was at the start of the read, and is queried by place: the order of queries does
  not matter.
- A read that goes on in another server's log restates what held where the earlier log was left, at
  the first transaction that is read. The read's start does not do: a dump by GTID set may begin
  long before it, and a target that catches up reads that part again (K4).
- The catalog is read at most once in a run, when the first table appears that the history does not
  know. Its columns count only for places from which no DDL of the table lies before the catalog
  read (`source/live/catalog.py`). A run that has read the log to its end, and a first run with
  nothing to read, ask it for what is lacking: later DDL applies to what it says.
- It is written before the record or cursor that refers to it (`Committer`), and only if it has
  changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.ddl.statement import Statement
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply, table_at
from cdc_pipeline.schema.history.history import Origin, SchemaHistory, Version
from cdc_pipeline.schema.programs import StoredPrograms
from cdc_pipeline.schema.source_table import SourceTable
from cdc_pipeline.text.table_names import split_table_name

if TYPE_CHECKING:  # `cdc-pipeline binlog` reads journals without a lake, a server and its cursors
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.lake.schema_history import SchemaHistoryFile
    from cdc_pipeline.position.cursor import CursorState
    from cdc_pipeline.run.plan.resolved_run import LogRange
    from cdc_pipeline.source.protocol import PlacedCatalog, Source

_NO_TABLE = (
    "no statement in the part of the log that was read created it, and no catalog shows it "
    "at this position"
)

Captured = Callable[[str, str], bool]
AskCatalog = Callable[[Captured], "PlacedCatalog | None"]
AskPrograms = Callable[[], StoredPrograms | None]


def journal_schemas(ask: AskCatalog = lambda _captured: None) -> Schemas:
    """Built from the journals' statements and a catalog, if there is one, and not stored."""
    return Schemas(
        SchemaHistory(),
        file=None,
        epoch=1,
        start=Position("journal.000000", 4),
        ask=ask,
    )


class Schemas:
    """`transaction.table_maps.KnownSchemas`, in the drain's thread. `corrections`: what `observed`
    has added; `programs`: the server's triggers, views, routines and cascades, if it shows all.
    """

    def __init__(
        self,
        history: SchemaHistory,
        *,
        file: SchemaHistoryFile | None,
        epoch: int,
        start: Position,
        ask: AskCatalog,
        captured: Captured = lambda _database, _table: True,
        left: int | None = None,
        kept_us: int = 0,
        ask_programs: AskPrograms = lambda: None,
    ) -> None:
        """`captured`: tables that the catalog is asked for, until `apply` says otherwise; `left`:
        where another log was left; `kept_us`: how long versions stay that no position needs.
        """
        self.programs = cache(ask_programs)
        self._history = history
        self._file = file
        self._epoch = epoch
        self._start = start
        self._left = left
        self._ask = ask
        self._captured = captured
        self._has_read_catalog = False
        self._kept_us = kept_us
        self.corrections: list[tuple[TableSchema, str, int]] = []

    @property
    def awaits_begin(self) -> bool:
        """Whether it goes on from another log and does not know yet where (`reached`)."""
        return self._left is not None

    def reached(self, at: Position) -> None:
        """Take over what is known from another log, once: nothing of this one lies before `at`."""
        if self._left is None:
            return
        self._start = at
        # A statement without a GTID event is the first event of its own transaction: what holds
        # right before it is looked up one seq before it.
        self._history.restate(self._left, at.seq(self._epoch) - 1)
        self._left = None

    # -- asked by table maps -----------------------------------------------------------------------

    def known(self, database: str, table: str, journal: str, offset: int) -> TableSchema | None:
        """At a place; from the catalog if the history lacks it."""
        version = self._version(database, table, journal, offset)
        if not _is_whole(version) and self.ask_catalog():
            version = self._version(database, table, journal, offset)
        return None if version is None else version.schema

    def before(self, database: str, table: str, journal: str, offset: int) -> SourceTable | None:
        """Right before a statement at a place; None if it is not known."""
        place = seq_of_place(self._epoch, journal, offset) - 1
        before = table_at(self._history, database, table, place)
        if (before is None or before.generated is None) and self.ask_catalog():
            before = table_at(self._history, database, table, place)
        if before is None or before.generated is not None:
            return before
        # A table map lacks them; the catalog has them if the statement is the table's last one.
        after = self._version(database, table, journal, offset)
        is_later = after is not None and after.place > place
        return replace(before, generated=after.generated) if after and is_later else before

    def after(self, database: str, table: str, journal: str, offset: int) -> TableSchema | None:
        """Right after a statement, by the catalog; None if no catalog has it."""
        self.ask_catalog()
        version = self._version(database, table, journal, offset)
        place = seq_of_place(self._epoch, journal, offset)
        if version is None or version.origin is not Origin.CATALOG or version.place != place:
            return None
        return version.schema

    def why_unknown(self, database: str, table: str, journal: str, offset: int) -> str:
        version = self._version(database, table, journal, offset)
        return _NO_TABLE if version is None else version.why or _NO_TABLE

    def observed(self, schema: TableSchema, journal: str, offset: int) -> None:
        place = seq_of_place(self._epoch, journal, offset)
        version = self._history.at(schema.database, schema.table, place)
        generated, origin = None, Origin.TABLE_MAP
        if version is not None and version.schema is not None:
            recorded = version.schema
            if _essence(recorded) == _essence(schema):
                return
            if _essence(_filled(recorded, schema)) == _essence(schema):
                # no contradiction: the map fills in what a DDL's text left open
                generated = version.generated
            if _names(recorded) == _names(schema):
                origin = version.origin
        self.corrections.append((schema, journal, offset))
        charset = "" if version is None else version.charset
        corrected = Version(place, origin, schema, charset, generated=generated)
        self._history.add(schema.database, schema.table, corrected)

    def _version(self, database: str, table: str, journal: str, offset: int) -> Version | None:
        return self._history.at(database, table, seq_of_place(self._epoch, journal, offset))

    # -- the catalog -------------------------------------------------------------------------------

    def know_all(self, tables: Iterable[str], at: Position, captured: Captured) -> bool:
        """Whether nothing lacks at a place of the captured ones of these (``schema.table``)."""
        place = at.seq(self._epoch)
        return all(
            _is_whole(version := self._history.at(*name, place))
            and version is not None
            and version.generated is not None
            for name in map(split_table_name, tables)
            if captured(*name)
        )

    def ask_catalog(self) -> bool:
        """Once in a run; False if that was done before, or there is none. Raises as reading it."""
        if self._has_read_catalog:
            return False
        placed = self._ask(self._captured)
        self._has_read_catalog = True
        if placed is None:
            return False
        for (database, table), (schema, charset) in placed.catalog.tables.items():
            self._install(placed, database, table, schema, charset)
        for database, charset in placed.catalog.databases.items():
            self._install(placed, database, "", None, charset)
        return True

    def _install(
        self,
        placed: PlacedCatalog,
        database: str,
        table: str,
        schema: TableSchema | None,
        charset: str,
    ) -> None:
        last = placed.last_ddl.get((database, table))
        place = self._start.seq(self._epoch) if last is None else seq_of_place(self._epoch, *last)
        version = self._history.at(database, table, place)
        is_known = _is_whole(version) if table else version is not None
        generated = placed.catalog.generated.get((database, table))
        if not is_known or (last is not None and version is not None and version.place < place):
            current = Version(place, Origin.CATALOG, schema, charset, generated=generated)
            self._history.add(database, table, current)
        if generated is not None:
            self._history.know_generated(database, table, place, generated)

    # -- kept up -----------------------------------------------------------------------------------

    def apply(
        self,
        query: Query,
        statement: Statement,
        captured: Captured,
        *,
        journal: str,
        offset: int,
        time_us: int,
    ) -> None:
        """`statement` is what the query's text says; `captured`: tables kept from here on."""
        self._captured = captured
        logged = LoggedStatement(
            statement,
            seq_of_place(self._epoch, journal, offset),
            error_code=query.error_code,
            server_charset=query.server_charset,
            time_us=time_us,
        )
        apply(self._history, logged, captured)

    def save(self, cursor: CursorState | None, *, source_time_us: int) -> None:
        """Without versions that neither the cursor nor a suspended target needs; every version of
        the time kept before `source_time_us`, the last commit, stays (K7).
        """
        if cursor is not None:
            self._history = self._history.compacted(
                _oldest(cursor), keep_since_us=source_time_us - self._kept_us
            )
        if self._history.changed and self._file is not None:
            self._file.write(self._history)
            self._history = replace(self._history, changed=False)


def _is_whole(version: Version | None) -> bool:
    """Whether a version contains all that a table map may lack."""
    return (
        version is not None
        and version.schema is not None
        and all(column.charset or column.kind is not Kind.TEXT for column in version.schema.columns)
    )


def _oldest(cursor: CursorState) -> int:
    suspended = (suspension.seq for suspension in cursor.suspended.values())
    return min([cursor.seq, *suspended, *(xa.seq for xa in cursor.open_xa)])


def _filled(recorded: TableSchema, schema: TableSchema) -> TableSchema:
    if len(recorded.columns) != len(schema.columns):
        return recorded
    columns = tuple(
        replace(
            column,
            charset=column.charset or seen.charset,
            fraction_digits=seen.fraction_digits
            if column.fraction_digits < 0
            else column.fraction_digits,
        )
        for column, seen in zip(recorded.columns, schema.columns, strict=True)
    )
    return replace(recorded, columns=columns)


def _names(schema: TableSchema) -> tuple[tuple[str, ...], ...]:
    return schema.column_names, schema.key_names


def _essence(schema: TableSchema) -> tuple[tuple[Column, ...], tuple[int, ...]]:
    return tuple(
        replace(
            column,
            wire_type=0,
            wire_meta=0,
            nullable=True,
            char_length_max=0,
            unsigned=column.unsigned and column.type.has_sign,
        )
        for column in schema.columns
    ), schema.primary_key


def history_file(config: PipelineConfig) -> SchemaHistoryFile:
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.lake.schema_history import SchemaHistoryFile

    return SchemaHistoryFile(LakePaths.of(config).schema_history)


def schemas_of(
    config: PipelineConfig,
    *,
    source: Source,
    run: LogRange,
    cursor: CursorState | None,
    captured: Captured,
    left: int | None = None,
) -> Schemas:
    """For a run from `run.start` on. `cursor`: up to which the history is complete; `left`: where
    another server's log was left. LakeStateError: it is damaged.
    """
    file, start = history_file(config), run.start
    # Without a cursor it is unknown what lies between a leftover history and the start.
    history = SchemaHistory()
    if cursor is not None:
        history = file.read().up_to(cursor.seq)
    return Schemas(
        history,
        file=file,
        epoch=run.epoch,
        start=start,
        ask=lambda captured: source.catalog(captured, since=run.read_from),
        captured=captured,
        ask_programs=lambda: source.programs(since=run.read_from),
        left=left,
        # Twice the interval, as for the history of the last transactions
        # (run/plan/server_switch.py).
        kept_us=2 * round(getattr(config.source, "fallback_interval_s", 0.0) * 1_000_000),
    )
