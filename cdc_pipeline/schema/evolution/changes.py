"""What a binlog statement means for the targets: a decision for every DDL (K13: none passes in
silence, and DDL of a table that is not captured never stops a run).

Rules:
- Every statement ends in a decision with its reason: applied (a target is created or gets columns),
  recorded (no target changes), ignored (not captured), or an error that names the way out. Nothing
  falls through.
- A captured table without a target has nothing to lose: its DDL is recorded, and its first table
  map defines its columns.
- Only what is certain from the text is applied; the table's next table map must confirm it
  (`confirm`).
- What may carry rows, or cannot be classified, is an error of each captured table that it may have
  reached (`reach.py`).
- BEGIN, COMMIT, ROLLBACK, savepoints and XA statements are ignored here: they change no table by
  themselves. `run/decode/transaction_control.py` handles them by kind and name when rows are
  applied.
- `is_row_logged`: row events record each row that a statement adds, removes or gives another key
  (K12: only then may rows be appended without MERGE). Only certainty counts: a statement of an
  unknown shape is treated as one that changes rows in silence.
- A foreign key may delete or change rows of the child without row events (cascades): a statement
  that names one counts, in the text as a whole, so that no comment or version mark hides it.
- Rows of a table of another engine than InnoDB can go with a restart or a repair.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import SchemaError, UnsupportedDdlError, UnsupportedEventError, located
from cdc_pipeline.schema.ddl.alter import ActionKind
from cdc_pipeline.schema.ddl.published import published
from cdc_pipeline.schema.ddl.statement import CREATES, StatementKind
from cdc_pipeline.schema.evolution.alterations import RECORDED, Unreadable, read_alteration
from cdc_pipeline.schema.evolution.reach import reached
from cdc_pipeline.schema.evolution.statement_context import (
    RELOAD,
    Decision,
    KnownTable,
    StatementContext,
    TableChange,
)
from cdc_pipeline.schema.evolution.table_changes import (
    create,
    dropped,
    dropped_database,
    renamed,
    shadow_changed,
    truncated,
)
from cdc_pipeline.schema.types import TargetColumn, target_columns

_K = StatementKind
_SESSION_KINDS: Final = frozenset(
    {
        _K.EMPTY,
        _K.SET,
        _K.BEGIN,
        _K.COMMIT,
        _K.ROLLBACK,
        _K.SAVEPOINT,
        _K.RELEASE_SAVEPOINT,
        _K.ROLLBACK_TO_SAVEPOINT,
        _K.XA_START,
        _K.XA_END,
        _K.XA_COMMIT,
        _K.XA_ROLLBACK,
    }
)
# What each of these statements must name.
_NAMED: Final = {
    _K.ROLLBACK_TO_SAVEPOINT: "a savepoint",
    _K.SAVEPOINT: "a savepoint",
    _K.XA_COMMIT: "an xid such as X'6731',X'',1",
    _K.XA_ROLLBACK: "an xid such as X'6731',X'',1",
}
# Kinds that change no table's columns or rows, whatever they name.
_HARMLESS_KINDS: Final = frozenset(
    {
        _K.VIEW,
        _K.TRIGGER,
        _K.ROUTINE,
        _K.ACCOUNT,
        _K.STORAGE,
        _K.ADMIN,
        _K.CREATE_DATABASE,
        _K.ALTER_DATABASE,
    }
)


def decide(context: StatementContext) -> Decision:
    """Decide about one statement of the binlog.

    Raises:
        UnsupportedDdlError: DDL of a captured table cannot be applied.
        ContentUnknownError: a captured table may have rows that only the statement carries.
        UnsupportedEventError: XA PREPARE as text, an XA statement whose xid cannot be read.
        SchemaError: a column name that Delta cannot hold.
    """
    with located(at=context if context.journal else (None, None)):
        decision = _decide(context)
    return replace(decision, row_logged=is_row_logged(decision, context.statement.sql))


def _decide(context: StatementContext) -> Decision:
    statement, kind = context.statement, context.statement.kind
    if kind is _K.XA_PREPARE or (kind in _NAMED and not statement.name):
        raise UnsupportedEventError(
            f"{statement.verb} is in the log in a form that no supported server writes",
            expected=_NAMED.get(kind, "the event XA_PREPARE"),
            got=published(statement),
            next_step="start the capture after this transaction",
        )
    if kind in _SESSION_KINDS:
        return context.ignored("session and transaction control")
    if tables := reached(context):
        raise context.rows_unknown(tables[0])
    if kind in (_K.UNKNOWN, _K.DML):
        return context.ignored("it reaches no captured table")
    if statement.drops_database:
        return dropped_database(context)
    if kind in _HARMLESS_KINDS:
        return context.ignored(f"{statement.verb} changes no table")
    if statement.temporary:
        return context.ignored("a temporary table")
    shadows = shadow_changed(context)
    if not context.touched:
        decision = context.ignored("not a captured table")
    elif kind in (_K.MAINTENANCE, _K.SEQUENCE):
        decision = context.decided(f"{statement.verb} changes neither columns nor rows")
    elif kind in CREATES:
        decision = create(context)
    elif kind is _K.ALTER_TABLE:
        decision = _alter(context)
    elif kind in (_K.CREATE_INDEX, _K.DROP_INDEX):
        decision = _index(context)
    elif kind is _K.TRUNCATE_TABLE:
        decision = truncated(context)
    elif kind is _K.RENAME_TABLE:
        decision = renamed(context)
    else:
        decision = dropped(context)
    return replace(decision, shadows=shadows) if shadows else decision


# -- ALTER and indexes -----------------------------------------------------------------------------


def _alter(context: StatementContext) -> Decision:
    statement, table = context.statement, context.statement.tables[0]
    known = context.target_of(table)
    named = {table, *(name for pair in statement.renames for name in pair)}
    for other in context.touched:
        if other not in named:
            what = "rows enter or leave a captured table without row events"
            raise context.unsupported(what, other)
    if known is None:
        if statement.renames:
            return renamed(context)
        return context.decided(_NO_TARGET)
    try:
        altered = read_alteration(context, known)
    except (Unreadable, UnsupportedDdlError) as error:
        if statement.renames and not known.follows and known.policy.rename_table == "by_name":
            # The effect on the rows concerns only the new name, whose target cannot take them over.
            left = renamed(context)
            return replace(
                left, changes=tuple(change for change in left.changes if not change.is_carried)
            )
        if isinstance(error, Unreadable):
            return _by_catalog(context, known, error)
        raise
    return renamed(context, altered) if statement.renames else altered


# A column that is dropped and added again looks the same, and is empty.
_REWRITING: Final = re.compile(r"\b(MODIFY|CHANGE|CONVERT|DROP|IGNORE)\b", re.IGNORECASE)
_NO_TARGET: Final = "no target yet: its first table map determines its columns"


def _by_catalog(context: StatementContext, known: KnownTable, unreadable: Unreadable) -> Decision:
    """Pass an unreadable ALTER TABLE if the catalog proves that columns and key are unchanged
    and no word of it can change row values.
    """
    statement, table = context.statement, context.statement.tables[0]
    before, after = context.before(*table), context.catalog_after(*table)
    if before is None or after is None or statement.renames or _REWRITING.search(statement.sql):
        raise unreadable.error
    if _defined(before.schema) != _defined(after) or after.key_names != known.source.key:
        raise unreadable.error
    if set(target_columns(after)) != set(known.source.columns):
        raise unreadable.error
    if before.generated is None or not all(column.is_steady for column in before.generated):
        raise unreadable.error
    return context.decided(
        "it cannot be parsed; according to the server's catalog, columns and key are "
        "unchanged, but rows may have changed",
        [TableChange(table, known, inexact=True)],
    )


def _defined(schema: TableSchema) -> dict[str, tuple[object, ...]]:
    """What determines the values of each column."""
    return {
        c.name: (
            c.kind, c.unsigned and c.type.has_sign, c.charset, c.labels, c.precision, c.scale,
            c.fraction_digits,
            c.bits, c.pad_bytes, c.nullable and c.name not in schema.key_names,
        )
        for c in schema.columns
    }  # fmt: skip


def _index(context: StatementContext) -> Decision:
    statement, table = context.statement, context.statement.tables[0]
    if statement.index.upper() == "PRIMARY" and context.recorded(table) is not None:
        raise context.unsupported("the primary key of a captured table is dropped", table)
    return context.decided("indexes do not exist in the lake")


# -- confirmation ----------------------------------------------------------------------------------


def confirm(recorded: tuple[TargetColumn, ...], key: tuple[str, ...], schema: TableSchema) -> None:
    """Check that a table map agrees with its recorded target (K13), in any order of columns.
    Raises SchemaError: a type, the set of columns or the key differs.
    """
    actual = {column.name: column.delta_type for column in target_columns(schema)}
    expected = {column.name: column.delta_type for column in recorded}
    differences = [f"`{name}` is not in the table map" for name in expected if name not in actual]
    differences += [f"`{name}` is not in the lake" for name in actual if name not in expected]
    differences += [
        f"`{name}` is {expected[name]} in the lake and {actual[name]} in the table map"
        for name in expected
        if name in actual and actual[name] != expected[name]
    ]
    if key != schema.key_names and not differences:
        raise SchemaError(
            "the source's rows have another key: its primary key was changed without a statement "
            "in the log, or the unique index that stood in for one was dropped, replaced, or got a "
            "column that may be NULL",
            table=schema.full_name,
            expected=_described(expected, key),
            got=_described(actual, schema.key_names),
            next_step=RELOAD,
        )
    if differences:
        raise SchemaError(
            "the table map contradicts the recorded columns: " + "; ".join(differences),
            table=schema.full_name,
            expected=_described(expected, key),
            got=_described(actual, schema.key_names),
            next_step="a change of this table was missed (sql_log_bin=0, or a start in the "
            f"middle of its history): {RELOAD}",
        )


def _described(columns: dict[str, str], key: tuple[str, ...]) -> str:
    return (
        ", ".join(f"{name} {kind}" for name, kind in columns.items()) + f"; key ({', '.join(key)})"
    )


_NEUTRAL: Final = frozenset({_K.CREATE_INDEX, _K.DROP_INDEX, _K.MAINTENANCE, _K.SEQUENCE})
_NEVER: Final = re.compile(
    r"\b(FOREIGN|REFERENCES|CASCADE|PARTITION\w*|SUBPARTITION\w*|TABLESPACE|REPAIR|UNION)\b"
    r"|\b(ENGINE|TYPE)\s*=?\s*(?!\s|=|[\"'`]?InnoDB\b)",
    re.IGNORECASE,
)
_REWRITES: Final = re.compile(
    r"\b(DROP|MODIFY|CHANGE|CONVERT|RENAME|EXCHANGE|IMPORT|DISCARD|TRUNCATE|REORGANIZE|COALESCE|"
    r"REMOVE|AUTO_INCREMENT|IGNORE|PERIOD|VERSIONING)\b",
    re.IGNORECASE,
)
_ROW_LOGGED: Final = RECORDED.keys() | {ActionKind.ADD_COLUMN, ActionKind.ADD_PRIMARY_KEY}


def is_row_logged(decision: Decision, sql: str) -> bool:
    """Whether row events record every row change; `sql` is the statement's whole text."""
    kind = decision.statement.kind
    if decision.ignored:
        return True
    if _NEVER.search(sql):
        return False
    if kind in _NEUTRAL or decision.creates:
        return True
    kinds = {action.kind for action in decision.statement.actions}
    return kind is _K.ALTER_TABLE and kinds <= _ROW_LOGGED and not _REWRITES.search(sql)
