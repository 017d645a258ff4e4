"""The decoder on synthetic events: order, images, presence, places, and every way in which bytes
can be wrong."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.decoded import DELETE, INSERT, DecodedRows
from cdc_pipeline.binlog.decoded import UPDATE as UPDATED
from cdc_pipeline.binlog.rows import rows as rows_module
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.errors import (
    BinlogError,
    DamagedJournalError,
    SchemaError,
    UnknownColumnTypeError,
    UnsupportedEventError,
)
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


def everything(chunk, schema=SCHEMA, epoch=0) -> DecodedRows:
    return decode_rows([RowsSelection(chunk, np.arange(len(chunk.events)))], schema, epoch=epoch)


def row(number: int, text: str | None) -> Image:
    return full(struct.pack("<i", number), None if text is None else prefixed(text.encode()))


def test_k1_ops_places_and_seq_of_each_change() -> None:
    chunk = chunk_of(
        [
            (WRITE, rows_body(WRITE, [row(1, "a"), row(2, None)], extra=b"\x00\x03xyz")),
            (UPDATE, rows_body(UPDATE, [row(1, "a"), row(1, "b")])),
            (DELETE_ROWS, rows_body(DELETE_ROWS, [row(2, "")])),
            (23, rows_body(23, [row(-5, "old")])),
        ]
    )
    rows = everything(chunk, epoch=3)
    assert rows.op.tolist() == [INSERT, INSERT, UPDATED, DELETE, INSERT]
    assert rows.event_row.tolist() == [0, 0, 1, 2, 3]
    assert rows.commit_ts_us.tolist() == [
        1_700_000_000_000_000 + event for event in (0, 0, 1, 2, 3)
    ]
    expected = [
        pack_seq(3, 7, 4, event + 1, ordinal, 0)
        for event, ordinal in ((0, 0), (0, 1), (1, 0), (2, 0), (3, 0))
    ]
    assert [int(seq) for seq in rows.seq.to_pylist()] == expected
    assert rows.before.to_pylist() == [
        {"id": None, "note": None}, {"id": None, "note": None}, {"id": 1, "note": "a"},
        {"id": 2, "note": ""},
        {"id": None, "note": None},
    ]  # fmt: skip
    assert rows.after.to_pylist() == [
        {"id": 1, "note": "a"}, {"id": 2, "note": None}, {"id": 1, "note": "b"},
        {"id": None, "note": None},
        {"id": -5, "note": "old"},
    ]  # fmt: skip
    assert rows.before_present.tolist() == [[0], [0], [3], [3], [0]]
    assert rows.after_present.tolist() == [[3], [3], [3], [0], [3]]
    assert rows.all_present
    assert rows.invalid == []


def test_minimal_images_tell_absent_from_null() -> None:
    before = Image((struct.pack("<i", 9), b"never written"), (True, False))
    after = Image((b"never written", None), (False, True))
    rows = everything(chunk_of([(UPDATE, rows_body(UPDATE, [before, after]))]))
    assert rows.before.to_pylist() == [{"id": 9, "note": None}]
    assert rows.after.to_pylist() == [{"id": None, "note": None}]
    assert rows.before_present.tolist() == [[1]]
    assert rows.after_present.tolist() == [[2]]
    assert not rows.all_present


def test_an_insert_of_no_columns_is_one_row() -> None:
    rows = everything(chunk_of([(WRITE, rows_body(WRITE, [Image((None, None), (False, False))]))]))
    assert len(rows) == 1
    assert rows.after_present.tolist() == [[0]]


def test_pieces_of_several_chunks_and_journals_are_one_result() -> None:
    first = chunk_of([(WRITE, rows_body(WRITE, [row(number, f"{number}")])) for number in range(6)])
    second = chunk_of(
        [(WRITE, rows_body(WRITE, [row(7, "seven")]))], journal="binlog.000008", checksum_bytes=0
    )
    pieces = [
        RowsSelection(first, np.array([1, 3])),
        RowsSelection(first, np.array([5])),
        RowsSelection(second, np.array([0])),
    ]
    rows = decode_rows(pieces, SCHEMA, epoch=0)
    assert rows.after.column("id").to_pylist() == [1, 3, 5, 7]
    assert rows.event_row.tolist() == [0, 1, 2, 3]
    assert int(rows.seq[3].as_py()) == pack_seq(0, 8, 4, 1, 0, 0)


def test_no_events_give_no_rows() -> None:
    rows = decode_rows([], SCHEMA, epoch=0)
    assert len(rows) == 0
    assert rows.after.schema.field("note").type == pa.string()


def test_events_inside_a_payload_have_no_checksum() -> None:
    chunk = chunk_of([(WRITE, rows_body(WRITE, [row(1, "x")]))], checksum_bytes=0)
    chunk.events["parent"] = 0
    with_checksum = chunk_of([(WRITE, b"")]).journal_format
    inside = type(chunk)(chunk.journal, with_checksum, chunk.data, chunk.events, chunk.end_offset)
    assert everything(inside).after.to_pylist() == [{"id": 1, "note": "x"}]


def test_a_table_of_a_thousand_columns() -> None:
    schema = schema_of(*(int_column(f"c{index}") for index in range(1000)))
    image = full(*(struct.pack("<i", index) if index % 3 else None for index in range(1000)))
    rows = everything(chunk_of([(WRITE, rows_body(WRITE, [image]))]), schema)
    assert list(rows.after.to_pylist()[0].values()) == [
        index if index % 3 else None for index in range(1000)
    ]


def test_blocks_smaller_than_the_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [row(number, "é" * (number % 5)) for number in range(100)]
    chunk = chunk_of(
        [(WRITE, rows_body(WRITE, images[:90])), (WRITE, rows_body(WRITE, images[90:]))]
    )
    whole = everything(chunk)
    monkeypatch.setattr(rows_module, "BLOCK_ROWS_MAX", 16)
    pieces = everything(chunk)
    assert pieces.after.equals(whole.after)
    assert pieces.seq.equals(whole.seq)


def test_another_column_count_names_table_journal_and_offset() -> None:
    chunk = chunk_of([(WRITE, rows_body(WRITE, [full(struct.pack("<i", 1))]))])
    with pytest.raises(SchemaError) as caught:
        everything(chunk)
    error = caught.value
    assert (error.table, error.journal, error.offset) == (
        "shop.orders",
        "binlog.000007",
        int(chunk.events["offset"][0]),
    )
    assert (error.expected, error.got) == ("2 columns", "1 columns")


@pytest.mark.parametrize("cut", range(1, 26))
def test_a_cut_event_never_reads_beyond_its_end(cut: int) -> None:
    """The bytes after the event are those of a good row: a decoder that read on would succeed."""
    body = rows_body(WRITE, [row(1, "0123456789"), row(2, "x")])
    chunk = chunk_of([(WRITE, body)])
    chunk.events["event_length"] -= cut
    if cut == 8:  # exactly the second row is gone
        assert everything(chunk).after.column("id").to_pylist() == [1]
        return
    with pytest.raises(DamagedJournalError) as caught:
        everything(chunk)
    assert caught.value.journal == "binlog.000007"
    assert caught.value.offset == int(chunk.events["offset"][0])
    assert caught.value.table == "shop.orders"
    assert any(
        words in caught.value.what
        for words in ("column 'id'", "column 'note'", "bitmaps", "no row")
    )


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes_end_in_an_error_or_in_rows(data: st.DataObject) -> None:
    schema = schema_of(
        int_column(), text_column(), Column("doc", Kind.JSON, 245, 4, True),
        Column("price", Kind.DECIMAL, 246, 0, True,
        precision=12, scale=2), Column("at", Kind.TIME, 19, 6, True, fraction_digits=6),
        text_column("t", "sjis"),
    )  # fmt: skip
    document = bytes.fromhex("000100" + "10000b000100" + "0502006161")
    image = full(
        b"\1\2\3\4",
        prefixed("é".encode()),
        prefixed(document, 4),
        b"\x80\0\0\1\2\3",
        b"\x80\1\2\3\4\5",
        prefixed(b"a\x82\xa0"),
    )
    body = bytearray(rows_body(UPDATE, [image] * 4))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(6, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        rows = everything(chunk_of([(UPDATE, bytes(body))]), schema)
    except (DamagedJournalError, SchemaError):
        return
    for batch in (rows.before, rows.after):
        batch.validate(full=True)


def test_other_events_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedEventError, match="not a rows event") as caught:
        everything(chunk_of([(29, rows_body(UPDATE, [row(1, ""), row(1, "")]))]))
    assert "ROWS_QUERY" in str(caught.value)


def test_rows_outside_a_transaction_are_refused() -> None:
    chunk = chunk_of([(WRITE, rows_body(WRITE, [row(1, "")]))])
    chunk.events["tx_offset"] = -1
    with pytest.raises(BinlogError, match="outside a transaction"):
        everything(chunk)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("c", Kind.TIME, 11, 0, True, fraction_digits=7), "old format"),
        (Column("c", Kind.DATETIME, 12, 0, True, fraction_digits=-1), "old format"),
        (Column("c", Kind.INT32, 77, 0, True), "unknown type"),
    ],
)
def test_columns_that_cannot_be_decoded_are_named(column: Column, words: str) -> None:
    with pytest.raises(UnknownColumnTypeError, match=words) as caught:
        decode_rows([], schema_of(column), epoch=0)
    assert caught.value.table == "shop.orders"
    assert "'c'" in caught.value.what


def test_old_temporal_types_without_fraction() -> None:
    schema = schema_of(
        Column("d", Kind.DATETIME, 12, 0, True),
        Column("s", Kind.TIMESTAMP, 7, 0, True),
        Column("t", Kind.TIME, 11, 0, True),
    )
    good = full(
        struct.pack("<q", 20240131235958),
        struct.pack("<I", 86400),
        (-8385959).to_bytes(3, "little", signed=True),
    )
    zero = full(struct.pack("<q", 20240200000000), bytes(4), bytes(3))
    rows = everything(chunk_of([(WRITE, rows_body(WRITE, [good, zero]))]), schema)
    assert [str(value) for value in rows.after.to_pylist()[0].values()] == [
        "2024-01-31 23:59:58", "1970-01-02 00:00:00+00:00", "-838:59:59",
    ]  # fmt: skip
    assert rows.after.to_pylist()[1] == {"d": None, "s": None, "t": "00:00:00"}
    assert [(value.column, value.text) for value in rows.invalid] == [
        (0, "2024-02-00 00:00:00"), (1, "0000-00-00 00:00:00"),
    ]  # fmt: skip
