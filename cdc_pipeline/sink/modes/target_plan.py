"""What a batch must know about a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.lake.records import RecordedShape, RecordedSource
from cdc_pipeline.schema.types import TargetColumn


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What a batch must know about a target.

    Attributes:
        table: the target's name, ``schema.table`` in the lake.
        app_id: the target's transaction application id in Delta; a created table gets it for good.
        columns: the target's source columns after this batch.
        key: names among them.
        partial: as recorded for a table that this batch creates (K19).
        mode: how the target represents the source.
        track, key_reason, sources, shape, exact: as in `records.RecordedTarget`.
        rescued: columns of which values were rescued, those of this batch included; None if there
            is no rescue column.
        replaces: the app_id of the table that this batch replaces with a new one; "" otherwise.
    """

    table: str
    app_id: str
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    partial: bool = False
    mode: Mode = "mirror"
    track: tuple[str, ...] = ()
    key_reason: str = ""
    sources: Mapping[str, RecordedSource] = field(default_factory=dict)
    shape: RecordedShape | None = None
    rescued: tuple[str, ...] | None = None
    replaces: str = ""
    exact: bool = False
