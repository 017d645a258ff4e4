"""Whose a run is, and runs whose process died without telling Dagster.

Rules:
- A run has the tags of its source and kind, whoever started it: a job's own, or those that its step
  adds. A run that also selects a project's other assets, or checks of its own, has none: it is not
  ours to delete.
- A run names its process in a tag: its own id, then host and mark of the process, which is unique
  even if the operating system reuses the process id. A run that is executed again has the tags of
  the one before it, so a tag with another run's id says nothing.
  Where each step may have a process of its own, each attempt of a step names it: it ends before
  the run does, and the next attempt has the slot before it has named its own.
- A run loses its slot only if it is finished, deleted, or its process, or that of the attempt that
  holds the slot, ran on this host and is gone: this host has started again since the run's newest
  event, or no process of this namespace is it. A run with a later event is that of another machine
  of this name. Any other run keeps its slot, and Dagster's run monitoring decides.
- Dagster knows no process of a command. So what starts a capture looks first: commands, the
  schedule and the sensor.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from typing import Final

import dagster as dg
from dagster._utils.concurrency import ConcurrencyKeyInfo

from cdc_pipeline.orchestration.translator import SOURCE_TAG, RunKind, pool_name, run_tags
from cdc_pipeline.processes import boot_id, is_gone, machine_start_s, process_mark

# Dagster does not show tags of this prefix: it is no name for people.
PROCESS_TAG: Final = ".dagster/cdc_process"
_OF_ONE_PROCESS: Final = (dg.in_process_executor.name, "execute_in_process_executor")


def process_of(run_id: str) -> str:
    """The value of a run's tag for this process."""
    return f"{run_id}/{socket.gethostname()}/{process_mark(os.getpid())}"


def tag_run(context: dg.OpExecutionContext, source: str, kind: RunKind) -> None:
    """*Materialize*, checks of a page, automation and backfills start runs without tags."""
    run, layer = context.run, context.job_def.asset_layer
    steps = [step.assets_def for step in layer.data]
    # A step of checks alone may check our assets and be the project's.
    owners = [layer.get(key).tags.get(SOURCE_TAG) for step in steps for key in step.keys]
    owners += [step.node_def.tags.get(SOURCE_TAG) for step in steps if not step.keys]
    is_ours = all(owner == source for owner in owners)
    of_step = context.get_step_execution_context()
    is_of_one = context.job_def.executor_def.name in _OF_ONE_PROCESS
    of_attempt = _attempt_tag(of_step.step.key, of_step.previous_attempt_count)
    process_tag = PROCESS_TAG if is_of_one else of_attempt
    tags = {process_tag: process_of(run.run_id)} | (run_tags(source, kind) if is_ours else {})
    context.instance.add_run_tags(
        run.run_id, {name: tag for name, tag in tags.items() if run.tags.get(name) != tag}
    )


def free_dead_runs(instance: dg.DagsterInstance, *, source: str) -> tuple[list[str], list[str]]:
    """Free the pool slots of a source's dead runs, and mark as failed those that Dagster still
    shows as running.

    Returns the ids of the dead runs, and of the live ones that hold a slot or wait for it.
    """
    pool, holders = pool_of(instance, source), dict[str, set[str]]()  # steps with a slot
    for slot in pool.claimed_slots:
        holders.setdefault(slot.run_id, set()).add(slot.step_key)
    for step in pool.pending_steps:
        holders.setdefault(step.run_id, set())
    # A snapshot or a verification has no slot.
    started = dg.RunsFilter(tags={SOURCE_TAG: source}, statuses=[dg.DagsterRunStatus.STARTED])
    freed, alive = [], []
    for run_id in sorted(holders.keys() | {run.run_id for run in instance.get_runs(started)}):
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            ended = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY)
            attempts = Counter(attempt.step_key for attempt in ended)
            steps = holders.get(run_id, ())
            names = [PROCESS_TAG, *(_attempt_tag(step, attempts[step]) for step in steps)]
            if not any(_is_gone(instance, run_id, run.tags.get(name, "")) for name in names):
                alive += [run_id] if run_id in holders else []
                continue
            instance.report_run_failed(
                run, "The run's process died: killed, out of memory, or the machine stopped."
            )
        if run_id in holders:
            instance.event_log_storage.free_concurrency_slots_for_run(run_id)
        freed.append(run_id)
    return freed, alive


def waiting_runs(instance: dg.DagsterInstance, *, source: str, job_name: str) -> list[str]:
    """Runs of a job in Dagster's queue, or behind another run's slot: with none taken, they begin
    at once, or are dead.
    """
    pool, queued = pool_of(instance, source), [dg.DagsterRunStatus.QUEUED]
    behind = [*pool.pending_run_ids] if pool.claimed_slots else []
    runs = [*instance.get_runs(dg.RunsFilter(job_name=job_name, statuses=queued))]
    runs += instance.get_runs(dg.RunsFilter(behind, job_name=job_name)) if behind else []
    return [run.run_id for run in runs]


def pool_of(instance: dg.DagsterInstance, source: str) -> ConcurrencyKeyInfo:
    storage, name = instance.event_log_storage, pool_name(source)
    if storage.supports_global_concurrency_limits:
        return storage.get_concurrency_info(name)
    return ConcurrencyKeyInfo(
        concurrency_key=name, slot_count=0, claimed_slots=[], pending_steps=[]
    )


def _attempt_tag(step_key: str, attempts_before: int) -> str:
    return f"{PROCESS_TAG}/{step_key}" + (f"/{attempts_before}" if attempts_before else "")


def _is_gone(instance: dg.DagsterInstance, run_id: str, tag: str) -> bool:
    of_run, _, process = tag.partition("/")
    host, _, mark = process.partition("/")
    if of_run != run_id or host != socket.gethostname():
        return False
    if mark.partition(" ")[0] in ("", boot_id()):
        return is_gone(mark)
    newest = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    return all(record.timestamp < machine_start_s() for record in newest)
