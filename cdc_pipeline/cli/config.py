"""``cdc-pipeline config schema|show``: what a configuration file may say, and what one says."""

from __future__ import annotations

import click

from cdc_pipeline.cli.common.activity import ended
from cdc_pipeline.cli.common.output import emit_json
from cdc_pipeline.cli.common.settings import CommandGroup, Settings, source_argument, with_json
from cdc_pipeline.text.printable import printable_lines


@click.group("config", cls=CommandGroup)
def command() -> None:
    """Show the JSON Schema of the configuration files, or the settings of a source. Each command
    takes --json.

    Exit codes: 0 shown; 2 wrong usage or configuration.
    """


@command.command("schema")
@with_json
def schema(settings: Settings) -> None:  # noqa: ARG001
    """Print the JSON Schema of a source's YAML file, with and without --json.

    Editors complete and check a file with it. Write it beside the files (the example below), and
    name it in the first line of each:

    \b
        # yaml-language-server: $schema=.schema.json
    """
    from cdc_pipeline.config.settings import json_schema

    emit_json(json_schema())


@command.command("show")
@source_argument()
@with_json
def show(settings: Settings, *, source: str) -> None:
    """Show all settings of SOURCE as they are in force, as YAML.

    A comment says what is a default, and what comes from a variable of the environment. Relative
    paths are resolved; passwords, salts and keys are hidden; what is not set and has no default is
    left out.
    """
    file = settings.file_of(source)
    from cdc_pipeline.config.settings import as_yaml, effective_config, origins_of, values_of

    config = effective_config(file)
    if settings.as_json:
        emit_json({"file": str(file), "settings": values_of(config), "origins": origins_of(config)})
        return
    ended()
    click.echo(f"# {printable_lines(str(file))}")
    click.echo(printable_lines(as_yaml(config)), nl=False)
