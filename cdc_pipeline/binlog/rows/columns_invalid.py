"""The server's text of dates and times that Arrow cannot hold:
zero, partial and impossible dates.
"""

from __future__ import annotations

from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.binlog.tables.columns_wire import fraction_bytes
from cdc_pipeline.binlog.wire_types import OLD_TEMPORAL

_ZERO_DATETIME = "0000-00-00 00:00:00"


def temporal_text(column: Column, packed: int) -> str:
    """The text of a packed DATE, DATETIME, TIMESTAMP or TIME, as SELECT prints it. `packed`: the
    value's bits as `kernels.numbers.gather_integers` reads them (int64).
    """
    digits = column.fraction_digits
    if column.kind is Kind.DATE:
        return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"
    if column.kind is Kind.TIME:
        return f"{packed:#x}"  # not a time: the server itself would not print it
    if column.wire_type in OLD_TEMPORAL and digits:
        return _old_fractional(column.kind, packed, digits)
    if column.wire_type in OLD_TEMPORAL:
        if column.kind is Kind.TIMESTAMP:
            return _ZERO_DATETIME
        text = f"{packed:014d}"
        return f"{text[:-10]}-{text[-10:-8]}-{text[-8:-6]} {text[-6:-4]}:{text[-4:-2]}:{text[-2:]}"
    size = fraction_bytes(digits)
    fraction = packed & (1 << 8 * size) - 1
    tail = f".{fraction:0{2 * size}d}"[: digits + 1] if digits else ""
    if column.kind is Kind.TIMESTAMP:
        return _ZERO_DATETIME + tail
    whole = (packed ^ 1 << 39 + 8 * size) >> 8 * size & (1 << 40) - 1
    months, day = whole >> 22, whole >> 17 & 31
    hour, minute, second = whole >> 12 & 31, whole >> 6 & 63, whole & 63
    return (
        f"{months // 13:04d}-{months % 13:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}{tail}"
    )


def _old_fractional(kind: Kind, packed: int, digits: int) -> str:
    """The text of a value of MariaDB's old types with a fraction (see `kernels.old_temporal`)."""
    if kind is Kind.TIMESTAMP:
        return f"{_ZERO_DATETIME}.{0:0{digits}d}"
    whole, fraction = divmod(packed, 10**digits)
    parts = []
    for radix in (60, 60, 24, 32, 13):
        whole, part = divmod(whole, radix)
        parts.append(part)
    second, minute, hour, day, month = parts
    return (
        f"{whole:04d}-{month:02d}-{day:02d} "
        f"{hour:02d}:{minute:02d}:{second:02d}.{fraction:0{digits}d}"
    )
