"""``cdc-pipeline quarantine list|show|replay|discard``: rows that could not be applied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import click

from cdc_pipeline.cli.common.output import confirm, emit_json, facts, operator, results, table
from cdc_pipeline.cli.common.settings import (
    CommandGroup,
    Settings,
    reason_option,
    source_argument,
    tables_option,
    with_json,
    yes_option,
)
from cdc_pipeline.cli.common.source_access import operate
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.lake.quarantine import Entry
    from cdc_pipeline.operations.quarantine_replay import SettleResult
    from cdc_pipeline.orchestration.translator import RunKind
    from cdc_pipeline.run.observer import OperationRun


@click.group("quarantine", cls=CommandGroup)
def command() -> None:
    """Show rows that could not be applied, replay them, or discard them. Each command takes --json.

    Exit codes: 0 done; 1 failed, or some rows could not be replayed; 2 wrong usage, or a change
    that was not confirmed.
    """


@command.command("list")
@source_argument()
@tables_option("Only of this source table.")
@click.option(
    "--all", "settled", is_flag=True, help="Include rows that were replayed or discarded."
)
@with_json
def list_(settings: Settings, *, source: str, tables: tuple[str, ...], settled: bool) -> None:
    """List the rows of SOURCE that wait in quarantine. Asks no server and starts no JVM."""
    config = settings.config_of(source)
    from cdc_pipeline.operations.quarantine_replay import entries_of

    entries = entries_of(config, tables=tables, only_open=not settled)
    if settings.as_json:
        emit_json([_document(entry) for entry in entries])
        return
    rows = table(f"Quarantine of {source}", "id", "table", "at", "error", "")
    for entry in entries:
        what = "" if entry.mark is None else f"{entry.mark.what} by {entry.mark.who}"
        rows.add_row(
            entry.id,
            entry.table,
            f"{entry.journal}:{entry.offset}",
            f"{entry.error}: {entry.what}",
            what,
        )
    results().print(rows if entries else f"{source}: no row is in quarantine")


@command.command("show")
@source_argument()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@with_json
def show(settings: Settings, *, source: str, ids: tuple[str, ...]) -> None:
    """Show rows in SOURCE's quarantine completely: their images and their positions in the log."""
    config = settings.config_of(source)
    from cdc_pipeline.operations.quarantine_replay import entries_of

    entries = entries_of(config, ids=ids, only_open=False)
    if settings.as_json:
        emit_json([_document(entry, whole=True) for entry in entries])
        return
    out = results()
    for entry in entries:
        rows = (
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in _document(entry, whole=True).items()
        )
        out.print(facts(f"{entry.id}: {entry.table}", rows))
        out.print()


@command.command("replay")
@source_argument()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@tables_option("Rows of this source table.")
@click.option(
    "--even-if-deleted",
    is_flag=True,
    help="Rows have left the table since the quarantine; confirm that the keys of these rows "
    "are not among them.",
)
@reason_option
@yes_option
@with_json
def replay(settings: Settings, **options: Any) -> None:
    """Replay rows of SOURCE with the current settings and columns: all that wait, or the named
    ones.

    A row that the table has received again since stays as it is. Exit code 1 if some rows could not
    be replayed.
    """
    _settle(settings, "replayed", **options)


@command.command("discard")
@source_argument()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@tables_option("Rows of this source table.")
@reason_option
@yes_option
@with_json
def discard(settings: Settings, **options: Any) -> None:
    """Discard rows of SOURCE: the named ones, or all of --table. This is recorded; their files
    stay.
    """
    if not options["ids"] and not options["tables"]:
        raise click.UsageError(
            "name rows by id, or a table with --table: nothing is discarded by accident"
        )
    _settle(settings, "discarded", **options)


def _settle(
    settings: Settings,
    what: Literal["replayed", "discarded"],
    *,
    source: str,
    ids: tuple[str, ...],
    tables: tuple[str, ...],
    even_if_deleted: bool = False,
    reason: str,
    yes: bool,
) -> None:
    config = settings.config_of(source)
    from cdc_pipeline.operations.quarantine_replay import SettleResult, entries_of, settle

    entries = entries_of(config, tables=tables, ids=ids)
    settled = SettleResult()
    if entries:
        confirm(settings, count_of(len(entries), "row"), f"be {what}", yes=yes)

        def work(run: OperationRun) -> SettleResult:
            return settle(
                config,
                cursors=run["cursors"],
                what=what,
                who=operator(),
                why=reason,
                tables=tables,
                ids=ids,
                even_if_deleted=even_if_deleted,
                run_id=run["run_id"],
            )

        kind: RunKind = "quarantine_replay" if what == "replayed" else "quarantine_discard"
        settled = operate(settings, config, kind, work)
    _report(settings, source, what, settled)
    if settled.left:
        raise click.exceptions.Exit(1)


def _report(settings: Settings, source: str, what: str, settled: SettleResult) -> None:
    if settings.as_json:
        emit_json(
            {
                "source": source,
                what: settled.done,
                "left": settled.left,
                "batch_number": settled.batch_number,
            }
        )
        return
    out = results()
    at = "" if settled.batch_number is None else f" in batch {settled.batch_number}"
    out.print(
        f"{source}: {count_of(len(settled.done), 'row')} {what}{at}, {len(settled.left):,} "
        "left in quarantine"
    )
    for name, why in settled.left.items():
        out.print(f"  {name}: {why}")


def _document(entry: Entry, *, whole: bool = False) -> dict[str, object]:
    document: dict[str, object] = {
        "id": entry.id,
        "table": entry.table,
        "journal": entry.journal,
        "offset": entry.offset,
        "gtid": entry.gtid,
        "seq": entry.seq,
        "error": entry.error,
        "what": entry.what,
    }
    if entry.mark is not None:
        document["mark"] = entry.mark.model_dump()
    if whole:
        document["change"] = json.loads(entry.change) if entry.change else None
        document["raw_hex"] = entry.raw.hex()
        document["schema"] = json.loads(entry.schema) if entry.schema else None
    return document
