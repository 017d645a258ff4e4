"""The values of column defaults, which a cut has as Spark SQL."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.records import ColumnDefault
from cdc_pipeline.sink.verify.side_columns import arrow_of
from cdc_pipeline.text.spark_sql import text_of_literal

# As `schema/evolution/backfill.py` writes them.
_FORM: Final = re.compile(
    r"(?P<prefix>CAST\(|DATE|TIMESTAMP|TIMESTAMP_NTZ|X|)(?P<literal>'[^']*')( AS (?P<type>.+)\))?"
)
_TYPES: Final = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}


def constant_of(default: ColumnDefault) -> pa.Scalar:
    """Of the column's type. Raises LakeStateError: it is no constant that this version writes."""
    kind, form = arrow_of(default.delta_type), _FORM.fullmatch(default.value)
    if default.value in ("true", "false"):
        return pa.scalar(default.value == "true").cast(kind)
    if default.value == "NULL":
        return pa.scalar(None, kind)
    if form is None or (form["type"] is None) == (form["prefix"] == "CAST("):
        raise LakeStateError(
            "a cut has the default of a column in an unknown form",
            expected="a constant of Spark SQL",
            got=f"of column {default.column}",
            next_step="take a new snapshot of the table, which starts its changes again",
        )
    text = text_of_literal(form["literal"])
    if form["prefix"] == "X":
        return pa.scalar(bytes.fromhex(text)).cast(kind)
    first = form["type"] or _TYPES.get(form["prefix"], "string")
    return pa.scalar(text).cast(arrow_of(first)).cast(kind)
