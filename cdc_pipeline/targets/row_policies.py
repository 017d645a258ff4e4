"""Decide about values that their Delta type cannot hold (docs/tables/rescue.md).

Rules:
- The policies of a table are the strictest among its targets: fail, then quarantine, then rescue,
  then null. All of them share one decoded row.
- A value in a key column has no rescue: without it no row can be found. It is a row that cannot be
  applied (`on_bad_row`). So are NULL in a key that a rule names, and a JSON difference without the
  document that it belongs to.
- The text of a hidden column (masked, or taken by no target) goes nowhere: the value is NULL and
  counted (K14).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.decoded import NO_KEY, DecodedRows, InvalidValue
from cdc_pipeline.binlog.rows.partial_rows import NO_DOCUMENT
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.target_config import RowPolicies
from cdc_pipeline.errors import UnrepresentableValueError
from cdc_pipeline.sink.modes.rescue import NULLED
from cdc_pipeline.text.wording import and_more

Action = Literal["fail", "quarantine", "rescue", "null"]

_STRICTEST: Final[tuple[Action, ...]] = ("fail", "quarantine", "rescue", "null")


@dataclass(frozen=True, slots=True)
class RowPolicy:
    """`RowPolicies` with every value set."""

    on_invalid_value: Action = "rescue"
    zero_dates: Action = "rescue"
    rescued_column: Literal["when_needed", "always"] = "when_needed"
    on_bad_row: Action = "fail"

    def action(self, value: InvalidValue, schema: TableSchema, keys: Collection[str]) -> Action:
        """For the row of an invalid value, or for the value alone."""
        column = schema.columns[value.column]
        if value.reason == NO_DOCUMENT:
            return self.on_bad_row
        action = self.zero_dates if column.type.is_date else self.on_invalid_value
        if column.name in keys and action != "fail":
            return "quarantine" if action == "quarantine" else self.on_bad_row
        if action == "quarantine" and value.image == "before":
            return "rescue"  # no row is found by it: the change itself can be applied
        return action


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """`hidden` columns (K14); which columns any target `takes`; dates that all keep as `texts`."""

    rows: RowPolicy
    keys: Collection[str]
    hidden: Collection[str] = ()
    takes: Callable[[str], bool] = lambda _name: True
    texts: Collection[str] = ()

    def judge(self, rows: DecodedRows) -> Judged:
        rows = without_hidden(rows, self.hidden)
        return judged(rows, self.rows, keys=self.keys, texts=self.texts)


def policy_of(rule: RowPolicies, sink: RowPolicies) -> RowPolicy:
    said = {
        name: getattr(rule, name) or getattr(sink, name)
        for name in RowPolicies.model_fields
        if getattr(rule, name) or getattr(sink, name)
    }
    said.setdefault("zero_dates", said.get("on_invalid_value", "rescue"))
    return RowPolicy(**said)


def strictest_policy(policies: Sequence[RowPolicy]) -> RowPolicy:
    if not policies:
        return RowPolicy()
    return RowPolicy(
        on_invalid_value=_strictest([policy.on_invalid_value for policy in policies]),
        zero_dates=_strictest([policy.zero_dates for policy in policies]),
        on_bad_row=_strictest([policy.on_bad_row for policy in policies]),
    )


def _strictest(actions: Sequence[Action]) -> Action:
    return min(actions, key=_STRICTEST.index)


@dataclass(frozen=True, slots=True)
class Judged:
    """`before`: the rows as they came, but for texts that nobody may see; `rows`: `invalid` is to
    be rescued, or to be counted; `failing`: the first value that stops the table; `bad`: values of
    rows that cannot be applied, which are still in `rows`.
    """

    before: DecodedRows
    rows: DecodedRows
    failing: InvalidValue | None = None
    bad: tuple[InvalidValue, ...] = ()

    def without(self, rows: Collection[int]) -> DecodedRows:
        if not rows:
            return self.rows
        applicable = np.ones(len(self.rows), np.bool_)
        applicable[list(rows)] = False
        return self.rows.where(applicable)


def judged(
    rows: DecodedRows,
    policy: RowPolicy,
    *,
    keys: Collection[str] = (),
    texts: Collection[str] = (),
) -> Judged:
    """`keys`: columns that find a row, in any target; `texts`: those that hold each value's."""
    known: dict[tuple[int, str, str], Action] = {}
    kept, bad = [], []
    for value in rows.invalid:
        name = rows.schema.column_names[value.column]
        if (name in texts and value.reason != NO_KEY) or (
            value.reason == NULLED and name not in keys
        ):
            kept.append(value)
            continue
        case = value.column, value.image, value.reason
        action = known.get(case)
        if action is None:
            action = known[case] = policy.action(value, rows.schema, keys)
        if action == "fail":
            return Judged(rows, rows, failing=value)
        if action == "rescue":
            kept.append(value._replace(text=_server_text(value, rows.schema)))
        elif action == "null":
            kept.append(value._replace(text="", reason=NULLED))
        else:
            bad.append(value)
    return Judged(rows, replace(rows, invalid=kept), bad=tuple(bad))


