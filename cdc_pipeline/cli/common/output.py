"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from cdc_pipeline.cli.common.activity import cleared, ended, replaced
from cdc_pipeline.cli.common.settings import Settings, current_settings
from cdc_pipeline.errors import LABEL_WIDTH, CdcError
from cdc_pipeline.text.printable import printable, printable_lines
from cdc_pipeline.text.server_messages import said_by

_WIDTH_IN_FILES: Final = 160

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


R = TypeVar("R", bound="BaseModel")


def emit_json(document: object) -> None:
    """As the one JSON document of this command.

    Characters in strings that a terminal would interpret are written as JSON escapes: the
    document stays equal.
    """
    ended()
    lines = json.dumps(document, indent=2, ensure_ascii=False, default=str).split("\n")
    click.echo("\n".join(line if printable(line) == line else json_escaped(line) for line in lines))


def show_result(
    settings: Settings, result: R, show: Callable[[R], None], *, code: int = 0, **extra: object
) -> None:
    """As the one JSON document with ``--json``, with `extra`, else by `show`; exits with `code`."""
    if settings.as_json:
        emit_json({**result.model_dump(mode="json"), **extra})
    else:
        show(result)
    if code:
        raise click.exceptions.Exit(code)


def json_escaped(line: str) -> str:
    """With every invisible character escaped."""
    return "".join(one if printable(one) == one else json.dumps(one)[1:-1] for one in line)


def note(text: str) -> None:
    """One printable line to standard error, unless the user wants none."""
    if not current_settings().quiet:
        cleared()
        click.echo(printable(text), err=True)


_log_printer: Callable[[str], None] | None = None


def show_log_line(text: str) -> None:
    """To standard error, above the progress if one is shown."""
    if _log_printer is None:
        cleared()
        click.echo(text, err=True)
    else:
        _log_printer(text)


def print_log_with(printer: Callable[[str], None] | None) -> None:
    """None: to standard error again."""
    global _log_printer
    _log_printer = printer


def results() -> Console:
    ended()
    # Without a terminal, lines are not folded at a terminal's width.
    return _console(sys.stdout, width=None if sys.stdout.isatty() else _WIDTH_IN_FILES)


def notes(stream: TextIO | None = None) -> Console:
    """For progress and notes; silent if the user wants none."""
    return _console(stream or sys.stderr, quiet=current_settings().quiet)


def errors() -> Console:
    return _console(sys.stderr)


def _console(file: TextIO, **settings: Any) -> Console:
    from cdc_pipeline.cli.common.terminal import PlainConsole

    # None lets NO_COLOR and the terminal decide.
    return PlainConsole(file=file, no_color=current_settings().no_color or None, **settings)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Each part plain or with a style: ``styled(("shop", "bold"), ": ready")``."""
    from rich.text import Text

    return Text.assemble(
        *(
            printable_lines(one) if isinstance(one, str) else (printable_lines(one[0]), one[1])
            for one in parts
        )
    )


def table(title: str, *columns: str, numbers: Sequence[str] = ()) -> Table:
    """The columns in `numbers` are right-aligned; without any name there is no header."""
    from rich import box

    from cdc_pipeline.cli.common.terminal import Rows

    rows = Rows(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_header=any(columns),
        pad_edge=False,
    )
    for column in columns:
        # Numbers are never broken: on a narrow terminal, texts are folded instead.
        is_number = column in numbers
        rows.add_column(
            column,
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number,
            min_width=len(column) if is_number else None,
        )
    return rows


def facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Texts with their labels; of rows with one label the first has it."""
    shown, before = table(title, "", ""), ""
    for label, text in rows:
        shown.add_row("" if label == before else label, text)
        before = label
    return shown


def error_document(error: BaseException) -> dict[str, object]:
    """Lists each mistake of a configuration file."""
    if not isinstance(error, CdcError):
        return {"error": type(error).__name__, "what": said_by(error)}
    document = error.as_dict()
    mistakes = getattr(error, "mistakes", None)
    if mistakes is not None:
        document["file"] = str(getattr(error, "file", ""))
        document["mistakes"] = [mistake.model_dump() for mistake in mistakes]
    return document


def show_error(error: BaseException, *, as_json: bool) -> None:
    """On standard error, or as the JSON document.

    First the sentence that says what happened, then a line each for where, expected, got and
    what to do next. On a terminal longer lines are folded at its width, but never inside of a
    command.
    """
    if as_json:
        emit_json(error_document(error))
        return
    console = errors()
    width = console.width if console.is_terminal else None
    sentence = error.what if isinstance(error, CdcError) else said_by(error)
    first, *more = folded(f"Error: {sentence}", width=width)
    head = ("Error:", "bold red")
    console.print(styled(head, first.removeprefix("Error:")))
    for line in more:
        console.print(styled(line))
    for label, part in error.details() if isinstance(error, CdcError) else ():
        indent = 2 + LABEL_WIDTH
        first, *more = folded(part, width=None if width is None else width - indent)
        style = "cyan" if label == "next" else ""
        console.print(styled("  ", (f"{label:<{LABEL_WIDTH}}", "dim"), (first, style)))
        for line in more:
            console.print(styled(" " * indent, (line, style)))


def folded(text: str, *, width: int | None) -> list[str]:
    """Between words; what stands in backticks stays on one line, so that it can be copied."""
    lines: list[str] = []
    for whole in printable_lines(text).splitlines() or [""]:
        if width is None or len(whole) <= width:
            lines.append(whole)
            continue
        line = re.match(" *", whole)[0]  # type: ignore[index]
        indent = line and line + "  "
        for word in re.findall(r"`[^`]*`\S*|\S+", whole):
            if line.strip() and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = indent
            line = f"{line} {word}" if line.strip() else line + word
        lines.append(line)
    return lines


@contextmanager
def quiet_streams(*, quiet: bool) -> Iterator[TextIO]:
    """Keep output of Dagster, the JVM and other libraries off the terminal; Dagster's step logs
    still get it.

    Yields a stream to the original standard error, for progress.
    """
    if not quiet or not (_is_real(sys.stdout) and _is_real(sys.stderr)):
        yield sys.stderr
        return
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        out, err = os.dup(1), os.dup(2)
        stack.callback(os.close, out)
        progress = stack.enter_context(TextIOWrapper(os.fdopen(err, "wb"), write_through=True))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, nowhere)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            yield progress
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            progress.flush()
            os.dup2(out, 1)
            os.dup2(err, 2)


def _is_real(stream: TextIO) -> bool:
    try:
        return stream.fileno() in (1, 2)
    except (OSError, ValueError):
        return False


def operator() -> str:
    """The person at the terminal, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        return f"user id {os.getuid()}"


def is_interactive() -> bool:
    """A question is read from standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(settings: Settings, what: str, happens: str, *, yes: bool) -> None:
    """Ask the person whether `what` will, say, ``be replaced``, unless ``--yes`` was given.

    Raises UsageError: nobody can be asked; Abort: the person said no.
    """
    if yes:
        return
    if settings.as_json or not is_interactive():
        raise click.UsageError(
            f"{what} would {happens}, which needs confirmation, and there is no terminal: give "
            "--yes to do it. Nothing was changed."
        )
    with replaced():
        click.confirm(f"{what} will {happens}. Continue?", abort=True, err=True)
