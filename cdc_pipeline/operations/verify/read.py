"""Read a source table once for a comparison (K17).

Rules:
- A full read goes range by range, each in a view of its own. A read at an exact place uses a single
  view (`view.py`).
- Keys may change between the two cuts of a read: they are passed to the comparison (`Changed`) and
  never compared.
- A table without a key at the source needs a view at an exact place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.selected import SNAPSHOT_SEQS, SelectedRows
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.operations.verify.captures import Captures, SourceState
from cdc_pipeline.operations.verify.keys import conditions, leads_back
from cdc_pipeline.operations.verify.report import Step
from cdc_pipeline.operations.verify.rows import SourceRows, recorded_of
from cdc_pipeline.operations.verify.view import Exact, ProvenView, ViewLostError, changes_void_it
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.target_spec import shard_key
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.verify.compare import DIFFERENCES, Changed, Kind
from cdc_pipeline.sink.verify.scratch import Scratch
from cdc_pipeline.sink.verify.sides import ComparisonSql
from cdc_pipeline.source.rows.key_ranges import plan_ranges
from cdc_pipeline.source.rows.table_reader import KeyRange, TableReader
from cdc_pipeline.targets.targets import Target, Targets


@dataclass(frozen=True)
class Reading:
    """Result of one read for a comparison.

    Attributes:
        sides: without the rows of the source.
        unreadable: rows that the policies keep out of the lake.
        changed: keys that changed meanwhile.
        is_whole: every changed key is known, even one that appeared and disappeared between the
            cuts.
        exact: rows and cut are of the same moment.
        unproved: it is not proved that everything before the first cut is committed; an earlier
            place is used for it.
        before, after: the cuts that bracket the read.
        target: as it is known after the read, with a rescue column if a value needed one.
        shards: values of the shard column, of all source tables of the target.
    """

    sides: ComparisonSql
    rows: int
    ranges: int
    unreadable: int
    changed: Changed
    is_whole: bool
    exact: bool
    unproved: bool
    before: SourceState
    after: SourceState
    target: Target
    shards: tuple[str, ...]

    @property
    def proved(self) -> tuple[Kind, ...]:
        """The differences that are proved.

        The seq of the lake's own row proves that it did not change. A missing key is proved only
        if every change is known: otherwise it may have been inserted and deleted in between.
        """
        return (
            DIFFERENCES
            if self.is_whole
            else tuple(kind for kind in DIFFERENCES if kind != "missing")
        )

    @property
    def open(self) -> tuple[Kind, ...]:
        """The differences that have to be checked again."""
        return ("left_out",) if self.is_whole else ("left_out", "missing")


@dataclass(frozen=True)
class ReadRequest:
    """Source rows to read: `share` of the ranges, chosen by `seed`, or those with target `keys`
    (n,) if their values can be mapped back to the source. `exact`: all in one view at an exact
    place.
    """

    rows_per_range: int = 200_000
    share: float = 1.0
    seed: int = 0
    keys: Mapping[TargetColumn, pa.ChunkedArray] | None = None
    exact: Exact = "no"


class TableReading:
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

    def read(self, request: ReadRequest, *, is_fresh: bool = False) -> Reading:
        """Read between two captures; the rows are in the scratch folder under ``source``.

        `is_fresh`: ignore earlier captures, because a DDL may follow them.

        Raises:
            ViewLostError: a DDL came in between; read again.
            NotFollowedError: the target no longer follows the table.
            TableReadInterruptedError, ServerSettingError: no view at an exact place
                (`ReadRequest.exact` ``always``).
        """
        self._scratch.drop("changed")
        self._scratch.drop("unread")
        self._on_step(Step(self._name, "capturing"))
        before = self._captures.run() if is_fresh else self._captures.recent()
        view = ProvenView(
            self._config, self._captures, self._source_table, targets=[self._name], before=before
        )
        targets = Targets(self._config, before.cut, before.cursor)
        self._targets = targets
        rows = SourceRows(targets, self._name)
        # From here on, everything that a batch stages counts as changed.
        self._captures.keep(lambda record: self._keep(record, rows.target))
        try:
            with TableReader(view.server) as reader:
                count, ranges, place = self._read_rows(reader, view, rows, request)
            self._on_step(Step(self._name, "capturing", count))
            after, exact = view.end(place)
            self._on_step(Step(self._name, "comparing", count))
            if request.exact == "always" and not exact:
                raise ViewLostError(
                    "the table changed while it was being read, and no view was at an "
                    "exactly known position",
                    table=self._name,
                    next_step="verify again when fewer writes change it",
                )
        finally:
            self._captures.keep(None)
        view.check_undisturbed(after)
        proved = view.is_proved
        sides = self._sides(rows, after)
        target = rows.target
        unchanged = exact or after.cut.batch_number == before.cut.batch_number
        return Reading(
            sides=sides,
            rows=count,
            ranges=ranges,
            unreadable=rows.unreadable,
            changed=Changed()
            if exact
            else self._changed(before, view.low, nothing=unchanged and proved),
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
            shards=tuple(
                filter(None, (self._shard(source, target) for source in target.spec.sources))
            ),
        )

    # -- the rows ----------------------------------------------------------------------------------

    def _read_rows(
        self, reader: TableReader, view: ProvenView, rows: SourceRows, request: ReadRequest
    ) -> tuple[int, int, Position | None]:
        schema = view.schema
        count = ranges = 0
        seq = pack_seq(1, 1, 4)  # the time is not looked at: values are compared
        at_us = now_us()

        def take(some: SelectedRows) -> None:
            nonlocal count
            staged = rows.take(some.as_inserts(seq_first=seq, commit_ts_us=at_us))
            if staged is not None:
                count += staged.table.num_rows
                writer.write(staged)
            unread = (
                rows.take_unread(compared_key(rows.target, self._source_table))
                if rows.unreadable
                else None
            )
            if unread is not None:
                self._scratch.add_table("unread", unread)

        take_nothing = SelectedRows(schema, _empty(schema))
        writer = self._scratch.rows("source", recorded_of(rows.target))
        place = None
        try:
            with changes_void_it():
                take(take_nothing)
                place = view.begin(reader, request.exact)
                whole = request.exact == "always"
                if place is None and whole:
                    reader.begin_view()
                for bounds, where in self._selections(
                    reader, schema, request, in_view=whole or place is not None
                ):
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

    def _selections(
        self, reader: TableReader, schema: TableSchema, request: ReadRequest, *, in_view: bool
    ) -> Iterator[tuple[KeyRange | None, str]]:
        if request.keys is not None:
            wanted = self._conditions(schema, request.keys)
            if wanted is not None:
                yield from ((None, condition) for condition in wanted)
                return
        if in_view or not schema.primary_key:
            yield None, ""
            return
        chosen = random.Random(request.seed)  # noqa: S311 - a sample of ranges
        for number, bounds in enumerate(plan_ranges(reader, schema, request.rows_per_range)):
            # A sample always includes the first range, so that it is never empty.
            if request.share >= 1 or number == 0 or chosen.random() < request.share:
                yield bounds, ""

    def _conditions(
        self, schema: TableSchema, keys: Mapping[TargetColumn, pa.ChunkedArray]
    ) -> Iterator[str] | None:
        """None if none can be made."""
        assert self._targets is not None
        masked = self._targets.masks.schema(schema)
        renamed = {
            there: here
            for here, there in self._targets.now.targets[self._name]
            .spec.sources[self._source_table]
            .names
        }
        types = {renamed.get(column.name, column.name): column.delta_type for column in keys}
        if not leads_back(masked, list(types), types):
            return None
        return conditions(schema, list(types), list(keys.values()))

    # -- what is compared --------------------------------------------------------------------------

    def _changed(self, before: SourceState, low: Position, *, nothing: bool) -> Changed:
        if nothing:
            return Changed()
        at = before.position if low == before.position else low
        seq = at.seq(before.cursor.epoch)
        # Loads and repairs take the first places of this position: their rows are before it, not
        # behind.
        return Changed(
            files=tuple(self._scratch.files("changed")), after_seq=seq + 2 * SNAPSHOT_SEQS - 1
        )

    def _keep(self, record: BatchRecord, target: Target) -> None:
        for recorded in record.targets:
            if recorded.table == self._name and compared_key(target, self._source_table):
                self._scratch.add_touched(
                    "changed", recorded, compared_key(target, self._source_table)
                )

    def _sides(self, rows: SourceRows, after: SourceState) -> ComparisonSql:
        target = rows.target
        recorded = recorded_of(target)
        supplied = set(rows.supplied_columns)
        shape, shard = target.spec.shape, None
        if shape is not None and shape.shard_column:
            shard = shape.shard_column, self._shard(self._source_table, target)
        return ComparisonSql(
            target=recorded,
            columns=tuple(
                column.name for column in recorded.spec.columns if column.name in supplied
            ),
            key=compared_key(target, self._source_table),
            path=LakePaths(self._config.sink.lake_path.absolute(), self._config.name).table(
                self._name
            ),
            version=after.cut.tables[self._name].table_version,
            shard=shard,
            column_defaults=after.cut.tables[self._name].column_defaults,
            layouts=after.cut.tables[self._name].layouts,
            source_table=self._source_table,
        )

    def _shard(self, source_table: str, target: Target) -> str:
        assert self._targets is not None
        if target.spec.shape is None or not target.spec.shape.shard_column:
            return ""
        routes = self._targets.routes_of(source_table)
        return next((route.shard for route in routes if route.target == target.name), "")


def compared_key(target: Target, source_table: str) -> tuple[str, ...]:
    """Columns that identify rows: the key (a changelog: the source's), or () for all."""
    if MODES[target.spec.mode].has_key:
        return target.spec.key
    key = target.spec.sources[source_table].key_in_target
    return key + shard_key(target.spec.shape) if key else ()


def _empty(schema: TableSchema) -> pa.RecordBatch:
    arrays = [pa.nulls(0, arrow_type(column)) for column in schema.columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(schema.column_names))
