"""What is known of rows events without their values agrees with what their decoding gives."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.decoded import DELETE, INSERT
from cdc_pipeline.binlog.decoded import UPDATE as UPDATED
from cdc_pipeline.binlog.rows.rows import RowsSelection, count_rows, decode_rows
from tests.support.rows_events import DELETE as DELETE_ROWS
from tests.support.rows_events import (
    UPDATE,
    WRITE,
    Image,
    chunk_of,
    full,
    int_column,
    prefixed,
    rows_body,
    schema_of,
    text_column,
)

SCHEMA = schema_of(int_column(), text_column())


def row(number: int, text: bytes | None) -> Image:
    return full(struct.pack("<i", number), None if text is None else prefixed(text))


EVENTS = st.lists(
    st.tuples(st.sampled_from([WRITE, UPDATE, DELETE_ROWS]), st.integers(1, 4), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, is_bad=st.booleans())
def test_counts_are_those_of_the_decoder(events: list[tuple[int, int, bool]], is_bad: bool) -> None:
    text = b"\xff" if is_bad else b"x"
    bodies = []
    for kind, count, is_null in events:
        images = [
            row(at, None if is_null else text) for at in range(count * (2 if kind == UPDATE else 1))
        ]
        bodies.append((kind, rows_body(kind, images)))
    chunk = chunk_of(bodies)
    parts = [RowsSelection(chunk, np.arange(len(chunk.events)))]
    rows = decode_rows(parts, SCHEMA, epoch=1)
    counts = count_rows(parts, SCHEMA, look_at=[1])
    found = counts.inserted, counts.updated, counts.deleted
    assert found == tuple(int((rows.op == op).sum()) for op in (INSERT, UPDATED, DELETE))
    assert counts.all_present == rows.all_present
    assert counts.has_invalid == bool(rows.invalid)
    assert not count_rows(parts, SCHEMA, look_at=[0]).has_invalid
