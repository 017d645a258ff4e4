"""``cdc-pipeline backfill``: old journals, replayed for chosen tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.output import count_of, emit_json, quiet_streams, results, table
from cdc_pipeline.cli.settings import Settings, with_json

if TYPE_CHECKING:
    from cdc_pipeline.pipeline.backfill import BackfillReport


@click.command("backfill")
@click.argument("source")
@click.option(
    "--table", "tables", multiple=True, required=True, metavar="SCHEMA.TABLE", help="May be given more than once."
)
@click.option("--into", required=True, metavar="PATH", help="The side lake: a folder, or an object store's address.")
@click.option("--from", "begin", default="", metavar="PLACE", help="Where to begin; default: the oldest journal.")
@click.option("--to", "end", default="", metavar="PLACE", help="Where to end; default: where the log ends now.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path, file_okay=False),
    help="Read this directory of journals in place of the source.",
)
@click.option("--parallel", is_flag=True, help="Decode an archive's journals side by side, on Spark's executors.")
@with_json
def command(
    settings: Settings,
    *,
    source: str,
    tables: tuple[str, ...],
    into: str,
    begin: str,
    end: str,
    archive: Path | None,
    parallel: bool,
) -> None:
    """Replay a range of SOURCE's journals for some tables into a lake of its own.

    A PLACE is a journal with or without an offset (binlog.000007:4), a GTID, or a time with its zone. A GTID set of
    --from counts as executed; the GTID of --to is the last transaction.

    Neither the cursor nor the lake of SOURCE is touched, and its schedule goes on. What is done is done: the same
    command again reads nothing. A killed one goes on where it was.
    """
    config = settings.config_of(source)  # its mistakes first, before anything heavy is loaded
    from cdc_pipeline.pipeline.backfill_range import end_of, start_of

    first, last = start_of(begin), end_of(end)
    from cdc_pipeline.cli.progress import ProgressObserver
    from cdc_pipeline.pipeline.backfill import backfill
    from cdc_pipeline.pipeline.backfill_parallel import Parallel

    with quiet_streams(quiet=not settings.debug) as stream, ProgressObserver(stream) as progress:
        report = backfill(
            config,
            tables=tables,
            into=into,
            start=first,
            end=last,
            archive=archive,
            parallel=Parallel() if parallel else None,
            observer=progress,
        )
    if settings.as_json:
        emit_json(report.model_dump(mode="json"))
    else:
        _show(report)


def _show(report: BackfillReport) -> None:
    out = results()
    rows = table(f"Backfill of {report.source}: {report.outcome.replace('_', ' ')}", "", "")
    rows.show_header = False
    rows.add_row("reason", report.reason)
    rows.add_row("lake", report.lake)
    rows.add_row("tables", ", ".join(report.tables))
    rows.add_row("range", f"{report.start} - {report.end}")
    if report.partial:
        rows.add_row("partial", f"{', '.join(report.partial)}: what was there before the range is not in it")
    if report.capture is not None:
        seen = report.capture.interval
        rows.add_row(
            "transactions", f"{seen.transactions_seen:,} seen, {seen.transactions_applied:,} with their changes"
        )
        rows.add_row("time", f"{report.capture.seconds:.1f} s, {report.capture.cpu_seconds:.1f} s of CPU besides Spark")
    if report.parallel is not None:
        done = report.parallel
        of_all = f"{done.bytes_parallel:,} of {done.bytes_parallel + done.bytes_sequential:,} bytes"
        rows.add_row("in parallel", f"{of_all}, in {count_of(done.tasks, 'task')}, {count_of(done.batches, 'batch')}")
        for number, why in enumerate(done.one_after_the_other):
            rows.add_row("one by one" if number == 0 else "", why)
    out.print(rows)
    if report.tables_changed:
        from cdc_pipeline.cli.report import show_tables

        out.print()
        show_tables(report.tables_changed)
