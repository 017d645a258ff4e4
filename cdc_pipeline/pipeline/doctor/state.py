"""Check the pipeline's state (cursor, cut, targets, lock) and plan a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote
from typing import Final

from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig
from cdc_pipeline.errors import CdcError, LakeStateError, TableNotInCutError
from cdc_pipeline.lake.storage.lock import lock_holder
from cdc_pipeline.lake.suspensions import new_snapshot, way_out
from cdc_pipeline.pipeline.doctor.context import Context, checks, duration, listed, size
from cdc_pipeline.pipeline.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.pipeline.operate.cursor_view import view_cursor
from cdc_pipeline.pipeline.plan.planning import plan
from cdc_pipeline.pipeline.plan.reconcile import reconcile
from cdc_pipeline.pipeline.report import needed_position, quarantined
from cdc_pipeline.pipeline.wiring import build_dump_errors
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.sink.read.cuts import check_readable

_MISSED_RUNS: Final = 2


def _cursor(context: Context) -> Iterator[Verdict]:
    """K3: the cut decides if stored cursor and last cut differ."""
    name = context.config.name
    cursors = context.cursors or MemoryCursorStore(source=name)
    cut = context.cut
    try:
        context.reconciled = reconcile(cursors.read(), cut)
    except LakeStateError as failure:
        yield Verdict.from_error(failure)
        return
    view = view_cursor(context.config, cursors=cursors)
    if context.reconciled.cursor is None:
        yield note("the pipeline has never run", got=view.next_run, mend=f"cdc-pipeline run {name}")
        return
    at = f"{context.reconciled.cursor.position}, batch {context.reconciled.cursor.batch_number}"
    if context.cursors is None:
        yield note(
            "Dagster's cursor could not be read; the lake's last cut is used instead",
            got=at,
            mend="see the findings about Dagster",
        )
    elif view.agrees:
        yield ok(f"the cursor is at {at} and agrees with the last cut")
    else:
        yield note(
            "the cursor and the last cut differ; the next run repairs that first",
            got=view.next_run,
            mend=f"cdc-pipeline run {name}",
        )
    needed = needed_position(context.reconciled.cursor)
    if needed is not None and needed.consumer != "cursor":
        yield note(
            f"the log is needed from {needed} on, by {needed.consumer}, which is "
            "earlier than the cursor",
            mend=f"cdc-pipeline run {name} --table {quote(needed.consumer)}",
        )


def _last_run(context: Context) -> Iterator[Verdict]:
    newest = next(iter(context.cursors.history(1)), None) if context.cursors is not None else None
    schedule = context.config.schedule
    if newest is None:
        return
    ago_s = max(0.0, time.time() - newest.at_us / 1e6)  # the clock may have been set back
    message = f"the cursor was last written {duration(ago_s)} ago"
    if (
        schedule is not None
        and schedule.enabled
        and context.every_s
        and ago_s > _MISSED_RUNS * context.every_s
    ):
        yield warning(
            f"{message}, so its schedule is not being kept",
            expected=context.interval_text,
            got=f"at {datetime.fromtimestamp(newest.at_us / 1e6, tz=UTC):%Y-%m-%d %H:%M} UTC",
            mend="look at the last runs in Dagster's UI, and check that Dagster's daemon is "
            "running (dagster-daemon run)",
        )
    else:
        yield ok(message)


def _unfinished(context: Context) -> Iterator[Verdict]:
    pending = context.pending
    if pending is not None:
        yield note(
            f"batch {pending.batch_number} is recorded but unfinished; the next run finishes it "
            "from its own files",
            mend=f"cdc-pipeline run {context.config.name}",
        )
    elif context.cut is not None:
        yield ok(f"no batch is unfinished; the last one is {context.cut.batch_number}")


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
            lost.next_step = (
                "restore it from a backup of the lake, or take a new snapshot: "
                f"{new_snapshot(context.config.name, name)}"
            )
            failing[name] = lost
    for failure in failing.values():
        yield Verdict.from_error(failure)
    if not failing:
        count = len(cut.tables)
        yield ok(f"{count} Delta table{'s match' if count != 1 else ' matches'} the last cut")


def _suspended(context: Context) -> Iterator[Verdict]:
    """K4: such a table stops, the others go on."""
    found = context.cursor.suspended if context.cursor is not None else {}
    for name, held in sorted(found.items()):
        yield error(
            f"{name} is suspended: it receives no changes",
            expected="a table that follows its source",
            got=f"{held.what}; suspended at {held.position}",
            mend=way_out(name, held),
        )
    if context.cursor is not None and not found:
        yield ok("no table is suspended")


def _quarantine(context: Context) -> Iterator[Verdict]:
    found = quarantined(context.cut)
    for name, count in sorted(found.items()):
        yield warning(
            f"{count} row{'s' if count != 1 else ''} of {name} could not be applied and "
            "wait in quarantine",
            mend=f"cdc-pipeline quarantine list {context.config.name}; then replay or "
            "discard the rows",
        )
    if not found and context.cut is not None:
        yield ok("the quarantine is empty")


def _lock(context: Context) -> Iterator[Verdict]:
    """K16: one run writes at a time."""
    context.sink  # noqa: B018  (the lake can be read)
    holder = lock_holder(context.paths.lock)
    if holder:
        yield note("a run is writing to this source's lake now", got=holder)
    else:
        yield ok("no process holds the source's lock")


def _dump_errors(context: Context) -> Iterator[Verdict]:
    context.sink  # noqa: B018  (the lake can be read)
    found = build_dump_errors(context.config).read()
    most = getattr(context.config.source, "dump_errors_max", None)
    if found.count:
        yield warning(
            f"the last {'run' if found.count == 1 else f'{found.count} runs'} could "
            "not read the log",
            expected="none"
            if most is None
            else f"none; after more than {most} failures the address counts as moved to another "
            "server",
            got=found.last,
            mend=f"fix the cause, then: cdc-pipeline run {context.config.name}",
        )
    else:
        yield ok("the last run could read the log")


def _plan(context: Context) -> Iterator[Verdict]:
    context.source  # noqa: B018  (it answers)
    context.sink  # noqa: B018
    made = plan(
        context.config, cursors=context.cursors or MemoryCursorStore(source=context.config.name)
    )
    known = set(context.source.warnings(made.tables))  # each is already a finding of its own
    for text in made.warnings:
        if text not in known:
            yield warning(text, mend="see sink.reader_features in docs/lake/readers.md")
    # For a server, the check of the tables reports them.
    is_archive = isinstance(context.config.source, ArchiveSourceConfig)
    if is_archive and made.unseen and not context.config.tables.allow_empty:
        yield error(
            "patterns in tables.include have never matched a table: each run fails at its end",
            expected="a table in the log for each pattern",
            got=listed(list(made.unseen)),
            mend="correct the patterns, or tables: {allow_empty: true}",
        )
    start = f"{made.start_journal}:{made.start_offset}"
    end = f"{made.end_journal}:{made.end_offset}"
    yield ok(f"a run would read {size(made.bytes_between)}, from {start} to {end}")


CHECKS: Final = (
    *checks("state", opens=True, cursor=_cursor),
    *checks(
        "state",
        last_run=_last_run,
        unfinished_batch=_unfinished,
        targets=_targets,
        suspended=_suspended,
        quarantine=_quarantine,
        lock=_lock,
        dump_errors=_dump_errors,
    ),
)
PLAN_CHECKS: Final = checks("state", plan=_plan)
