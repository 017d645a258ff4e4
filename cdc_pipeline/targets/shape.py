"""Shape a source table's rows for a target: leave columns out, retype, add.

Rules:
- Pure: a rule's shape gives the target's columns and key (`target_spec.shape_of`); rows follow
  (`shape_rows`), under a schema that tells what they hold now.
- Masks come before, at decode (`targets/masks.py`); computed columns and filters after, in
  Spark (`sink/modes/shape.py`).
- Rows of one source table have the order of its log; the shard column joins the key, so that rows
  of two tables never meet.
- An expression needs the columns that it reads, and a filter every column: a row that enters has
  nothing to keep. Changes whose images lack them stop their table (binlog_row_image). An image that
  may lack them, such as that of a deleted row, lacks the computed column as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.decoded import DELETE, INSERT, DecodedRows, InvalidValue
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.value_text import text_of
from cdc_pipeline.config.expressions import read_expression
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ConfigError, IncompleteRowsError
from cdc_pipeline.schema.target_spec import (
    ComputedColumn,
    Misfit,
    RecordedShape,
    ShapedTable,
    shape_of,
)
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.targets.keys import identity_by_rule
from cdc_pipeline.targets.masks import fingerprint
from cdc_pipeline.targets.routes import Route
from cdc_pipeline.targets.row_policies import shape_invalid

_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_KINDS: Final = {
    "boolean": Kind.BIT,
    "tinyint": Kind.INT8,
    "smallint": Kind.INT16,
    "int": Kind.INT32,
    "bigint": Kind.INT64,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "date": Kind.DATE,
    "timestamp_ntz": Kind.DATETIME,
    "timestamp": Kind.TIMESTAMP,
    "binary": Kind.BINARY,
}


def recorded_shape(rule: TargetRule) -> RecordedShape | None:
    """What is recorded of a rule; None if the target has the source's columns unchanged."""
    if rule.is_plain:
        return None
    return RecordedShape(
        include=rule.columns.include,
        exclude=rule.columns.exclude,
        masks={name.lower(): fingerprint(mask) for name, mask in sorted(rule.masks.items())},
        types={name.lower(): text for name, text in sorted(rule.types.items())},
        computed=tuple(
            ComputedColumn(name=name, delta_type=column.type, expression=column.expression)
            for name, column in rule.computed.items()
        ),
        filter=rule.filter,
        shard_column=rule.shard_column or "",
        shard_value=rule.shard_value if rule.shard_column else "",
        partition_by=rule.partition_by,
        cluster_by=rule.cluster_by,
    )


def shape_table(
    route: Route, columns: tuple[TargetColumn, ...], key: tuple[str, ...]
) -> ShapedTable:
    """`shape_of` by a route's rule, whose own key comes first. Raises ConfigError."""
    of_rule = identity_by_rule(route.rule)
    try:
        return shape_of(recorded_shape(route.rule), columns, of_rule.key if of_rule else key)
    except Misfit as misfit:
        raise ConfigError(
            f"the rule does not fit {route.source}: {misfit.what}",
            table=route.source,
            setting=f"{route.setting}.{misfit.setting}",
            expected=misfit.expected or None,
            got=misfit.got,
            next_step=misfit.next_step,
        ) from None


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layout:
    schema: TableSchema
    positions: tuple[int, ...]  # of the columns that are taken
    types: tuple[pa.DataType | None, ...]  # what they are cast to
    reads: tuple[list[int], ...]  # of each computed column, positions at the source


def shape_rows(rows: DecodedRows, route: Route) -> DecodedRows:
    """A source table's masked rows as the target's; computed columns are null for now."""
    rule = route.rule
    if rule.is_plain:
        return rows
    layout = _layout(rows.schema, _Rule(route))
    images, bits = [], []
    invalid: list[InvalidValue] = []
    both = (
        (rows.before, rows.before_present, rows.has_before, INSERT),
        (rows.after, rows.after_present, rows.has_value, DELETE),
    )
    for image, present, known, without in both:
        arrays = [
            _retyped(image.column(at), rows.schema.columns[at], type_)
            for at, type_ in zip(layout.positions, layout.types, strict=True)
        ]
        invalid += shape_invalid(
            rows, arrays, layout.positions, image="before" if without == INSERT else "after"
        )
        is_present = rows.op != without
        if rule.shard_column:
            arrays.append(pc.if_else(is_present, route.shard, pa.scalar(None, pa.string())))
        arrays += [
            pa.nulls(len(rows), arrow_type(column))
            for column in layout.schema.columns[len(arrays) :]
        ]
        images.append(pa.RecordBatch.from_arrays(arrays, names=layout.schema.column_names))
        of_source = np.unpackbits(present, axis=1, bitorder="little")[:, list(layout.positions)]
        of_added = [is_present] * bool(rule.shard_column)
        of_added += [is_present & known[:, reads].all(axis=1) for reads in layout.reads]
        of_all = np.column_stack([of_source, *of_added])
        bits.append(np.packbits(of_all, axis=1, bitorder="little"))
    return replace(
        rows,
        schema=layout.schema,
        before=images[0],
        after=images[1],
        before_present=bits[0],
        after_present=bits[1],
        invalid=invalid,
    )


