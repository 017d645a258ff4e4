"""Targets that keep what is gone, and columns that the source dropped, where a load replaces them (K10, K17, K18)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.position.cursor import Suspension
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.sink.content import DROPPED_NOTE, GAP_NOTE
from cdc_pipeline.sink.delta import DeltaSink
from cdc_pipeline.sink.manifest import Cut, RecordedSource
from cdc_pipeline.sink.staging import TargetPlan
from tests.replace.lake import LOAD_PLACE, Lakes, apply, next_number, plan, recorded_swap, side_plan
from tests.sink.build import (
    Change,
    column,
    cursor_at,
    decoded,
    delete,
    insert,
    interval_of,
    seq_of,
    table_schema,
    update,
)

pytestmark = pytest.mark.spark

ITEMS = table_schema("shop.items", [column("id", Kind.INT32), column("v", Kind.TEXT)], "id")
Rows = list[tuple[Any, ...]]


def rows(sink: DeltaSink, name: str, *columns: str) -> Rows:
    found = sink.read_rows(name, *columns).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def load_rows(schema: TableSchema, *found: dict[str, Any]) -> Any:
    """Rows of one read view: at the load's place, told apart by their row ordinals."""
    made = decoded(schema, [insert(**row) for row in found], first_place=LOAD_PLACE)
    seqs = [Decimal(pack_seq(1, 1, LOAD_PLACE, 0, number, 0)) for number in range(len(found))]
    return replace(made, seq=pa.array(seqs, made.seq.type))


def load(lakes: Lakes, made: TargetPlan, schema: TableSchema, *found: dict[str, Any]) -> None:
    number = next_number(lakes.side)
    batch = lakes.side.begin(number)
    batch.create(made)
    names = pa.array(["1:500"] * len(found)) if made.mode == "changelog" else None
    batch.add(load_rows(schema, *found), made, transactions=names)
    lakes.side.finish(batch.record(interval=interval_of(number), cursor_after=cursor_at(number), kind="load"))


def change(sink: DeltaSink, made: TargetPlan, schema: TableSchema, place: int, *changes: Change) -> Cut:
    if made.mode != "changelog":
        return apply(sink, made, (schema, changes, place))
    number = next_number(sink)
    batch = sink.begin(number)
    if number == 1:
        batch.create(made)
    batch.add(decoded(schema, changes, first_place=place), made, transactions=pa.array([f"1:{place}"] * len(changes)))
    return sink.finish(batch.record(interval=interval_of(number), cursor_after=cursor_at(number)))


def at(place: int) -> Decimal:
    return Decimal(seq_of(place, after=True))


def loaded(number: int = -1) -> Decimal:
    """Seq of the row of this number in the load's view; without one the load's place itself."""
    return Decimal(seq_of(LOAD_PLACE) + (0 if number < 0 else 2 * number + 1))


def row(n: int, v: str) -> dict[str, Any]:
    return {"id": n, "v": v}


def test_k17_a_soft_deleted_row_stays_and_one_that_is_not_loaded_is_marked(
    open_sink: Callable[[str], DeltaSink],
) -> None:
    lakes = Lakes(open_sink)
    made = plan(ITEMS, mode="soft_delete")
    change(lakes.main, made, ITEMS, 10, *(insert(id=n, v="old") for n in range(5)))
    change(lakes.main, made, ITEMS, 20, delete(id=0, v="old"), delete(id=1, v="old"))
    loading = side_plan(made)
    load(lakes, loading, ITEMS, row(1, "new"), row(2, "old"), row(3, "new"))
    change(lakes.side, loading, ITEMS, 600, delete(id=3, v="new"), insert(id=7, v="x"))
    record = recorded_swap(lakes, loading)
    cut = lakes.main.finish(record)
    end = Decimal(pack_seq(1, 1, record.cursor_after.offset))
    found = rows(lakes.main, "shop.items", "id", "v", "_cdc_op", "_cdc_seq", "_cdc_deleted")
    assert found == [
        (0, "old", "delete", Decimal(seq_of(20)), True),
        (1, "new", "insert", loaded(0), False),
        (2, "old", "insert", loaded(1), False),
        (3, "new", "delete", Decimal(seq_of(600)), True),
        (4, "old", "delete", end, True),
        (7, "x", "insert", at(601), False),
    ]
    lakes.main.check_targets(cut)


