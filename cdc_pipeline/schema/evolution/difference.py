"""The steps from a target as it is to what a statement makes of it, in a repeatable order (K13).

Rules:
- What a target takes of a source table, and in which type, its shape says (`target_spec`). A
  statement adds what only it knows: which column is which, and what becomes of its values
  (`ColumnChange`). Columns that the target does not take change only in its record.
- A column that is masked, retyped, listed in `include` by its name, read by an expression or used
  for layout (`partition_by`, `cluster_by`) keeps its name and its values: a statement that drops,
  renames or rewrites it stops the target and names the setting. Otherwise a mask or a filter would
  silently disappear.
- So does one of which values were rescued: rows have their texts under its name.
- In a target that several tables share, a column goes only when none of them has it, and comes with
  the first. A table that drops one leaves its values there (`RecordedSource.left`): it cannot add
  the column again without clearing them.
- Checks come first and see the columns as they were; then columns are renamed, widened and dropped,
  then added; then one UPDATE sets all new values; last, converted columns replace their old ones.
- All intermediate states of the columns differ, so that the present state shows how far a killed
  batch came.
- Names are compared case-insensitively, as Delta does.
- A column that was dropped and kept is renamed when a new one takes its name, if the lake allows
  that.
- If a Delta feature that a step needs is not allowed, the next best thing is done and reported.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from cdc_pipeline.schema.evolution.statement_context import (
    RELOAD,
    KnownTable,
)
from cdc_pipeline.schema.evolution.steps import (
    COLUMN_MAPPING,
    TYPE_WIDENING,
    AddColumn,
    CheckRows,
    Describe,
    DropColumn,
    FillColumns,
    RenameColumn,
    Step,
    WidenColumn,
    columns_after,
    returns_to_earlier_columns,
)
from cdc_pipeline.schema.source_table import Comments
from cdc_pipeline.schema.target_spec import Misfit, RecordedShape, RecordedSource, described
from cdc_pipeline.schema.types import TargetColumn, common_type, decimal_scale, is_lossless
from cdc_pipeline.text.table_names import quoted

_PLAIN = RecordedShape()


class Refused(Exception):
    """A change that cannot be applied: why, and the way out."""

    def __init__(self, what: str, next_step: str = RELOAD) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """What a statement says of one source column.

    Attributes:
        before: its name before the statement; "" if it is added.
        after: its name and type afterwards; None if it is dropped.
        value: what existing rows get, as Spark SQL; of a changed column an expression over ``{c}``,
            its value before, or "" if they keep theirs.
        stays: the target's column is left as it is, and new values do not go there.
        is_reprinted: existing rows keep their values, but the server prints them as other texts.
        checks: conditions (``{c}``) that all rows must satisfy, each with the meaning of a failure.
    """

    before: str = ""
    after: TargetColumn | None = None
    value: str = ""
    stays: bool = False
    checks: tuple[tuple[str, str], ...] = ()
    is_reprinted: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    known: KnownTable  # afterwards
    steps: tuple[Step, ...]
    reasons: tuple[str, ...]


def difference(
    known: KnownTable,
    changes: Sequence[ColumnChange],
    key: Sequence[str] | None = None,
    *,
    comments: Comments,
    features: Collection[str],
    seq: str = "",
) -> Difference:
    """`key`: afterwards, if the statement names one; `comments`: the source's afterwards; `seq`:
    the statement's place in the order of changes. Raises Refused; Misfit: the statement and the
    target's rule contradict each other.
    """
    return _Difference(known, features).result(changes, key, comments, seq)


def widened_type(known: KnownTable, name: str, after: TargetColumn) -> str | None:
    """What the target's column of the source column `name` must be widened to; "" if it holds all
    values of `after` as it is, None if it cannot be.
    """
    shape = known.shape or _PLAIN
    is_fixed = shape.delta_type(after) != after.delta_type or after.name.lower() in shape.types
    if is_fixed or not shape.takes(name):
        return ""  # hashed values have the same text in every width
    target_name = known.target_name(name).lower()
    there = next(c for c in known.target_columns if c.name.lower() == target_name).delta_type
    common = common_type(there, after.delta_type)
    return "" if common == there else common


class _Difference:
    def __init__(self, known: KnownTable, features: Collection[str]) -> None:
        self._known = known
        self._shape = known.shape or _PLAIN
        self._has_mapping = COLUMN_MAPPING in features
        self._features = features
        self._columns = {column.name: column for column in known.source.columns}  # of the source
        self._names = dict(known.source.names)
        self._target = {column.name.lower(): column for column in known.target_columns}
        self._taken = set(self._target)
        self._of_others = {
            dict(other.names).get(column.name, column.name).lower()
            for other in known.others
            for column in other.columns
        }
        self._left = set(known.source.left)
        self._rescued = {name.lower() for name in known.rescued}
        self._reasons: list[str] = []
        self._checks: list[CheckRows] = []
        self._first: list[RenameColumn | WidenColumn | DropColumn] = []
        self._adds: list[AddColumn] = []
        self._fills: dict[str, tuple[str, str]] = {}
        self._defaults: list[str] = []
        self._last: list[DropColumn | RenameColumn] = []

    def result(
        self,
        changes: Sequence[ColumnChange],
        key: Sequence[str] | None,
        comments: Comments,
        seq: str,
    ) -> Difference:
        renamed = {
            change.before: change.after.name
            for change in changes
            if change.before and change.after is not None and change.before != change.after.name
        }
        for change in changes:
            self._check(change)
        for change in changes:
            if change.after is None:
                self._drop(change.before, stays=change.stays)
        if renamed:
            self._rename(renamed)
        for change in changes:
            if change.before and change.after is not None:
                self._retype(change, change.after)
        for change in changes:
            if not change.before and change.after is not None:
                self._add(change.after, change.value)
        source = self._known.source
        names = tuple(
            (name, target)
            for name, target in self._names.items()
            if name in self._columns and name != target
        )
        new_key = tuple(renamed.get(name, name) for name in source.key)
        if key is not None:
            spelled = {name.lower(): name for name in self._columns}
            new_key = tuple(spelled.get(name.lower(), name) for name in key)
        values = tuple((name, kind, value) for name, (kind, value) in self._fills.items())
        fills = (
            (FillColumns(values=values, defaults=tuple(self._defaults), seq=seq),) if values else ()
        )
        update = {"columns": tuple(self._columns.values()), "names": names, "comments": comments}
        source = source.model_copy(update=update)
        steps: tuple[Step, ...] = (
            *self._checks, *self._first, *self._adds, *fills, *self._last, *self._comments(source),
        )  # fmt: skip
        if returns_to_earlier_columns(self._known.target_columns, steps):
            raise Refused(
                "other columns take the names of dropped ones, so that the columns look the same "
                "as before",
                "set schema_changes.drop_column: keep, or take a new snapshot of the table",
            )
        target = reduce(columns_after, steps, self._known.target_columns)
        left = tuple(sorted(self._left & {column.name.lower() for column in target}))
        source = source.model_copy(update={"key": new_key, "left": left})
        known = replace(self._known, source=source, target=target)
        return Difference(known, steps, tuple(self._reasons))

    def _comments(self, source: RecordedSource) -> tuple[Describe, ...]:
        """A new column has no comment yet; one that is renamed keeps its own."""
        known, others = self._known, self._known.others
        before = described((known.source, *others), known.shape)
        names_before: dict[str, str] = {}
        for step in (*self._first, *self._adds, *self._last):
            if isinstance(step, AddColumn):
                names_before[step.name] = ""
            elif isinstance(step, RenameColumn):
                names_before[step.new_name] = names_before.pop(step.name, step.name)
        changed = tuple(
            (name, text)
            for name, text in described((source, *others), known.shape).items()
            if text != before.get(names_before.get(name) or name, "")
            or (text and name in names_before)
        )
        if changed:
            self._reasons.append("sets comments")
        return (Describe(comments=changed),) if changed else ()

    def _name(self, column: str) -> str:
        return self._names.get(column, column)

    def _type(self, column: str) -> str:
        return self._target[self._name(column).lower()].delta_type

    def _keep(self, name: str, what: str, *, is_lost: bool = True) -> None:
        if setting := self._shape.setting_of(name):
            raise Misfit(setting, what)
        if is_lost:
            self._keep_rescued(self._known.target_name(name), what)

    def _keep_rescued(self, target: str, what: str) -> None:
        """Rows have the texts of rescued values under the name that the column had then."""
        if target.lower() in self._rescued:
            raise Refused(f"{what}, and values of `{target}` were rescued")

    def _free(self, name: str, form: str = "{}_{}") -> str:
        """`name`, or else with a number; a name of the form ``b__v2`` always has one."""
        number, free_name = 1, name if form == "{}_{}" else ""
        while not free_name or free_name.lower() in self._taken:
            number += 1
            free_name = form.format(name, number)
        self._taken.add(free_name.lower())
        return free_name

    def _version(self, name: str, delta_type: str) -> str:
        """The one that another table of the target has, if none of this one's values are there."""
        own = {self._known.target_name(c.name).lower() for c in self._known.source.columns}
        versions = [
            self._target[target.lower()]
            for other in self._known.others
            for source, target in other.names
            if source.lower() == name.lower()
            and target.lower() in self._target.keys() - own - self._left
        ]
        if not versions:
            return self._free(name, "{}__v{}")
        for version in versions:
            if version.delta_type == delta_type:
                return version.name
        what = f"`{name}` becomes {delta_type}, but is {versions[0].delta_type} in another table"
        raise Misfit("shard_column", what)

    def _step(self, step: RenameColumn | WidenColumn | DropColumn) -> None:
        self._first.append(step)
        columns = columns_after(tuple(self._target.values()), step)
        self._target = {column.name.lower(): column for column in columns}

    # -- columns come and go -----------------------------------------------------------------------

    def _check(self, change: ColumnChange) -> None:
        name = change.before
        for condition, reason in change.checks if self._shape.takes(name) else ():
            self._keep(name, f"`{name}` is checked in every row")
            sql = condition.replace("{c}", quoted(self._name(name)))
            self._checks.append(CheckRows(condition=sql, reason=f"`{name}`: {reason}"))
            self._reasons.append(f"existing rows are checked: no row may have changed ({reason})")

    def _drop(self, name: str, *, stays: bool) -> None:
        """The source no longer has it."""
        self._keep(name, f"`{name}` is dropped or renamed", is_lost=not stays)
        target = self._name(name)
        del self._columns[name]
        self._names.pop(name, None)
        if self._shape.shard_column:
            self._left |= {name.lower(), target.lower()}
        if not self._shape.takes(name) or target.lower() in self._of_others:
            return
        if stays:
            self._reasons.append(f"keeps `{target}`, which is NULL in new rows")
        elif not self._has_mapping:
            self._reasons.append(
                f"keeps `{target}`: sink.reader_features does not allow {COLUMN_MAPPING}"
            )
        else:
            self._step(DropColumn(name=target))
            self._reasons.append(f"drops `{target}`")

    def _add(self, column: TargetColumn, value: str) -> None:
        name = column.name
        self._columns[name] = column
        if not self._shape.takes(name):
            return
        for added in self._shape.added:
            if added.name.lower() == name.lower():
                is_shard = added.name == self._shape.shard_column
                what = f"the new column `{name}` has the name of a column that the rule adds"
                raise Misfit("shard_column" if is_shard else "computed", what)
        if value != "NULL":
            what = f"old rows get a new value of `{name}`, whose values the rule changes"
            self._keep(name, what, is_lost=False)
        self._keep_rescued(name, f"`{name}` is added again")
        delta_type = self._shape.delta_type(column)
        wanted = TargetColumn(name=name, delta_type=delta_type)
        present, target, drop = self._target.get(name.lower()), name, DropColumn(name=name)
        if present is None and drop in self._first and wanted in self._known.target_columns:
            # Dropped and added by one statement: the columns afterwards would look the same as
            # before.
            self._first.remove(drop)
            self._target[name.lower()] = wanted
            self._fill(name, delta_type, value, is_default=True)
        elif present is not None and name.lower() in self._of_others:
            if present.delta_type != delta_type:
                what = (
                    f"the new column `{name}` is {delta_type}, but {present.delta_type} in the "
                    "target"
                )
                raise Misfit("shard_column", what)
            if value != "NULL" or name.lower() in self._left:
                self._fill(name, delta_type, value, is_default=True)
        elif present == wanted and not self._has_mapping:
            self._reasons.append(f"the values of the dropped `{name}` are replaced")
            self._fill(name, delta_type, value, is_default=True)
        else:
            if present is not None and self._has_mapping:
                self._set_aside(present.name)
            elif present is not None:
                target = self._names[name] = self._version(name, delta_type)
            self._left.discard(target.lower())
            self._add_to_target(target, delta_type, value, is_default=True)
        is_there = name.lower() in self._of_others and target == name
        self._reasons.append(f"`{name}` is in the target already" if is_there else f"adds {target}")

    def _add_to_target(
        self, name: str, delta_type: str, value: str, *, is_default: bool = False
    ) -> None:
        self._taken.add(name.lower())
        if name.lower() not in self._target:  # else another table has this version
            self._adds.append(AddColumn(name=name, delta_type=delta_type))
        self._target[name.lower()] = TargetColumn(name=name, delta_type=delta_type)
        if value != "NULL":
            self._fill(name, delta_type, value, is_default=is_default)

    def _fill(self, name: str, delta_type: str, value: str, *, is_default: bool = False) -> None:
        self._fills[name] = (delta_type, value)
        if is_default:
            self._defaults.append(name)

    # -- names -------------------------------------------------------------------------------------

    def _rename(self, renamed: dict[str, str]) -> None:
        """All at once."""
        for old, new in renamed.items():
            self._keep(old, f"`{old}` is dropped or renamed")
            self._keep_rescued(new, f"`{old}` takes the name `{new}`")
            takes, setting = self._shape.takes(old), self._shape.setting_of(new)
            if setting or takes != self._shape.takes(new):
                what = f"`{old}` takes the name `{new}`, which the rule treats differently"
                raise Misfit(setting or "columns", what)
            if takes and self._known.shared:
                what = f"`{old}` is renamed in one of several tables that share a target"
                raise Misfit("shard_column", what)
        moves = {
            self._name(old): (old, new) for old, new in renamed.items() if self._shape.takes(old)
        }
        types = {old: self._type(old) for old, _ in moves.values()}
        for old in renamed:
            self._names.pop(old, None)
        self._columns = {
            renamed.get(name, name): column.model_copy(update={"name": renamed.get(name, name)})
            for name, column in self._columns.items()
        }
        if self._has_mapping:
            self._move({target: new for target, (_, new) in moves.items()})
            return
        if moves:
            self._reasons.append(
                f"sink.reader_features does not allow {COLUMN_MAPPING}: renamed columns "
                "become new columns"
            )
        for target, (old, new) in moves.items():
            name = new if new.lower() not in self._taken else self._version(new, types[old])
            self._names[new] = name
            self._add_to_target(name, types[old], quoted(target))
            self._reasons.append(
                f"`{name}` takes over the values of `{target}`, which is kept unchanged"
            )

    def _move(self, moves: dict[str, str]) -> None:
        """So that each name is free when it is taken."""
        moves = {old: new for old, new in moves.items() if old != new}
        while moves:
            present = self._target
            ready = next((old for old, new in moves.items() if new.lower() not in present), None)
            if ready is None:
                holders = {old: present[new.lower()].name for old, new in moves.items()}
                old = next((old for old, holder in holders.items() if holder not in moves), None)
                if old is None:  # a cycle: one is renamed out of the way first
                    old, aside = next(iter(moves)), self._free(f"{next(iter(moves))}__renaming")
                    self._step(RenameColumn(name=old, new_name=aside))
                    moves = {aside if name == old else name: to for name, to in moves.items()}
                    continue
                holder, new = holders[old], moves[old]
                if holder in {self._name(name) for name in self._columns if name != new}:
                    raise Refused(
                        f"`{old}` is renamed to `{new}`, the name of another column in the target"
                    )
                self._set_aside(holder)
                continue
            new = moves.pop(ready)
            self._taken.add(new.lower())
            self._step(RenameColumn(name=ready, new_name=new))
            self._reasons.append(f"`{ready}` is renamed to `{new}`")

    def _set_aside(self, dropped: str) -> None:
        """A column that the source no longer has leaves its name to another one."""
        aside = self._free(f"{dropped}__dropped")
        self._step(RenameColumn(name=dropped, new_name=aside))
        self._reasons.append(f"the dropped `{dropped}` is now `{aside}`")

    # -- types and values --------------------------------------------------------------------------

    def _retype(self, change: ColumnChange, after: TargetColumn) -> None:
        name, before = after.name, self._columns[after.name]
        self._columns[name] = after
        if not self._shape.takes(name):
            return
        target = self._name(name)
        if change.is_reprinted:
            what = f"the server prints the values of `{name}` as other texts"
            self._keep_rescued(target, what)
            if self._shape.types.get(name.lower()) == "string":
                self._keep(name, what)
        if change.stays:
            self._keep(name, f"new values of `{name}` go to another column", is_lost=False)
            if self._shape.shard_column:
                self._left.add(target.lower())
            delta_type = self._shape.delta_type(after)
            new_name = self._names[name] = self._version(name, delta_type)
            self._add_to_target(new_name, delta_type, "NULL")
            self._reasons.append(
                f"`{new_name}` holds the values from now on, and `{target}` the earlier ones"
            )
        elif change.value:
            self._rewrite(change.before, name, after.delta_type, change.value)
        elif before == after:
            if change.before == name:
                self._reasons.append(f"`{name}` keeps its values and its type")
        else:
            self._widen(change.before, before, after)

    def _widen(self, old_name: str, before: TargetColumn, after: TargetColumn) -> None:
        name, target, there = after.name, self._name(after.name), self._type(after.name)
        wider = widened_type(self._known, old_name, after)
        assert wider is not None
        wanted = self._shape.delta_type(after)
        if wanted != after.delta_type and (
            not is_lossless(after.delta_type, wanted)
            or (wanted == "string" and not self._keeps_text(before, after))
        ):
            self._keep(name, f"`{name}` becomes {after.delta_type}, but is {wanted} in the target")
        if not wider:
            self._reasons.append(f"`{target}` keeps {there}, which holds {after.delta_type}")
            return
        if setting := self._shape.reads(name):
            raise Misfit(setting, f"the type of `{name}` changes")
        if target in self._fills:  # renamed without column mapping: it is added with these values
            self._adds = [step for step in self._adds if step.name != target]
            del self._target[target.lower()]
            self._add_to_target(target, wider, self._fills[target][1])
        elif TYPE_WIDENING in self._features:
            self._step(WidenColumn(name=target, delta_type=wider))
            self._reasons.append(f"`{target}` is widened from {there} to {wider}")
        else:
            self._reasons.append(
                f"sink.reader_features does not allow {TYPE_WIDENING}: a new column replaces it"
            )
            self._rewrite(old_name, name, after.delta_type, f"CAST({{c}} AS {after.delta_type})")

    def _keeps_text(self, before: TargetColumn, after: TargetColumn) -> bool:
        """The text of a number has as many digits after the point as its type; a hashed one has no
        trailing zeros. Of other types it is another one in another type.
        """
        scales = {decimal_scale(before.delta_type), decimal_scale(after.delta_type)}
        is_hashed = self._shape.masks.get(after.name.lower(), "").startswith("hash:")
        return None not in scales and (is_hashed or len(scales) == 1)

    def _rewrite(self, old_name: str, name: str, delta_type: str, value: str) -> None:
        """Convert existing values; `value` is an expression over ``{c}``, the previous column."""
        self._keep(name, f"`{name}` provides the values of another column")
        target, there = self._name(name), self._type(name)
        _, values = self._fills.get(target, ("", quoted(target)))
        expression = value.replace("{c}", values)
        if common_type(there, delta_type) == there:
            self._fill(target, there, expression)
        elif not self._has_mapping:
            raise Refused(
                f"`{self._known.target_name(old_name)}` cannot be converted from {there} to "
                f"{delta_type} without {COLUMN_MAPPING}",
                f"allow {COLUMN_MAPPING} in sink.reader_features, or take a new snapshot of the "
                "table",
            )
        else:
            converted = self._free(f"{target}__converted")
            self._add_to_target(converted, delta_type, expression)
            self._last += [DropColumn(name=target), RenameColumn(name=converted, new_name=target)]
        self._reasons.append(f"the values of `{target}` are converted to {delta_type}")
