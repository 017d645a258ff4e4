"""``cdc-pipeline backfill``: old journals, replayed for chosen tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import facts, quiet_streams, results, show_result
from cdc_pipeline.cli.common.ranges import POSITION
from cdc_pipeline.cli.common.settings import Settings, source_argument, tables_option, with_json
from cdc_pipeline.cli.common.source_access import operate
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.operations.backfill.backfill import BackfillReport
    from cdc_pipeline.operations.backfill.gap import GapReport
    from cdc_pipeline.operations.backfill.rebuild import RebuildReport
    from cdc_pipeline.run.report import ParallelReport


@click.command("backfill")
@source_argument()
@tables_option("Can be given more than once.", required=True)
@click.option("--into", metavar="PATH", help="Into a side lake: a folder or an object store URL.")
@click.option(
    "--rebuild",
    "is_rebuild",
    is_flag=True,
    help="Rebuild the tables of the lake, up to the cursor.",
)
@click.option(
    "--gap",
    "is_gap",
    is_flag=True,
    help="Into the changelog of one table, which must have no change in the range.",
)
@click.option(
    "--from", "begin", metavar=POSITION, help="Where to begin; default: the oldest journal."
)
@click.option(
    "--until", "end", metavar=POSITION, help="Where to end; default: the current end of the log."
)
@click.option(
    "--archive",
    type=click.Path(path_type=Path, file_okay=False),
    help="A directory of journals. With --into it is read instead of the source, with --rebuild "
    "before the source.",
)
@click.option(
    "--parallel",
    is_flag=True,
    help="Decode an archive's journals in parallel on Spark's executors.",
)
@click.option(
    "--restart",
    is_flag=True,
    help="With --rebuild or --gap: give up what is unfinished, or was rebuilt, and start again.",
)
@with_json
def command(
    settings: Settings,
    *,
    source: str,
    tables: tuple[str, ...],
    into: str | None,
    is_rebuild: bool,
    is_gap: bool,
    begin: str | None,
    end: str | None,
    archive: Path | None,
    parallel: bool,
    restart: bool,
) -> None:
    """Replay a range of SOURCE's journals for some tables.

    A POSITION is a journal with or without an offset (binlog.000007:4), a GTID, or a time with a
    zone. A GTID set of --from counts as executed; the GTID of --until is the last transaction.

    With --into the rows go into a separate lake; the cursor and the tables of SOURCE stay as they
    are. With --rebuild the tables of SOURCE's lake are rebuilt from their CREATE TABLE on,
    beside the old ones, and replace them at the cursor. With --gap the changes of the range are
    appended to a changelog that has none of them. The schedule continues. The same command
    continues an unfinished backfill, and does nothing after a finished one.

    Exit codes: 0 done, or done before; 1 failed, with the next step; 2 the request is wrong or
    impossible.
    """
    if (into is not None) + is_rebuild + is_gap != 1:
        raise click.UsageError("give exactly one of --into PATH, --rebuild and --gap")
    if is_gap and (len(tables) != 1 or not begin or not end or parallel):
        raise click.UsageError(
            "--gap needs one --table, --from and --until, and excludes --parallel"
        )
    if is_rebuild and end:
        raise click.UsageError("--until cannot be used with --rebuild, which ends at the cursor")
    if restart and into is not None:
        raise click.UsageError(
            "--restart excludes --into; to backfill another range, give another --into"
        )
    config = settings.config_of(source)  # its mistakes first, before anything heavy is loaded
    from cdc_pipeline.run.bounds import end_of, start_of

    first, last = start_of(begin), end_of(end)
    from cdc_pipeline.run.capture.segments.division import Parallel

    side_by_side = Parallel() if parallel else None
    if is_gap:
        from cdc_pipeline.operations.backfill.gap import fill_gap

        fill = partial(fill_gap, config, table=tables[0], start=first, end=last, archive=archive)
        filled = operate(settings, config, "backfill", lambda how: fill(restart=restart, **how))
        show_result(settings, filled, _show_filled)
    elif into is None:
        from cdc_pipeline.operations.backfill.rebuild import rebuild

        replace = partial(rebuild, config, tables=tables, start=first, parallel=side_by_side)
        rebuilt = operate(
            settings,
            config,
            "backfill",
            lambda how: replace(archive=archive, restart=restart, **how),
        )
        show_result(settings, rebuilt, _show_rebuilt)
    else:
        from cdc_pipeline.cli.common.progress import ProgressObserver
        from cdc_pipeline.operations.backfill.backfill import backfill

        read = partial(backfill, config, tables=tables, into=into, start=first, end=last)
        with quiet_streams(quiet=not settings.debug) as stream, ProgressObserver(stream) as shown:
            report = read(archive=archive, parallel=side_by_side, observer=shown)
        show_result(settings, report, _show)


def _show_filled(report: GapReport) -> None:
    counts = ", ".join(f"{name} {count_of(rows, 'change')}" for name, rows in report.rows.items())
    results().print(f"{report.source}: {report.reason}: {counts}")


def _show(report: BackfillReport) -> None:
    out = results()
    rows = [
        ("reason", report.reason),
        ("lake", report.lake),
        ("tables", ", ".join(report.tables)),
        ("range", f"{report.start} - {report.end}"),
    ]
    if report.partial:
        names = ", ".join(report.partial)
        rows.append(("partial", f"{names}: rows from before the range are missing"))
    if report.capture is not None:
        rows.append(("batches", f"{report.batches:,}"))
    title = f"Backfill of {report.source}: {report.outcome.replace('_', ' ')}"
    out.print(facts(title, [*rows, *_of_parallel(report.parallel)]))
    if report.tables_changed:
        from cdc_pipeline.cli.common.report import show_tables

        out.print()
        show_tables(report.tables_changed)


def _show_rebuilt(report: RebuildReport) -> None:
    out = results()
    rows = [("reason", report.reason), ("tables", ", ".join(report.tables))]
    for name, target in report.targets.items():
        count = "" if target.rows < 0 else f"{count_of(target.rows, 'row')}, "
        text = f"{name}: {count}Delta version {target.delta_version}, cut {target.cut}"
        rows.append(("rebuilt", text))
    title = f"Rebuild of {report.source}: {report.outcome.replace('_', ' ')}"
    out.print(facts(title, [*rows, *_of_parallel(report.parallel)]))
    for note in report.notes:
        if note.kind != "loaded":
            out.print(f"{note.table}: {note.text}")


def _of_parallel(done: ParallelReport | None) -> Iterator[tuple[str, str]]:
    if done is None:
        return
    of_all = f"{done.bytes_parallel:,} of {done.bytes_parallel + done.bytes_sequential:,} bytes"
    batches = f"{done.batches:,} batch" + ("" if done.batches == 1 else "es")
    yield "in parallel", f"{of_all}, in {count_of(done.tasks, 'task')}, {batches}"
    for why in done.one_after_the_other:
        yield "sequential", why
