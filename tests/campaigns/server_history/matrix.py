"""What a run does after each thing that can happen to a server between two runs: the tables of
`README.md`, by product and kind of positions, and by where the pipeline reads.

An event is a function of `events.py`. What a cell says in words is a `Decision`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from cdc_pipeline.errors import CdcError
from tests.campaigns.server_history import events
from tests.campaigns.server_history.decisions import (
    Decision,
    GoesOn,
    Impossible,
    OneOf,
    Refused,
    Told,
    Unseen,
    Waits,
    WayOut,
)
from tests.campaigns.server_history.world import Place, Positions

POSITIONS: Final[tuple[Positions, ...]] = get_args(Positions)
PLACES: Final[tuple[Place, ...]] = get_args(Place)
_NAMES: Final[dict[str, Positions]] = {
    "MySQL with GTIDs": "mysql by GTID",
    "MySQL without GTIDs": "mysql by offset",
    "MariaDB": "mariadb",
}
_WAYS: Final[dict[str, WayOut]] = {
    "run again: it goes on; then `verify`": "verify",
    "run again": "again",
    "`cursor set --from latest`, `snapshot --restart`": "snapshot",
    "`cursor set --from latest`, `backfill --rebuild`": "rebuild",
    "compare, and name the journal in `accept.unproved_journal_ends`": "accept",
    "put the file back": "file",
    "cut the copy there too: the run goes on; then `verify`": "cut",
    "follow the server itself: `cursor set --from latest`, `snapshot --restart`": "live",
    "the `SET GLOBAL gtid_mode` that it names, run again, then set it back": "setting",
    "`PURGE BINARY LOGS TO` the next journal, and run again": "purge",
}
_NAME: Final = "|".join(_NAMES)
_OF_SOME: Final = re.compile(rf"((?:{_NAME})(?: and (?:{_NAME}))*): (.*)")
_REFUSED: Final = re.compile(r"\*\*refused\*\* \(`(.+?)`\): (.*?)\.(?: Then: (.*)\.)?")
_TOLD: Final = re.compile(r"\*\*goes on and says so\*\* \(`(.+?)`\): (.*)")
_WAY: Final = re.compile("|".join(map(re.escape, _WAYS)))


@dataclass(frozen=True)
class Row:
    """One thing that can happen. `event`: how it is done; `cells`: what a run does then."""

    event: events.Event
    cells: Mapping[tuple[Positions, Place], Decision]

    @property
    def name(self) -> str:
        return self.event.__name__

    def decision(self, positions: Positions, place: Place) -> Decision:
        return self.cells[positions, place]


def _rows() -> Iterator[Row]:
    for line in Path(__file__).with_name("README.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("| `"):
            continue
        event, _what, *cells = line.strip("| ").split(" | ")
        decisions = {
            (positions, place): decision
            for place, cell in zip(PLACES, cells, strict=True)
            for positions, decision in _cell(cell)
        }
        yield Row(getattr(events, event.strip("`")), decisions)


def _cell(text: str) -> Iterator[tuple[Positions, Decision]]:
    for part in text.split("<br>"):
        of_some = _OF_SOME.fullmatch(part)
        names, said = (of_some[1].split(" and "), of_some[2]) if of_some else (list(_NAMES), part)
        for name in names:
            yield _NAMES[name], _decision(said)


def _decision(text: str) -> Decision:
    if text.startswith("- ("):
        return Impossible(text.removeprefix("- (").removesuffix(")"))
    if refused := _REFUSED.fullmatch(text):
        code, reason, ways = refused.groups()
        return Refused(reason, _ERRORS[code], tuple(_WAYS[way] for way in _WAY.findall(ways or "")))
    if told := _TOLD.fullmatch(text):
        return Told(told[2], told[1])
    for word, kind in (("goes on", GoesOn), ("waits", Waits), ("not seen", Unseen)):
        if text.startswith(f"**{word}**: "):
            return kind(text.removeprefix(f"**{word}**: "))
    reason, _, several = text.partition(": **")
    return OneOf(reason, tuple(_decision(one) for one in f"**{several}".split("; or ")))


def _subclasses(error: type[CdcError]) -> Iterator[type[CdcError]]:
    yield error
    for kind in error.__subclasses__():
        yield from _subclasses(kind)


_ERRORS: Final = {error.code(): error for error in _subclasses(CdcError)}
MATRIX: Final = tuple(_rows())
