"""``cdc-pipeline reset``: tables that are wrong until a new snapshot has replaced them."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import confirm, operator, results, show_result
from cdc_pipeline.cli.common.settings import (
    Settings,
    reason_option,
    source_argument,
    with_json,
    yes_option,
)
from cdc_pipeline.cli.common.source_access import operate

if TYPE_CHECKING:
    from cdc_pipeline.operations.reset import ResetReport
    from cdc_pipeline.run.observer import OperationRun


@click.command("reset")
@source_argument()
@click.argument("tables", nargs=-1, required=True, metavar="SCHEMA.TABLE...")
@reason_option
@yes_option
@with_json
def command(
    settings: Settings, *, source: str, tables: tuple[str, ...], reason: str, yes: bool
) -> None:
    """Mark tables of SOURCE as wrong, so that the next snapshot reads them again.

    Nothing is deleted and nothing is read: old rows stay readable, and runs keep applying changes
    to them. Until `cdc-pipeline snapshot SOURCE` has replaced them, status and plan say that the
    tables need a snapshot, and verify leaves them out. This is recorded in a cut. To read a table
    again at once, `cdc-pipeline snapshot SOURCE --table SCHEMA.TABLE` alone is enough.

    Exit codes: 0 done, or they needed a snapshot already; 1 failed; 2 wrong usage or
    configuration, no such table, or not confirmed.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.reset import named_targets, reset
    from cdc_pipeline.run.wiring import build_sink

    chosen = named_targets(config, build_sink(config).last_cut(), tables)
    happens = "count as wrong until a new snapshot replaces the rows"
    confirm(settings, ", ".join(sorted(chosen)), happens, yes=yes)

    def work(run: OperationRun) -> ResetReport:
        cursors, run_id = run["cursors"], run["run_id"]
        return reset(
            config, cursors=cursors, tables=tables, who=operator(), why=reason, run_id=run_id
        )

    report = operate(settings, config, "reset", work)
    show_result(settings, report, _show)


def _show(report: ResetReport) -> None:
    out = results()
    names = ", ".join(report.targets)
    if report.cut is None:
        out.print(f"nothing to do: {names} needed a snapshot already")
    else:
        out.print(f"{report.source}: cut {report.cut} records that {names} needs a new snapshot")
    tables = " ".join(f"--table {quote(name)}" for name in report.tables)
    out.print(f"  next  cdc-pipeline snapshot {report.source} {tables}")
