"""Read a source table once for a comparison (K17).

Rules:
- A full read goes range by range, each in a view of its own. A read at an exact place uses a single
  view (`view.py`).
- Keys may change between the two cuts of a read: they are passed to the comparison and never
  compared.
- A table without a key at the source needs a view at an exact place.
- A condition that reads the lake's keys again may select more rows than intended (a
  case-insensitive collation), never fewer: the comparison uses the lake's own values. If a value
  cannot be mapped back to the source (a mask, another type, a float), the whole table is read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.selected import SNAPSHOT_SEQS, SelectedRows
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.binlog.value_text import texts_of
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.undo import literal
from cdc_pipeline.operations.verify.captures import Captures, SourceState
from cdc_pipeline.operations.verify.report import Step
from cdc_pipeline.operations.verify.rows import SourceRows, recorded_of
from cdc_pipeline.operations.verify.view import Exact, ProvenView, ViewLostError, changes_void_it
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.target_spec import shard_key
from cdc_pipeline.schema.types import TargetColumn, delta_type
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.read.rows import SMALL_ROWS
from cdc_pipeline.sink.read.spilled import Spill, StoredRows
from cdc_pipeline.sink.target import Target
from cdc_pipeline.sink.verify.compare import DIFFERENCES, Kind
from cdc_pipeline.sink.verify.differences import KeyUse
from cdc_pipeline.sink.verify.parts import StartSpark
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.tables import VersionedTable
from cdc_pipeline.source.rows.key_ranges import key_layout, plan_ranges
from cdc_pipeline.source.rows.table_reader import KeyRange, TableReader
from cdc_pipeline.targets.targets import Targets, targets_at
from cdc_pipeline.text.table_names import quoted


@dataclass(frozen=True)
class Reading:
    """`unreadable`: rows that the policies keep out of the lake; `keys`: that changed meanwhile and
    that are unread, as `compare` takes them; `is_whole`: every changed key is known, even one that
    appeared and disappeared between the cuts; `exact`: rows and cut are of the same moment;
    `unproved`: nothing proves that all before the first cut is committed, and an earlier place
    stands for it; `before`, `after`: the cuts that bracket the read; `target`: as known after it;
    `shards`: values of the shard column, of all source tables of the target.
    """

    sides: ComparisonSides
    rows: StoredRows
    ranges: int
    unreadable: int
    keys: dict[KeyUse, StoredRows]
    is_whole: bool
    exact: bool
    unproved: bool
    before: SourceState
    after: SourceState
    target: Target
    shards: tuple[str, ...]

    @property
    def proved(self) -> tuple[Kind, ...]:
        """The differences that are proved: a missing key only if every change is known."""
        kinds = DIFFERENCES
        return kinds if self.is_whole else tuple(kind for kind in kinds if kind != "missing")

    @property
    def open(self) -> tuple[Kind, ...]:
        return ("left_out",) if self.is_whole else ("left_out", "missing")


class NotByRangeError(CdcError):
    """A table can only be compared whole, and is too large for that."""


@dataclass(frozen=True)
class NextRange:
    """The next `rows` rows above `after`, the end of a range of a key with this `layout`.
    `is_whole`: if these are all rows, they are compared with all of the lake's, not as a sample.
    After it was read it is the one that follows; `after` is None at the end of the table.
    """

    rows: int
    after: tuple[str, ...] | None = None
    layout: str = ""
    is_whole: bool = False


@dataclass(frozen=True)
class ReadRequest:
    """All source rows, or those with target `keys` (n,) if their values can be mapped back to the
    source. `exact`: all in one view at an exact place. `share`: of the key ranges, if they are read
    one by one. `next`: one range, in one view; with `keys`, their values must lead back. Raises
    NotByRangeError otherwise.
    """

    exact: Exact = "no"
    keys: Mapping[TargetColumn, pa.ChunkedArray] | None = None
    share: float = 1.0
    next: NextRange | None = None


@dataclass(frozen=True)
class VerifyOptions:
    """`tables`: targets or source tables, () for all that are not partial or suspended; `repair`:
    make the lake equal to the source, and verify again; `share`: of the key ranges to read,
    chosen at random by `seed`: a sample proves nothing about rows that only the lake has;
    `rows_per_range`: rows that one view reads; `keys_shown`: differing keys that are named, of
    each table; `who`: makes the repairs, for the record.
    """

    tables: tuple[str, ...] = ()
    repair: bool = False
    share: float = 1.0
    seed: int = 0
    rows_per_range: int = 200_000
    keys_shown: int = 20
    who: str = "verify"


@dataclass(frozen=True)
class VerifyContext:
    config: PipelineConfig
    options: VerifyOptions
    sink: DeltaSink
    start: StartSpark
    spill: Spill
    captures: Captures
    on_step: Callable[[Step], None]


class TableReading:
    def __init__(self, context: VerifyContext, name: str, source_table: str) -> None:
        self._config = context.config
        self._options = context.options
        self._captures = context.captures
        self._spill = context.spill
        self._on_step = context.on_step
        self._name = name
        self._source_table = source_table
        self.rows = StoredRows(context.spill)
        self.rows_read = 0  # in all rounds
        self.next: NextRange | None = None  # what follows the range of the request

    def read(self, request: ReadRequest, *, is_fresh: bool = False) -> Reading:
        """`is_fresh`: earlier captures are ignored, because a DDL may follow them."""
        self._on_step(Step(self._name, "capturing"))
        before = self._captures.run() if is_fresh else self._captures.recent()
        with self._captures.keeping(self.keep):
            targets = targets_at(self._config, before.cut, before.cursor)
            self.begin(request, before, targets)
            self._on_step(Step(self._name, "capturing", self.rows.rows))
            after, exact = self.view.end(self._place)
        if request.exact == "always" and not exact:
            raise ViewLostError(
                "the table changed while it was being read, and no view was at an "
                "exactly known position",
                table=self._name,
                next_step="verify again when fewer writes change it",
            )
        return self.finish(after, exact=exact)

    def begin(self, request: ReadRequest, before: SourceState, targets: Targets) -> None:
        """Read the rows behind a capture, by its targets; `keep` takes the batches that follow it.
        Raises ViewLostError: a DDL came in between; NotFollowedError; TableReadInterruptedError,
        ServerSettingError: no view at an exact place.
        """
        self.rows.discard()
        self.rows, self._unread, self._touched = (StoredRows(self._spill) for _ in range(3))
        self._before, self._ranges, self._sampled = before, 0, False
        self._place: Position | None = None
        self.view = ProvenView(
            self._config, self._captures, self._source_table, targets=[self._name], before=before
        )
        self._targets = targets
        self._shaper = SourceRows(targets, self._name)
        with self.view.reader() as reader:
            self._read_rows(reader, request)

    def keep(self, record: BatchRecord) -> None:
        key = _compared_key(self._shaper.target, self._source_table)
        for recorded in record.targets:
            if recorded.table == self._name and key:
                for keys in _staged_keys(self._config.sink.lake_path.absolute(), recorded, key):
                    self._touched.add(keys)

    def finish(self, after: SourceState, *, exact: bool) -> Reading:
        """With the cut behind the rows. Raises ViewLostError, NotFollowedError."""
        before, rows = self._before, self._shaper
        self.view.check_undisturbed(after)
        proved = self.view.is_proved
        target = rows.target
        is_still = exact or (after.cut.batch_number == before.cut.batch_number and proved)
        keys: dict[KeyUse, StoredRows] = {"unread": self._unread} if self._unread.rows else {}
        if self._touched.rows and not is_still:
            keys["changed"] = self._touched
        return Reading(
            sides=self._sides(rows, after, None if is_still else self._after_seq(before)),
            rows=self.rows,
            ranges=self._ranges,
            unreadable=rows.unreadable,
            keys=keys,
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

    def _read_rows(self, reader: TableReader, request: ReadRequest) -> None:
        view, rows = self.view, self._shaper
        seq = pack_seq(1, 1, 4)  # the time is not looked at: values are compared
        at_us = now_us()

        def take(some: SelectedRows) -> None:
            staged = rows.take(some.as_inserts(seq_first=seq, commit_ts_us=at_us))
            if staged is not None:
                self.rows.add(staged.table)
                self.rows_read += staged.table.num_rows
            if request.next is not None and self.rows.rows > request.next.rows:
                raise _not_by_range(self._source_table, "it has more rows than a run compares")
            unread = (
                rows.take_unread(_compared_key(rows.target, self._source_table))
                if rows.unreadable
                else None
            )
            if unread is not None:
                self._unread.add(unread)

        with changes_void_it():
            take(SelectedRows(view.schema, _empty(view.schema)))
            place = self._place = view.begin(reader, request.exact)
            is_one = place is not None or request.exact == "always" or request.next is not None
            if place is None and is_one:
                reader.begin_view()
            for bounds, where in self._selections(reader, view.schema, request, in_view=is_one):
                if not is_one:
                    reader.begin_view()
                for batch in reader.select(view.schema, bounds=bounds, where=where):
                    take(batch)
                self._ranges += 1
                self._on_step(Step(self._name, "reading", self.rows.rows))
                if not is_one:
                    reader.end_view()

    def _selections(
        self, reader: TableReader, schema: TableSchema, request: ReadRequest, *, in_view: bool
    ) -> Iterator[tuple[KeyRange | None, str]]:
        if request.keys is not None:
            wanted = self._conditions(schema, request.keys)
            if wanted is not None:
                yield from ((None, condition) for condition in wanted)
                return
        if request.next is not None:
            yield self._next_range(reader, schema, request), ""
            return
        if in_view or not schema.primary_key:
            yield None, ""
            return
        chosen = random.Random(self._options.seed)  # noqa: S311 - a sample of ranges
        ranges = plan_ranges(reader, schema, self._options.rows_per_range)
        for number, bounds in enumerate(ranges):
            # A sample always includes the first range, so that it is never empty.
            if request.share >= 1 or number == 0 or chosen.random() < request.share:
                yield bounds, ""
            else:
                self._sampled = True

    def _next_range(
        self, reader: TableReader, schema: TableSchema, request: ReadRequest
    ) -> KeyRange:
        part, target = request.next, self._targets.by_name[self._name]
        assert part is not None
        key = _compared_key(target, self._source_table)
        columns = [column for column in target.spec.columns if column.name in key]
        is_by_range = (
            bool(schema.primary_key)
            and not MODES[target.spec.mode].rows_are_changes
            and self._source_types(schema, columns) is not None
            and self._may_keep(schema)
        )
        if request.keys is not None or not (is_by_range or part.is_whole):
            raise _not_by_range(self._source_table, _NOT_BY_RANGE)
        layout = key_layout(reader, schema)
        after = part.after if layout == part.layout else None
        bounds = next(plan_ranges(reader, schema, part.rows, after=after))
        is_all = bounds.after is None and bounds.upto is None
        if not (is_by_range or is_all):
            raise _not_by_range(self._source_table, _NOT_BY_RANGE)
        self._sampled = not (is_all and part.is_whole)
        self.next = replace(part, after=bounds.upto, layout=layout, is_whole=not self._sampled)
        return bounds

    def _may_keep(self, schema: TableSchema) -> bool:
        """Whether values of the primary key may be: they are where a range ends (K26)."""
        masked = self._targets.masks.schema(schema)
        types = {column.name: delta_type(column) for column in masked.columns}
        return leads_back(masked, [schema.column_names[at] for at in schema.primary_key], types)

    def _source_types(
        self, schema: TableSchema, columns: Iterable[TargetColumn]
    ) -> dict[str, str] | None:
        """Delta's types by names of the source; None if such values do not lead back to it."""
        renamed = {
            there: here
            for here, there in self._targets.by_name[self._name]
            .spec.sources[self._source_table]
            .names
        }
        types = {renamed.get(column.name, column.name): column.delta_type for column in columns}
        is_led = leads_back(self._targets.masks.schema(schema), list(types), types)
        return types if is_led else None

    def _conditions(
        self, schema: TableSchema, keys: Mapping[TargetColumn, pa.ChunkedArray]
    ) -> Iterator[str] | None:
        types = self._source_types(schema, keys)
        return None if types is None else conditions(schema, list(types), list(keys.values()))

    # -- what is compared --------------------------------------------------------------------------

    def _after_seq(self, before: SourceState) -> int:
        at = before.position if self.view.is_proved else self.view.low
        # Loads and repairs take the first places of this position: their rows are before it, not
        # behind.
        return at.seq(before.cursor.epoch) + 2 * SNAPSHOT_SEQS - 1

    def _sides(
        self, rows: SourceRows, after: SourceState, after_seq: int | None
    ) -> ComparisonSides:
        target = rows.target
        recorded = recorded_of(target)
        supplied = set(rows.supplied_columns)
        shape, shard = target.spec.shape, None
        if shape is not None and shape.shard_column:
            shard = shape.shard_column, self._shard(self._source_table, target)
        of_cut, paths = after.cut.tables[self._name], LakePaths.of(self._config)
        return ComparisonSides(
            target=recorded,
            columns=tuple(
                column.name for column in recorded.spec.columns if column.name in supplied
            ),
            key=_compared_key(target, self._source_table),
            lake=VersionedTable(self._name, paths.table(self._name), of_cut.table_version),
            shard=shard,
            column_defaults=of_cut.column_defaults,
            layouts=of_cut.layouts,
            source_table=self._source_table,
            after_seq=after_seq,
            sampled=self._sampled,
        )

    def _shard(self, source_table: str, target: Target) -> str:
        if target.spec.shape is None or not target.spec.shape.shard_column:
            return ""
        routes = self._targets.routes_of(source_table)
        return next((route.shard for route in routes if route.target == target.name), "")


