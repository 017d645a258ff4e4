"""Every kernel against a slow twin in plain Python."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.kernels import numbers
from cdc_pipeline.binlog.kernels.text import shortest, text
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.binlog.tables import charsets
from tests.support.rows_events import (
    WRITE,
    chunk_of,
    full,
    prefixed,
    rows_body,
    schema_of,
    text_column,
)

few = settings(max_examples=60)


# Year, month, day, hour, minute, second, microsecond, as far as the wire formats can hold them.
MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31), st.integers(0, 23),
        st.integers(0, 59),
        st.integers(0, 59), st.integers(0, 999_999),
    ),
    min_size=1,
)  # fmt: skip


def decode(column: Column, values: list[bytes | None], *, is_mariadb: bool = False) -> DecodedRows:
    body = rows_body(WRITE, [full(value) for value in values])
    chunk = chunk_of([(WRITE, body)], is_mariadb=is_mariadb)
    schema = replace(schema_of(column), primary_key=())
    return decode_rows([RowsSelection(chunk, np.array([0]))], schema, epoch=0)


def values_of(rows: DecodedRows) -> list[object]:
    rows.after.validate(full=True)
    return rows.after.column(0).to_pylist()


def invalid_texts(rows: DecodedRows) -> dict[int, str]:
    return {value.row: value.text for value in rows.invalid}


INTEGERS = {
    (1, Kind.INT8): 1,
    (2, Kind.INT16): 2,
    (9, Kind.INT24): 3,
    (3, Kind.INT32): 4,
    (8, Kind.INT64): 8,
}


@few
@given(
    st.sampled_from(sorted(INTEGERS)),
    st.booleans(),
    st.lists(st.none() | st.binary(min_size=8, max_size=8), min_size=1),
)
def test_integers(kind: tuple[int, Kind], unsigned: bool, raw: list[bytes | None]) -> None:
    width = INTEGERS[kind]
    cut = [None if value is None else value[:width] for value in raw]
    rows = decode(Column("c", kind[1], kind[0], 0, True, unsigned=unsigned), cut)
    assert values_of(rows) == [
        None if value is None else int.from_bytes(value, "little", signed=not unsigned)
        for value in cut
    ]


@few
@given(st.integers(1, 64), st.lists(st.none() | st.integers(0, 2**64 - 1), min_size=1))
def test_bits(bits: int, numbers_: list[int | None]) -> None:
    wanted = [None if number is None else number % 2**bits for number in numbers_]
    raw = [None if number is None else number.to_bytes((bits + 7) // 8, "big") for number in wanted]
    rows = decode(Column("c", Kind.BIT, 16, bits, True, bits=bits), raw)
    assert values_of(rows) == wanted


@few
@given(
    st.lists(st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
)
def test_reals(singles: list[float | None], doubles: list[float]) -> None:
    raw = [None if value is None else struct.pack("<f", value) for value in singles]
    assert values_of(decode(Column("c", Kind.FLOAT, 4, 4, True), raw)) == singles
    raw = [struct.pack("<d", value) for value in doubles]
    assert values_of(decode(Column("c", Kind.DOUBLE, 5, 8, True), raw)) == doubles


def decimal_bytes(number: int, precision: int, scale: int) -> bytes:
    """NEWDECIMAL of number / 10**scale: groups of nine digits from the point outwards, the sign in
    the first bit."""
    digits = f"{abs(number):0{precision}d}"
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    groups = [whole[: len(whole) % 9]] if len(whole) % 9 else []
    groups += [whole[at : at + 9] for at in range(len(whole) % 9, len(whole), 9)]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    out = bytearray(b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups))
    if number < 0:
        out = bytearray(byte ^ 0xFF for byte in out)
    out[0] ^= 0x80
    return bytes(out)


@settings(max_examples=200)
@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(precision, 38)))
    bound = 10**precision - 1
    small = min(bound, 1000)
    numbers = data.draw(
        st.lists(st.integers(-bound, bound) | st.integers(-small, small), min_size=1)
    )
    column = Column(
        "c", Kind.DECIMAL, 246, precision << 8 | scale, True, precision=precision, scale=scale
    )
    got = values_of(decode(column, [decimal_bytes(n, precision, scale) for n in numbers]))
    values = [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in numbers]
    assert got == (values if precision <= 38 else [format(value, "f") for value in values])


def test_decimal_groups_that_are_no_digits_are_invalid() -> None:
    column = Column("c", Kind.DECIMAL, 246, 0, True, precision=9, scale=0)
    rows = decode(column, [b"\xff\xff\xff\xff", b"\x80\0\0\1"])
    assert values_of(rows) == [None, 1]
    assert invalid_texts(rows) == {0: "ffffffff"}


@few
@given(st.lists(st.integers(0, 2**24 - 1), min_size=1))
def test_dates(packed: list[int]) -> None:
    rows = decode(
        Column("c", Kind.DATE, 10, 0, True), [value.to_bytes(3, "little") for value in packed]
    )
    for row, (value, got) in enumerate(zip(packed, values_of(rows), strict=True)):
        year, month, day = value >> 9, value >> 5 & 15, value & 31
        try:
            wanted = date(year, month, day)
        except ValueError:
            wanted = None
            assert invalid_texts(rows)[row] == f"{year:04d}-{month:02d}-{day:02d}"
        assert got == wanted


@settings(max_examples=100)
@given(st.integers(0, 6), MOMENTS)
def test_datetimes(digits: int, moments: list[tuple[int, ...]]) -> None:
    size = (digits + 1) // 2
    raw, wanted, texts = [], [], {}
    for row, (year, month, day, hour, minute, second, micros) in enumerate(moments):
        micros -= micros % 10 ** (6 - digits)
        whole = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
        packed = (whole + (1 << 39)).to_bytes(5, "big") + (micros // 100 ** (3 - size)).to_bytes(
            size, "big"
        )
        raw.append(packed)
        try:
            wanted.append(datetime(year, month, day, hour, minute, second, micros))  # noqa: DTZ001
        except ValueError:
            wanted.append(None)
            tail = f".{micros:06d}"[: digits + 1] if digits else ""
            texts[row] = (
                f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}{tail}"
            )
    rows = decode(Column("c", Kind.DATETIME, 18, digits, True, fraction_digits=digits), raw)
    assert values_of(rows) == wanted
    assert invalid_texts(rows) == texts


@few
@given(
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 999_999)), min_size=1),
)
def test_timestamps(digits: int, moments: list[tuple[int, int]]) -> None:
    size = (digits + 1) // 2
    moments = [(seconds, micros - micros % 10 ** (6 - digits)) for seconds, micros in moments]
    raw = [
        seconds.to_bytes(4, "big") + (micros // 100 ** (3 - size)).to_bytes(size, "big")
        for seconds, micros in moments
    ]
    rows = decode(Column("c", Kind.TIMESTAMP, 17, digits, True, fraction_digits=digits), raw)
    got = rows.after.column(0).cast("int64").to_pylist()
    assert got == [seconds * 10**6 + micros or None for seconds, micros in moments]
    assert set(invalid_texts(rows)) == {
        row for row, moment in enumerate(moments) if moment == (0, 0)
    }


@settings(max_examples=100)
@given(st.integers(0, 6), st.lists(st.integers(-3_020_399_999_999, 3_020_399_999_999), min_size=1))
def test_times_below_zero_keep_their_fraction(digits: int, moments: list[int]) -> None:
    """The fraction of a negative TIME is part of one signed number."""
    size = (digits + 1) // 2
    raw, wanted = [], []
    for moment in moments:
        sign = -1 if moment < 0 else 1
        seconds, micros = divmod(abs(moment), 10**6)
        micros -= micros % 10 ** (6 - digits)
        hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
        number = sign * (
            (hour << 12 | minute << 6 | second) << 8 * size | micros // 100 ** (3 - size)
        )
        raw.append((number + (0x800000 << 8 * size)).to_bytes(3 + size, "big"))
        tail = f".{micros:06d}"[: digits + 1] if digits else ""
        wanted.append(f"{'-' if number < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}{tail}")
    rows = decode(Column("c", Kind.TIME, 19, digits, True, fraction_digits=digits), raw)
    assert values_of(rows) == wanted


def test_year_zero_stays_zero() -> None:
    assert values_of(
        decode(Column("c", Kind.YEAR, 13, 0, True), [b"\0", b"\1", b"\xff", None])
    ) == [0, 1901, 2155, None]


@few
@given(
    st.lists(st.none() | st.binary(max_size=20), min_size=1),
    st.sampled_from([0, 8]),
    st.sampled_from([1, 2, 3, 4]),
)
def test_binary_is_padded_to_its_length(
    values: list[bytes | None], pad: int, length_bytes: int
) -> None:
    column = Column("c", Kind.BINARY, 252, length_bytes, True, pad_bytes=pad)
    rows = decode(
        column, [None if value is None else prefixed(value, length_bytes) for value in values]
    )
    assert values_of(rows) == [
        None if value is None else value.ljust(pad, b"\0") for value in values
    ]


def python_text(raw: bytes, charset: str) -> str | None:
    codec = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "ascii": "ascii", "ucs2": "utf-16-be",
        "utf16": "utf-16-be",
             "utf16le": "utf-16-le", "utf32": "utf-32-be"}[charset]  # fmt: skip
    try:
        found = raw.decode(codec)
    except UnicodeDecodeError:
        return None
    if charset in ("utf8mb3", "ucs2") and any(ord(character) > 0xFFFF for character in found):
        return None
    return found


@settings(max_examples=300)
@given(
    st.sampled_from(["utf8mb4", "utf8mb3", "ascii", "ucs2", "utf16", "utf16le", "utf32"]),
    st.lists(
        st.binary(max_size=12)
        | st.text(max_size=6).map(str.encode)
        | st.text(max_size=6).map(lambda characters: characters.encode("utf-16-be")),
        min_size=1,
    ),
)
def test_unicode_charsets_agree_with_python(charset: str, raw: list[bytes]) -> None:
    rows = decode(text_column("c", charset), [prefixed(value) for value in raw])
    wanted = [python_text(value, charset) for value in raw]
    assert values_of(rows) == wanted
    assert invalid_texts(rows) == {
        row: raw[row].hex() for row, found in enumerate(wanted) if found is None
    }
    assert all(value.reason == f"bytes are not valid {charset}" for value in rows.invalid)


def slow_transcode(raw: bytes, charset: charsets.Charset) -> str | None:
    """Twin of the table transcoder."""
    out, at = [], 0
    while at < len(raw):
        code = int(charset.one[raw[at]])
        width = 1
        if code == text.LEAD_BYTE:
            if raw[at] == text.THREE_BYTE_LEAD and len(charset.three) > 1:
                width, table = 3, charset.three
            else:
                width, table = 2, charset.two
            if at + width > len(raw):
                return None
            code = int(table[int.from_bytes(raw[at + width - 2 : at + width], "big")])
        if code >= text.LEAD_BYTE:
            return None
        out.append(chr(code))
        at += width
    return "".join(out)


TABLES = [
    name
    for name in charsets.known_charsets()
    if charsets.find_charset(name, is_mariadb=True).mode == text.TABLE
]


@settings(max_examples=200)
@given(st.sampled_from(TABLES), st.booleans(), st.lists(st.binary(max_size=12), min_size=1))
def test_table_charsets(name: str, is_mariadb: bool, raw: list[bytes]) -> None:
    charset = charsets.find_charset(name, is_mariadb=is_mariadb)
    assume(charset.mode == text.TABLE)
    rows = decode(text_column("c", name), [prefixed(value) for value in raw], is_mariadb=is_mariadb)
    assert values_of(rows) == [slow_transcode(value, charset) for value in raw]


def test_facts_a10_and_a14_charsets_map_as_the_server_does() -> None:
    assert charsets.decode_text(b"\x81", "latin1") == "\x81"
    assert charsets.decode_text(b"\x98", "cp1251") == "?"
    assert charsets.decode_text(b"\x81\x5f", "sjis") == "\\"
    assert charsets.decode_text("가힣".encode("cp949"), "euckr") == "가힣"
    assert charsets.decode_text(b"\x90\x30\x81\x30\x81\x30\x81\x30", "gb18030") == "\U00010000\x80"


@settings(max_examples=300)
@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**6), 10**6, places=3).map(float)
)
def test_shortest_doubles_agree_with_python(value: float) -> None:
    out = np.zeros(shortest.DOUBLE_TEXT_BYTES_MAX, np.uint8)
    bits = np.uint64(struct.unpack("<Q", struct.pack("<d", value))[0])
    end = shortest.put_double(bits, shortest.powers_of_ten(), out, 0)
    written = out[:end].tobytes().decode()
    assert float(written) == value
    assert Decimal(written) == Decimal(repr(value))


@few
@given(
    st.lists(st.text(max_size=4).filter(lambda label: "," not in label), min_size=1, max_size=64),
    st.data(),
)
def test_set_and_enum_labels(labels: list[str], data: st.DataObject) -> None:
    sets = data.draw(st.lists(st.none() | st.integers(0, 2 ** len(labels)), min_size=1))
    size = 8
    column = Column("c", Kind.SET, 248, size, True, charset="utf8mb4", labels=tuple(labels))
    raw = [None if value is None else value.to_bytes(9, "little")[:size] for value in sets]
    wanted: list[str | None] = []
    for value in raw:
        number = None if value is None else int.from_bytes(value, "little")
        too_high = number is not None and number >> len(labels)
        chosen = [
            label
            for index, label in enumerate(labels)
            if number is not None and number >> index & 1
        ]
        # As servers print it: an empty label behind nothing adds no comma.
        wanted.append(None if number is None or too_high else ",".join(chosen).lstrip(","))
    assert values_of(decode(column, raw)) == wanted

    column = Column("c", Kind.ENUM, 247, 2, True, charset="utf8mb4", labels=tuple(labels))
    rows = decode(column, [index.to_bytes(2, "little") for index in range(len(labels) + 2)])
    assert values_of(rows) == ["", *labels, None]
    assert [value.row for value in rows.invalid] == [len(labels) + 1]


def test_geometry_and_vector() -> None:
    rows = decode(
        Column("c", Kind.GEOMETRY, 255, 4, True),
        [prefixed(b"\xe6\x10\0\0wkb", 4), None, prefixed(b"\1", 4)],
    )
    assert values_of(rows) == [{"srid": 4326, "wkb": b"wkb"}, None, None]
    assert invalid_texts(rows) == {2: "01"}
    raw = [struct.pack("<2f", 1.5, -2.0), b"\0\0\0", b"", struct.pack("<f", 3.0)]
    rows = decode(Column("c", Kind.VECTOR, 242, 4, True), [prefixed(value, 4) for value in raw])
    assert values_of(rows) == [[1.5, -2.0], None, [], [3.0]]
    assert invalid_texts(rows) == {1: "000000"}


def test_days_agree_with_python_over_all_years() -> None:
    days = [date(1, 1, 1) + timedelta(days=number) for number in range(0, 3_652_000, 97)]
    raw = [(day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little") for day in days]
    assert values_of(decode(Column("c", Kind.DATE, 10, 0, True), raw)) == days


def test_state_constants_agree() -> None:
    assert (numbers.NULL, numbers.VALID, numbers.INVALID) == (0, 1, 2)
