"""``cdc-pipeline plan``: what a run would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import facts, results, show_result, table
from cdc_pipeline.cli.common.ranges import with_bound
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import open_source

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import Bound
    from cdc_pipeline.run.report import CapturePlan


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
    show_result(
        settings,
        capture_plan,
        lambda made: _show(made, skipped, is_live=config.source.kind == "live"),
        cursor_events_passed_over=skipped,
    )


def _show(plan: CapturePlan, skipped: tuple[str, ...], *, is_live: bool) -> None:
    from cdc_pipeline.operations.plan_text import plan_rows, target_rows

    out = results()
    ignored = [("note", f"ignored the cursor asset's {note}") for note in skipped]
    out.print(facts(f"Plan of {plan.source}", [*plan_rows(plan, is_live=is_live), *ignored]))
    if plan.targets:
        out.print()
        targets = table("Targets", "target", "mode", "key", "")
        for cells in target_rows(plan):
            targets.add_row(*cells)
        out.print(targets)
