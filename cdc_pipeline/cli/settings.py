"""The global options, and how commands find a source."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cdc_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig


@dataclass
class Settings:
    """Global options, and whether the command prints JSON.

    Attributes:
        cursor: where cursors are kept (see `source_access`).
    """

    jobs_directory: Path = field(default_factory=lambda: Path("jobs"))
    debug: bool = False
    as_json: bool = False
    cursor: Literal["dagster", "lake"] = "dagster"

    def source_names(self) -> list[str]:
        """Return the names of all sources, sorted.

        Raises:
            ConfigError: there is no jobs directory.
        """
        from cdc_pipeline.config.pipeline_config import list_config_files

        if not self.jobs_directory.is_dir():
            raise ConfigError(
                f"the jobs directory {self.jobs_directory} does not exist",
                expected="a directory with one YAML file per source",
                next_step="start in the project's folder, or name the directory with --jobs or "
                "CDC_PIPELINE_JOBS",
            )
        return [file.stem for file in list_config_files(self.jobs_directory)]

    def file_of(self, source: str) -> Path:
        """Return the configuration file of `source`.

        Raises:
            ConfigError: there is no such file.
        """
        names = self.source_names()
        if source not in names:
            raise ConfigError(
                f"there is no source {source!r} in {self.jobs_directory}",
                expected=f"one of: {', '.join(names)}"
                if names
                else "a YAML file in this directory, which has none yet",
                next_step=f"name an existing source, or write {self.jobs_directory / source}.yaml",
            )
        return self.jobs_directory / f"{source}.yaml"

    def config_of(self, source: str) -> PipelineConfig:
        """Return the configuration of `source`.

        Raises:
            ConfigError: there is no such file, or it has mistakes.
        """
        from cdc_pipeline.config.pipeline_config import load_config

        return load_config(self.file_of(source))


def with_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: add ``--json`` and pass the settings as the first argument."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
    @click.pass_context
    @functools.wraps(function)
    def wrapped(context: click.Context, *args: Any, **kwargs: Any) -> Any:
        settings = context.ensure_object(Settings)
        settings.as_json = kwargs.pop("as_json")
        return function(settings, *args, **kwargs)

    return wrapped


def with_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: add the options for where a run stops, and pass their meaning as
    `bound`."""

    @click.option(
        "--until-journal", metavar="JOURNAL", help="Stop in this journal, at --until-offset."
    )
    @click.option(
        "--until-offset",
        type=int,
        metavar="BYTES",
        help="Offset of an event boundary; default: the journal's beginning.",
    )
    @click.option("--until-gtid", metavar="GTID", help="Stop after the transaction with this GTID.")
    @click.option(
        "--until-time",
        metavar="TIME",
        help="Stop before the first transaction committed after this time, given with a zone.",
    )
    @click.option(
        "--until-transactions", type=int, metavar="N", help="Stop after this many transactions."
    )
    @click.option(
        "--until-bytes",
        type=int,
        metavar="N",
        help="Stop at the first transaction end after this many bytes.",
    )
    @click.option(
        "--until-seconds",
        type=float,
        metavar="S",
        help="Stop at the first transaction end after this much time.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        until_journal: str | None,
        until_offset: int | None,
        until_gtid: str | None,
        until_time: str | None,
        until_transactions: int | None,
        until_bytes: int | None,
        until_seconds: float | None,
        **kwargs: Any,
    ) -> Any:
        from cdc_pipeline.pipeline.bounds import bound_of

        try:
            bound = bound_of(
                journal=until_journal,
                offset=until_offset,
                gtid=until_gtid,
                time=until_time,
                transactions=until_transactions,
                size_bytes=until_bytes,
                seconds=until_seconds,
            )
        except ConfigError as error:
            raise click.UsageError(
                f"the --until options are {error.got}; expected: {error.expected}"
            ) from None
        return function(*args, bound=bound, **kwargs)

    return wrapped
