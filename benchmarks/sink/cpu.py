"""CPU-seconds of this process and of the JVM that it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def jvm_pid(session: Any) -> int:
    """Process id of the session's JVM."""
    return int(session._jvm.java.lang.ProcessHandle.current().pid())


def cpu_s(pid: int) -> float:
    """User and system time of a process, all its threads, those that ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def spent_s(pid: int, work: Callable[[], object]) -> float:
    """CPU-seconds of a JVM and of this process, which has started it, while `work` runs in this
    one."""
    before = cpu_s(pid) + time.process_time()
    work()
    return cpu_s(pid) + time.process_time() - before
