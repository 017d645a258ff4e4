"""``cdc-pipeline validate``: every mistake of every file at once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from cdc_pipeline.cli.common.output import emit_json, results, styled
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import check_dagster
from cdc_pipeline.config.pipeline_config import ConfigMistakes, Mistake, read_document
from cdc_pipeline.run.plan.possible import impossible_settings
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig, PipelineDocument
    from cdc_pipeline.lake.records import Cut


@click.command("validate")
@source_argument("sources", nargs=-1, metavar="[SOURCE]...")
@with_json
def command(settings: Settings, *, sources: tuple[str, ...]) -> None:
    """Check the configuration of SOURCE, or of every source.

    All mistakes are shown, each with its path in the file. Exit code 2 if there are any. The
    targets that are already known are compared with those of all other files: only one source may
    write a table of a lake.
    """
    names = sources or settings.source_names()
    if not names:
        raise settings.no_source_yet()
    outlines = _outlines(settings)
    found = {source: _mistakes(settings, source, outlines) for source in names}
    if settings.as_json:
        emit_json(
            {source: _document(settings, source, mistakes) for source, mistakes in found.items()}
        )
    else:
        _show(settings, found)
    if any(found.values()):
        raise click.exceptions.Exit(2)


def _outlines(settings: Settings) -> dict[str, tuple[PipelineConfig, Cut | None]]:
    """The sources of all files without mistakes, with the newest cut of each: read once, for each
    source is compared with all others."""
    from cdc_pipeline.targets.known_tables import cut_in_folder

    outlines = {}
    for source in settings.source_names():
        with suppress(ConfigMistakes):
            config = read_document(settings.file_of(source)).outline()
            outlines[source] = config, cut_in_folder(config)
    return outlines


def _mistakes(
    settings: Settings, source: str, outlines: Mapping[str, tuple[PipelineConfig, Cut | None]]
) -> list[Mistake]:
    file = settings.file_of(source)

    def accepts(**schedule: Any) -> bool:
        check_dagster(
            f"{file} has a schedule that only Dagster can check",
            otherwise="write it as five plain fields, such as 0 * * * *, in the zone UTC",
        )
        # Imported late: it takes longer than everything else.
        from cdc_pipeline.orchestration.definitions import accepts

        return accepts(**schedule)

    try:
        document = read_document(file)
        return _impossible(document, document.resolve(accepts=accepts), outlines)
    except ConfigMistakes as error:
        return error.mistakes


def _impossible(
    document: PipelineDocument,
    config: PipelineConfig,
    outlines: Mapping[str, tuple[PipelineConfig, Cut | None]],
) -> list[Mistake]:
    """And what other files write as well."""
    from cdc_pipeline.targets.known_tables import cut_in_folder
    from cdc_pipeline.targets.shared import shared_targets

    others = {name: other for name, other in outlines.items() if name != config.name}
    errors = [
        *impossible_settings(config, others=[other for other, _ in others.values()]),
        *shared_targets(config, cut_in_folder(config), others=others),
    ]
    mistakes = [
        Mistake(
            path=str(error.setting),
            message=f"{error.what}: expected {error.expected}; {error.next_step}",
        )
        for error in errors
    ]
    return document.with_mistakes(mistakes).mistakes if mistakes else []


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
            out.print(styled(("✓", "green"), f" {file}"))
            continue
        out.print(styled(("✗", "red"), f" {file}: {count_of(len(mistakes), 'mistake')}"))
        for mistake in mistakes:
            out.print(f"    {mistake}")
