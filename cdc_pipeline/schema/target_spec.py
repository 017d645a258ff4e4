"""What one Delta table is to be: the facts of a target that only DDL and configuration change.

Rules:
- A new fact about a target is a field of `TargetSpec`. Runs, batch records and cuts hold the whole
  spec, and none of them copies its fields.
- In records, `sources` is empty if the target has one source table, of its own name and with its
  own columns and key. A run works with the spec written out (`TargetSpec.expanded`).
"""

from __future__ import annotations

from pydantic import Field

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.schema.types import TargetColumn


class RecordedSource(FrozenModel):
    """A source table as a target knows it: what its table maps must confirm (K13)."""

    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()  # source column -> target column, where the two differ
    gone: bool = False  # it was dropped: a new table of its name starts from scratch

    @property
    def key_in_target(self) -> tuple[str, ...]:
        names = dict(self.names)
        return tuple(names.get(name, name) for name in self.key)


class ComputedColumn(FrozenModel):
    """DDL type, deterministic expression over source columns."""

    name: str
    delta_type: str
    expression: str


class RecordedShape(FrozenModel):
    """How a target's columns come from those of its source tables, according to its rule.

    It never holds a secret: of a mask only its fingerprint (see `targets/masks.py`).
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

    def is_exact_possible(self, key: tuple[str, ...]) -> bool:
        """Whether inserts of the source are inserts of the target (K12): rows are found by the
        source's own key, without shards, filter, or a mask on a column of `key`.
        """
        masked = {name.lower() for name in self.masks}
        return not (self.shard_column or self.filter or masked & {name.lower() for name in key})


class TargetSpec(FrozenModel):
    """One Delta table as it is to be.

    Attributes:
        columns: its columns without those of its mode, and without ``_cdc_`` columns.
        key: () if rows are found by all of their values, or not at all.
        key_reason: why it has this mode and key.
        track: of a history, the columns whose changes begin a version; () for all.
        sources: its source tables by name, each with columns and key as they are at the source.
        shape: how its columns come from theirs; None if they are the same.
    """

    mode: Mode = "mirror"
    columns: tuple[TargetColumn, ...] = ()
    key: tuple[str, ...] = ()
    key_reason: str = ""
    track: tuple[str, ...] = ()
    sources: dict[str, RecordedSource] = Field(default_factory=dict)
    shape: RecordedShape | None = None

    def with_columns(self, columns: tuple[TargetColumn, ...]) -> TargetSpec:
        return self.model_copy(update={"columns": columns})

    def sources_of(self, name: str) -> dict[str, RecordedSource]:
        """Of the target `name`, by name."""
        return self.sources or {name: RecordedSource(columns=self.columns, key=self.key)}

    def expanded(self, name: str) -> TargetSpec:
        """With its source tables written out."""
        return self if self.sources else self.model_copy(update={"sources": self.sources_of(name)})

    def compact(self, name: str) -> TargetSpec:
        """As it is recorded; see the module's rules."""
        itself = {name: RecordedSource(columns=self.columns, key=self.key)}
        return self.model_copy(update={"sources": {}}) if self.sources == itself else self
