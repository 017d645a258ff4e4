"""What one Delta table is to be: the facts of a target that only DDL and configuration change.

Rules:
- A new target is a function of its source table and its rule's shape (`shape_of`). What DDL made of
  one that exists is recorded: columns that it keeps, types that are wider, names that differ.
- A key column is taken, and masked by nothing but a hash (K14).
- A type override loses nothing: every value of the source's type has a value of its own in the
  other.
- A new fact about a target is a field of `TargetSpec`. Runs, batch records and cuts hold the whole
  spec, and none of them copies its fields.
- In records, `sources` is empty if the target has one source table, of its own name and with its
  own columns and key. A run works with the spec written out (`TargetSpec.expanded`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import Field

from cdc_pipeline.config.expressions import read_expression
from cdc_pipeline.config.modes import Mode
from cdc_pipeline.config.target_config import takes_column
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.schema.types import TargetColumn, is_lossless


class RecordedSource(FrozenModel):
    """A source table as a target knows it: what its table maps must confirm (K13)."""

    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    comments: tuple[tuple[str, str], ...] = ()  # column, "" for the table itself -> text
    names: tuple[tuple[str, str], ...] = ()  # source column -> target column, where the two differ
    left: tuple[str, ...] = ()  # columns of a shared target that hold values it no longer has
    gone: bool = False  # it was dropped: a new table of its name starts from scratch

    @property
    def key_in_target(self) -> tuple[str, ...]:
        names = dict(self.names)
        return tuple(names.get(name, name) for name in self.key)


def described(sources: Iterable[RecordedSource], shape: RecordedShape | None) -> dict[str, str]:
    """The comment of a target ("") and of each column that source tables give it: the one that all
    of them have, "" if they differ.
    """
    told: dict[str, set[str]] = {}
    for source in sources:
        texts, names = dict(source.comments), dict(source.names)
        for name in ("", *(column.name for column in source.columns)):
            if not name or shape is None or shape.takes(name):
                told.setdefault(names.get(name, name), set()).add(texts.get(name, ""))
    return {name: min(texts) if len(texts) == 1 else "" for name, texts in told.items()}


class ComputedColumn(FrozenModel):
    """DDL type, deterministic expression over source columns."""

    name: str
    delta_type: str
    expression: str


class RecordedShape(FrozenModel):
    """How a target's columns come from those of its source tables, according to its rule.

    It never holds a secret: of a mask only its fingerprint (see `targets/masks.py`). The keys of
    `masks` and `types` are in lower case.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    masks: dict[str, str] = Field(default_factory=dict)
    types: dict[str, str] = Field(default_factory=dict)
    computed: tuple[ComputedColumn, ...] = ()
    filter: str = ""
    shard_column: str = ""
    shard_value: str = ""
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether the target has a source column, masked or not."""
        is_dropped = self.masks.get(name.lower()) == "drop"
        return takes_column(self.include, self.exclude, name) and not is_dropped

    def delta_type(self, column: TargetColumn) -> str:
        """Of a source column in the target."""
        is_hashed = self.masks.get(column.name.lower(), "").startswith("hash:")
        return "string" if is_hashed else self.types.get(column.name.lower(), column.delta_type)

    @property
    def added(self) -> tuple[TargetColumn, ...]:
        """Columns of the target that no source table has."""
        shard = (self.shard_column,) if self.shard_column else ()
        return (
            *(TargetColumn(name=name, delta_type="string") for name in shard),
            *(TargetColumn(name=c.name, delta_type=c.delta_type) for c in self.computed),
        )

    def reads(self, name: str) -> str:
        """The setting whose expression reads a source column; "" if none does."""
        reading = (
            s for s, text in self._expressions() if name.lower() in read_expression(text).reads
        )
        return next(reading, "")

    def _expressions(self) -> Iterator[tuple[str, str]]:
        for column in self.computed:
            yield f"computed.{column.name}.expression", column.expression
        if self.filter:
            yield "filter", self.filter

    def _placed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ("partition_by", self.partition_by), ("cluster_by", self.cluster_by)

    def setting_of(self, name: str) -> str:
        """The setting that a source column's name or values must not slip away from; "" if none."""
        folded = name.lower()
        for setting, named in (("masks", self.masks), ("types", self.types)):
            if folded in named:
                return f"{setting}.{name}"
        if setting := self.reads(name):
            return setting
        named_by = (*self._placed(), ("columns.include", self.include))
        return next((setting for setting, names in named_by if folded in map(str.lower, names)), "")

    def is_exact_possible(self, key: tuple[str, ...]) -> bool:
        """Whether inserts of the source are inserts of the target (K12): rows are found by the
        source's own key, without shards, filter, or a mask on a column of `key`.
        """
        masked = {name.lower() for name in self.masks}
        return not (self.shard_column or self.filter or masked & {name.lower() for name in key})


