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
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes
from cdc_pipeline.schema.types import delta_type
from cdc_pipeline.text.spark_sql import text_literal

_NUMERIC_TEXT: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_DATETIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?")
_TIME: Final = re.compile(r"(-?)(\d{2,3}):(\d\d):(\d\d)(?:\.(\d+))?")
_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d\d)")


@dataclass(frozen=True, slots=True)
class Backfill:
    sql: str = ""
    refused: str = ""


NULL: Final = Backfill("NULL")


def backfill(definition: ColumnDefinition, *, modes: SqlModes = UNKNOWN_MODES) -> Backfill:
    refused = _computed(definition, modes)
    if refused:
        return Backfill(refused=refused)
    literal = definition.literal
    if definition.default is DefaultKind.CONSTANT and literal is not None:
        if literal.kind is LiteralKind.NULL:
            return NULL
        return DEFAULTS[definition.column.type.default].constant(definition, literal, modes)
    if not definition.not_null:
        return NULL
    return DEFAULTS[definition.column.type.default].implicit(definition)


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


def _unfit(definition: ColumnDefinition, literal: Literal) -> Backfill:
    return Backfill(
        refused=f"the server converts the default, a {literal.kind.value}, to {definition.sql_type}"
    )


@dataclass(frozen=True, slots=True)
class _Default:
    """How defaults of a type are written: a constant other than NULL, and NOT NULL without one."""

    constant: Callable[[ColumnDefinition, Literal, SqlModes], Backfill]
    implicit: Callable[[ColumnDefinition], Backfill]


