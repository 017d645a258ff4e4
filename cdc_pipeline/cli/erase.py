"""``cdc-pipeline erase``: rows of keys leave the lake, and no later reading brings them back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.certificates import (
    AND_OLDER,
    Removal,
    at_once_option,
    check_option,
    show_held,
    source_table_option,
)
from cdc_pipeline.cli.common.output import operator, results
from cdc_pipeline.cli.common.settings import (
    Settings,
    reason_option,
    source_argument,
    with_json,
    yes_option,
)
from cdc_pipeline.cli.story import key_of
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.lake.erasures import Certificate
    from cdc_pipeline.operations.erase.erase import ErasePreview


@click.command("erase")
@source_argument()
@source_table_option
@click.option(
    "--where",
    multiple=True,
    callback=key_of,
    metavar="COLUMN=VALUE",
    help="Rows with this value; all conditions must hold. Bytes in hex, TIMESTAMP in UTC.",
)
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='A file with one key a line, as JSON: {"id": "7"}.',
)
@click.option(
    "--formerly",
    multiple=True,
    metavar="SCHEMA.TABLE",
    help="A name that the table had, if the lake's schema history has forgotten it.",
)
@at_once_option
@click.option(
    "--even-if-present",
    is_flag=True,
    help="The rows may still be at the source, or it cannot be asked.",
)
@click.option("--dry-run", is_flag=True, help="Count the rows, and change nothing.")
@check_option
@reason_option
@yes_option
@with_json  # fmt: skip
def command(
    settings: Settings,
    *,
    source: str,
    table_name: str,
    where: dict[str, str],
    keys_file: Path | None,
    formerly: tuple[str, ...],
    at_once: bool,
    even_if_present: bool,
    dry_run: bool,
    check: bool,
    reason: str,
    yes: bool,
) -> None:
    """Erase rows of a table of SOURCE for good, with a certificate. The same command ends what was
    stopped.

    Exit codes: 0 done; 1 failed, or --check finds rows; 2 wrong usage, or not confirmed.
    """
    from cdc_pipeline.operations.erase import erase as erasing
    from cdc_pipeline.operations.erase.keys import read_keys

    if check and (where or keys_file or dry_run):
        raise click.UsageError("--check takes neither rows nor --dry-run")
    asked = erasing.EraseRequest(
        table=table_name,
        where=where,
        keys=() if keys_file is None else read_keys(keys_file),
        formerly=formerly,
        at_once=at_once,
        is_known=even_if_present,
        who=operator(),
        why=reason,
    )
    Removal(
        "erase",
        table_name,
        preview=lambda config, cursors: erasing.preview(config, asked, cursors=cursors),
        remove=lambda config, run: erasing.erase(config, asked, **run),
        check=erasing.check,
        show_preview=_show_preview,
        asks=partial(_asks, at_once=at_once),
        show=_show,
        nothing=f"nothing was erased of {table_name}",
    ).run(settings, source, check=check, dry_run=dry_run, yes=yes)


def _asks(told: ErasePreview, *, at_once: bool) -> tuple[str, str]:
    rows = f"{count_of(sum(told.rows.values()), 'row')} of {count_of(told.keys, 'key')}"
    return rows, f"be erased{AND_OLDER if at_once else ''}"


def _show_preview(told: ErasePreview) -> None:
    out = results()
    out.print(f"{told.table} in {told.source}: {count_of(told.keys, 'key')}")
    for target, rows in told.rows.items():
        out.print(f"  {target}: {count_of(rows, 'row')}")
    if not any(told.rows.values()):
        out.print("no row of a newest version has these keys: mind upper and lower case")
    if told.at_source != 0:
        out.print(
            "the source cannot be asked whether the rows are gone"
            if told.at_source is None
            else f"{count_of(told.at_source, 'key')} still at the source"
        )


def _show(done: Certificate) -> None:
    out = results()
    out.print(f"erasure {done.erasure_id}: {count_of(done.keys, 'key')} of {done.table}")
    for target, rows in done.removed.items():
        out.print(f"  {target}: {count_of(rows, 'row')} removed")
    if not any((*done.removed.values(), done.quarantine)):
        out.print("  no row of a newest version had these keys: mind upper and lower case")
    show_held(done)
