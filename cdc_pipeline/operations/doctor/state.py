"""Check the pipeline's state (cursor, cut, targets, lock) and plan a run."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from cdc_pipeline.clock import time_of
from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig
from cdc_pipeline.errors import CdcError, LakeStateError, TableNotInCutError
from cdc_pipeline.lake.run_notes import dump_error_file
from cdc_pipeline.lake.storage.lock import lock_holder
from cdc_pipeline.lake.suspensions import new_snapshot, way_out
from cdc_pipeline.operations.cursor.cursor_view import view_cursor
from cdc_pipeline.operations.doctor.context import Check, Context
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.report import quarantined
from cdc_pipeline.sink.delta.engine import PLAIN
from cdc_pipeline.sink.delta.failures import OF_LOST_FILES
from cdc_pipeline.sink.read.cuts import check_readable
from cdc_pipeline.text.wording import by_reason, count_of, duration, listed, size

_MISSED_RUNS: Final = 2


def _cursor(context: Context) -> Iterator[Verdict]:
    """K3: the cut decides if stored cursor and last cut differ."""
    run = f"cdc-pipeline run {context.config.name}"
    cursors = context.cursors or MemoryCursorStore(source=context.config.name)
    context.reconciled = reconciled = reconcile(cursors.read(), context.cut)
    view = view_cursor(context.config, cursors=cursors)
    if reconciled.cursor is None:
        yield note("the pipeline has never run", got=view.next_run, next_step=run)
        return
    at = f"{reconciled.cursor.position}, batch {reconciled.cursor.batch_number}"
    if context.cursors is None:
        yield note(
            "Dagster's cursor could not be read; the lake's last cut is used instead",
            got=at,
            next_step="see the findings about Dagster",
        )
    elif view.agrees:
        yield ok(f"the cursor is at {at} and agrees with the last cut")
    else:
        yield note(
            "the cursor and the last cut differ; the next run repairs that first",
            got=view.next_run,
            next_step=run,
        )
    needed = view.oldest_needed
    if needed is not None and needed.name != "cursor":
        yield note(
            f"the log is needed from {needed.position} on, by {needed.name}, which is "
            "earlier than the cursor",
            next_step=f"{run} --table {quote(needed.name)}",
        )


def _last_run(context: Context) -> Iterator[Verdict]:
    newest = next(iter(context.cursors.history(1)), None) if context.cursors is not None else None
    schedule = context.config.schedule
    if newest is None:
        return
    ago_s = max(0.0, context.now_s - newest.at_us / 1e6)  # the clock may have been set back
    message = f"the cursor was last written {duration(ago_s)} ago"
    is_due = schedule is not None and schedule.enabled and context.every_s
    if is_due and ago_s > _MISSED_RUNS * context.interval_s:
        yield warning(
            f"{message}, so its schedule is not being kept",
            expected=context.interval_text,
            got=f"at {time_of(newest.at_us):%Y-%m-%d %H:%M} UTC",
            next_step="look at the last runs in Dagster's UI, and check that Dagster's daemon is "
            "running (dagster-daemon run)",
        )
    else:
        yield ok(message)


def _unfinished(context: Context) -> Iterator[Verdict]:
    pending = context.sink.pending_record()
    if pending is not None:
        yield note(
            f"batch {pending.batch_number} is recorded but unfinished; the next run finishes it "
            "from its own files",
            next_step=f"cdc-pipeline run {context.config.name}",
        )


def _targets(context: Context) -> Iterator[Verdict]:
    """K3: a table must be as the last cut says."""
    cut = context.cut
    if cut is None:
        return
    failing: dict[str, CdcError] = {**context.sink.failing_targets(cut)}
    for name in sorted(cut.tables.keys() - failing.keys() - cut.cursor.suspended.keys()):
        try:
            check_readable(context.paths, cut, name)
        except (LakeStateError, TableNotInCutError) as lost:
            lost.next_step = f"{OF_LOST_FILES}: {new_snapshot(context.config.name, name)}"
            failing[name] = lost
    for failure in failing.values():
        yield Verdict.from_error(failure)
    if not failing:
        yield ok(f"{count_of(len(cut.tables), 'Delta table')} as the last cut says")


def _suspended(context: Context) -> Iterator[Verdict]:
    suspended = context.cursor.suspended if context.cursor is not None else {}
    for name, suspension in sorted(suspended.items()):
        yield error(
            f"{name} is suspended: it receives no changes",
            expected="a table that follows its source",
            got=f"{suspension.cause}; suspended at {suspension.position}",
            next_step=way_out(name, suspension, source=context.config.name),
        )


def _quarantine(context: Context) -> Iterator[Verdict]:
    for name, count in sorted(quarantined(context.cut).items()):
        yield warning(
            f"{count_of(count, 'row')} of {name} could not be applied and wait in quarantine",
            next_step=f"cdc-pipeline quarantine list {context.config.name}; then replay or "
            "discard the rows",
        )


def _lock(context: Context) -> Iterator[Verdict]:
    context.sink  # noqa: B018  (the lake can be read)
    holder = lock_holder(context.paths.lock)
    if holder:
        yield note("a run is writing to this source's lake now", got=holder)


def _dump_errors(context: Context) -> Iterator[Verdict]:
    context.sink  # noqa: B018  (the lake can be read)
    failed = dump_error_file(context.paths).read()
    most = getattr(context.config.source, "dump_errors_max", None)
    moved = f"; after more than {most} failures the address counts as moved to another server"
    if failed.count:
        yield warning(
            f"the last {'run' if failed.count == 1 else f'{failed.count} runs'} could "
            "not read the log",
            expected="none" + ("" if most is None else moved),
            got=failed.last,
            next_step=f"fix the cause, then: cdc-pipeline run {context.config.name}",
        )


def _plan(context: Context) -> Iterator[Verdict]:
    context.source  # noqa: B018  (it answers)
    context.sink  # noqa: B018
    capture_plan = plan(
        context.config, cursors=context.cursors or MemoryCursorStore(source=context.config.name)
    )
    told = context.source.warnings(capture_plan.tables)  # each is a finding of its own
    for text in capture_plan.warnings:
        if text not in told:
            yield warning(text, next_step=f"cdc-pipeline plan {context.config.name}")
    engines = {name: by for name, by in capture_plan.engines.items() if by != PLAIN}
    for engine, names in by_reason(engines):
        yield note(f"batches of {listed(names)} are applied by {engine}")
    # For a server, the check of the tables reports them.
    is_archive = isinstance(context.config.source, ArchiveSourceConfig)
    if is_archive and capture_plan.unseen and not context.config.tables.allow_empty:
        yield error(
            "patterns in tables.include have never matched a table: each run fails at its end",
            expected="a table in the log for each pattern",
            got=listed(list(capture_plan.unseen)),
            next_step="correct the patterns, or tables: {allow_empty: true}",
        )
    between = f"from {capture_plan.start} to {capture_plan.end}"
    yield ok(f"a run would read {size(capture_plan.bytes_between)}, {between}")


CHECKS: Final = (
    Check("state", "cursor", _cursor, opens=True),
    Check("state", "last run", _last_run),
    Check("state", "unfinished batch", _unfinished, "no batch is unfinished"),
    Check("state", "targets", _targets),
    Check("state", "suspended", _suspended, "no table is suspended"),
    Check("state", "quarantine", _quarantine, "the quarantine is empty"),
    Check("state", "lock", _lock, "no process holds the source's lock"),
    Check("state", "dump errors", _dump_errors, "the last run could read the log"),
)
PLAN_CHECKS: Final = (Check("state", "plan", _plan),)
