"""What happens to a server between two runs, and whether the next run decides as the matrix says.

Each cell of the matrix (what happens, product and kind of positions, where the pipeline reads) is
played with servers of its own; see `matrix.py` for the decisions. It is a finding if a run decides
otherwise, if what its error says to do does not help, or if rows are lost in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import SERVERS, Campaign, Case, Play
from tests.campaigns.server_history.decisions import Impossible
from tests.campaigns.server_history.matrix import MATRIX, PLACES, POSITIONS
from tests.campaigns.server_history.play import play as play_cell

_ROWS = {row.name: row for row in MATRIX}


def _cells(*, event: str, positions: str, place: str) -> Case:
    return [
        ["cell", row.name, chosen, where]
        for row in MATRIX
        if event in ("", row.name)
        for chosen in POSITIONS
        if positions in ("", chosen)
        for where in PLACES
        if place in ("", where) and not isinstance(row.decision(chosen, where), Impossible)
    ]


def _case(seed: int, number: int, *, errors: bool, **options: str) -> Case:
    return [[*_cells(**options)[number], seed, errors]]


def _cases(_seed: int, *, errors: bool, **options: str) -> int:
    return len(_cells(**options))


@contextmanager
def _opened(_folder: Path) -> Iterator[Play]:
    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _name, event, positions, place, seed, errors in case:
            played = play_cell(_ROWS[event], positions, place, seed=seed)
            if errors and played.error is not None:
                print(f"{event} {positions} {place}: {played.error}", flush=True)
            assert not played.finding, f"{event}, {positions}, {place}: {played.finding}"
            counts[played.ended] += 1
        return counts

    yield play


CAMPAIGN = Campaign(
    "server_history",
    _case,
    _opened,
    cases_max=_cases,
    needs=(*SERVERS, "C compiler"),
    options={"event": "", "positions": "", "place": "", "errors": False},
    budget="all",
    processes_max=4,
    process_cases=40,
    shrink_plays_max=0,
)
