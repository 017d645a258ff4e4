"""Kernels of MariaDB's own types against slow twins: COMPRESSED values, UUID and addresses, old
temporal types."""

from __future__ import annotations

import uuid
import zlib
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.native import inflate
from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.errors import RuntimeSetupError
from tests.binlog.kernels.test_kernels import MOMENTS, decode, invalid_texts, values_of
from tests.support.rows_events import prefixed

few = settings(max_examples=60)


def packed(plain: bytes, *, raw: bool, length_bytes: int) -> bytes:
    """A value as MariaDB's zlib method writes it."""
    packer = zlib.compressobj(wbits=-15 if raw else 15)
    head = bytes([8 << 4 | (8 if raw else 0) | length_bytes])
    return head + len(plain).to_bytes(length_bytes, "big") + packer.compress(plain) + packer.flush()


@st.composite
def compressed_values(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """(stored, plain)."""
    plain = draw(
        st.binary(max_size=300) | st.binary(min_size=1, max_size=9).map(lambda piece: piece * 700)
    )
    if draw(st.booleans()):
        return (b"\0" + plain if plain else b"", plain)
    return packed(plain, raw=draw(st.booleans()), length_bytes=draw(st.integers(2, 4))), plain


@settings(max_examples=100)
@given(st.lists(st.none() | compressed_values(), min_size=1), st.sampled_from([2, 3, 4]))
def test_compressed_values(values: list[tuple[bytes, bytes] | None], length_bytes: int) -> None:
    column = Column("c", Kind.BINARY, 140, length_bytes, True)
    rows = decode(
        column, [None if value is None else prefixed(value[0], length_bytes) for value in values]
    )
    assert values_of(rows) == [None if value is None else value[1] for value in values]
    assert rows.invalid == []


def test_compressed_text_of_any_charset() -> None:
    texts = ["", "abc", "é" * 90, "x" * 90]
    for charset, codec in (("latin1", "latin-1"), ("utf8mb4", "utf-8"), ("utf16", "utf-16-be")):
        column = Column("c", Kind.TEXT, 141, 401, True, charset=charset)
        raw = [text.encode(codec) for text in texts]
        rows = decode(
            column, [prefixed(packed(value, raw=True, length_bytes=2), 2) for value in raw]
        )
        assert values_of(rows) == texts


GOOD = packed(b"abc" * 50, raw=True, length_bytes=1)
BROKEN = {
    "an unknown method": b"\x19\x05abcde",
    "no length": b"\x88abc",
    "a length of five bytes": b"\x8d\0\0\0\0\x96" + GOOD[2:],
    "a length that is cut off": b"\x8b\x96",
    "another length": bytes([0x89, 149]) + GOOD[2:],
    "more than deflate can hold": b"\x8b\xff\xff\xff" + GOOD[2:],
    "a stream that is cut off": GOOD[:-1],
    "a zlib header that is not there": bytes([0x81]) + GOOD[1:],
    "a wrong checksum": packed(b"abc", raw=False, length_bytes=1)[:-1] + b"\xff",
    "noise": b"\x89\x05\xff\xff\xff\xff\xff",
}


@pytest.mark.parametrize("stored", BROKEN.values(), ids=BROKEN)
def test_broken_compressed_values_are_invalid_and_the_rest_is_read(stored: bytes) -> None:
    column = Column("c", Kind.TEXT, 140, 4, True, charset="latin1")
    rows = decode(column, [prefixed(value, 4) for value in (GOOD, stored, b"\0z")])
    assert values_of(rows) == ["abc" * 50, None, "z"]
    assert invalid_texts(rows) == {1: stored.hex()}
    assert rows.invalid[0].reason == "not a compressed value of MariaDB"


def test_undecodable_text_in_a_compressed_value_is_told_unpacked() -> None:
    rows = decode(
        Column("c", Kind.TEXT, 141, 101, True, charset="utf8mb4"),
        [prefixed(b"\0\xff", 1), prefixed(b"\0ok", 1)],
    )
    assert values_of(rows) == [None, "ok"]
    assert invalid_texts(rows) == {0: "ff"}


def test_a_value_longer_than_its_column_is_invalid() -> None:
    rows = decode(
        Column("c", Kind.BINARY, 141, 4, True), [prefixed(b"\0abc", 1), prefixed(b"\0abcd", 1)]
    )
    assert values_of(rows) == [b"abc", None]


def test_without_a_shared_zlib_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "HAS_ZLIB", False)
    with pytest.raises(RuntimeSetupError, match="zlib"):
        inflate.new_stream()


