"""``cdc-pipeline status``: where sources stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import (
    emit_json,
    error_document,
    results,
    show_error,
    styled,
    table,
)
from cdc_pipeline.cli.common.report import rescued_text, show_differing
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import LakeAccess, open_source
from cdc_pipeline.clock import time_of
from cdc_pipeline.config.modes import MODES, key_label
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.operations.plan_text import operation_line, xa_line
from cdc_pipeline.text.wording import by_reason, count_of, duration, listed, moment_text

if TYPE_CHECKING:
    from rich.console import Console

    from cdc_pipeline.operations.status import SourceStatus


@click.command("status")
@source_argument(required=False)
@click.option(
    "--cursor",
    "with_cursor",
    is_flag=True,
    help="Read the cursor from Dagster too, and compare it with the last cut.",
)
@with_json
def command(settings: Settings, *, source: str | None, with_cursor: bool) -> None:
    """Show the last cut and the tables of SOURCE; of several sources, a line each. Asks no server
    and starts no JVM.

    Runs that find nothing to apply move the cursor alone, in Dagster: it may be later than the last
    cut. With --cursor, position and open XA transactions are those of the cursor.

    Exit codes: 0 no table is suspended; 1 a table is suspended, the lake's records are damaged, or
    the cursor contradicts them; 2 wrong usage or configuration.
    """
    statuses: dict[str, SourceStatus | CdcError] = {}
    names = [source] if source is not None else settings.source_names()
    if not names:
        raise settings.no_source_yet()
    for name in names:
        try:
            statuses[name] = _status(settings, name, with_cursor=with_cursor)
        except CdcError as error:
            if source is not None:
                raise
            statuses[name] = error
    if settings.as_json:
        documents = {
            name: error_document(value)
            if isinstance(value, CdcError)
            else value.model_dump(mode="json")
            for name, value in statuses.items()
        }
        emit_json(documents[source] if source is not None else documents)
    elif len(statuses) > 1:
        _show_overview(statuses)
    else:
        for value in statuses.values():
            if isinstance(value, CdcError):
                show_error(value, as_json=False)
            else:
                _show(value)
    code = max(map(_exit_code, statuses.values()), key=(0, 2, 1).index)
    if code:
        raise click.exceptions.Exit(code)


def _exit_code(value: SourceStatus | CdcError) -> int:
    """1 for what a run or a person must correct, 2 for a wrong file."""
    if isinstance(value, ConfigError):
        return 2
    return 1 if isinstance(value, CdcError) or value.suspended else 0


def _show_overview(found: Mapping[str, SourceStatus | CdcError]) -> None:
    numbers = ("tables", "behind")
    rows = table("Sources", *("source", "state", "position", *numbers, ""), numbers=numbers)
    for name, value in found.items():
        if isinstance(value, CdcError):
            rows.add_row(name, styled(("error", "red")), "", "", "", "see below")
            continue
        style = {"ready": "green", "suspended": "red"}.get(value.state, "yellow")
        position = f"{value.journal}:{value.offset}" if value.journal else ""
        rows.add_row(
            name,
            styled((value.state.replace("_", " "), style)),
            position,
            f"{len(value.tables):,}" if value.journal else "",
            duration(value.lag_s) if value.lag_s >= 0 else "",
            _attention(value),
        )
    results().print(rows)
    for value in found.values():
        if isinstance(value, CdcError):
            show_error(value, as_json=False)


def _attention(status: SourceStatus) -> str:
    """What a person should look at, on one line; "" if there is nothing."""
    waiting = sum(status.quarantine.values())
    parts = [
        f"suspended: {listed(status.suspended, most=3)}" if status.suspended else "",
        f"needs a snapshot: {listed(status.needing_snapshot, most=3)}"
        if status.needing_snapshot
        else "",
        f"{count_of(waiting, 'row')} in quarantine" if waiting else "",
        f"{count_of(len(status.open_xa), 'prepared XA transaction')}" if status.open_xa else "",
        "the next run finishes a recorded batch" if status.unfinished_batch is not None else "",
        *(
            f"{one.kind} {'under way' if one.is_running else 'stopped'}"
            for one in status.operations
        ),
    ]
    return "; ".join(filter(None, parts))


def _status(settings: Settings, source: str, *, with_cursor: bool) -> SourceStatus:
    config = settings.config_of(source)
    from cdc_pipeline.operations.status import status
    from cdc_pipeline.run.plan.reconcile import reconcile

    if with_cursor:
        with open_source(settings, config) as access:
            return status(config, cursors=access.cursors)
    report = status(config)
    if report.state == "no_cut":  # a lake that was lost looks like a new one, but to its cursor
        try:
            cursor = LakeAccess(settings, config).cursors.read()
        except Exception as error:  # of Dagster's storage, or of definitions: this needs neither
            what = error.what if isinstance(error, CdcError) else type(error).__name__
            reason = f"{report.reason}; Dagster's cursor cannot be read: {what}"
            return report.model_copy(update={"reason": reason})
        reconcile(cursor, None)
    return report


def _show(status: SourceStatus) -> None:
    out = results()
    out.print(
        styled((status.source, "bold"), f": {status.state.replace('_', ' ')} ({status.reason})")
    )
    if status.unfinished_batch is not None:
        out.print(
            f"  batch {status.unfinished_batch} is recorded but unfinished; the next run "
            "finishes it first"
        )
    if status.journal:
        _show_place(out, status)
    for operation in status.operations:
        out.print(f"  {operation_line(operation)}")
    _show_tables(out, status)
    _show_attention(out, status)


def _show_place(out: Console, status: SourceStatus) -> None:
    out.print(
        f"  {status.position_of:<6}  {status.journal}:{status.offset}, batch "
        f"{status.batch_number}, server {status.identity}"
    )
    if status.gtid_set:
        out.print(f"  gtids   {status.gtid_set}")
    if status.oldest_needed is not None and status.oldest_needed.name != "cursor":
        oldest = status.oldest_needed
        out.print(f"  needed  from {oldest.position} on, by {oldest.name}: the source must keep it")
    for xa in status.open_xa:
        out.print(f"  xa      {xa_line(xa)}")
    if status.source_time_us >= 0:
        when = moment_text(time_of(status.source_time_us))
        behind = f", {duration(status.lag_s)} ago" if status.lag_s >= 0 else ""
        out.print(f"  until   the last applied transaction was committed at {when}{behind}")


def _show_tables(out: Console, status: SourceStatus) -> None:
    numbers = ("Delta version", "last batch", "columns")
    rows = table("", "table", *numbers, "mode", "key", "", numbers=numbers)
    for name, of_table in sorted(status.tables.items()):
        rows.add_row(
            name,
            str(of_table.delta_version),
            str(of_table.applied_batch),
            str(of_table.columns),
            MODES[of_table.mode].label,
            key_label(of_table.mode, of_table.key),
            "suspended"
            if of_table.suspended is not None
            else "dropped at the source"
            if of_table.is_dropped
            else "partial"
            if of_table.partial
            else "",
        )
    if rows.row_count:
        out.print()
        out.print(rows)
        out.print()


def _show_attention(out: Console, status: SourceStatus) -> None:
    from cdc_pipeline.lake.suspensions import sentence, way_out

    for name, number in sorted(status.quarantine.items()):
        out.print(f"{name}: {count_of(number, 'row')} in quarantine")
    for name, of_table in sorted(status.tables.items()):
        if of_table.rescued:
            out.print(f"{name}: rescued values so far: {rescued_text(of_table.rescued)}")
        suspension = of_table.suspended
        if suspension is not None:
            out.print(sentence(name, suspension))
            out.print(f"  {way_out(name, suspension, source=status.source)}")
    for name, proof in sorted(status.proofs.items()):
        out.print(f"{name}: {proof.summary}", markup=False)
    show_differing(status.proofs)
    if status.pass_runs is not None:
        out.print(f"all rows are proved in {count_of(status.pass_runs, 'run')} at most")
    for why, names in by_reason(
        {name: one.needs_snapshot for name, one in status.tables.items() if one.needs_snapshot}
    ):
        out.print(f"{'needs' if len(names) == 1 else 'need'} a snapshot: {listed(names)}: {why}")
    needing = [one.next_step for one in status.tables.values() if one.needs_snapshot]
    if needing:
        command = needing[0] if len(needing) == 1 else f"cdc-pipeline snapshot {status.source}"
        out.print(f"  {command}")
