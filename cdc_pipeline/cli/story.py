"""``cdc-pipeline story``: every known change of one row, and SQL that would take one back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import notes, results, show_result, table
from cdc_pipeline.cli.common.ranges import POSITION, conditions_of
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import open_source

if TYPE_CHECKING:
    from cdc_pipeline.operations.story import Change, Story


def key_of(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    parts = [text.partition("=") for text in texts]
    key = {name: value for name, equals, value in parts if name and equals}
    if len(key) < len(texts):
        raise click.BadParameter("expected COLUMN=VALUE, each column once", context, parameter)
    return key


@click.command("story")
@source_argument()
@click.argument("table_name", metavar="TABLE")
@click.option(
    "--key", multiple=True, callback=key_of, metavar="COLUMN=VALUE",
    help="A column of the row's key, for each. Bytes in hex, TIMESTAMP in UTC.",
)  # fmt: skip
@click.option(
    "--from", "begins", multiple=True, metavar=POSITION,
    help="From JOURNAL:OFFSET or a time on, or not in a GTID set; all must hold.",
)  # fmt: skip
@click.option(
    "--until", "ends", multiple=True, metavar=POSITION,
    help="Before JOURNAL:OFFSET, or up to a time; both must hold.",
)  # fmt: skip
@click.option(
    "--undo", "transaction", metavar="TRANSACTION",
    help="Write SQL that takes this one back in the row: a GTID, or JOURNAL:OFFSET.",
)  # fmt: skip
@click.option("--whole-table", is_flag=True, help="With --undo: in all rows.")
@with_json
def command(
    settings: Settings,
    *,
    source: str,
    table_name: str,
    key: dict[str, str],
    begins: tuple[str, ...],
    ends: tuple[str, ...],
    transaction: str | None,
    whole_table: bool,
) -> None:
    """Show every change of a row of TABLE that log, changelogs and histories of SOURCE know, and
    what none of them knows. Masks apply.

    Writes nothing, and never runs the SQL of --undo.

    Exit codes: 0 shown; 1 no change is known, or it cannot be taken back; 2 wrong usage or
    configuration.
    """
    if whole_table and transaction is None:
        raise click.UsageError("--whole-table is for --undo")
    if bool(key) == whole_table:
        raise click.UsageError("give the row's --key, or --undo with --whole-table")
    if transaction is not None and settings.as_json:
        raise click.UsageError("--undo writes SQL, which has no --json")
    config = settings.config_of(source)
    conditions = conditions_of("from", begins) | conditions_of("until", ends)
    from cdc_pipeline.operations.inspect.selection import Selection
    from cdc_pipeline.operations.story import open_story

    selection = Selection(**conditions)
    with (
        open_source(settings, config) as access,
        open_story(config, table_name, cursors=access.cursors, selection=selection) as reader,
    ):
        if transaction is not None:
            for line in reader.undo(key, transaction):
                click.echo(line)
            return
        told = reader.story(key)
    show_result(settings, told, _show, code=0 if _is_known(told) else 1)


def _is_known(told: Story) -> bool:
    return any(change.before or change.after for change in told.changes)


def _show(told: Story) -> None:
    rows = table(f"{told.table} in {told.source}", "time", "transaction", "change", "known by", "")
    for change in told.changes:
        where = change.transaction or change.position
        known_by = ", ".join(change.known_by)
        rows.add_row(change.time or "", where, change.op, known_by, "\n".join(_lines(change)))
    results().print(rows)
    if not _is_known(told):
        notes().print(f"no change of a row of {told.table} with this key is known")
    for hole in told.holes:
        between = f"{hole.begin or 'the beginning'} to {hole.end}"
        notes().print(f"not known: {between}: {hole.why}")
    for text in told.notes:
        notes().print(f"note: {text}")


def _lines(change: Change) -> list[str]:
    before, after = change.before or {}, change.after or {}
    names = change.changed if change.before and change.after else {**before, **after}
    lines = [
        f"{name}: {' -> '.join(_text(image[name]) for image in (before, after) if name in image)}"
        for name in names
    ]
    return [*lines, *filter(None, (change.sql, change.note))]


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
