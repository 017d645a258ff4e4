"""The summary of journals as tables for a terminal of 100 columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc_pipeline.cli.common.output import errors, results, table
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from rich.console import Console

    from cdc_pipeline.operations.inspect.summary import JournalInfo, JournalSummary


def show_summary(summary: JournalSummary) -> None:
    """An error goes to standard error."""
    out = results()
    _show_journals(out, summary)
    rest = [
        f"{count:,} {what}"
        for count, what in (
            (summary.rolled_back, "rolled back"),
            (summary.prepared, "prepared (XA)"),
            (summary.abandoned, "left unfinished by their journal"),
            (summary.statements, "statements"),
        )
        if count
    ]
    out.print(f"\n{', '.join([count_of(summary.transactions, 'transaction'), *rest])}")
    if summary.largest is not None:
        most = summary.largest
        gtid = f", {most.gtid}" if most.gtid else ""
        out.print(
            f"largest transaction: {most.journal_bytes:,} bytes, {count_of(most.rows, 'row')},"
            f" at {most.journal}:{most.offset}{gtid}"
        )
    out.print()
    types = table("Events", "type", "events", numbers=("events",))
    for name, count in summary.events_by_type.items():
        types.add_row(name, f"{count:,}")
    out.print(types)
    out.print()
    numbers = ("inserts", "updates", "deletes", "bytes")
    tables = table("Changes", "table", *numbers, numbers=numbers)
    for name, changed in summary.tables.items():
        counts = (changed.inserts, changed.updates, changed.deletes, changed.event_bytes)
        tables.add_row(name, *(f"{count:,}" for count in counts))
    out.print(tables)
    if summary.error is not None:
        _show_error(summary.error)


def _show_journals(out: Console, summary: JournalSummary) -> None:
    numbers = ("bytes", "events", "transactions")
    journals = table("Journals", "journal", *numbers, "ends", numbers=numbers)
    for info in summary.journals:
        counts = (info.size_bytes, info.events, info.transactions)
        ends = f"{info.ends} to {info.next_journal}" if info.next_journal else info.ends
        journals.add_row(info.journal, *(f"{count:,}" for count in counts), ends)
    out.print(journals)
    for info in summary.journals:
        out.print(f"\n{info.journal}: {_described(info)}")


def _described(info: JournalInfo) -> str:
    parts = [f"server {info.server_version} (id {info.server_id})"]
    if not info.checksums:
        parts.append("no checksums")
    if info.packed_bytes:
        ratio = info.unpacked_bytes / info.packed_bytes
        parts.append(
            f"compressed from {info.unpacked_bytes:,} to {info.packed_bytes:,} bytes, "
            f"{ratio:.1f} to 1"
        )
    lines = [", ".join(parts)]
    if info.events:
        lines.append(f"  events from {_time(info.first_time_s)} to {_time(info.last_time_s)} UTC")
    if info.previous_gtids is not None:
        lines.append(f"  GTIDs before it: {info.previous_gtids or 'none'}")
    if info.first_gtid is not None:
        lines.append(f"  GTIDs in it: {info.first_gtid} to {info.last_gtid}")
    return "\n".join(lines)


def _show_error(error: dict[str, object]) -> None:
    console = errors()
    console.print("The counts end at this error:", style="bold red")
    for name, value in error.items():
        if name != "retryable":
            console.print(f"  {name.replace('_', ' ')}: {value}")


def _time(timestamp_s: int) -> str:
    moment = datetime.fromtimestamp(timestamp_s, tz=UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if timestamp_s else ""
