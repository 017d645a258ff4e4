"""What a target of each mode must hold after some changes, one change at a time in plain Python.

Changes are those of `tests.support.sink_values`: ``(op, before, after)`` with dicts of the columns
that an image has.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, Protocol

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.modes import Mode
from tests.support.sink_values import (
    Change,
    Image,
    column,
    delete,
    insert,
    seq_of,
    table_schema,
    update,
)

Row = dict[str, Any]
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


class Twin(Protocol):
    def apply(self, change: Change, place: int) -> None: ...

    def rows(self) -> list[Row]: ...


def _ops(change: Change) -> str:
    _, before, after = change
    return "insert" if before is None else "delete" if after is None else "update"


class Keyed:
    def __init__(self, columns: tuple[str, ...], key: tuple[str, ...]) -> None:
        self.columns = columns
        self.key = key
        self.rows: dict[tuple[Any, ...], Image] = {}

    def key_of(self, image: Image) -> tuple[Any, ...]:
        return tuple(image[name] for name in self.key)

    def step(self, change: Change) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None, Image]:
        """(old key, new key, the whole row after the change, or before it where it is gone)."""
        _, before, after = change
        old: Image = {}
        old_key = new_key = None
        if before is not None:
            old_key = self.key_of(before)
            old = {**self.rows.pop(old_key, {}), **before}
        if after is None:
            return old_key, None, old
        row = {**dict.fromkeys(self.columns), **old, **after}
        new_key = self.key_of(row)
        self.rows[new_key] = row
        return old_key, new_key, row


class Mirror:
    def __init__(self, columns: tuple[str, ...], key: tuple[str, ...]) -> None:
        self._source = Keyed(columns, key)
        self._rows: dict[tuple[Any, ...], Row] = {}

    def apply(self, change: Change, place: int) -> None:
        old_key, new_key, row = self._source.step(change)
        if old_key is not None:
            self._rows.pop(old_key, None)
        if new_key is not None:
            marks = {
                "_cdc_op": _ops(change),
                "_cdc_seq": seq_of(place, after=True),
                "_cdc_ts": place * 1_000_000,
            }
            self._rows[new_key] = {**row, **marks}

    def rows(self) -> list[Row]:
        return list(self._rows.values())


class SoftDelete:
    def __init__(self, columns: tuple[str, ...], key: tuple[str, ...]) -> None:
        self._source = Keyed(columns, key)
        self._rows: dict[tuple[Any, ...], Row] = {}

    def apply(self, change: Change, place: int) -> None:
        _, before, _ = change
        was = (
            {}
            if before is None
            else {**self._source.rows.get(self._source.key_of(before), {}), **before}
        )
        old_key, new_key, row = self._source.step(change)
        ts = place * 1_000_000
        if old_key is not None and old_key != new_key:
            marks = {
                "_cdc_op": "delete",
                "_cdc_seq": seq_of(place),
                "_cdc_ts": ts,
                "_cdc_deleted": True,
            }
            self._rows[old_key] = {**was, **marks}
        if new_key is not None:
            # The brought-in row of a key update is an update, that of a plain one as well.
            marks = {"_cdc_op": _ops(change), "_cdc_seq": seq_of(place, after=True), "_cdc_ts": ts}
            self._rows[new_key] = {**row, **marks, "_cdc_deleted": False}

    def rows(self) -> list[Row]:
        return list(self._rows.values())


class History:
    def __init__(
        self, columns: tuple[str, ...], key: tuple[str, ...], track: tuple[str, ...] = ()
    ) -> None:
        self._source = Keyed(columns, key)
        self._tracked = track or columns
        self._current: dict[tuple[Any, ...], Row] = {}
        self._ended: list[Row] = []

    def apply(self, change: Change, place: int) -> None:
        old_key, new_key, row = self._source.step(change)
        ts = place * 1_000_000
        if old_key is not None and old_key != new_key and old_key in self._current:
            self._end(old_key, seq_of(place), ts)
        if new_key is None:
            return
        seq = seq_of(place, after=True)
        there = self._current.get(new_key)
        marks = {"_cdc_op": _ops(change), "_cdc_seq": seq, "_cdc_ts": ts}
        if there is not None and all(there[name] == row[name] for name in self._tracked):
            there.update({**row, **marks})
            return
        if there is not None:
            self._end(new_key, seq, ts)
        self._current[new_key] = {
            **row,
            **marks,
            "__START_AT": seq,
            "__END_AT": None,
            "_cdc_end_ts": None,
        }

    def _end(self, key: tuple[Any, ...], seq: int, ts: int) -> None:
        self._ended.append({**self._current.pop(key), "__END_AT": seq, "_cdc_end_ts": ts})

    def rows(self) -> list[Row]:
        return [*self._ended, *self._current.values()]


class Changelog:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._rows: list[Row] = []

    def apply(self, change: Change, place: int) -> None:
        _, before, after = change
        plain = {**(before or {}), **(after or {})}
        self._rows.append(
            {name: plain.get(name) for name in self._columns}
            | {
                "_cdc_op": _ops(change),
                "_cdc_seq": seq_of(place, after=after is not None),
                "_cdc_ts": place * 1_000_000,
                "_cdc_transaction": f"tx-{place}",
                "_cdc_ordinal": 0,
                "_cdc_before": None
                if before is None
                else {name: before.get(name) for name in self._columns},
                "_cdc_absent": [name for name in self._columns if name not in plain] or None,
                "_cdc_before_absent": (
                    before and [name for name in self._columns if name not in before]
                )
                or None,
            }
        )

    def rows(self) -> list[Row]:
        return self._rows


class Bag:
    """Rows with multiplicity; images must be whole. -0.0 is not 0.0."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Image]] = {}

    def apply(self, change: Change) -> None:
        _, before, after = change
        if before is not None:
            self._rows[repr(before)].pop()
        if after is not None:
            self._rows.setdefault(repr(after), []).append(after)

    def rows(self) -> list[Image]:
        return [row for rows in self._rows.values() for row in rows]


# One twin per mode, made with the columns and the key of the table.
TWINS: Final[Mapping[Mode, Callable[[tuple[str, ...], tuple[str, ...]], Twin]]] = {
    "mirror": Mirror,
    "soft_delete": SoftDelete,
    "history": History,
    "changelog": lambda columns, _key: Changelog(columns),
}
