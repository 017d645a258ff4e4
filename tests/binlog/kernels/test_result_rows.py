"""The kernel that rewrites result rows, beside a twin in plain Python; and what it says of bytes
that do not fit."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.kernels import result_rows as kernel
from cdc_pipeline.binlog.rows.result_columns import ResultPlan, column_definition, result_plan
from cdc_pipeline.binlog.rows.result_set import KEPT_BYTES, ResultSet
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import BinlogError, CdcError, SizeLimitError, TableChangedError
from tests.binlog.kernels.test_kernels import decimal_bytes

# -- what a server sends, in plain Python ----------------------------------------------------------


def lenenc(data: bytes) -> bytes:
    size = len(data)
    if size < 251:
        return bytes([size]) + data
    for width, code in ((2, 252), (3, 253), (8, 254)):
        if size < 1 << 8 * width:
            return bytes([code]) + size.to_bytes(width, "little") + data
    raise AssertionError


def moment(value: tuple[int, ...]) -> bytes:
    """year, month, day, hour, minute, second, microseconds; as short as servers send it."""
    year, month, day, *rest = value
    if not any(value):
        return b"\0"
    head = struct.pack("<HBB", year, month, day)
    if rest[3]:
        return bytes([11]) + head + bytes(rest[:3]) + struct.pack("<I", rest[3])
    return bytes([7]) + head + bytes(rest[:3]) if any(rest) else bytes([4]) + head


def clock(us: int) -> bytes:
    if not us:
        return b"\0"
    seconds, micros = divmod(abs(us), 1_000_000)
    body = bytes([us < 0]) + struct.pack("<I", seconds // 86_400)
    body += bytes([seconds % 86_400 // 3600, seconds % 3600 // 60, seconds % 60])
    return bytes([12]) + body + struct.pack("<I", micros) if micros else bytes([8]) + body


def packet(payload: bytes, sequence: int) -> bytes:
    out = b""
    while True:
        piece, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
        out += len(piece).to_bytes(3, "little") + bytes([sequence & 0xFF]) + piece
        sequence += 1
        if len(piece) < 0xFFFFFF:
            return out


def binary_row(values: list[bytes | None]) -> bytes:
    bits = bytearray((len(values) + 9) // 8)
    for index, value in enumerate(values, start=2):
        if value is None:
            bits[index // 8] |= 1 << index % 8
    return b"\0" + bytes(bits) + b"".join(value for value in values if value is not None)


def definition(
    wire_type: int, *, unsigned: bool = False, decimals: int = 0, collation: int = 63
) -> bytes:
    names = b"".join(lenenc(name) for name in (b"def", b"d", b"t", b"t", b"c", b"c"))
    flags = 0x20 if unsigned else 0
    return (
        names + b"\x0c" + struct.pack("<HIBHB", collation, 0, wire_type, flags, decimals) + b"\0\0"
    )


EOF_PACKET = b"\xfe\0\0\x02\0"


def stream(
    definitions: list[bytes], rows: list[list[bytes | None]], end: bytes = EOF_PACKET
) -> bytes:
    payloads = [bytes([len(definitions)]), *definitions, EOF_PACKET, *map(binary_row, rows), end]
    out, sequence = b"", 1
    for payload in payloads:
        out += packet(payload, sequence)
        sequence += 1 + len(payload) // 0xFFFFFF
    return out


def read(
    plan: ResultPlan, data: bytes, *, piece: int = 1 << 20, **options: Any
) -> tuple[list[Any], ResultSet]:
    """All batches of a result that arrives in pieces."""
    result = ResultSet(plan, is_mariadb=False, **options)
    batches = []
    at = 0
    while True:
        batch = result.take()
        if batch is not None:
            batch.rows.validate(full=True)
            batches.append(batch)
        elif result.end is not None or at >= len(data):
            return batches, result
        else:
            room = result.room()
            part = np.frombuffer(data[at : at + min(piece, len(room))], np.uint8)
            room[: len(part)] = part
            result.commit(len(part))
            at += len(part)


def table(*columns: Column) -> ResultPlan:
    return result_plan(TableSchema("d", "t", columns))


# -- the twin --------------------------------------------------------------------------------------

FRACTIONS = st.sampled_from(range(7))
DATES = st.tuples(
    st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31), st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59), st.integers(0, 999_999),
)  # fmt: skip
MAX_TIME_US = (838 * 3600 + 59 * 60 + 59) * 1_000_000


def cut(us: int, digits: int) -> int:
    unit = 10 ** (6 - digits)
    return us // unit * unit


def packed_datetime(value: tuple[int, ...], digits: int) -> bytes:
    """DATETIME2 as MySQL's my_time.cc describes it."""
    year, month, day, hour, minute, second, micros = value
    whole = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second | 1 << 39
    width = (digits + 1) // 2
    return whole.to_bytes(5, "big") + (micros // 10 ** (6 - 2 * width)).to_bytes(width, "big")


def packed_time(us: int, digits: int) -> bytes:
    width = (digits + 1) // 2
    seconds, micros = divmod(abs(us), 1_000_000)
    number = (seconds // 3600 << 12 | seconds % 3600 // 60 << 6 | seconds % 60) << 8 * width
    number |= micros // 10 ** (6 - 2 * width)
    return ((-number if us < 0 else number) + (0x800000 << 8 * width)).to_bytes(3 + width, "big")


def rewritten(column: Column, values: list[bytes | None]) -> list[bytes | None]:
    """Images that the kernel makes of values of one column."""
    plan = table(column)
    data = np.frombuffer(
        b"".join(packet(binary_row([value]), at) for at, value in enumerate(values)), np.uint8
    ).copy()
    state = np.zeros(kernel.STATE_WORDS, np.int64)
    out = np.zeros(len(data) + kernel.VALUE_BYTES_MORE * len(values), np.uint8)
    base, relative = np.zeros(len(values), np.int64), np.zeros((1, len(values)), np.int32)
    counts = np.zeros(1, np.int64), np.zeros(1, np.int64)
    status = kernel.rewrite_rows(
        data, len(data), False, len(values), plan.program, state, out, base, relative, *counts
    )  # fmt: skip
    assert (status, state[kernel.S_ROWS], state[kernel.S_POSITION]) == (
        kernel.NEED,
        len(values),
        len(data),
    )
    assert counts[1][0] == values.count(None)
    ends = [*base[1:].tolist(), int(state[kernel.S_OUT])]
    return [
        None
        if relative[0, row] < 0
        else out[int(base[row]) + int(relative[0, row]) : end].tobytes()
        for row, end in enumerate(ends)
    ]


@settings(max_examples=60)
@given(st.lists(st.none() | DATES, min_size=1, max_size=20), FRACTIONS)
def test_datetimes(values: list[tuple[int, ...] | None], digits: int) -> None:
    column = Column("c", Kind.DATETIME, -1, 0, True, fraction_digits=digits)
    kept = [value and (*value[:6], cut(value[6], digits)) for value in values]
    expected = [None if value is None else packed_datetime(value, digits) for value in kept]
    assert (
        rewritten(column, [None if value is None else moment(value) for value in kept]) == expected
    )


@settings(max_examples=60)
@given(
    st.lists(st.none() | st.integers(-MAX_TIME_US, MAX_TIME_US), min_size=1, max_size=20), FRACTIONS
)
@example([-1, 0, 1, -MAX_TIME_US, MAX_TIME_US, -100_000], 6)
def test_times(values: list[int | None], digits: int) -> None:
    column = Column("c", Kind.TIME, -1, 0, True, fraction_digits=digits)
    kept = [
        None if value is None else cut(abs(value), digits) * (-1 if value < 0 else 1)
        for value in values
    ]
    expected = [None if value is None else packed_time(value, digits) for value in kept]
    assert (
        rewritten(column, [None if value is None else clock(value) for value in kept]) == expected
    )


@settings(max_examples=150)
@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(precision, 38)))
    numbers = data.draw(
        st.lists(st.integers(-(10**precision) + 1, 10**precision - 1), min_size=1, max_size=8)
    )
    column = Column("c", Kind.DECIMAL, -1, 0, True, precision=precision, scale=scale)
    values: list[bytes | None] = []
    expected: list[bytes | None] = []
    for number in numbers:
        digits = f"{abs(number):0{scale + 1}d}"
        text = digits[: len(digits) - scale] + (
            f".{digits[len(digits) - scale :]}" if scale else ""
        )
        zeros = data.draw(st.sampled_from(["", "0", "000"]))  # of ZEROFILL
        values.append(lenenc(f"{'-' if number < 0 else ''}{zeros}{text}".encode()))
        expected.append(decimal_bytes(number, precision, scale))
    assert rewritten(column, values) == expected


