"""Processes of a benchmark: what they tell, their CPU-seconds, their resident memory."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Spent:
    """What a command took. `cpu_s`: of its process and of every process below it, until the last of
    them ended; `own_cpu_s`: of its process alone; `output`, `errors`: what it
    printed.
    """

    cpu_s: float
    own_cpu_s: float
    output: str
    errors: str


def spent(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Spent:
    """Run a command and everything that it leaves behind to its end.

    A JVM outlives the process that started it: this process adopts it and waits for it, so that it
    counts. Raises SystemExit: the command failed.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before_s, others = _children_s(), _children()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=env, cwd=cwd, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        while adopted := _children() - others:
            os.waitpid(adopted.pop(), 0)
        printed = []
        for file in (output, errors):
            file.seek(0)
            printed.append(file.read())
    if process.returncode:
        raise SystemExit(
            f"{command[0]} failed with exit code {process.returncode}:\n" + "\n".join(printed)
        )
    return Spent(_children_s() - before_s, usage.ru_utime + usage.ru_stime, *printed)


def _children() -> set[int]:
    """The processes below this one that nobody has waited for, but for those further down."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for pids in lists for pid in pids.read_text(encoding="ascii").split()}


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def told_by(module: str, *arguments: object) -> Any:
    """The JSON that a module prints last, in a process of its own. Raises SystemExit: it fails."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def resident_mib(name: str = "VmHWM") -> float:
    """The largest resident memory of this process since its program began, or that of now (VmRSS);
    `getrusage` would count what its parent had at the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def _stat(pid: int | str) -> list[str]:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()


def tree_cpu_s() -> float:
    """User and system time of this process and its descendants, those that ended and were waited
    for included."""
    parents: dict[int, tuple[int, int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = _stat(pid)
        except OSError:
            continue  # it has ended
        parents[int(pid)] = int(fields[1]), sum(int(field) for field in fields[11:15])
    own = {os.getpid()}
    while more := {pid for pid, (parent, _) in parents.items() if parent in own} - own:
        own |= more
    return sum(parents[pid][1] for pid in own) / _TICKS_PER_S


def cpu_s(pid: int) -> float:
    """User and system time of a process, all its threads, those that ended included."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def jvm_pid(session: Any) -> int:
    return int(session._jvm.java.lang.ProcessHandle.current().pid())


def spent_s(pid: int, work: Callable[[], object]) -> float:
    """CPU-seconds of a JVM and of this process, which has started it, while `work` runs in this
    one."""
    before = cpu_s(pid) + time.process_time()
    work()
    return cpu_s(pid) + time.process_time() - before
