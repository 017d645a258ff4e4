"""``cdc-pipeline demo``: the embedded demo, start to end."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc_pipeline.cli.common.output import note, quiet_streams, results, show_result, table
from cdc_pipeline.cli.common.settings import Settings, with_json
from cdc_pipeline.cli.common.source_access import has_dagster, open_source
from cdc_pipeline.cli.init import complete_demo_project
from cdc_pipeline.demo import SOURCE

if TYPE_CHECKING:
    from cdc_pipeline.demo.main import DemoReport

# Where the demo's project is made if the working directory has none.
_PROJECT: Final = Path("cdc_demo")


@click.command("demo")
@with_json
def command(settings: Settings) -> None:
    """Capture the recorded shop in two runs and compare its tables with the server's SELECT.

    In a folder without the demo's pipeline (jobs/shop.yaml) it makes a project for it in the folder
    cdc_demo. Without Dagster it keeps the cursor in the lake. A second demo resumes from the cursor
    and finds nothing to do.

    Exit codes: 0 all tables are equal; 1 a table differs, or a run failed.
    """
    next_step = _choose_project(settings)
    report = _run(settings, next_step)
    show_result(settings, report, _show)


def _choose_project(settings: Settings) -> str:
    """Made if there is none; returns what a user can look at there."""
    way = ""
    with_dagster = settings.cursor == "dagster" and has_dagster()
    is_default = settings.jobs_directory == Path("jobs")
    if is_default and not (settings.jobs_directory / f"{SOURCE}.yaml").is_file():
        if not with_dagster and settings.cursor == "dagster":
            note("Dagster is not installed: the demo keeps its cursor in the lake")
            settings.cursor = "lake"
        if complete_demo_project(_PROJECT, with_dagster=with_dagster):
            note(f"made the demo's project in {_PROJECT}")
        settings.jobs_directory = _PROJECT / "jobs"
        way = f"cd {_PROJECT}; there "
        if with_dagster:
            os.environ["DAGSTER_HOME"] = str((_PROJECT / "dagster_home").resolve())
    status = f"{way}`cdc-pipeline status {SOURCE}` shows its state"
    if not with_dagster:
        return status
    return (
        f'{status}; export DAGSTER_HOME="$PWD/dagster_home", and `dagster dev -w workspace.yaml` '
        "opens Dagster's pages"
    )


def _run(settings: Settings, next_step: str) -> DemoReport:
    config = settings.config_of(SOURCE)
    from cdc_pipeline.cli.common.output import notes
    from cdc_pipeline.cli.common.progress import ProgressObserver
    from cdc_pipeline.demo.main import run

    with (
        open_source(settings, config) as access,
        quiet_streams(quiet=not settings.debug) as stream,
        ExitStack() as bars,
    ):

        def observer_of(title: str) -> ProgressObserver:
            bars.close()  # the bar of the previous run
            notes(stream).print(title, style="bold")
            return bars.enter_context(ProgressObserver(stream))

        return run(
            config,
            cursors=access.cursors,
            capture=lambda bound, observer: access.capture(
                bound=bound, tables=(), observer=observer, on_waiting=lambda _holders: None
            ),
            next_step=next_step,
            observer_of=observer_of,
        )


def _show(report: DemoReport) -> None:
    from cdc_pipeline.cli.common.report import show_report

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
            outcome = "differs: " + "; ".join(check.differences) if check.differences else "equal"
            rows.add_row(check.table, f"{check.rows:,}", str(check.delta_version), outcome)
        out.print(rows)
        out.print()
    elif report.verified:
        out.print("The tables of this cut were compared before and equalled the server's SELECT.")
    now = report.status
    out.print(f"cursor: {now.journal}:{now.offset}, batch {now.batch_number}")
    if now.gtid_set:
        out.print(f"gtids:  {now.gtid_set}")
    out.print(report.next_step)
