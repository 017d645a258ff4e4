"""Batches against a plain dictionary: K10 (reduction), K11 (key updates), over full and partial row
images."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.delta_reader import newest_rows
from tests.support.sink_values import (
    Change,
    applied,
    column,
    delete,
    insert,
    seq_of,
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
_lakes = itertools.count()
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


class Model:
    def __init__(self) -> None:
        self.rows: dict[tuple[int, str], dict[str, Any]] = {}
        self.marks: dict[tuple[int, str], tuple[int, str]] = {}

    def apply(self, change: Change, place: int) -> None:
        _, before, after = change
        old: dict[str, Any] = {}
        key = None
        if before is not None:
            key = (before["story"], before["name"])
            old = self.rows.pop(key)
            del self.marks[key]
        if after is not None:
            row = {**old, **after}
            self.rows[row["story"], row["name"]] = row
            mark = (seq_of(place, after=True), "insert" if before is None else "update")
            self.marks[row["story"], row["name"]] = mark

    def lines(self) -> list[tuple[Any, ...]]:
        return sorted(
            (*key, row["a"] is None, row["a"] or 0, str(row["b"]), str(row["c"]), *self.marks[key])
            for key, row in self.rows.items()
        )


def lines_of(sink: DeltaSink) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["story"],
            row["name"],
            row["a"] is None,
            row["a"] or 0,
            str(row["b"]),
            str(row["c"]),
            int(row["_cdc_seq"]),
            row["_cdc_op"],
        )
        for row in newest_rows(sink.paths.table("shop.things"))
    )


@pytest.mark.whole
@settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.generate],  # an example is a seed: a smaller one is not simpler
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32))
def test_k10_k11_batches_equal_a_plain_model(
    open_sink: Callable[..., DeltaSink], seed: int
) -> None:
    """Many stories at once through three batches: full images appended, then marked and added, then
    each story with an image kind of its own, merged."""
    rng = random.Random(seed)
    sink = open_sink(lake=f"lake-{next(_lakes)}")
    model = Model()
    stories = [Story(number, rng, model.rows) for number in range(200)]
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
                    model.apply(change, place)
                    changes.append(change)
                    place += 1
        middle = len(changes) // 2
        cut = applied(
            sink,
            number,
            (SCHEMA, changes[:middle], first_place),
            (SCHEMA, changes[middle:], first_place + middle),
        )
        counted = cut.tables["shop.things"]
        assert counted.rows_inserted + counted.rows_updated + counted.rows_deleted == len(changes)
        assert lines_of(sink) == model.lines(), f"after batch {number} of seed {seed}"
