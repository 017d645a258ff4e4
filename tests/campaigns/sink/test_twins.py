"""The oracles themselves, without Spark: the twins agree with the server, and the comparison sees
what is wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable as Written
from deltalake import write_deltalake

from tests.campaigns.sink.alterations import first_key, items_of
from tests.campaigns.sink.changes import Change, read_changes, value_of
from tests.campaigns.sink.column_types import plain
from tests.campaigns.sink.comparing import difference, rows_of
from tests.campaigns.sink.oracle import State
from tests.campaigns.sink.tables import Table
from tests.campaigns.sink.twins import history, key_of, mirror, soft_delete, whole_changes
from tests.campaigns.sink.workload import Executor, Pack, Size
from tests.servers import Server
from tests.support.delta_reader import _bitmap_array, read_delta

SEEDS = range(9201, 9211)
SIZE = Size(tables_max=1, steps=2, transactions_max=3, changes_max=4)
ALTERING = frozenset(
    {
        "drop_column",
        "rename_column",
        "drop_add",
        "swap_columns",
        "widen",
        "truncate",
        "rename_table",
    }
)
_DELTA_TYPES = {
    "INT": "integer",
    "VARBINARY(20)": "binary",
    "DATETIME": "timestamp_ntz",
    "DOUBLE": "double",
}


def test_twins_agree_with_the_server(server: Server, tmp_path: Path) -> None:
    """What the modes' twins say of the present has the keys that the server's SELECT has, at every
    place."""
    server.flush_journal()
    start = server.end_position()
    executor = Executor(server)
    packs = [Pack(seed, executor, size=SIZE, kinds=ALTERING) for seed in SEEDS]
    try:
        for pack in packs:
            pack.create()
            pack.step()
            pack.step()
        journals = tmp_path / "journals"
        server.copy_journals(journals)
        changes = read_changes(sorted(journals.iterdir()), start=start)
        assert {kind for pack in packs for kind in pack.changes} >= ALTERING - {"swap_columns"}
        compared = sum(
            _compare(table, executor, changes)
            for pack in packs
            for table in pack.tables
            if table.key
        )
        assert compared > 50
    finally:
        executor.close()
        for pack in packs:
            server.execute(f"DROP DATABASE IF EXISTS `{pack.database}`")


def _compare(table: Table, executor: Executor, changes: dict[str, list[Change]]) -> int:
    compared = 0
    states = executor.oracle.states[table.full_name]
    every = items_of(table.full_name, states[-1].place, changes, executor.altered)
    for state in states:
        items = items_of(table.full_name, state.place, changes, executor.altered)
        key = first_key(every[len(items) :], table.key)  # as it was called then
        first = first_key(items, key)
        seen = whole_changes(items, first)
        rows = mirror(seen, first)
        open_versions = [version.row for version in history(seen, first) if version.end is None]
        alive = [kept.row for kept in soft_delete(seen, first) if not kept.deleted]
        assert state.columns is not None
        assert len(rows) == len(state.rows), (table.full_name, state.place)
        for other in (open_versions, alive):
            assert sorted(repr(key_of(row, key)) for row in other) == sorted(
                repr(key_of(row, key)) for row in rows
            )
        if state is states[-1]:
            for column in (one for one in table.columns if one.type.declared in _DELTA_TYPES):
                if all(column.name in row for row in rows):
                    at, delta_type = (
                        state.columns.index(column.name),
                        _DELTA_TYPES[column.type.declared],
                    )
                    told = [value_of(row[column.name], delta_type) for row in rows]
                    assert sorted(map(repr, told)) == sorted(repr(row[at]) for row in state.rows), (
                        column.name
                    )
        compared += len(rows)
    return compared


def test_a_wrong_row_is_found(tmp_path: Path) -> None:
    """The comparison fails on a value, a row too few, a row too many and an absent column."""
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2, 3], "v": ["a", None, "ü"]}))
    Written(tmp_path / "t").delete("id = 3")
    there = read_delta(tmp_path / "t", 1)
    assert rows_of(read_delta(tmp_path / "t", 0), ["id"]) == [(1,), (2,), (3,)]

    def wrong(columns: tuple[str, ...], *rows: tuple[object, ...]) -> str:
        return difference(
            there, State(("binlog.000001", 4), columns, tuple(sorted(rows, key=repr)))
        )

    assert wrong(("id", "v"), (1, "a"), (2, None)) == ""
    assert "1 rows missing, 1 too many" in wrong(("id", "v"), (1, "A"), (2, None))
    assert "1 rows missing, 0 too many" in wrong(("id", "v"), (1, "a"), (2, None), (3, "ü"))
    assert "0 rows missing, 1 too many" in wrong(("id", "v"), (1, "a"))
    assert "lacks the columns" in wrong(("id", "w"), (1, "a"), (2, None))
    assert plain(True) == 1


def test_deletion_vectors_of_every_container() -> None:
    """Array, bitmap and run containers, and more than one key, as the format's description has
    them."""
    array = struct.pack("<3H", 1, 7, 65535)
    bits = bytearray(8192)
    for value in range(5000):
        bits[value // 8] |= 1 << value % 8
    plain_map = (
        struct.pack("<II", 12346, 2)
        + struct.pack("<4H", 0, 2, 1, 4999)
        + struct.pack("<2I", 0, 0)
        + array
        + bytes(bits)
    )
    runs = (
        struct.pack("<I", 12347)
        + b"\x01"
        + struct.pack("<2H", 3, 11)
        + struct.pack("<5H", 2, 10, 4, 100, 6)
    )
    data = (
        struct.pack("<IQ", 1681511377, 2)
        + struct.pack("<I", 0)
        + plain_map
        + struct.pack("<I", 1)
        + runs
    )
    expected = {1, 7, 65535} | {65536 + value for value in range(5000)}
    base = (1 << 32) | (3 << 16)
    expected |= {base + value for value in (*range(10, 15), *range(100, 107))}
    assert _bitmap_array(data) == expected
