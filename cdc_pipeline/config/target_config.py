"""The rules under `targets` of a pipeline's YAML: a source table's Delta tables and their columns.

Rules:
- A captured table has one target for each rule that matches it; if none does, it has the default
  target, a mirror of the same name.
- A target's name is ``schema.table`` in the lake. Two source tables share a target only if their
  rule says so (`shard_column`).
- Column names mean the source's columns, case-insensitively: a mask must not miss a column because
  of its spelling.
- A salt comes from the environment, is a secret, and is never shown or recorded.
- This module finds mistakes within one rule; `targets/route_checks.py` finds those that
  depend on tables and columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from cdc_pipeline.config.expressions import read_expression
from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.config.schema_policy import SchemaChanges
from cdc_pipeline.config.section import Forms, Section, Takes
from cdc_pipeline.text.table_names import TablePattern, split_table_name, table_name

Keyless = Literal["changelog", "row_hash", "stop"]

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_BOTH_NAMES: Final = "{schema}.{table}"
_SALT_CHARACTERS_MIN: Final = 16
_NAME_REFUSED: Final = re.compile(r"[ ,;{}()\n\t=]")


_TYPE_NAMES: Final = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
}
_TYPE: Final = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d{1,2},\d{1,2}\)|string|binary|"
    r"date|timestamp|timestamp_ntz"
)


def _checked_patterns(value: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError unless each is a pattern over ``schema.table``."""
    for pattern in value:
        TablePattern.parse(pattern)
    return value


def _checked_column(name: str) -> str:
    """Raises ValueError if no new column may have the name."""
    if not name or _NAME_REFUSED.search(name):
        raise ValueError(
            f"{name!r} is not a column name, which has no blanks and none of ,;{{}}()="
        )
    if name.lower().startswith(("_cdc_", "__start_at", "__end_at")):
        raise ValueError(f"{name!r}: this name is reserved for the pipeline")
    return name


def _checked_type(text: str) -> str:
    """A Spark type as lower-case DDL text without blanks, such as ``decimal(10,2)``. Raises
    ValueError.
    """
    name = _TYPE_NAMES.get(plain := re.sub(r"\s+", "", text.lower()), plain)
    if not _TYPE.fullmatch(name):
        raise ValueError(
            f"{text!r} is not a type such as string, bigint, decimal(10,2), date, timestamp_ntz"
        )
    return name


# Of Delta's properties, by the beginnings of their names: why a user sets none of them.
_OWN_PROPERTIES: Final = {
    "cdc.": "it shows which tables are the pipeline's",
    "delta.appendOnly": "rows are changed",
    "delta.logRetentionDuration": "sink.cut_retention sets it",
    "delta.deletedFileRetentionDuration": "sink.cut_retention sets it",
    "delta.setTransactionRetentionDuration": "a repeated batch is known by its transaction id",
    "delta.enableExpiredLogCleanup": "old log files go once the checkpoint over them is durable",
    "delta.constraints.": "the source decides which rows there are",
    "delta.coordinatedCommits": "commits are found in the table's own log",
    "delta.min": "sink.reader_features decides which features tables have",
    "delta.feature.": "sink.reader_features decides which features tables have",
    "delta.columnMapping.": "sink.reader_features decides whether tables have it",
    "delta.enableDeletionVectors": "sink.reader_features decides whether tables have them",
    "delta.enableTypeWidening": "sink.reader_features decides whether tables have it",
    "delta.checkpointPolicy": "sink.reader_features decides which features tables have",
    "delta.checkpoint.": "the statistics in checkpoints are read",
}


_OF_SPARK: Final = {"comment", "external", "location", "owner", "provider", "collation"}


def _property_texts(value: object) -> object:
    """YAML's booleans and numbers as Delta writes them. Raises ValueError: a reserved name."""
    if not isinstance(value, dict):
        return value
    names = [name.lower() for name in map(str, value)]
    for name in map(str, value):
        if names.count(name.lower()) > 1:
            raise ValueError(f"{name!r} is set twice: Delta compares names without their case")
        if name.lower() in _OF_SPARK:
            raise ValueError(f"{name!r} cannot be set: Spark keeps it itself")
        for own, why in _OWN_PROPERTIES.items():
            if name.lower().startswith(own.lower()):
                raise ValueError(f"{name!r} cannot be set: {why}")
    return {
        name: json.dumps(text) if isinstance(text, bool | int | float) else text
        for name, text in value.items()
    }


