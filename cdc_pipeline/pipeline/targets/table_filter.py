"""Select the tables that a pipeline captures."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cdc_pipeline.config.pipeline_config import TablesConfig
from cdc_pipeline.config.schema_policy import ShadowNames
from cdc_pipeline.text.table_names import TablePattern, TablePatterns, split_table_name, table_name

SYSTEM_SCHEMAS = frozenset({"mysql", "sys", "information_schema", "performance_schema"})


class TableFilter:
    """Include and exclude patterns over ``schema.table``.

    Names are compared as the binlog writes them. Shadow tables of online schema changes are
    captured by their exact names alone.

    Attributes:
        include: the patterns of tables that are captured.
        exact_names: tables that a pattern names without wildcards.
    """

    def __init__(self, tables: TablesConfig, *, only: Callable[[str], bool] | None = None) -> None:
        """`only`: narrows what the patterns match, by name ``schema.table``."""
        self._only = only
        self._shadow_names = ShadowNames(tables.shadow_tables)
        self.include = tuple(map(TablePattern.parse, tables.include))
        self._included = TablePatterns(self.include)
        self._excluded = TablePatterns(map(TablePattern.parse, tables.exclude))
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
        """Return the captured table that an online schema change works on by this name; "" if
        none."""
        base = self._shadow_names.table_of(table)
        return base if base and self._matches(database, base) else ""

    def captured_names(self, names: list[str]) -> list[str]:
        """Return those of `names` (``schema.table``) that are captured, sorted."""
        return sorted(name for name in names if self.captured(*split_table_name(name)))
