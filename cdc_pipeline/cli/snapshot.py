"""``cdc-pipeline snapshot``: the server's rows of tables, while the source is captured as ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import results, show_result, styled, table
from cdc_pipeline.cli.common.settings import Settings, source_argument, tables_option, with_json
from cdc_pipeline.cli.common.source_access import operate
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.operations.snapshot.report import SnapshotReport
    from cdc_pipeline.operations.verify.reread import RepairReport


@click.command("snapshot")
@source_argument()
@tables_option("This table, whether it needs a snapshot or not; can be given more than once.")
@click.option(
    "--restart",
    is_flag=True,
    help="Give up unfinished snapshots of these tables (with --where: rereads) and start again.",
)
@click.option(
    "--where",
    metavar="SQL",
    help="Only reread the rows of one --table that satisfy this condition.",
)
@with_json
def command(
    settings: Settings, *, source: str, tables: tuple[str, ...], restart: bool, where: str | None
) -> None:
    """Take a snapshot of tables of SOURCE: read the server's rows of those that are not in the
    lake, are partial, or need a new snapshot.

    Takes no lock and writes nothing to the server. The tables' old rows stay readable, and all
    tables stay in sync, until the new rows are complete. To continue a snapshot that was stopped,
    run the same command again.

    With --where the server's rows that satisfy the condition are repaired in the table; all other
    rows stay.

    Exit codes: 0 done, or no table needs a snapshot; 1 failed, with the next step; 2 wrong usage or
    configuration.
    """
    config = settings.config_of(source)
    if where is not None and len(tables) != 1:
        raise click.UsageError("--where needs exactly one --table")
    if where is not None:
        from cdc_pipeline.operations.verify.reread import repair

        repaired = operate(
            settings,
            config,
            "repair",
            lambda how: repair(config, table=tables[0], where=where, restart=restart, **how),
        )
        show_result(settings, repaired, _show_repair)
        return
    from cdc_pipeline.operations.snapshot.snapshot import take_snapshot

    report = operate(
        settings,
        config,
        "snapshot",
        lambda how: take_snapshot(config, tables=tables or None, restart=restart, **how),
    )
    show_result(settings, report, _show)


def _show(report: SnapshotReport) -> None:
    out = results()
    out.print(styled((report.source, "bold"), f": {report.reason}"))
    for operation_id in report.resumed:
        out.print(f"  the snapshot {operation_id} continued where it was stopped")
    for name, why in report.restarted.items():
        for one in why:
            out.print(f"  {name} was read from scratch: {one}")
    if report.targets:
        numbers = ("rows", "chunks", "Delta version")
        rows = table("", "table", *numbers, "low mark", "complete from", numbers=numbers)
        for name, target in report.targets.items():
            count = "" if target.rows < 0 else f"{target.rows:,}"
            places = str(target.low), str(target.high)
            rows.add_row(name, count, f"{target.chunks:,}", str(target.delta_version), *places)
        out.print(rows)
    for name, target in report.targets.items():
        if target.rows_quarantined:
            waiting = count_of(target.rows_quarantined, "row")
            out.print(f"{name}: {waiting} in quarantine")
    for note in report.notes:
        if note.kind != "loaded":
            out.print(f"{note.table}: {note.text}")
    out.print(
        f"{report.rows:,} rows read in {report.seconds:.1f} s, {report.cpu_seconds:.1f} s of CPU "
        "apart from Spark"
    )


def _show_repair(report: RepairReport) -> None:
    left = f", {count_of(report.rows_left, 'row')} left as in the log" if report.rows_left else ""
    done = (
        f": {report.table}: {count_of(report.rows_written, 'row')} written in "
        f"{count_of(report.rounds, 'round')}{left}"
    )
    results().print(styled((report.source, "bold"), done))
