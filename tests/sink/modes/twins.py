"""What a target of each mode must hold after some changes, one change at a time in plain Python.

Changes are those of `tests.support.sink_values`: ``(op, before, after)`` with dicts of the columns
that an image has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from cdc_pipeline.config.modes import Mode
from tests.support.sink_values import Change, Image, seq_of

Row = dict[str, Any]


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
