"""The values of column defaults, which a cut has as Spark SQL."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.records import ColumnDefault
from cdc_pipeline.sink.verify.side_columns import arrow_of
from cdc_pipeline.text.spark_sql import text_of_literal

_FORM: Final = re.compile(
    r"(CAST\()?(?P<prefix>DATE|TIMESTAMP|TIMESTAMP_NTZ|X|)(?P<literal>'[^']*')(?(1) AS (.+)\))"
)
_TYPES: Final = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}


def constant_of(default: ColumnDefault) -> pa.Scalar:
    """Of the column's type. Raises LakeStateError: it is no constant of ours."""
    try:
        return constant(default.value).cast(arrow_of(default.delta_type))
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise LakeStateError(
            "a cut has the default of a column in an unknown form",
            expected="a constant of Spark SQL",
            got=f"{type(error).__name__} of column {default.column}",
            next_step="take a new snapshot of the table, which starts its changes again",
        ) from None


def constant(sql: str) -> pa.Scalar:
    """As `schema/evolution/backfill.py` writes it, of the type that it names. Raises ValueError,
    KeyError, ArrowException: it does not.
    """
    if sql in ("true", "false", "NULL"):
        return pa.scalar(None if sql == "NULL" else sql == "true")
    form = _FORM.fullmatch(sql)
    if form is None:
        raise ValueError(sql)
    text = text_of_literal(form["literal"])
    if form["prefix"] == "X":
        return pa.scalar(bytes.fromhex(text))
    return pa.scalar(text).cast(arrow_of(form[4] or _TYPES.get(form["prefix"], "string")))
