"""What an ALTER TABLE says of a target's columns under its policies, or why it cannot be applied
(K13: no DDL passes in silence). `difference.py` makes the steps of it.

Rules:
- An ALTER TABLE is one change: every action names columns as they were before it, and if one action
  is refused, all are.
- Only changes that are certain from the text and the previous columns are applied. A change that
  rewrites values without row events is applied only if the new values are certain and the policy
  requests it; otherwise the table stops for a new snapshot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.config.section import one_of
from cdc_pipeline.errors import SchemaError, UnsupportedDdlError
from cdc_pipeline.schema.ddl.alter import Action, ActionKind
from cdc_pipeline.schema.ddl.columns import ColumnDefinition
from cdc_pipeline.schema.ddl.published import published, without_literals
from cdc_pipeline.schema.ddl.tokens import Uncertain
from cdc_pipeline.schema.evolution.backfill import NULL, backfill
from cdc_pipeline.schema.evolution.difference import (
    ColumnChange,
    Refused,
    difference,
    widened_type,
)
from cdc_pipeline.schema.evolution.statement_context import (
    RELOAD,
    Decision,
    KnownTable,
    StatementContext,
    TableChange,
)
from cdc_pipeline.schema.evolution.value_changes import (
    is_lossless,
    keeps_text,
    value_change,
)
from cdc_pipeline.schema.generated import looks_the_same
from cdc_pipeline.schema.source_table import (
    SourceTable,
    charsets_after,
    column_changes,
    comments_after,
    holds_labels,
    resolved_column,
)
from cdc_pipeline.schema.target_spec import Misfit, shape_of
from cdc_pipeline.schema.types import TargetColumn, check_column_names, delta_type
from cdc_pipeline.text.table_names import table_name

_A = ActionKind

RECORDED: Final[dict[ActionKind, str]] = {
    _A.INDEX: "indexes",
    _A.UNIQUE_INDEX: "indexes",
    _A.CONSTRAINT: "constraints",
    _A.OPTION: "options",
    _A.ENGINE: "options",
    _A.ORDER_BY: "row order",
    _A.COLUMN_DEFAULT: "defaults of future rows",
    _A.COLUMN_VISIBILITY: "visibility of columns",
    _A.PARTITION: "partitions, with every row kept",
    _A.VERSIONING: "periods and earlier versions of rows",
}
# Any other kind cannot be read.
_APPLIED: Final = frozenset(
    {
        _A.ADD_COLUMN,
        _A.DROP_COLUMN,
        _A.MODIFY_COLUMN,
        _A.CHANGE_COLUMN,
        _A.RENAME_COLUMN,
        _A.ADD_PRIMARY_KEY,
        _A.DROP_PRIMARY_KEY,
        _A.RENAME_TABLE,
        _A.CONVERT_CHARSET,
        _A.PARTITION_ROWS,
    }
)
_ENGINES_WITHOUT_ROWS: Final = frozenset({"BLACKHOLE", "MEMORY", "HEAP"})
_OF_OLD_COLUMNS: Final = frozenset(
    {_A.MODIFY_COLUMN, _A.CHANGE_COLUMN, _A.CONVERT_CHARSET, _A.ADD_PRIMARY_KEY}
)
# Actions that servers perform without copying the table whenever that is possible.
_IN_PLACE: Final = frozenset(
    {_A.INDEX, _A.UNIQUE_INDEX, _A.COLUMN_VISIBILITY, _A.RENAME_COLUMN, _A.RENAME_TABLE}
)
_ALGORITHMS_IN_PLACE: Final = frozenset({"INPLACE", "INSTANT", "NOCOPY"})


class Unreadable(Exception):
    """`error` is what to raise if nothing else shows what the statement did."""

    def __init__(self, error: UnsupportedDdlError) -> None:
        super().__init__(error.what)
        self.error = error


def read_alteration(
    context: StatementContext, known: KnownTable, *, shadow: bool = False
) -> Decision:
    """What an ALTER TABLE does to its target. A statement on a `shadow` table was followed by a
    copy of rows: whatever a copy may lose is refused.

    Raises UnsupportedDdlError: an action cannot be applied; Unreadable: one cannot be read;
    SchemaError: a column already exists, or Delta cannot hold its name.
    """
    return _Alter(context, known, shadow=shadow).run()


class _Alter:
    def __init__(self, context: StatementContext, known: KnownTable, *, shadow: bool) -> None:
        self._context = context
        self._statement = statement = context.statement
        self._known = known
        self._shadow = shadow
        self._table = statement.tables[0]
        self._policy = known.policy
        self._used: dict[str, None] = {}
        self._notes: dict[str, None] = {}
        self._not_null: list[str] = []  # columns where NULLs may have become another value
        self._kinds = {action.kind for action in statement.actions}
        self._changes = column_changes(
            statement.actions, [column.name for column in known.source.columns]
        )
        self._recomputes = shadow or _may_recompute(statement.actions)
        self._before: SourceTable | None = None
        if self._recomputes or self._kinds & _OF_OLD_COLUMNS:
            self._before = context.before(*self._table)
        default, converted = charsets_after(
            statement.actions,
            "" if self._before is None else self._before.charset,
            "" if self._before is None else self._before.database_charset,
        )
        self._charset = default if converted is None else converted

    def run(self) -> Decision:
        context, table = self._context, self._table
        self._check_actions()
        try:
            self._check_key()
            self._check_generated()
            after = difference(
                self._known,
                self._column_changes(),
                self._changes.key,
                comments=comments_after(
                    self._known.source.comments, self._statement.actions, self._changes
                ),
                features=context.features,
                seq=str(context.place.seq),
            )
            known = after.known
            for columns in (known.source.columns, known.target_columns):
                check_column_names(table_name(*table), [column.name for column in columns])
            shape_of(known.shape, known.source.columns, known.source.key)
        except Refused as refused:
            raise context.unsupported(refused.what, table, next_step=refused.next_step) from None
        except Misfit as misfit:
            raise context.contradiction(self._known, table, misfit.what, misfit.setting) from None
        inexact = _A.PARTITION_ROWS in self._kinds
        change = TableChange(table, known, after.steps, inexact=inexact)
        if known.shared and any(
            step.kind in ("fill_columns", "check_rows") for step in after.steps
        ):
            what = "a change of values in a target that other tables share"
            raise context.unsupported(what, table)
        reason = "; ".join([*after.reasons, *self._notes]) or "changes nothing"
        does_something = change.steps or change.inexact or known != self._known
        return context.decided(reason, [change] if does_something else [], policy=self._used)

    def _use(self, kind: str) -> str:
        """The switch of a kind of change, noted for the record."""
        value = str(getattr(self._policy, kind))
        self._used[f"{kind}={value}"] = None
        return value

    def _check_policy(self, what: str, *permitting: str) -> None:
        """Of a kind of change without a switch."""
        self._used[f"schema_changes={self._policy.policy}"] = None
        if self._policy.policy not in permitting:
            raise Refused(what, _setting("schema_changes", one_of(permitting)))

    # -- actions -----------------------------------------------------------------------------------

    def _check_actions(self) -> None:
        for action, why in self._changes.contradictions:
            if action.kind is _A.COLUMN_VISIBILITY:
                continue
            raise SchemaError(
                f"column `{action.name}` {why}",
                table=table_name(*self._table),
                got=published(self._statement),
                next_step="the lake is ahead of the journal: check the start position, or "
                "take a new snapshot of the table",
            )
        for action in self._changes.skipped:
            self._notes[
                f"column {action.name} already exists"
                if action.kind is _A.ADD_COLUMN
                else f"there is no column {action.name}"
            ] = None
        for action in self._statement.actions:
            if action.kind is _A.PARTITION_ROWS:
                # The log does not say which rows leave, or enter.
                leave = action.text.upper().startswith(("DROP", "TRUNCATE"))
                if not leave or self._use("truncate") != "keep":
                    raise self._refused(
                        action,
                        "partitions of a captured table are added or removed with their rows, "
                        "without row events",
                        _setting("schema_changes.truncate", "keep") if leave else RELOAD,
                    )
                self._notes["the target keeps the rows that left with their partitions"] = None
            self._check_recorded(action)
            if action.kind in RECORDED and action.name != "COMMENT":
                self._notes[f"{RECORDED[action.kind]} do not exist in the lake"] = None

    def _check_recorded(self, action: Action) -> None:
        if action.kind is _A.TABLESPACE:
            raise self._refused(
                action,
                "importing or discarding a tablespace replaces all rows of a captured table "
                "without row events",
            )
        if action.kind not in _APPLIED and action.kind not in RECORDED:
            what = "an ALTER TABLE of a captured table cannot be read with certainty"
            raise Unreadable(self._refused(action, what))
        if action.kind is _A.ENGINE and action.name.upper() in _ENGINES_WITHOUT_ROWS:
            raise self._refused(
                action,
                f"engine {action.name} loses the rows of a captured table without row events",
            )
        if (self._statement.ignore or self._shadow) and (what := self._unfit_rows(action)):
            raise self._refused(
                action,
                f"the copy into a shadow table drops rows that {what}"
                if self._shadow
                else f"ALTER IGNORE drops rows that {what}, without row events",
            )

    def _unfit_rows(self, action: Action) -> str:
        """What is wrong with the rows that INSERT IGNORE and ALTER IGNORE drop; "" if they drop
        none.
        """
        kind, column, text = action.kind, action.column, action.text.upper()
        key = {self._changes.name_after(name).lower() for name in self._known.source.key}
        if kind is _A.UNIQUE_INDEX or (column is not None and column.unique):
            return "violate the unique index"
        if kind is _A.ADD_PRIMARY_KEY or (column is not None and column.primary_key):
            names = action.key if column is None else (column.name,)
            has_prefix = kind is _A.ADD_PRIMARY_KEY and text.count("(") > 1
            if has_prefix or {name.lower() for name in names} != key:
                return "violate the primary key"
        if kind is _A.CONSTRAINT and not text.startswith("DROP"):
            return "violate the constraint"
        if column is not None and (
            column.constrained
            # MariaDB's JSON is a text with a CHECK.
            or (column.declared == "JSON" and kind is not _A.ADD_COLUMN)
        ):
            return "violate the constraint"
        if (
            column is not None
            and kind is not _A.ADD_COLUMN
            and column.column.type.has_charset
            and (self._statement.ignore or column.name.lower() in key)
        ) or (kind is _A.CONVERT_CHARSET and self._statement.ignore):
            return "are equal in another collation"
        if kind is _A.PARTITION and text.startswith("PARTITION") and "VALUES" in text:
            return "fit in no partition"
        return ""

    def _refused(self, action: Action, what: str, next_step: str = RELOAD) -> UnsupportedDdlError:
        said = self._statement
        text = without_literals(
            action.text, modes=said.modes, is_mariadb=said.is_mariadb, max_chars=200
        )
        what = what if text is None else f"{what}: {text}"
        return self._context.unsupported(what, self._table, next_step)

    # -- columns -----------------------------------------------------------------------------------

    def _column_changes(self) -> list[ColumnChange]:
        said, columns = (
            self._changes,
            {column.name: column for column in self._known.source.columns},
        )
        changes = {name: self._dropped(name) for name in said.dropped}
        if said.renamed:
            self._check_renames()
        for old, new in said.renamed.items():
            after = columns[old].model_copy(update={"name": new})
            changes[old] = ColumnChange(before=old, after=after)
        if _A.CONVERT_CHARSET in self._kinds:
            self._convert()
        for old, definition in said.changed.items():
            changes[old] = self._retyped(old, said.name_after(old), definition)
        for name in self._not_null:
            change = changes.get(name) or ColumnChange(before=name, after=columns[name])
            check = ("{c} IS NOT NULL", "NULLs were replaced by another value")
            changes[name] = replace(change, checks=tuple(dict.fromkeys((check, *change.checks))))
        return [*changes.values(), *map(self._added, said.added)]

    def _check_key(self) -> None:
        known, changes = self._known, self._changes
        for name in changes.key or ():
            self._check_not_null(name)
        new_key = [name.lower() for name in changes.names_after(known.source.key)]
        may_be_null = [
            name
            for name in known.source.key
            if name in changes.changed and changes.changed[name].nullable
        ]
        if known.by_key and may_be_null and not self._statement.is_mariadb:
            # MySQL refuses NULL in a primary key; MariaDB leaves it out in silence.
            raise Refused(
                f"`{may_be_null[0]}` may be NULL, so that the unique index that stood in for a "
                "primary key is no key any more",
                "take a new snapshot of the table",
            )
        if not known.by_key or (changes.key is None and len(new_key) == len(known.source.key)):
            return
        policy = self._use("change_key")
        wanted = new_key if changes.key is None else [name.lower() for name in changes.key]
        if known.shared and wanted != new_key:
            what = "one of several tables that share a target gets another primary key"
            raise Misfit("shard_column", what)
        if policy != "stop" and changes.key is not None and sorted(wanted) == sorted(new_key):
            return  # the same columns
        kept = {
            name.lower()
            for name in changes.names_after([column.name for column in known.source.columns])
        }
        if not wanted:
            what = "the primary key of a captured table is dropped"
        elif policy == "apply" and changes.key is not None and set(wanted) <= kept:
            return
        else:
            what = "a captured table gets another primary key"
        raise Refused(
            what,
            _setting("schema_changes.change_key", "apply (if the new key's columns already exist)"),
        )

    def _check_not_null(self, name: str) -> None:
        """NOT NULL of a primary key: outside strict mode, NULLs become another value."""
        old_names = {column.name.lower(): column.name for column in self._known.source.columns}
        old_names |= {new.lower(): old for old, new in self._changes.renamed.items()}
        old_name = old_names.get(name.lower())
        if old_name is None or old_name in self._known.source.key:
            return
        old = self._old_column(old_name)
        if old is None or (
            old.nullable and not (self._is_strict() and old.kind is not Kind.TIMESTAMP)
        ):
            self._not_null.append(old_name)

    def _is_strict(self) -> bool:
        # INSERT ... SELECT into a shadow adjusts values as in a non-strict session.
        return self._statement.modes.strict and not self._statement.ignore and not self._shadow

    def _check_generated(self) -> None:
        """Refuse what changes values of generated columns (K23: the log does not show new ones)."""
        changes, before = self._changes, self._before
        changed: dict[str, None] = {}
        for old_name, definition in changes.changed.items():
            old, new = self._old_column(old_name), self._resolved(definition)
            if old is None or definition.generated or not looks_the_same(old, new):
                changed |= dict.fromkeys((old_name.lower(), changes.name_after(old_name).lower()))
        if _A.CONVERT_CHARSET in self._kinds:
            columns = self._known.source.columns if before is None else before.schema.columns
            changed |= dict.fromkeys(
                column.name.lower()
                for column in columns
                if not isinstance(column, Column) or column.type.has_charset
            )
        if before is None or before.generated is None:
            if changed:
                raise Refused(
                    f"the type of `{next(iter(changed))}` changes, and it is unknown whether "
                    "the table has generated columns, whose values would change too"
                )
            return
        dropped = {name.lower() for name in changes.dropped}
        for column in before.generated:
            if column.name.lower() in dropped:
                continue
            base = next(
                (name for name in (column.name.lower(), *column.bases) if name in changed), None
            )
            if base is not None:
                raise Refused(
                    f"`{base}` changes, and with it the values of the generated column "
                    f"`{column.name}`"
                )
            if self._recomputes and not column.is_steady:
                raise Refused(
                    f"the server may have recomputed the generated column `{column.name}`, and "
                    "its expression may give different values in another session",
                    f"write ALGORITHM=INPLACE or INSTANT in statements on this table; {RELOAD}",
                )

    def _is_taken(self, name: str) -> bool:
        """Whether the target has the column: what becomes of any other one stops nothing."""
        return self._known.shape is None or self._known.shape.takes(name)

    def _dropped(self, name: str) -> ColumnChange:
        if not self._is_taken(name):
            return ColumnChange(before=name)
        policy = self._use("drop_column")
        if policy == "stop":
            raise Refused(
                f"column `{name}` of a captured table is dropped",
                _setting("schema_changes.drop_column", "keep or apply"),
            )
        return ColumnChange(before=name, stays=policy == "keep")

    def _check_renames(self) -> None:
        renamed = self._changes.renamed
        pairs = ", ".join(f"`{old}` to `{new}`" for old, new in renamed.items())
        self._check_policy(f"columns of a captured table are renamed: {pairs}", "evolve")
        if self._shadow:
            raise Refused(
                f"a copy into a shadow table may not keep the values of renamed columns: {pairs}"
            )

    def _convert(self) -> None:
        if self._charset in ("", "binary"):
            raise Refused(
                f"the conversion to charset {self._charset or 'unknown'} cannot be followed"
            )
        lossy = [
            column.name
            for column in (() if self._before is None else self._before.schema.columns)
            if column.type.has_charset and not self._keeps_text(column)
        ]
        if lossy:
            raise Refused(
                f"the conversion to {self._charset} may lose characters of {', '.join(lossy)}"
            )
        if self._before is None and not is_lossless("utf8mb4", self._charset):
            raise Refused("the columns' charsets before the conversion are unknown")
        self._notes[
            f"the lake stores text as Unicode: the conversion to {self._charset} loses nothing"
        ] = None

    def _keeps_text(self, column: Column) -> bool:
        """Or fails. Labels are converted in silence, even in strict mode."""
        if column.type.has_labels:
            return is_lossless(column.charset, self._charset) or all(
                label.isascii() for label in column.labels
            )
        return keeps_text(column.charset, self._charset, strict=self._is_strict())

    def _retyped(self, old_name: str, name: str, definition: ColumnDefinition) -> ColumnChange:
        column = self._resolved(definition)
        definition = replace(definition, column=column)
        after = TargetColumn(name=name, delta_type=delta_type(column))
        if not self._is_taken(old_name):
            return ColumnChange(before=old_name, after=after)
        old, change, reason = self._old_column(old_name), None, ""
        try:
            if old is None:
                raise Uncertain(f"the former type of `{old_name}` is unknown")
            modes = replace(self._statement.modes, strict=self._is_strict())
            change = value_change(old, definition, modes)
        except Uncertain as uncertain:
            reason = f" ({uncertain})"
        retyped = ColumnChange(before=old_name, after=after)
        if change is not None:
            retyped = replace(
                retyped, value=change.value, checks=change.checks, is_reprinted=change.is_reprinted
            )
            if old is not None and not change.value and delta_type(old) == after.delta_type:
                return retyped
            if not change.value and widened_type(self._known, old_name, after) is not None:
                self._check_policy(f"`{name}` becomes {definition.sql_type}", "evolve", "careful")
                return retyped
            value = change.value or f"CAST({{c}} AS {after.delta_type})"
            retyped = replace(retyped, value=value)
        policy = self._use("incompatible")
        what = f"`{name}` becomes {definition.sql_type}, which rewrites values without row events"
        what += reason
        if policy == "rewrite" and change is not None:
            return retyped
        if policy != "new_column":
            ways = "new_column" if change is None else "new_column or rewrite"
            raise Refused(
                f"{what}: the table needs a new snapshot",
                _setting("schema_changes.incompatible", ways),
            )
        if old_name in self._known.source.key or name in self._known.source.key:
            raise Refused(f"{what}, and the column is in the key")
        return ColumnChange(before=old_name, after=after, stays=True)

    def _resolved(self, definition: ColumnDefinition) -> Column:
        return resolved_column(definition, self._charset, is_mariadb=self._statement.is_mariadb)

    def _old_column(self, name: str) -> Column | None:
        """Before the statement, if the schema history agrees with the recorded target."""
        if self._before is None:
            return None
        column = next(
            (c for c in self._before.schema.columns if c.name.lower() == name.lower()), None
        )
        recorded = next(c for c in self._known.source.columns if c.name == name)
        return column if column is not None and delta_type(column) == recorded.delta_type else None

    def _added(self, definition: ColumnDefinition) -> ColumnChange:
        column = self._resolved(definition)
        after = TargetColumn(name=definition.name, delta_type=delta_type(column))
        if not self._is_taken(after.name):
            return ColumnChange(after=after, value=NULL)
        self._check_policy(f"column `{definition.name}` is added", "evolve", "careful")
        is_mariadb = self._statement.is_mariadb
        try:
            value = backfill(replace(definition, column=column), modes=self._statement.modes)
            if value != NULL and not holds_labels(column, is_mariadb=is_mariadb):
                raise Uncertain("its charset may lack characters of the labels")
        except Uncertain as reason:
            raise Refused(
                f"column `{definition.name}` gives existing rows values that the journal does "
                f"not hold ({reason}): the table needs a new snapshot"
            ) from None
        return ColumnChange(after=after, value=value)


def _may_recompute(actions: tuple[Action, ...]) -> bool:
    """By a copy of the table, or of a default, which expressions can name."""
    algorithms = {action.value.upper() for action in actions if action.name == "ALGORITHM"}
    kinds = {action.kind for action in actions}
    return _A.COLUMN_DEFAULT in kinds or (
        not algorithms & _ALGORITHMS_IN_PLACE and not kinds <= _IN_PLACE
    )


def _setting(name: str, value: str) -> str:
    return f"set {name}: {value}, or take a new snapshot of the table"
