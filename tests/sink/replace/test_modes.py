"""Targets that keep what is gone, and columns that the source dropped, where a load replaces them
(K10, K17, K18)."""

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
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.replace.content import DROPPED_NOTE, GAP_NOTE, LOADED_NOTE
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.sink.target import Target
from tests.sink.replace.lake import (
    SNAPSHOT_PLACE,
    Lakes,
    finish,
    recorded_swap,
    side_target,
    target,
)
from tests.support.sink_values import (
    Change,
    check_targets,
    column,
    cursor_at,
    decoded,
    delete,
    insert,
    seq_of,
    table_schema,
    update,
)
from tests.support.spark_reader import rows_by_spark

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]


def items(name: str, kind: Kind = Kind.TEXT, *more: str) -> TableSchema:
    others = [column(other, Kind.TEXT) for other in more]
    return table_schema(
        f"shop.{name}", [column("id", Kind.INT32), column("v", kind), *others], "id"
    )


def row(n: int, v: object) -> dict[str, Any]:
    return {"id": n, "v": v}


def at(place: int) -> Decimal:
    return Decimal(seq_of(place, after=True))


def gone(place: int) -> Decimal:
    return Decimal(seq_of(place))


def loaded(number: int = -1) -> Decimal:
    """Seq of the row of this number in the load's view; without one the load's place itself."""
    return Decimal(seq_of(SNAPSHOT_PLACE) + (0 if number < 0 else 2 * number + 1))


def change(
    batch: StagedBatch, made: Target, schema: TableSchema, place: int, *changes: Change
) -> None:
    names = pa.array([f"1:{place}"] * len(changes)) if made.spec.mode == "changelog" else None
    batch.add(decoded(schema, changes, first_place=place), made, transactions=names)


def load(batch: StagedBatch, made: Target, schema: TableSchema, *found: dict[str, Any]) -> None:
    """Rows of one read view: at the load's place, told apart by their row ordinals."""
    rows = decoded(schema, [insert(**row) for row in found], first_place=SNAPSHOT_PLACE)
    seqs = [Decimal(pack_seq(1, 1, SNAPSHOT_PLACE, 0, number, 0)) for number in range(len(found))]
    names = pa.array(["1:500"] * len(found)) if made.spec.mode == "changelog" else None
    batch.create(made)
    batch.add(replace(rows, seq=pa.array(seqs, rows.seq.type)), made, transactions=names)


def read(sink: DeltaSink, name: str, *columns: str) -> Rows:
    found = rows_by_spark(sink, name, *columns).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def dropped(batch: StagedBatch, made: Target, name: str) -> None:
    """The source drops a column, and the target keeps it."""
    spec = made.spec
    left = tuple(c for c in spec.columns if c.name != name)
    kept = made.with_spec(sources={made.name: RecordedSource(columns=left, key=spec.key)})
    batch.change(kept, spec.columns, ())


