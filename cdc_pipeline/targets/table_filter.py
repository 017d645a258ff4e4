"""Select the tables that a pipeline captures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schema_policy import ShadowNames
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.text.table_names import (
    SYSTEM_SCHEMAS,
    NameRule,
    TablePattern,
    TablePatterns,
    split_table_name,
    table_name,
)


def server_names(config: PipelineConfig) -> NameRule:
    """As the server said in this run or at the last cut (K30); a lake without one has no names."""
    if config.names is not None:
        return config.names
    cut = last_cut(LakePaths.of(config))
    return NameRule.AS_GIVEN if cut is None else cut.cursor.lower_case_table_names


def names_of(config: PipelineConfig, written: Iterable[str]) -> NameRule:
    """For names that people have written; the lake is read only if it matters to them."""
    if all(NameRule.LOWER.fold(text) == text for text in written):
        return NameRule.AS_GIVEN
    return server_names(config)


def pattern_names(config: PipelineConfig) -> NameRule:
    tables = config.tables
    of_rules = (text for rule in config.targets for text in (*rule.tables, *rule.except_))
    return names_of(config, (*tables.include, *tables.exclude, *tables.shadow_tables, *of_rules))


def tables_named(
    config: PipelineConfig, written: Collection[str], known: Collection[str] = ()
) -> tuple[str, ...]:
    """As the server compares names that a person has written, or as the lake has them (`known`)."""
    names = names_of(config, written)
    return tuple(name if name in known else names.fold(name) for name in written)


class TableFilter:
    """Shadow tables of online schema changes are captured by their exact names alone."""

    def __init__(
        self, config: PipelineConfig, *, only: Callable[[str], bool] | None = None
    ) -> None:
        """`only`: narrows what the patterns match, by name ``schema.table``."""
        self._only = only
        tables, names = config.tables, pattern_names(config)
        self._shadow_names = ShadowNames(tables.shadow_tables, names)
        self.include = tuple(TablePattern.parse(text, names) for text in tables.include)
        self.exclude = tuple(TablePattern.parse(text, names) for text in tables.exclude)
        self._included = TablePatterns(self.include)
        self._excluded = TablePatterns(self.exclude)
        self.exact_names = tuple(
            pattern.exact for pattern in self.include if pattern.exact is not None
        )
        self._exact = frozenset(self.exact_names)
        self.captured = lru_cache(maxsize=65536)(self._captured)

    def _captured(self, database: str, table: str) -> bool:
        if database.lower() in SYSTEM_SCHEMAS:
            return False
        name = table_name(database, table)
        if not self._matches(database, table) or (self._only is not None and not self._only(name)):
            return False
        return name in self._exact or not self.shadowed(database, table)

    def _matches(self, database: str, table: str) -> bool:
        return self._included.match(database, table) and not self._excluded.match(database, table)

    def shadowed(self, database: str, table: str) -> str:
        """The captured table that an online schema change works on by this name; "" if none."""
        base = self._shadow_names.table_of(table)
        return base if base and self._matches(database, base) else ""

    def captured_names(self, names: list[str]) -> list[str]:
        return sorted(name for name in names if self.captured(*split_table_name(name)))
