"""Find where a snapshot begins: its low mark, and its tables' columns there (K17).

Rules:
- The low mark is the main cursor after a capture, once everything before it is proved to be
  committed; on MySQL without GTIDs it is an earlier place. If a change must not be applied twice to
  a table, it is the exact place of a view.
- The columns are those of the catalog, and no DDL of the tables may lie between the low mark and
  the catalog read: otherwise the low mark is taken again.
- No prepared XA transaction may be open there: no view would show its rows, and its changes lie
  before the log that is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.errors import CdcError, SnapshotError, SourceIdentityError
from cdc_pipeline.lake.long_operations import Operation, new_operation_id, rows_time_us
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.plan.needs_snapshot import TableChoice, past_lost
from cdc_pipeline.schema.source_table import Comments
from cdc_pipeline.source.rows.marks import exact_view
from cdc_pipeline.source.rows.table_reader import TableReader
from cdc_pipeline.targets.keys import identity_of
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.text.table_names import split_table_name, table_name

TRIES_MAX: Final = 10
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Started:
    """`view`: open, at exactly the low mark; None if no table needs it."""

    state: Operation
    schemas: Mapping[str, TableSchema]
    comments: Mapping[str, Comments]
    view: TableReader | None


@dataclass
class SnapshotBegin:
    """Search where a snapshot begins; `refused`: tables because of which it failed."""

    main: MainLake
    source: SnapshotSource
    refused: tuple[str, ...] = ()

    @contextmanager
    def start(self, chosen: TableChoice) -> Iterator[Started]:
        """Its view is open inside; SnapshotError if the tables change, or XA stays open, all the
        time.
        """
        with ExitStack() as stack:
            yield self._start(chosen, stack)

    def _start(self, chosen: TableChoice, stack: ExitStack) -> Started:
        _, cut = self.main.state()
        if lost := past_lost(self.main.config, cut, chosen.targets):
            assert cut is not None
            sources = {one for name in lost for one in cut.cursor.targets[name].source_names}
            self.refused = tuple(sorted(sources.intersection(chosen.sources)))
            raise next(iter(lost.values()))
        for _ in range(TRIES_MAX):
            cursor = self._cursor(chosen)
            exact = self._exact(self.source.schemas(chosen.sources))
            if exact:
                view = stack.enter_context(self.source.reader())
                low, time_us = self._opened(view, exact, since=cursor.position), now_us()
            else:
                view, low = None, self.source.proved(cursor.position)
                time_us = rows_time_us(cursor, self.main.state()[1])
            schemas, comments = self._schemas_at(low, chosen)
            if schemas and self._exact(schemas) == exact:
                state = self._state(chosen, cursor, low, time_us, exact)
                return Started(state, schemas, comments, view)
            if view is not None:
                view.close()
        raise SnapshotError(
            "DDL changes the tables so often that no position for a snapshot can be found",
            table=", ".join(chosen.sources),
            expected="no DDL of these tables between the end of the capture and the reading "
            "of their columns",
            next_step="run again when no DDL is running; on MySQL without GTIDs after "
            "FLUSH BINARY LOGS",
        )

    def _opened(self, view: TableReader, exact: tuple[str, ...], *, since: Position) -> Position:
        self.main.observer.step(f"opening a view at an exact position for {', '.join(exact)}")
        tables = [split_table_name(name) for name in exact]
        self.refused = exact
        timeout_s = self.main.config.snapshot.lock_wait_s
        mark = exact_view(view, timeout_s=timeout_s, tables=tables, since=since)
        self.refused = ()
        return mark

    def _cursor(self, chosen: TableChoice) -> CursorState:
        until_s = time.monotonic() + self.main.config.snapshot.lock_wait_s
        while True:
            cursor = self.main.capture(snapshot_of=chosen.targets)
            identity = self.source.live.identity
            if not cursor.identity.same_server(identity):
                raise SourceIdentityError(
                    "the server whose tables would be read is not the one that the "
                    "cursor belongs to",
                    expected=str(cursor.identity),
                    got=str(identity),
                    next_step=f"run `cdc-pipeline run {self.main.config.name}` first: it moves the "
                    "cursor to the new server",
                )
            if not cursor.open_xa:
                return cursor
            xids = ", ".join(xa.xid for xa in cursor.open_xa)
            if time.monotonic() >= until_s:
                raise SnapshotError(
                    "prepared XA transactions are open: no view shows their rows, and their "
                    "changes come before the snapshot",
                    setting="snapshot.lock_wait_s",
                    got=xids,
                    next_step="commit or roll back these XA transactions at the source, then run "
                    "the command again",
                )
            self.main.observer.step(f"waiting for the prepared XA transactions {xids} to end")
            time.sleep(_POLL_S)

    def _schemas_at(
        self, low: Position, chosen: TableChoice
    ) -> tuple[dict[str, TableSchema], dict[str, Comments]]:
        """With comments; none if a DDL lies behind the low mark."""
        names = set(chosen.sources)
        placed = self.source.live.catalog(
            lambda database, table: table_name(database, table) in names, since=low
        )
        assert placed is not None
        schemas = {schema.full_name: schema for schema, _ in placed.catalog.tables.values()}
        changed = {table_name(database, table) for database, table in placed.last_ddl if table}
        if changed & names:
            return {}, {}
        missing = tuple(sorted(names - schemas.keys()))
        if missing:
            self.refused = missing
            raise SnapshotError(
                f"the columns of {', '.join(missing)} are unknown: they have an unknown type, or "
                "were just dropped",
                table=missing[0],
                next_step="leave these tables out (tables.exclude), or GRANT SELECT on them",
            )
        comments = {table_name(*table): of for table, of in placed.catalog.comments.items()}
        return {name: schemas[name] for name in sorted(names)}, comments

    def _exact(self, schemas: Mapping[str, TableSchema]) -> tuple[str, ...]:
        """Source tables with a target that a change applied twice would corrupt."""
        routes = Routes(self.main.config)
        names = (name for name in schemas if self._is_exact(name, schemas[name], routes))
        return tuple(sorted(names))

    def _is_exact(self, name: str, schema: TableSchema, routes: Routes) -> bool:
        for route in routes.of_table(schema.full_name):
            try:
                how = identity_of(
                    route.rule,
                    source=name,
                    columns=schema.column_names,
                    source_key=schema.key_names,
                )
            except CdcError:
                self.refused = (name,)
                raise
            if keeps_every_change(how.mode, how.key):
                return True
        return False

    def _state(
        self,
        chosen: TableChoice,
        cursor: CursorState,
        low: Position,
        time_us: int,
        exact: tuple[str, ...],
    ) -> Operation:
        at: dict[str, object] = {"batch_number": 0, "targets": {}, "open_xa": ()}
        if low.order != cursor.position.order:
            at |= {"journal": low.journal, "offset": low.offset, "gtid_set": low.gtid_set}
            created_s = cursor.journal_created_s if low.journal == cursor.journal else 0
            at |= {"journal_created_s": created_s}
            at |= {"shadows": {}} if low.order < cursor.position.order else {}
        return Operation(
            operation_id=new_operation_id(),
            source=self.main.config.name,
            sources=chosen.sources,
            targets=chosen.targets,
            exact=exact,
            cursor=cursor.model_copy(update=at),
            time_us=time_us,
            rows_estimated={
                name: rows for name, (rows, _) in self.source.sizes(chosen.sources).items()
            },
        )