def _compared_key(target: Target, source_table: str) -> tuple[str, ...]:
    """Columns that identify rows: the key (a changelog: the source's), or () for all."""
    if MODES[target.spec.mode].has_key:
        return target.spec.key
    key = target.spec.sources[source_table].key_in_target
    return key + shard_key(target.spec.shape) if key else ()


def _staged_keys(lake: Path, target: RecordedTarget, key: Sequence[str]) -> Iterator[pa.Table]:
    """Of every change that a recorded batch has staged (``k0 ...``)."""
    names = [column.name for column in target.spec.columns]
    for staged in target.files:
        path = lake / staged.path
        with pq.ParquetFile(storage_of(path).arrow_source(path)) as file:
            for image in SINK_MODES[target.spec.mode].staged_images:
                columns = [f"{image}{names.index(name)}" for name in key]
                if not set(columns) <= set(file.schema_arrow.names):
                    continue
                for group in range(file.num_row_groups):
                    keys: Any = file.read_row_group(group, columns=columns).select(columns)
                    yield keys.rename_columns([f"k{at}" for at in range(len(key))])


_NOT_BY_RANGE: Final = (
    "it has no key that finds a row on both sides (none at all, masked, of another type, or the "
    "rows of a changelog), and more rows than a run compares"
)


def _not_by_range(table: str, what: str) -> NotByRangeError:
    step = (
        f"raise verify.each_run.rows (a table of up to {SMALL_ROWS:,} rows can be one comparison), "
        "or compare the table with `cdc-pipeline verify`"
    )
    return NotByRangeError(what, table=table, next_step=step)