@settings(max_examples=60)
@given(st.data())
def test_numbers(data: st.DataObject) -> None:
    """Integers of every width, reals, ENUM, SET, BIT and YEAR: the log's bytes are the first of
    what is sent."""
    kind, sent_bytes, kept_bytes, rest = data.draw(st.sampled_from(NUMBERS))
    values = data.draw(
        st.lists(st.none() | st.integers(0, (1 << 8 * kept_bytes) - 1), min_size=1, max_size=20)
    )
    column = Column("c", kind, -1, 0, True, **rest)
    if kind is Kind.BIT:
        sent = [
            None if value is None else lenenc(value.to_bytes(kept_bytes, "big")) for value in values
        ]
        expected = [
            None if value is None else value.to_bytes(kept_bytes, "big") for value in values
        ]
    elif kind is Kind.YEAR:
        sent = [
            None if value is None else struct.pack("<H", value and value + 1900) for value in values
        ]
        expected = [None if value is None else bytes([value]) for value in values]
    else:
        sent = [None if value is None else value.to_bytes(sent_bytes, "little") for value in values]
        expected = [
            None if value is None else value.to_bytes(kept_bytes, "little") for value in values
        ]
    assert rewritten(column, sent) == expected


NUMBERS: list[tuple[Kind, int, int, dict[str, Any]]] = [
    (Kind.INT8, 1, 1, {}),
    (Kind.INT16, 2, 2, {}),
    (Kind.INT24, 4, 3, {}),
    (Kind.INT32, 4, 4, {}),
    (Kind.INT64, 8, 8, {}),
    (Kind.FLOAT, 4, 4, {}),
    (Kind.DOUBLE, 8, 8, {}),
    (Kind.YEAR, 2, 1, {}),
    (Kind.BIT, 0, 1, {"bits": 7}),
    (Kind.BIT, 0, 2, {"bits": 9}),
    (Kind.BIT, 0, 8, {"bits": 64}),
    (Kind.ENUM, 8, 1, {"labels": ("a", "b")}),
    (Kind.ENUM, 8, 2, {"labels": ("a",) * 256}),
    (Kind.SET, 8, 3, {"labels": ("a",) * 17}),
    (Kind.SET, 8, 8, {"labels": ("a",) * 33}),
]