class Misfit(Exception):
    """A table and a shape contradict each other: the path of the setting in its rule, and why."""

    def __init__(
        self, setting: str, what: str, got: str = "", *, expected: str = "", next_step: str = ""
    ) -> None:
        super().__init__(what)
        self.setting, self.what, self.got = setting, what, got
        self.expected = expected
        self.next_step = (
            next_step or "change the rule, or exclude the table from it (except: [...])"
        )


class ShapedTable(NamedTuple):
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]


def shape_of(
    shape: RecordedShape | None, columns: tuple[TargetColumn, ...], key: tuple[str, ...]
) -> ShapedTable:
    """What a source table of these columns, found by `key`, is in a new target: the columns that it
    takes, then the shard column, then computed ones. Raises Misfit.
    """
    if shape is None:
        return ShapedTable(columns, key)
    taken = tuple(
        TargetColumn(name=column.name, delta_type=_lossless(shape, column))
        for column in columns
        if shape.takes(column.name)
    )
    names = {column.name.lower() for column in taken}
    for name in key:
        mask = shape.masks.get(name.lower(), "hash:").split(":")[0]
        if mask != "hash":
            what = f"{name} is in the key, where the only mask allowed is hash"
            raise Misfit(f"masks.{name}", what, mask)
        if name.lower() not in names:
            what = f"{name} is in the key and cannot be excluded"
            raise Misfit("columns", what, "excluded")
    for setting, text in shape._expressions():
        for name in read_expression(text).reads:
            if name not in names:
                raise Misfit(setting, f"`{name}` is not a column of the target", text)
    for column in shape.added:
        if column.name.lower() in names:
            is_shard = column.name == shape.shard_column
            setting = "shard_column" if is_shard else f"computed.{column.name}"
            raise Misfit(setting, f"the table already has a column {column.name}", column.name)
    names |= {column.name.lower() for column in shape.added}
    for setting, placed in shape._placed():
        for name in placed:
            if name.lower() not in names:
                raise Misfit(setting, f"{name} is not a column of the target", name)
    if shape.partition_by and names <= {name.lower() for name in shape.partition_by}:
        what = "a table cannot be partitioned by all of its columns"
        raise Misfit("partition_by", what, "all columns")
    return ShapedTable((*taken, *shape.added), (*key, *shard_key(shape)))


def shard_key(shape: RecordedShape | None) -> tuple[str, ...]:
    """What a shape adds to the key."""
    return (shape.shard_column,) if shape is not None and shape.shard_column else ()


def _lossless(shape: RecordedShape, column: TargetColumn) -> str:
    """The type of a column in the target. Raises Misfit: an override that could lose values."""
    wanted = shape.delta_type(column)
    if column.name.lower() in shape.types and not is_lossless(column.delta_type, wanted):
        raise Misfit(
            f"types.{column.name}",
            f"column {column.name} cannot be kept as {wanted} without losing values",
            wanted,
            expected=f"a type that holds every {column.delta_type}"
            + (", such as string" if is_lossless(column.delta_type, "string") else ""),
            next_step="choose a wider type; or keep the column and add a computed one that "
            "converts it",
        )
    return wanted


class TargetSpec(FrozenModel):
    """One Delta table as it is to be.

    Attributes:
        columns: its columns without those of its mode, and without ``_cdc_`` columns.
        key: () if rows are found by all of their values, or not at all.
        key_reason: why it has this mode and key.
        track: of a history, the columns whose changes begin a version; () for all.
        properties: of the Delta table, besides those that the sink sets itself.
        sources: its source tables by name, each with columns and key as they are at the source.
        shape: how its columns come from theirs; None if they are the same.
    """

    mode: Mode = "mirror"
    columns: tuple[TargetColumn, ...] = ()
    key: tuple[str, ...] = ()
    key_reason: str = ""
    track: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, RecordedSource] = Field(default_factory=dict)
    shape: RecordedShape | None = None

    def with_columns(self, columns: tuple[TargetColumn, ...]) -> TargetSpec:
        return self.model_copy(update={"columns": columns})

    @property
    def comments(self) -> dict[str, str]:
        """Of the table ("") and its columns, those that have one."""
        texts = described(self.sources.values(), self.shape)
        return {name: text for name, text in texts.items() if text}

    def sources_of(self, name: str) -> dict[str, RecordedSource]:
        """Of the target `name`, by name."""
        return self.sources or {name: RecordedSource(columns=self.columns, key=self.key)}

    def masks_of(self, name: str, masks: Mapping[str, str]) -> dict[str, str]:
        """Those of `masks`, by column, of which the target `name` or its sources have a column."""
        columns = {column.name.lower() for column in self.columns}
        for source in self.sources_of(name).values():
            columns.update(column.name.lower() for column in source.columns)
        return {column: mask for column, mask in masks.items() if column in columns}

    def expanded(self, name: str) -> TargetSpec:
        """With its source tables written out."""
        return self if self.sources else self.model_copy(update={"sources": self.sources_of(name)})

    def compact(self, name: str) -> TargetSpec:
        """As it is recorded; see the module's rules."""
        itself = {name: RecordedSource(columns=self.columns, key=self.key)}
        return self.model_copy(update={"sources": {}}) if self.sources == itself else self
