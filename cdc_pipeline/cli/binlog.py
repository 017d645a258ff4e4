"""``cdc-pipeline binlog``: what is in journals."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc_pipeline.cli.common.activity import ended
from cdc_pipeline.cli.common.output import emit_json, errors, note, results, table
from cdc_pipeline.cli.common.ranges import POSITION, conditions_of
from cdc_pipeline.cli.common.settings import Settings, with_json
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from cdc_pipeline.operations.inspect.inputs import FileChunk
    from cdc_pipeline.operations.inspect.inspect import Inspection
    from cdc_pipeline.operations.inspect.summary import JournalInfo, JournalSummary

_OPERATIONS: Final = ("insert", "update", "delete", "statement")
_STDIN: Final = Path("-")


def _paths(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[Path, ...]:
    paths = tuple(map(Path, value))
    for path in paths:
        if path != _STDIN and not path.exists():
            raise click.BadParameter(f"{path} does not exist", context, parameter)
    if paths.count(_STDIN) > 1:
        raise click.BadParameter("standard input can be read only once", context, parameter)
    return paths


def _gtids(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value:
        from cdc_pipeline.errors import PositionError
        from cdc_pipeline.position.gtid.sets import check_gtid_set

        try:
            check_gtid_set(value)
        except PositionError as error:
            raise click.BadParameter(str(error), context, parameter) from None
    return value


def _operations(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> frozenset[str]:
    if value is None:
        return frozenset(_OPERATIONS)
    operations = frozenset(part.strip() for part in value.split(","))
    if not operations <= set(_OPERATIONS):
        raise click.BadParameter(
            f"{value!r} is not one of {', '.join(_OPERATIONS)}", context, parameter
        )
    return operations


@click.command("binlog")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", callback=_paths)
@click.option(
    "--format",
    "form",
    type=click.Choice(["summary", "jsonl", "parquet"]),
    default="summary",
    show_default=True,
    help="A summary; every change as a line of JSON; or Parquet files, one or more per table.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory for --format parquet.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="PATTERN",
    help="Only these tables, such as 'shop.*'.",
)
@click.option(
    "--op",
    "operations",
    metavar="LIST",
    callback=_operations,
    help="Only these operations, of insert,update,delete,statement.",
)
@click.option(
    "--statements/--no-statements",
    default=True,
    show_default=True,
    help="Also show DDL and other statements, as lines.",
)
@click.option(
    "--annotations/--no-annotations", default=False, show_default=True,
    help="With jsonl: the SQL text behind each change, if the log holds it.",
)  # fmt: skip
@click.option(
    "--from",
    "begins",
    multiple=True,
    metavar=POSITION,
    help="Transactions that begin at JOURNAL:OFFSET or later; or are committed at or after a time; "
    "or are not in a GTID set. Can be given more than once: all must hold.",
)
@click.option(
    "--until",
    "ends",
    multiple=True,
    metavar=POSITION,
    help="Transactions that begin before JOURNAL:OFFSET; or are committed at or before a time. Can "
    "be given more than once: both must hold.",
)
@click.option(
    "--gtid",
    "gtids",
    metavar="SET",
    default="",
    callback=_gtids,
    help="Transactions in this GTID set.",
)
@click.option(
    "--exclude-gtid",
    "exclude_gtids",
    metavar="SET",
    default="",
    callback=_gtids,
    help="Transactions outside this GTID set.",
)
@click.option(
    "--lower-case-table-names", "lower_case", type=click.Choice(["0", "1", "2"]), default="0",
    show_default=True,
    help="How the server that wrote the journals compares names: under 1 and 2, SH1.A is sh1.a.",
)  # fmt: skip
@click.option(
    "--charset", default="utf8mb4", show_default=True, metavar="NAME",
    help="Charset of texts if the journal does not name it (row metadata NO_LOG); binary "
         "shows them as hex.",
)  # fmt: skip
@click.option(
    "--follow",
    is_flag=True,
    help="With jsonl: keep reading as the log grows, in this journal and the following ones.",
)
@click.option(
    "--poll-interval",
    "poll_s",
    type=click.FloatRange(min=0.01),
    default=0.5,
    show_default=True,
    metavar="S",
    help="How often --follow looks for new events.",
)
@with_json
def command(
    settings: Settings,
    *,
    paths: tuple[Path, ...],
    form: str,
    output: Path | None,
    tables: tuple[str, ...],
    operations: frozenset[str],
    statements: bool,
    annotations: bool,
    lower_case: str,
    charset: str,
    follow: bool,
    poll_s: float,
    begins: tuple[str, ...],
    ends: tuple[str, ...],
    gtids: str,
    exclude_gtids: str,
) -> None:
    """Show the contents of journals: files, directories of them, or standard input (-).

    A POSITION is a journal with or without an offset (binlog.000007:4), a GTID set, or a time with
    a zone: the commit time at the source. All conditions must hold. If a journal cannot be read to
    its end, everything before the error is shown.

    Exit codes: 0 everything was shown; with --follow: ended by Ctrl-C or SIGTERM; 1 a journal is
    damaged or cannot be read; 2 wrong usage.
    """
    _check_usage(settings, paths, form, output, follow)
    conditions = conditions_of("from", begins) | conditions_of("until", ends)
    if exclude_gtids and "exclude_gtids" in conditions:
        raise click.UsageError("--exclude-gtid and a GTID set of --from exclude each other")
    if annotations and form != "jsonl":
        raise click.UsageError("--annotations needs --format jsonl")
    from cdc_pipeline.operations.inspect import inputs
    from cdc_pipeline.operations.inspect.inspect import Inspection
    from cdc_pipeline.operations.inspect.selection import Selection
    from cdc_pipeline.text.table_names import NameRule

    selection = Selection(
        tables=tables,
        names=NameRule(int(lower_case)),
        operations=operations if statements else operations - {"statement"},
        gtids=gtids,
        **{"exclude_gtids": exclude_gtids, **conditions},
    )
    inspection = Inspection(selection, unknown_charset=charset, annotations=annotations)
    inspection.bare_tables.on_new = _note_bare
    with _until_stopped(is_on=follow) as wait:
        if follow:
            chunks = inputs.follow(paths[0], selection, wait=lambda: wait(poll_s))
        else:
            # unbuffered, so that new bytes are seen at once
            stdin = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer) if _STDIN in paths else None
            chunks = inputs.read_all(paths, selection, stdin=stdin)
        if form == "jsonl":
            _write_lines(inspection, chunks)
        elif form == "parquet":
            assert output is not None
            _write_files(settings, inspection, chunks, output)
        else:
            _write_summary(settings, inspection, chunks)
    _note_rest(inspection)


def _check_usage(
    settings: Settings, paths: tuple[Path, ...], form: str, output: Path | None, follow: bool
) -> None:
    if form == "jsonl" and settings.as_json:
        raise click.UsageError(
            "--json asks for one document and --format jsonl for one per line; give "
            "only one of them"
        )
    if (form == "parquet") != (output is not None):
        raise click.UsageError("--format parquet and --output DIR must be given together")
    if follow and (form != "jsonl" or len(paths) != 1 or _STDIN in paths):
        raise click.UsageError("--follow needs --format jsonl and a single directory or journal")


@contextmanager
def _until_stopped(*, is_on: bool) -> Iterator[Callable[[float], bool]]:
    """Ctrl-C ends between two transactions, a second one at once; yields what waits, or False."""
    stop = threading.Event()
    if not is_on:
        yield lambda _seconds: False
        return

    def ask(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(
            number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler
        )

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda seconds: not stop.wait(seconds)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_lines(inspection: Inspection, chunks: Iterable[FileChunk]) -> None:
    ended()
    sys.stdout.flush()
    out = sys.stdout.buffer
    for lines in inspection.lines(chunks):
        out.write(lines)
        out.flush()


def _write_files(
    settings: Settings, inspection: Inspection, chunks: Iterable[FileChunk], output: Path
) -> None:
    from cdc_pipeline.operations.inspect.change_files import ChangeFiles

    failure: CdcError | None = None
    with ChangeFiles(output) as files:
        try:
            inspection.write(chunks, files)
        except ConfigError:
            raise
        except CdcError as error:
            failure = error
    if settings.as_json:
        emit_json({"files": files.files, "error": None if failure is None else failure.as_dict()})
        if failure is not None:
            raise click.exceptions.Exit(1)
        return
    for name, rows in files.files.items():
        results().print(f"{output / name}  {rows:,} rows")
    if failure is not None:
        raise failure


def _write_summary(settings: Settings, inspection: Inspection, chunks: Iterable[FileChunk]) -> None:
    summary = inspection.summary(chunks)
    if settings.as_json:
        emit_json(asdict(summary))
    else:
        _show(summary)
    if summary.error is not None:
        raise click.exceptions.Exit(1)


def _note_bare(table: str, missing: tuple[str, ...]) -> None:
    from cdc_pipeline.operations.inspect.bare_table_maps import MEANINGS

    said = "; ".join(MEANINGS[what] for what in missing)
    note(f"note: the journal does not describe {table} completely: {said}")


def _note_rest(inspection: Inspection) -> None:
    counts, moved_from = inspection.log.counts, inspection.log.filter.moved_from
    for value, text in (
        (moved_from, "no transaction begins at the given position; it was moved to {}"),
        (counts.abandoned, "not shown: {} transactions that their journal left unfinished"),
        (counts.unfinished, "not shown: the transaction at {}, which has not ended"),
        (
            counts.shown_too_early,
            "{} large transactions were shown before they were rolled back (op statement, kind "
            "rollback) or left unfinished",
        ),
    ):
        if value:
            note(f"note: {text.format(value)}")


def _show(summary: JournalSummary) -> None:
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
        _show_summary_error(summary.error)


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


def _show_summary_error(error: dict[str, object]) -> None:
    console = errors()
    console.print("The counts end at this error:", style="bold red")
    for name, value in error.items():
        if name != "retryable":
            console.print(f"  {name.replace('_', ' ')}: {value}")


def _time(timestamp_s: int) -> str:
    moment = datetime.fromtimestamp(timestamp_s, tz=UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if timestamp_s else ""