def test_k17_a_history_goes_on_where_values_are_equal_and_its_intervals_meet(
    open_sink: Callable[[str], DeltaSink],
) -> None:
    lakes = Lakes(open_sink)
    made = plan(ITEMS, mode="history")
    change(lakes.main, made, ITEMS, 10, *(insert(id=n, v="a") for n in range(6)))
    change(lakes.main, made, ITEMS, 20, update(row(0, "a"), row(0, "b")), delete(id=1, v="a"))
    # What the load tells too, from its own reading of the log.
    late = [update(row(2, "a"), row(2, "c")), insert(id=8, v="n")]
    change(lakes.main, made, ITEMS, 600, *late)
    loading = side_plan(made)
    load(lakes, loading, ITEMS, row(0, "b"), row(1, "again"), row(2, "a"), row(3, "other"), row(5, "a"))
    change(lakes.side, loading, ITEMS, 600, *late, delete(id=5, v="a"))
    cut = lakes.main.finish(recorded_swap(lakes, loading))
    found = rows(lakes.main, "shop.items", "id", "v", "__START_AT", "__END_AT", "_cdc_seq")
    start = {n: at(10 + n) for n in range(6)}
    assert found == sorted(
        [
            (0, "a", start[0], at(20), start[0]),
            (0, "b", at(20), None, at(20)),
            (1, "a", start[1], Decimal(seq_of(21)), start[1]),
            (1, "again", loaded(1), None, loaded(1)),
            (2, "a", start[2], at(600), start[2]),
            (2, "c", at(600), None, at(600)),
            (3, "a", start[3], loaded(3), start[3]),
            (3, "other", loaded(3), None, loaded(3)),
            (4, "a", start[4], loaded(), start[4]),
            (5, "a", start[5], Decimal(seq_of(602)), start[5]),
            (8, "n", at(601), None, at(601)),
        ],
        key=str,
    )
    lakes.main.check_targets(cut)
    change(lakes.main, replace(loading), ITEMS, 900, update(row(3, "other"), row(3, "z")))
    ended = rows(lakes.main, "shop.items", "id", "v", "__END_AT")
    assert [found for found in ended if found[0] == 3] == [
        (3, "a", loaded(3)), (3, "other", at(900)), (3, "z", None)
    ]  # fmt: skip