def _by_text(
    write: Callable[[Column, str], str | None],
) -> Callable[[ColumnDefinition, Literal, SqlModes], Backfill]:
    """A writer for constants that are certain only as strings; `write` returns None for others."""

    def constant(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> Backfill:
        sql = write(definition.column, literal.text) if literal.kind is LiteralKind.STRING else None
        return _unfit(definition, literal) if sql is None else Backfill(sql)

    return constant


def _no_constant(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> Backfill:
    return _unfit(definition, literal)


def _other_form(definition: ColumnDefinition, _literal: Literal, _modes: SqlModes) -> Backfill:
    return Backfill(
        refused=f"the server may store a {definition.declared} constant in another form"
    )


def _uncertain(definition: ColumnDefinition) -> Backfill:
    return Backfill(refused=f"the implicit default of {definition.declared} is not certain")


def _zero(definition: ColumnDefinition) -> Backfill:
    return _number(definition, Decimal(0))


def _zero_date(_definition: ColumnDefinition) -> Backfill:
    return Backfill(
        refused="NOT NULL without a default gives existing rows the zero date, which "
        "Delta cannot hold"
    )


def _empty_text(_definition: ColumnDefinition) -> Backfill:
    return Backfill(text_literal(""))


# -- numbers ---------------------------------------------------------------------------------------


def _number_of(literal: Literal) -> Decimal | None:
    if literal.kind is LiteralKind.BOOLEAN:
        return Decimal(literal.text == "TRUE")
    if literal.kind is LiteralKind.HEX:
        return Decimal(int(literal.text or "0", 16))
    if literal.kind is LiteralKind.BITS:
        return Decimal(int(literal.text or "0", 2))
    if not _NUMERIC_TEXT.fullmatch(literal.text):
        return None
    try:
        return Decimal(literal.text)
    except InvalidOperation:
        return None


def _number(definition: ColumnDefinition, value: Decimal) -> Backfill:
    """Refuses a number that would be rounded or is out of range."""
    column = definition.column
    refused = Backfill(refused=f"{definition.sql_type} cannot hold the default unchanged")
    if column.unsigned and value < 0:
        return refused
    spark = delta_type(column)
    if column.type.change == "whole":
        bits = column.type.integer_bits or column.bits
        unsigned = column.unsigned or not column.type.has_sign
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if value != value.to_integral_value() or not low <= value <= high:
            return refused
        if spark == "boolean":
            return Backfill("true" if value else "false")
        return Backfill(_cast(str(int(value)), spark))
    if column.kind is Kind.YEAR:
        return Backfill(_cast(str(int(value)), spark))
    if column.kind is Kind.DECIMAL:
        return _decimal(column, value) or refused
    return _floating(definition, value) or refused


def _decimal(column: Column, value: Decimal) -> Backfill | None:
    with localcontext() as context:
        context.prec = 200
        fixed = value.quantize(Decimal(1).scaleb(-column.scale)) + 0  # + 0: no negative zero
        if fixed != value or len(fixed.as_tuple().digits) > column.precision:
            return None
        text = f"{fixed:f}"
    spark = delta_type(column)
    return Backfill(text_literal(text) if spark == "string" else _cast(text, spark))


def _floating(definition: ColumnDefinition, value: Decimal) -> Backfill | None:
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
    return Backfill(_cast(repr(number), delta_type(definition.column)))


def _year(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> Backfill:
    text = literal.text
    zero = (literal.kind is LiteralKind.NUMBER and text == "0") or text == "0000"
    if zero:
        return _number(definition, Decimal(0))
    if (
        len(text) == 4
        and text.isdigit()
        and literal.kind in (LiteralKind.NUMBER, LiteralKind.STRING)
    ):
        return (
            _number(definition, Decimal(text))
            if 1901 <= int(text) <= 2155
            else _unfit(definition, literal)
        )
    return _unfit(definition, literal)


def _number_constant(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> Backfill:
    value = _number_of(literal)
    return _unfit(definition, literal) if value is None else _number(definition, value)


def _bit_constant(definition: ColumnDefinition, literal: Literal, modes: SqlModes) -> Backfill:
    if literal.kind is LiteralKind.STRING:
        return _unfit(definition, literal)
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
    try:
        return datetime(  # noqa: DTZ001 - a wall clock has no zone
            int(match[1]),
            int(match[2]),
            int(match[3]),
            int(match[4] or 0),
            int(match[5] or 0),
            int(match[6] or 0),
            int(fraction.ljust(6, "0")),
        )
    except ValueError:
        return None


def _datetime(column: Column, text: str) -> str | None:
    moment = _moment(text, column.fraction_digits)
    return None if moment is None else f"TIMESTAMP_NTZ'{_stamp(moment)}'"


def _stamp(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _timestamp(definition: ColumnDefinition, literal: Literal, modes: SqlModes) -> Backfill:
    is_text = literal.kind is LiteralKind.STRING
    moment = _moment(literal.text, definition.column.fraction_digits) if is_text else None
    if moment is None:
        return _unfit(definition, literal)
    zone = _zone(modes.time_zone)
    if zone is None:
        return Backfill(
            refused="a TIMESTAMP constant depends on the session's time zone, which is "
            "not a fixed offset"
        )
    try:
        instant = moment.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:
        return _unfit(definition, literal)
    if instant < datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC):
        return _unfit(definition, literal)
    return Backfill(f"TIMESTAMP'{_stamp(instant)}+00:00'")


def _zone(name: str) -> timezone | None:
    if name.upper() == "UTC":
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return timezone(-offset if match[1] == "-" else offset)


def _time(column: Column, text: str) -> str | None:
    fraction_digits = column.fraction_digits
    match = _TIME.fullmatch(text)
    if match is None or int(match[2]) > 838 or int(match[3]) > 59 or int(match[4]) > 59:
        return None
    fraction = (match[5] or "").rstrip("0")
    clock = f"{int(match[2]):02d}:{match[3]}:{match[4]}"
    if len(fraction) > fraction_digits or (clock == "838:59:59" and fraction):
        return None
    sign = match[1] if clock != "00:00:00" or fraction else ""
    return text_literal(_time_text(sign, clock, fraction, fraction_digits))


def _time_text(sign: str, clock: str, fraction: str, fraction_digits: int) -> str:
    return sign + clock + ("." + fraction.ljust(fraction_digits, "0") if fraction_digits else "")


# -- text and bytes --------------------------------------------------------------------------------


def _midnight(definition: ColumnDefinition) -> Backfill:
    return Backfill(text_literal(_time_text("", "00:00:00", "", definition.column.fraction_digits)))


def _text_constant(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> Backfill:
    text = _plain_text(literal)
    if text is None:
        return _unfit(definition, literal)
    return Backfill(text_literal(text.rstrip(" ") if definition.is_char else text))


def _plain_text(literal: Literal) -> str | None:
    """A string, or the text of a whole number; None for what the server would format or decode."""
    if literal.kind is LiteralKind.STRING:
        return literal.text
    if literal.kind is LiteralKind.BOOLEAN:
        return "1" if literal.text == "TRUE" else "0"
    if literal.kind is LiteralKind.NUMBER and re.fullmatch(r"0|-?[1-9]\d{0,17}", literal.text):
        return literal.text
    return None


def _zero_bytes(definition: ColumnDefinition) -> Backfill:
    return Backfill(_bytes(bytes(definition.column.pad_bytes)))


def _bytes_constant(definition: ColumnDefinition, literal: Literal, _modes: SqlModes) -> Backfill:
    if literal.kind is LiteralKind.HEX:
        value = bytes.fromhex(literal.text if len(literal.text) % 2 == 0 else "0" + literal.text)
    elif literal.kind is LiteralKind.BITS:
        value = int(literal.text or "0", 2).to_bytes((len(literal.text) + 7) // 8, "big")
    else:
        text = _plain_text(literal)
        if text is None or not text.isascii():
            return Backfill(
                refused="the bytes of a non-ASCII default depend on the session's charset"
            )
        value = text.encode("ascii")
    return Backfill(_bytes(value.ljust(definition.column.pad_bytes, b"\0")))


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


def _first_label(definition: ColumnDefinition) -> Backfill:
    labels = definition.column.labels
    return (
        Backfill(text_literal(labels[0])) if labels else Backfill(refused="an ENUM without labels")
    )


def _set(column: Column, text: str) -> str | None:
    if text == "":
        return text_literal("")
    wanted = [_label(column, part) for part in text.split(",")]
    if None in wanted:
        return None
    return text_literal(",".join(label for label in column.labels if label in wanted))


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
    "time": _Default(_by_text(_time), _midnight),
    "text": _Default(_text_constant, _empty_text),
    "bytes": _Default(_bytes_constant, _zero_bytes),
    "enum": _Default(_by_text(_enum), _first_label),
    "set": _Default(_by_text(_set), _empty_text),
    "server_form": _Default(_other_form, _uncertain),
    "none": _Default(_no_constant, _uncertain),
}
