"""Targets that are no mirrors, beside the server's SELECT and the slow twin of their mode.

Two things are compared: what such a table says of the present must be what the server has; and
everything that it holds must be what the twin makes of the log's changes and of the DDL between
them. Columns that a row's change did not have yet are not compared, nor those that the source has
no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tests.campaigns.sink.alterations import Altered, Item, first_key
from tests.campaigns.sink.changes import Change, Values, value_of
from tests.campaigns.sink.column_types import plain
from tests.campaigns.sink.comparing import difference, row_difference
from tests.campaigns.sink.oracle import State
from tests.campaigns.sink.twins import Replay, history, key_of, soft_delete, whole_changes
from tests.support.comparison import present
from tests.support.delta_reader import DeltaTable

START, END, DELETED = "__START_AT", "__END_AT", "_cdc_deleted"
OP, SEQ, TRANSACTION, ORDINAL = "_cdc_op", "_cdc_seq", "_cdc_transaction", "_cdc_ordinal"
BEFORE, ABSENT, BEFORE_ABSENT = "_cdc_before", "_cdc_absent", "_cdc_before_absent"

Compare = Callable[[DeltaTable, State, list[Item], Sequence[str]], str]


def _columns(there: DeltaTable, expected: State) -> list[str]:
    return [name for name in there.columns if name in (expected.columns or ())]


def _told(row: Values, there: DeltaTable, names: Sequence[str]) -> tuple[Any, ...]:
    """A twin's row in the plain form of the table's columns; those that it does not have are left
    open."""
    return tuple(value_of(row[name], there.types[name]) if name in row else ... for name in names)


def _held(row: Values, like: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(
        ... if wanted is ... else plain(row[name]) for name, wanted in zip(names, like, strict=True)
    )


def compare_soft_delete(
    there: DeltaTable, expected: State, items: list[Item], key: Sequence[str]
) -> str:
    """Rows that are not marked are the server's; the marked ones are those that were deleted, as
    they last were."""
    alive = replace(there, rows=present(there.rows, "soft_delete"))
    found = difference(alive, expected)
    if found:
        return f"rows that are not deleted: {found}"
    names, first = _columns(there, expected), first_key(items, key)
    rows = soft_delete(whole_changes(items, first), first)
    twin = {_told(kept.row, there, key): kept for kept in rows if kept.deleted}
    gone = {tuple(plain(row[name]) for name in key): row for row in there.rows if row[DELETED]}
    wanted = {k: _told(kept.row, there, names) for k, kept in twin.items()}
    got = {k: _held(row, wanted[k], names) if k in wanted else k for k, row in gone.items()}
    found = row_difference(list(wanted.values()), list(got.values()), columns=names)
    return f"deleted rows: {found}" if found else ""


def compare_history(
    there: DeltaTable, expected: State, items: list[Item], key: Sequence[str]
) -> str:
    """Open versions are the server's rows; all versions are the twin's, each from one change up to
    another."""
    open_versions = replace(there, rows=present(there.rows, "history"))
    found = difference(open_versions, expected)
    if found:
        return f"open versions: {found}"
    names, first = _columns(there, expected), first_key(items, key)
    versions = history(whole_changes(items, first), first)
    rows = sorted(there.rows, key=lambda row: int(row[START]))
    wanted = [_told(version.row, there, names) for version in versions]
    if len(rows) == len(wanted):
        got = [_held(row, like, names) for row, like in zip(rows, wanted, strict=True)]
    else:
        got = [tuple(plain(row[name]) for name in names) for row in rows]
    found = row_difference(wanted, got, columns=names)
    if found:
        return f"versions: {found}"
    if wanted != got:
        return f"versions are not in the order of their changes: {wanted} and {got}"
    # Which change each seq stands for: the last bit tells the image of a change apart (K1).
    change_of: dict[int, int] = {}
    for row, version in zip(rows, versions, strict=True):
        for seq, index in ((row[START], version.start), (row[END], version.end)):
            if (seq is None) != (index is None):
                return (
                    f"a version that began at change {version.start} ends at {seq}, in the "
                    f"twin at {index}"
                )
            if seq is None or index is None:
                continue
            if change_of.setdefault(int(seq) >> 1, index) != index:
                return f"seq {seq} stands for changes {change_of[int(seq) >> 1]} and {index}"
    ordered = [change_of[seq] for seq in sorted(change_of)]
    return (
        ""
        if ordered == sorted(set(ordered))
        else f"seqs are not in the order of the changes: {ordered}"
    )


def compare_changelog(
    there: DeltaTable, expected: State, items: list[Item], key: Sequence[str]
) -> str:
    """Every change of the log, once, in order, with its images; applied one by one they give the
    server's rows."""
    rows = sorted(there.rows, key=lambda row: int(row[SEQ]))
    if len({int(row[SEQ]) for row in rows}) != len(rows):
        return "two rows have one seq"
    names, logged = _columns(there, expected), _log(items)
    wanted = [_logged(line, there, names) for line in logged]
    if len(rows) == len(wanted):
        got = [_as_logged(row, like, names) for row, like in zip(rows, wanted, strict=True)]
    else:
        got = [
            (row[OP], row[TRANSACTION], tuple(plain(row[name]) for name in names)) for row in rows
        ]
    if got != wanted:
        return row_difference(wanted, got, columns=names) or "changes are not in the log's order"
    for one, other in pairwise(rows):
        if one[TRANSACTION] == other[TRANSACTION] and one[ORDINAL] >= other[ORDINAL]:
            return (
                f"ordinals do not grow in transaction {one[TRANSACTION]}: {one[ORDINAL]}, "
                f"{other[ORDINAL]}"
            )
    if any(isinstance(item, Altered) and item.alteration.keys for item in items):
        return ""  # rows older than the new key cannot be found by it
    return _replayed(rows, expected, logged, key)


