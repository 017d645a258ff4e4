"""The value that existing rows get when a column is added, as a Spark SQL literal (K13).

Rules:
- Only a value that is certain from the text is used: a constant that the type holds exactly, the
  implicit default of a NOT NULL column, or NULL. Anything else (rounded, converted, computed,
  dependent on session or clock) is refused with its reason: the table needs a new snapshot.
- The literal equals what the row decoder returns for the same value: CHAR without trailing blanks,
  BINARY(n) padded with zero bytes, an ENUM label as it is defined, TIME as text with its fraction
  digits.

Source: MySQL 9.7 manual, 13.6 (data type default values); Spark 4.2 SQL literals.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation, localcontext
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.schema.ddl.columns import ColumnDefinition, DefaultKind, Literal, LiteralKind
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes, Uncertain
from cdc_pipeline.schema.types import delta_type, whole_range
from cdc_pipeline.text.spark_sql import text_literal

_NUMERIC_TEXT: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_DATETIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?")
_TIME: Final = re.compile(r"(-?)(\d{2,3}):(\d\d):(\d\d)(?:\.(\d+))?")
_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d\d)")


NULL: Final = "NULL"


def backfill(definition: ColumnDefinition, *, modes: SqlModes = UNKNOWN_MODES) -> str:
    """Raises Uncertain: the text does not determine what existing rows get."""
    if reason := _computed(definition, modes):
        raise Uncertain(reason)
    of_type, literal = DEFAULTS[definition.column.type.default], definition.literal
    if definition.default is not DefaultKind.CONSTANT or literal is None:
        return of_type.implicit(definition) if definition.not_null else NULL
    if literal.kind is LiteralKind.NULL:
        return NULL
    sql = of_type.constant(definition, literal, modes)
    if sql is None:
        raise Uncertain(
            f"the server converts the default, a {literal.kind.value}, to {definition.sql_type}"
        )
    return sql


def _computed(definition: ColumnDefinition, modes: SqlModes) -> str:
    """Why the text does not determine the value of old rows; "" if it does."""
    if definition.generated:
        return "a generated column has a different value in each existing row"
    if definition.auto_increment:
        return "AUTO_INCREMENT numbers the existing rows"
    if definition.default is DefaultKind.NOW:
        return "DEFAULT CURRENT_TIMESTAMP gives existing rows the time of the ALTER"
    if definition.default is DefaultKind.EXPRESSION:
        return "the default is an expression"
    if (
        definition.column.kind is Kind.TIMESTAMP
        and definition.nullable is None
        and definition.default is DefaultKind.NONE
        and modes.explicit_defaults_for_timestamp is not True
    ):
        return (
            "explicit_defaults_for_timestamp decides whether a TIMESTAMP without NULL is "
            "nullable; write NULL"
        )
    return ""


# None for a constant that the server converts.
_Constant = Callable[[ColumnDefinition, Literal, SqlModes], "str | None"]


@dataclass(frozen=True, slots=True)
class _Default:
    """How defaults of a type are written: a constant other than NULL, and NOT NULL without one."""

    constant: _Constant
    implicit: Callable[[ColumnDefinition], str]


def _by_text(write: Callable[[Column, str], str | None]) -> _Constant:
    """Of constants that are certain only as strings."""
    return lambda definition, literal, _modes: (
        write(definition.column, literal.text) if literal.kind is LiteralKind.STRING else None
    )


def _other_form(definition: ColumnDefinition, _literal: Literal, _modes: SqlModes) -> str:
    raise Uncertain(f"the server may store a {definition.declared} constant in another form")


def _uncertain(definition: ColumnDefinition) -> str:
    raise Uncertain(f"the implicit default of {definition.declared} is not certain")


def _zero(definition: ColumnDefinition) -> str:
    return _number(definition, Decimal(0))


def _zero_date(_definition: ColumnDefinition) -> str:
    raise Uncertain(
        "NOT NULL without a default gives existing rows the zero date, which Delta cannot hold"
    )


# -- numbers ---------------------------------------------------------------------------------------


def _number(definition: ColumnDefinition, value: Decimal) -> str:
    """Raises Uncertain: a number that would be rounded or is out of range."""
    column = definition.column
    number = None
    if value >= 0 or not column.unsigned:
        if column.type.change == "whole":
            number = _whole(column, value)
        elif column.kind is Kind.YEAR:
            number = _cast(str(int(value)), delta_type(column))
        elif column.kind is Kind.DECIMAL:
            number = _decimal(column, value)
        else:
            number = _floating(definition, value)
    if number is None:
        raise Uncertain(f"{definition.sql_type} cannot hold the default unchanged")
    return number


def _whole(column: Column, value: Decimal) -> str | None:
    low, high = whole_range(column) or (0, -1)
    if value != value.to_integral_value() or not low <= value <= high:
        return None
    if delta_type(column) == "boolean":
        return "true" if value else "false"
    return _cast(str(int(value)), delta_type(column))


def _decimal(column: Column, value: Decimal) -> str | None:
    with localcontext() as context:
        context.prec = 200
        fixed = value.quantize(Decimal(1).scaleb(-column.scale)) + 0  # + 0: no negative zero
        if fixed != value or len(fixed.as_tuple().digits) > column.precision:
            return None
        text = f"{fixed:f}"
    spark = delta_type(column)
    return text_literal(text) if spark == "string" else _cast(text, spark)


def _floating(definition: ColumnDefinition, value: Decimal) -> str | None:
    if len(definition.sizes) == 2 and value != value.to_integral_value():
        return None  # FLOAT(m,d) rounds
    number = float(value) + 0.0
    if definition.column.kind is Kind.FLOAT:
        try:
            (number,) = struct.unpack("<f", struct.pack("<f", number))
        except OverflowError:
            return None
    if number in (float("inf"), float("-inf")):
        return None
    return _cast(repr(number), delta_type(definition.column))


def _number_constant(
    definition: ColumnDefinition, literal: Literal, _modes: SqlModes
) -> str | None:
    if literal.kind is LiteralKind.BOOLEAN:
        return _number(definition, Decimal(literal.text == "TRUE"))
    if literal.kind in (LiteralKind.HEX, LiteralKind.BITS):
        base = 16 if literal.kind is LiteralKind.HEX else 2
        return _number(definition, Decimal(int(literal.text or "0", base)))
    if not _NUMERIC_TEXT.fullmatch(literal.text):
        return None
    try:
        value = Decimal(literal.text)
    except InvalidOperation:
        return None
    return _number(definition, value)


def _year(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> str | None:
    text = literal.text
    if (literal.kind is LiteralKind.NUMBER and text == "0") or text == "0000":
        return _zero(definition)
    is_plain = literal.kind in (LiteralKind.NUMBER, LiteralKind.STRING)
    if is_plain and len(text) == 4 and text.isdigit() and 1901 <= int(text) <= 2155:
        return _number(definition, Decimal(text))
    return None


def _bit_constant(definition: ColumnDefinition, literal: Literal, modes: SqlModes) -> str | None:
    if literal.kind is LiteralKind.STRING:
        return None
    return _number_constant(definition, literal, modes)


# -- dates and times -------------------------------------------------------------------------------


def _date(_column: Column, text: str) -> str | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return f"DATE'{date(int(match[1]), int(match[2]), int(match[3])).isoformat()}'"
    except ValueError:
        return None


def _moment(text: str, fraction_digits: int) -> datetime | None:
    match = _DATETIME.fullmatch(text)
    if match is None:
        return None
    fraction = (match[7] or "").rstrip("0")
    if len(fraction) > fraction_digits:
        return None
    clock = ":".join(part or "00" for part in match.groups()[3:6])
    try:
        return datetime.fromisoformat(
            f"{match[1]}-{match[2]}-{match[3]} {clock}.{fraction.ljust(6, '0')}"
        )
    except ValueError:
        return None


def _datetime(column: Column, text: str) -> str | None:
    moment = _moment(text, column.fraction_digits)
    return None if moment is None else f"TIMESTAMP_NTZ'{_stamp(moment)}'"


def _stamp(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _timestamp(definition: ColumnDefinition, literal: Literal, modes: SqlModes) -> str | None:
    is_text = literal.kind is LiteralKind.STRING
    moment = _moment(literal.text, definition.column.fraction_digits) if is_text else None
    if moment is None:
        return None
    zone = _zone(modes.time_zone)
    if zone is None:
        raise Uncertain(
            "a TIMESTAMP constant depends on the session's time zone, which is not a fixed offset"
        )
    try:
        instant = moment.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:
        return None
    if instant < datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC):
        return None
    return f"TIMESTAMP'{_stamp(instant)}+00:00'"


def _zone(name: str) -> timezone | None:
    if name.upper() == "UTC":
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return timezone(-offset if match[1] == "-" else offset)


def _time(column: Column, text: str) -> str | None:
    match = _TIME.fullmatch(text)
    if match is None or int(match[2]) > 838 or int(match[3]) > 59 or int(match[4]) > 59:
        return None
    fraction = (match[5] or "").rstrip("0")
    clock = f"{int(match[2]):02d}:{match[3]}:{match[4]}"
    if len(fraction) > column.fraction_digits or (clock == "838:59:59" and fraction):
        return None
    sign = match[1] if clock != "00:00:00" or fraction else ""
    return _time_literal(column, sign + clock, fraction)


def _time_literal(column: Column, clock: str, fraction: str = "") -> str:
    digits = column.fraction_digits
    return text_literal(clock + ("." + fraction.ljust(digits, "0") if digits else ""))


# -- text and bytes --------------------------------------------------------------------------------


def _text_constant(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> str | None:
    text = _plain_text(literal)
    if text is None:
        return None
    return text_literal(text.rstrip(" ") if definition.is_char else text)


def _plain_text(literal: Literal) -> str | None:
    """A string, or the text of a whole number; None for what the server would format or decode."""
    if literal.kind is LiteralKind.STRING:
        return literal.text
    if literal.kind is LiteralKind.BOOLEAN:
        return "1" if literal.text == "TRUE" else "0"
    if literal.kind is LiteralKind.NUMBER and re.fullmatch(r"0|-?[1-9]\d{0,17}", literal.text):
        return literal.text
    return None


def _bytes_constant(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> str:
    if literal.kind is LiteralKind.HEX:
        value = bytes.fromhex(literal.text if len(literal.text) % 2 == 0 else "0" + literal.text)
    elif literal.kind is LiteralKind.BITS:
        value = int(literal.text or "0", 2).to_bytes((len(literal.text) + 7) // 8, "big")
    else:
        text = _plain_text(literal)
        if text is None or not text.isascii():
            raise Uncertain("the bytes of a non-ASCII default depend on the session's charset")
        value = text.encode("ascii")
    return _bytes(value.ljust(definition.column.pad_bytes, b"\0"))


def _label(column: Column, text: str) -> str | None:
    """The exact label, or the only one that differs just in case."""
    text = text.rstrip(" ")
    if text in column.labels:
        return text
    matching = [label for label in column.labels if label.casefold() == text.casefold()]
    return matching[0] if len(matching) == 1 else None


def _enum(column: Column, text: str) -> str | None:
    label = _label(column, text)
    return None if label is None else text_literal(label)


def _first_label(definition: ColumnDefinition) -> str:
    if not definition.column.labels:
        raise Uncertain("an ENUM without labels")
    return text_literal(definition.column.labels[0])


def _set(column: Column, text: str) -> str | None:
    if text == "":
        return text_literal("")
    wanted = [_label(column, part) for part in text.split(",")]
    if None in wanted:
        return None
    # '' behind nothing adds no text
    return text_literal(",".join(label for label in column.labels if label in wanted).lstrip(","))


def _bytes(value: bytes) -> str:
    return f"X'{value.hex().upper()}'"


def _cast(text: str, spark: str) -> str:
    return f"CAST('{text}' AS {spark})"


# By `TypeSpec.default`.
DEFAULTS: Final[dict[str, _Default]] = {
    "number": _Default(_number_constant, _zero),
    "bit": _Default(_bit_constant, _zero),
    "year": _Default(_year, _zero),
    "date": _Default(_by_text(_date), _zero_date),
    "datetime": _Default(_by_text(_datetime), _zero_date),
    "timestamp": _Default(_timestamp, _zero_date),
    "time": _Default(_by_text(_time), lambda said: _time_literal(said.column, "00:00:00")),
    "text": _Default(_text_constant, lambda _: text_literal("")),
    "bytes": _Default(_bytes_constant, lambda said: _bytes(bytes(said.column.pad_bytes))),
    "enum": _Default(_by_text(_enum), _first_label),
    "set": _Default(_by_text(_set), lambda _: text_literal("")),
    "server_form": _Default(_other_form, _uncertain),
    "none": _Default(lambda *_: None, _uncertain),
}
