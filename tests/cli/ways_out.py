"""Commands that an error names, taken out of its text (K22)."""

from __future__ import annotations

import re
import shlex

import click

from cdc_pipeline.cli.app import cli

_COMMAND = re.compile(r"`cdc-pipeline ([^`]+)`")


def commands_of(text: str) -> list[list[str]]:
    """The commands in a text that a person reads, each as the words behind ``cdc-pipeline``."""
    return [shlex.split(found) for found in _COMMAND.findall(" ".join(text.split()))]


def check_usage(words: list[str]) -> None:
    """See that a command line can be parsed, without running it."""
    command: click.Command = cli
    context, left = click.Context(cli), ["-" if word == "JOURNAL" else word for word in words]
    while isinstance(command, click.Group):
        name, found, left = command.resolve_command(context, left)
        assert found is not None, words
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, left)
