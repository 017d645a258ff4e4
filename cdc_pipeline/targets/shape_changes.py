"""Apply DDL to targets whose columns differ from their table's (K13, K14).

Rules:
- A statement is judged as if the target had the source's columns unchanged (`unshaped`); its steps
  are then translated to the target's (`shaped_change`). Columns that the target does not take
  change only in its record.
- A new column follows include and exclude, its mask and its type.
- A column that is masked, retyped, listed in `include` by its name, read by an expression or used
  for layout (`partition_by`, `cluster_by`) keeps its name and its values: a statement that drops,
  renames or rewrites it stops the target and names the setting. Otherwise a mask or a filter would
  silently disappear.
- In a target that several tables share, a column goes only when none of them has it, and comes with
  the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from cdc_pipeline.config.expressions import read_expression
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ConfigError, SchemaError
from cdc_pipeline.schema.evolution.statement_context import RELOAD, TableChange
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
from cdc_pipeline.schema.target_spec import RecordedShape, RecordedSource
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.targets.masks import masked_type
from cdc_pipeline.targets.routes import Route
from cdc_pipeline.targets.shape import is_lossless, shape_table

_NAMES: Final = re.compile(r"`((?:[^`]|``)+)`")


def unshaped(
    columns: tuple[TargetColumn, ...],
    source: RecordedSource,
    others: Sequence[RecordedSource],
    shape: RecordedShape | None,
) -> tuple[TargetColumn, ...]:
    """A target's columns if it took a source table's unchanged.

    Columns that it has of other tables or of its rule are left out; those that were dropped at
    the source stay.
    """
    names = dict(source.names)
    if shape is None and not others:
        return columns
    by_name = {column.name.lower(): column for column in columns}
    reshaped = set() if shape is None else {*shape.masks, *shape.types}
    unshaped_columns: list[TargetColumn] = []
    for column in source.columns:
        name = names.get(column.name, column.name)
        of_target = by_name.get(name.lower())
        if of_target is None or column.name.lower() in reshaped:
            of_target = TargetColumn(name=name, delta_type=column.delta_type)
        unshaped_columns.append(of_target)
    known = {column.name.lower() for column in unshaped_columns}
    known |= {
        dict(other.names).get(column.name, column.name).lower()
        for other in others
        for column in other.columns
    }
    if shape is not None:
        known |= {shape.shard_column.lower(), *(column.name.lower() for column in shape.computed)}
    unshaped_columns += [column for column in columns if column.name.lower() not in known]
    return tuple(unshaped_columns)


def shaped_change(
    change: TableChange,
    route: Route,
    columns: tuple[TargetColumn, ...],
    others: Sequence[RecordedSource],
) -> TableChange:
    """`change` is judged over `unshaped` columns; `others`: the target's other source tables.

    Raises SchemaError: the statement and the rule, or the other tables, contradict each other.
    """
    if change.replaces:
        if others:
            raise _stop(
                route, "its table is recreated, and others share the target", "shard_column"
            )
        return change
    if change.is_carried and (others or route.rule.shard_column):
        return change  # rows of one of several tables are not carried
    if change.name[1] and route.rule.shard_column:
        raise _stop(
            route, "a shard is renamed, but its rows are identified by its name", "shard_value"
        )
    before = change.before or change.known
    steps = _Steps(change, route, columns, others).converted()
    after = reduce(columns_after, steps, columns)
    known = change.known
    if not known.source.gone:
        try:
            shape_table(route, known.source.columns, known.source.key)
        except ConfigError as error:
            raise SchemaError(
                error.what,
                table=route.source,
                setting=error.setting,
                got=error.got,
                next_step=RELOAD,
            ) from None
    return replace(
        change,
        known=replace(known, target=after),
        before=replace(before, target=columns),
        steps=tuple(steps),
    )


class _Steps:
    def __init__(
        self,
        change: TableChange,
        route: Route,
        columns: tuple[TargetColumn, ...],
        others: Sequence[RecordedSource],
    ) -> None:
        before = change.before or change.known
        self._change = change
        self._route = route
        self._rule = route.rule
        self._types = {name.lower(): text for name, text in route.rule.types.items()}
        self._columns = {column.name.lower(): column for column in columns}
        self._of_others = {
            dict(other.names).get(column.name, column.name).lower()
            for other in others
            for column in other.columns
        }
        self._shared = bool(others)
        self._source_of = {target.lower(): source for source, target in before.source.names}
        self._source_after = {
            target.lower(): source for source, target in change.known.source.names
        }
        gone = {column.name for column in before.source.columns} - {
            column.name for column in change.known.source.columns
        }
        for name in sorted(gone):
            self._check_free(name, "is dropped or renamed")

    def converted(self) -> list[Step]:
        converted = (self._converted(step) for step in self._change.steps)
        return [step for step in converted if step is not None]

    def _converted(self, step: Step) -> Step | None:
        if isinstance(step, AddColumn):
            return self._add(step)
        if isinstance(step, FillColumns):
            return self._fill(step)
        if isinstance(step, WidenColumn):
            return self._widen(step)
        if isinstance(step, DropColumn):
            if not self._is_taken(step.name) or step.name.lower() in self._of_others:
                return None
            return step
        if isinstance(step, RenameColumn):
            return self._rename(step)
        if isinstance(step, CheckRows):
            for name in _read(step.condition):
                self._check_plain(name, "is checked in every row")
        return step

    def _add(self, step: AddColumn) -> AddColumn | None:
        source = self._source_after.get(step.name.lower(), step.name)
        if not self._rule.takes(source):
            return None
        added = [
            *self._rule.computed,
            *([self._rule.shard_column] if self._rule.shard_column else []),
        ]
        if step.name.lower() in {name.lower() for name in added}:
            setting = "shard_column" if step.name == self._rule.shard_column else "computed"
            raise _stop(
                self._route,
                f"the new column `{step.name}` has the name of a column that the rule adds",
                setting,
            )
        wanted = self._types.get(source.lower())
        delta_type = masked_type(self._rule.mask_of(source), step.delta_type)
        made = step.model_copy(update={"delta_type": wanted or delta_type})
        existing = self._columns.get(step.name.lower())
        if existing is None:
            return made
        if existing.delta_type != made.delta_type:
            what = (
                f"the new column `{step.name}` is {made.delta_type}, but "
                f"{existing.delta_type} in the target"
            )
            raise _stop(self._route, what, "shard_column")
        return None

    def _fill(self, step: FillColumns) -> FillColumns | None:
        values = []
        for name, delta_type, value in step.values:
            for read in _read(value):
                self._check_plain(read, "provides the values of another column")
            source = self._source_after.get(name.lower(), name)
            if not self._rule.takes(source):
                continue
            if (setting := _setting(self._rule, source)) is not None:
                raise _stop(
                    self._route,
                    f"old rows get a new value of `{name}`, whose values the rule changes",
                    setting,
                )
            values.append((name, delta_type, value))
        kept = {name for name, _, _ in values}
        defaults = tuple(name for name in step.defaults if name in kept)
        return (
            step.model_copy(update={"values": tuple(values), "defaults": defaults})
            if values
            else None
        )

    def _widen(self, step: WidenColumn) -> WidenColumn | None:
        source = self._source_of.get(step.name.lower(), step.name)
        if not self._rule.takes(source) or self._rule.mask_of(source) is not None:
            return None  # hashed values have the same text in every width
        wanted = self._types.get(source.lower())
        if wanted is not None:
            if not is_lossless(step.delta_type, wanted):
                raise _stop(
                    self._route,
                    f"`{source}` becomes {step.delta_type}, wider than {wanted}",
                    f"types.{source}",
                )
            return None
        if _reads(self._rule, source):
            raise _stop(
                self._route,
                f"the type of `{source}` changes",
                _setting(self._rule, source) or "filter",
            )
        existing = self._columns[step.name.lower()]
        if self._shared and not is_lossless(existing.delta_type, step.delta_type):
            what = (
                f"`{source}` becomes {step.delta_type}, but is {existing.delta_type} in the target"
            )
            raise _stop(self._route, what, "shard_column")
        return None if existing.delta_type == step.delta_type else step

    def _rename(self, step: RenameColumn) -> RenameColumn | None:
        source = self._source_of.get(step.name.lower(), step.name)
        is_special = _setting(self._rule, step.new_name) is not None
        if is_special or self._rule.takes(source) != self._rule.takes(step.new_name):
            setting = _setting(self._rule, step.new_name) or "columns"
            raise _stop(
                self._route,
                f"`{source}` takes the name `{step.new_name}`, which the rule treats differently",
                setting,
            )
        if not self._rule.takes(source):
            return None
        if self._shared:
            raise _stop(
                self._route,
                f"`{source}` is renamed in one of several tables that share a target",
                "shard_column",
            )
        return step

    def _is_taken(self, target_name: str) -> bool:
        return self._rule.takes(self._source_of.get(target_name.lower(), target_name))

    def _check_free(self, source: str, what: str) -> None:
        setting = _setting(self._rule, source)
        if setting is not None:
            raise _stop(self._route, f"`{source}` {what}", setting)

    def _check_plain(self, target_name: str, what: str) -> None:
        source = self._source_of.get(target_name.lower(), target_name)
        setting = _setting(self._rule, source) or ("" if self._rule.takes(source) else "columns")
        if setting:
            raise _stop(self._route, f"`{source}` {what}", setting)


def _setting(rule: TargetRule, name: str) -> str | None:
    folded = name.lower()
    for setting, names in (("masks", rule.masks), ("types", rule.types)):
        if folded in {named.lower() for named in names}:
            return f"{setting}.{name}"
    for setting, text in rule.expressions:
        if folded in read_expression(text).reads:
            return setting
    for setting, placed in (("partition_by", rule.partition_by), ("cluster_by", rule.cluster_by)):
        if folded in {named.lower() for named in placed}:
            return setting
    return (
        "columns.include"
        if folded in {pattern.lower() for pattern in rule.columns.include}
        else None
    )


def _reads(rule: TargetRule, name: str) -> bool:
    return any(name.lower() in read_expression(text).reads for _, text in rule.expressions)


def _read(sql: str) -> list[str]:
    """Names of columns in an expression of a step: they are always quoted."""
    return [name.replace("``", "`") for name in _NAMES.findall(sql)]


def _stop(route: Route, what: str, setting: str) -> SchemaError:
    at = f"{route.setting}.{setting}" if route.number >= 0 else "targets"
    return SchemaError(
        f"a statement and the rule of target {route.target} contradict each other: {what} ({at})",
        table=route.source,
        setting=at,
        next_step="take a new snapshot under a rule for the new columns: give the rule "
        "another `name`, and start a capture after this statement",
    )