def check_rows(rows: DecodedRows, route: Route, *, both_images: bool = False) -> None:
    """IncompleteRowsError: images lack what expressions read, `both_images` if before as well."""
    rule = route.rule
    if rows.all_present or not rule.expressions:
        return
    names = rows.schema.column_names
    if rule.filter:
        needed = [at for at, name in enumerate(names) if rule.takes(name)]
    else:
        reads = {name for _, text in rule.expressions for name in read_expression(text).reads}
        needed = _positions(rows.schema, reads)
    lacking = (~rows.has_value & (rows.op != DELETE)[:, np.newaxis])[:, needed]
    if both_images:
        lacking |= (~rows.has_before & (rows.op != INSERT)[:, np.newaxis])[:, needed]
    if not lacking.any():
        return
    lacks = sorted({names[needed[at]] for at in np.flatnonzero(lacking.any(axis=0)).tolist()})
    setting = "filter" if rule.filter else "computed"
    raise IncompleteRowsError(
        f"updates lack columns that the {setting} of target {route.target} needs: "
        f"{', '.join(lacks)}",
        table=route.source,
        setting=f"{route.setting}.{setting}",
        expected="binlog_row_image = FULL: a filter needs complete rows, and a computed "
        "column needs the columns that it reads",
        got=f"{int(lacking.any(axis=1).sum())} updates without some of them",
        next_step="SET GLOBAL binlog_row_image = 'FULL', end all older sessions, and "
        "start after them",
    )


def _positions(schema: TableSchema, names: Collection[str]) -> list[int]:
    return [at for at, name in enumerate(schema.column_names) if name.lower() in names]


class _Rule:
    """Route as a key of the cache: the same object is the same rule."""

    __slots__ = ("route",)

    def __init__(self, route: Route) -> None:
        self.route = route

    def __hash__(self) -> int:
        return hash((self.route.source, self.route.target, self.route.number))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rule) and (self.route is other.route or self.route == other.route)


@lru_cache(maxsize=4096)
def _layout(schema: TableSchema, of: _Rule) -> _Layout:
    rule = of.route.rule
    types = {name.lower(): text for name, text in rule.types.items()}
    positions = [at for at, column in enumerate(schema.columns) if rule.takes(column.name)]
    columns, casts = [], []
    for column in (schema.columns[at] for at in positions):
        wanted = types.get(column.name.lower())
        made = column if wanted is None else column_of(column.name, wanted)
        casts.append(None if wanted is None else arrow_type(made))
        columns.append(
            column_of(column.name, "string") if column.masked.startswith("hash") else made
        )
    if rule.shard_column:
        columns.append(column_of(rule.shard_column, "string"))
    columns += [column_of(name, column.type) for name, column in rule.computed.items()]
    reads = tuple(
        _positions(schema, read_expression(column.expression).reads)
        for column in rule.computed.values()
    )
    key = [positions.index(at) for at in schema.primary_key if at in positions]
    if rule.shard_column:
        key.append(len(positions))
    shaped = replace(schema, columns=tuple(columns), primary_key=tuple(key))
    return _Layout(shaped, tuple(positions), tuple(casts), reads)


def column_of(name: str, delta_type: str) -> Column:
    """A source column whose values have a Delta type."""
    match = _DECIMAL.fullmatch(delta_type)
    column = Column(
        name, _KINDS.get(delta_type, Kind.TEXT), wire_type=0, wire_meta=0, nullable=True
    )
    if match:
        return replace(column, kind=Kind.DECIMAL, precision=int(match[1]), scale=int(match[2]))
    if column.kind is Kind.TEXT:
        return replace(column, charset="utf8mb4")
    return replace(column, bits=1) if column.kind is Kind.BIT else column


def _retyped(array: pa.Array, column: Column, type_: pa.DataType | None) -> pa.Array:
    if type_ is None or array.type == type_:
        return array
    if pa.types.is_string(type_):
        return text_of(array, fraction_digits=column.fraction_digits)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    if pa.types.is_integer(array.type) and pa.types.is_decimal(type_):
        array = array.cast(pa.decimal128(19, 0))
    return array.cast(type_)