def test_k18_a_changelog_gets_what_it_lacks_and_begins_anew_after_a_gap(
    open_sink: Callable[[str], DeltaSink],
) -> None:
    lakes = Lakes(open_sink)
    made = plan(ITEMS, mode="changelog")
    change(lakes.main, made, ITEMS, 10, insert(id=1, v="a"), insert(id=2, v="a"))
    change(lakes.main, made, ITEMS, 600, update(row(1, "b"), row(1, "c")))
    loading = side_plan(made)
    load(lakes, loading, ITEMS, row(1, "b"), row(3, "b"))
    change(lakes.side, loading, ITEMS, 600, update(row(1, "b"), row(1, "c")), delete(id=3, v="b"))
    record = recorded_swap(lakes, loading)
    assert [note.kind for note in record.notes] == ["loaded"]
    lakes.main.finish(record)
    told = ("id", "v", "_cdc_op", "_cdc_seq")
    whole = [
        (1, "a", "insert", at(10)),
        (1, "c", "update", at(600)),
        (2, "a", "insert", at(11)),
        (3, "b", "delete", Decimal(seq_of(601))),
    ]
    assert rows(lakes.main, "shop.items", *told) == whole

    # Suspended: changes between its place and the load's are lost to it.
    cut = lakes.main.last_cut()
    assert cut is not None
    held = Suspension(batch_number=3, error="E", what="w", journal="binlog.000001", offset=2004)
    state = cut.cursor.targets["shop.items"].model_copy(update={"suspended": held})
    number = next_number(lakes.main)
    batch = lakes.main.begin(number)
    targets = {"shop.items": state}
    lakes.main.finish(
        batch.record(interval=interval_of(number), cursor_after=cursor_at(number, targets=targets), kind="catch_up")
    )
    again = side_plan(made, 2)
    lakes.load_again()
    load(lakes, again, ITEMS, row(1, "b"), row(3, "b"))
    change(lakes.side, again, ITEMS, 700, insert(id=9, v="z"))
    record = recorded_swap(lakes, again)
    assert [note.kind for note in record.notes] == ["loaded", GAP_NOTE]
    cut = lakes.main.finish(record)
    assert cut.cursor.targets["shop.items"].suspended is None
    assert rows(lakes.main, "shop.items", *told) == sorted(
        [
            *whole,
            (None, None, "truncate", loaded()),
            (1, "b", "insert", loaded(0)),
            (3, "b", "insert", loaded(1)),
            (9, "z", "insert", at(700)),
        ],
        key=str,
    )
    texts = rows(lakes.main, "shop.items", "_cdc_op", "_cdc_transaction")
    assert ("truncate", "1:500") in texts


def test_k13_dropped_columns_go_on_by_key_and_values_of_another_type_are_rescued(
    open_sink: Callable[[str], DeltaSink],
) -> None:
    lakes = Lakes(open_sink)
    three = table_schema("shop.items", [*ITEMS.columns, column("note", Kind.TEXT)], "id")
    for number, mode in enumerate(("mirror", "soft_delete", "history")):
        name = f"shop.items{number}"
        before = replace(three, table=f"items{number}")
        old = plan(before, mode=mode)
        changes = [insert(id=1, v="7", note="n1"), insert(id=2, v="x", note="n2")]
        change(lakes.main, old, before, 10, *changes)
        # The source drops the column, and the target keeps it.
        dropped = tuple(c for c in old.columns if c.name != "note")
        kept = replace(old, sources={name: RecordedSource(columns=dropped, key=("id",))})
        batch = lakes.main.begin(next_number(lakes.main))
        batch.change(kept, old.columns, ())
        at_number = batch.number
        lakes.main.finish(batch.record(interval=interval_of(at_number), cursor_after=cursor_at(at_number)))
        now = table_schema(name, [column("id", Kind.INT32), column("v", Kind.INT32)], "id")
        loading = side_plan(plan(now, mode=mode))
        load(lakes, loading, now, {"id": 1, "v": 7}, {"id": 3, "v": 8})
        record = recorded_swap(lakes, loading)
        assert [note.kind for note in record.notes] == ["loaded"]
        cut = lakes.main.finish(record)
        lakes.main.check_targets(cut)
        assert cut.tables[name].columns == (*target_columns(now), TargetColumn(name="note", delta_type="string"))
        read = ["id", "v", "note", *(["_cdc_rescued"] if mode != "mirror" else [])]
        found = rows(lakes.main, name, *read)
        if mode == "mirror":
            assert found == [(1, 7, "n1"), (3, 8, None)]
        else:
            assert cut.tables[name].rescues
            assert found == [(1, 7, "n1", None), (2, None, "n2", [("v", "x")]), (3, 8, None, None)]
    # Another mode than before: nothing tells which rows belong together.
    loading = side_plan(plan(replace(ITEMS, table="items2")), 2)
    lakes.load_again()
    load(lakes, loading, replace(ITEMS, table="items2"), row(5, "q"))
    record = recorded_swap(lakes, loading)
    assert [note.kind for note in record.notes] == ["loaded", DROPPED_NOTE, DROPPED_NOTE]
    lakes.main.finish(record)
    assert rows(lakes.main, "shop.items2", "id", "v") == [(5, "q")]
