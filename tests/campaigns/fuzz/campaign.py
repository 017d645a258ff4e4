"""Thousands of damaged journals: an error or rows, nothing else (see `judge.py`).

With ``--bounds`` the kernels check bounds. The least of a finding belongs into
tests/campaigns/fuzz/crashers with the correction, as an object of its choices: ``seed``, a list
``repair``, and ``steps``, which are all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import Campaign, Case, Play, distinct
from tests.campaigns.fuzz import journal as wire
from tests.campaigns.fuzz.mutations import Mutant, mutant

MEMORY_BYTES_MAX = 1 << 30


def _case(seed: int, number: int) -> Case:
    drawn = mutant(distinct(seed, number))
    return [["seed", drawn.seed], *(["repair", what] for what in drawn.repair), *drawn.steps]


@contextmanager
def opened(folder: Path) -> Iterator[Play]:
    from tests.campaigns.fuzz import judge  # only now: it compiles kernels

    for name in wire.seed_names():
        judge.load_seed(name, folder)
        judge.judge(Mutant(name, [], []), folder)

    def play(case: Case) -> Counter[str]:
        seeds = [choice[1] for choice in case if choice[0] == "seed"]
        repair = [choice[1] for choice in case if choice[0] == "repair"]
        steps = [choice for choice in case if choice[0] not in ("seed", "repair")]
        verdict = judge.judge(Mutant(*(seeds or wire.seed_names())[:1], steps, repair), folder)
        assert verdict.outcome != "finding", verdict.detail
        return Counter([verdict.outcome])

    yield play


CAMPAIGN = Campaign(
    "fuzz", _case, opened, case_s_max=20, memory_bytes_max=MEMORY_BYTES_MAX, budget="20000"
)
