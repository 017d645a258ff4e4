"""What a new type does to a column's values: nothing, a wider type, a certain conversion, or
unknown (K13, K23: the log does not show it).

Rules:
- The question is about values as the lake holds them, not about the server's storage: VARCHAR(10)
  to TEXT is no change, ENUM to VARCHAR neither, TIME to TIME(3) rewrites every value.
- In strict mode a value that the new type cannot hold fails the statement; otherwise the server
  adjusts it in silence, and a check over the rows must prove that there was none. Silent changes in
  strict mode are checked as well: trailing blanks, NULLs that get a value, labels in another
  charset.
- What is not in this table is unknown. `make campaign NAME=values` tests each pair of types on both
  servers.

Source: MySQL 9.7 manual, 13 and 15.1.11 (conversions by ALTER TABLE).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.binlog.column_types import DECIMAL_DIGITS_MAX
from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.schema.ddl.columns import ColumnDefinition
from cdc_pipeline.schema.ddl.tokens import SqlModes, Uncertain
from cdc_pipeline.schema.types import delta_type, whole_range
from cdc_pipeline.text.spark_sql import text_literal

_WHOLE_UNICODE: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_BASIC_PLANE: Final = frozenset({"utf8mb3", "utf8", "ucs2"})
_UNICODE: Final = "utf8mb4"
# Their tables map a character to another one's code, which strict mode accepts: U+6661 becomes
# U+6659.
_BENDING: Final = frozenset({"cp932"})
_NOT_ASCII: Final = frozenset({"swe7"})
_LENGTH_BYTES: Final = {"TINY": 255, "": 65_535, "MEDIUM": 16_777_215, "LONG": 4_294_967_295}
_TEXTS_BY_BYTES: Final = frozenset({"TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"})
# Charsets that need no more bytes for a text than UTF-8, which the lake's texts are in.
_AS_SHORT_AS_UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii", "latin1"})

_CUT: Final = "values were cut to the new range"
_AS_TEXT: Final = "DECIMAL beyond 38 digits is text in the lake"


_Check = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ValueChange:
    """What happens to the values of a column.

    Attributes:
        value: the new value as Spark SQL over ``{c}``, the old one; "" if it stays the same, in
            another type perhaps.
        checks: conditions (``{c}``) that all rows must satisfy, each with the meaning of a failure.
        is_reprinted: the server prints the same value as another text.
    """

    value: str = ""
    checks: tuple[_Check, ...] = ()
    is_reprinted: bool = False


def value_change(old: Column, new: ColumnDefinition, modes: SqlModes) -> ValueChange:
    """`new` has its charset resolved (the table's default if none is written). Raises Uncertain:
    the values afterwards are unknown.
    """
    if new.generated:
        raise Uncertain("a generated column computes its values")
    change = _by_kind(old, new, modes)
    checks = list(change.checks)
    is_timestamp = new.column.kind is Kind.TIMESTAMP
    # Without explicit_defaults_for_timestamp a TIMESTAMP is NOT NULL by itself.
    may_be_not_null = (
        is_timestamp and new.nullable is None and modes.explicit_defaults_for_timestamp is not True
    )
    gives_values = new.auto_increment or is_timestamp or not modes.strict
    if old.nullable and (new.not_null or may_be_not_null) and gives_values:
        checks.append(("{c} IS NOT NULL", "NULLs were replaced by another value"))
    if new.auto_increment:
        checks.append(("{c} <> 0", "AUTO_INCREMENT may have numbered rows with 0"))
    return replace(change, checks=tuple(checks))


def _kept(*checks: _Check) -> ValueChange:
    return ValueChange(checks=checks)


def _by_kind(old: Column, new: ColumnDefinition, modes: SqlModes) -> ValueChange:
    column, strict = new.column, modes.strict
    before, after = old.type, column.type
    is_alike = old.kind is column.kind
    pair = f"{old.kind} to {new.sql_type}"
    whole = whole_range(old)
    if whole is not None and whole[0] < 0 and column.kind is Kind.BIT:
        raise Uncertain(f"{pair} reinterprets the bits of negative numbers")
    if whole is not None and whole_range(column) is not None:
        return _integers(old, column, strict=strict)
    if before.change == after.change == "decimal":
        return _decimals(old, column, strict=strict)
    if before.integer_bits and whole is not None and after.change == "decimal":
        return _integer_to_decimal(column, whole, strict=strict)
    if before.change == "real" and column.kind in (Kind.DOUBLE, old.kind):
        if len(new.sizes) == 2:
            raise Uncertain(f"{new.sql_type} rounds")
        return _kept(*_not_negative(column, is_loose=not (old.unsigned or strict)))
    if (
        whole is not None
        and column.kind is Kind.DOUBLE
        and len(new.sizes) != 2
        and max(map(abs, whole)) < 2**53
        and delta_type(old) != "boolean"
    ):
        return _kept(*_not_negative(column, is_loose=whole[0] < 0 and not strict))
    if whole is not None and after.change == "text" and not old.unsigned and before.integer_bits:
        return _fits_text("CAST({c} AS string)", old, new)
    if (
        before.change == "text"
        and not modes.trims_char
        and after.text_chars_max
        and not new.is_char
    ):
        raise Uncertain("with PAD_CHAR_TO_FULL_LENGTH a CHAR is copied with trailing blanks")
    if before.text_chars_max and after.change == "text":
        return _texts(old, new, strict=strict)
    if after.has_labels and not _holds_labels(column, old):
        raise Uncertain(f"labels that charset {column.charset or 'unknown'} may not hold")
    if before.change == "text" and column.kind is Kind.ENUM:
        listed = ", ".join(text_literal(label) for label in column.labels)
        return _kept((f"{{c}} IN ({listed})", "values became other labels"))
    if before.change == "text" and after.has_labels:
        raise Uncertain(pair)
    if is_alike and before.change == "labels":
        return _labels(old, column)
    if is_alike and before.change == "bytes":
        return _bytes(old, new, strict=strict)
    if is_alike and before.change == "fraction":
        return _fractions(old, column)
    if old.kind is Kind.DATE and column.kind is Kind.DATETIME:
        return ValueChange(is_reprinted=True)
    if old.kind is Kind.DATETIME and column.kind is Kind.DATE and old.fraction_digits == 0:
        return ValueChange("CAST({c} AS date)")
    if is_alike and before.change == "fixed":
        return _kept()
    raise Uncertain(f"{pair} converts every value")


# -- numbers ---------------------------------------------------------------------------------------


def _not_negative(new: Column, *, is_loose: bool) -> tuple[_Check, ...]:
    return (("{c} >= 0", "negative values became 0"),) if new.unsigned and is_loose else ()


def _integers(old: Column, new: Column, *, strict: bool) -> ValueChange:
    before, after = whole_range(old), whole_range(new)
    assert before is not None
    assert after is not None
    checks: tuple[_Check, ...] = ()
    if not strict and not (after[0] <= before[0] and before[1] <= after[1]):
        checks = ((f"CAST({{c}} AS decimal(20,0)) BETWEEN {after[0]} AND {after[1]}", _CUT),)
    if (delta_type(old) == "boolean") != (delta_type(new) == "boolean"):
        return ValueChange(f"CAST({{c}} AS {delta_type(new)})", checks)
    return _kept(*checks)


def _decimals(old: Column, new: Column, *, strict: bool) -> ValueChange:
    if max(old.precision, new.precision) > DECIMAL_DIGITS_MAX:
        if min(old.precision, new.precision) <= DECIMAL_DIGITS_MAX or old.scale != new.scale:
            raise Uncertain(_AS_TEXT)
        if not strict and new.precision < old.precision:
            raise Uncertain("digits may have been cut")
        return _kept()
    checks = list(_not_negative(new, is_loose=not (old.unsigned or strict)))
    whole = new.precision - new.scale
    limit = f"CAST('1{'0' * whole}' AS decimal(38,0))"
    if whole < old.precision - old.scale and not strict:
        checks.append((f"abs({{c}}) < {limit}", _CUT))
    if new.scale >= old.scale:
        return _kept(*checks)
    rounded = f"round({{c}}, {new.scale})"
    if not strict:  # 9.99 becomes 10.0, which DECIMAL(2,1) does not hold
        checks.append((f"abs({rounded}) < {limit}", _CUT))
    return ValueChange(rounded, tuple(checks))


def _integer_to_decimal(new: Column, whole: tuple[int, int], *, strict: bool) -> ValueChange:
    if new.precision > DECIMAL_DIGITS_MAX:
        raise Uncertain(_AS_TEXT)
    limit = 10 ** (new.precision - new.scale)
    fits = max(map(abs, whole)) < limit and not (new.unsigned and whole[0] < 0)
    if fits or strict:
        return _kept()
    low = 0 if new.unsigned else 1 - limit
    return _kept((f"CAST({{c}} AS decimal(38,0)) BETWEEN {low} AND {limit - 1}", _CUT))


# -- text, labels, bytes, times --------------------------------------------------------------------


def is_lossless(old: str, new: str) -> bool:
    """Whether every text of charset `old` is also one of charset `new`."""
    old, new = old.lower(), new.lower()
    if old == new or new in _WHOLE_UNICODE:
        return True
    if new in _BASIC_PLANE:
        return old not in _WHOLE_UNICODE and old != ""
    return old == "ascii" and new not in _NOT_ASCII and new not in ("", "binary")


def keeps_text(old: str, new: str, *, strict: bool) -> bool:
    """Whether the server converts texts so that they stay the same, or refuses to."""
    return is_lossless(old, new) or (strict and new.lower() not in _BENDING)


def _texts(old: Column, new: ColumnDefinition, *, strict: bool) -> ValueChange:
    before = old.charset if old.type.has_charset else _UNICODE
    is_ascii = old.type.text_chars_max > 0
    if not is_ascii and not keeps_text(before, new.column.charset, strict=strict):
        raise Uncertain(
            f"charset {before or 'unknown'} to {new.column.charset or 'unknown'} "
            "may lose characters"
        )
    return _fits_text("", old, new)


def _fits_text(value: str, old: Column, new: ColumnDefinition) -> ValueChange:
    """With checks that no text was cut: strict mode cuts trailing blanks in silence."""
    checks: list[_Check] = []
    text, longest = value or "{c}", _longest(old)
    cut = "texts were cut to the new length"
    if new.declared in _TEXTS_BY_BYTES:
        size = _bytes_max(new)
        if new.declared != "LONGTEXT" and not 0 < 4 * longest <= size:
            is_short = new.column.charset in _AS_SHORT_AS_UTF8
            length = f"octet_length({text})" if is_short else f"char_length({text})"
            checks.append((f"{length} <= {size if is_short else size // 4}", cut))
    elif not 0 < longest <= new.column.char_length_max:
        checks.append((f"char_length({text}) <= {new.column.char_length_max}", cut))
    if new.is_char and not old.type.integer_bits:
        checks.append(("{c} NOT LIKE '% '", "trailing blanks were dropped"))
    return ValueChange(value, tuple(checks))


def _longest(column: Column) -> int:
    """In characters; 0 if unknown."""
    if column.kind is Kind.ENUM:
        return max((len(label) for label in column.labels), default=1)
    if column.kind is Kind.SET:
        return sum(len(label) + 1 for label in column.labels)
    if column.type.integer_bits:
        return max(len(str(number)) for number in whole_range(column) or ())
    return column.char_length_max if column.type.text_chars_max < 0 else column.type.text_chars_max


def _bytes_max(new: ColumnDefinition) -> int:
    """How many bytes a TEXT or BLOB holds at least."""
    if new.sizes:
        return new.sizes[0]
    return _LENGTH_BYTES[re.sub("TEXT|BLOB", "", new.declared)]


def _holds_labels(column: Column, old: Column) -> bool:
    """Characters that a charset lacks become question marks, even in strict mode."""
    if is_lossless(_UNICODE, column.charset) or all(label.isascii() for label in column.labels):
        return True
    return (
        old.kind is column.kind
        and old.charset == column.charset
        and set(column.labels) <= set(old.labels)
    )


def _labels(old: Column, new: Column) -> ValueChange:
    """By their text; a SET's labels follow the order of the definition."""
    removed = [label for label in old.labels if label not in new.labels]
    if old.kind is Kind.SET:
        kept = [label for label in new.labels if label in old.labels]
        if removed or kept != list(old.labels):
            raise Uncertain("labels of a SET are removed or reordered")
    if not removed:
        return _kept()
    listed = ", ".join(text_literal(label) for label in removed)
    return _kept((f"{{c}} NOT IN ({listed})", "values with a removed label became others"))


def _bytes(old: Column, new: ColumnDefinition, *, strict: bool) -> ValueChange:
    pad = new.column.pad_bytes
    if pad and pad != old.pad_bytes:
        if old.pad_bytes > pad or (not old.pad_bytes and not strict):
            raise Uncertain("bytes may have been cut")
        return ValueChange(f"rpad({{c}}, {pad}, X'00')")
    if pad or strict or new.declared == "LONGBLOB":
        return _kept()
    size = new.column.char_length_max or (_bytes_max(new) if new.declared.endswith("BLOB") else 0)
    if 0 < (old.pad_bytes or old.char_length_max) <= size:
        return _kept()
    return _kept((f"octet_length({{c}}) <= {size}", "bytes were cut to the new length"))


def _fractions(old: Column, new: Column) -> ValueChange:
    before, after = old.fraction_digits, new.fraction_digits
    if before < 0:
        raise Uncertain("the former number of fraction digits is unknown")
    if before == after or (old.kind is not Kind.TIME and before < after):
        return ValueChange(is_reprinted=before != after)
    if old.kind is Kind.TIME:
        if before > after:
            raise Uncertain("times are rounded")
        point = "." if before == 0 else ""
        return ValueChange(f"concat({{c}}, '{point}{'0' * (after - before)}')")
    seconds = "date_part('SECOND', {c})"
    return _kept((f"{seconds} = round({seconds}, {after})", "fractions were rounded"))