@settings(max_examples=60)
@given(st.lists(st.none() | DATES, min_size=1, max_size=20))
def test_dates(values: list[tuple[int, ...] | None]) -> None:
    days = [value and (*value[:3], 0, 0, 0, 0) for value in values]
    expected = [
        value and (value[0] << 9 | value[1] << 5 | value[2]).to_bytes(3, "little") for value in days
    ]
    column = Column("c", Kind.DATE, -1, 0, True)
    assert (
        rewritten(column, [None if value is None else moment(value) for value in days]) == expected
    )


MOMENTS = st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 999_999))


@settings(max_examples=60)
@given(st.lists(MOMENTS, max_size=20), FRACTIONS)
@example([(951_868_799, 999_999), (0, 500_000), ((1 << 32) - 1, 0)], 6)
def test_timestamps(values: list[tuple[int, int]], digits: int) -> None:
    """Seconds since 1970 and microseconds; the zero timestamp is 0."""
    column = Column("c", Kind.TIMESTAMP, -1, 0, True, fraction_digits=digits)
    width = (digits + 1) // 2
    sent: list[bytes | None] = [b"\0", None]
    expected: list[bytes | None] = [bytes(4 + width), None]
    for seconds, micros in values:
        kept = cut(micros, digits)
        at = datetime.fromtimestamp(seconds, UTC)
        sent.append(moment((at.year, at.month, at.day, at.hour, at.minute, at.second, kept)))
        expected.append(
            seconds.to_bytes(4, "big") + (kept // 10 ** (6 - 2 * width)).to_bytes(width, "big")
        )
    assert rewritten(column, sent) == expected


@settings(max_examples=60)
@given(st.lists(st.none() | st.binary(max_size=300), min_size=1, max_size=20))
@example([b"", b"x" * 250, b"x" * 251, b"y" * 65_535, b"z" * 65_536, None])
def test_bytes(values: list[bytes | None]) -> None:
    column = Column("c", Kind.BINARY, -1, 0, True)
    expected = [
        None if value is None else len(value).to_bytes(4, "little") + value for value in values
    ]
    assert (
        rewritten(column, [None if value is None else lenenc(value) for value in values])
        == expected
    )


# -- packets and batches ---------------------------------------------------------------------------

NUMBER = Column("i", Kind.INT32, -1, 0, True)
BYTES = Column("b", Kind.BINARY, -1, 0, True)
TWO = [definition(3), definition(252)]


def two(number: int, content: bytes | None) -> list[bytes | None]:
    return [struct.pack("<i", number), None if content is None else lenenc(content)]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.none() | st.binary(max_size=40)),
        max_size=300),
    st.integers(1, 5000), st.integers(1, 70), st.integers(100, 4000),
)  # fmt: skip
def test_any_pieces_any_batches(
    rows: list[tuple[int, bytes | None]], piece: int, batch_rows: int, batch_bytes: int
) -> None:
    data = stream(TWO, [two(*row) for row in rows])
    batches, result = read(
        table(NUMBER, BYTES), data, piece=piece, batch_rows=batch_rows, batch_bytes=batch_bytes
    )
    assert result.end is not None
    assert result.end.code == 0
    assert [tuple(row.values()) for batch in batches for row in batch.rows.to_pylist()] == rows
    assert all(0 < len(batch) <= batch_rows for batch in batches)


