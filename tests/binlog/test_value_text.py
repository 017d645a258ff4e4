"""The text of a value, and its HMAC, against the standard library."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.value_text import hashed, text_of


def digests(values: list[bytes], key: bytes) -> list[str]:
    return hashed(pa.array(values, pa.binary()), key).to_pylist()


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=300), max_size=8), st.binary(max_size=150))
def test_k14_hashes_are_hmac_sha_256(values: list[bytes], key: bytes) -> None:
    assert digests(values, key) == [
        hmac.new(key, value, hashlib.sha256).hexdigest() for value in values
    ]


def test_k14_every_length_around_the_blocks() -> None:
    values = [bytes(range(256))[:length] for length in range(200)]
    for key in (b"k", b"x" * 64, b"y" * 65):
        assert digests(values, key) == [
            hmac.new(key, value, hashlib.sha256).hexdigest() for value in values
        ]


@settings(max_examples=100)
@given(st.integers(0, 12), st.lists(st.integers(-(10**18), 10**18) | st.none(), max_size=6))
def test_text_of_decimals(scale: int, numbers: list[int | None]) -> None:
    values = [None if number is None else Decimal(number).scaleb(-scale) for number in numbers]
    array = pa.array(values, pa.decimal128(38, scale))
    assert text_of(array).to_pylist() == [None if v is None else f"{v:.{scale}f}" for v in values]
    for text, value in zip(text_of(array, canonical=True).to_pylist(), values, strict=True):
        if value is None:
            assert text is None
        else:
            assert Decimal(text) == value
            assert "." not in text or not text.endswith(("0", "."))


@settings(max_examples=60)
@given(st.datetimes(), st.integers(0, 6))
def test_text_of_moments(moment: dt.datetime, digits: int) -> None:
    array = pa.array([moment, None], pa.timestamp("us"))
    whole = moment.isoformat(" ", "seconds").rjust(19, "0")
    fraction = f".{moment.microsecond:06d}"[: digits + 1] if digits else ""
    assert text_of(array, fraction_digits=digits).to_pylist() == [whole + fraction, None]
    assert text_of(array.cast(pa.timestamp("us", "UTC"))).to_pylist() == text_of(array).to_pylist()
    kept = f".{moment.microsecond:06d}".rstrip("0").rstrip(".")
    assert text_of(array, canonical=True).to_pylist() == [whole + kept, None]


def test_equal_values_hash_equally_whatever_their_type() -> None:
    sevens = [
        pa.array([7], pa.int8()),
        pa.array([7], pa.int64()),
        pa.array([Decimal("7.00")], pa.decimal128(10, 2)),
        pa.array(["7"]),
        pa.array([b"7"], pa.binary()),
    ]
    assert {hashed(array, b"salt")[0].as_py() for array in sevens} == {
        hmac.new(b"salt", b"7", hashlib.sha256).hexdigest()
    }
    zeros = pa.array([0.0, -0.0])
    assert len(set(hashed(zeros, b"salt").to_pylist())) == 1
    at = dt.datetime.fromisoformat("2026-01-31T08:00:00")
    same = [pa.array([at], pa.timestamp("us")), pa.array([at], pa.timestamp("us", "UTC"))]
    assert len({hashed(array, b"salt")[0].as_py() for array in same}) == 1


@pytest.mark.parametrize("values", [[], [None], [None, "a", None], ["é" * 100, None]])
def test_null_stays_null_in_slices_too(values: list[str | None]) -> None:
    whole = pa.array(["before", *values, None], pa.string())
    part = hashed(whole[1 : 1 + len(values)], b"salt")
    part.validate(full=True)
    expected = [
        None if v is None else hmac.new(b"salt", v.encode(), hashlib.sha256).hexdigest()
        for v in values
    ]
    assert part.to_pylist() == expected
