"""Every mode's SQL against its slow twin on random changes: whole and partial images, key updates
and swaps, deletes and re-inserts within a batch and across batches. Many stories are packed into
one table, all modes into one batch."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.target import Target
from tests.sink.modes.twins import KEY, SCHEMA, TWINS, Bag, History, Keyed, Story, Twin
from tests.support.delta_reader import newest_rows
from tests.support.sink_values import (
    Change,
    column,
    cursor_at,
    decoded,
    delete,
    head_of,
    insert,
    interval_of,
    new_target,
    table_schema,
    update,
)

pytestmark = pytest.mark.spark

COLUMNS = SCHEMA.column_names
TRACK = ("b",)
BAG = table_schema(
    "shop.bag",
    [column("a", Kind.INT32), column("b", Kind.TEXT, charset="utf8mb4"), column("c", Kind.DOUBLE)],
)


def name_of(mode: Mode) -> str:
    return "things" if mode == "mirror" else mode


def target(name: str, mode: Mode, *, track: tuple[str, ...] = ()) -> Target:
    key = KEY if MODES[mode].has_key else ()
    return new_target(
        f"shop.{name}", f"app/{name}", target_columns(SCHEMA), key, mode=mode, track=track
    )


TARGETS = [
    *(target(name_of(mode), mode) for mode in MODES),
    target("tracked", "history", track=TRACK),
]
BAG_TARGET = new_target("shop.bag", "app/bag", target_columns(BAG), ())


def plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1_000_000)
    return (
        int(value)
        if isinstance(value, Decimal) and value.as_tuple().exponent == 0 and value > 10**12
        else value
    )


def there(sink: DeltaSink, table: str) -> list[str]:
    rows = newest_rows(sink.paths.table(table))
    return sorted(repr(sorted((name, plain(value)) for name, value in row.items())) for row in rows)


def wanted(twin: Any) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in twin.rows())


def stage(
    sink: DeltaSink, number: int, changes: list[Change], place: int, bag: list[Change]
) -> Cut:
    batch = sink.begin(number)
    for one in [*TARGETS, BAG_TARGET]:
        if number == 1:
            batch.create(one)
        found = bag if one is BAG_TARGET else changes
        middle = len(found) // 2
        for first, part in ((place, found[:middle]), (place + middle, found[middle:])):
            names = pa.array([f"tx-{first + at}" for at in range(len(part))])
            rows = decoded(BAG if one is BAG_TARGET else SCHEMA, part, first_place=first)
            batch.add(rows, one, transactions=names)
    record = batch.record(head_of(interval=interval_of(number), cursor_after=cursor_at(number)))
    cut = sink.finish(record)
    assert not cut.cursor.suspended, cut.notes
    return cut


def bag_changes(rng: random.Random, bag: Bag, *, partial: bool) -> list[Change]:
    """Without a key; a MINIMAL before image holds all columns there, an after image the changed."""
    changes: list[Change] = []
    for _ in range(60):
        row = {
            "a": rng.randrange(3),
            "b": rng.choice(["x", None]),
            "c": rng.choice([0.0, -0.0, None, 0.1]),
        }
        rows = bag.rows()
        kind = rng.choice(["insert", "insert", "delete", "update", "update"])
        if kind == "insert" or not rows:
            change = insert(**row)
        elif kind == "delete":
            change = delete(**rng.choice(rows))
        else:
            change = update(rng.choice(rows), row)
        bag.apply(change)
        if partial and change[1] is not None and change[2] is not None:
            after = {
                name: value for name, value in row.items() if repr(value) != repr(change[1][name])
            }
            change = update(change[1], after)
        changes.append(change)
    return changes


@pytest.mark.whole
def test_k10_k11_every_mode_equals_its_twin(open_sink: Callable[[str], DeltaSink]) -> None:
    """Many stories at once: full images appended, then marked and added, then each story with an
    image kind of its own, merged."""
    rng = random.Random(20)
    sink = open_sink("lake")
    twins: dict[str, Twin] = {name_of(mode): make(COLUMNS, KEY) for mode, make in TWINS.items()}
    twins["tracked"] = History(COLUMNS, KEY, TRACK)
    source, bag = Keyed(COLUMNS, KEY), Bag()
    stories = [Story(number, rng, source.rows) for number in range(40)]
    place = 10
    for number in (1, 2, 3):
        changes: list[Change] = []
        first_place = place
        for _ in range(10):
            for story in stories:
                story.image = (
                    "full" if number < 3 else ("full", "minimal", "noblob")[story.number % 3]
                )
                for change in story.step():
                    source.step(change)
                    for twin in twins.values():
                        twin.apply(change, place)
                    changes.append(change)
                    place += 1
        bagged = bag_changes(rng, bag, partial=number == 3)
        counted = stage(sink, number, changes, first_place, bagged).tables["shop.things"]
        assert counted.rows_inserted + counted.rows_updated + counted.rows_deleted == len(changes)
        for name, twin in twins.items():
            assert there(sink, f"shop.{name}") == wanted(twin), f"{name} after batch {number}"
        rows = newest_rows(sink.paths.table("shop.bag"), "a", "b", "c")
        assert sorted(map(repr, rows)) == sorted(map(repr, bag.rows()))
