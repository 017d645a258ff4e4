"""A capture's report as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.cli.output import results, table

if TYPE_CHECKING:
    from cdc_pipeline.pipeline.report import CaptureReport


def show_report(report: CaptureReport, *, run_id: str = "") -> None:
    """What the run did, in a few small tables on standard output."""
    out = results()
    interval = report.interval
    rows = table(f"{report.source}: {report.outcome.replace('_', ' ')}", "", "")
    rows.show_header = False
    rows.add_row("reason", report.reason)
    rows.add_row(
        "interval",
        f"{interval.start_journal}:{interval.start_offset} - {interval.end_journal}:{interval.end_offset}",
    )
    rows.add_row(
        "transactions", f"{interval.transactions_seen:,} seen, {interval.transactions_applied:,} with captured changes"
    )
    if report.recovered_batch is not None:
        rows.add_row("recovered", f"batch {report.recovered_batch} of an earlier run was finished first")
    rows.add_row("batches", f"{report.batches:,}")
    rows.add_row("time", f"{report.seconds:.1f} s, {report.cpu_seconds:.1f} s of CPU besides Spark")
    if report.cursor is not None:
        rows.add_row("cursor", f"{report.cursor.position}, batch {report.cursor.batch_number}")
    if run_id:
        rows.add_row("Dagster run", run_id)
    out.print(rows)
    if report.tables:
        _show_tables(report)
    if report.ddl:
        decisions = table("DDL", "journal", "offset", "decision", "kind", "tables", "why", numbers=("offset",))
        for ddl in report.ddl:
            decisions.add_row(ddl.journal, str(ddl.offset), ddl.decision, ddl.kind, ", ".join(ddl.tables), ddl.reason)
        out.print(decisions)


def _show_tables(report: CaptureReport) -> None:
    numbers = ("inserted", "updated", "deleted", "Delta version")
    rows = table("Rows", "table", *numbers, "", numbers=numbers)
    for name, of_table in sorted(report.tables.items()):
        rows.add_row(
            name,
            f"{of_table.rows_inserted:,}",
            f"{of_table.rows_updated:,}",
            f"{of_table.rows_deleted:,}",
            str(of_table.delta_version),
            "partial" if of_table.partial else "",
        )
    results().print(rows)
