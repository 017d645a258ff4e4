"""Raw rows events give the same changes as the chunks that they came from, in whatever portions
they are read."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.decoded import joined
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import CdcError, MergeError, UnrepresentableValueError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.apply.raw_decode import executor_error, staged_of
from cdc_pipeline.sink.modes.expand import expand
from cdc_pipeline.sink.staging.raw_files import SCHEMA, raw_events, selections
from tests.support.rows_events import (
    DELETE,
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

TABLE = schema_of(int_column(), text_column())


def row(number: int, text: bytes) -> Image:
    return full(struct.pack("<i", number), prefixed(text))


def chunk(texts: list[bytes]) -> Chunk:
    return chunk_of(
        [
            *(
                (WRITE, rows_body(WRITE, [row(at, text), row(-at, b"twice")]))
                for at, text in enumerate(texts)
            ),
            (UPDATE, rows_body(UPDATE, [row(1, b"a"), row(7, b"b")])),
            (DELETE, rows_body(DELETE, [row(2, b"gone")])),
        ]
    )


def same(one: Any, other: Any) -> bool:
    return bool(
        one.op.tolist() == other.op.tolist()
        and one.seq.equals(other.seq)
        and one.commit_ts_us.tolist() == other.commit_ts_us.tolist()
        and one.before.equals(other.before)
        and one.after.equals(other.after)
    )


def test_k1_raw_events_give_the_same_changes_and_seqs() -> None:
    first, second = chunk([b"a", b"bb"]), chunk([b"c" * 300])
    parts = [RowsSelection(first, np.array([0, 2, 3])), RowsSelection(second, np.array([0, 1]))]
    expected = decode_rows(parts, TABLE, epoch=4)
    events = raw_events(parts)
    assert events.schema == SCHEMA
    assert same(decode_rows(list(selections(events)), TABLE, epoch=4), expected)
    singly = [
        decode_rows(list(selections(events.slice(at, 1))), TABLE, epoch=4)
        for at in range(len(events))
    ]
    assert same(joined(singly), expected)


def test_k14_only_the_events_own_bytes_are_kept() -> None:
    hidden = chunk([b"one", b"a secret", b"three"])
    events = raw_events([RowsSelection(hidden, np.array([0, 2]))])
    held = b"".join(
        bytes(buffer)
        for buffer in events.column("event").combine_chunks().buffers()
        if buffer is not None
    )
    assert b"secret" not in held
    assert b"one" in held
    assert b"three" in held


def test_events_that_do_not_lie_in_order_of_their_bytes() -> None:
    """Events of a payload lie behind all others in a chunk's bytes."""
    plain = chunk([b"a", b"bb", b"ccc"])
    lengths = plain.events["event_length"].astype(np.int64)
    moved_data = np.concatenate([
        plain.data[start : start + length]
        for start, length in reversed(list(zip(plain.events["start"].tolist(), lengths.tolist(),
            strict=True)))
    ])  # fmt: skip
    events = plain.events.copy()
    events["start"] = (lengths.sum() - np.cumsum(lengths)).astype(np.int64)
    moved = Chunk(plain.journal, plain.journal_format, moved_data, events, plain.end_offset)
    rows = np.arange(len(events))
    expected = decode_rows([RowsSelection(plain, rows)], TABLE, epoch=1)
    assert same(
        decode_rows(list(selections(raw_events([RowsSelection(moved, rows)]))), TABLE, epoch=1),
        expected,
    )


def target_of(table: TableSchema) -> RecordedTarget:
    return RecordedTarget(
        table=table.full_name,
        app_id="a",
        spec=TargetSpec(columns=target_columns(table), key=("id",)),
    )


def test_what_is_staged_is_what_the_driver_stages() -> None:
    parts = [RowsSelection(chunk([b"a", b"b"]), np.arange(4))]
    staged = staged_of(raw_events(parts), target_of(TABLE), read_back(TABLE), epoch=2)
    driver = expand(decode_rows(parts, TABLE, epoch=2), columns=("id", "note"), key=("id",)).table
    assert staged is not None
    assert staged.equals(driver)


def read_back(table: TableSchema) -> TableSchema:
    """The schema as the record gives it back."""
    return TableSchema.from_json(table.to_json())


def test_a_value_that_cannot_be_held_is_told_with_its_place() -> None:
    parts = [RowsSelection(chunk([b"fine", b"\xff\xfe"]), np.arange(4))]
    with pytest.raises(UnrepresentableValueError) as caught:
        staged_of(raw_events(parts), target_of(TABLE), TABLE, epoch=1)
    error = caught.value
    assert (error.table, error.journal) == (TABLE.full_name, parts[0].chunk.journal)
    assert error.offset == int(parts[0].chunk.events["offset"][1])


@pytest.mark.parametrize("kind", [UnrepresentableValueError, MergeError])
def test_an_executors_error_comes_back_as_what_it_is(kind: type[CdcError]) -> None:
    from cdc_pipeline.sink.apply.raw_decode import _marked_text

    there = kind(
        "a value\nin two lines {}",
        journal="binlog.000001",
        offset=7,
        table="a.b",
        expected="x",
        got="'}'",
    )
    text = (
        f"PythonException: Traceback\n  RuntimeError: {_marked_text(there)}\n\n  at "
        "org.apache.spark"
    )
    told = executor_error(RuntimeError(text))
    assert told is not None
    assert told.as_dict() == there.as_dict()
    assert executor_error(RuntimeError("Job aborted")) is None
    assert pa.types.is_large_binary(SCHEMA.field("event").type)
