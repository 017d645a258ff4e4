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

from cdc_pipeline.config.section import Section
from cdc_pipeline.text.table_names import NameRule

# Names used by gh-ost and pt-online-schema-change.
SHADOW_TABLES: Final = (
    "_{table}_gho",
    "_{table}_ghc",
    "_{table}_del",
    "_{table}_new",
    "_{table}_old",
)


class SchemaChangePolicy(Section):
    """The policies of a pipeline, or of the targets of one rule; `stop` suspends the table."""

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
        """The table that a shadow table's name belongs to; "" for any other name."""
        for pattern in self._patterns:
            match = pattern.fullmatch(name)
            if match is not None:
                return match["table"]
        return ""


def checked_shadows(templates: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError unless each template contains ``{table}`` once, and other text."""
    for template in templates:
        if template.count("{table}") != 1 or template == "{table}":
            raise ValueError(
                f"{template!r} is not the name of a shadow table, which contains "
                f"{{table}} exactly once, as in '_{{table}}_gho'"
            )
    return templates
