"""docs/reference/commands.md, from the command line itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from cdc_pipeline.cli.app import cli
from tools.pages.markdown import as_markdown, code, made_from, table

INTRO = """\
# Commands

Every command with its arguments and options, as `--help` shows them.

- **Exit codes**: 0 done, 1 failed, 2 wrong usage or configuration. Commands that have others say
  so; those of a group hold for each of its commands.
- **Output**: results go to standard output, progress, notes and errors to standard error. With
  `--json`, standard output holds exactly one JSON document, even for an error.
- **Ranges** have one form everywhere: `--from` and `--until` take a journal with or without an
  offset (`binlog.000007:4`), a time with a zone (`2026-01-31T08:00:00Z`), or a GTID.
- **Completion** of commands, options and the names of sources: add the line of your shell to its
  configuration.

```sh
eval "$(_CDC_PIPELINE_COMPLETE=bash_source cdc-pipeline)"     # ~/.bashrc
eval "$(_CDC_PIPELINE_COMPLETE=zsh_source cdc-pipeline)"      # ~/.zshrc
_CDC_PIPELINE_COMPLETE=fish_source cdc-pipeline | source      # ~/.config/fish/config.fish
```
"""


def commands_page() -> str:
    """Return the whole page."""
    context = click.Context(cli, info_name="cdc-pipeline")
    parts = [INTRO, made_from("cdc_pipeline/cli"), *_described(cli, context, "Global options")]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += _sections(command, click.Context(command, info_name=name, parent=context))
    return "\n".join(parts)


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """Describe a command, and those below it."""
    yield from _described(command, context, context.command_path.removeprefix("cdc-pipeline "))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _sections(below, click.Context(below, info_name=name, parent=context))


def _described(command: click.Command, context: click.Context, title: str) -> Iterator[str]:
    yield f"## {title}\n"
    group = isinstance(command, click.Group)
    usage = "..." if group else " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    if command.help:
        yield _prose(command.help)
    options = [
        one
        for one in command.get_params(context)
        if isinstance(one, click.Option) and not one.hidden
    ]
    rows = [_row(one, context) for one in options if "--help" not in one.opts]
    if rows:
        yield table(("option", "default", "what it does"), rows)


def _prose(text: str) -> str:
    """Return a help text as Markdown. What click must not wrap (``\\b``) is shown as it is."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text.replace("\f", "")))
    return "\n".join(
        f"```text\n{inspect.cleandoc(part.removeprefix(chr(8)))}\n```\n"
        if part.startswith("\b")
        else f"{as_markdown(' '.join(part.split()))}\n"
        for part in parts
    )


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    if not option.is_flag:
        names += f" {code(option.make_metavar(context))}"
    shown = option.default if option.show_default else None
    default = "" if shown is None or callable(shown) else code(str(shown))
    told = "more than once" in (option.help or "")
    more = " Can be repeated." if option.multiple and not told else ""
    if option.envvar and option.show_envvar:
        more += f" Environment: `{option.envvar}`."
    required = " Required." if option.required else ""
    return names, default, as_markdown(option.help or "") + required + more
