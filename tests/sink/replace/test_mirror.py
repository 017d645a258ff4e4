"""Mirrors whose content a side table replaces: files adopted, in one commit (K2, K3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_pipeline import read
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.errors import LockError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.suspensions import SNAPSHOT_FAILED_NOTE
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.cuts import check_readable
from cdc_pipeline.sink.replace import replace as replacing
from tests.sink.replace.lake import Lakes, apply, differences, recorded_swap, side_target, target
from tests.support.kills import AtPoint
from tests.support.sink_values import check_targets, column, delete, insert, table_schema, update
from tests.support.spark_reader import rows_by_spark

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
pytestmark = pytest.mark.spark


def rows(lakes: Lakes) -> list[tuple[int, int]]:
    found = rows_by_spark(lakes.main, "shop.orders", "id", "total").to_pylist()
    return sorted((row["id"], row["total"]) for row in found)


@pytest.mark.whole
def test_k2_k3_a_mirror_is_replaced_by_the_files_of_a_side_table(
    open_sink: Callable[[str], DeltaSink], spark: Any
) -> None:
    lakes = Lakes(open_sink)
    first = apply(
        lakes.main, target(ORDERS), (ORDERS, [insert(id=n, total=n) for n in range(5)], 10)
    )
    loading = side_target(target(ORDERS))
    apply(
        lakes.side,
        loading,
        (ORDERS, [insert(id=n, total=10 * n) for n in range(3, 9)], 500),
        kind="snapshot",
    )
    changes = [update({"id": 4, "total": 40}, {"id": 4, "total": 41}), delete(id=5, total=50)]
    apply(lakes.side, loading, (ORDERS, changes, 600))
    # RESTORE keeps transaction ids: such a table gets a new one and is loaded again.
    lakes.sql(f"RESTORE TABLE {lakes.table(ORDERS)} TO VERSION AS OF 0")
    assert list(lakes.main.failing_targets(first)) == ["shop.orders"]
    record = recorded_swap(lakes, loading)
    assert not lakes.main.failing_targets(first)
    cut = lakes.main.finish(record)
    assert differences(lakes, ORDERS) == []
    state = cut.cursor.targets["shop.orders"]
    assert (state.app_id, state.partial, state.exact, state.table_version) == (
        loading.state.app_id,
        False,
        False,
        3,
    )
    check_targets(lakes.main, cut)
    made = lakes.actions(ORDERS, 3)
    assert [mark["version"] for mark in made["txn"]] == [32]
    assert made["commitInfo"][0]["operation"] == "WRITE"
    for number in (1, 2):
        check_readable(lakes.main.paths, first if number == 1 else cut, "shop.orders")
    old = read(lakes.main.paths.lake, "shop.orders", as_of=1, spark=spark).orderBy("id").collect()
    assert [(row.id, row.total) for row in old] == [(n, n) for n in range(5)]
    apply(
        lakes.main,
        side_target(target(ORDERS)),
        (ORDERS, [insert(id=100, total=1), delete(id=3, total=30)], 700),
    )
    assert rows(lakes) == [(4, 41), (6, 60), (7, 70), (8, 80), (100, 1)]

    # Without its side table the batch ends too: the target stays as it is, and nothing of the load
    # is left there.
    lakes.snapshot_again()
    again = side_target(target(ORDERS), 2)
    apply(lakes.side, again, (ORDERS, [insert(id=1, total=1)], 800), kind="snapshot")
    apply(lakes.side, again, (ORDERS, [insert(id=2, total=2)], 900))
    record = recorded_swap(lakes, again)
    here, side = lakes.main.paths.table("shop.orders"), lakes.side.paths.table("shop.orders")
    before = sorted(here.rglob("*"))
    max(side.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns).unlink()
    cut = lakes.main.finish(record)
    assert [(note.kind, note.table) for note in cut.notes[-1:]] == [
        (SNAPSHOT_FAILED_NOTE, "shop.orders")
    ]
    assert sorted(here.rglob("*")) == before
    assert cut.cursor.targets["shop.orders"].app_id == loading.state.app_id
    assert cut.cursor.targets["shop.orders"].suspended is None
    check_targets(lakes.main, cut)
    assert len(rows(lakes)) == 5


@pytest.mark.whole
def test_k2_k16_a_new_target_appears_whole_and_a_crash_at_any_point_is_finished_once(
    open_sink: Callable[[str], DeltaSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes = Lakes(open_sink)
    loading = side_target(target(ORDERS))
    apply(
        lakes.side,
        loading,
        (ORDERS, [insert(id=n, total=n) for n in range(4)], 500),
        kind="snapshot",
    )
    record = recorded_swap(lakes, loading)
    folder = lakes.main.paths.table("shop.orders")
    commit = replacing.put_commit

    def before(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def after(*args: Any, **named: Any) -> None:
        commit(*args, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(replacing, "put_commit", before)
    with pytest.raises(KeyboardInterrupt):
        lakes.main.finish(record)
    left = {file.name for file in folder.glob("*.parquet")}
    assert left
    assert read_table_log(folder) is None
    monkeypatch.setattr(replacing, "put_commit", commit)
    with monkeypatch.context() as patched:
        loses_lock = AtPoint("before_replaced", lambda: _lose_lock(patched, lakes.main))
        with listening(loses_lock), pytest.raises(LockError, match="lost while files were copied"):
            lakes.main.finish(record)
    assert read_table_log(folder) is None, "K16: whoever has lost the source's lock commits nothing"
    monkeypatch.setattr(replacing, "put_commit", after)
    with pytest.raises(KeyboardInterrupt):
        lakes.main.finish(record)
    monkeypatch.setattr(replacing, "put_commit", commit)
    assert lakes.main.last_cut() is None
    cut = lakes.main.finish(record)
    assert (
        cut.kind,
        cut.tables["shop.orders"].table_version,
        cut.tables["shop.orders"].rows_inserted,
    ) == (
        "snapshot",
        0,
        4,
    )
    assert {file.name for file in folder.glob("*.parquet")} == left
    assert {action["path"] for action in lakes.actions(ORDERS, 0)["add"]} <= left
    check_targets(lakes.main, cut)
    assert differences(lakes, ORDERS) == []
    # A row that is there already is not appended: the table is not as its CREATE left it.
    apply(lakes.main, loading, (ORDERS, [insert(id=3, total=33), insert(id=4, total=4)], 700))
    assert rows(lakes) == [(0, 0), (1, 1), (2, 2), (3, 33), (4, 4)]


def _lose_lock(patched: pytest.MonkeyPatch, sink: DeltaSink) -> None:
    def refuse() -> None:
        raise LockError("lost while files were copied")

    patched.setattr(sink, "_lock_check", refuse)


def test_k2_a_side_table_with_a_checkpoint_takes_a_targets_place(
    open_sink: Callable[[str], DeltaSink],
) -> None:
    """F68: in a process that has not read its log yet, such as one that goes on with a load."""
    lakes = Lakes(open_sink)
    loading = side_target(target(ORDERS))
    apply(
        lakes.side,
        loading,
        (ORDERS, [insert(id=n, total=n) for n in range(4)], 500),
        kind="snapshot",
    )
    DeltaTable(lakes.side.paths.table("shop.orders")).create_checkpoint()
    record = recorded_swap(lakes, loading)
    lakes.main.finish(record)
    assert rows(lakes) == [(n, n) for n in range(4)]
