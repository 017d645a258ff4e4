"""Every cut of a lake against what the server held at the cut's place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import read_cut
from tests.campaigns.sink.alterations import Altered, items_of
from tests.campaigns.sink.changes import Change
from tests.campaigns.sink.comparing import difference
from tests.campaigns.sink.oracle import Oracle
from tests.campaigns.sink.verify_modes import MODES
from tests.support.delta_reader import DeltaTable, read_delta

# Suspensions by the product's own rules: values that no journal holds (K13, K23).
RELOADS = (
    r"gives existing rows values that the journal does not hold"
    r"|the server may have recomputed the generated column"
    r"|changes, and with it the values of the generated column"
)
# Targets that keep what was stop where another table takes the name (docs/tables/modes.md).
TAKEN_NAME = r"another table replaces .*got:? +.*, a (soft_delete|history|changelog)"
ACCEPTED_STOPS = re.compile(f"{RELOADS}|{TAKEN_NAME}", re.DOTALL)
# Nor are the rows known that a suspended table takes along to another name.
_UNKNOWN_ROWS = re.compile(
    "(.*) has taken the name .*, and its rows cannot be taken over", re.DOTALL
)


@dataclass(frozen=True)
class Finding:
    table: str
    cut: int
    what: str
    lake: Path

    def __str__(self) -> str:
        return f"{self.table} at cut {self.cut} of {self.lake}: {self.what}"


@dataclass
class Verdict:
    """What the comparison of lakes found; `compared` counts tables at cuts."""

    findings: list[Finding] = field(default_factory=list)
    compared: int = 0
    cuts: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)  # `verify_changes`


class Lake:
    """A lake of one source, read without the product's own decoding."""

    def __init__(self, lake: Path, source: str) -> None:
        self.paths = LakePaths(lake.absolute(), source)
        self._read: dict[tuple[str, int], DeltaTable] = {}

    def cuts(self) -> list[Cut]:
        return [read_cut(self.paths, number) for number in list_numbers(self.paths.cuts)]

    def table(self, name: str, version: int) -> DeltaTable:
        key = (name, version)
        if key not in self._read:
            self._read[key] = read_delta(self.paths.table(name), version)
        return self._read[key]


def verify(
    verdict: Verdict,
    lake: Lake,
    oracle: Oracle,
    *,
    changes: dict[str, list[Change]] | None = None,
    altered: Sequence[Altered] = (),
    may_stop: Callable[[str], bool] = lambda _source: False,
) -> None:
    """Compare every target of every cut with the server's SELECT, and with the twin of its mode.
    `changes`: the log's changes by source table, where targets other than mirrors are to be
    compared; `altered`: what DDL did to rows without row events, in order; `may_stop`: whether a
    DDL that may stop its table by the product's own rules was run on a source table.
    """
    for cut in lake.cuts():
        verdict.cuts += 1
        kept: set[str] = set()
        for name, state in cut.cursor.targets.items():
            kept.update(state.source_names)
            finding = _target(lake, cut, name, oracle, (changes or {}, altered), may_stop, verdict)
            if finding:
                verdict.findings.append(Finding(name, cut.batch_number, finding, lake.paths.lake))
        place = (cut.cursor.journal, cut.cursor.offset)
        for source in sorted(oracle.states.keys() - kept):
            expected = oracle.at(source, place)
            if expected is not None and expected.rows and not is_shadow(source):
                what = f"has {len(expected.rows)} rows at {place[0]}:{place[1]} and no target"
                verdict.findings.append(Finding(source, cut.batch_number, what, lake.paths.lake))


def _was_suspended(cut: Cut, what: str) -> bool:
    """Whether the table of a new name was suspended under its earlier one."""
    found = _UNKNOWN_ROWS.match(what)
    return found is not None and any(
        state.suspended is not None and found[1] in state.source_names
        for state in cut.cursor.targets.values()
    )


def is_shadow(source: str) -> bool:
    """Tables of online schema changes are not captured."""
    return source.split(".", 1)[1].startswith("_")


def _target(
    lake: Lake,
    cut: Cut,
    name: str,
    oracle: Oracle,
    log: tuple[dict[str, list[Change]], Sequence[Altered]],
    may_stop: Callable[[str], bool],
    verdict: Verdict,
) -> str:
    state, table = cut.cursor.targets[name], cut.tables.get(name)
    (source,) = state.source_names
    place = (cut.cursor.journal, cut.cursor.offset)
    if state.suspended is not None:
        held = state.suspended
        place = (held.journal, held.offset)
        if not (
            may_stop(source) or ACCEPTED_STOPS.search(held.what) or _was_suspended(cut, held.what)
        ):
            return f"suspended at {held.journal}:{held.offset}: {held.what}"
        verdict.stops[held.what] += 1
    expected = oracle.at(source, place)
    if table is None:
        if expected is not None and expected.rows:
            return f"has {len(expected.rows)} rows at {place[0]}:{place[1]} and no table in the cut"
        return ""
    if table.spec.mode == "mirror" and name != source:
        return f"shows {source}, and not the table of its name (K28)"
    if expected is not None and expected.columns is None:
        # dropped: the target is kept as it was (schema_changes.drop_table)
        expected = oracle.before(expected)
    if expected is None or expected.columns is None:
        return ""
    verdict.compared += 1
    verdict.modes[table.spec.mode] += 1
    there = lake.table(name, table.table_version)
    if table.spec.mode == "mirror":
        return difference(there, expected)
    return MODES[table.spec.mode](
        there, expected, items_of(source, place, *log), table.spec.sources_of(name)[source].key
    )
