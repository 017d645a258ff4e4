"""``cdc-pipeline validate``: every mistake of every file at once."""

from __future__ import annotations

from typing import Any

import click

from cdc_pipeline.cli.output import emit_json, notes, results
from cdc_pipeline.cli.settings import Settings, with_json
from cdc_pipeline.config import ConfigMistakes, Mistake, load_config


@click.command("validate")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@with_json
def command(settings: Settings, *, sources: tuple[str, ...]) -> None:
    """Check the configuration of SOURCE, or of every source.

    All mistakes are shown, each with its path in the file. Exit code 2 if there are any.
    """
    found = {source: _mistakes(settings, source) for source in (sources or settings.source_names())}
    if settings.as_json:
        emit_json({source: _document(settings, source, mistakes) for source, mistakes in found.items()})
    else:
        _show(settings, found)
    if any(found.values()):
        raise click.exceptions.Exit(2)


def _mistakes(settings: Settings, source: str) -> list[Mistake]:
    file = settings.file_of(source)
    try:
        config = load_config(file)
        if config.schedule is not None or config.maintenance is not None:
            # Only Dagster knows which schedules it takes; it is loaded for files that have one.
            from cdc_pipeline.orchestration.definitions import load_checked

            load_checked(file)
    except ConfigMistakes as error:
        return error.mistakes
    return []


def _document(settings: Settings, source: str, mistakes: list[Mistake]) -> dict[str, Any]:
    return {
        "file": str(settings.file_of(source)),
        "valid": not mistakes,
        "mistakes": [mistake.model_dump() for mistake in mistakes],
    }


def _show(settings: Settings, found: dict[str, list[Mistake]]) -> None:
    out = results()
    for source, mistakes in found.items():
        file = settings.file_of(source)
        if not mistakes:
            out.print(f"[green]✓[/] {file}", soft_wrap=True)
            continue
        out.print(f"[red]✗[/] {file}: {len(mistakes)} mistake{'s' if len(mistakes) != 1 else ''}", soft_wrap=True)
        for mistake in mistakes:
            out.print(f"    {mistake.path}: {mistake.message}", markup=False, soft_wrap=True)
    if not found:
        notes().print(f"no YAML file in {settings.jobs_directory} yet")
