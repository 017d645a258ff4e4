"""A column of the lake in plain Python: its values as they are captured, and what the steps of a
decision make of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    CheckRows,
    DropColumn,
    FillColumns,
    RenameColumn,
    Step,
    WidenColumn,
)
from cdc_pipeline.schema.types import delta_type
from tests.support.spark_expressions import evaluated

Value = Any


class Stopped(Exception):
    """A check found a row."""


def shown(name: str, column: Column) -> str:
    """Return the SQL that selects a column as `captured` wants it."""
    if column.kind is Kind.BIT:
        return f"{name} + 0"
    if column.kind in (Kind.FLOAT, Kind.DOUBLE):
        return f"{name} + 0e0"
    if column.kind in (Kind.BINARY, Kind.VECTOR):
        return f"HEX({name})"
    if column.kind is Kind.GEOMETRY:
        return f"CONCAT(ST_SRID({name}), ':', HEX(ST_AsWKB({name})))"
    if column.kind in (Kind.TEXT, Kind.ENUM, Kind.SET):
        return f"CONVERT({name} USING utf8mb4)"
    if column.kind in (Kind.INT8, Kind.INT16, Kind.INT24, Kind.INT32, Kind.INT64, Kind.YEAR):
        return name
    return f"CAST({name} AS CHAR)"


def captured(value: Value, column: Column) -> Value:
    """Return a selected value as the lake holds it; None where it holds none (zero and impossible
    dates)."""
    if value is None:
        return None
    delta = delta_type(column)
    if column.kind is Kind.BIT:
        return bool(int(value)) if delta == "boolean" else int(value)
    if delta.startswith("decimal"):
        return Decimal(value)
    if column.kind in (Kind.FLOAT, Kind.DOUBLE):
        return float(value)
    if column.kind in (Kind.BINARY, Kind.VECTOR):
        return bytes.fromhex(value)
    if column.kind in (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP):
        try:
            found = dt.datetime.fromisoformat(str(value))
        except ValueError:
            return None
        return found.date() if column.kind is Kind.DATE else found
    return value if isinstance(value, int) else str(value)


def alike(ours: Value, theirs: Value) -> bool:
    """Return whether a value of the lake is the server's, in whatever type each of them is."""
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return type(ours) is type(theirs) and ours == theirs
    if isinstance(theirs, dt.datetime) and type(ours) is dt.date:
        return dt.datetime.combine(ours, dt.time()) == theirs
    if isinstance(ours, str) != isinstance(theirs, str):
        return ours is None and theirs is None
    return bool(ours == theirs)


def after(value: Value, steps: Sequence[Step]) -> Value:
    """What steps on the column `c` make of one value. Raises Stopped: a check does not let it pass;
    one that is NULL does. Raises NotInMemoryError: an expression is not known.
    """
    columns = {"c": value}
    for step in steps:
        if isinstance(step, CheckRows):
            if evaluated(step.condition, columns) is False:
                raise Stopped(step.reason)
        elif isinstance(step, FillColumns):
            columns |= {name: evaluated(text, columns) for name, _, text in step.values}
        elif isinstance(step, AddColumn):
            columns[step.name] = None
        elif isinstance(step, DropColumn):
            del columns[step.name]
        elif isinstance(step, RenameColumn):
            columns[step.new_name] = columns.pop(step.name)
        else:
            assert isinstance(step, WidenColumn), step
    return columns["c"]