TableProperties = Annotated[
    dict[str, str],
    BeforeValidator(_property_texts, json_schema_input_type=dict[str, str | bool | int | float]),
]
Patterns = Annotated[tuple[str, ...], AfterValidator(_checked_patterns)]
_NewColumn = Annotated[str, AfterValidator(_checked_column)]
_SparkType = Annotated[str, AfterValidator(_checked_type)]


class RowPolicies(Section):
    """What happens to values and rows that cannot be applied as they are. None means the sink's
    own setting, then the default; docs/tables/rescue.md says what each does.
    """

    on_invalid_value: Literal["rescue", "fail", "quarantine"] | None = None
    zero_dates: Literal["rescue", "null", "fail", "quarantine"] | None = None
    rescued_column: Literal["when_needed", "always"] | None = None
    on_bad_row: Literal["fail", "quarantine"] | None = None

    @field_validator("zero_dates", mode="before")
    @classmethod
    def _null(cls, value: object) -> object:
        return "null" if value is None else value  # YAML reads null without quotes as nothing


def _checked_salt(salt: SecretStr) -> SecretStr:
    text = salt.get_secret_value()
    # A reference is not resolved yet: what it stands for is checked when it is.
    if "${" not in text and len(text) < _SALT_CHARACTERS_MIN:
        raise ValueError(
            f"the salt is shorter than {_SALT_CHARACTERS_MIN} characters: if it can be guessed, "
            "the values can be guessed; make one with `openssl rand -hex 32`"
        )
    return salt


def _fixed_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, dict | list) else str(value)


class SaltConfig(Section):
    """What values are hashed with."""

    salt: Annotated[SecretStr, AfterValidator(_checked_salt)]


class HashMask(Section):
    """A hash of the value."""

    hash: Annotated[SaltConfig, Takes("{salt: ${SALT}}")]


class TruncateMask(Section):
    """The first characters of a text, or the first of binary values' bytes."""

    truncate: Annotated[int, Takes("the number of characters to keep")] = Field(ge=0, strict=True)


class FixedMask(Section):
    """The same value in every row."""

    fixed: Annotated[
        str | None,
        BeforeValidator(_fixed_text, json_schema_input_type=str | float | bool | None),
        Takes("a single value"),
    ]


Mask = Annotated[
    Literal["drop"] | HashMask | TruncateMask | FixedMask,
    Forms("drop, {hash: {salt: ${SALT}}}, {truncate: 3} or {fixed: 'x'}"),
]


class ColumnsRule(Section):
    """Which columns a target has: shell patterns over their names."""

    of_unknown: ClassVar = " (masks are beside columns: masks: {email: hash})"

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        return takes_column(self.include, self.exclude, name)


class Computed(Section):
    """A column that Spark computes from a row's own columns."""

    expression: Annotated[str, AfterValidator(lambda text: read_expression(text).text)]
    type: _SparkType


