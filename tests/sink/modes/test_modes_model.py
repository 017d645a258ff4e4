"""Every mode's SQL against its slow twin on random changes: whole and partial images, key updates
and swaps, deletes and re-inserts within a batch and across batches. Many stories are packed into
one table, all modes into one batch, which Delta's tables and those in memory take alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.target import Target
from tests.support.delta_reader import newest_rows
from tests.support.memory_modes import comparable
from tests.support.memory_sink import MemoryLake, memory_sink
from tests.support.sink_values import (
    Change,
    Image,
    column,
    decoded,
    delete,
    head_of,
    insert,
    new_target,
    table_schema,
    update,
)

pytestmark = pytest.mark.spark

SCHEMA = table_schema(
    "shop.things",
    [
        column("story", Kind.INT32),
        column("a", Kind.INT64),
        column("name", Kind.TEXT, charset="utf8mb4"),
        column("b", Kind.TEXT, charset="utf8mb4"),
        column("c", Kind.DECIMAL, precision=10, scale=2),
    ],
    "story",
    "name",
)
KEY = ("story", "name")
NAMES = ("A", "a", "B", "b", "ä", "", "Z z", "it's \\ 5")


class Story:
    def __init__(
        self, number: int, rng: random.Random, rows: dict[tuple[int, str], dict[str, Any]]
    ) -> None:
        self.number = number
        self.rng = rng
        self.rows = rows
        self.image = "full"

    def value(self, name: str) -> Any:
        if self.rng.random() < 0.2:
            return None
        if name == "a":
            return self.rng.randrange(-(2**63), 2**63)
        if name == "b":
            return self.rng.choice(["", "x", "'", "ü" * 5])
        return Decimal(self.rng.choice(["0.00", "-1.50", "99999999.99"]))

    def step(self) -> list[Change]:
        mine = [name for story, name in self.rows if story == self.number]
        free = [name for name in NAMES if name not in mine]
        kind = self.rng.choice(
            ["insert", "update", "update", "update", "key", "key", "delete", "swap"]
        )
        if kind == "insert" and free:
            row = {"story": self.number, "name": self.rng.choice(free)}
            row |= {name: self.value(name) for name in ("a", "b", "c")}
            return [insert(**row)]
        if not mine:
            return []
        old = self.rows[self.number, self.rng.choice(mine)]
        if kind == "delete":
            return [delete(**self.before(old))]
        if kind == "update":
            return [self.updated(old, None)]
        if kind == "key" and free:
            return [self.updated(old, self.rng.choice(free))]
        if kind == "swap" and free and len(mine) > 1:
            one, two = (self.rows[self.number, name] for name in self.rng.sample(mine, 2))
            between = {**one, "name": free[0]}
            return [
                self.logged(one, between),
                self.logged(two, {**two, "name": one["name"]}),
                self.logged(between, {**between, "name": two["name"]}),
            ]
        return []

    def updated(self, old: dict[str, Any], name: str | None) -> Change:
        new = dict(old)
        for changed in self.rng.sample(
            ["a", "b", "c"], self.rng.randrange(0 if name is not None else 1, 3)
        ):
            new[changed] = self.value(changed)
        if name is not None:
            new["name"] = name
        return self.logged(old, new)

    def before(self, row: dict[str, Any]) -> dict[str, Any]:
        kept = {"full": row.keys(), "minimal": KEY, "noblob": row.keys() - {"b"}}[self.image]
        return {name: row[name] for name in kept}

    def logged(self, old: dict[str, Any], new: dict[str, Any]) -> Change:
        changed = {name for name in new if new[name] != old[name]}
        kept = {"full": set(new), "minimal": changed, "noblob": set(new) - {"b"} | changed}[
            self.image
        ]
        return update(self.before(old), {name: new[name] for name in new if name in kept})


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


def stage(sink: Sink, number: int, changes: list[Change], place: int, bag: list[Change]) -> Cut:
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
    record = batch.record(head_of(number))
    cut = sink.finish(record)
    assert not cut.cursor.suspended, cut.notes
    return cut


def change_row(rows: dict[tuple[Any, ...], Image], change: Change) -> None:
    """`rows`: of the source, by key."""
    _, before, after = change
    old = rows.pop(tuple(before[name] for name in KEY), {}) | before if before is not None else {}
    if after is not None:
        row = dict.fromkeys(SCHEMA.column_names) | old | after
        rows[tuple(row[name] for name in KEY)] = row


def bag_changes(rng: random.Random, bag: list[Image], *, partial: bool) -> list[Change]:
    """Without a key; a MINIMAL before image holds all columns there, an after image the changed.
    -0.0 is not 0.0."""
    changes: list[Change] = []
    for _ in range(60):
        row = {
            "a": rng.randrange(3),
            "b": rng.choice(["x", None]),
            "c": rng.choice([0.0, -0.0, None, 0.1]),
        }
        kind = rng.choice(["insert", "insert", "delete", "update", "update"])
        old = bag.pop(rng.randrange(len(bag))) if bag and kind != "insert" else None
        if old is None:
            changes.append(insert(**row))
        elif kind == "delete":
            changes.append(delete(**old))
            continue
        elif partial:
            changed = {name for name in row if repr(row[name]) != repr(old[name])}
            changes.append(update(old, {name: row[name] for name in changed}))
        else:
            changes.append(update(old, row))
        bag.append(row)
    return changes


@pytest.mark.whole
def test_k10_k11_every_mode_equals_its_twin(
    open_sink: Callable[[str], DeltaSink], tmp_path: Path
) -> None:
    """Many stories at once: full images appended, then marked and added, then each story with an
    image kind of its own, merged."""
    rng = random.Random(20)
    sink = open_sink("lake")
    twins = MemoryLake()
    memory = memory_sink(twins, source="shop", config=SinkConfig(lake_path=tmp_path / "twins"))
    rows: dict[tuple[Any, ...], Image] = {}
    bag: list[Image] = []
    stories = [Story(number, rng, rows) for number in range(40)]
    place = 10
    for number in (1, 2, 3):
        changes: list[Change] = []
        for _ in range(10):
            for story in stories:
                story.image = (
                    "full" if number < 3 else ("full", "minimal", "noblob")[story.number % 3]
                )
                for change in story.step():
                    change_row(rows, change)
                    changes.append(change)
        bagged = bag_changes(rng, bag, partial=number == 3)
        counted = stage(sink, number, changes, place, bagged).tables["shop.things"]
        assert counted.rows_inserted + counted.rows_updated + counted.rows_deleted == len(changes)
        with memory.lock():
            stage(memory, number, changes, place, bagged)
        place += len(changes)
        for target in [*TARGETS, BAG_TARGET]:
            expected = twins.rows(memory.paths.table(target.name))
            found = newest_rows(sink.paths.table(target.name))
            assert comparable(found) == comparable(expected), f"{target.name} after batch {number}"
        mirrored = newest_rows(sink.paths.table("shop.things"), *SCHEMA.column_names)
        assert comparable(mirrored) == comparable(rows.values())
        bagged_rows = newest_rows(sink.paths.table("shop.bag"), "a", "b", "c")
        assert comparable(bagged_rows) == comparable(bag)
