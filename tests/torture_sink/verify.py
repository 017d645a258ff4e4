"""Every cut of a lake against what the server held at the cut's place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_pipeline.sink.lake import LakePaths, list_numbers
from cdc_pipeline.sink.manifest import Cut
from cdc_pipeline.sink.state import read_cut
from tests.torture_sink.column_types import plain
from tests.torture_sink.delta_reader import DeltaTable, read_delta
from tests.torture_sink.oracle import Oracle, Place, State

# Suspensions by the product's own rules: a value that no journal holds (K13).
ACCEPTED_STOPS = re.compile(r"gives existing rows values that the journal does not hold")


@dataclass(frozen=True)
class Finding:
    """A table that is not what it must be, at one cut."""

    table: str
    cut: int
    what: str

    def __str__(self) -> str:
        return f"{self.table} at cut {self.cut}: {self.what}"


@dataclass
class Verdict:
    """What the comparison of a lake found; `compared` counts tables at cuts."""

    findings: list[Finding] = field(default_factory=list)
    compared: int = 0
    cuts: int = 0
    stops: Counter[str] = field(default_factory=Counter)


class Lake:
    """A lake of one source, read without the product's own decoding."""

    def __init__(self, lake: Path, source: str) -> None:
        self.paths = LakePaths(lake.absolute(), source)
        self._read: dict[tuple[str, int], DeltaTable] = {}

    def cuts(self) -> list[Cut]:
        return [read_cut(self.paths, number) for number in list_numbers(self.paths.cuts)]

    def table(self, name: str, version: int) -> DeltaTable:
        """The target `name` at a Delta version."""
        key = (name, version)
        if key not in self._read:
            self._read[key] = read_delta(self.paths.table(name), version)
        return self._read[key]


def rows_of(table: DeltaTable, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows in the plain form, sorted."""
    return sorted((tuple(plain(row[name]) for name in columns) for row in table.rows), key=repr)


def verify_mirrors(
    lake: Lake, oracle: Oracle, *, mode_of: dict[str, str] | None = None, may_stop: frozenset[str] = frozenset()
) -> Verdict:
    """Compare each mirror of each cut with the oracle.

    Args:
        mode_of: modes of tables that are no mirrors: those are left out.
        may_stop: tables that a DDL of a kind in MAY_STOP has changed.
    """
    verdict = Verdict()
    for cut in lake.cuts():
        verdict.cuts += 1
        place = (cut.cursor.journal, cut.cursor.offset)
        for name in sorted(oracle.states):
            if (mode_of or {}).get(name, "mirror") != "mirror":
                continue
            finding = _compare(lake, cut, name, place, oracle, verdict, may_stop)
            if finding:
                verdict.findings.append(Finding(name, cut.batch_number, finding))
    return verdict


def _compare(
    lake: Lake, cut: Cut, name: str, place: Place, oracle: Oracle, verdict: Verdict, may_stop: frozenset[str]
) -> str:
    state = cut.cursor.targets.get(name)
    if state is not None and state.suspended is not None:
        held = state.suspended
        place = (held.journal, held.offset)
        if name not in may_stop and not ACCEPTED_STOPS.search(held.what):
            return f"suspended at {held.journal}:{held.offset}: {held.what}"
        verdict.stops[held.what] += 1
    expected = oracle.at(name, place)
    table = cut.tables.get(name)
    if table is None:
        if expected is not None and expected.rows:
            return f"has {len(expected.rows)} rows at {place[0]}:{place[1]} and is not in the cut"
        return ""
    if expected is None or expected.columns is None:
        return "" if state is not None else "is in the cut, but not at the server"
    verdict.compared += 1
    return difference(lake.table(name, table.delta_version), expected)


def difference(there: DeltaTable, expected: State) -> str:
    """What of a table is not as the server had it; "" where nothing is."""
    assert expected.columns is not None
    absent = [name for name in expected.columns if name not in there.columns]
    if absent:
        return f"lacks the columns {absent}; it has {list(there.columns)}"
    got = rows_of(there, expected.columns)
    if got == list(expected.rows):
        return ""
    missing = list((Counter(map(repr, expected.rows)) - Counter(map(repr, got))).elements())
    extra = list((Counter(map(repr, got)) - Counter(map(repr, expected.rows))).elements())
    return (
        f"{len(missing)} rows missing, {len(extra)} too many, of {len(expected.rows)}; columns {expected.columns}\n"
        + "".join(f"    missing: {row[:600]}\n" for row in missing[:3])
        + "".join(f"    extra:   {row[:600]}\n" for row in extra[:3])
    )
