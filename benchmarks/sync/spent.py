"""CPU-seconds of a command with all that it starts."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Spent:
    """What a command took.

    Attributes:
        cpu_s: of its process and of every process below it, until the last of them ended.
        own_cpu_s: of its process alone.
        output: its standard output.
    """

    cpu_s: float
    own_cpu_s: float
    output: str


def spent(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Spent:
    """Run a command and everything that it leaves behind to its end.

    A JVM outlives the process that started it: this process adopts it and waits for it, so that it
    counts.

    Raises:
        SystemExit: the command failed.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before_s, others = _children_s(), _children()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=env, cwd=cwd, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        while adopted := _children() - others:
            os.waitpid(adopted.pop(), 0)
        output.seek(0)
        text = output.read()
        if process.returncode:
            errors.seek(0)
            raise SystemExit(
                f"{command[0]} failed with exit code {process.returncode}:\n{text}\n{errors.read()}"
            )
    return Spent(_children_s() - before_s, usage.ru_utime + usage.ru_stime, text)


def _children() -> set[int]:
    """The processes below this one that nobody has waited for, but for those further down."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for pids in lists for pid in pids.read_text(encoding="ascii").split()}


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