@dataclass
class Line:
    """A row that a changelog must have: its images in the table's columns of now. `change`: None
    for a TRUNCATE; `later`: the alterations after it, which have renamed columns that its images
    lack.
    """

    change: Change | None
    before: Values | None = None
    after: Values | None = None
    later: list[Altered] = field(default_factory=list)

    def absent(self, names: Sequence[str] | None) -> list[str]:
        """Names of columns as they are called now."""
        found = list(names or ())
        for altered in self.later:
            found = altered.alteration.names(found)
        return found


def _log(items: Sequence[Item]) -> list[Line]:
    lines: list[Line] = []
    for item in items:
        if not isinstance(item, Altered):
            lines.append(Line(item, item.before, item.after))
            continue
        for line in lines:
            line.before = None if line.before is None else item.alteration.row(line.before)
            line.after = None if line.after is None else item.alteration.row(line.after)
            line.later.append(item)
        if item.alteration.truncates:
            lines.append(Line(None))
    return lines


def _logged(line: Line, there: DeltaTable, names: Sequence[str]) -> tuple[Any, ...]:
    """A row of the changelog as the log tells it: op, transaction, the row, the row before; `...`
    is left open.

    A column that neither image holds is NULL in the changelog if the table had it, and also if it
    came later.
    """
    if line.change is None:
        return "truncate", ..., (None,) * len(names), None
    before, after = line.before or {}, line.after
    row = before if after is None else {**before, **after}
    told = tuple(value_of(row[name], there.types[name]) if name in row else None for name in names)
    old = None if line.before is None else tuple(_told(before, there, names))
    return line.change.op, line.change.transaction, told, old


def _as_logged(row: Values, like: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
    told = tuple(plain(row[name]) for name in names)
    before = row[BEFORE]
    if before is not None and like[3] is not None:
        old: Any = tuple(
            ... if wanted is ... else plain(before.get(name))
            for name, wanted in zip(names, like[3], strict=True)
        )
    else:
        old = before
    return row[OP], ... if like[1] is ... else row[TRANSACTION], told, old


def _replayed(rows: list[Values], expected: State, lines: list[Line], key: Sequence[str]) -> str:
    """The changelog's own rows, applied in order, on the columns that the table has had from the
    begin."""
    if not key or not lines or expected.columns is None or lines[0].after is None:
        return ""
    names = [name for name in expected.columns if name in lines[0].after]
    replay = Replay(key)
    for row, line in zip(rows, lines, strict=True):
        if line.change is None:
            replay.rows.clear()
            continue
        absent = line.absent(row[ABSENT])
        after = {name: plain(row[name]) for name in names if name not in absent}
        before = None
        if row[BEFORE] is not None:
            gone = line.absent(row[BEFORE_ABSENT])
            before = {name: plain(row[BEFORE][name]) for name in names if name not in gone}
            before = replay.rows.get(key_of(before, key), {}) | before
        replay.take(row[OP], before, None if row[OP] == "delete" else (before or {}) | after)
    got = [tuple(row[name] for name in names) for row in replay.rows.values()]
    indexes = [expected.columns.index(name) for name in names]
    wanted = [tuple(row[index] for index in indexes) for row in expected.rows]
    found = row_difference(wanted, got, columns=names)
    return f"applied one after the other: {found}" if found else ""


MODES: dict[str, Compare] = {
    "soft_delete": compare_soft_delete,
    "history": compare_history,
    "changelog": compare_changelog,
}
