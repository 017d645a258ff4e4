"""The changes between cuts of a lake against a diff of its whole tables, in every mode.

Tables are read without the product's own reader. Values are compared where the newer cut has them:
a column that the older one lacks was NULL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

import cdc_pipeline
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CutsNotComparableError, SparkNeededError, TableNotInCutError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.sink.read.changes import Changes
from tests.campaigns.sink.column_types import plain
from tests.campaigns.sink.verify import Finding, Lake, Verdict
from tests.support.comparison import present

Row = tuple[Any, ...]


def verify_changes(verdict: Verdict, lake: Lake) -> None:
    """Each cut against the one before it, and the last against the first and against nothing."""
    cuts = lake.cuts()
    pairs: list[tuple[Cut | None, Cut]] = [*pairwise(cuts), (None, cuts[-1])]
    if len(cuts) > 2:
        pairs.append((cuts[0], cuts[-1]))
    for older, newer in pairs:
        for table in newer.tables:
            for what in _differences(verdict, lake, older, newer, table):
                since = "nothing" if older is None else older.batch_number
                finding = f"changes since {since}: {what}"
                verdict.findings.append(
                    Finding(table, newer.batch_number, finding, lake.paths.lake)
                )


def _differences(
    verdict: Verdict, lake: Lake, older: Cut | None, newer: Cut, table: str
) -> Iterator[str]:
    if table in newer.cursor.suspended or (older and table in older.cursor.suspended):
        return
    spec = newer.tables[table].spec
    by_change = MODES[spec.mode].rows_are_changes
    try:
        changes = cdc_pipeline.changes(
            lake.paths.lake,
            table,
            older and older.batch_number,
            newer.batch_number,
            net=not by_change,
            source=lake.paths.source,
        )
        rows = changes.read(table).read_all()
    except (CutsNotComparableError, SparkNeededError, TableNotInCutError) as error:
        verdict.changes[f"refused: {error.what}"] += 1
        return
    verdict.changes[f"compared: {spec.mode}"] += 1
    sides = [
        [] if cut is None or table not in cut.tables else _rows(lake, cut, table)
        for cut in (older, newer)
    ]
    if by_change:
        seqs = [Counter(row["_cdc_seq"] for row in side) for side in sides]
        told = Counter(rows.column("seq").to_pylist())
        if told != seqs[1] - seqs[0]:
            yield f"{told.total()} changes instead of {(seqs[1] - seqs[0]).total()}"
        return
    expected = _diff(changes, table, sides, newer)
    found = _told(rows.to_pylist(), [column.name for column in spec.columns])
    if found != expected:
        yield (
            f"missing {list((expected - found).elements())[:3]}, extra "
            f"{list((found - expected).elements())[:3]}"
        )


def _rows(lake: Lake, cut: Cut, table: str) -> list[dict[str, Any]]:
    of_cut = cut.tables[table]
    return present(lake.table(table, of_cut.table_version).rows, of_cut.spec.mode)


def _diff(
    changes: Changes, table: str, sides: list[list[dict[str, Any]]], newer: Cut
) -> Counter[Any]:
    spec = newer.tables[table].spec
    names = [column.name for column in spec.columns]
    was_called = {name: was for was, name in changes.renamed(table).items()}
    gone_names = set(changes.renamed(table))
    old_names = [was_called.get(name, "" if name in gone_names else name) for name in names]
    old = [tuple(_value(row.get(name)) for name in old_names) for row in sides[0]]
    new = [tuple(_value(row[name]) for name in names) for row in sides[1]]
    if not spec.key:
        before, after = Counter(old), Counter(new)
        gone = {("delete", row, None): count for row, count in (before - after).items()}
        return Counter(gone | {("insert", None, r): n for r, n in (after - before).items()})
    at = [names.index(name) for name in spec.key]
    by_key = [{tuple(row[place] for place in at): row for row in side} for side in (old, new)]
    found: Counter[Any] = Counter()
    for key in by_key[0].keys() | by_key[1].keys():
        was, now = by_key[0].get(key), by_key[1].get(key)
        if was != now:
            kind = "insert" if was is None else "delete" if now is None else "update"
            found[kind, was, now] += 1
    return found


def _told(rows: list[dict[str, Any]], names: list[str]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in rows:
        before, after = (
            None if row[side] is None else tuple(_value(row[side][name]) for name in names)
            for side in ("before", "after")
        )
        if before != after:  # or only the text of a value that is NULL has changed
            found[row["operation"], before, after] += row.get("count", 1)
    return found


def _value(value: Any) -> str:
    """Widened values are as they were."""
    return repr(plain(value.normalize() if isinstance(value, Decimal) else value))
