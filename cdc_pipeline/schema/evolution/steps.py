"""Steps that bring a target from one recorded version to the next: plain values, in the batch's
record (K13).

Rules:
- A step describes the state afterwards. Its executor compares that with the present state, so
  repeating a step, or a batch killed between two steps, ends in the same state.
- Structure (`AddColumn`, `DropColumn`, `RenameColumn`, `WidenColumn`) leads from one list of
  columns to the next one, all of them different. Row steps (`FillColumns`, `RemoveRows`) have their
  own transaction numbers. `CheckRows` changes nothing: it proves what the statement's text could
  not.
- Values are Spark SQL expressions over the target's columns, built only from quoted names and
  literals.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, groupby
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.schema.types import TargetColumn, features_of_type

# Features of Delta's protocol.
COLUMN_MAPPING: Final = "columnMapping"
TYPE_WIDENING: Final = "typeWidening"
ALL_FEATURES: Final = frozenset({COLUMN_MAPPING, TYPE_WIDENING})
ROW_STEPS_MAX: Final = 15  # of one statement: as many have transaction numbers


class _Step(FrozenModel):
    needs: ClassVar[tuple[str, ...]] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Of Delta, that it needs."""
        return self.needs + features_of_type(getattr(self, "delta_type", ""))


class AddColumn(_Step):
    kind: Literal["add_column"] = "add_column"
    name: str
    delta_type: str


class DropColumn(_Step):
    needs = (COLUMN_MAPPING,)
    kind: Literal["drop_column"] = "drop_column"
    name: str


class RenameColumn(_Step):
    """`new_name` is free at that moment."""

    needs = (COLUMN_MAPPING,)
    kind: Literal["rename_column"] = "rename_column"
    name: str
    new_name: str


class WidenColumn(_Step):
    """`delta_type` holds every value that the column can have."""

    needs = (TYPE_WIDENING,)
    kind: Literal["widen_column"] = "widen_column"
    name: str
    delta_type: str


class FillColumns(_Step):
    """One UPDATE of all rows: column -> its new value, cast to the type beside it.

    `defaults` names the columns added with it: their value is the one the server gave to existing
    rows. The others are computed from existing columns. `seq` is the statement's place in the order
    of changes; "" in older records.
    """

    kind: Literal["fill_columns"] = "fill_columns"
    values: tuple[tuple[str, str, str], ...]  # (column, Delta type, expression)
    defaults: tuple[str, ...] = ()
    seq: str = ""


class RemoveRows(_Step):
    """All rows leave the source without row events; each mode records that in its own way.

    `seq` and `ts_us` are the statement's place in the order of changes and its commit time,
    `transaction` its GTID or ``journal:offset``.
    """

    kind: Literal["remove_rows"] = "remove_rows"
    op: Literal["truncate", "drop_table"]
    seq: str = "0"
    ts_us: int = -1
    transaction: str = ""


class Describe(_Step):
    """Comments of columns, "" for the table's own; an empty one is removed."""

    kind: Literal["describe"] = "describe"
    comments: tuple[tuple[str, str], ...]


class CheckRows(_Step):
    """No row may fail `condition`; otherwise the table needs a new snapshot, for `reason`."""

    kind: Literal["check_rows"] = "check_rows"
    condition: str
    reason: str


ROW_STEPS: Final = (FillColumns, RemoveRows)
Step = Annotated[
    AddColumn
    | DropColumn
    | RenameColumn
    | WidenColumn
    | FillColumns
    | RemoveRows
    | Describe
    | CheckRows,
    Field(discriminator="kind"),
]


def columns_after(columns: tuple[TargetColumn, ...], step: Step) -> tuple[TargetColumn, ...]:
    if isinstance(step, AddColumn):
        return (*columns, TargetColumn(name=step.name, delta_type=step.delta_type))
    if isinstance(step, DropColumn):
        return tuple(column for column in columns if column.name != step.name)
    if isinstance(step, RenameColumn):
        update = {"name": step.new_name}
    elif isinstance(step, WidenColumn):
        update = {"delta_type": step.delta_type}
    else:
        return columns
    return tuple(
        column.model_copy(update=update) if column.name == step.name else column
        for column in columns
    )


def returns_to_earlier_columns(columns: tuple[TargetColumn, ...], steps: Iterable[Step]) -> bool:
    """Whether a table's columns would not show how far a batch with these steps came."""
    path = [state for state, _ in groupby(accumulate(steps, columns_after, initial=columns))]
    return len(set(path)) < len(path)


def renamed_by(steps: Iterable[Step], name: str) -> str:
    """What becomes of a column's name, perhaps by way of another one."""
    for step in steps:
        if isinstance(step, RenameColumn) and step.name.lower() == name.lower():
            name = step.new_name
    return name


def left_after(left: tuple[str, ...], steps: Iterable[Step]) -> tuple[str, ...]:
    """Where the values are that a table has left in columns of a target, after steps of another
    table of it; lower-case names.
    """
    names = list(left)
    for step in steps:
        if isinstance(step, DropColumn):
            names = [name for name in names if name != step.name.lower()]
        names = [renamed_by([step], name).lower() for name in names]
    return tuple(sorted(names))


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
