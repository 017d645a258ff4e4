"""One statement's edits of a target, collected and put in a repeatable order (K13).

Rules:
- Checks come first and see the columns as they were; then columns are renamed, widened and dropped,
  then added; then one UPDATE sets all new values; last, converted columns replace their old ones.
- All intermediate states of the columns differ, so that the present state shows how far a killed
  batch came.
- Names are compared case-insensitively, as Delta does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import reduce

from cdc_pipeline.schema.evolution.statement_context import COLUMN_MAPPING, RELOAD, KnownTable
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    CheckRows,
    DropColumn,
    FillColumns,
    RenameColumn,
    Step,
    WidenColumn,
    columns_after,
)
from cdc_pipeline.schema.evolution.value_changes import common_type
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.text.spark_sql import quoted

_FEATURES_STEP = "allow {} in sink.reader_features, or take a new snapshot of the table"


class Refused(Exception):
    """An edit that cannot be applied: why, and the way out."""

    def __init__(self, what: str, next_step: str = RELOAD) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step


class TargetEdit:
    """`columns` and `key` are the source's, as they are after the edits so far."""

    def __init__(self, known: KnownTable, *, features: Collection[str]) -> None:
        self.columns: list[TargetColumn] = list(known.source.columns)
        self.key = known.source.key
        self.descriptions: list[str] = []
        self._known = known
        self._features = features
        self._names = dict(known.source.names)
        self._taken = {column.name.lower() for column in known.target_columns}
        self._checks: list[CheckRows] = []
        self._first: list[RenameColumn | WidenColumn | DropColumn] = []
        self._adds: list[AddColumn] = []
        self._fills: dict[str, tuple[str, str]] = {}
        self._defaults: list[str] = []
        self._last: list[DropColumn | RenameColumn] = []

    # -- what comes out ----------------------------------------------------------------------------

    def steps(self, *, seq: str = "") -> tuple[Step, ...]:
        """All steps, in order; `seq` is the statement's place in the order of changes."""
        values = tuple((name, kind, value) for name, (kind, value) in self._fills.items())
        fills = (
            (FillColumns(values=values, defaults=tuple(self._defaults), seq=seq),) if values else ()
        )
        return (*self._checks, *self._first, *self._adds, *fills, *self._last)

    def result(self) -> KnownTable:
        here = {column.name for column in self.columns}
        names = tuple(
            (source, name)
            for source, name in self._names.items()
            if source in here and source != name
        )
        target = reduce(columns_after, self.steps(), self._known.target_columns)
        update = {"columns": tuple(self.columns), "key": self.key, "names": names}
        return replace(
            self._known, source=self._known.source.model_copy(update=update), target=target
        )

    def _target(self) -> dict[str, TargetColumn]:
        """Before the final renames, by folded name."""
        steps: list[Step] = [*self._first, *self._adds]
        return {c.name.lower(): c for c in reduce(columns_after, steps, self._known.target_columns)}

    def _name(self, column: str) -> str:
        return self._names.get(column, column)

    def _type(self, column: str) -> str:
        return self._target()[self._name(column).lower()].delta_type

    def _free(self, name: str) -> str:
        number, free_name = 1, name
        while free_name.lower() in self._taken:
            number += 1
            free_name = f"{name}_{number}"
        self._taken.add(free_name.lower())
        return free_name

    def _version(self, name: str) -> str:
        number = 2
        while f"{name}__v{number}".lower() in self._taken:
            number += 1
        self._taken.add(f"{name}__v{number}".lower())
        return f"{name}__v{number}"

    # -- columns come and go -----------------------------------------------------------------------

    def drop(self, name: str, *, keep: bool) -> None:
        """The source no longer has it."""
        target = self._name(name)
        self._forget(name)
        if keep:
            self.descriptions.append(f"keeps `{target}`, which is NULL in new rows")
        elif COLUMN_MAPPING not in self._features:
            self.descriptions.append(
                f"keeps `{target}`: sink.reader_features does not allow {COLUMN_MAPPING}"
            )
        else:
            self._first.append(DropColumn(name=target))
            self.descriptions.append(f"drops `{target}`")

    def _forget(self, name: str) -> None:
        self.columns = [column for column in self.columns if column.name != name]
        self._names.pop(name, None)

    def add(self, name: str, delta_type: str, value: str) -> None:
        """`value` is the literal for existing rows."""
        column = TargetColumn(name=name, delta_type=delta_type)
        present, target = self._target().get(name.lower()), name
        drop = DropColumn(name=name)
        if present is None and drop in self._first and column in self._known.target_columns:
            # Dropped and added by one statement: the columns afterwards would look the same as
            # before.
            self._first.remove(drop)
            self._fill(name, delta_type, value, is_default=True)
        elif present == column and COLUMN_MAPPING not in self._features:
            self.descriptions.append(f"the values of the dropped `{name}` are replaced")
            self._fill(name, delta_type, value, is_default=True)
        else:
            if present is not None and COLUMN_MAPPING in self._features:
                self._set_aside(present.name)
            elif present is not None:
                target = self._names[name] = self._version(name)
            self._add(target, delta_type, value, is_default=True)
        self.columns.append(column)
        self.descriptions.append(f"adds {target}")

    def _add(self, name: str, delta_type: str, value: str, *, is_default: bool = False) -> None:
        self._taken.add(name.lower())
        self._adds.append(AddColumn(name=name, delta_type=delta_type))
        if value != "NULL":
            self._fill(name, delta_type, value, is_default=is_default)

    def _fill(self, name: str, delta_type: str, value: str, *, is_default: bool = False) -> None:
        self._fills[name] = (delta_type, value)
        if is_default:
            self._defaults.append(name)

    # -- names -------------------------------------------------------------------------------------

    def rename(self, renamed: Mapping[str, str]) -> None:
        """All at once."""
        moves = {self._name(old): (old, new) for old, new in renamed.items()}
        kinds = {old: self._type(old) for old in renamed}
        for old in renamed:
            self._names.pop(old, None)
        self.columns = [
            c.model_copy(update={"name": renamed.get(c.name, c.name)}) for c in self.columns
        ]
        self.key = tuple(renamed.get(name, name) for name in self.key)
        if COLUMN_MAPPING not in self._features:
            self.descriptions.append(
                f"sink.reader_features does not allow {COLUMN_MAPPING}: renamed columns "
                "become new columns"
            )
            for target, (old, new) in moves.items():
                name = new if new.lower() not in self._taken else self._version(new)
                self._names[new] = name
                self._add(name, kinds[old], quoted(target))
                self.descriptions.append(
                    f"`{name}` takes over the values of `{target}`, which is kept unchanged"
                )
            return
        self._move({target: new for target, (_, new) in moves.items()})

    def _move(self, moves: dict[str, str]) -> None:
        """So that each name is free when it is taken."""
        moves = {old: new for old, new in moves.items() if old != new}
        while moves:
            present = self._target()
            ready = next((old for old, new in moves.items() if new.lower() not in present), None)
            if ready is None:
                holders = {old: present[new.lower()].name for old, new in moves.items()}
                old = next((old for old, holder in holders.items() if holder not in moves), None)
                if old is None:  # a cycle: one is renamed out of the way first
                    old, aside = next(iter(moves)), self._free(f"{next(iter(moves))}__renaming")
                    self._first.append(RenameColumn(name=old, new_name=aside))
                    moves = {aside if name == old else name: to for name, to in moves.items()}
                    continue
                holder, new = holders[old], moves[old]
                if holder in {
                    self._name(column.name) for column in self.columns if column.name != new
                }:
                    raise Refused(
                        f"`{old}` is renamed to `{new}`, the name of another column in the target"
                    )
                self._set_aside(holder)
                continue
            new = moves.pop(ready)
            self._taken.add(new.lower())
            self._first.append(RenameColumn(name=ready, new_name=new))
            self.descriptions.append(f"`{ready}` is renamed to `{new}`")

    def _set_aside(self, dropped: str) -> None:
        """A column that the source no longer has leaves its name to another one."""
        aside = self._free(f"{dropped}__dropped")
        self._first.append(RenameColumn(name=dropped, new_name=aside))
        self.descriptions.append(f"the dropped `{dropped}` is now `{aside}`")

    # -- types and values --------------------------------------------------------------------------

    def check(self, name: str, condition: str, reason: str) -> None:
        """For all rows; ``{c}`` is the column, `name` the one before the statement."""
        old = quoted(self._known.target_name(name))
        self._checks.append(
            CheckRows(condition=condition.replace("{c}", old), reason=f"`{name}`: {reason}")
        )
        self.descriptions.append(f"existing rows are checked: no row may have changed ({reason})")

    def holds(self, name: str, delta_type: str) -> bool:
        """Whether the target's column holds all values of a type as it is."""
        there = self._type(name)
        return common_type(there, delta_type) == there

    def could_widen(self, name: str, delta_type: str) -> bool:
        """The same if type widening is allowed."""
        return common_type(self._type(name), delta_type) is not None

    def retype(self, name: str, delta_type: str) -> None:
        """Keep the values; widen the target's column as needed."""
        there = self._type(name)
        common = common_type(there, delta_type)
        assert common is not None
        self._set_type(name, delta_type)
        if common != there:
            self._first.append(WidenColumn(name=self._name(name), delta_type=common))
            self.descriptions.append(f"`{self._name(name)}` is widened from {there} to {common}")
        else:
            self.descriptions.append(
                f"`{self._name(name)}` keeps {there}, which holds {delta_type}"
            )

    def rewrite(self, name: str, delta_type: str, value: str) -> None:
        """Convert existing values; `value` is an expression over ``{c}``, the previous column."""
        target, there = self._name(name), self._type(name)
        before = next(
            (s.name for s in self._first if isinstance(s, RenameColumn) and s.new_name == target),
            target,
        )
        self._set_type(name, delta_type)
        expression = value.replace("{c}", quoted(target))
        if common_type(there, delta_type) == there:
            self._fill(target, there, expression)
        elif COLUMN_MAPPING not in self._features:
            raise Refused(
                f"`{before}` cannot be converted from {there} to {delta_type} without "
                f"{COLUMN_MAPPING}",
                _FEATURES_STEP.format(COLUMN_MAPPING),
            )
        else:
            converted = self._free(f"{target}__converted")
            self._add(converted, delta_type, expression)
            self._last += [DropColumn(name=target), RenameColumn(name=converted, new_name=target)]
        self.descriptions.append(f"the values of `{target}` are converted to {delta_type}")

    def new_version(self, name: str, delta_type: str) -> None:
        """Write values to a separate column from now on; the old column keeps its values."""
        target = self._name(name)
        self._set_type(name, delta_type)
        self._names[name] = new_name = self._version(name)
        self._add(new_name, delta_type, "NULL")
        self.descriptions.append(
            f"`{new_name}` holds the values from now on, and `{target}` the earlier ones"
        )

    def _set_type(self, name: str, delta_type: str) -> None:
        self.columns = [
            c.model_copy(update={"delta_type": delta_type}) if c.name == name else c
            for c in self.columns
        ]
