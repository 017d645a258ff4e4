"""Any setting: each two settings that may not change rows at once, on each log (K34).

What is played and compared is that of `cut_anywhere`. To the settings of the configuration come
what only the program sets: how much of a journal is read at a time, and how executors divide it.
The first cases are each value alone on each story, then each pair on a story of each log; the seed
says which. Those behind them have three to six settings at once.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from tests.campaigns.any_setting.settings import MAY_NOT_CHANGE_ROWS
from tests.campaigns.cut_anywhere.campaign import simpler
from tests.campaigns.cut_anywhere.player import ALL, LOG_NAMES, Player, measured
from tests.campaigns.frame import Campaign, Case, Play

# Each list is one setting: two values of it are never chosen together.
CHOICES: Final[list[list[Any]]] = [
    *([["set", name, value] for value in values] for name, values in MAY_NOT_CHANGE_ROWS.items()),
    [["chunk_bytes", size] for size in (64, 1000)],
    [["segments", size, wave] for size, wave in ((1, 1), (1, 1 << 20), (2000, 1000))],
]


@functools.cache
def _cases(seed: int) -> list[Case]:
    chance = random.Random(seed)
    # All stories at once cost as much as all of them: they are among those of more settings.
    stories = {
        log: sorted(one for one in measured() if one[0] == log and one[1] != ALL)
        for log in LOG_NAMES
    }
    cases: list[Case] = [
        [["play", *story], choice]
        for of_log in stories.values()
        for story in of_log
        for values in CHOICES
        for choice in values
    ]
    cases += [
        [["play", *chance.choice(of_log)], one, other]
        for of_log in stories.values()
        for values, others in combinations(CHOICES, 2)
        for one in values
        for other in others
    ]
    chance.shuffle(cases)
    return cases


def case(seed: int, number: int) -> Case:
    cases = _cases(seed)
    if number < len(cases):
        return cases[number]
    chance = random.Random(f"{seed} {number}")
    chosen = chance.sample(CHOICES, chance.randint(3, 6))
    return [["play", *chance.choice(sorted(measured()))], *map(chance.choice, chosen)]


def cases_max(seed: int) -> int:
    """Every value and every pair, and a quarter as many of more at once."""
    return len(_cases(seed)) * 5 // 4


@contextmanager
def opened(folder: Path) -> Iterator[Play]:
    yield Player(folder).play


CAMPAIGN = Campaign("any_setting", case, opened, simpler, cases_max)
