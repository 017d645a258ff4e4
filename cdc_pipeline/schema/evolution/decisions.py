"""Plain values recorded for a DDL: the decision, and the columns that it adds (K13)."""

from __future__ import annotations

from typing import Literal

from cdc_pipeline.frozen_model import FrozenModel


class DdlDecision(FrozenModel):
    """Shown in the run's metadata."""

    journal: str
    offset: int
    sql: str
    kind: str  # create_table, alter_table, create_index, ...
    tables: tuple[str, ...]
    decision: Literal["applied", "recorded", "ignored"]
    reason: str
    # the policies that decided, as ``drop_column=keep``; "" if there was no choice
    policy: str = ""
