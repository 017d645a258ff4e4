"""SPEC C1-C3: rows find their table map, against a slow twin."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, Role
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.errors import MetadataMissingError, TableIdNotFoundError
from cdc_pipeline.transaction.table_maps import RowsGroup, TableMaps
from tests.support.journal_builder import JournalBuilder

MAP, WRITE, XID = 19, 30, 16
JOURNAL = "binlog.000001"


def map_body(table_id: int, table: str) -> bytes:
    name = table.encode()
    return (
        table_id.to_bytes(6, "little") + b"\1\0" + b"\4shop\0" + bytes([len(name)]) + name + b"\0"
        b"\1\3" + b"\0" + b"\0" + b"\1\1\0" + b"\4\2\1c"
    )  # fmt: skip


def chunk_of(transactions: list[list[tuple[str, int, str]]], *, journal: str = JOURNAL) -> Chunk:
    """Transactions of ("map" or "rows", table id, table), each ended by an XID, with roles as the
    pass writes them."""
    builder = JournalBuilder()
    builder.format_description()
    tx_offsets, roles = [-1], [Role.JOURNAL]
    for events in transactions:
        begin = builder.offset
        for kind, table_id, table in events:
            if kind == "map":
                builder.event(MAP, map_body(table_id, table))
            else:
                builder.rows(table_id, b"\2\0\1\xff\0" + bytes(4))
            tx_offsets.append(begin)
            roles.append(Role.ROWDATA)
        builder.event(XID, bytes(8))
        tx_offsets.append(begin)
        roles.append(Role.TRANSACTIONEND)
    chunk, _ = EventFramer(journal).feed(np.frombuffer(bytes(builder.data[4:]), dtype=np.uint8))
    assert chunk is not None
    chunk.events["tx_offset"] = tx_offsets
    chunk.events["role"] = roles
    return chunk


def slow(transactions: list[list[tuple[str, int, str]]]) -> dict[str, list[int]] | None:
    """Rows by table; None where a table id is unknown."""
    found: dict[str, list[int]] = {}
    row = 1
    for events in transactions:
        maps: dict[int, str] = {}
        for kind, table_id, table in events:
            if kind == "map":
                maps[table_id] = table
            elif table_id not in maps:
                return None
            else:
                found.setdefault(maps[table_id], []).append(row)
            row += 1
        row += 1
    return found


def resolve(maps: TableMaps, chunk: Chunk, cuts: list[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    bounds = [0, *sorted(cuts), len(chunk.events)]
    for first, stop in itertools.pairwise(bounds):
        for group in maps.resolve(EventSlice(chunk, first, stop)):
            assert group.rows.tolist() == sorted(group.rows.tolist())
            found.setdefault(group.table, []).extend(group.rows.tolist())
    return found


event = st.tuples(
    st.sampled_from(["map", "rows"]), st.sampled_from([7, 8, 9]), st.sampled_from(["a", "b", "c"])
)


@settings(max_examples=150)
@given(st.lists(st.lists(event, max_size=8), max_size=6), st.lists(st.integers(0, 60), max_size=8))
def test_c1_rows_refer_to_the_latest_map_of_their_transaction(
    transactions: list[list[tuple[str, int, str]]], cuts: list[int]
) -> None:
    chunk = chunk_of(transactions)
    cuts = [min(cut, len(chunk.events)) for cut in cuts]
    expected = slow(transactions)
    maps = TableMaps(lambda _database, _table: True)
    if expected is None:
        with pytest.raises(TableIdNotFoundError):
            resolve(maps, chunk, cuts)
    else:
        assert resolve(maps, chunk, cuts) == expected


def test_c1_maps_of_a_transaction_reach_across_chunks() -> None:
    first = chunk_of([[("map", 7, "a"), ("map", 8, "b"), ("rows", 7, "")]])
    open_part = EventSlice(first, 0, 4)
    second = chunk_of([[("rows", 8, ""), ("rows", 7, "")]])
    second.events["tx_offset"] = int(first.events["tx_offset"][1])
    rest = EventSlice(second, 1, 4)
    maps = TableMaps(lambda _database, _table: True)
    assert [group.table for group in maps.resolve(open_part)] == ["a"]
    assert maps.safe_offset == int(first.events["offset"][1])
    assert [(group.table, group.rows.tolist()) for group in maps.resolve(rest)] == [
        ("b", [1]),
        ("a", [2]),
    ]
    assert maps.safe_offset == -1
    with pytest.raises(TableIdNotFoundError):
        maps.resolve(EventSlice(second, 1, 3))


def test_c2_no_map_outlives_its_transaction_or_its_journal() -> None:
    chunk = chunk_of([[("map", 7, "a"), ("rows", 7, "")], [("rows", 7, "")]])
    maps = TableMaps(lambda _database, _table: True)
    with pytest.raises(TableIdNotFoundError):
        maps.resolve(EventSlice(chunk, 0, len(chunk.events)))
    maps = TableMaps(lambda _database, _table: True)
    maps.resolve(EventSlice(chunk, 0, 3))
    other = chunk_of([[("map", 7, "a"), ("rows", 7, "")]], journal="binlog.000002")
    with pytest.raises(TableIdNotFoundError):  # same offset, other journal
        maps.resolve(EventSlice(other, 2, 3))


def test_c3_the_error_names_the_begin_and_the_safe_offset() -> None:
    chunk = chunk_of([[("map", 7, "a"), ("rows", 7, ""), ("rows", 99, "")]])
    with pytest.raises(TableIdNotFoundError) as caught:
        TableMaps(lambda _database, _table: True).resolve(EventSlice(chunk, 0, len(chunk.events)))
    error = caught.value
    assert (error.journal, error.offset) == (JOURNAL, int(chunk.events["offset"][3]))
    assert "99" in error.what
    assert str(int(chunk.events["tx_offset"][3])) in (error.next_step or "")
    assert f"first table map at offset {int(chunk.events['offset'][1])}" in str(error.got)


def test_k28_a_table_that_was_passed_by_is_parsed_once_it_is_captured() -> None:
    """A suspended table that a RENAME resumes in the same run, under maps of the same bytes."""
    captured: set[str] = set()
    maps = TableMaps(lambda _database, table: table in captured)
    for is_taken in (False, True, False):
        captured = {"a"} if is_taken else set()
        (group,) = maps.resolve(EventSlice(chunk := chunk_of([[("map", 7, "a"), ("rows", 7, "")]]),
            0, len(chunk.events)))  # fmt: skip
        assert group.table == "a"
        if is_taken:
            assert group.schema is not None


def groups_of(captured: Callable[[str, str], bool], chunk: Chunk) -> list[RowsGroup]:
    return TableMaps(captured).resolve(EventSlice(chunk, 0, len(chunk.events)))


def test_tables_that_are_not_captured_are_only_named() -> None:
    chunk = chunk_of(
        [[("map", 7, "a"), ("map", 8, "b"), ("rows", 7, ""), ("rows", 8, ""), ("rows", 7, "")]]
    )
    groups = groups_of(lambda database, table: (database, table) == ("shop", "b"), chunk)
    assert [(g.table, g.schema is None, g.rows.tolist()) for g in groups] == [
        ("a", True, [3, 5]),
        ("b", False, [4]),
    ]
    assert groups[1].schema is not None
    assert groups[1].schema.full_name == "shop.b"


def test_one_content_is_parsed_once_and_equal_under_any_table_id() -> None:
    chunk = chunk_of([[("map", number, "a"), ("rows", number, "")] for number in range(50)])
    asked: list[str] = []

    def captured(_database: str, table: str) -> bool:
        asked.append(table)
        return True

    groups = groups_of(captured, chunk)
    assert asked == ["a"]
    assert len(groups) == 1
    assert len(groups[0].rows) == 50


def test_the_end_marker_is_harmless_and_only_that() -> None:
    builder = JournalBuilder()
    builder.format_description()
    builder.rows(0xFFFFFF, b"\2\0\0")
    builder.rows(0xFFFFFF, b"", event_type=23)
    chunk, _ = EventFramer(JOURNAL).feed(np.frombuffer(bytes(builder.data[4:]), dtype=np.uint8))
    assert chunk is not None
    assert TableMaps(lambda _database, _table: True).resolve(EventSlice(chunk, 0, 3)) == []
    builder.rows(0xFFFFFF, b"\2\0\1\xff\0" + bytes(4))
    chunk, _ = EventFramer(JOURNAL).feed(np.frombuffer(bytes(builder.data[4:]), dtype=np.uint8))
    assert chunk is not None
    with pytest.raises(TableIdNotFoundError):
        TableMaps(lambda _database, _table: True).resolve(EventSlice(chunk, 0, 4))


def test_metadata_below_full_stops_captured_tables_with_the_statement() -> None:
    full = map_body(7, "a")
    builder = JournalBuilder()
    builder.format_description()
    builder.event(MAP, full.removesuffix(b"\4\2\1c"))
    chunk, _ = EventFramer(JOURNAL).feed(np.frombuffer(bytes(builder.data[4:]), dtype=np.uint8))
    assert chunk is not None
    piece = EventSlice(chunk, 0, 2)
    with pytest.raises(MetadataMissingError) as caught:
        TableMaps(lambda _database, _table: True).resolve(piece)
    assert caught.value.table == "shop.a"
    assert "SET GLOBAL binlog_row_metadata = 'FULL'" in (caught.value.next_step or "")
    assert TableMaps(lambda _database, _table: False).resolve(piece) == []
