"""``cdc-pipeline erase``: rows of keys leave the lake, and no later reading brings them back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import confirm, emit_json, operator, results, show_result
from cdc_pipeline.cli.common.settings import (
    Settings,
    reason_option,
    source_argument,
    with_json,
    yes_option,
)
from cdc_pipeline.cli.common.source_access import open_source, operate_in
from cdc_pipeline.cli.story import key_of
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.lake.erasures import Certificate
    from cdc_pipeline.operations.erase.erase import ErasePreview, EraseRequest


@click.command("erase")
@source_argument()
@click.option(
    "--table",
    "table_name",
    required=True,
    metavar="SCHEMA.TABLE",
    help="The source table, by its present name.",
)
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
@click.option(
    "--at-once",
    is_flag=True,
    help="Keep no older version and no older cut.",
)
@click.option(
    "--even-if-present",
    is_flag=True,
    help="The rows may still be at the source, or it cannot be asked.",
)
@click.option("--dry-run", is_flag=True, help="Count the rows, and change nothing.")
@click.option("--check", is_flag=True, help="Search the lake again for what was erased.")
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
    """Erase rows of a table of SOURCE from its lake; no later reading of the log brings them back.
    Shows a certificate. The same command ends what was stopped.

    Exit codes: 0 done; 1 failed, or with --check something holds rows; 2 wrong usage, or not
    confirmed.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.erase import erase as erasing

    if check and (where or keys_file or dry_run):
        raise click.UsageError("--check takes neither rows nor --dry-run")
    asked = erasing.EraseRequest(
        table=table_name,
        where=where,
        keys=() if keys_file is None else _keys_in(keys_file),
        formerly=formerly,
        at_once=at_once,
        is_known=even_if_present,
        who=operator(),
        why=reason,
    )
    with open_source(settings, config) as access:
        if check:
            found = operate_in(
                access,
                settings,
                "erase",
                lambda run: erasing.check(config, cursors=run["cursors"], table=table_name),
            )
            _show_check(settings, found)
            return
        if dry_run or not yes:
            told = erasing.preview(config, asked, cursors=access.cursors)
            if dry_run:
                show_result(settings, told, _show_preview)
                return
            if not settings.as_json:
                _show_preview(told)
            _ask(settings, asked, told, yes=yes)
        done = operate_in(
            access, settings, "erase", lambda run: erasing.erase(config, asked, **run)
        )
    show_result(settings, done, _show)


def _keys_in(file: Path) -> tuple[dict[str, str], ...]:
    keys = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            key = json.loads(line) if line.strip() else {}
            if not isinstance(key, dict):
                raise ValueError
        except ValueError:
            raise click.BadParameter(
                f'line {number} is no JSON object such as {{"id": 7}}', param_hint="--keys"
            ) from None
        if key:
            keys.append({name: str(value) for name, value in key.items()})
    return tuple(keys)


def _ask(settings: Settings, asked: EraseRequest, told: ErasePreview, *, yes: bool) -> None:
    rows = f"{count_of(sum(told.rows.values()), 'row')} of {count_of(told.keys, 'key')}"
    past = ", with all older versions and cuts" if asked.at_once else ""
    confirm(
        settings,
        f"{rows} will be erased{past}. Continue?",
        refusal=f"{rows} would be erased{past}, which needs confirmation",
        yes=yes,
    )


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


def _show_check(settings: Settings, found: list[Certificate]) -> None:
    if settings.as_json:
        emit_json([one.model_dump(mode="json") for one in found])
    for one in found if not settings.as_json else ():
        _show(one)
    if any(not one.is_absent for one in found):
        raise click.exceptions.Exit(1)


def _show(done: Certificate) -> None:
    out = results()
    out.print(f"erasure {done.erasure_id}: {count_of(done.keys, 'key')} of {done.table}")
    for target, rows in done.removed.items():
        out.print(f"  {target}: {count_of(rows, 'row')} removed")
    if not any((*done.removed.values(), done.quarantine)):
        out.print("  no row of a newest version had these keys: mind upper and lower case")
    out.print(f"  {count_of(done.files_read, 'file')} read")
    for one in done.held:
        until = "" if one.until_us < 0 else f", until {_time(one.until_us)}"
        out.print(f"  held: {one.where}: {one.why}{until}")
    for text in done.not_searched:
        out.print(f"  not searched: {text}")


def _time(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}"
