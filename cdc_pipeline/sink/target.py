"""One target of a source, as a run knows it and as a batch gets it: a plain value."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.schema.evolution.steps import Step
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn


@dataclass(frozen=True, slots=True)
class Carried:
    """Rows that a target takes over from `origin`, when their tables are renamed (K28). `app_id`,
    `version`, `columns` are of that table in the last cut, before `steps`; `keeps_rows`: rows that
    the target held stay, by the rules of its mode.
    """

    origin: str
    app_id: str
    version: int
    columns: tuple[TargetColumn, ...]
    steps: tuple[Step, ...] = ()
    keeps_rows: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """`state`: table_version is -1 until it was created; `spec`: what the table is to be after the
    batch, with its sources written out; `is_new`: the next batch creates it; `replaces`: the app_id
    of the table in whose place it is made; `rescued`: columns of which values were rescued; None if
    the table has no rescue column; `carried`: the rows that the batch puts in the place of its own.
    """

    state: TargetState
    spec: TargetSpec
    is_new: bool = False
    replaces: str = ""
    rescued: tuple[str, ...] | None = None
    carried: Carried | None = None

    @property
    def name(self) -> str:
        return self.state.table

    def with_state(self, **changes: object) -> Target:
        return replace(self, state=self.state.model_copy(update=changes))

    def with_spec(self, **changes: object) -> Target:
        return replace(self, spec=self.spec.model_copy(update=changes))