def unrepresentable(
    rows: DecodedRows, value: InvalidValue, *, at: tuple[str, int] | None = None
) -> UnrepresentableValueError:
    """The error of a value that stops its table; `at`: None for a row by SELECT."""
    column = rows.schema.columns[value.column]
    journal, offset = at or (None, None)
    place = "a row that was read" if at is None else f"the {value.image} image"
    otherwise = "" if at is None else " and start after it, or exclude the table"
    return UnrepresentableValueError(
        f"column {column.name} holds a value that its Delta type cannot hold: {value.reason}",
        at=(journal, offset),
        table=rows.schema.full_name,
        expected=f"a value of {column.kind}",
        got=f"another value in {place}{and_more(len(rows.invalid) - 1)}",
        next_step="have such values rescued (on_invalid_value: rescue), or the rows of keys "
        f"quarantined (on_bad_row: quarantine); or correct the value at the source{otherwise}",
    )


def _server_text(value: InvalidValue, schema: TableSchema) -> str:
    """For ``_cdc_rescued``: dates as the server prints them, bytes as ``0x`` hex."""
    text = value.text
    if schema.columns[value.column].type.not_held_text == "moment" or text.startswith(("[", "0x")):
        return text
    return f"0x{text.upper()}"


def without_hidden(rows: DecodedRows, hidden: Collection[str]) -> DecodedRows:
    """Invalid values of columns that are masked, or that no target takes, are NULL (K14)."""
    names = rows.schema.column_names
    if not rows.invalid or not hidden:
        return rows
    invalid = [
        value._replace(text="", reason=NULLED) if names[value.column] in hidden else value
        for value in rows.invalid
    ]
    return replace(rows, invalid=invalid)


def shape_invalid(
    rows: DecodedRows, arrays: list[pa.Array], positions: Sequence[int], *, image: str
) -> list[InvalidValue]:
    """`arrays` change in place. A date that is kept as text (`types`) is no longer invalid."""
    if not rows.invalid:
        return []
    place = {source: at for at, source in enumerate(positions)}
    texts: dict[int, dict[int, str]] = {}
    shaped = []
    for value in rows.invalid:
        at = place.get(value.column) if value.image == image else None
        if at is None:
            continue
        column = rows.schema.columns[value.column]
        if (
            column.type.is_date
            and not column.masked
            and pa.types.is_string(arrays[at].type)
            and value.text
        ):
            texts.setdefault(at, {})[value.row] = value.text
        else:
            shaped.append(value._replace(column=at))
    for at, of_rows in texts.items():
        mask = np.zeros(len(rows), np.bool_)
        mask[list(of_rows)] = True
        values = pa.array([of_rows[row] for row in sorted(of_rows)], pa.string())
        arrays[at] = pc.replace_with_mask(arrays[at], pa.array(mask), values)
    return shaped
