"""CPU-seconds of this process and all below it, and its largest resident memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """User and system time of this process and its descendants, those that ended and were waited
    for included."""
    parents: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(stat.parent.name)] = int(fields[1]), sum(int(field) for field in fields[11:15])
    own = {os.getpid()}
    while more := {pid for pid, (parent, _) in parents.items() if parent in own} - own:
        own |= more
    return sum(parents[pid][1] for pid in own) / _TICKS_PER_S


def peak_mib() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