def slow_inet6(raw: bytes) -> str:
    """Twin: groups as text, the longest run of zeros replaced."""
    groups = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, 16, 2)]
    dotted = str(IPv4Address(raw[12:]))
    if not any(groups[:5]) and groups[5] == 0xFFFF:
        return f"::ffff:{dotted}"
    if not any(groups[:6]) and groups[6]:
        return f"::{dotted}"
    runs = [
        (count, -at)
        for at in range(8)
        for count in range(1, 9 - at)
        if not any(groups[at : at + count])
    ]
    if not runs:
        return ":".join(f"{group:x}" for group in groups)
    count, at = max(runs)
    head, tail = groups[:-at], groups[-at + count :]
    return (
        ":".join(f"{group:x}" for group in head) + "::" + ":".join(f"{group:x}" for group in tail)
    )


def sparse_bytes(size: int) -> st.SearchStrategy[bytes]:
    return st.lists(
        st.sampled_from([0, 0, 0, 1, 9, 16, 99, 100, 255]), min_size=size, max_size=size
    ).map(bytes)


INET6 = st.binary(min_size=16, max_size=16) | sparse_bytes(16)
MAPPED = sparse_bytes(4).map(lambda tail: bytes(10) + b"\xff\xff" + tail)
COMPATIBLE = sparse_bytes(4).map(lambda tail: bytes(12) + tail)


@settings(max_examples=200)
@given(st.lists(st.none() | INET6 | MAPPED | COMPATIBLE, min_size=1))
def test_inet6(values: list[bytes | None]) -> None:
    stored = [None if value is None else prefixed(value.rstrip(b"\0"), 1) for value in values]
    got = values_of(decode(Column("c", Kind.INET6, 254, 16, True, pad_bytes=16), stored))
    assert got == [None if value is None else slow_inet6(value) for value in values]
    assert all(
        value is None or IPv6Address(text).packed == value
        for value, text in zip(values, got, strict=True)
    )


@few
@given(st.lists(st.none() | st.binary(min_size=16, max_size=16) | sparse_bytes(16), min_size=1))
def test_uuid_and_inet4(values: list[bytes | None]) -> None:
    stored = [None if value is None else prefixed(value.rstrip(b"\0"), 1) for value in values]
    rows = decode(Column("c", Kind.UUID, 254, 16, True, pad_bytes=16), stored)
    assert values_of(rows) == [
        None if value is None else str(uuid.UUID(bytes=value)) for value in values
    ]
    short = [None if value is None else value[:4] for value in values]
    stored = [None if value is None else prefixed(value.rstrip(b"\0"), 1) for value in short]
    rows = decode(Column("c", Kind.INET4, 254, 4, True, pad_bytes=4), stored)
    assert values_of(rows) == [
        None if value is None else str(IPv4Address(value)) for value in short
    ]


@pytest.mark.parametrize(("kind", "size"), [(Kind.UUID, 16), (Kind.INET4, 4), (Kind.INET6, 16)])
def test_a_longer_value_is_no_address(kind: Kind, size: int) -> None:
    rows = decode(
        Column("c", kind, 254, size, True, pad_bytes=size),
        [prefixed(b"\1" * (size + 1), 1), prefixed(b"", 1)],
    )
    assert values_of(rows)[0] is None
    assert invalid_texts(rows) == {0: "01" * (size + 1)}


TIMESTAMP_BYTES = [4, 5, 5, 6, 6, 7, 7]
DATETIME_BYTES = [5, 6, 6, 7, 7, 7, 8]
TIME_BYTES = [3, 4, 4, 5, 5, 5, 6]
DIGITS = st.integers(1, 6)


