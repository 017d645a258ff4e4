"""``cdc-pipeline binlog``: what is in journals."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.output import count_of, emit_json, notes, results, table
from cdc_pipeline.cli.settings import Settings, with_json

if TYPE_CHECKING:
    from cdc_pipeline.pipeline.inspect import JournalSummary


@click.command("binlog")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "form", type=click.Choice(["summary", "jsonl"]), default="summary", show_default=True)
@click.option("--table", "patterns", multiple=True, metavar="PATTERN", help="Only these tables, such as shop.*")
@with_json
def command(settings: Settings, *, paths: tuple[Path, ...], form: str, patterns: tuple[str, ...]) -> None:
    """Show what is in the journals at PATH: files, or directories of them.

    A summary by event type and table, or with --format jsonl every change, one JSON object per line. A journal that
    cannot be read to its end shows what came before, and ends with exit code 1.
    """
    if form == "jsonl" and settings.as_json:
        raise click.UsageError("--json asks for one document, --format jsonl for one per line: give one of them")
    if form == "summary" and patterns:
        raise click.UsageError("--table goes with --format jsonl: the summary is of all tables")
    from cdc_pipeline.pipeline.inspect import changes, inspect

    if form == "jsonl":
        for line in changes(paths, table_patterns=patterns):
            sys.stdout.write(line.rstrip("\n") + "\n")
        return
    summary = inspect(paths)
    if settings.as_json:
        emit_json(summary.model_dump(mode="json"))
    else:
        _show(summary)
    if summary.error is not None:
        raise click.exceptions.Exit(1)


def _show(summary: JournalSummary) -> None:
    out = results()
    journals = table(
        "Journals",
        "journal",
        "bytes",
        "events",
        "first event, UTC",
        "last event, UTC",
        "server",
        numbers=("bytes", "events"),
    )
    for info in summary.journals:
        times = (_time(info.first_time_s), _time(info.last_time_s))
        journals.add_row(info.journal, f"{info.size_bytes:,}", f"{info.events:,}", *times, info.server_version)
    out.print(journals)
    prepared = f", {summary.prepared:,} prepared (XA)" if summary.prepared else ""
    out.print(f"\n{count_of(summary.transactions, 'transaction')}, {summary.rolled_back:,} rolled back{prepared}\n")
    types = table("Events", "type", "events", numbers=("events",))
    for name, count in summary.events_by_type.items():
        types.add_row(name, f"{count:,}")
    out.print(types)
    out.print()
    numbers = ("inserts", "updates", "deletes")
    tables = table("Changes", "table", *numbers, numbers=numbers)
    for name, changed in summary.tables.items():
        tables.add_row(name, f"{changed.inserts:,}", f"{changed.updates:,}", f"{changed.deletes:,}")
    out.print(tables)
    if summary.error is not None:
        _show_error(summary.error)


def _show_error(error: dict[str, object]) -> None:
    console = notes()
    console.print("The counts end here:", style="bold red")
    for name, value in error.items():
        if name != "retryable":
            console.print(f"  {name.replace('_', ' ')}: {value}", markup=False, soft_wrap=True)


def _time(timestamp_s: int) -> str:
    return datetime.fromtimestamp(timestamp_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S") if timestamp_s else ""
