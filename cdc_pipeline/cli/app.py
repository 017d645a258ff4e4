"""The command group: finds commands by name and turns errors into text or JSON with an exit
code."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, Literal

import click
from click.shell_completion import CompletionItem

from cdc_pipeline.cli.common.activity import at_work
from cdc_pipeline.cli.common.settings import CommandGroup, Settings, current_settings, with_examples
from cdc_pipeline.collector import leave_to_exit
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.version import __version__

# Command -> its line in --help. Each is the object `command` in the module of that name, loaded
# when called.
COMMANDS: Final = {
    "validate": "Check configuration files and show every mistake at once.",
    "config": "Show the JSON Schema of the configuration, or the settings of a source.",
    "discover": "List the server's tables, and whether and how each would be captured.",
    "doctor": "Examine server, grants, lake and this machine; show how to fix each finding.",
    "plan": "Show what a run would do, and why, without writing anything.",
    "rehearse": "Show what SQL statements would do to the lake, before they are run.",
    "run": "Capture a source once.",
    "status": "Show the state of sources.",
    "history": "Show past runs of a source and what each published.",
    "story": "Show every known change of one row, or write SQL that would take one back.",
    "cursor": "Show, set or rebuild a source's cursor.",
    "cuts": "List a source's cuts, read the lake as of one, or copy one.",
    "backfill": (
        "Replay old journals for some tables, into a separate lake or to rebuild the tables."
    ),
    "snapshot": "Read the server's rows of tables into the lake, for the first time or again.",
    "reset": "Mark tables as wrong until a new snapshot has replaced them.",
    "quarantine": "List rows that could not be applied; replay or discard them.",
    "verify": "Prove that the lake's tables equal the source; name and repair differences.",
    "maintain": "Compact and vacuum a source's tables when it pays off.",
    "erase": "Erase rows by key from the lake for good, with a certificate.",
    "remask": "Apply masks that changed to the rows in the lake, with a certificate.",
    "journals": "List the journals that runs of a source have kept, and verify them.",
    "init": "Make a new project that runs: a pipeline, Dagster's files, a README.",
    "demo": "Run the embedded demo and verify its tables.",
    "binlog": "Show the contents of journals: a summary or every change.",
}


class _LazyGroup(CommandGroup):
    """`--help` loads none of its commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"cdc_pipeline.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return with_examples(ctx, cmd_name, command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            silent = ctx.params["quiet"] or ctx.params["debug"]
            with at_work(" ".join(sys.argv[1:]), quiet=silent):
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # Caught here because click would turn it into exit code 1.
            _let_output_go_nowhere()
            ctx.exit(0)
        except (Exception, KeyboardInterrupt) as error:
            settings = ctx.ensure_object(Settings)
            if settings.debug:
                raise
            from cdc_pipeline.cli.common.output import show_error

            if isinstance(error, KeyboardInterrupt):
                from cdc_pipeline.operations.status import stopped

                error = stopped(settings.opened)
            if isinstance(error, OSError):
                from cdc_pipeline.lake.storage.file_failures import file_failure

                error = file_failure(error) or error
            show_error(error, as_json=settings.as_json)
            if not isinstance(error, CdcError):
                click.echo(
                    "an unexpected error; run `cdc-pipeline --debug ...` to see the traceback",
                    err=True,
                )
            ctx.exit(2 if isinstance(error, ConfigError) else 1)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--jobs",
    "jobs_directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("jobs"),
    show_default=True,
    envvar="CDC_PIPELINE_JOBS",
    show_envvar=True,
    help="Directory with one YAML file per source.",
)
@click.option(
    "--cursor",
    type=click.Choice(["dagster", "lake"]),
    default="dagster",
    show_default=True,
    envvar="CDC_PIPELINE_CURSOR",
    show_envvar=True,
    help="Where cursors are kept; with `lake`, commands need no Dagster.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes; errors are shown.")
@click.option(
    "--no-color", is_flag=True, help="No colors; NO_COLOR in the environment does the same."
)
@click.option("--debug", is_flag=True, help="Show tracebacks and the logs of Dagster and Spark.")
@click.version_option(__version__, package_name="cdc-pipeline", prog_name="cdc-pipeline")
@click.pass_context
def cli(
    ctx: click.Context,
    jobs_directory: Path,
    cursor: Literal["dagster", "lake"],
    quiet: bool,
    no_color: bool,
    debug: bool,
) -> None:
    """MySQL and MariaDB tables kept as Delta Lake tables by bounded capture runs."""
    ctx.obj = Settings(
        jobs_directory=jobs_directory, debug=debug, cursor=cursor, quiet=quiet, no_color=no_color
    )
    log = logging.getLogger("cdc_pipeline")
    if not any(isinstance(one, _ToStandardError) for one in log.handlers):
        log.addHandler(_ToStandardError())
        log.setLevel(logging.INFO)  # a level for people
    projects = Path(os.path.abspath(jobs_directory)).parent, Path.cwd()
    homes = [home for home in (project / "dagster_home" for project in projects) if home.is_dir()]
    if not os.environ.get("DAGSTER_HOME") and homes:
        os.environ["DAGSTER_HOME"] = str(homes[0])


class _ToStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from cdc_pipeline.cli.common.output import show_log_line

        if record.levelno >= logging.WARNING or not current_settings().quiet:
            show_log_line(record.getMessage())


def run() -> None:
    """A reader that closes the pipe early ends it quietly; SIGTERM ends it as Ctrl-C does."""
    signals, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    # Also of those that Dagster handles while a run is at work.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    # The first process of a container ignores what it does not handle.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        code = cli.main(prog_name="cdc-pipeline", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _show_refusal(error)
        code = 2 if isinstance(error, click.UsageError) else 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        code = 1
    except BrokenPipeError:
        _let_output_go_nowhere()
        code = 0
    leave_to_exit()
    code = code if isinstance(code, int) else 0
    sys.exit(code and (_stopped_by(signals) or code))


def _show_refusal(error: click.ClickException) -> None:
    if "--json" not in sys.argv:  # click may refuse the words before it has read the option
        error.show()
        return
    from cdc_pipeline.cli.common.output import emit_json

    what, command = error.format_message(), getattr(error, "ctx", None)
    path = command.command_path if command is not None else "cdc-pipeline"
    document = {"error": type(error).__name__, "code": "usage", "what": what}
    emit_json(document | {"next_step": f"see `{path} --help`", "retryable": False})


def _stopped_by(signals: int) -> int:
    """The exit code of the last signal that came; 0 if none did."""
    try:
        return 128 + os.read(signals, 64)[-1]
    except BlockingIOError:
        return 0


def _let_output_go_nowhere() -> None:
    """After its reader has gone: Python flushes it again at exit, which must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
