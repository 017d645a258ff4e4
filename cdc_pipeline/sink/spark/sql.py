"""Render names and literals as Spark SQL text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from cdc_pipeline.text.spark_sql import text_literal
from cdc_pipeline.text.table_names import quoted

__all__ = [
    "catalog_safe",
    "literal_of",
    "properties_sql",
    "quoted",
    "seq_literal",
    "set_properties_sql",
    "table_at",
    "text_literal",
    "unique_name",
]


def catalog_safe(name: str) -> str:
    """ASCII letters, digits and _; anything else becomes _."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def unique_name(name: str, table: str) -> str:
    """A name that several tables would share, made unique for one, the same at each try."""
    return f"{name}_{hashlib.sha256(table.encode()).hexdigest()[:8]}"


def table_at(path: Path) -> str:
    return f"delta.{quoted(str(path))}"


def seq_literal(seq: int) -> str:
    return f"CAST('{int(seq)}' AS decimal(38,0))"


def properties_sql(properties: Mapping[str, str]) -> str:
    return ", ".join(
        f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items()
    )


def set_properties_sql(path: Path, properties: Mapping[str, str]) -> str:
    return f"ALTER TABLE {table_at(path)} SET TBLPROPERTIES ({properties_sql(properties)})"


_SUFFIXES = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}


def literal_of(value: object, delta_type: str) -> str | None:
    """Of exactly `delta_type`, so that no cast hides the column's statistics."""
    if delta_type in _SUFFIXES and isinstance(value, int):
        return f"{value}{_SUFFIXES[delta_type]}"
    if delta_type == "string" and isinstance(value, str):
        return text_literal(value)
    if delta_type == "date" and type(value) is date:
        return f"DATE'{value.isoformat()}'"
    return None
