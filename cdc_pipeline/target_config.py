"""Which Delta tables a source table is kept as: the rules under `targets` of a pipeline's YAML.

Rules:
- A captured table has one target for each rule whose patterns match it; without any it has the default target, a mirror
  of its own name.
- A target's name is ``schema.table`` in the lake. Two source tables make one target only where their rule says so
  (`shard_column`).
"""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Mode = Literal["mirror", "soft_delete", "history", "changelog"]

TABLE_PATTERN: Final = re.compile(r"[^.\s]+\.[^.\s]+")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_DEFAULT_NAMES: Final[dict[str, str]] = {
    "mirror": "{schema}.{table}",
    "soft_delete": "{schema}.{table}",
    "history": "{schema}.{table}_history",
    "changelog": "{schema}.{table}_changelog",
}


class Section(BaseModel):
    """A section of the YAML: nothing unknown in it, and no value shown in an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class RowPolicies(Section):
    """What becomes of values and rows that cannot be applied as they are; None: the sink's own, then the default.

    `on_invalid_value`: a value that its Delta type cannot hold. ``rescue`` (default): NULL in its column, the server's
    text in the row's ``_cdc_rescued``. ``fail``: the table is suspended. ``quarantine``: the row goes there.
    `zero_dates`: the same for zero and partial dates alone; ``null`` keeps no text of them and counts them.
    `rescued_column`: ``when_needed`` (default), or ``always`` from the creation of a table.
    `on_bad_row`: a row that cannot be applied at all. ``fail`` (default): the table is suspended; or ``quarantine``.
    """

    on_invalid_value: Literal["rescue", "fail", "quarantine"] | None = None
    zero_dates: Literal["rescue", "null", "fail", "quarantine"] | None = None
    rescued_column: Literal["when_needed", "always"] | None = None
    on_bad_row: Literal["fail", "quarantine"] | None = None


class TargetRule(RowPolicies):
    """One rule: which source tables, and what their target is like.

    `tables` and `except` are shell patterns over ``schema.table``. `name` may hold ``{schema}`` and ``{table}``; its
    default is the source table's name, with ``_history`` or ``_changelog`` behind it in these modes.
    """

    model_config = ConfigDict(populate_by_name=True)

    tables: tuple[str, ...] = ("*.*",)
    except_: tuple[str, ...] = Field(default=(), alias="except")
    mode: Mode = "mirror"
    name: str = ""
    shard_column: str | None = None

    @field_validator("tables", "except_")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_patterns(value)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        unknown = set(_PLACEHOLDER.findall(value)) - {"schema", "table"}
        if unknown or (value and "." not in value):
            raise ValueError(f"{value!r} is not a name such as '{{schema}}.{{table}}_copy' or 'shop.all_orders'")
        return value

    def target_name(self, schema: str, table: str) -> str:
        """Name ``schema.table`` of the target of a source table."""
        template = self.name or _DEFAULT_NAMES[self.mode]
        return _PLACEHOLDER.sub(lambda match: schema if match[1] == "schema" else table, template)


def checked_patterns(value: tuple[str, ...]) -> tuple[str, ...]:
    """`value`, if each is a pattern over ``schema.table``. Raises ValueError."""
    for pattern in value:
        if not TABLE_PATTERN.fullmatch(pattern):
            raise ValueError(f"{pattern!r} is not a pattern such as shop.orders or shop.*")
    return value