@pytest.mark.whole
def test_k17_k18_f178_what_a_target_keeps_is_the_cuts_and_kept_by_the_rules_of_its_mode(
    open_sink: Callable[[str], DeltaSink],
) -> None:
    """Another program has written to the tables since."""
    lakes = Lakes(open_sink)
    hist, log, torn = items("hist"), items("log"), items("torn")
    soft, soft_now = items("soft", Kind.TEXT, "note"), items("soft", Kind.INT32)
    kept, kept_now = items("kept", Kind.TEXT, "note"), items("kept")
    history, changelog, torn_log = (
        target(hist, mode="history"),
        target(log, mode="changelog"),
        target(torn, mode="changelog"),
    )
    late = [update(row(2, "a"), row(2, "c")), insert(id=8, v="n")]
    changed = update(row(1, "b"), row(1, "c"))

    batch = lakes.main.begin(1)
    for made in (history, changelog, torn_log, target(soft, mode="soft_delete"), target(kept)):
        batch.create(made)
    change(batch, history, hist, 10, *(insert(id=n, v="a") for n in range(6)))
    change(batch, history, hist, 20, update(row(0, "a"), row(0, "b")), delete(id=1, v="a"))
    # what the load tells too, from its own reading of the log
    change(batch, history, hist, 600, *late)
    for made, schema in ((changelog, log), (torn_log, torn)):
        change(batch, made, schema, 10, insert(id=1, v="a"), insert(id=2, v="a"))
    change(batch, changelog, log, 600, changed)
    texts = [insert(id=n, v=v, note=f"n{n}") for n, v in enumerate(("0", "1", "2", "3", "four"))]
    soft_target = target(soft, mode="soft_delete")
    change(batch, soft_target, soft, 10, *texts)
    change(
        batch, soft_target, soft, 20, delete(id=0, v="0", note="n0"), delete(id=1, v="1", note="n1")
    )
    change(batch, target(kept), kept, 10, *texts)
    finish(lakes.main, batch)
    cut = lakes.main.last_cut()
    assert cut is not None
    batch = lakes.main.begin(2)
    dropped(batch, soft_target, "note")
    dropped(batch, target(kept), "note")
    held = Suspension(batch_number=1, error="E", what="w", journal="binlog.000001", offset=104)
    states = {"shop.torn": cut.cursor.targets["shop.torn"].model_copy(update={"suspended": held})}
    finish(lakes.main, batch, cursor_after=cursor_at(2, targets=states), kind="catch_up")

    for schema in (hist, log, soft, kept):
        lakes.sql(f"DELETE FROM {lakes.table(schema)} WHERE id IN (1, 5)")
        lakes.sql(f"UPDATE {lakes.table(schema)} SET v = 'by hand' WHERE id = 2")
    lakes.sql(f"OPTIMIZE {lakes.table(torn)}")

    loads = [side_target(made) for made in (history, changelog, torn_log)]
    loads += [side_target(target(soft_now, mode="soft_delete")), side_target(target(kept_now))]
    batch = lakes.side.begin(1)
    load(
        batch,
        loads[0],
        hist,
        row(0, "b"),
        row(1, "again"),
        row(2, "a"),
        row(3, "other"),
        row(5, "a"),
    )
    change(batch, loads[0], hist, 600, *late, delete(id=5, v="a"))
    load(batch, loads[1], log, row(1, "b"), row(3, "b"))
    change(batch, loads[1], log, 600, changed, delete(id=3, v="b"))
    load(batch, loads[2], torn, row(1, "b"), row(3, "b"))
    change(batch, loads[2], torn, 700, insert(id=9, v="z"))
    load(batch, loads[3], soft_now, row(1, 10), row(2, 2), row(3, 30))
    change(batch, loads[3], soft_now, 600, delete(id=3, v=30), insert(id=7, v=70))
    load(batch, loads[4], kept_now, row(1, "one"), row(9, "nine"))
    finish(lakes.side, batch, kind="snapshot")

    record = recorded_swap(lakes, *loads)
    notes = [(note.table, note.kind) for note in record.notes if note.kind != LOADED_NOTE]
    by_hand = [(f"shop.{name}", DROPPED_NOTE) for name in ("hist", "log", "soft", "kept")]
    assert sorted(notes) == sorted([("shop.torn", GAP_NOTE), *by_hand])
    assert all("of the last cut" in n.text for n in record.notes if n.kind == DROPPED_NOTE)
    cut = lakes.main.finish(record)
    check_targets(lakes.main, cut)
    assert not cut.cursor.suspended

    start = {n: at(10 + n) for n in range(6)}
    assert read(lakes.main, "shop.hist", "id", "v", "__START_AT", "__END_AT", "_cdc_seq") == sorted(
        [
            (0, "a", start[0], at(20), start[0]),
            (0, "b", at(20), None, at(20)),
            (1, "a", start[1], gone(21), start[1]),
            (1, "again", loaded(1), None, loaded(1)),
            (2, "a", start[2], at(600), start[2]),
            (2, "c", at(600), None, at(600)),
            (3, "a", start[3], loaded(3), start[3]),
            (3, "other", loaded(3), None, loaded(3)),
            (4, "a", start[4], loaded(), start[4]),
            (5, "a", start[5], gone(602), start[5]),
            (8, "n", at(601), None, at(601)),
        ],
        key=str,
    )
    told = ("id", "v", "_cdc_op", "_cdc_seq")
    first = [(1, "a", "insert", at(10)), (2, "a", "insert", at(11))]
    assert read(lakes.main, "shop.log", *told) == sorted(
        [*first, (1, "c", "update", at(600)), (3, "b", "delete", gone(601))], key=str
    )
    assert read(lakes.main, "shop.torn", *told) == sorted(
        [
            *first,
            (None, None, "truncate", loaded()),
            (1, "b", "insert", loaded(0)),
            (3, "b", "insert", loaded(1)),
            (9, "z", "insert", at(700)),
        ],
        key=str,
    )
    assert ("truncate", "1:500") in read(lakes.main, "shop.torn", "_cdc_op", "_cdc_transaction")
    end = Decimal(pack_seq(1, 1, record.cursor_after.offset))
    assert cut.tables["shop.soft"].spec.columns == (
        *target_columns(soft_now),
        TargetColumn(name="note", delta_type="string"),
    )
    assert cut.tables["shop.soft"].rescues
    told = ("id", "v", "note", "_cdc_op", "_cdc_seq", "_cdc_deleted", "_cdc_rescued")
    assert read(lakes.main, "shop.soft", *told) == [
        (0, 0, "n0", "delete", gone(20), True, None),
        (1, 10, "n1", "insert", loaded(0), False, None),
        (2, 2, "n2", "insert", loaded(1), False, None),
        (3, 30, "n3", "delete", gone(600), True, None),
        (4, None, "n4", "delete", end, True, [("v", "four")]),
        (7, 70, None, "insert", at(601), False, None),
    ]
    assert read(lakes.main, "shop.kept", "id", "v", "note") == [(1, "one", "n1"), (9, "nine", None)]
