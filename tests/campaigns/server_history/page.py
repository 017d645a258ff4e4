"""The page of the documentation that says what a run decides: generated from the matrix."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from tests.campaigns.server_history.decisions import (
    Decision,
    GoesOn,
    Impossible,
    OneOf,
    Refused,
    Told,
    Waits,
    WayOut,
)
from tests.campaigns.server_history.matrix import MATRIX, PLACES, POSITIONS, Row
from tests.campaigns.server_history.world import Place

_HEAD: Final = """\
# A server's past

<!-- Generated from tests/campaigns/server_history/matrix.py by `make docs`. -->

Between two runs a server may be restored, renumbered, replaced or damaged. This page says what the
next run does then, by where the pipeline reads and by how positions are known: MySQL with GTIDs,
MySQL without them, or MariaDB, whose transactions always have GTIDs. `make campaign
NAME=server_history` plays {cells} cells of these tables with real servers: changes, a run, what
happens, more changes, a run; then what the error says to do. It fails if a run decides otherwise,
if the rows are not those of SELECT, or if the error's next step does not make them so.

- **Goes on**: the lake has the server's rows after the run.
- **Refused**: the run stops with the error of that code and publishes nothing wrong; what follows
  is what the error says to do.
- **Waits**: there is nothing new for the run, and it changes nothing.
- **Goes on and says so**: rows may differ; the run's reasons say why.
- **Not seen**: rows differ, and the log holds no trace of it. `cdc-pipeline verify` compares with
  the tables themselves.
"""
_PLACE_NAMES: Final[dict[Place, str]] = {
    "live": "Reads the server",
    "archive": "Reads an archive of its journals",
    "standby": "Reads the standby, after a failover",
}
_POSITION_NAMES: Final = {
    "mysql by GTID": "MySQL with GTIDs",
    "mysql by offset": "MySQL without GTIDs",
    "mariadb": "MariaDB",
}
_WAYS: Final[dict[WayOut, str]] = {
    "again": "run again",
    "snapshot": "`cursor set --from latest`, `snapshot --restart`",
    "rebuild": "`cursor set --from latest`, `backfill --rebuild`",
    "accept": "compare, and name the journal in `accept.unproved_journal_ends`",
    "file": "put the file back",
    "verify": "run again: it goes on; then `verify`",
    "cut": "cut the copy there too: the run goes on; then `verify`",
    "live": "follow the server itself: `cursor set --from latest`, `snapshot --restart`",
    "setting": "the `SET GLOBAL gtid_mode` that it names, run again, then set it back",
    "purge": "`PURGE BINARY LOGS TO` the next journal, and run again",
}


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD.format(cells=sum(map(_cells, MATRIX)))]
    for group, rows in groupby(MATRIX, key=lambda row: row.group):
        parts.append(f"\n## {group}\n\n")
        titles = " | ".join(_PLACE_NAMES[place] for place in PLACES)
        parts.append(f"| What if ... | {titles} |\n|---|---|---|---|\n")
        for row in rows:
            cells = " | ".join(_cell(row, place) for place in PLACES)
            parts.append(f"| {row.what} | {cells} |\n")
    return "".join(parts)


def _cells(row: Row) -> int:
    return sum(
        not isinstance(row.decision(positions, place), Impossible)
        for positions in POSITIONS
        for place in PLACES
    )


def _cell(row: Row, place: Place) -> str:
    """Return the decisions of a row at one place, those that are the same as one."""
    texts = {positions: _text(row.decision(positions, place)) for positions in POSITIONS}
    if len(set(texts.values())) == 1:
        return texts[POSITIONS[0]]
    parts = []
    for text in dict.fromkeys(texts.values()):
        names = [_POSITION_NAMES[positions] for positions in POSITIONS if texts[positions] == text]
        parts.append(f"{' and '.join(names)}: {text}")
    return "<br>".join(parts)


def _text(decision: Decision) -> str:
    if isinstance(decision, Impossible):
        return f"- ({decision.reason})"
    if isinstance(decision, Refused):
        ways = ", then ".join(_WAYS[way] for way in decision.ways_out)
        then = f" Then: {ways}." if ways else ""
        return f"**refused** (`{decision.error.code()}`): {decision.reason}.{then}"
    if isinstance(decision, OneOf):
        return f"{decision.reason}: " + "; or ".join(map(_text, decision.decisions))
    names = {GoesOn: "goes on", Waits: "waits", Told: "goes on and says so"}
    return f"**{names.get(type(decision), 'not seen')}**: {decision.reason}"
