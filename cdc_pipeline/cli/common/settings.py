"""The global options, and how commands find a source."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from cdc_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig

_EXAMPLES: Final = Path(__file__).parents[1] / "examples.txt"


@dataclass
class Settings:
    """`cursor`: where cursors are kept (`source_access`); `quiet`: no progress and no notes;
    `opened`: the source that the command has read the file of last.
    """

    jobs_directory: Path = field(default_factory=lambda: Path("jobs"))
    debug: bool = False
    as_json: bool = False
    cursor: Literal["dagster", "lake"] = "dagster"
    quiet: bool = False
    no_color: bool = False
    opened: PipelineConfig | None = None

    def source_names(self) -> list[str]:
        """Sorted; raises ConfigError if there is no jobs directory."""
        return [file.stem for file in self._files()]

    def _files(self) -> list[Path]:
        from cdc_pipeline.config.pipeline_config import list_config_files

        return list_config_files(self.jobs_directory)

    def file_of(self, source: str) -> Path:
        """Raises ConfigError if there is no such file."""
        files = {file.stem: file for file in self._files()}
        if not files:
            raise self.no_source_yet()
        if source not in files:
            name = Path(source).stem if source.endswith((".yaml", ".yml")) else source
            close = get_close_matches(name, files, n=1)
            wanted = f"did you mean {close[0]}? Name it" if close else "name an existing source"
            raise ConfigError(
                f"there is no source {source!r} in {self.jobs_directory}",
                expected=f"one of: {', '.join(files)}",
                got=source,
                next_step=f"{wanted}, or write {self.jobs_directory / name}.yaml",
            )
        return files[source]

    def no_source_yet(self) -> ConfigError:
        """The error for a jobs directory without a configuration file."""
        return ConfigError(
            f"no pipeline is configured in {self.jobs_directory} yet",
            expected="one YAML file for each source",
            got="no file that ends in .yaml or .yml",
            next_step="make a project (`cdc-pipeline init my_project`) and go into its folder, or "
            "name another directory with --jobs or CDC_PIPELINE_JOBS",
        )

    def config_of(self, source: str) -> PipelineConfig:
        """Raises ConfigError if there is no such file, or it has mistakes."""
        from cdc_pipeline.config.pipeline_config import load_config

        self.opened = load_config(self.file_of(source))
        return self.opened


def current_settings() -> Settings:
    """Of the command that runs; the defaults outside of one."""
    context = click.get_current_context(silent=True)
    return (None if context is None else context.find_object(Settings)) or Settings()


def _complete_source(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The group's own options count."""
    settings = Settings(jobs_directory=ctx.find_root().params.get("jobs_directory") or Path("jobs"))
    try:
        return [name for name in settings.source_names() if name.startswith(incomplete)]
    except (ConfigError, OSError):
        return []


class _SourceArgument(click.Argument):
    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            names = _complete_source(ctx, self, "")
            there = f"there is {', '.join(names)}" if names else None
            raise click.MissingParameter(there, ctx, self) from None


def source_argument(name: str = "source", **settings: Any) -> Callable[[Any], Any]:
    """A command's argument SOURCE, which shells complete."""
    return click.argument(name, cls=_SourceArgument, shell_complete=_complete_source, **settings)


def tables_option(what: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(
        "--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help=what, **settings
    )


reason_option = click.option(
    "--reason", default="", metavar="TEXT", help="The reason, for the record."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def limit_option(what: str = "How many, newest first.") -> Callable[[Any], Any]:
    return click.option(
        "--limit", type=click.IntRange(min=1), default=20, show_default=True, help=what
    )


def _set_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Settings).as_json = value


def with_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json`` to a command, and pass the settings as its first argument."""

    @click.option(
        "--json",
        is_flag=True,
        is_eager=True,  # before another option can be wrong, which is then told as JSON
        expose_value=False,
        callback=_set_json,
        help="One JSON document on standard output.",
    )
    @click.pass_context
    @functools.wraps(function)
    def wrapped(context: click.Context, *args: Any, **kwargs: Any) -> Any:
        return function(context.ensure_object(Settings), *args, **kwargs)

    return wrapped


def with_examples(ctx: click.Context, name: str, command: click.Command) -> click.Command:
    """The command with those of `examples.txt` that begin with its name, below its help."""
    names = [name]
    while ctx.parent is not None:
        names, ctx = [str(ctx.info_name), *names], ctx.parent
    if not isinstance(command, click.Group):
        begin = " ".join(["cdc-pipeline", *names, ""])
        lines = _EXAMPLES.read_text(encoding="utf-8").splitlines()
        mine = [f"  {line}" for line in lines if f"{line} ".startswith(begin)]
        command.epilog = "\n".join(["\b", "Examples:", *mine])
    return command


class CommandGroup(click.Group):
    """A group that names its commands where a word is none of them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        return None if command is None else with_examples(ctx, cmd_name, command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, names = args[0] if args else "", self.list_commands(ctx)
        if name and not name.startswith("-") and name not in names:
            close = get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            ctx.fail(f"no such command {name!r}; {meant}")
        return super().resolve_command(ctx, args)