@settings(max_examples=100)
@given(DIGITS, MOMENTS)
def test_old_datetimes_with_a_fraction(digits: int, moments: list[tuple[int, ...]]) -> None:
    raw, wanted, texts = [], [], {}
    for row, (year, month, day, hour, minute, second, micros) in enumerate(moments):
        fraction = micros // 10 ** (6 - digits)
        number = ((((year * 13 + month) * 32 + day) * 24 + hour) * 60 + minute) * 60 + second
        raw.append((number * 10**digits + fraction).to_bytes(DATETIME_BYTES[digits], "big"))
        try:
            wanted.append(
                datetime(year, month, day, hour, minute, second, fraction * 10 ** (6 - digits))  # noqa: DTZ001
            )
        except ValueError:
            wanted.append(None)
            date = f"{year:04d}-{month:02d}-{day:02d}"
            texts[row] = f"{date} {hour:02d}:{minute:02d}:{second:02d}.{fraction:0{digits}d}"
    rows = decode(Column("c", Kind.DATETIME, 12, 0, True, fraction_digits=digits), raw)
    assert values_of(rows) == wanted
    assert invalid_texts(rows) == texts


@few
@given(DIGITS, st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 999_999)), min_size=1))
def test_old_timestamps_with_a_fraction(digits: int, moments: list[tuple[int, int]]) -> None:
    raw, wanted, texts = [], [], {}
    for row, (seconds, micros) in enumerate(moments):
        fraction = micros // 10 ** (6 - digits)
        raw.append(
            seconds.to_bytes(4, "big") + fraction.to_bytes(TIMESTAMP_BYTES[digits] - 4, "big")
        )
        moment = timedelta(seconds=seconds, microseconds=fraction * 10 ** (6 - digits))
        wanted.append(datetime(1970, 1, 1, tzinfo=UTC) + moment if moment else None)
        if not moment:
            texts[row] = f"0000-00-00 00:00:00.{'0' * digits}"
    rows = decode(Column("c", Kind.TIMESTAMP, 7, 0, True, fraction_digits=digits), raw)
    assert values_of(rows) == wanted
    assert invalid_texts(rows) == texts


@settings(max_examples=100)
@given(DIGITS, st.lists(st.integers(-3_020_399_999_999, 3_020_399_999_999), min_size=1))
def test_old_times_with_a_fraction(digits: int, moments: list[int]) -> None:
    raw, wanted = [], []
    for moment in moments:
        number = abs(moment) // 10 ** (6 - digits) * (-1 if moment < 0 else 1)
        raw.append(
            (number + (838 * 3600 + 59 * 60 + 60) * 10**digits).to_bytes(TIME_BYTES[digits], "big")
        )
        seconds, fraction = divmod(abs(number), 10**digits)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"  # noqa: E501
        wanted.append(("-" if number < 0 else "") + clock)
    assert (
        values_of(decode(Column("c", Kind.TIME, 11, 0, True, fraction_digits=digits), raw))
        == wanted
    )


@pytest.mark.parametrize("digits", range(1, 7))
def test_old_values_that_are_none_are_invalid(digits: int) -> None:
    for kind, code, sizes in ((Kind.TIME, 11, TIME_BYTES), (Kind.DATETIME, 12, DATETIME_BYTES)):
        raw = [b"\xff" * sizes[digits], b"\0" * sizes[digits]]
        rows = decode(Column("c", kind, code, 0, True, fraction_digits=digits), raw)
        assert values_of(rows) == [None, None]
        assert [value.row for value in rows.invalid] == [0, 1]
    rows = decode(
        Column("c", Kind.TIMESTAMP, 7, 0, True, fraction_digits=digits),
        [b"\xff" * TIMESTAMP_BYTES[digits]],
    )
    assert values_of(rows) == [None]


def test_small_cases_without_a_shared_stream_agree_with_zlib() -> None:
    """`inflate_at` alone, one stream for many values."""
    stream = inflate.new_stream()
    assert inflate.inflate_start(stream) == 0
    try:
        for plain in (b"", b"a", bytes(70_000), b"abc" * 1000):
            data = np.frombuffer(zlib.compress(plain), np.uint8)
            out = np.empty(len(plain) + 1, np.uint8)
            assert inflate.inflate_at(stream, data, 0, len(data), False, out, 0, len(plain))
            assert out[:-1].tobytes() == plain
            assert not inflate.inflate_at(stream, data, 0, len(data), False, out, 0, len(plain) + 1)
    finally:
        inflate.inflate_end(stream)
