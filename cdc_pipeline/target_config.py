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

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Mode = Literal["mirror", "soft_delete", "history", "changelog"]
Keyless = Literal["changelog", "row_hash", "stop"]

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


class TargetRule(Section):
    """One rule: which source tables, and what their target is like.

    `tables` and `except` are shell patterns over ``schema.table``. `name` may hold ``{schema}`` and ``{table}``; its
    default is the source table's name, with ``_history`` or ``_changelog`` behind it in these modes.

    `key` names the columns that find a row, where the source's own key shall not; that they are unique is the user's
    word. `keyless` is what becomes of a table without any key: a changelog, a mirror by all values, or a stop. `track`
    names the columns whose changes begin a version of a history; all where it is empty.
    """

    model_config = ConfigDict(populate_by_name=True)

    tables: tuple[str, ...] = ("*.*",)
    except_: tuple[str, ...] = Field(default=(), alias="except")
    mode: Mode = "mirror"
    name: str = ""
    shard_column: str | None = None
    key: tuple[str, ...] = ()
    keyless: Keyless = "changelog"
    track: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits_mode(self) -> TargetRule:
        if self.track and self.mode != "history":
            raise ValueError("`track` is for mode: history")
        if self.key and self.mode == "changelog":
            raise ValueError("a changelog has no key: leave `key` out")
        if self.keyless == "row_hash" and self.mode not in ("mirror", "changelog"):
            raise ValueError(f"keyless: row_hash keeps a mirror, not a {self.mode}: use changelog or stop")
        return self

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
