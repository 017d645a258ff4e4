"""The few Spark SQL expressions that recorded batches hold, evaluated over a row in plain Python.

Literals, columns, CAST, comparisons, AND, OR, NOT, IS NULL, BETWEEN, IN, negation, and a few
functions. Anything else ends the test by name: a stand-in that guesses would prove nothing.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from typing import Any

import sqlglot
from sqlglot import expressions as sql

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_INTEGERS = {"tinyint", "smallint", "int", "bigint"}


class NotInMemoryError(BaseException):
    """No `Exception`: nobody may take it for the failure of one target."""


def evaluated(text: str, row: Mapping[str, Any]) -> Any:
    return _value(_parsed(text), row)


@cache
def _parsed(text: str) -> Any:
    return sqlglot.parse_one(text, dialect="spark")


def as_type(value: Any, delta_type: str) -> Any:
    if value is None:
        return None
    kind = delta_type.lower()
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return _rounded(value, int(decimal[2]), precision=int(decimal[1]))
    if kind in _INTEGERS:
        return int(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "string":
        return value if isinstance(value, str) else str(value)
    if kind == "boolean":
        return bool(value)
    if kind == "binary":
        return value if isinstance(value, bytes) else str(value).encode()
    if kind == "date":
        return value if type(value) is dt.date else dt.date.fromisoformat(str(value)[:10])
    if kind in ("timestamp", "timestamp_ntz"):
        return _moment(value, is_instant=kind == "timestamp")
    return value


def _rounded(value: Any, digits: int, *, precision: int = 80) -> Decimal:
    context = Context(prec=precision, rounding=ROUND_HALF_UP)
    return Decimal(value).quantize(Decimal(1).scaleb(-digits), context=context)


def _moment(value: Any, *, is_instant: bool) -> dt.datetime:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value.strip().replace(" ", "T", 1))
    elif type(value) is dt.date:
        value = dt.datetime.combine(value, dt.time())
    if is_instant and value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    return value.replace(tzinfo=None) if not is_instant else value


def _value(node: Any, row: Mapping[str, Any]) -> Any:
    if isinstance(node, sql.Paren):
        return _value(node.this, row)
    if isinstance(node, sql.Null):
        return None
    if isinstance(node, sql.Boolean):
        return bool(node.this)
    if isinstance(node, sql.Literal):
        return node.this if node.is_string else Decimal(node.this)
    if isinstance(node, sql.HexString):
        return bytes.fromhex(node.this)
    if isinstance(node, sql.Column):
        return _column(node.name, row)
    if isinstance(node, sql.Cast):
        return as_type(_value(node.this, row), node.to.sql(dialect="spark").lower())
    if isinstance(node, sql.And | sql.Or):
        return _joined(node, row)
    if isinstance(node, sql.Not):
        inner = _value(node.this, row)
        return None if inner is None else not inner
    if isinstance(node, sql.Is):
        assert isinstance(node.expression, sql.Null)
        return _value(node.this, row) is None
    return _of_values(node, row)


def _joined(node: Any, row: Mapping[str, Any]) -> bool | None:
    sides = [_value(node.left, row), _value(node.right, row)]
    decisive = isinstance(node, sql.Or)
    if any(side is not None and bool(side) is decisive for side in sides):
        return decisive
    return None if None in sides else not decisive


_BINARY = {
    sql.EQ: lambda a, b: a == b,
    sql.NEQ: lambda a, b: a != b,
    sql.LT: lambda a, b: a < b,
    sql.LTE: lambda a, b: a <= b,
    sql.GT: lambda a, b: a > b,
    sql.GTE: lambda a, b: a >= b,
    sql.Add: lambda a, b: a + b,
    sql.Sub: lambda a, b: a - b,
    sql.Mul: lambda a, b: a * b,
}


def _of_values(node: Any, row: Mapping[str, Any]) -> Any:
    """What is NULL as soon as one of its values is."""
    if isinstance(node, sql.Between):
        values = [_value(part, row) for part in (node.args["low"], node.this, node.args["high"])]
        return None if None in values else values[0] <= values[1] <= values[2]
    if isinstance(node, sql.Concat):
        values = [_value(part, row) for part in node.expressions]
        return None if None in values else "".join(map(str, values))
    if type(node) in _BINARY:
        left, right = _value(node.left, row), _value(node.right, row)
        return None if left is None or right is None else _BINARY[type(node)](left, right)
    if isinstance(node, sql.In):
        value = _value(node.this, row)
        return None if value is None else value in [_value(one, row) for one in node.expressions]
    if isinstance(node, sql.Like) and node.expression.this == "% ":
        value = _value(node.this, row)
        return None if value is None else value.endswith(" ") is not bool(node.args.get("negate"))
    if isinstance(node, sql.Round):
        value, digits = _value(node.this, row), int(_value(node.args["decimals"], row))
        return None if value is None else _rounded(value, digits)
    if isinstance(node, sql.Pad) and not node.args["is_left"]:
        value, size = _value(node.this, row), int(_value(node.expression, row))
        fill = _value(node.args["fill_pattern"], row)
        return None if value is None else value.ljust(size, fill)[:size]
    if isinstance(node, sql.Anonymous):
        *options, value = [_value(part, row) for part in node.expressions]
        if (node.this, options) == ("octet_length", []):
            return None if value is None else len(as_type(value, "binary"))
        if (node.this, options) == ("date_part", ["SECOND"]):
            return None if value is None else value.second + Decimal(value.microsecond) / 1_000_000
    unary = {
        sql.Neg: lambda v: -v,
        sql.Abs: abs,
        sql.Length: lambda v: len(v if isinstance(v, bytes) else str(v)),
    }.get(type(node))
    if unary is None:
        raise NotInMemoryError(f"no value of {node.sql(dialect='spark')} without Spark")
    value = _value(node.this, row)
    return None if value is None else unary(value)


def _column(name: str, row: Mapping[str, Any]) -> Any:
    for own, value in row.items():
        if own.lower() == name.lower():
            return value
    raise NotInMemoryError(f"there is no column {name}")
