"""What other readers of Delta make of the lakes: DuckDB, Polars and delta-rs, in an environment of
their own, against SELECT."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import Campaign, Case, Play, locked_environment
from tests.campaigns.readers.lakes import make_lakes

_HERE = Path(__file__).parent


def _case(_seed: int, _number: int) -> Case:
    return [["all lakes"]]


def _cases(_seed: int) -> int:
    return 1


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    python = locked_environment(folder / "venv", _HERE / "requirements.lock")
    make_lakes(folder)

    def play(case: Case) -> Counter[str]:
        if not case:
            return Counter()
        # A process of its own folder: it imports nothing of this project.
        done = subprocess.run(
            [str(python), str(_HERE / "read.py"), str(folder)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stdout, flush=True)
        assert not done.returncode, done.stdout + done.stderr
        return Counter(tables=len(done.stdout.splitlines()))

    yield play


CAMPAIGN = Campaign(
    "readers",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=1800,
    needs=("mysql", "jars"),
    budget="all",
    shrink_plays_max=0,
    on_disk=True,
)
