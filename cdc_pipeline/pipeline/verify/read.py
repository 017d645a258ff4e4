"""Read a source table once for a comparison, between two cuts (K17).

    main capture -> cut C0, proved committed -> views, each opened behind C0 -> main capture -> cut C1, behind all views

Rules:
- A full read goes range by range, each in a view of its own. A read at an exact place uses a single
  view; the capture after it ends at that place, so that rows and cut are of the same moment.
- Keys may change between C0 and C1: they are passed to the comparison (`Changed`) and never
  compared.
- A DDL of the table between C0 and C1 invalidates the read (`DisturbedError`), and it is repeated.
- A table without a key at the source needs a view at an exact place. On a server that is never
  idle, a view of a table that does not change between C0 and C1 serves as well, because it shows
  the state of both cuts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.selected import LOAD_SEQS, SelectedRows
from cdc_pipeline.binlog.seq import journal_number, pack_seq
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, ServerSettingError, TableChangedError, TableReadInterruptedError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.pipeline.load.server import LoadSource
from cdc_pipeline.pipeline.targets.shape import shard_key
from cdc_pipeline.pipeline.targets.targets import Target, Targets
from cdc_pipeline.pipeline.verify.captures import Captures, Standing
from cdc_pipeline.pipeline.verify.keys import conditions, leads_back
from cdc_pipeline.pipeline.verify.report import Step
from cdc_pipeline.pipeline.verify.rows import SourceRows, recorded_of
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.verify.compare import DIFFERENCES, Changed, Kind
from cdc_pipeline.sink.verify.scratch import Scratch
from cdc_pipeline.sink.verify.sides import Sides
from cdc_pipeline.source.rows.key_ranges import KeyRange, plan_ranges, usable_key
from cdc_pipeline.source.rows.marks import Mark, exact_view
from cdc_pipeline.source.rows.table_reader import TableReader
from cdc_pipeline.text.table_names import split_table_name

_EXACT_TIMEOUT_S: Final = 5.0  # an exact view is not available on a MySQL server that is never idle
_ALWAYS_TIMEOUT_S: Final = 15.0

Exact = Literal["no", "if possible", "always"]


class DisturbedError(CdcError):
    """The table or its columns changed during the read, so that the read is invalid."""


class LeftError(CdcError):
    """The target no longer follows the table: it was suspended, dropped or renamed meanwhile."""


@dataclass(frozen=True)
class Reading:
    """Result of one read for a comparison.

    Attributes:
        sides: the two sides of the comparison, without the rows of the source.
        rows, ranges: that were read.
        unreadable: rows that the policies keep out of the lake.
        changed: keys that changed meanwhile.
        is_whole: every changed key is known, even one that appeared and disappeared between the
            cuts.
        exact: rows and cut are of the same moment.
        unproved: it is not proved that everything before the first cut is committed; an earlier
            place is used for it.
        before, after: the cuts that bracket the read.
        target: as it is known after the read, with a rescue column if a value needed one.
        shards: values of the shard column, of all source tables of the target; empty if it has no
            such column.
    """

    sides: Sides
    rows: int
    ranges: int
    unreadable: int
    changed: Changed
    is_whole: bool
    exact: bool
    unproved: bool
    before: Standing
    after: Standing
    target: Target
    shards: tuple[str, ...]

    @property
    def proved(self) -> tuple[Kind, ...]:
        """Return the differences that are proved.

        The seq of the lake's own row proves that it did not change. A missing key is proved only
        if every change is known: otherwise it may have been inserted and deleted in between.
        """
        return DIFFERENCES if self.is_whole else tuple(kind for kind in DIFFERENCES if kind != "missing")

    @property
    def open(self) -> tuple[Kind, ...]:
        """Return the differences that have to be checked again."""
        return ("left_out",) if self.is_whole else ("left_out", "missing")


@dataclass(frozen=True)
class What:
    """Selection of the source rows to read.

    Attributes:
        rows_per_range: of a full read.
        share: of the ranges that are read, chosen at random; 1 for all.
        seed: of that choice.
        keys: values of the target's key columns (n,): only the rows with these keys are read, if
            the values can be mapped back to the source.
        exact: whether all rows are read in one view at an exact place.
    """

    rows_per_range: int = 200_000
    share: float = 1.0
    seed: int = 0
    keys: Mapping[TargetColumn, pa.ChunkedArray] | None = None
    exact: Exact = "no"


class TableReading:
    """Reader of one source table for one target."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        captures: Captures,
        scratch: Scratch,
        name: str,
        source_table: str,
        on_step: Callable[[Step], None],
    ) -> None:
        self._config = config
        self._captures = captures
        self._scratch = scratch
        self._name = name
        self._source_table = source_table
        self._on_step = on_step
        self._targets: Targets | None = None

    def read(self, what: What, *, anew: bool = False) -> Reading:
        """Read between two captures; the rows are in the scratch folder under ``source``.

        Args:
            anew: ignore earlier captures, because a DDL may follow them.

        Raises:
            DisturbedError: a DDL came in between; read again.
            LeftError: the target no longer follows the table.
            TableReadInterruptedError, ServerSettingError: no view at an exact place (`What.exact`
                ``always``).
            CdcError: as capture and reader.
        """
        self._scratch.drop("changed")
        self._scratch.drop("unread")
        self._on_step(Step(self._name, "capturing"))
        before = self._captures.run() if anew else self._captures.recent()
        self._check_follows(before)
        with LoadSource(self._config, role="verify") as source:
            low = source.proved(before.position)
            schema = self._schema(source, before)
        targets = Targets(self._config, before.cut, shadows=before.cursor.shadows)
        self._targets = targets
        rows = SourceRows(targets, self._name)
        # From here on, everything that a batch stages counts as changed.
        self._captures.keep(lambda record: self._keep(record, rows.target))
        try:
            with TableReader(source.config) as reader:
                proved = low == before.position
                count, ranges, place = self._read_rows(reader, schema, rows, what, since=before.position, proved=proved)
            self._on_step(Step(self._name, "capturing", count))
            after, exact = self._bracket(before, place)
            exact = exact or (proved and self._is_quiet(before, after))
            self._on_step(Step(self._name, "comparing", count))
            if what.exact == "always" and not exact:
                raise DisturbedError(
                    "the table changed while it was read, and no view was at an exactly known place",
                    table=self._name,
                    next_step="verify again when less is written to it",
                )
        finally:
            self._captures.keep(None)
        self._check_undisturbed(before, after)
        sides = self._sides(rows, after)
        target = rows.target
        unchanged = exact or after.cut.batch_number == before.cut.batch_number
        return Reading(
            sides=sides,
            rows=count,
            ranges=ranges,
            unreadable=rows.unreadable,
            changed=Changed() if exact else self._changed(before, low, nothing=unchanged and proved),
            is_whole=exact
            or (
                proved
                and self._captures.changes.is_whole(
                    self._name, after=before.cut.batch_number, upto=after.cut.batch_number
                )
            ),
            exact=exact,
            unproved=not exact and not proved,
            before=before,
            after=after,
            target=target,
            shards=tuple(filter(None, (self._shard(source, target) for source in target.spec.sources))),
        )

    # -- the rows -----------------------------------------------------------------------------------------------------

    def _schema(self, source: LoadSource, before: Standing) -> TableSchema:
        """Return the table's columns, as they are since the cut."""
        database, table = split_table_name(self._source_table)
        placed = source.live.catalog(lambda d, t: (d, t) == (database, table), since=before.position)
        told = placed.catalog.tables.get((database, table)) if placed is not None else None
        if placed is not None and (database, table) in placed.last_ddl:
            raise DisturbedError("the table was altered meanwhile", table=self._source_table)
        if told is None:
            raise DisturbedError("the source has no such table, or does not show it", table=self._source_table)
        return source.with_key(told[0])

    def _read_rows(
        self, reader: TableReader, schema: TableSchema, rows: SourceRows, what: What, *, since: Position, proved: bool
    ) -> tuple[int, int, Mark | None]:
        """Write rows to the scratch folder; return their count, ranges and exact place."""
        count = ranges = 0
        seq = pack_seq(1, 1, 4)  # the time is not looked at: values are compared
        now_us = time.time_ns() // 1000

        def take(some: SelectedRows) -> None:
            nonlocal count
            staged = rows.take(some.as_inserts(seq_first=seq, commit_ts_us=now_us))
            if staged is not None:
                count += staged.table.num_rows
                writer.write(staged)
            unread = rows.take_unread(compared_key(rows.target, self._source_table)) if rows.unreadable else None
            if unread is not None:
                self._scratch.add_table("unread", unread)

        take_nothing = SelectedRows(schema, _empty(schema))
        writer = self._scratch.rows("source", recorded_of(rows.target))
        place = None
        try:
            with _changes_void_it():
                take(take_nothing)
                place = self._begin_exact(reader, what, since=since, proved=proved)
                whole = what.exact == "always"
                if place is None and whole:
                    reader.begin_view()
                for bounds, where in self._selections(reader, schema, what, in_view=whole or place is not None):
                    if place is None and not whole:
                        reader.begin_view()
                    for batch in reader.select(schema, bounds=bounds, where=where):
                        take(batch)
                    ranges += 1
                    self._on_step(Step(self._name, "reading", count))
                    if place is None and not whole:
                        reader.end_view()
        finally:
            writer.close()
        return count, ranges, place

    def _begin_exact(self, reader: TableReader, what: What, *, since: Position, proved: bool) -> Mark | None:
        """Return the place of the view that is open; None if there is none.

        Args:
            since: of the first cut.
            proved: everything before it is committed: a view of an unchanged table is then exact
                too.
        """
        if what.exact == "no":
            return None
        database, table = split_table_name(self._source_table)
        try:
            return exact_view(
                reader,
                timeout_s=_ALWAYS_TIMEOUT_S if what.exact == "always" else _EXACT_TIMEOUT_S,
                tables=[(database, table)],
                since=since,
            )
        except (TableReadInterruptedError, ServerSettingError):
            if what.exact == "always" and not proved:
                raise
            return None

    def _selections(
        self, reader: TableReader, schema: TableSchema, what: What, *, in_view: bool
    ) -> Iterator[tuple[KeyRange | None, str]]:
        """Yield the range and condition of each SELECT."""
        if what.keys is not None:
            asked = self._asked(schema, what.keys)
            if asked is not None:
                yield from ((None, condition) for condition in asked)
                return
        key = usable_key(reader, schema)
        if in_view or not key:
            yield None, ""
            return
        chosen = random.Random(what.seed)  # noqa: S311 - a sample of ranges
        for number, bounds in enumerate(plan_ranges(reader, schema, key, what.rows_per_range)):
            # A sample always includes the first range, so that it is never empty.
            if what.share >= 1 or number == 0 or chosen.random() < what.share:
                yield bounds, ""

    def _asked(self, schema: TableSchema, keys: Mapping[TargetColumn, pa.ChunkedArray]) -> Iterator[str] | None:
        """Return conditions for rows by the target's keys; None if none can be made."""
        assert self._targets is not None
        masked = self._targets.masks.schema(schema)
        renamed = {
            there: here for here, there in self._targets.named(self._name).spec.sources[self._source_table].names
        }
        types = {renamed.get(column.name, column.name): column.delta_type for column in keys}
        if not leads_back(masked, list(types), types):
            return None
        return conditions(schema, list(types), list(keys.values()))

    # -- what is compared ---------------------------------------------------------------------------------------------

    def _bracket(self, before: Standing, place: Mark | None) -> tuple[Standing, bool]:
        """Return the cut behind the views, and whether it is exactly at their place."""
        if place is None:
            return self._captures.run(), False
        if place.position.order <= before.position.order:
            # The view is not behind the cursor, and includes every transaction up to it.
            after = self._captures.standing()
            return after, after.cut.batch_number == before.cut.batch_number
        after = self._captures.run(place.position)
        # Another run may have captured further.
        return after, after.position.order == place.position.order

    def _is_quiet(self, before: Standing, after: Standing) -> bool:
        """Return whether the log shows no change of the table between the two cuts."""
        numbers = {"after": before.cut.batch_number, "upto": after.cut.batch_number}
        return self._captures.changes.is_quiet(self._name, **numbers)

    def _changed(self, before: Standing, low: Position, *, nothing: bool) -> Changed:
        if nothing:
            return Changed()
        at = before.position if low == before.position else low
        seq = pack_seq(before.cursor.epoch, journal_number(at.journal), at.offset)
        # Loads and repairs take the first places of this position: their rows are before it, not
        # behind.
        return Changed(files=tuple(self._scratch.files("changed")), after_seq=seq + 2 * LOAD_SEQS - 1)

    def _keep(self, record: BatchRecord, target: Target) -> None:
        for recorded in record.targets:
            if recorded.table == self._name and compared_key(target, self._source_table):
                self._scratch.add_touched("changed", recorded, compared_key(target, self._source_table))

    def _check_follows(self, at: Standing) -> None:
        held = at.cut.cursor.suspended.get(self._name)
        if held is not None:
            raise LeftError(
                f"suspended meanwhile at {held.position}: {held.error}: {held.what}",
                table=self._name,
                next_step=held.next_step,
            )
        table = at.cut.tables.get(self._name)
        source = None if table is None else table.spec.sources_of(self._name).get(self._source_table)
        if source is None or source.gone:
            raise LeftError(
                f"the source has dropped or renamed {self._source_table} meanwhile",
                table=self._name,
                next_step="verify again",
            )

    def _check_undisturbed(self, before: Standing, after: Standing) -> None:
        self._check_follows(after)
        if _essence(before.cut, self._name) != _essence(after.cut, self._name):
            raise DisturbedError("a DDL changed the table while it was read", table=self._name)

    def _sides(self, rows: SourceRows, after: Standing) -> Sides:
        target = rows.target
        recorded = recorded_of(target)
        told = set(rows.told)
        shape, shard = target.spec.shape, None
        if shape is not None and shape.shard_column:
            shard = shape.shard_column, self._shard(self._source_table, target)
        return Sides(
            target=recorded,
            columns=tuple(column.name for column in recorded.spec.columns if column.name in told),
            key=compared_key(target, self._source_table),
            path=LakePaths(self._config.sink.lake_path.absolute(), self._config.name).table(self._name),
            version=after.cut.tables[self._name].table_version,
            shard=shard,
            given=after.cut.tables[self._name].given,
        )

    def _shard(self, source_table: str, target: Target) -> str:
        assert self._targets is not None
        if target.spec.shape is None or not target.spec.shape.shard_column:
            return ""
        routes = self._targets.routes_of(*split_table_name(source_table))
        return next((route.shard for route in routes if route.target == target.name), "")


def compared_key(target: Target, source_table: str) -> tuple[str, ...]:
    """Return the columns that identify rows: the key (a changelog: the source's), or () for all."""
    if MODES[target.spec.mode].has_key:
        return target.spec.key
    key = target.spec.sources[source_table].key_in_target
    return key + shard_key(target.spec.shape) if key else ()


def _essence(cut: Cut, name: str) -> tuple[object, ...]:
    """Return the parts of a target that row changes do not affect."""
    table = cut.tables[name]
    app_id = cut.cursor.targets[name].app_id
    return (app_id, table.spec.columns, table.spec.key, table.spec.sources, table.spec.shape, table.spec.mode)


def _empty(schema: TableSchema) -> pa.RecordBatch:
    arrays = [pa.nulls(0, arrow_type(column)) for column in schema.columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(schema.column_names))


@contextmanager
def _changes_void_it() -> Iterator[None]:
    """Return the error for a table that was altered during the read, which makes the read invalid."""
    try:
        yield
    except TableChangedError as error:
        raise DisturbedError(error.what, table=error.table, got=error.got, next_step=error.next_step) from error