def _empty(schema: TableSchema) -> pa.RecordBatch:
    arrays = [pa.nulls(0, arrow_type(column)) for column in schema.columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(schema.column_names))


# -- keys of the lake in the source's SQL ----------------------------------------------------------

KEYS_PER_STATEMENT: Final = 500

# Of `TypeSpec.key`: what is a number in the lake.
_NUMBERS: Final = frozenset({"number", "bits"})


def leads_back(schema: TableSchema, columns: Sequence[str], delta_types: Mapping[str, str]) -> bool:
    """Whether Delta values of these types can select rows by these (masked) columns."""
    by_name = {column.name: column for column in schema.columns}
    return bool(columns) and all(
        name in by_name and _leads_back(by_name[name], delta_types[name]) for name in columns
    )


def _leads_back(column: Column, kind: str) -> bool:
    if column.masked or column.type.key in ("", "real"):
        return False
    own = delta_type(column)
    return own == kind or (column.type.key in _NUMBERS and kind in ("smallint", "int", "bigint"))


def conditions(
    schema: TableSchema, columns: Sequence[str], keys: Sequence[pa.ChunkedArray]
) -> Iterator[str]:
    """Conditions that select the rows with these keys (n of each column), a limited number each."""
    by_name = {column.name: column for column in schema.columns}
    names = [quoted(name) for name in columns]
    rows = list(
        zip(
            *(
                [literal(by_name[name], text) for text in texts_of(array.combine_chunks())]
                for name, array in zip(columns, keys, strict=True)
            ),
            strict=True,
        )
    )
    for first in range(0, len(rows), KEYS_PER_STATEMENT):
        some = rows[first : first + KEYS_PER_STATEMENT]
        if len(names) == 1 and ("NULL",) not in some:
            yield f"{names[0]} IN ({', '.join(value for (value,) in some)})"
            continue
        # Not (a, b) IN (...): there MariaDB compares text of another charset than utf8mb4 by the
        # charset of the first literal, and misses rows.
        yield " OR ".join(f"({' AND '.join(map('{} <=> {}'.format, names, row))})" for row in some)