@pytest.mark.parametrize("size", [0xFFFFFF - 11, 0xFFFFFF - 10, 2 * 0xFFFFFF - 15])
def test_rows_around_the_packets_size(size: int) -> None:
    """A row of exactly one full packet is followed by an empty one."""
    assert len(binary_row(two(0, b"x" * size))) % 0xFFFFFF in (0, 0xFFFFFE)
    contents = [b"small", b"x" * size, b"y" * 100, None, *[b"z" * 100_000] * 40]
    data = stream(TWO, [two(number, content) for number, content in enumerate(contents)])
    batches, result = read(table(NUMBER, BYTES), data, batch_bytes=1 << 20)
    assert result.end is not None
    assert [row["b"] for batch in batches for row in batch.rows.to_pylist()] == contents
    assert len(result._data) <= KEPT_BYTES
    assert len(result._out) == 1 << 20


def test_k25_f18_a_row_larger_than_the_limit_stops_at_its_header() -> None:
    size = 0xFFFFFF + 100
    data = stream(TWO, [two(1, b"a"), two(2, b"x" * size)])
    row_bytes = len(binary_row(two(2, b"x" * size)))
    batches, _ = read(table(NUMBER, BYTES), data, packet_bytes_max=row_bytes)
    assert sum(len(batch) for batch in batches) == 2
    # header of the row's second packet
    second = len(data) - len(packet(EOF_PACKET, 0)) - (row_bytes - 0xFFFFFF) - 4
    endless = data[:second] + b"\xff\xff\xff" + data[second + 3 :]
    with pytest.raises(SizeLimitError) as caught:
        read(table(NUMBER, BYTES), endless, packet_bytes_max=row_bytes)
    assert caught.value.setting == "source.packet_bytes_max"
    assert caught.value.table == "d.t"
    assert caught.value.got == f"{2 * 0xFFFFFF} bytes or more"


@pytest.mark.parametrize("count", [b"\0", b"\xfc\x01\x10", b"\xfe" + bytes(7) + b"\x7f"])
def test_k25_a_result_of_columns_that_no_table_has_stops_before_their_definitions(
    count: bytes,
) -> None:
    with pytest.raises(BinlogError, match="impossible number of columns"):
        read(table(NUMBER, BYTES), packet(count, 1))


def test_an_error_in_the_middle_keeps_the_rows_before_it() -> None:
    error = b"\xff" + struct.pack("<H", 1317) + b"#70100Query execution was interrupted"
    batches, result = read(table(NUMBER, BYTES), stream(TWO, [two(1, b"a"), two(2, None)], error))
    assert [len(batch) for batch in batches] == [2]
    assert result.end is not None
    assert (result.end.code, result.end.message) == (1317, "Query execution was interrupted")


