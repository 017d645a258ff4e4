"""``cdc-pipeline demo``: the embedded demo, start to end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.output import emit_json, quiet_streams, results, table
from cdc_pipeline.cli.settings import Settings, with_json

if TYPE_CHECKING:
    from cdc_pipeline.demo.main import DemoReport


@click.command("demo")
@with_json
def command(settings: Settings) -> None:
    """Capture the recorded shop in two runs and compare its tables with the server's SELECT.

    A second demo resumes from the cursor and finds nothing to do. Exit codes: 0 all tables are
    equal; 1 a table differs, or a run failed.
    """
    report = _run(settings)
    if settings.as_json:
        emit_json(report.model_dump(mode="json"))
    else:
        _show(report)


def _run(settings: Settings) -> DemoReport:
    from cdc_pipeline.cli.output import notes
    from cdc_pipeline.cli.progress import ProgressObserver
    from cdc_pipeline.demo.main import run

    with quiet_streams(quiet=not settings.debug) as stream, ExitStack() as bars:

        def observer_of(title: str) -> ProgressObserver:
            bars.close()  # the bar of the previous run
            notes(stream).print(title, style="bold")
            return bars.enter_context(ProgressObserver(stream))

        return run(settings.jobs_directory, observer_of=observer_of)


def _show(report: DemoReport) -> None:
    from cdc_pipeline.cli.report import show_report

    for done in report.runs:
        show_report(done)
    out = results()
    if report.checks:
        rows = table(
            "Tables against the server's SELECT",
            "table",
            "rows",
            "Delta version",
            "",
            numbers=("rows", "Delta version"),
        )
        for check in report.checks:
            found = "differs: " + "; ".join(check.differences) if check.differences else "equal"
            rows.add_row(check.table, f"{check.rows:,}", str(check.delta_version), found)
        out.print(rows)
        out.print()
    elif report.verified:
        out.print("The tables of this cut were compared before and equalled the server's SELECT.")
    now = report.status
    out.print(f"cursor: {now.journal}:{now.offset}, batch {now.batch_number}", soft_wrap=True)
    if now.gtid_set:
        out.print(f"gtids:  {now.gtid_set}", markup=False, soft_wrap=True)
    out.print(report.next_step, soft_wrap=True)
