"""Small builders of what the sink takes: table schemas, decoded rows, plans, cursors, intervals.

A change is ``(op, before, after)`` with dicts of column -> value, as `insert`, `update` and
`delete` make them. A column that a dict lacks is absent from that image.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows, InvalidValue
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.lake.records import BatchRecord, Cut, Interval
from cdc_pipeline.position.cursor import CursorState, TargetState
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.schema.evolution.steps import AddColumn, FillColumns, Step, columns_after
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.erased import ErasedRows

NOTHING_ERASED = ErasedRows((), identity=ServerIdentity("mysql", 0), epoch=0)
Image = dict[str, Any]
Change = tuple[int, Image | None, Image | None]


def insert(**after: Any) -> Change:
    return INSERT, None, after


def update(before: Image, after: Image) -> Change:
    return UPDATE, before, after


def delete(**before: Any) -> Change:
    return DELETE, before, None


def column(name: str, kind: Kind, **rest: Any) -> Column:
    return Column(name=name, kind=kind, wire_type=0, wire_meta=0, nullable=True, **rest)


def table_schema(full_name: str, columns: Sequence[Column], *key: str) -> TableSchema:
    database, _, table = full_name.partition(".")
    names = [c.name for c in columns]
    return TableSchema(database, table, tuple(columns), tuple(names.index(name) for name in key))


def seq_of(place: int, *, journal: int = 1, after: bool = False) -> int:
    """`place` is a made-up transaction offset."""
    return pack_seq(1, journal, place, 0, 0, int(after))


def decoded(
    schema: TableSchema,
    changes: Sequence[Change],
    *,
    first_place: int,
    invalid: list[InvalidValue] | None = None,
) -> DecodedRows:
    """Change i has the place ``first_place + i`` and that many seconds."""
    names = schema.column_names
    places = range(first_place, first_place + len(changes))
    befores = [before for _, before, _ in changes]
    afters = [after for _, _, after in changes]
    complete = all(image is None or set(image) == set(names) for image in (*befores, *afters))
    return DecodedRows(
        schema=schema,
        op=np.array([op for op, _, _ in changes], dtype=np.uint8),
        seq=pa.array([Decimal(seq_of(place)) for place in places], SEQ_TYPE),
        commit_ts_us=np.array([place * 1_000_000 for place in places], dtype=np.int64),
        event_row=np.arange(len(changes), dtype=np.int64),
        before=_images(schema, befores),
        after=_images(schema, afters),
        before_present=_bitmap(names, befores),
        after_present=_bitmap(names, afters),
        all_present=complete,
        invalid=invalid or [],
    )


def _images(schema: TableSchema, images: Sequence[Image | None]) -> pa.RecordBatch:
    arrow = arrow_schema(schema)
    arrays = [
        pa.array([(image or {}).get(field.name) for image in images], field.type) for field in arrow
    ]
    return pa.record_batch(arrays, schema=arrow)


def _bitmap(
    names: tuple[str, ...], images: Sequence[Image | None]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    bits = np.array(
        [[image is not None and name in image for name in names] for image in images],
        dtype=np.uint8,
    )
    return np.packbits(bits.reshape(len(images), len(names)), axis=1, bitorder="little")


def new_target(
    name: str, app_id: str, columns: tuple[TargetColumn, ...], key: tuple[str, ...], **spec: Any
) -> Target:
    state = TargetState(table=name, app_id=app_id, table_version=-1, applied_batch=-1)
    return Target(state, TargetSpec(columns=columns, key=key, **spec))


def target_of(schema: TableSchema, *, app_id: str | None = None, partial: bool = False) -> Target:
    app_id = app_id or f"cdc_pipeline/test/{schema.full_name}"
    return new_target(
        schema.full_name, app_id, target_columns(schema), schema.key_names
    ).with_state(partial=partial)


def cursor_at(
    number: int, *, targets: dict[str, TargetState] | None = None, source: str = "shop"
) -> CursorState:
    return CursorState(
        source=source,
        batch_number=number,
        flavor="mysql",
        server_id=1,
        journal="binlog.000001",
        offset=1000 * number + 4,
        targets=targets or {},
    )


def interval_of(number: int) -> Interval:
    start = 1000 * (number - 1) + 4
    return Interval(
        start=Position("binlog.000001", start),
        end=Position("binlog.000001", start + 1000),
    )


def head_of(
    number: int,
    *,
    interval: Interval | None = None,
    cursor_after: CursorState | None = None,
    **rest: Any,
) -> BatchRecord:
    """Of the batch of this number, by default as `interval_of` and `cursor_at` have it."""
    interval, cursor_after = interval or interval_of(number), cursor_after or cursor_at(number)
    return BatchRecord(
        source=cursor_after.source,
        batch_number=cursor_after.batch_number,
        start=interval.start,
        interval=interval,
        cursor_after=cursor_after,
        **rest,
    )


def record_batch(
    sink: Sink, number: int, *pieces: tuple[TableSchema, Sequence[Change], int], **spec: object
) -> BatchRecord:
    """A piece is (schema, changes, first place). Tables not in the last cut are created; `spec`
    has fields of every target's.
    """
    cut = sink.last_cut()
    known = set(cut.tables) if cut is not None else set()
    batch = sink.begin(number)
    for schema, changes, first_place in pieces:
        target = target_of(schema).with_spec(**spec)
        if schema.full_name not in known:
            batch.create(target)
            known.add(schema.full_name)
        batch.add(decoded(schema, changes, first_place=first_place), target)
    return batch.record(head_of(number, cursor_after=cursor_at(number, source=sink.paths.source)))


class AddedColumn(NamedTuple):
    """A column that a DDL adds, with the value of existing rows as a Spark SQL literal."""

    name: str
    delta_type: str
    backfill_sql: str = "NULL"


def record_added_columns(
    sink: Sink, number: int, schema: TableSchema, *added: AddedColumn
) -> BatchRecord:
    """`schema` has the columns already, behind all others."""
    target = target_of(schema)
    names = {column.name for column in added}
    steps: list[Step] = [
        AddColumn(name=column.name, delta_type=column.delta_type) for column in added
    ]
    fills = tuple((c.name, c.delta_type, c.backfill_sql) for c in added if c.backfill_sql != "NULL")
    steps += [FillColumns(values=fills)] if fills else []
    batch = sink.begin(number)
    batch.change(target, tuple(c for c in target.spec.columns if c.name not in names), tuple(steps))
    return batch.record(head_of(number, cursor_after=cursor_at(number, source=sink.paths.source)))


def lose_cut(sink: Sink, number: int) -> None:
    """As if the process had died before it published that cut, and another had begun."""
    sink.paths.cut(number).unlink()
    sink._known = None


def check_targets(sink: Sink, cut: Cut) -> None:
    for name in sorted(cut.tables):
        sink.check_target(cut, name)


def applied(
    sink: Sink, number: int, *pieces: tuple[TableSchema, Sequence[Change], int], **spec: object
) -> Cut:
    return sink.finish(record_batch(sink, number, *pieces, **spec))


def record_steps(
    sink: Sink, number: int, schema: TableSchema, before: tuple[TargetColumn, ...], *steps: Step
) -> BatchRecord:
    target = target_of(schema).with_spec(columns=reduce(columns_after, steps, before))
    batch = sink.begin(number)
    batch.change(target, before, steps)
    return batch.record(head_of(number, cursor_after=cursor_at(number, source=sink.paths.source)))
