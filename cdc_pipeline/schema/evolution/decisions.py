"""Plain values recorded for a DDL: the decision, and the columns that it adds (K13)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class DdlDecision(BaseModel):
    """Shown in the run's metadata."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    journal: str
    offset: int
    sql: str
    kind: str  # create_table, alter_table, create_index, ...
    tables: tuple[str, ...]
    decision: Literal["applied", "recorded", "ignored"]
    reason: str
    # the policies that decided, as ``drop_column=keep``; "" if there was no choice
    policy: str = ""


class AddedColumn(BaseModel):
    """A column that a DDL adds to a target, with the constant for old rows."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    delta_type: str
    # Value of existing rows as a Spark SQL literal; "NULL" if they get NULL.
    backfill_sql: str = "NULL"
