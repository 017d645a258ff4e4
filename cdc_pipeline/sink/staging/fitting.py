"""Convert rows of a source table to the names and types of its target, if a DDL has made the two
differ.

Rules:
- A value never changes: the target's type holds every value of the source's type
  (`schema/types.common_type`).
- If nothing differs, the rows are passed on as they are.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.errors import StagingError
from cdc_pipeline.schema.types import TargetColumn, delta_type
from cdc_pipeline.text.server_messages import said_by

# Types that a DDL may widen a column to.
_WIDE: Final = re.compile(r"smallint|int|bigint|double|timestamp_ntz|decimal\(.*\)")


def fitted(
    rows: DecodedRows, columns: tuple[TargetColumn, ...], names: tuple[tuple[str, str], ...]
) -> DecodedRows:
    """`names`: source to target. StagingError: a target's type does not hold the values."""
    target = {column.name: column.delta_type for column in columns}
    renamed = dict(names)
    new_names = [renamed.get(name, name) for name in rows.schema.column_names]
    # The schema states the types that the values were decoded to.
    casts = {
        at: target[name]
        for at, (name, column) in enumerate(zip(new_names, rows.schema.columns, strict=True))
        if name in target and delta_type(column) != target[name]
    }
    if not renamed and not casts:
        return rows
    schema = replace(
        rows.schema,
        columns=tuple(
            replace(c, name=name) for c, name in zip(rows.schema.columns, new_names, strict=True)
        ),
    )
    table = rows.schema.full_name
    before, after = (
        _image(image, new_names, casts, table=table) for image in (rows.before, rows.after)
    )
    return replace(rows, schema=schema, before=before, after=after)


def _image(
    image: pa.RecordBatch, names: list[str], casts: dict[int, str], *, table: str
) -> pa.RecordBatch:
    arrays = list(image.columns)
    for at, wanted in casts.items():
        kind = arrow_of_delta(wanted) if _WIDE.fullmatch(wanted) else None
        try:
            if kind is None:
                raise pa.ArrowInvalid(f"{arrays[at].type} to {wanted}")
            arrays[at] = arrays[at].cast(kind)
        except pa.ArrowInvalid as error:
            raise StagingError(
                f"column {names[at]} of the target cannot hold the source's values",
                table=table,
                expected=wanted,
                got=said_by(error),
                next_step="take a new snapshot of the table",
            ) from None
    return pa.record_batch(arrays, names=names)
