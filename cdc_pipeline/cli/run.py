"""``cdc-pipeline run``: one capture, as a run of the source's Dagster job or without Dagster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from cdc_pipeline.cli.common.activity import ended
from cdc_pipeline.cli.common.output import (
    emit_json,
    error_document,
    quiet_streams,
    show_error,
    show_result,
)
from cdc_pipeline.cli.common.ranges import with_bound
from cdc_pipeline.cli.common.report import show_report
from cdc_pipeline.cli.common.settings import Settings, source_argument, tables_option, with_json
from cdc_pipeline.cli.common.source_access import open_source
from cdc_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import Bound


@click.command("run")
@source_argument()
@tables_option("Only catch up this suspended table with the cursor; can be given more than once.")
@click.option(
    "--cursor",
    type=click.Choice(["dagster", "lake"]),
    help="Where its cursor is kept: a run of its Dagster job, or a capture without Dagster. By "
    "default what `cdc-pipeline --cursor` or CDC_PIPELINE_CURSOR says.",
)
@with_bound
@with_json
def command(
    settings: Settings,
    *,
    source: str,
    tables: tuple[str, ...],
    cursor: Literal["dagster", "lake"] | None,
    bound: Bound | None,
) -> None:
    """Capture SOURCE once, from its cursor to the bound.

    Executes the source's Dagster job in this process: Dagster shows the run, its materializations
    and its logs like those of any other run. With --cursor lake it captures without Dagster, and
    the cursor is kept in the lake. If a run of the same source is under way, waits for it to end.

    After the capture, suspended tables are caught up; with --table nothing else is done.

    Exit codes: 0 captured, or proved that there is nothing new; 1 failed, or a table is suspended
    while the others continued; 2 wrong usage or configuration.
    """
    if tables and bound is not None:
        raise click.UsageError(
            "--table cannot be combined with a bound: a suspended table is caught up to the cursor"
        )
    settings.cursor = cursor or settings.cursor
    config = settings.config_of(source)  # its mistakes first, before anything heavy is loaded
    from cdc_pipeline.cli.common.progress import ProgressObserver

    with open_source(settings, config) as access:
        try:
            with (
                quiet_streams(quiet=not settings.debug) as stream,
                ProgressObserver(stream) as progress,
            ):
                report = access.capture(
                    bound=bound, tables=tables, observer=progress, on_waiting=progress.waiting
                )
        except Exception as error:
            if settings.debug or settings.cursor == "lake" or not access.run_id:
                raise
            _fail(settings, error, access.run_id)
    of_dagster = "" if settings.cursor == "lake" else access.run_id
    show = partial(show_report, run_id=of_dagster)
    show_result(settings, report, show, run_id=access.run_id)


def _fail(settings: Settings, error: Exception, run_id: str) -> NoReturn:
    """As any command, and with the run in Dagster."""
    if settings.as_json:
        emit_json({"run_id": run_id, **error_document(error)})
    else:
        show_error(error, as_json=False)
        ended()
        click.echo(f"see Dagster run {run_id} for the logs", err=True)
    raise click.exceptions.Exit(2 if isinstance(error, ConfigError) else 1)
