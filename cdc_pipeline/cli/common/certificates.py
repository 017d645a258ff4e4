"""Options of commands that remove old values, and their certificates on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from cdc_pipeline.cli.common.output import emit_json, results
from cdc_pipeline.cli.common.settings import Settings
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.lake.erasures import Searched

T = TypeVar("T", bound="Searched")

source_table_option = click.option(
    "--table",
    "table_name",
    required=True,
    metavar="SCHEMA.TABLE",
    help="The source table, by its present name.",
)
at_once_option = click.option(
    "--at-once", is_flag=True, help="Keep no older version and no older cut."
)
check_option = click.option("--check", is_flag=True, help="Search the lake again.")


def show_check(settings: Settings, found: Sequence[T], show: Callable[[T], None]) -> None:
    """Exits with 1 while something is still held."""
    if settings.as_json:
        emit_json([one.model_dump(mode="json") for one in found])
    for one in found if not settings.as_json else ():
        show(one)
    if any(not one.is_absent for one in found):
        raise click.exceptions.Exit(1)


def show_held(done: Searched) -> None:
    out = results()
    out.print(f"  {count_of(done.files_read, 'file')} read")
    for one in done.held:
        until = "" if one.until_us < 0 else f", until {_time(one.until_us)}"
        out.print(f"  held: {one.where}: {one.why}{until}")
    for text in done.not_searched:
        out.print(f"  not searched: {text}")


def _time(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}"