def test_a_packet_out_of_order_stops() -> None:
    data = bytearray(stream(TWO, [two(1, b"a"), two(2, b"b")]))
    place = len(data) - len(packet(EOF_PACKET, 0)) + 3
    data[place] ^= 0x40
    with pytest.raises(BinlogError, match="out of order"):
        read(table(NUMBER, BYTES), bytes(data))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([b"\x01\0\0"], BinlogError),  # runs over the row
        ([struct.pack("<i", 1), b"\x05abc"], TableChangedError),
        ([struct.pack("<i", 1), b"\xfc\x05"], TableChangedError),
        ([struct.pack("<i", 1), b"\xfb"], TableChangedError),
        ([struct.pack("<i", 1), b"\x01ab"], BinlogError),  # does not fill it
    ],
)
def test_bytes_that_are_no_row_stop(values: list[bytes | None], error: type[CdcError]) -> None:
    row = b"\0\0" + b"".join(value for value in values if value is not None)
    data = stream(TWO, [])[: -len(packet(EOF_PACKET, 0))]
    with pytest.raises((error, TableChangedError)):
        read(table(NUMBER, BYTES), data + packet(row, 5) + packet(EOF_PACKET, 6))


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        (Column("c", Kind.DECIMAL, -1, 0, True, precision=4, scale=2), lenenc(b"123.45"), 246),
        (Column("c", Kind.DECIMAL, -1, 0, True, precision=4, scale=2), lenenc(b"1.2.3"), 246),
        (Column("c", Kind.DECIMAL, -1, 0, True, precision=4, scale=2), lenenc(b""), 246),
        (Column("c", Kind.BIT, -1, 0, True, bits=9), lenenc(b"\x01"), 16),
        (Column("c", Kind.YEAR, -1, 0, True), struct.pack("<H", 2156), 13),
        (Column("c", Kind.DATE, -1, 0, True), b"\x05\xe8\x07\x01\x01\x01", 10),
        (Column("c", Kind.DATETIME, -1, 0, True), b"\x04\xff\xff\x01\x01", 12),
        (Column("c", Kind.TIMESTAMP, -1, 0, True), moment((2106, 2, 7, 6, 28, 16, 0)), 7),
        (Column("c", Kind.TIMESTAMP, -1, 0, True), moment((2023, 2, 31, 0, 0, 0, 0)), 7),
        (Column("c", Kind.TIME, -1, 0, True), clock(MAX_TIME_US + 3_600_000_000), 11),
    ],
)
def test_values_that_are_none_of_the_columns_stop_by_name(
    column: Column, value: bytes, kind: int
) -> None:
    data = stream([definition(kind, decimals=column.scale)], [[value]])
    with pytest.raises(TableChangedError, match="'c'"):
        read(table(column), data)


@pytest.mark.parametrize(
    ("column", "announced"),
    [
        (NUMBER, definition(8)),
        (NUMBER, definition(3, unsigned=True)),
        (BYTES, definition(3)),
        (Column("c", Kind.TEXT, -1, 0, True, charset="latin1"), definition(253, collation=45)),
        (BYTES, definition(253, collation=45)),
        (Column("c", Kind.DECIMAL, -1, 0, True, precision=4, scale=2), definition(246, decimals=3)),
        (Column("c", Kind.DATETIME, -1, 0, True, fraction_digits=3), definition(12, decimals=6)),
        (
            Column("c", Kind.SET, -1, 0, True, labels=tuple(map(str, range(40)))),
            definition(3, unsigned=True),
        ),
    ],
)
def test_other_columns_than_the_schemas_stop_before_a_row(column: Column, announced: bytes) -> None:
    with pytest.raises(TableChangedError, match="differs from its schema"):
        read(table(column), stream([announced], []))


def test_another_count_of_columns_stops() -> None:
    with pytest.raises(TableChangedError, match="count of columns"):
        read(table(NUMBER), stream(TWO, []))


def test_a_cut_definition_is_told() -> None:
    whole = definition(3)
    for size in range(len(whole) - 3):
        with pytest.raises(BinlogError, match="not a column definition"):
            column_definition(whole[:size])
