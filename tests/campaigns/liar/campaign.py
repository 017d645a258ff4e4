"""A server that lies: recorded conversations, changed and replayed to a pipeline (see `judge.py`).

With ``--bounds`` the kernels check bounds. ``python -m tests.campaigns.liar.recording`` records
real servers again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import Campaign, Case, Play, distinct


def _case(seed: int, number: int) -> Case:
    from tests.campaigns.liar.lies import lie  # only now: it compiles kernels

    drawn = lie(distinct(seed, number))
    about = [drawn.flavor, drawn.name, drawn.at, drawn.repairs, drawn.has_tls]
    return [["lie", *about], *drawn.steps]


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    from tests.campaigns.liar.judge import Judge
    from tests.campaigns.liar.lies import Lie

    judge = Judge(folder)
    judge.assert_honest()

    def play(case: Case) -> Counter[str]:
        if not case or case[0][0] != "lie":
            return Counter()
        flavor, name, at, repairs, has_tls = case[0][1:]
        verdict = judge.judge(Lie(flavor, name, at, case[1:], repairs, has_tls))
        assert verdict.outcome != "finding", verdict.detail
        return Counter([verdict.outcome])

    yield play


# The address space of a process is limited, and in pieces after some hundreds of plays.
CAMPAIGN = Campaign(
    "liar",
    _case,
    _opened,
    case_s_max=30,
    process_cases=400,
    memory_bytes_max=1 << 30,
    budget="5000",
)
