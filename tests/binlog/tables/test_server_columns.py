"""The marks by which a column is the server's (K32), and what they make of rows. Real servers:
tests/run/capture/test_server_columns.py."""

from __future__ import annotations

import struct

import pytest

from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables.server_columns import logged_columns, split, with_server_columns
from cdc_pipeline.errors import MetadataMissingError
from tests.binlog.rows.test_decode import everything
from tests.support.rows_events import DELETE as DELETE_ROWS
from tests.support.rows_events import UPDATE as UPDATE_ROWS
from tests.support.rows_events import WRITE, Image, chunk_of, full, int_column, rows_body

ID, A = int_column(), int_column("a")
HASH = Column("DB_ROW_HASH_1", Kind.INT64, 8, 0, True, unsigned=True)
START, END = (
    Column(name, Kind.TIMESTAMP, 17, 6, False, fraction_digits=6)
    for name in ("row_start", "row_end")
)
OWN = TableSchema("shop", "orders", (ID, A), (0,))


def table(
    *columns: Column, key: tuple[int, ...] = (0,), known: TableSchema | None = None
) -> TableSchema:
    return split("shop", "orders", columns, key, known=known, has_names=True)


def test_k32_f79_the_column_of_a_hash_key_is_no_column_of_the_table() -> None:
    found = table(ID, A, HASH)
    assert (found.column_names, [column.name for column in found.hidden]) == (
        ("id", "a"), ["DB_ROW_HASH_1"],
    )  # fmt: skip
    signed = Column("DB_ROW_HASH_1", Kind.INT64, 8, 0, True)
    assert table(ID, A, signed).column_names == ("id", "a", "DB_ROW_HASH_1")
    assert table(ID, HASH, A).column_names == ("id", "DB_ROW_HASH_1", "a")


def test_k32_f79_a_column_that_the_table_is_known_to_have_is_its_own() -> None:
    known = with_server_columns(TableSchema("shop", "orders", (ID, HASH), (0,)), hash_keys=1)
    assert [column.name for column in known.hidden] == ["DB_ROW_HASH_2"]
    assert table(ID, HASH, known=known).column_names == ("id", "DB_ROW_HASH_1")
    plain = TableSchema("shop", "orders", (ID, START, END), (0,))
    assert table(ID, START, END, known=plain).row_end == ""
    assert table(ID, START, END, known=plain).hidden == ()


def test_k32_f79_without_names_a_row_has_so_many_columns_as_the_server_adds() -> None:
    known = with_server_columns(OWN, is_versioned=True, hash_keys=2)
    names = [
        "id", "a", "row_start", "row_end", "DB_ROW_HASH_1", "DB_ROW_HASH_2",
    ]  # fmt: skip
    for count in (4, 5, 6):
        assert [column.name for column in logged_columns(known, count) or ()] == names[:count]
    assert logged_columns(known, 3) is None
    assert logged_columns(known, 7) is None


def test_k32_f80_the_servers_period_is_marked_by_the_key_or_by_what_is_known() -> None:
    found = table(ID, A, START, END, HASH, key=(0, 3))
    assert (found.column_names, found.key_names, found.row_end) == (("id", "a"), ("id",), "row_end")
    assert len(found.hidden) == 3
    assert table(ID, A, START, END, key=(0,)).column_names == ("id", "a", "row_start", "row_end")
    keyless = TableSchema("shop", "orders", (ID, A))
    assert table(ID, A, START, END, key=(), known=keyless).row_end == "row_end"
    with pytest.raises(MetadataMissingError, match="row_start"):
        table(ID, A, START, END, key=())


def test_k32_f80_a_declared_period_is_the_tables_own_and_leaves_the_key() -> None:
    end = Column("e", Kind.TIMESTAMP, 17, 6, False, fraction_digits=6)
    known = with_server_columns(
        TableSchema("shop", "orders", (ID, A, end), (0, 2)), is_versioned=True, row_end="e"
    )
    assert (known.hidden, known.key_names) == ((), ("id",))
    found = table(ID, A, end, key=(0, 2), known=known)
    assert (found.column_names, found.key_names, found.row_end) == (("id", "a", "e"), ("id",), "e")
    assert TableSchema.from_json(found.to_json()) == found


# -- rows ------------------------------------------------------------------------------------------

NEVER = b"\x7f\xff\xff\xff" + b"\x0f\x42\x3f"
THEN = b"\x6b\x08\x0d\xd1\x00\x00\x00"
VERSIONED = with_server_columns(OWN, is_versioned=True, hash_keys=1)
WIRE = TableSchema("shop", "orders", (ID, A), (0,), (START, END, HASH), "row_end")


def image(number: int, a: int, end: bytes) -> Image:
    return full(struct.pack("<i", number), struct.pack("<i", a), THEN, end, bytes(8))


def test_k32_f80_current_rows_are_the_rows_of_the_table() -> None:
    rows = everything(
        chunk_of(
            [
                (WRITE, rows_body(WRITE, [image(1, 1, NEVER), image(2, 2, THEN)])),
                (UPDATE_ROWS, rows_body(UPDATE_ROWS, [image(1, 1, NEVER), image(1, 5, NEVER)])),
                (WRITE, rows_body(WRITE, [image(1, 1, THEN)])),
                (UPDATE_ROWS, rows_body(UPDATE_ROWS, [image(1, 5, NEVER), image(1, 5, THEN)])),
                (DELETE_ROWS, rows_body(DELETE_ROWS, [image(1, 5, THEN), image(3, 3, NEVER)])),
            ],
            is_mariadb=True,
        ),
        WIRE,
    )
    assert rows.op.tolist() == [INSERT, UPDATE, DELETE, DELETE]
    assert rows.before.to_pylist() == [
        {"id": None, "a": None}, {"id": 1, "a": 1}, {"id": 1, "a": 5}, {"id": 3, "a": 3},
    ]  # fmt: skip
    assert rows.after.to_pylist()[2] == {"id": None, "a": None}
    assert rows.after_present.tolist() == [[3], [3], [0], [0]]
    assert rows.event_row.tolist() == [0, 1, 3, 4]


def test_k32_f80_an_image_without_the_periods_end_leaves_the_row_as_it_was() -> None:
    key = Image(image(1, 0, NEVER).values, (True, False, False, True, False))
    a = Image(image(1, 7, NEVER).values, (True, True, False, False, False))
    rows = everything(
        chunk_of([(UPDATE_ROWS, rows_body(UPDATE_ROWS, [key, a]))], is_mariadb=True), WIRE
    )
    assert rows.op.tolist() == [UPDATE]
    assert rows.after_present.tolist() == [[3]]


def test_k32_f80_a_load_and_the_log_have_the_same_columns() -> None:
    assert VERSIONED.columns == WIRE.columns
    assert [column.name for column in VERSIONED.logged.columns] == [
        column.name for column in WIRE.logged.columns
    ]
