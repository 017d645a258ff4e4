"""Commands that remove old values: their options, how they ask first, and their certificates on the
terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import click

from cdc_pipeline.cli.common.output import (
    confirm,
    emit_json,
    results,
    show_result,
)
from cdc_pipeline.cli.common.settings import Settings
from cdc_pipeline.cli.common.source_access import open_source, operate_in
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.cli.common.source_access import SourceAccess
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.frozen_model import FrozenModel
    from cdc_pipeline.lake.erasures import Searched
    from cdc_pipeline.orchestration.translator import RunKind
    from cdc_pipeline.position.cursor import CursorStore
    from cdc_pipeline.run.observer import OperationRun

P = TypeVar("P", bound="FrozenModel")
T = TypeVar("T", bound="Searched")

AND_OLDER: Final = ", with all older versions and cuts"
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


@dataclass(frozen=True)
class Removal(Generic[P, T]):
    """A command's work for `table`, and what it says. `asks`: to whom it is done, and what;
    `nothing`: where there was no request.
    """

    kind: RunKind
    table: str
    preview: Callable[[PipelineConfig, CursorStore], P]
    remove: Callable[[PipelineConfig, OperationRun], T]
    check: Callable[..., Sequence[T]]
    show_preview: Callable[[P], None]
    asks: Callable[[P], tuple[str, str]]
    show: Callable[[T], None]
    nothing: str

    def run(
        self, settings: Settings, source: str, *, check: bool, dry_run: bool, yes: bool
    ) -> None:
        """Show what would be done, and do it if a person agrees; or `check`: exit with 1 while
        something is still held.
        """
        config = settings.config_of(source)
        with open_source(settings, config) as access:
            if check:
                self._check(settings, config, access)
                return
            if dry_run or not yes:
                told = self.preview(config, access.cursors)
                if dry_run:
                    show_result(settings, told, self.show_preview)
                    return
                if not settings.as_json:
                    self.show_preview(told)
                confirm(settings, *self.asks(told), yes=yes)
            done = operate_in(access, settings, self.kind, partial(self.remove, config))
            show_result(settings, done, self.show)

    def _check(self, settings: Settings, config: PipelineConfig, access: SourceAccess) -> None:
        def search(run: OperationRun) -> Sequence[T]:
            return self.check(config, cursors=run["cursors"], table=self.table)

        found = operate_in(access, settings, self.kind, search)
        if settings.as_json:
            emit_json([one.model_dump(mode="json") for one in found])
        elif not found:
            results().print(self.nothing)
        for one in found if not settings.as_json else ():
            self.show(one)
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