class TargetRule(RowPolicies):
    """One rule: its source tables, and the shape of their target."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True)

    tables: Patterns = ("*.*",)
    except_: Patterns = Field(default=(), alias="except")
    mode: Mode = "mirror"
    name: str = ""
    shard_column: _NewColumn | None = None
    shard_value: str = _BOTH_NAMES
    key: tuple[str, ...] = ()
    keyless: Keyless = "changelog"
    track: tuple[str, ...] = ()
    schema_changes: SchemaChanges | None = None
    columns: ColumnsRule = ColumnsRule()
    masks: dict[str, Mask] = Field(default_factory=dict)
    computed: dict[_NewColumn, Computed] = Field(default_factory=dict)
    filter: Annotated[str, AfterValidator(lambda text: text and read_expression(text).text)] = ""
    types: dict[str, _SparkType] = Field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: TableProperties = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_mode(self) -> TargetRule:
        spec = MODES[self.mode]
        if self.track and not spec.keeps_versions:
            tracking = " or ".join(mode for mode, other in MODES.items() if other.keeps_versions)
            raise ValueError(f"`track` is only for mode: {tracking}")
        if self.key and not spec.has_key:
            raise ValueError(f"a {spec.label} has no key: remove `key`")
        if self.filter and spec.marks_deleted_rows:
            raise ValueError(
                f"`filter` cannot be used with mode: {self.mode}, which keeps every row: use a "
                "mirror or a history"
            )
        if self.computed and self.keyless == "row_hash":
            raise ValueError(
                "keyless: row_hash finds rows by the source's values only: remove `computed`"
            )
        if self.filter and self.keyless == "row_hash":
            raise ValueError(
                "keyless: row_hash counts rows, which a `filter` cannot: use changelog or stop"
            )
        if self.keyless == "row_hash" and spec.has_key and not spec.can_find_by_values:
            raise ValueError(
                f"keyless: row_hash keeps a mirror, not a {self.mode}: use changelog or stop"
            )
        return self

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        unknown = set(_PLACEHOLDER.findall(value)) - {"schema", "table"}
        if unknown or (value and "." not in value):
            raise ValueError(
                f"{value!r} is not a name such as '{{schema}}.{{table}}_copy' or 'shop.all_orders'"
            )
        return value

    @field_validator("shard_value")
    @classmethod
    def _shard_value(cls, value: str) -> str:
        placeholders = set(_PLACEHOLDER.findall(value))
        if not placeholders or placeholders - {"schema", "table"}:
            raise ValueError(
                f"{value!r} does not distinguish tables: use {{schema}}, {{table}} or both"
            )
        return value

    @field_validator("cluster_by")
    @classmethod
    def _few(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > 4:
            raise ValueError("Delta clusters by at most four columns")
        return value

    @model_validator(mode="after")
    def _fits(self) -> TargetRule:
        own = [name.lower() for name in self.computed] + (
            [self.shard_column.lower()] if self.shard_column else []
        )
        twice = next((name for name in own if own.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice!r} is the name of two new columns")
        for setting, names in (("masks", self.masks), ("types", self.types)):
            folded = [name.lower() for name in names]
            for name in names:
                if folded.count(name.lower()) > 1:
                    raise ValueError(f"{setting}: {name!r} is named twice, with different case")
                if name.lower() in own:
                    raise ValueError(
                        f"{setting}: {name!r} is a new column of this rule, not one of the source"
                    )
        masked = {name.lower() for name in self.masks}
        if both := masked & {name.lower() for name in self.types}:
            raise ValueError(f"types: {min(both)!r} is masked: its mask determines its type")
        for setting, text in self.expressions:
            for name in read_expression(text).reads:
                if name in masked:
                    raise ValueError(
                        f"{setting}: {name!r} is masked: an expression must not use its values"
                    )
                if name in own:
                    raise ValueError(
                        f"{setting}: {name!r} is a new column: expressions read the "
                        "source's columns"
                    )
                if not self.columns.takes(name):
                    raise ValueError(f"{setting}: {name!r} is excluded: its values are not kept")
        if self.partition_by and self.cluster_by:
            raise ValueError("partition_by and cluster_by exclude each other in Delta")
        for setting, placed in (
            ("partition_by", self.partition_by),
            ("cluster_by", self.cluster_by),
        ):
            for name in placed:
                if name.lower() not in own and not self.takes(name):
                    raise ValueError(f"{setting}: {name!r} is not a column of the target")
        return self

    @property
    def expressions(self) -> list[tuple[str, str]]:
        """Every expression of the rule, with the path of its setting."""
        expressions = [
            (f"computed.{name}.expression", column.expression)
            for name, column in self.computed.items()
        ]
        return [*expressions, ("filter", self.filter)] if self.filter else expressions

    @property
    def is_plain(self) -> bool:
        """The target has the source's columns unchanged."""
        shaping = self.shard_column or self.masks or self.computed or self.filter or self.types
        placed = self.partition_by or self.cluster_by
        return not (shaping or placed or self.columns != ColumnsRule())

    def target_name(self, schema: str, table: str) -> str:
        parts = split_table_name(self.name or MODES[self.mode].default_name)
        return table_name(*(_filled(part, schema, table) for part in parts))

    def shard_of(self, schema: str, table: str) -> str:
        """The value of the shard column in rows of a source table."""
        if self.shard_value == _BOTH_NAMES:
            return table_name(schema, table)
        return _filled(self.shard_value, schema, table)

    def mask_of(self, name: str) -> Mask | None:
        return next(
            (mask for masked, mask in self.masks.items() if masked.lower() == name.lower()), None
        )

    def keeps_text(self, name: str) -> bool:
        """Whether the values of a source column are texts in the target."""
        return (name.lower(), "string") in {(of.lower(), kept) for of, kept in self.types.items()}

    def takes(self, name: str) -> bool:
        """Whether the target has a source column, masked or not."""
        mask = self.mask_of(name)
        return self.columns.takes(name) and mask != "drop"


def takes_column(include: Iterable[str], exclude: Iterable[str], name: str) -> bool:
    return _matches(include, name) and not _matches(exclude, name)


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _filled(template: str, schema: str, table: str) -> str:
    return _PLACEHOLDER.sub(lambda match: schema if match[1] == "schema" else table, template)
