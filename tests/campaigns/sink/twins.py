"""The modes in plain Python, change by change: what the lake's tables must hold (K10, K11, K13).

Rules:
- A key update is a delete of the old key and an insert of the new one (K11).
- `history`: SCD type 2 as Spark's AUTO CDC keeps it: a version of a row holds from the change that
  made it up to the one that replaced or deleted it; a change that leaves every tracked column as it
  is changes the version in place.
- `soft_delete`: a deleted row stays with its last values, marked.
- `changelog`: every change, with its images, in order.
- What DDL does to rows (`alterations`) stands among the changes; TRUNCATE deletes all rows, as the
  mode tells deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.campaigns.sink.alterations import Altered, Item
from tests.campaigns.sink.changes import Change, Values

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Whole:
    change: Change
    index: int  # among the items of the table
    before: Values | None
    after: Values | None


@dataclass(frozen=True)
class Step:
    altered: Altered
    index: int


def whole_changes(changes: Iterable[Item], key: Sequence[str]) -> list[Whole | Step]:
    """Changes with their images completed from the rows that the table had; `key` is that before
    all of them."""
    rows: dict[Key, Values] = {}
    found: list[Whole | Step] = []
    for index, change in enumerate(changes):
        if isinstance(change, Altered):
            key = change.alteration.key(key)
            kept = (
                ()
                if change.alteration.truncates
                else tuple(map(change.alteration.row, rows.values()))
            )
            rows = {key_of(row, key): row for row in kept}
            found.append(Step(change, index))
            continue
        before = after = None
        if change.before is not None:
            held = rows.pop(key_of(change.before, key), {})
            before = held | change.before
        if change.after is not None:
            after = (before or {}) | change.after
            rows[key_of(after, key)] = after
        found.append(Whole(change, index, before, after))
    return found


def key_of(row: Values, key: Sequence[str]) -> Key:
    return tuple(row[name] for name in key)


def mirror(changes: Iterable[Whole | Step], key: Sequence[str]) -> list[Values]:
    rows: dict[Key, Values] = {}
    for whole in changes:
        if isinstance(whole, Step):
            alteration = whole.altered.alteration
            key = alteration.key(key)
            left = () if alteration.truncates else tuple(map(alteration.row, rows.values()))
            rows = {key_of(row, key): row for row in left}
            continue
        if whole.before is not None:
            rows.pop(key_of(whole.before, key), None)
        if whole.after is not None:
            rows[key_of(whole.after, key)] = whole.after
    return list(rows.values())


@dataclass
class Kept:
    row: Values
    deleted: bool = False


def soft_delete(changes: Iterable[Whole | Step], key: Sequence[str]) -> list[Kept]:
    """All rows that ever were, the deleted ones marked."""
    rows: dict[Key, Kept] = {}
    for whole in changes:
        if isinstance(whole, Step):
            alteration = whole.altered.alteration
            key = alteration.key(key)
            kept = [
                Kept(alteration.row(one.row), one.deleted or alteration.truncates)
                for one in rows.values()
            ]
            rows = {key_of(one.row, key): one for one in kept}
            continue
        if whole.before is not None:
            old = key_of(whole.before, key)
            if whole.after is None or key_of(whole.after, key) != old:
                rows[old] = Kept(whole.before, deleted=True)
        if whole.after is not None:
            rows[key_of(whole.after, key)] = Kept(whole.after)
    return list(rows.values())


@dataclass
class Version:
    """A row of history: it holds from change `start` on, up to change `end`."""

    row: Values
    start: int
    end: int | None = None


def history(
    changes: Iterable[Whole | Step], key: Sequence[str], *, tracked: Sequence[str] | None = None
) -> list[Version]:
    """Every version of every row, in the order in which they began; all columns are tracked where
    none are named."""
    current: dict[Key, Version] = {}
    versions: list[Version] = []
    for whole in changes:
        if isinstance(whole, Step):
            alteration = whole.altered.alteration
            key = alteration.key(key)
            for version in versions:
                version.row = alteration.row(version.row)
                if alteration.truncates and version.end is None:
                    version.end = whole.index
            current = {key_of(one.row, key): one for one in versions if one.end is None}
            continue
        old = None if whole.before is None else current.pop(key_of(whole.before, key), None)
        if whole.after is not None:
            new = key_of(whole.after, key)
            same_key = whole.before is not None and key_of(whole.before, key) == new
            if old is not None and same_key and _same(old.row, whole.after, tracked):
                old.row = whole.after
                current[new] = old
                continue
            replaced = current.pop(new, None)
            if replaced is not None:
                replaced.end = whole.index
            current[new] = Version(whole.after, whole.index)
            versions.append(current[new])
        if old is not None:
            old.end = whole.index
    return versions


def _same(old: Values, new: Values, tracked: Sequence[str] | None) -> bool:
    """Whether nothing that counts has changed; a column that the old row did not have yet has."""
    return all(
        name in old and old[name] == new.get(name) for name in (new if tracked is None else tracked)
    )


@dataclass
class Replay:
    """A table made again of a changelog's rows: what they say must lead to what the server has."""

    key: Sequence[str]
    rows: dict[Key, Values] = field(default_factory=dict)

    def take(self, op: str, before: Values | None, after: Values | None) -> None:
        if before is not None:
            self.rows.pop(key_of(before, self.key), None)
        if after is not None:
            self.rows[key_of(after, self.key)] = after
        assert (op == "insert") == (before is None), op
        assert (op == "delete") == (after is None), op
