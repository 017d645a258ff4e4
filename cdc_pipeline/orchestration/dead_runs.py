"""Runs whose process died without telling Dagster.

Rules:
- A run names its process in a tag: host, boot, process id and start time. That identifies it
  uniquely, even if the operating system reuses the process id.
- A run loses its slot only if it is finished, deleted, or its process ran on this host since this
  boot and is gone. Any other run keeps its slot, and Dagster's run monitoring decides.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import dagster as dg

# Dagster does not show tags of this prefix: it is no name for people.
PROCESS_TAG = ".dagster/cdc_process"


def this_process() -> str:
    """Unique among all processes on this machine since it booted."""
    return _process(os.getpid())


def tag_process(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    instance.add_run_tags(run.run_id, {PROCESS_TAG: this_process()})


def free_dead_runs(instance: dg.DagsterInstance, *, pool: str) -> tuple[list[str], list[str]]:
    """Free the pool slots of dead runs, and mark as failed those that Dagster still shows as
    running.

    Returns the ids of the runs that lost their slots, and of the live runs that hold or wait for
    one.
    """
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return [], []
    info = storage.get_concurrency_info(pool)
    holders = {slot.run_id for slot in info.claimed_slots} | {
        step.run_id for step in info.pending_steps
    }
    freed, alive = [], []
    for run_id in sorted(holders):
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            if not _is_gone(run.tags.get(PROCESS_TAG, "")):
                alive.append(run_id)
                continue
            instance.report_run_failed(
                run, "The run's process died: killed, out of memory, or the machine stopped."
            )
        storage.free_concurrency_slots_for_run(run_id)
        freed.append(run_id)
    return freed, alive


def _is_gone(name: str) -> bool:
    parts = name.split("/")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    if parts[:1] != this_process().split("/")[:1]:
        return False  # of another host
    return _process(int(parts[2])) != name


def _process(pid: int) -> str:
    return f"{socket.gethostname()}/{_boot_id()}/{pid}/{_start_ticks(pid)}"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _start_ticks(pid: int) -> str:
    """In clock ticks since boot; "gone" if the process has exited."""
    try:
        # The command's name is in parentheses and may hold spaces: fields are counted after the
        # last one.
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return _without_proc(pid)
    return "gone" if fields[0] in ("Z", "X") else fields[19]


def _without_proc(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return "gone"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "alive"
    return "alive"
