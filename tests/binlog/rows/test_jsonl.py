"""JSON lines against their twin that goes value by value, byte for byte."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.arrow_types import arrow_schema, arrow_type
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows, InvalidValue
from cdc_pipeline.binlog.rows.text_jsonl import json_texts, jsonl_blocks, jsonl_lines
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from tests.binlog.rows import jsonl_twin as twin

WORDS_MAX = 10**38 - 1


def column(kind: Kind, **more: Any) -> Column:
    return Column(name="c", kind=kind, wire_type=0, wire_meta=0, nullable=True, **more)


def texts(of: Column, values: pa.Array) -> list[str]:
    return json_texts(of, values)


def float_of(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return float(value)


def double_of(bits: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(value)


def wall(year: int, month: int = 1, day: int = 1, *time: int) -> datetime:
    return datetime(year, month, day, *time)  # noqa: DTZ001 - DATETIME has no zone


FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 3.4028235e38, 1.1754944e-38, 1.4e-45, 16777216.0, 16777217.0,
    8388608.5, 1e15,
          1e16, 1e-14, 1e-15, 9.999999e14, float_of(1), float_of(0x00800000), float_of(0x7F7FFFFF),
          float_of(0x4B800001)]  # fmt: skip
DOUBLES = [*FLOATS, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, 9007199254740993.0,
    0.30000000000000004,
           123456789012345.0, 1234567890123456.0]  # fmt: skip
EDGES: list[tuple[Column, list[Any]]] = [
    (column(Kind.INT8), [-128, 127, 0, None]),
    (column(Kind.INT16, unsigned=True), [65535, 0]),
    (column(Kind.INT32, unsigned=True), [4294967295]),
    (column(Kind.INT64), [-(1 << 63), (1 << 63) - 1, -1, 0, 9, 10, 99, 100, None]),
    (column(Kind.INT64, unsigned=True), [Decimal((1 << 64) - 1), Decimal(1 << 63), Decimal(0),
        Decimal(10**19), None]),
    (column(Kind.BIT, bits=1), [True, False, None, *[True] * 9]),
    (column(Kind.BIT, bits=63), [(1 << 63) - 1, 0]),
    (column(Kind.BIT, bits=64), [Decimal((1 << 64) - 1), Decimal(1)]),
    (column(Kind.YEAR), [0, 1901, 2155, None]),
    (column(Kind.DECIMAL, precision=12, scale=2), [Decimal("-1234567890.12"), Decimal("0.01"),
        Decimal("-0.01"),
                                                   Decimal(0), Decimal("10"), None]),
    (column(Kind.DECIMAL, precision=38, scale=0), [Decimal(WORDS_MAX), Decimal(-WORDS_MAX),
        Decimal(0),
                                                   Decimal(1 << 64),
                                                   Decimal((1 << 64) - 1), Decimal(-(1 << 64)),
                                                   Decimal(10**19)]),
    (column(Kind.DECIMAL, precision=38, scale=30),
        [Decimal("-0.5"), Decimal("1e-30"), Decimal("99999999.5"), None]),
    (column(Kind.DECIMAL, precision=19, scale=19), [Decimal("0.0000000000000000001"),
                                                    Decimal("-0.9999999999999999999")]),
    (column(Kind.DECIMAL, precision=65, scale=30), ["-" + "9" * 35 + "." + "9" * 30, "0.5", None]),
    (column(Kind.FLOAT), [*FLOATS, None]),
    (column(Kind.DOUBLE), [*DOUBLES, None]),
    (column(Kind.DATE), [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), date(1969, 12, 31),
        date(2000, 3, 1),
                         None]),
    (column(Kind.TIME), ["-838:59:59.000000", "00:00:00", None]),
    (column(Kind.TEXT), ["", "x", 'a"b\\c\n\t\r\b\f\x00\x1f\x7f/', "ä漢😀", "\u2028", None,
        "y" * 1000]),
    (column(Kind.TEXT), ["plain", "ä", None]),
    (column(Kind.ENUM), ["", "a,b", None]),
    (column(Kind.JSON), ['{"a": [1, null, "x\\"y"]}', "null", None]),
    (column(Kind.BINARY), [b"", b"\x00\xff\x10", None]),
    (column(Kind.GEOMETRY), [{"srid": 4326, "wkb": b"\x01\x02"}, {"srid": -1, "wkb": b""}, None]),
    (column(Kind.VECTOR), [[1.0, 2.5, -0.125], [], None, [0.1, 3.4028234663852886e38]]),
]  # fmt: skip
for digits in range(7):
    moments = [
        wall(1, 1, 1),
        wall(9999, 12, 31, 23, 59, 59, 999_999),
        wall(1969, 12, 31, 23, 59, 59, 987_654),
    ]
    EDGES.append((column(Kind.DATETIME, fraction_digits=digits), [*moments, None]))
    EDGES.append(
        (
            column(Kind.TIMESTAMP, fraction_digits=digits),
            [datetime(2038, 1, 19, 3, 14, 7, 999_999, UTC), None],
        )
    )


@pytest.mark.parametrize(
    ("of", "values"), EDGES, ids=[f"{of.kind}-{n}" for n, (of, _) in enumerate(EDGES)]
)
def test_values_at_their_edges_agree_with_the_twin(of: Column, values: list[Any]) -> None:
    array = pa.array(values, arrow_type(of))
    assert texts(of, array) == twin.texts(of, array)
    # Slices begin anywhere in their buffers.
    part = pa.concat_arrays([array, array, array]).slice(len(array) - 1, len(array) + 1)
    assert texts(of, part) == twin.texts(of, part)
    assert all(text == "null" or json.loads(text) is not None for text in texts(of, array))


@settings(max_examples=300)
@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=20))
def test_floats_are_the_shortest_that_read_back(bits: list[int]) -> None:
    values = [value for value in map(float_of, bits) if np.isfinite(value)]
    of = column(Kind.FLOAT)
    got = texts(of, pa.array(values, pa.float32()))
    assert got == [twin.real_text(value, single=True) for value in values]
    assert [np.float32(text) for text in got] == [np.float32(value) for value in values]


@settings(max_examples=200)
@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=20))
def test_doubles_are_the_shortest_that_read_back(bits: list[int]) -> None:
    values = [value for value in map(double_of, bits) if np.isfinite(value)]
    got = texts(column(Kind.DOUBLE), pa.array(values, pa.float64()))
    assert got == [twin.real_text(value, single=False) for value in values]


@settings(max_examples=200)
@given(
    st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, min(p, 30)))),
    st.data(),
)
def test_decimals_of_any_size_agree_with_the_twin(
    form: tuple[int, int], data: st.DataObject
) -> None:
    precision, scale = form
    limit = 10**precision - 1
    numbers = data.draw(st.lists(st.integers(-limit, limit), min_size=1, max_size=8))
    of = column(Kind.DECIMAL, precision=precision, scale=scale)
    values = [
        Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)) for number in numbers
    ]
    array = pa.array(values, arrow_type(of))
    assert texts(of, array) == twin.texts(of, array)


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))),
        min_size=1,
        max_size=8,
    )
)
def test_texts_are_escaped_as_json_demands_and_no_further(values: list[str | None]) -> None:
    of = column(Kind.TEXT)
    array = pa.array(values, pa.string())
    assert texts(of, array) == twin.texts(of, array)


@settings(max_examples=100)
@given(
    st.lists(st.datetimes(wall(1), wall(9999, 12, 31)), min_size=1, max_size=8), st.integers(0, 6)
)
def test_datetimes_agree_with_the_twin(values: list[datetime], digits: int) -> None:
    of = column(Kind.DATETIME, fraction_digits=digits)
    array = pa.array(values, arrow_type(of))
    assert texts(of, array) == twin.texts(of, array)


def test_what_is_no_number_is_said_as_text() -> None:
    for kind, dtype in ((Kind.FLOAT, pa.float32()), (Kind.DOUBLE, pa.float64())):
        values = pa.array([float("nan"), float("inf"), float("-inf")], dtype)
        assert texts(column(kind), values) == ['"NaN"', '"inf"', '"-inf"']


def rows_of(count: int = 9) -> DecodedRows:
    """Changes of every op, with absent columns and values that Arrow cannot hold."""
    columns = (
        Column("id", Kind.INT64, 0, 0, False, unsigned=True),
        Column('odd "name"\n', Kind.TEXT, 0, 0, True),
        Column("größe", Kind.DATE, 0, 0, True),
    )
    schema = TableSchema('shop"', "bestellung_ä", columns)
    ops = np.array([(INSERT, UPDATE, DELETE)[row % 3] for row in range(count)], np.uint8)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(
                [Decimal((1 << 64) - 1 - row) for row in range(count)], arrow_type(columns[0])
            ),
            pa.array([None if row % 4 == 0 else f"t\t{row}" for row in range(count)], pa.string()),
            pa.array([date(2024, 1, 1) + timedelta(row) for row in range(count)], pa.date32()),
        ],
        schema=arrow_schema(schema),
    )
    present = np.array([[0b111 if row % 5 else row % 8] for row in range(count)], np.uint8)
    return DecodedRows(
        schema=schema,
        op=ops,
        seq=pa.array([Decimal(row) for row in range(count)], pa.decimal128(38, 0)),
        commit_ts_us=np.array(
            [-1 if row % 3 == 0 else 1_700_000_000_000_001 + row for row in range(count)]
        ),
        event_row=np.arange(count) // 2,
        before=batch,
        after=batch,
        before_present=present,
        after_present=present[::-1].copy(),
        all_present=False,
        invalid=[
            InvalidValue(1, "after", 2, "zero", "0000-00-00"),
            InvalidValue(1, "before", 1, "bytes", 'ff"'),
        ],
    )


def test_lines_agree_with_the_twin_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(100)
    offsets = [4_294_967_296 + 100 * event for event in range(50)]
    gtids = [None if event % 4 == 0 else f"0-1-{event}" for event in range(50)]
    expected = twin.lines(rows, journal="log\\.000001", offsets=offsets, gtids=gtids)
    assert jsonl_lines(rows, journal="log\\.000001", offsets=offsets, gtids=gtids) == expected
    monkeypatch.setattr("cdc_pipeline.binlog.rows.text_jsonl._BLOCK_CELLS", 21)
    assert jsonl_lines(rows, journal="log\\.000001", offsets=offsets, gtids=gtids) == expected
    assert all(json.loads(line) for line in expected)


def test_statements_stand_at_the_end_of_the_lines_that_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = rows_of(100)
    offsets = np.arange(50) * 100
    words = ['UPDATE t SET a = "\\n"', "", "DELETE FROM t -- größe\n" + "x" * 5000]
    of_event = [None, words[0], words[0], words[2], words[1]] * 10
    gtids: list[str | None] = [None] * 50

    def lines(statements: list[str | None] | None) -> list[str]:
        blocks = jsonl_blocks(
            rows, journal="j.000001", offsets=offsets, gtids=gtids, statements=statements
        )
        return [line.removesuffix("\n") for block in blocks for line in block]

    plain = lines(None)
    expected = []
    for line, event in zip(plain, rows.event_row.tolist(), strict=True):
        text = of_event[event]
        added = "" if text is None else f',"statement":{json.dumps(text, ensure_ascii=False)}'
        expected.append(f"{line[:-1]}{added}}}")
    assert lines(of_event) == expected
    assert lines([None] * 50) == plain
    monkeypatch.setattr("cdc_pipeline.binlog.rows.text_jsonl._BLOCK_BYTES", 6000)
    assert lines(of_event) == expected
