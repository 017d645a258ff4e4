"""Every type and event at its edges, on both servers: all tests of `edges` and `events`, which the
suite runs a part of. A case is a file of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import SERVERS, Campaign, Case, Play

_CAMPAIGNS = Path(__file__).resolve().parents[1]
_FILES = sorted(file for name in ("edges", "events") for file in (_CAMPAIGNS / name).glob("test_*"))


def _case(_seed: int, number: int) -> Case:
    return [str(_FILES[number].relative_to(_CAMPAIGNS))]


def _cases(_seed: int) -> int:
    return len(_FILES)


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    def play(case: Case) -> Counter[str]:
        for file in case:
            pytest = [sys.executable, "-m", "pytest", "-q", "-n0", f"--basetemp={folder / 'tests'}"]
            done = subprocess.run(
                [*pytest, str(_CAMPAIGNS / file)],
                cwd=_CAMPAIGNS.parents[1],
                env={**os.environ, "TORTURE_SWEEP": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert not done.returncode, f"{file}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return Counter(files=len(case))

    yield play


CAMPAIGN = Campaign(
    "edges",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=3600,
    needs=SERVERS,
    budget="all",
    processes_max=1,
    shrink_plays_max=0,
)
