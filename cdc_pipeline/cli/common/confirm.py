"""What a person decides: their name for the record, and their yes."""

from __future__ import annotations

import getpass
import os
import sys

import click

from cdc_pipeline.cli.common.settings import Settings


def operator() -> str:
    """The person at the terminal, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        return f"user id {os.getuid()}"


def is_interactive() -> bool:
    return sys.stdin.isatty()


def confirm(settings: Settings, question: str, *, refusal: str, yes: bool) -> None:
    """Ask the person, unless ``--yes`` was given; `refusal` says what needs confirmation.

    Raises:
        UsageError: nobody can be asked.
        Abort: the person said no.
    """
    if yes:
        return
    if settings.as_json or not is_interactive():
        raise click.UsageError(
            f"{refusal}, and there is no terminal: give --yes to do it. Nothing was changed."
        )
    click.confirm(question, abort=True, err=True)
