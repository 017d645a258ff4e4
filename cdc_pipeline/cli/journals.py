"""``cdc-pipeline journals``: what runs have kept of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import notes, results, show_result, table
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json

if TYPE_CHECKING:
    from cdc_pipeline.operations.journals import KeptLogs, ListedJournal


@click.command("journals")
@source_argument()
@click.option("--verify", is_flag=True, help="Read every event, and check its checksum.")
@with_json
def command(settings: Settings, *, source: str, verify: bool) -> None:
    """List the journals that runs of SOURCE have kept (source.keep_journals).

    Asks no server and starts no JVM.

    Exit codes: 0 nothing is missing or damaged; 1 a hole, damage, or they cannot be read; 2 wrong
    usage or configuration.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.journals import kept_logs

    logs = kept_logs(config, verify=verify)
    show_result(settings, logs, _show, code=0 if logs.is_whole else 1)


def _show(logs: KeptLogs) -> None:
    rows = table(
        f"Journals of {logs.source} in {logs.folder}", "log", "journal", "bytes", "state",
        numbers=("bytes",),
    )  # fmt: skip
    for journal in logs.journals:
        rows.add_row(journal.log, journal.journal, f"{journal.bytes_kept:,}", _state(journal))
    results().print(rows)
    if not logs.is_whole:
        notes().print(
            "a run closes a hole while the server has the journal; a damaged one: remove it, and "
            "run the source"
        )


def _state(journal: ListedJournal) -> str:
    if journal.damage:
        return f"damaged: {journal.damage}"
    state = "sealed" if journal.is_sealed else "open"
    if journal.is_hole:
        state = f"hole from {journal.bytes_kept:,} on"
    return state if journal.damage is None else f"{state}, verified"
