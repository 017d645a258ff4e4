"""The tables of a source that are known before anything runs.

Rules:
- A table is known by its exact name in `tables.include`, from the newest cut in the lake, or from
  the file beside the pipeline's own in which `cdc-pipeline discover --save` keeps what patterns
  match.
- Only small files are read, because this runs each time Dagster loads the definitions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pydantic import ValidationError

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import LakePaths, list_numbers, replace_file
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.table_facts import with_facts
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import NameRule

_log = logging.getLogger(__name__)


class SavedSources(FrozenModel):
    """What `discover --save` keeps: tables, and how their server compares names (K30)."""

    lower_case_table_names: NameRule = NameRule.AS_GIVEN
    tables: tuple[str, ...] = ()


class Known(NamedTuple):
    """What is known of a source: its newest cut, and the source tables of each target, sorted."""

    cut: Cut | None = None
    targets: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    @property
    def sources(self) -> list[str]:
        return sorted({source for sources in self.targets.values() for source in sources})


def known_of(config: PipelineConfig) -> Known:
    cut = newest_cut(config)
    return Known(cut, known_tables(config, cut))


def newest_cut(config: PipelineConfig) -> Cut | None:
    """None if it is unreadable, too: pages shall load, and the next run names the error."""
    if config.lake_unknown:
        return None
    paths = LakePaths.of(config)
    try:
        numbers = list_numbers(paths.cuts)
    except CdcError:
        return None
    for number in reversed(numbers):
        try:
            cut = with_facts(paths, Cut.model_validate_json(paths.cut(number).read_bytes()))
        except (CdcError, OSError, ValidationError):
            continue
        if cut.source == config.name:
            return cut
    return None


def cut_in_folder(config: PipelineConfig) -> Cut | None:
    """The newest cut of a lake in a folder; none is read from an object store."""
    return newest_cut(config) if isinstance(config.sink.lake_path, Path) else None


def _saved_file(config: PipelineConfig) -> Path | None:
    return None if config.file is None else config.file.with_name(f"{config.name}.tables.json")


def save_sources(config: PipelineConfig, sources: SavedSources) -> Path:
    """Keep the source tables that its server has now; ValueError: `config` is of no file."""
    file = _saved_file(config)
    if file is None:
        raise ValueError(f"{config.name} was read from no file")
    replace_file(file, (sources.model_dump_json(indent=2) + "\n").encode())
    return file


def saved_sources(config: PipelineConfig) -> SavedSources:
    file = _saved_file(config)
    if file is None:
        return SavedSources()
    try:
        return SavedSources.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return SavedSources()
    except OSError as error:
        _log.error("%s is left out, it cannot be read: %s", file, error.strerror)
        return SavedSources()
    except ValueError:  # ValidationError too
        next_step = f"cdc-pipeline discover {config.name} --save"
        _log.error("%s is left out, it is damaged: `%s` writes it again", file, next_step)
        return SavedSources()


def known_sources(
    config: PipelineConfig, cut: Cut | None, saved: Collection[str] = ()
) -> list[str]:
    """Return the known source tables, sorted; those in `saved` may be gone since."""
    tables = TableFilter(config)
    names = {*tables.exact_names, *saved}
    for state in cut.cursor.targets.values() if cut is not None else ():
        names.update(state.source_names)
    return tables.captured_names(list(names))


def known_tables(config: PipelineConfig, cut: Cut | None) -> dict[str, tuple[str, ...]]:
    """Return the known targets: the name of each and of its source tables, sorted."""
    found: dict[str, list[str]] = {}
    saved = saved_sources(config)
    if cut is None and config.names is None and saved.tables:
        config = config.comparing(saved.lower_case_table_names)
    routes = Routes(config)
    for source in known_sources(config, cut, saved.tables):
        for route in routes.of_table(source):
            found.setdefault(route.target, []).append(source)
    return {target: tuple(sources) for target, sources in sorted(found.items())}
