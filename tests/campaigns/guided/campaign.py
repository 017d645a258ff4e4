"""Fuzzing of single parsers, guided by the code that an input reaches.

Installs the fuzzer into an environment of its own. A case is a target (see `targets.py`) for its
part of the minutes. A finding's input is printed, and belongs into the target's file under
`corpus/` with the repair; with ``keep=true`` what reaches something new is written there.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.campaigns.frame import Campaign, Case, Play, fresh, locked_environment
from tests.campaigns.guided import corpus
from tests.campaigns.guided.targets import TARGETS, beginnings

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
_INPUT_S_MAX: Final = 25
_MEMORY_MB_MAX: Final = 3000


def _case(_seed: int, number: int, *, target: str, minutes: float, keep: bool) -> Case:
    names = [target] if target else list(TARGETS)
    rounds = -(-len(names) // (os.cpu_count() or 1))
    return [[names[number], max(1, int(60 * minutes / rounds)), keep]]


def _cases(_seed: int, *, target: str, **_options: object) -> int:
    return 1 if target else len(TARGETS)


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    python = locked_environment(folder / "venv", HERE / "requirements.lock")

    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for name, seconds, keep in case:
            with fresh(folder) as home:
                counts[name] += _fuzz(python, name, seconds, home, keep=keep)
        return counts

    yield play


def _fuzz(python: Path, name: str, seconds: int, folder: Path, *, keep: bool) -> int:
    """Run a target for a time, and say how many inputs were tried; with `keep` its corpus gets
    those that reach something new."""
    started, found, made = (folder / f"{name}-{part}" for part in ("started", "found", "made"))
    for part in (started, found, made):
        part.mkdir()
    for number, data in enumerate([*beginnings(name), *corpus.inputs(name)]):
        (started / f"{number}").write_bytes(data)
    options = [
        f"-timeout={_INPUT_S_MAX}",
        f"-rss_limit_mb={_MEMORY_MB_MAX}",
        "-max_len=8000",
        f"-artifact_prefix={made}/",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    count, until_s, is_full = 0, time.monotonic() + seconds, True
    while is_full and (left_s := round(until_s - time.monotonic())) > 0:
        limit = f"-max_total_time={left_s}"
        ended = _child(python, name, limit, *options, str(found), str(started))
        log = ended.stdout + ended.stderr
        count += _executed(log)
        # The fuzzer's own memory grows with its inputs: it is an input's only if that one alone
        # takes as much. Otherwise another process goes on.
        is_full = False
        for file in made.glob("oom-*"):
            if not _child(python, name, *options, str(file)).returncode:
                file.unlink()
                is_full = True
    findings = [f"{file.name}: {file.read_bytes().hex()}" for file in sorted(made.iterdir())]
    if ended.returncode and not findings and not is_full:
        findings = [f"the process ended with {ended.returncode}"]
    assert not findings, "\n".join([*findings, log[-3000:]])
    if keep:
        new = [file.read_bytes() for file in found.iterdir()]
        corpus.keep(name, [*corpus.inputs(name), *new])
    return count


def _executed(log: str) -> int:
    said = "stat::number_of_executed_units"
    return next((int(line.split(":")[-1]) for line in log.splitlines() if line.startswith(said)), 0)


def _child(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of the fuzzer's interpreter that also finds what this one has installed."""
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return subprocess.run(
        [str(python), str(HERE / "child.py"), *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "NUMBA_DISABLE_JIT": "1",
        },
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


CAMPAIGN = Campaign(
    "guided",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=float("inf"),
    options={"target": "", "minutes": 60.0, "keep": False},
    budget="all",
    shrink_plays_max=0,
    on_disk=True,
)
