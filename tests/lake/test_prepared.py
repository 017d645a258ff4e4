"""Parked rows of prepared XA transactions, without Spark (K8)."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.seq_columns import event_ordinals
from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.errors import SinkError, StagingError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.prepared import CommitPlace, XaParking, remove_unreferenced
from cdc_pipeline.position.cursor import CursorState, OpenXa
from tests.support.seqs import seq_array
from tests.support.sink_values import (
    column,
    cursor_at,
    decoded,
    delete,
    insert,
    table_schema,
    update,
)

T = table_schema(
    "shop.t",
    [
        column("id", Kind.INT32),
        column("s", Kind.TEXT, charset="utf8mb4"),
        column("e", Kind.ENUM, labels=("ü", "b")),
    ],
    "id",
)
U = table_schema(
    "shop.u", [column("id", Kind.INT32), column("v", Kind.VECTOR), column("g", Kind.GEOMETRY)], "id"
)
EFFECT = CommitPlace(epoch=3, journal="binlog.000009", tx_offset=777, commit_ts_us=5_000_000)


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(tmp_path / "lake", "shop")


def parking(paths: LakePaths, open_xa: tuple[OpenXa, ...] = (), **rest: Any) -> XaParking:
    return XaParking(paths, epoch=1, open_xa=open_xa, check_lock=lambda: None, **rest)


def rows_of(schema: TableSchema, count: int = 2, *, ordinal: int = 4) -> DecodedRows:
    """`count` inserts in events of ascending ordinals of a transaction at offset 50."""
    made = decoded(
        schema, [insert(**dict.fromkeys(schema.column_names)) for _ in range(count)], first_place=1
    )
    ordinals = np.arange(ordinal, ordinal + count)
    zeros = np.zeros(count, np.int64)
    return replace(made, seq=seq_array(1, 7, zeros + 50, ordinals, zeros, 0))


def park(parked: XaParking, xid: str, offset: int, *batches: DecodedRows) -> None:
    parked.begin(journal="binlog.000007", offset=offset, gtid="g:1")
    for rows in batches:
        parked.add(rows)
    parked.park(xid, prepared_at_us=12)


def cursor_with(open_xa: tuple[OpenXa, ...]) -> CursorState:
    return cursor_at(1).model_copy(update={"open_xa": open_xa})


def files(paths: LakePaths) -> list[str]:
    return sorted(
        path.relative_to(paths.xa).as_posix() for path in paths.xa.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("memory_bytes_max", [1 << 30, 0])
def test_k8_rows_come_back_whole_under_the_seq_of_the_commit(
    paths: LakePaths, memory_bytes_max: int
) -> None:
    changes = [
        insert(id=1, s="é'", e="ü"), update({"id": 1, "s": None, "e": "b"}, {"id": 2}),
        delete(id=3, s="", e=None),
    ]  # fmt: skip
    given = decoded(T, changes, first_place=100)
    first = parking(paths, memory_bytes_max=memory_bytes_max)
    other = decoded(U, [insert(id=1, v=[1.5, -2.0], g={"srid": 4, "wkb": b"\0\1"})], first_place=7)
    park(first, "x", 50, given, other, given)
    open_xa = first.durable()
    assert [(xa.xid, xa.gtid, xa.begin.offset, xa.prepared_at_us, xa.rows) for xa in open_xa] == [
        ("x", "g:1", 50, 12, 7)
    ]
    for again in (first, parking(paths, open_xa)):
        assert again.schemas("x") == (T, U)
        found = [rows for rows in map(EFFECT.on, again.rows("x")) if rows.schema == T]
        assert len(found) == 2
        for rows in found:
            assert (rows.op == given.op).all()
            assert rows.before.equals(given.before)
            assert rows.after.equals(given.after)
            assert (rows.before_present == given.before_present).all()
            assert (rows.after_present == given.after_present).all()
            assert not rows.all_present
            assert rows.commit_ts_us.tolist() == [5_000_000] * 3
            assert [int(seq) for seq in rows.seq.to_pylist()] == [pack_seq(3, 9, 777)] * 3
        (other_back,) = [rows for rows in map(EFFECT.on, again.rows("x")) if rows.schema == U]
        assert other_back.after.equals(other.after)
        assert other_back.all_present


def test_k8_ordinals_stay_under_another_transaction(paths: LakePaths) -> None:
    parked = parking(paths)
    park(parked, "x", 50, rows_of(T, 5, ordinal=9))
    (rows,) = map(EFFECT.on, parked.rows("x"))
    assert event_ordinals(rows.seq).tolist() == [9, 10, 11, 12, 13]
    assert [int(seq) for seq in rows.seq.to_pylist()] == [
        pack_seq(3, 9, 777, ordinal) for ordinal in range(9, 14)
    ]


@pytest.mark.parametrize("memory_bytes_max", [1 << 30, 0])
def test_k8_undone_rows_are_not_parked(paths: LakePaths, memory_bytes_max: int) -> None:
    parked = parking(paths, memory_bytes_max=memory_bytes_max)
    parked.begin(journal="binlog.000007", offset=50, gtid="")
    parked.add(rows_of(T, 10, ordinal=2))
    parked.add(rows_of(U, 3, ordinal=20))
    parked.undo(np.array([[4, 8], [20, 30]]))
    parked.add(rows_of(T, 2, ordinal=31))
    parked.park("x", prepared_at_us=1)
    (entry,) = parked.durable()
    assert [file.table for file in entry.files] == ["shop.t"]
    ordinals = [number for rows in parked.rows("x") for number in event_ordinals(rows.seq).tolist()]
    assert ordinals == [2, 3, 8, 9, 10, 11, 31, 32]
    assert len(files(paths)) == 1


def test_k8_files_stay_until_a_cut_contains_their_end(paths: LakePaths) -> None:
    parked = parking(paths)
    park(parked, "x", 50, rows_of(T))
    park(parked, "empty", 60)
    park(parked, "y", 70, rows_of(U))
    open_xa = parked.durable()
    assert [len(xa.files) for xa in open_xa] == [1, 0, 1]
    parked.end("x")
    assert len(files(paths)) == 2
    parked.published()
    assert len(files(paths)) == 1
    assert remove_unreferenced(paths, [None, cursor_with(parked.durable())]) == 0
    (paths.xa / "1-binlog~2e000007-70" / ".put-3").write_bytes(b"left by a killed run")
    assert remove_unreferenced(paths, [cursor_with(open_xa)]) == 1
    assert remove_unreferenced(paths, [None]) == 1
    assert list(paths.xa.iterdir()) == []


def test_k8_a_prepare_that_is_read_again_does_not_touch_what_a_cursor_refers_to(
    paths: LakePaths,
) -> None:
    first = parking(paths)
    park(first, "x", 50, rows_of(T, 2), rows_of(T, 1))
    (entry,) = first.durable()
    again = parking(paths)
    park(again, "x", 50, rows_of(T, 3))
    again.durable()
    assert first.schemas("x") == (T,)
    assert parking(paths, (entry,)).schemas("x") == (T,)


def test_k8_memory_is_bounded_and_dropped_rows_leave_nothing(paths: LakePaths) -> None:
    parked = parking(paths, memory_bytes_max=4096)
    for number in range(40):
        park(parked, f"x{number}", 100 + number, rows_of(T))
        assert parked._memory_bytes <= 4096
    parked.begin(journal="binlog.000007", offset=9000, gtid="")
    for _ in range(40):
        parked.add(rows_of(T, 100))
    assert any(".put-" in name for name in files(paths))
    parked.drop_pieces()
    assert not any(".put-" in name or "-9000/" in name for name in files(paths))
    for number in range(40):
        parked.end(f"x{number}")
    parked.published()
    assert files(paths) == []
    assert parked._memory_bytes == 0


def test_k8_a_missing_or_damaged_file_names_the_prepare(paths: LakePaths) -> None:
    parked = parking(paths)
    park(parked, "X'61',X'',1", 50, rows_of(T))
    (entry,) = parked.durable()
    path = paths.lake / entry.files[0].path
    content = path.read_bytes()
    path.write_bytes(content[:-8] + b"damaged!")
    with pytest.raises(StagingError, match="X'61',X'',1") as caught:
        parked.schemas(entry.xid)
    assert "binlog.000007 at offset 50" in str(caught.value.next_step)
    path.write_bytes(content)
    refused = mock.Mock(side_effect=OSError(errno.EIO, "bad sector"))
    with (
        mock.patch("cdc_pipeline.lake.prepared.read_schema", refused),
        pytest.raises(StagingError, match="bad sector") as caught,
    ):
        parked.schemas(entry.xid)
    assert "binlog.000007 at offset 50" in str(caught.value.next_step)
    path.unlink()
    with pytest.raises(StagingError, match="missing or damaged"):
        parked.schemas(entry.xid)


def test_k8_a_full_disk_is_an_error_that_names_the_folder(paths: LakePaths) -> None:
    paths.state.mkdir(parents=True)
    paths.xa.write_text("in the way")
    parked = parking(paths)
    park(parked, "x", 50, rows_of(T))
    with pytest.raises(SinkError, match=r"disk refuses.*_cdc/shop/xa"):
        parked.durable()
