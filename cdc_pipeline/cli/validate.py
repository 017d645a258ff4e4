"""``cdc-pipeline validate``: every mistake of every file at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdc_pipeline.cli.common.output import count_of, emit_json, results, styled
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import check_dagster
from cdc_pipeline.config.pipeline_config import ConfigMistakes, Mistake, load_config, read_document
from cdc_pipeline.config.plain_schedule import is_plain_cron, is_plain_zone
from cdc_pipeline.errors import CdcError
from cdc_pipeline.pipeline.plan.possible import impossible_settings

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig, PipelineDocument


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
    found = {source: _mistakes(settings, source) for source in names}
    for source, mistakes in _shared(settings).items():
        if not found.get(source, True):
            found[source] = read_document(settings.file_of(source)).with_mistakes(mistakes).mistakes
    if settings.as_json:
        emit_json(
            {source: _document(settings, source, mistakes) for source, mistakes in found.items()}
        )
    else:
        _show(settings, found)
    if any(found.values()):
        raise click.exceptions.Exit(2)


def _mistakes(settings: Settings, source: str) -> list[Mistake]:
    file = settings.file_of(source)
    mistakes: list[Mistake] = []
    schedules: dict[str, str] = {}
    try:
        document = read_document(file)
        schedules = document.schedules()
        mistakes = _impossible(document)
    except ConfigMistakes as error:
        mistakes = error.mistakes
    if not all(_is_plain(path, value) for path, value in schedules.items()):
        # Imported late: only Dagster knows every schedule that it accepts.
        check_dagster(
            f"{file} has a schedule that only Dagster can check",
            otherwise="write it as five plain fields, such as 0 * * * *, in the zone UTC",
        )
        from cdc_pipeline.orchestration.definitions import load_checked

        try:
            load_checked(file)
        except ConfigMistakes as error:
            return error.mistakes
    return mistakes


def _impossible(document: PipelineDocument) -> list[Mistake]:
    """Raises ConfigMistakes for those wrong by themselves."""
    found = [
        Mistake(
            path=str(error.setting),
            message=f"{error.what}: expected {error.expected}; {error.next_step}",
        )
        for error in impossible_settings(document.resolve())
    ]
    return document.with_mistakes(found).mistakes if found else []


def _is_plain(path: str, value: str) -> bool:
    """Whether a cron or a time zone is right for certain, without Dagster."""
    if path.endswith("deadline_cron"):  # Dagster compares it with lower_bound_delta
        return False
    return is_plain_cron(value) if path.endswith("cron") else is_plain_zone(value)


def _shared(settings: Settings) -> dict[str, list[Mistake]]:
    configs = {}
    for source in settings.source_names():
        with suppress(ConfigMistakes):
            configs[source] = load_config(settings.file_of(source))
    found = _shared_targets(configs)
    files: dict[Path, list[str]] = {}
    for source, config in configs.items():
        if config.metrics is not None:
            files.setdefault(config.metrics, []).append(source)
    for file, sources in files.items():
        for source in sources if len(sources) > 1 else ():
            others = ", ".join(other for other in sources if other != source)
            message = f"{file} is also written by {others}: give each source a file of its own"
            found.setdefault(source, []).append(Mistake(path="metrics", message=message))
    return found


def _shared_targets(configs: Mapping[str, PipelineConfig]) -> dict[str, list[Mistake]]:
    from cdc_pipeline.pipeline.targets.shared import shared_targets

    known = {source: _known_tables(config) for source, config in configs.items()}
    found: dict[str, list[Mistake]] = {}
    for one in shared_targets(configs, known):
        for source in one.sources:
            others = ", ".join(other for other in one.sources if other != source)
            message = (
                f"{one.tables} in {one.lake} is also a target of {others}: use another lake, "
                "another `name` in a rule under targets, or tables.exclude"
            )
            found.setdefault(source, []).append(Mistake(path="tables.include", message=message))
    return found


def _known_tables(config: PipelineConfig) -> Collection[str]:
    from cdc_pipeline.orchestration.known_tables import known_tables, newest_cut

    try:
        found = known_tables(
            config, newest_cut(config) if isinstance(config.sink.lake_path, Path) else None
        )
    except CdcError:
        return ()  # `plan` and `run` report mistakes in the rules
    return {name for of_target in found.values() for name in of_target}


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
            out.print(styled(("✓", "green"), f" {file}"), soft_wrap=True)
            continue
        out.print(
            styled(("✗", "red"), f" {file}: {count_of(len(mistakes), 'mistake')}"), soft_wrap=True
        )
        for mistake in mistakes:
            out.print(f"    {mistake}", markup=False, soft_wrap=True)
