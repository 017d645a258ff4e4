"""Which process it was that left a mark, and whether it has ended."""

from __future__ import annotations

import os
import time
from pathlib import Path


def boot_id() -> str:
    """Is "" if the system has none, which equals no other."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def machine_start_s() -> float:
    """In seconds since 1970, as the clock is set now."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def process_mark(pid: int) -> str:
    """Boot of the machine, namespace, id and start; "" if there is none, or the system does not
    say.
    """
    try:
        # The command's name is in parentheses and may hold spaces.
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        is_dead = fields[0] in "ZX"  # ended, and not collected by its parent yet
        namespace = os.readlink("/proc/self/ns/pid")
        return "" if is_dead else f"{boot_id()} {namespace} {pid} {fields[19]}"
    except (OSError, IndexError):
        return ""


def is_gone(mark: str) -> bool:
    """Whether the process of a mark ran on this machine, in this namespace, and ended."""
    parts, own = mark.split(), process_mark(os.getpid()).split()
    if len(parts) != 4 or parts[:2] != own[:2] or not parts[2].isdecimal():
        return False
    return process_mark(int(parts[2])) != mark
