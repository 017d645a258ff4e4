"""A column of the lake in plain Python: its values as they are captured, and what the steps of a
decision make of them.

Rules:
- It is a second reading of the Spark SQL that `schema` writes, by its few forms: a form that is not
  known fails, and nothing is passed over.
- A condition that is NULL lets a row pass, as ``WHERE NOT (condition)`` does.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

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

Value = Any
_C: Final = r"`c`"
_TEXT: Final = rf"(?:{_C}|CAST\({_C} AS string\))"
_N: Final = r"(-?\d+)"
_ABS: Final = r"abs\((.*)\) < CAST\('(\d+)' AS decimal\(38,0\)\)"


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
    """Return what steps on the column `c` make of one value.

    Raises:
        Stopped: a check does not let it pass.
    """
    columns = {"c": value}
    for step in steps:
        if isinstance(step, CheckRows):
            if not _passes(step.condition, columns["c"]):
                raise Stopped(step.reason)
        elif isinstance(step, FillColumns):
            columns |= {
                name: _computed(expression, columns["c"]) for name, _, expression in step.values
            }
        elif isinstance(step, AddColumn):
            columns[step.name] = None
        elif isinstance(step, DropColumn):
            del columns[step.name]
        elif isinstance(step, RenameColumn):
            columns[step.new_name] = columns.pop(step.name)
        else:
            assert isinstance(step, WidenColumn), step
    return columns["c"]


def _matched(forms: Sequence[tuple[str, Callable[..., Value]]], text: str, value: Value) -> Value:
    for form, meaning in forms:
        found = re.fullmatch(form, text, re.DOTALL)
        if found is not None:
            return meaning(value, *found.groups())
    raise AssertionError(f"not known: {text}")


def _passes(condition: str, value: Value) -> bool:
    if condition == "`c` IS NOT NULL":
        return value is not None
    return value is None or bool(_matched(_CONDITIONS, condition, value))


def _computed(expression: str, value: Value) -> Value:
    return None if value is None else _matched(_VALUES, expression, value)


def _rounded(value: Value, digits: int) -> Decimal:
    with localcontext() as context:
        context.prec = 80
        return Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def _unquoted(listed: str) -> list[str]:
    texts = re.findall(r"'((?:[^'\\]|\\.)*)'", listed, re.DOTALL)
    return [re.sub(r"\\(.)", r"\1", text) for text in texts]


def _cast(value: Value, kind: str) -> Value:
    if kind == "boolean":
        return bool(value)
    if kind == "string":
        return str(value)
    if kind == "date":
        return value.date()
    if kind.startswith("decimal"):
        return Decimal(value)
    return float(value) if kind == "double" else int(value)


def _seconds_fit(value: dt.datetime, digits: str) -> bool:
    return bool(value.microsecond % 10 ** (6 - int(digits)) == 0)


_CONDITIONS: Final[list[tuple[str, Callable[..., Value]]]] = [
    (rf"{_C} <> 0", lambda value: value != 0),
    (rf"{_C} >= 0", lambda value: value >= 0),
    (
        rf"CAST\({_C} AS decimal\(\d+,0\)\) BETWEEN {_N} AND {_N}",
        lambda value, low, high: int(low) <= value <= int(high),
    ),
    (_ABS.replace("(.*)", _C), lambda value, limit: abs(value) < int(limit)),
    (
        _ABS.replace("(.*)", rf"round\({_C}, {_N}\)"),
        lambda value, n, limit: abs(_rounded(value, int(n))) < int(limit),
    ),
    (rf"char_length\({_TEXT}\) <= {_N}", lambda value, size: len(str(value)) <= int(size)),
    (rf"octet_length\({_TEXT}\) <= {_N}", lambda value, size: len(_encoded(value)) <= int(size)),
    (rf"{_C} NOT LIKE '% '", lambda value: not value.endswith(" ")),
    (rf"{_C} IN \((.*)\)", lambda value, listed: value in _unquoted(listed)),
    (rf"{_C} NOT IN \((.*)\)", lambda value, listed: value not in _unquoted(listed)),
    (rf"date_part\('SECOND', {_C}\) = round\(date_part\('SECOND', {_C}\), {_N}\)", _seconds_fit),
]
_VALUES: Final[list[tuple[str, Callable[..., Value]]]] = [
    (_C, lambda value: value),
    (rf"CAST\({_C} AS (\S+)\)", _cast),
    (rf"round\({_C}, {_N}\)", lambda value, digits: _rounded(value, int(digits))),
    (rf"rpad\({_C}, {_N}, X'00'\)", lambda value, size: value.ljust(int(size), b"\0")[: int(size)]),
    (rf"concat\({_C}, '([.0]*)'\)", lambda value, tail: value + tail),
]


def _encoded(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
