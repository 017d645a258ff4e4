"""Kernels that meet unchecked bytes, against slow twins: any bytes, good and bad."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.events.gtid_kernel import NO_TIME, gtid_commit_us
from cdc_pipeline.binlog.framing.framing_kernel import EVENT_BYTES_MAX, walk_lengths
from cdc_pipeline.binlog.kernels import walk
from tests.support.event_builder import gtid_body

many = settings(max_examples=60, deadline=None)


class Overrun(Exception):
    """Bytes run over the event's end."""


def take(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise Overrun
    return at + size


def slow_image(
    data: bytes, at: int, present: list[int], rules: list[int]
) -> tuple[int, list[int | None]]:
    bitmap, at = at, take(data, at, (len(present) + 7) // 8)
    places: list[int | None] = [None] * len(rules)
    for index, column in enumerate(present):
        if data[bitmap + index // 8] >> index % 8 & 1:
            continue
        places[column], rule = at, rules[column]
        if rule < 0:
            after = take(data, at, -rule)
            at = take(data, after, int.from_bytes(data[at:after], "little"))
        else:
            at = take(data, at, rule)
    return at, places


def slow_walk(
    data: bytes, op: int, rules: list[int]
) -> list[tuple[list[int | None] | None, list[int | None] | None]]:
    """Places of all values in the body of a rows event of version 2, row by row: (before,
    after)."""
    at = take(data, 8, 2)
    at = 8 + max(int.from_bytes(data[8:10], "little"), 2)
    if at >= len(data):
        raise Overrun
    count, at = data[at], at + 1
    if count != len(rules):
        raise Overrun
    presents = []
    for _ in range(2 if op == walk.UPDATE else 1):
        first, at = at, take(data, at, (count + 7) // 8)
        presents.append(
            [column for column in range(count) if data[first + column // 8] >> column % 8 & 1]
        )
    rows = []
    if at == len(data):
        if op == walk.INSERT and not presents[0]:
            return [(None, [None] * count)]
        raise Overrun
    while at < len(data):
        start, images = at, []
        for present in presents:
            at, places = slow_image(data, at, present, rules)
            images.append([None if place is None else place - start for place in places])
        if at == start:
            raise Overrun
        before = None if op == walk.INSERT else images[0]
        rows.append((before, None if op == walk.DELETE else images[-1]))
    return rows


def compiled_walk(
    data: bytes, op: int, rules: list[int]
) -> list[tuple[list[int | None] | None, list[int | None] | None]]:
    lead = b"\xaa" * 3  # the event does not begin at index 0, and does not end at the array's
    raw = np.frombuffer(lead + data + b"\xff" * 40, np.uint8)
    columns, capacity = len(rules), 4
    state = np.zeros(walk.STATE_WORDS, np.int64)
    sums = [np.zeros(columns, np.int64) for _ in range(4)]
    bits = [np.zeros((1, (columns + 7) // 8), np.uint8) for _ in range(2)]
    rows = []
    while True:
        base, event, ordinal = (np.empty(capacity, np.int64) for _ in range(3))
        before = np.empty((columns, capacity if op != walk.INSERT else 0), np.int32)
        after = np.empty((columns, capacity if op != walk.DELETE else 0), np.int32)
        status = walk.walk_rows(
            raw, np.array([len(lead)]), np.array([len(lead) + len(data)]), np.array([op], np.uint8),
            np.array([6], np.uint8), np.array([2], np.uint8), np.array(rules, np.int32), state,
            base, event, ordinal,
            before, after, *sums, *bits, np.empty((2, columns), np.int32),
        )  # fmt: skip
        if status not in (walk.DONE, walk.FULL):
            raise Overrun
        for row in range(int(state[walk.S_ROWS])):
            images = [
                [None if place < 0 else int(place) for place in matrix[:, row]]
                if matrix.shape[1]
                else None
                for matrix in (before, after)
            ]
            rows.append((images[0], images[1]))
        if status == walk.DONE:
            return rows


@st.composite
def rows_events(draw: st.DrawFn) -> tuple[bytes, int, list[int]]:
    """A body, good or nearly so."""
    rules = draw(
        st.lists(st.sampled_from((-4, -3, -2, -1, 1, 2, 3, 4, 8, 30)), min_size=1, max_size=12)
    )
    op = draw(st.sampled_from((walk.INSERT, walk.UPDATE, walk.DELETE)))
    width = (len(rules) + 7) // 8
    body = bytes(8) + struct.pack("<H", 2) + bytes([len(rules)])
    presents = [
        draw(st.sampled_from((b"\xff" * width, None)))
        or draw(st.binary(min_size=width, max_size=width))
    ]
    if op == walk.UPDATE:
        presents.append(draw(st.binary(min_size=width, max_size=width)))
    body += b"".join(presents)
    for _ in range(draw(st.integers(0, 6))):
        for present in presents:
            columns = [
                column for column in range(len(rules)) if present[column // 8] >> column % 8 & 1
            ]
            nulls = draw(
                st.binary(min_size=(len(columns) + 7) // 8, max_size=(len(columns) + 7) // 8)
            )
            body += nulls
            for index, column in enumerate(columns):
                if nulls[index // 8] >> index % 8 & 1:
                    continue
                rule = rules[column]
                value = draw(st.binary(max_size=9)) if rule < 0 else bytes(rule)
                body += len(value).to_bytes(-rule, "little") + value if rule < 0 else value
    damaged = bytearray(body)
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        damaged[draw(st.integers(8, len(damaged) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.sampled_from((0, 0, 1, 5)))
    return bytes(damaged[: max(8, len(damaged) - cut)]), op, rules


@settings(max_examples=120, deadline=None)
@given(rows_events())
def test_walked_rows_lie_where_the_twin_finds_them(case: tuple[bytes, int, list[int]]) -> None:
    data, op, rules = case
    try:
        wanted = slow_walk(data, op, rules)
    except Overrun:
        wanted = None
    try:
        got = compiled_walk(data, op, rules)
    except Overrun:
        got = None
    assert got == wanted


def varlen(value: int) -> bytes:
    for size in range(1, 9):
        if value < 1 << 7 * size:
            return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")
    return b"\xff" + value.to_bytes(8, "little")


@st.composite
def tagged_gtids(draw: st.DrawFn) -> tuple[bytes, int]:
    """A body, and its commit time: the original one, else the immediate one."""
    numbers = st.integers(0, 2**64 - 1) | st.integers(0, 2**57) | st.integers(0, 300)
    fields = varlen(0) + varlen(draw(st.integers(0, 1)))
    fields += varlen(1) + b"".join(
        varlen(byte) for byte in draw(st.binary(min_size=16, max_size=16))
    )
    fields += varlen(2) + varlen(2 * draw(st.integers(1, 10**12)))
    tag = draw(st.sampled_from((b"", b"tag", b"_a1")))
    fields += varlen(3) + varlen(len(tag)) + tag
    values = {field: draw(numbers) for field in sorted(draw(st.sets(st.integers(4, 10))))}
    for field, value in values.items():
        fields += varlen(field) + varlen(value)
    times = [values[field] for field in (6, 7) if field in values]
    time_us = times[-1] if times else -1
    if any(time >= 1 << 56 for time in times):
        time_us = NO_TIME
    size = 3
    while len(varlen(size + len(fields))) + 2 != size:
        size += 1
    return varlen(1) + varlen(size + len(fields)) + varlen(0) + fields, time_us


def fixed_gtid(time_us: int) -> tuple[bytes, int]:
    return gtid_body(1, time_us), time_us


@many
@given(tagged_gtids() | st.integers(0, (1 << 55) - 1).map(fixed_gtid), st.data())
def test_commit_times_are_those_that_were_written(
    event: tuple[bytes, int], data: st.DataObject
) -> None:
    """Cut bodies and changed bytes have any of the times that a clock can show, or none."""
    body, wanted = event
    raw = bytearray(body)
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        raw = raw[: data.draw(st.integers(1, len(raw)))]
    # What stands behind the event must not be read.
    array = np.frombuffer(b"\0" + bytes(raw) + b"\xff" * 20, np.uint8)
    got = int(gtid_commit_us(array, 1, len(raw), 42 if body[0] == 2 else 33))
    assert got < 1 << 56
    if bytes(raw) == body:
        assert got == wanted


@many
@given(st.lists(st.integers(0, 60), max_size=8), st.binary(max_size=40), st.integers(0, 400))
def test_lengths_are_walked_as_by_hand(lengths: list[int], tail: bytes, target: int) -> None:
    data = (
        b"".join(
            bytes(9) + struct.pack("<I", length) + bytes(max(0, length - 13)) for length in lengths
        )
        + tail
    )
    array = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    at = 0
    while at < target and len(data) - at >= 19:
        length = int.from_bytes(data[at + 9 : at + 13], "little")
        if not 19 <= length <= EVENT_BYTES_MAX:
            break
        at += length
    assert walk_lengths(array, target) == at
