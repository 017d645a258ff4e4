"""What a run would do, in words: one description for the command line and Dagster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc_pipeline.clock import time_of
from cdc_pipeline.text.wording import by_reason, count_of, listed, moment_text

if TYPE_CHECKING:
    from cdc_pipeline.lake.long_operations import OperationStatus
    from cdc_pipeline.position.cursor import OpenXa
    from cdc_pipeline.run.report import CapturePlan


def plan_rows(plan: CapturePlan, *, is_live: bool) -> Iterator[tuple[str, str]]:
    """Labels and texts; a label that is "" continues the row before."""
    from cdc_pipeline.lake.suspensions import sentence, way_out
    from cdc_pipeline.run.plan.feature_plan import feature_lines

    yield ("server", plan.identity)
    yield ("start", str(plan.start))
    for number, reason in enumerate(plan.start_reasons):
        yield ("because" if number == 0 else "", reason)
    if plan.start.gtid_set:
        yield ("executed", plan.start.gtid_set)
    if plan.limit:
        yield ("end", plan.limit)
    yield ("at the latest" if plan.limit else "end", str(plan.end))
    yield (
        "because",
        "the log ended there when the run was planned" if plan.limit else plan.end_reason,
    )
    at_most = "at most " if plan.limit else ""
    yield (
        "to read",
        f"{at_most}{plan.bytes_between:,} bytes in {count_of(len(plan.journals), 'journal')}",
    )
    none = "none known yet: they will be found in the log"
    if is_live:
        none = (
            "the account sees no table that matches tables.include: GRANT SELECT on the "
            "tables, or correct tables.include"
        )
    yield ("tables", listed(plan.tables) or none)
    if plan.unseen:
        why = (
            "matches no table: misspelt in tables.include, not created yet, or the account "
            "lacks SELECT on it"
        )
        yield ("", f"{listed(plan.unseen)}: {why}")
    for policy, names in plan.schema_changes.items():
        yield ("schema changes", f"{listed(names)}: {policy}")
    for number, line in enumerate(feature_lines(plan.features)):
        yield ("features" if number == 0 else "", line)
    for number, (engine, names) in enumerate(by_reason(plan.engines)):
        yield ("applied by" if number == 0 else "", f"{engine}: {listed(names)}")
    if (needed := plan.oldest_needed) is not None:
        by = "the cursor" if needed.name == "cursor" else f"the suspended table {needed.name}"
        yield ("needed", f"the log from {needed.position} on, by {by}")
    if plan.partial_tables:
        yield ("partial", listed(plan.partial_tables))
    for why, names in by_reason(plan.needs_snapshot):
        yield ("needs a snapshot", f"{listed(names)}: {why}")
    if plan.needs_snapshot:
        yield ("", f"cdc-pipeline snapshot {plan.source}")
    for operation in plan.operations:
        yield ("unfinished", operation_line(operation))
    for name, suspension in sorted(plan.suspended.items()):
        yield ("suspended", sentence(name, suspension))
        yield ("", way_out(name, suspension, source=plan.source))
    if plan.unfinished_batch is not None:
        yield ("first", f"finish batch {plan.unfinished_batch} from its own files")
    for name, number in sorted(plan.quarantine.items()):
        yield ("quarantine", f"{name}: {count_of(number, 'row')} in quarantine")
    for xa in plan.open_xa:
        yield ("prepared", xa_line(xa))
    for warning in plan.warnings:
        yield ("warning", warning)


def target_rows(plan: CapturePlan) -> Iterator[tuple[str, str, str, str]]:
    """Target, mode, key, and what is worth a note."""
    from cdc_pipeline.targets.keys import SOURCE_KEY

    for target in plan.targets:
        note = "" if target.reason == SOURCE_KEY else target.reason
        if target.target in plan.needs_snapshot:
            note = f"needs a snapshot: {plan.needs_snapshot[target.target]}"
        elif target.target in plan.suspended:
            note = "suspended"
        yield target.target, target.kind_text, target.key_text, note


def xa_line(xa: OpenXa) -> str:
    since = ""
    if xa.prepared_at_us >= 0:
        since = f" since {moment_text(time_of(xa.prepared_at_us))}"
    return f"{xa.xid}{since}, {xa.begin}, {count_of(xa.rows, 'row')} parked"


def operation_line(operation: OperationStatus) -> str:
    if operation.damaged:
        return f"{operation.operation_id}: {operation.damaged}"
    other = "" if operation.kind == "backfill" else ", or with --restart to give it up"
    stopped = f"stopped; run the same `{operation.command}` again to continue it{other}"
    state = "under way" if operation.is_running else stopped
    what = f"{operation.kind} {operation.operation_id} of {', '.join(operation.tables)}"
    percent = f", {operation.percent:.0f} %" if operation.percent >= 0 else ""
    place = f"from {operation.start}" + (f", at {operation.at}" if operation.at else "")
    if not operation.chunks:
        changes = f"{count_of(operation.rows, 'row change')}, " if operation.rows else ""
        return f"{what}: {changes}{place}; {state}"
    read = f"{count_of(operation.rows, 'row')} in {count_of(operation.chunks, 'chunk')}"
    return f"{what}: {read}{percent}, {place}; {state}"
