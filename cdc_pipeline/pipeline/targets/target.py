"""One target of a source, as a run knows it: a plain value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.lake.records import RecordedShape, RecordedSource
from cdc_pipeline.position.cursor import Suspension, TargetState
from cdc_pipeline.schema.evolution.shadows import Shadow
from cdc_pipeline.schema.evolution.steps import Step
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes.target_plan import TargetPlan


@dataclass(frozen=True, slots=True)
class Carried:
    """Rows that a target takes over from another when their tables are renamed (K28).

    Attributes:
        origin: name of the target that has them.
        app_id, version: of its Delta table, as the last cut has it.
        columns: of that table, before `steps`.
        steps: what the same statement does to the table besides.
        keeps_rows: rows that the target held stay, by the rules of its mode.
    """

    origin: str
    app_id: str
    version: int
    columns: tuple[TargetColumn, ...]
    steps: tuple[Step, ...] = ()
    keeps_rows: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """One Delta table.

    Attributes:
        state: what the cursor holds of it; table_version is -1 until it was created.
        columns, key: of the Delta table.
        mode: how it follows.
        sources: its source tables by name, each with columns and key as they are at the source.
        shape: how its columns come from theirs; None where they are the same.
        is_new: not in any cut yet: the next batch creates it.
        replaces: of a new one, the app_id of the table in whose place it is made; "" else.
        key_reason: why it has this mode and key (`identity`).
        track: of a history, as its rule says.
        rescued: columns of which values were rescued so far; None: the table has no rescue column
        (`sink/modes/rescue.py`).
        carried: the rows that the batch at work puts in the place of the target's.
    """

    state: TargetState
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    mode: Mode = "mirror"
    sources: Mapping[str, RecordedSource] = field(default_factory=dict)
    shape: RecordedShape | None = None
    is_new: bool = False
    replaces: str = ""
    key_reason: str = ""
    track: tuple[str, ...] = ()
    rescued: tuple[str, ...] | None = None
    carried: Carried | None = None

    @property
    def name(self) -> str:
        """Return ``schema.table`` in the lake."""
        return self.state.table


Snapshot = tuple[dict[str, Target], dict[str, Shadow], dict[str, Suspension], dict[str, TargetState], set[str]]


def plan_of(target: Target) -> TargetPlan:
    """Return what the sink must know of a target."""
    itself = {target.name: RecordedSource(columns=target.columns, key=target.key)}
    return TargetPlan(
        table=target.name,
        app_id=target.state.app_id,
        columns=target.columns,
        key=target.key,
        partial=target.state.partial,
        mode=target.mode,
        track=target.track,
        key_reason=target.key_reason,
        sources={} if target.sources == itself else target.sources,
        rescued=target.rescued,
        shape=target.shape,
        replaces=target.replaces,
        exact=target.state.exact,
    )
