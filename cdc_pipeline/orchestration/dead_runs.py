"""Whose a run is, and runs whose process died without telling Dagster.

Rules:
- A run has the tags of its source and kind, whoever started it: a job's own, or those that its step
  adds. A run that also selects a project's other assets, or checks of its own, has none: it is not
  ours to delete.
- A run names its process in a tag: host, boot, process id and start time. That identifies it
  uniquely, even if the operating system reuses the process id.
- A run loses its slot only if it is finished, deleted, or its process ran on this host since this
  boot and is gone. Any other run keeps its slot, and Dagster's run monitoring decides.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import dagster as dg

from cdc_pipeline.orchestration.translator import SOURCE_TAG, RunKind, pool_name, run_tags

# Dagster does not show tags of this prefix: it is no name for people.
_JOB_OF_PAGES: Final = "__ASSET_JOB"
PROCESS_TAG = ".dagster/cdc_process"


def this_process() -> str:
    """Unique among all processes on this machine since it booted."""
    return _process(os.getpid())


def tag_run(context: dg.OpExecutionContext, source: str, kind: RunKind) -> None:
    """*Materialize*, checks of a page, automation and backfills start runs without tags."""
    run, layer = context.run, context.job_def.asset_layer
    steps = [step.assets_def for step in layer.data]
    # A step of checks alone may check our assets and be the project's.
    owners = [layer.get(key).tags.get(SOURCE_TAG) for step in steps for key in step.keys]
    owners += [step.node_def.tags.get(SOURCE_TAG) for step in steps if not step.keys]
    is_ours = all(owner == source for owner in owners)
    tags = {PROCESS_TAG: this_process()} | (run_tags(source, kind) if is_ours else {})
    context.instance.add_run_tags(
        run.run_id, {name: tag for name, tag in tags.items() if run.tags.get(name) != tag}
    )


def free_dead_runs(instance: dg.DagsterInstance, *, source: str) -> tuple[list[str], list[str]]:
    """Free the pool slots of a source's dead runs, and mark as failed those that Dagster still
    shows as running.

    Returns the ids of the dead runs, and of the live ones that hold a slot or wait for it.
    """
    storage, holders = instance.event_log_storage, set[str]()
    if storage.supports_global_concurrency_limits:
        info = storage.get_concurrency_info(pool_name(source))
        holders = {slot.run_id for slot in info.claimed_slots} | {
            step.run_id for step in info.pending_steps
        }
    # A snapshot or a verification has no slot. A run that a page started has a process for each
    # step, which ends before the run does: only runs of jobs are one process.
    started = dg.RunsFilter(tags={SOURCE_TAG: source}, statuses=[dg.DagsterRunStatus.STARTED])
    freed, alive = [], []
    for run_id in sorted(holders | _of_one_process(instance.get_runs(started))):
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            if not _is_gone(run.tags.get(PROCESS_TAG, "")):
                alive += [run_id] if run_id in holders else []
                continue
            instance.report_run_failed(
                run, "The run's process died: killed, out of memory, or the machine stopped."
            )
        if run_id in holders:
            storage.free_concurrency_slots_for_run(run_id)
        freed.append(run_id)
    return freed, alive


def _of_one_process(runs: Sequence[dg.DagsterRun]) -> set[str]:
    return {run.run_id for run in runs if not run.job_name.startswith(_JOB_OF_PAGES)}


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
