"""``cdc-pipeline remask``: masks that were added or changed reach the rows that are there."""

from __future__ import annotations

from functools import partial
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
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.lake.remasks import RemaskCertificate
    from cdc_pipeline.operations.erase.remask import RemaskPreview


@click.command("remask")
@source_argument()
@source_table_option
@click.option("--rebuild", is_flag=True, help="Read the log from its begin, which keeps the past.")
@click.option("--without-past", is_flag=True, help="Give up what only the lake has.")
@at_once_option
@click.option("--dry-run", is_flag=True, help="Show the masks, and change nothing.")
@check_option
@reason_option
@yes_option
@with_json
def command(
    settings: Settings,
    *,
    source: str,
    table_name: str,
    rebuild: bool,
    without_past: bool,
    at_once: bool,
    dry_run: bool,
    check: bool,
    reason: str,
    yes: bool,
) -> None:
    """Apply masks of a table of SOURCE that changed to its rows in the lake, with a certificate.
    The same command ends what was stopped.

    Exit codes: 0 done; 1 failed, or --check finds old values; 2 wrong usage, or not confirmed.
    """
    from cdc_pipeline.operations.erase import remask as remasking

    if check and (rebuild or without_past or at_once or dry_run):
        raise click.UsageError("--check takes no other option")
    if rebuild and without_past:
        raise click.UsageError("--rebuild keeps the past: it and --without-past exclude each other")
    asked = remasking.RemaskRequest(
        table=table_name,
        from_log=rebuild,
        without_past=without_past,
        at_once=at_once,
        who=operator(),
        why=reason,
    )
    Removal(
        "remask",
        table_name,
        preview=lambda config, cursors: remasking.preview(config, asked, cursors=cursors),
        remove=lambda config, run: remasking.remask(config, asked, **run),
        check=remasking.check,
        show_preview=_show_preview,
        asks=partial(_asks, at_once=at_once),
        show=_show,
        nothing=f"no masks of {table_name} came after its rows",
    ).run(settings, source, check=check, dry_run=dry_run, yes=yes)


def _asks(told: RemaskPreview, *, at_once: bool) -> tuple[str, str]:
    targets = f"{count_of(len(told.targets), 'target')} of {told.table}"
    return targets, f"get new rows{AND_OLDER if at_once else ''}"


def _show_preview(told: RemaskPreview) -> None:
    out = results()
    out.print(f"{told.table} in {told.source}: {count_of(len(told.targets), 'target')}")
    for name, target in told.targets.items():
        masks = (_masks(of) for of in (target.before, target.after))
        out.print(f"  {name}: a {target.mode}: {' -> '.join(masks)}")
        if target.past:
            out.print(f"    only the lake has {target.past}: --rebuild, or --without-past")


def _masks(masks: dict[str, str]) -> str:
    return ", ".join(f"{name} {mask.split(':')[0]}" for name, mask in masks.items()) or "no masks"


def _show(done: RemaskCertificate) -> None:
    out = results()
    out.print(f"masks {done.remask_id} of {done.table}")
    for name, masks in done.masks.items():
        out.print(f"  {name}: {_masks(masks)}")
    show_held(done)
