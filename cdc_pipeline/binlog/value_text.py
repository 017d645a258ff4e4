"""The text of a value, which hash masks hash and a type override to ``string`` stores.

| values | text |
|---|---|
| integers, YEAR, BIT | decimal digits, ``-`` before negative ones; BIT(1) is 0 or 1 |
| DECIMAL | as the server prints it, all digits of its scale: ``-0.50`` |
| FLOAT, DOUBLE | the shortest digits that read back as the value; 0 for both zeros |
| DATE | ``2026-01-31`` |
| DATETIME, TIMESTAMP | ``2026-01-31 08:00:00``, with the column's fraction digits; TIMESTAMP: UTC |
| text, ENUM, SET, TIME, JSON, UUID, INET | unchanged |
| BINARY, BLOB | the bytes themselves |

Hashes use the *canonical* form: the fraction of DECIMAL, DATETIME and TIMESTAMP without trailing
zeros. So equal values of two columns have equal hashes whatever the columns' width, scale and
precision: INT and BIGINT, an integer and a DECIMAL, DATETIME(0) and DATETIME(6). FLOAT and DOUBLE
are equal only if their digits are.
"""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_BLOCK_BYTES: Final = 64  # of SHA-256


def has_text(type_: pa.DataType) -> bool:
    return not pa.types.is_nested(type_)


def text_of(array: pa.Array, *, fraction_digits: int = 6, canonical: bool = False) -> pa.Array:
    """Return the texts of n values as utf8; binary stays binary. NULL stays NULL.

    Args:
        fraction_digits: fraction digits of dates and times, 0 to 6; -1 counts as 6.
        canonical: whether to use the canonical form.
    """
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return array
    if pa.types.is_decimal(type_):
        return _decimal_text(array, type_.scale, canonical=canonical)
    if pa.types.is_boolean(type_):
        return array.cast(pa.int8()).cast(pa.string())
    if pa.types.is_timestamp(type_):
        return _time_text(array, 6 if fraction_digits < 0 else fraction_digits, canonical=canonical)
    if pa.types.is_floating(type_):
        array = pc.if_else(pc.equal(array, 0.0), pa.scalar(0.0, type_), array)
    return array.cast(pa.string())


def texts_of(array: pa.Array) -> list[str | None]:
    """As `text_of`, with bytes in hex: what `value_of` reads."""
    return [one.hex() if isinstance(one, bytes) else one for one in text_of(array).to_pylist()]


def value_of(text: str, type_: pa.DataType) -> pa.Scalar | None:
    """The value of a text, of bytes in hex; None if it is none of this type."""
    try:
        if pa.types.is_binary(type_):
            return pa.scalar(bytes.fromhex(text), type_)
        if pa.types.is_timestamp(type_):
            return pa.scalar(text).cast(pa.timestamp("us")).cast(type_)
        return pa.scalar(text).cast(type_)
    except (ValueError, pa.ArrowException):
        return None


def hashed(array: pa.Array, key: bytes) -> pa.StringArray:
    """Return the HMAC-SHA-256 of the canonical texts of n values as 64 hex digits; NULL stays NULL.

    The two key blocks of HMAC (RFC 2104) are hashed once, not for every value as
    by ``hmac.digest``, which takes twice as long or more.

    Args:
        array: values of a type that has a text.
    """
    block = (hashlib.sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(
        _BLOCK_BYTES, b"\0"
    )
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block)).copy
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block)).copy

    def hexdigest(value: bytes) -> str:
        inside, outside = inner(), outer()
        inside.update(value)
        outside.update(inside.digest())
        return outside.hexdigest()

    values = text_of(array, canonical=True).cast(pa.large_binary()).to_pylist()
    return pa.array([None if value is None else hexdigest(value) for value in values], pa.string())


def _decimal_text(array: pa.Array, scale: int, *, canonical: bool) -> pa.Array:
    # Arrow prints a small decimal as 1E-7, so take the digits without the point and insert it here.
    buffers = array.buffers()
    digits = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(array), buffers, offset=array.offset
    ).cast(pa.string())
    if not scale:
        return digits
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    fraction = pc.utf8_slice_codeunits(padded, -scale)
    if canonical:
        fraction = pc.utf8_rtrim(fraction, "0")
    point = pc.if_else(pc.equal(pc.utf8_length(fraction), 0), "", ".")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(padded, 0, -scale), point, fraction, ""
    )


def _time_text(array: pa.Array, fraction_digits: int, *, canonical: bool) -> pa.Array:
    # Always with six fraction digits.
    text = array.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
    if canonical:
        return pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    return pc.utf8_slice_codeunits(text, 0, 20 + fraction_digits if fraction_digits else 19)
