"""Runs of the command, each a process of its own, with what they cost."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CHILD_SUBREAPER = 36  # of prctl(2)
_JVM_ENDS_S = 30.0


@dataclass(frozen=True)
class Run:
    """One run: CPU-seconds of its process and its JVM, and its report."""

    cpu_s: float
    report: dict[str, Any]


class Runs:
    """Runs of the sources that are configured in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs, self._home = folder / "jobs", folder / "home"
        for made in (self._jobs, self._home):
            made.mkdir()
        # A JVM outlives the process that started it by a moment: it becomes a child of this one.
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)

    def configure(self, source: str, section: dict[str, Any], tables: list[str]) -> None:
        """Write a source's configuration, in JSON, which is YAML."""
        document = {
            "source": section,
            "tables": {"include": tables},
            "sink": {"lake_path": str(self.lake(source))},
        }
        (self._jobs / f"{source}.yaml").write_text(json.dumps(document))

    def lake(self, source: str) -> Path:
        """Return the lake of a source."""
        return self.folder / f"lake-{source}"

    def run(self, source: str) -> Run:
        """Run a source once. Raises SystemExit if the run fails."""
        others = _children()
        before = _spent_s()
        command = [sys.executable, "-m", "cdc_pipeline.cli", "--jobs", str(self._jobs), "run"]
        done = subprocess.run(
            [*command, source, "--json"],
            env={**os.environ, "DAGSTER_HOME": str(self._home)},
            capture_output=True,
            text=True,
            check=False,
        )
        _reap(others)
        spent_s = _spent_s() - before
        if done.returncode != 0:
            raise SystemExit(f"the run failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        document = json.loads(done.stdout)
        return Run(spent_s, document.get("report", document))


def _spent_s() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def _children() -> set[int]:
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        found.update(map(int, file.read_text().split()))
    return found


def _reap(others: set[int]) -> None:
    """Wait for what a run has left, so that its time counts."""
    until_s = time.monotonic() + _JVM_ENDS_S
    while (left := _children() - others) and time.monotonic() < until_s:
        for pid in left:
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
