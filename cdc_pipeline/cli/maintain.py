"""``cdc-pipeline maintain``: compaction and vacuum, where they pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import emit_json, notes, quiet_streams, results, table
from cdc_pipeline.cli.common.settings import Settings, source_argument, tables_option, with_json
from cdc_pipeline.cli.common.source_access import check_dagster
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.sink.maintain.maintenance import MaintenanceReport, TableMaintenance


@click.command("maintain")
@source_argument()
@tables_option("Only this table; can be given more than once.")
@with_json
def command(settings: Settings, *, source: str, tables: tuple[str, ...]) -> None:
    """Compact and vacuum the tables of SOURCE when it pays off, and set their retention to
    sink.cut_retention. Delete runs from Dagster that are older than maintenance.run_retention, if
    that is set.

    May run beside a capture. Starts Spark only if something is due. Exit codes: 0 done; 1 a table
    failed; 2 no such table.
    """
    config = settings.config_of(source)
    from cdc_pipeline.config.pipeline_config import MaintenanceConfig
    from cdc_pipeline.sink.maintain.maintenance import maintain
    from cdc_pipeline.sink.read.cuts import paths_of

    with quiet_streams(quiet=not settings.debug) as stream:
        progress = notes(stream)
        report = maintain(
            paths_of(config.sink.lake_path, source),
            config.sink,
            config.maintenance or MaintenanceConfig(),
            tables=tables or None,
            on_table=lambda done: progress.print(f"{done.table}: {said(done)}"),
        )
    runs_deleted = _delete_runs(settings, config)
    if settings.as_json:
        emit_json({**report.model_dump(mode="json"), "runs_deleted": runs_deleted})
    else:
        _show(report)
        if runs_deleted:
            runs = count_of(runs_deleted, "run")
            results().print(f"{runs} older than maintenance.run_retention deleted from Dagster")
    if report.failed:
        raise click.exceptions.Exit(1)


def _delete_runs(settings: Settings, config: PipelineConfig) -> int:
    if config.maintenance is None or config.maintenance.run_retention is None:
        return 0
    if settings.cursor == "lake":
        return 0  # its runs are not Dagster's
    check_dagster(
        "maintenance.run_retention deletes runs from Dagster",
        otherwise="remove maintenance.run_retention",
    )
    from cdc_pipeline.orchestration.jobs.run_retention import delete_old_runs
    from cdc_pipeline.orchestration.runs.execute import load_source, open_instance

    with open_instance() as instance:
        return delete_old_runs(
            instance,
            source=config.name,
            retention=config.maintenance.run_retention,
            translator=load_source(settings.jobs_directory, config.name).translator,
        )


def said(done: TableMaintenance) -> str:
    parts = []
    if done.properties:
        parts.append("retention set")
    if done.optimized:
        parts.append(f"compacted {count_of(done.files_removed, 'file')} into {done.files_added}")
    if done.vacuum:
        found = (
            "" if done.files_deleted < 0 else f", {count_of(done.files_deleted, 'file')} deleted"
        )
        parts.append(f"vacuumed ({done.vacuum}{found})")
    if done.skipped:
        parts.append(done.skipped)
    return "; ".join(parts) or "nothing is due"


def _show(report: MaintenanceReport) -> None:
    rows = table(
        f"Maintenance of {report.source}", "table", "files", "small", "deleted rows", "done",
        numbers=("files", "small", "deleted rows"),
    )  # fmt: skip
    for done in report.tables:
        rows.add_row(
            done.table,
            f"{done.files:,}",
            f"{done.small_files:,}",
            f"{done.deleted_share:.1%}",
            said(done),
        )
    out = results()
    out.print(rows)
    if report.cuts_removed:
        out.print(f"{count_of(report.cuts_removed, 'cut')} older than sink.cut_retention removed")
