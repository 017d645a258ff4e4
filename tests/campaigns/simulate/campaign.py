"""Whole histories of a pipeline from one seed each: threads' order, crashes, faults and time; see
`history.py` for what must hold."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import Campaign, Case, Play, distinct, fresh


def _case(seed: int, number: int) -> Case:
    return [["history", distinct(seed, number)]]


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    from tests.campaigns.simulate import history

    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _name, seed in case:
            with fresh(folder) as home:
                counts += history.play(seed, home, size=history.size_of(seed))
        return counts

    play(_case(1, 0))
    # None of what was imported and compiled is garbage: each crash then looks for garbage among
    # its history's objects alone.
    gc.freeze()
    yield play


CAMPAIGN = Campaign("simulate", _case, _opened, budget="1000")
