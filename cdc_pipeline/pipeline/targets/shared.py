"""Find targets that two sources of one lake would both write (K16, K31).

Rules:
- A run refuses a Delta table that another source has made. This finds it before: from the files
  alone, and from what is known of each source's tables.
- What one source knows of a server's tables, all sources that read this server know. A pattern
  stands for a table that it matches, so that two alike are found before a table is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.pipeline.targets.routes import Routes
from cdc_pipeline.pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import TablePattern, split_table_name

_WILDCARDS: Final = re.compile(r"\[!?(.)[^\]]*\]|[*?]")


class SharedTarget(NamedTuple):
    """A target that several sources write; `tables`: itself, or the pattern whose tables it
    stands for.
    """

    lake: str
    tables: str
    sources: tuple[str, ...]


def shared_targets(
    configs: Mapping[str, PipelineConfig], known: Mapping[str, Collection[str]]
) -> list[SharedTarget]:
    """Targets that two or more of `configs` (by source) write; `known`: source tables, by
    source.
    """
    lakes = Counter(str(config.sink.lake_path) for config in configs.values())
    shared = {
        source: config
        for source, config in configs.items()
        if lakes[str(config.sink.lake_path)] > 1
    }
    filters = {source: TableFilter(config) for source, config in shared.items()}
    at_server: dict[str, dict[tuple[str, str], str]] = {}
    for source, config in shared.items():
        names = at_server.setdefault(_server(config), {})
        names |= {split_table_name(name): "" for name in known.get(source, ())}
        for one in filters[source].include:
            names.setdefault(_example(one), "" if one.exact else one.text)
    keepers: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for source, config in shared.items():
        routes, lake = Routes(config), str(config.sink.lake_path)
        for name, pattern in at_server[_server(config)].items():
            if not filters[source].captured(*name):
                continue
            try:
                found = routes.of_table(*name)
            except ConfigError:
                continue  # `plan` and `run` report mistakes in the rules
            for route in found:
                shown = f"what {pattern} matches" if pattern else route.target
                keepers.setdefault((lake, route.target), (shown, []))[1].append(source)
    return [
        SharedTarget(lake, shown, tuple(dict.fromkeys(sources)))
        for (lake, _), (shown, sources) in keepers.items()
        if len(set(sources)) > 1
    ]


def _server(config: PipelineConfig) -> str:
    source = config.source
    if isinstance(source, LiveSourceConfig):
        return f"{source.host}:{source.port}"
    return str(source.directory)


def _example(pattern: TablePattern) -> tuple[str, str]:
    if pattern.exact is not None:
        return split_table_name(pattern.exact)
    schema, table = pattern.exact_schema, pattern.exact_table
    texts = split_table_name(_WILDCARDS.sub(lambda found: found[1] or "x", pattern.text))
    return schema if schema is not None else texts[0], table if table is not None else texts[1]
