"""What a pipeline does about each kind of schema change: the section ``schema_changes`` (K13).

Rules:
- Every kind has a default that loses nothing: if the log leaves something uncertain, the table
  stops and needs a reload.
- A policy states an intent. If the lake may not do it (`sink.reader_features`), the next best thing
  is done and its reason recorded, or the table stops and names the setting.
- These are plain values: `cdc_pipeline.schema` interprets them for a statement.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from cdc_pipeline.text.table_names import NameRule

# Names used by gh-ost and pt-online-schema-change.
SHADOW_TABLES: Final = (
    "_{table}_gho",
    "_{table}_ghc",
    "_{table}_del",
    "_{table}_new",
    "_{table}_old",
)


class SchemaChangePolicy(BaseModel):
    """The policies of a pipeline, or of the targets of one rule.

    Attributes:
        drop_column: keep: the target keeps the column, new rows get NULL. apply: it is dropped
            (column mapping).
        rename_column: apply: renamed (column mapping). new_column: a new column gets the values,
            the old one stays.
        widen: apply: the column's type is widened if the new one holds all values of the old (type
            widening).
        incompatible: stop. new_column: a column ``c__v2`` gets the values from then on. rewrite:
            existing values are converted if the result is certain, else the table stops.
        generated_columns: of a table of which it is not known whether it has any (its CREATE TABLE
            is not in the journals, and there is no server to ask). stop: a change of a column's
            type stops. none: it has none.
        convert_charset: record: a conversion that loses nothing is recorded, another one stops.
            stop: any stops.
        change_key: certain: the same columns in another order. apply: any key of columns whose
            values stay. stop.
        truncate: apply: the rows are removed in the way of the target's mode. keep: they stay.
        drop_table: keep: the target stays as it is. apply: its rows are removed in the way of its
            mode.
        rename_table: by_name: each name's target takes over the rows of the table that has the name
            now. follow: the target follows its table to the new name but keeps its own. keep: it
            stays as it is. stop.
        swap: follow: a swap by gh-ost or pt-online-schema-change applies the shadow's changes to
            the target.
        partition_rows: stop, or keep: rows that partitions took along stay in the target.
        unreadable: catalog: a text that cannot be read passes if the catalog proves that no column
            changed.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    drop_column: Literal["keep", "apply", "stop"] = "keep"
    rename_column: Literal["apply", "new_column", "stop"] = "apply"
    widen: Literal["apply", "stop"] = "apply"
    incompatible: Literal["stop", "new_column", "rewrite"] = "stop"
    generated_columns: Literal["stop", "none"] = "stop"
    convert_charset: Literal["record", "stop"] = "record"
    change_key: Literal["certain", "apply", "stop"] = "certain"
    truncate: Literal["apply", "keep", "stop"] = "apply"
    drop_table: Literal["keep", "apply", "stop"] = "keep"
    rename_table: Literal["by_name", "follow", "keep", "stop"] = "by_name"
    swap: Literal["follow", "stop"] = "follow"
    partition_rows: Literal["stop", "keep"] = "stop"
    unreadable: Literal["catalog", "stop"] = "catalog"


class ShadowNames:
    """Templates for the shadow tables of online schema changes, such as ``_{table}_gho``."""

    def __init__(
        self,
        templates: tuple[str, ...] = SHADOW_TABLES,
        names: NameRule = NameRule.AS_GIVEN,
    ) -> None:
        # If a name is taken, each tool may add a time or further underscores.
        self._patterns = []
        for template in templates:
            before, after = (re.escape(names.fold(part)) for part in template.split("{table}"))
            self._patterns.append(
                re.compile(f"_*{before}(?P<table>.+?)(?:_\\d{{14}})?{after}", re.DOTALL)
            )

    def table_of(self, name: str) -> str:
        """Return the table that a shadow table's name belongs to; "" for any other name."""
        for pattern in self._patterns:
            found = pattern.fullmatch(name)
            if found is not None:
                return found["table"]
        return ""


def checked_shadows(templates: tuple[str, ...]) -> tuple[str, ...]:
    """Return `templates` if each contains ``{table}`` once and other text. Raises ValueError."""
    for template in templates:
        if template.count("{table}") != 1 or template == "{table}":
            raise ValueError(
                f"{template!r} is not the name of a shadow table, which contains "
                f"{{table}} exactly once, as in '_{{table}}_gho'"
            )
    return templates
