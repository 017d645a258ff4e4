"""docs/reference/commands.md, from the command line itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from cdc_pipeline.cli.app import cli
from tools.pages.markdown import as_markdown, code, made_from

INTRO = """\
# Commands

Every command with its arguments and options, as `--help` shows them.

- **Exit codes**: 0 done, 1 failed, 2 wrong usage or configuration, 130 Ctrl-C,
  143 SIGTERM. Commands that have others say so; those of a group hold for each of its commands.
- **Output**: results go to standard output; progress, notes and errors to standard error. Every
  command takes `--json`: standard output then holds exactly one JSON document, even for an error.
- **Positions** have one form everywhere: a journal with or without an offset (`binlog.000007:4`), a
  time with a zone (`2026-01-31T08:00:00Z`), or a GTID.
- **Completion** of commands, options and the names of sources is a line in your shell's
  configuration:

```sh
eval "$(_CDC_PIPELINE_COMPLETE=bash_source cdc-pipeline)"     # ~/.bashrc
eval "$(_CDC_PIPELINE_COMPLETE=zsh_source cdc-pipeline)"      # ~/.zshrc
_CDC_PIPELINE_COMPLETE=fish_source cdc-pipeline | source      # ~/.config/fish/config.fish
```
"""
# What the introduction says of every command.
_SAID_ABOVE = re.compile(
    r" Each\s+command\s+takes\s+--json\.|; 2\s+wrong\s+usage(?: or\s+configuration)?(?=\.)"
)


def commands_page() -> str:
    context = click.Context(cli, info_name="cdc-pipeline")
    parts = [INTRO, made_from("cdc_pipeline/cli"), *_described(cli, context, "Global options")]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += _sections(command, click.Context(command, info_name=name, parent=context))
    return _said_once("\n".join(parts))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from _described(command, context, context.command_path.removeprefix("cdc-pipeline "))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _sections(below, click.Context(below, info_name=name, parent=context))


def _described(command: click.Command, context: click.Context, title: str) -> Iterator[str]:
    yield f"## {title}\n"
    if not isinstance(command, click.Group):
        arguments = " ".join(command.collect_usage_pieces(context)).replace("[OPTIONS]", "").strip()
        if arguments:
            yield f"`{arguments}`\n"
    if command.help:
        yield _prose(_SAID_ABOVE.sub("", command.help))
    if command.epilog:
        examples = inspect.cleandoc(command.epilog.partition("Examples:\n")[2])
        yield f"```sh\n{examples}\n```\n"
    options = [
        _option(option, context)
        for option in command.get_params(context)
        if isinstance(option, click.Option)
        and not option.hidden
        and not {"--help", "--json"} & {*option.opts}
    ]
    if options:
        yield "\n".join(options) + "\n"


def _said_once(page: str) -> str:
    """Options of `run` that `plan` has too, in one line that refers to it."""
    head, rest = page.split("## run\n", 1)
    run, tail = rest.split("\n## ", 1)
    of_plan = set(head.split("## plan\n", 1)[1].splitlines())
    shared = [line for line in run.splitlines() if line.startswith("- ") and line in of_plan]
    names = ", ".join(line[2:].split()[0] for line in shared)
    kept = [line for line in run.splitlines() if line not in shared]
    return "\n".join([f"{head}## run", *kept, f"- {names}: as of [plan](#plan).", f"\n## {tail}"])


def _prose(text: str) -> str:
    """Return a help text as Markdown. What click must not wrap (``\\b``) is shown as it is."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text.replace("\f", "")))
    return "\n".join(
        f"```text\n{inspect.cleandoc(part.removeprefix(chr(8)))}\n```\n"
        if part.startswith("\b")
        else f"{as_markdown(' '.join(part.split()))}\n"
        for part in parts
    )


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    if not option.is_flag:
        names += f" {code(option.make_metavar(context))}"
    default = option.default if option.show_default else None
    facts = [] if default is None or callable(default) else [f"default {code(str(default))}"]
    if option.required:
        facts.append("required")
    if option.envvar and option.show_envvar:
        facts.append(code(str(option.envvar)))
    told = "more than once" in (option.help or "")
    more = " Can be repeated." if option.multiple and not told else ""
    help_text = " ".join(as_markdown(option.help or "").split())
    described = f"{names} ({', '.join(facts)})" if facts else names
    return f"- {described}: {help_text}{more}"
