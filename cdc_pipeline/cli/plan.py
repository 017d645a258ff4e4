"""``cdc-pipeline plan``: what a run would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import (
    by_reason,
    count_of,
    emit_json,
    listed,
    operation_line,
    results,
    table,
    xa_line,
)
from cdc_pipeline.cli.common.ranges import with_bound
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import open_source

if TYPE_CHECKING:
    from rich.table import Table

    from cdc_pipeline.config.pipeline_config import Bound
    from cdc_pipeline.run.report import CapturePlan, PlannedTarget


@click.command("plan")
@source_argument()
@with_bound
@with_json
def command(settings: Settings, *, source: str, bound: Bound | None) -> None:
    """Show where a run of SOURCE would start and why, where it would end, and what it would read.

    Reads the cursor, the lake's state and the source's list of journals. Writes nothing and starts
    no JVM.

    Exit codes: 0 a run can start; 1 it cannot, with the reason; 2 wrong usage or configuration.
    """
    config = settings.config_of(source)
    from cdc_pipeline.run.plan.planning import plan

    with open_source(settings, config) as access:
        capture_plan = plan(config, cursors=access.cursors, bound=bound)
        skipped = access.skipped
    if settings.as_json:
        emit_json(
            {**capture_plan.model_dump(mode="json"), "cursor_events_passed_over": list(skipped)}
        )
    else:
        _show(capture_plan, skipped, is_live=config.source.kind == "live")


def _show(plan: CapturePlan, skipped: tuple[str, ...], *, is_live: bool) -> None:
    from cdc_pipeline.lake.suspensions import sentence, way_out
    from cdc_pipeline.run.plan.feature_plan import feature_lines

    out = results()
    rows = table(f"Plan of {plan.source}", "", "")
    rows.add_row("server", plan.identity)
    rows.add_row("start", f"{plan.start_journal}:{plan.start_offset}")
    for number, reason in enumerate(plan.start_reasons):
        rows.add_row("because" if number == 0 else "", reason)
    if plan.start_gtid_set:
        rows.add_row("executed", plan.start_gtid_set)
    if plan.limit:
        rows.add_row("end", plan.limit)
    rows.add_row("at the latest" if plan.limit else "end", f"{plan.end_journal}:{plan.end_offset}")
    rows.add_row(
        "because", "the log ended there when the run was planned" if plan.limit else plan.end_reason
    )
    at_most = "at most " if plan.limit else ""
    rows.add_row(
        "to read",
        f"{at_most}{plan.bytes_between:,} bytes in {count_of(len(plan.journals), 'journal')}",
    )
    none = "none known yet: they will be found in the log"
    if is_live:
        none = (
            "the account sees no table that matches tables.include: GRANT SELECT on the "
            "tables, or correct tables.include"
        )
    rows.add_row("tables", listed(plan.tables) or none)
    if plan.unseen:
        why = (
            "matches no table: misspelt in tables.include, not created yet, or the account "
            "lacks SELECT on it"
        )
        rows.add_row("", f"{listed(plan.unseen)}: {why}")
    for policy, names in plan.schema_changes.items():
        rows.add_row("schema changes", f"{listed(names)}: {policy}")
    for number, line in enumerate(feature_lines(plan.features)):
        rows.add_row("features" if number == 0 else "", line)
    for number, (engine, names) in enumerate(by_reason(plan.engines)):
        rows.add_row("applied by" if number == 0 else "", f"{engine}: {listed(names)}")
    if plan.oldest_needed is not None:
        rows.add_row(
            "needed",
            f"the log from {plan.oldest_needed} on, by {_consumer(plan.oldest_needed.consumer)}",
        )
    if plan.partial_tables:
        rows.add_row("partial", listed(plan.partial_tables))
    for why, names in by_reason(plan.needs_snapshot):
        rows.add_row("needs a snapshot", f"{listed(names)}: {why}")
    if plan.needs_snapshot:
        rows.add_row("", f"cdc-pipeline snapshot {plan.source}")
    for operation in plan.snapshots:
        rows.add_row("snapshot", operation_line(operation))
    for name, suspension in sorted(plan.suspended.items()):
        rows.add_row("suspended", sentence(name, suspension))
        rows.add_row("", way_out(name, suspension, source=plan.source))
    if plan.unfinished_batch is not None:
        rows.add_row("first", f"finish batch {plan.unfinished_batch} from its own files")
    for name, number in sorted(plan.quarantine.items()):
        rows.add_row("quarantine", f"{name}: {count_of(number, 'row')} in quarantine")
    for xa in plan.open_xa:
        rows.add_row("prepared", xa_line(xa))
    for warning in plan.warnings:
        rows.add_row("warning", warning)
    for note in skipped:
        rows.add_row("note", f"ignored the cursor asset's {note}")
    out.print(rows)
    if plan.targets:
        out.print()
        out.print(_targets(plan.targets))


def _targets(targets: Sequence[PlannedTarget]) -> Table:
    from cdc_pipeline.targets.keys import SOURCE_KEY

    rows = table("Targets", "target", "mode", "key", "")
    for target in targets:
        reason = "" if target.reason == SOURCE_KEY else target.reason
        rows.add_row(target.target, target.kind_text, target.key_text, reason)
    return rows


def _consumer(name: str) -> str:
    return "the cursor" if name == "cursor" else f"the suspended table {name}"
