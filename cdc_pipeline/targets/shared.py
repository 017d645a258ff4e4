"""Find targets that two sources of one lake would both write (K16, K31).

Rules:
- A Delta table that another source has made is refused by `route_checks`. This finds it before:
  from the files alone, and from what is known of each source's tables. `validate` and whatever
  plans a run ask it.
- What one source knows of a server's tables, all sources that read this server know. A pattern
  stands for a table that it matches, so that two alike are found before a table is known.
- Who was there first goes on: what the newest cut of a source has is its own, and a source without
  a cut is refused, not the one that has one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.targets.known_tables import cut_in_folder, known_sources
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import TablePattern, split_table_name, table_name

_WILDCARDS: Final = re.compile(r"\[!?(.)[^\]]*\]|[*?]")
_Names = dict[tuple[str, str], str]


def shared_targets(
    config: PipelineConfig,
    cut: Cut | None,
    known: Collection[str] = (),
    *,
    others: Mapping[str, tuple[PipelineConfig, Cut | None]] | None = None,
) -> list[ConfigError]:
    """An error for each target that another file of the folder writes as well. `known`: tables
    beside those of cuts; `others`: pipelines with their newest cuts, by name.
    """
    lake = str(config.sink.lake_path)
    if others is None:
        in_lake = [one for one in config.others() if str(one.sink.lake_path) == lake]
        others = {one.name: (one, cut_in_folder(one)) for one in in_lake}
    cuts = {name: other for name, other in others.items() if str(other[0].sink.lake_path) == lake}
    if not cuts:
        return []
    cuts[config.name] = config, cut
    at_server: dict[str, _Names] = {}
    for one, newest in cuts.values():
        names = at_server.setdefault(_server(one), {})
        of_source = known_sources(one, newest)
        names |= dict.fromkeys(map(split_table_name, of_source), "")
        for pattern in TableFilter(one).include:
            names.setdefault(_example(pattern), "" if pattern.exact else pattern.text)
    at_server[_server(config)] |= dict.fromkeys(map(split_table_name, known), "")
    writers = {
        name: dict(_targets(one, at_server[_server(one)])) for name, (one, _) in cuts.items()
    }
    own = writers.pop(config.name)
    shared = []
    for target in own.keys() - (() if cut is None else cut.cursor.targets):
        also = [
            name
            for name, targets in writers.items()
            if target in targets and (cut is None or cuts[name][1] is not None)
        ]
        if also:
            shared.append(
                ConfigError(
                    f"{own[target]} in {lake} is also a target of {', '.join(also)}",
                    setting="tables.include",
                    expected="one source for each table of a lake",
                    next_step="use another lake, another `name` in a rule under targets, or "
                    "tables.exclude",
                )
            )
    return sorted(shared, key=str)


def _targets(config: PipelineConfig, names: _Names) -> Iterator[tuple[str, str]]:
    routes, tables = Routes(config), TableFilter(config)
    for name, pattern in names.items():
        if tables.captured(*name):
            with suppress(ConfigError):  # `plan` and `run` report mistakes in the rules
                for route in routes.of_table(table_name(*name)):
                    yield route.target, f"what {pattern} matches" if pattern else route.target


def _server(config: PipelineConfig) -> str:
    source = config.source
    if isinstance(source, LiveSourceConfig):
        return source.address
    return str(source.directory)


def _example(pattern: TablePattern) -> tuple[str, str]:
    if pattern.exact is not None:
        return split_table_name(pattern.exact)
    schema, table = pattern.exact_schema, pattern.exact_table
    texts = split_table_name(_WILDCARDS.sub(lambda found: found[1] or "x", pattern.text))
    return schema if schema is not None else texts[0], table if table is not None else texts[1]
