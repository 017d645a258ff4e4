"""Which tables a pipeline captures."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

from cdc_pipeline.config import TablesConfig

SYSTEM_SCHEMAS = frozenset({"mysql", "sys", "information_schema", "performance_schema"})


class TableFilter:
    """Include and exclude patterns over ``schema.table``. Names are compared as the binlog writes them.

    Attributes:
        exact_names: patterns that name one table.
    """

    def __init__(self, tables: TablesConfig, *, only: Callable[[str], bool] | None = None) -> None:
        """`only`: narrows what the patterns match, by name ``schema.table``."""
        self._only = only
        self._include = [re.compile(translate(pattern)) for pattern in tables.include]
        self._exclude = [re.compile(translate(pattern)) for pattern in tables.exclude]
        self.exact_names = tuple(pattern for pattern in tables.include if not set("*?[") & set(pattern))
        self.captured = lru_cache(maxsize=65536)(self._captured)

    def _captured(self, database: str, table: str) -> bool:
        if database.lower() in SYSTEM_SCHEMAS:
            return False
        name = f"{database}.{table}"
        if not any(p.match(name) for p in self._include) or any(p.match(name) for p in self._exclude):
            return False
        return self._only is None or self._only(name)

    def captured_names(self, names: list[str]) -> list[str]:
        """Those of `names` (``schema.table``) that are captured, sorted."""
        return sorted(name for name in names if self.captured(*name.split(".", 1)))
