"""What a statement of the binlog means for the targets: the decision for every DDL (K13, pitfalls 7 and 19).

Rules:
- Every statement ends in a decision with its reason: applied (a target is created or gets columns), recorded (no target
  changes), ignored (not captured), or an error that names the way out. Nothing falls through.
- A captured table without a target has nothing to lose: its DDL is recorded, and its first table map tells its columns.
- Applied is only what the text tells with certainty; the table's next table map must confirm it (`confirm`).
- A statement that cannot be classified may touch a captured table: it stops the run.
- BEGIN, COMMIT, ROLLBACK, savepoints and XA statements are ignored here: they change no table by themselves. Who
  applies rows looks at them by kind and name (`pipeline/controls.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import CdcError, SchemaError, UnsupportedEventError
from cdc_pipeline.schema.alterations import Alteration, read_alteration
from cdc_pipeline.schema.ddl import classify, first_word
from cdc_pipeline.schema.ddl_create import create_columns
from cdc_pipeline.schema.ddl_tokens import UNKNOWN_MODES, SqlModes
from cdc_pipeline.schema.scene import RELOAD, AddColumns, CreateTarget, Decision, KnownTable, Scene
from cdc_pipeline.schema.statement import Statement, StatementKind, TableName
from cdc_pipeline.schema.told_by_rows import is_told_by_rows
from cdc_pipeline.schema.types import TargetColumn, check_column_names, delta_type, target_columns

__all__ = [
    "AddColumns",
    "CreateTarget",
    "Decision",
    "KnownTable",
    "confirm",
    "decide",
    "is_isolated",
]

_K = StatementKind
_SESSION_KINDS: Final = frozenset(
    {_K.EMPTY, _K.SET, _K.BEGIN, _K.COMMIT, _K.ROLLBACK, _K.SAVEPOINT, _K.RELEASE_SAVEPOINT, _K.ROLLBACK_TO_SAVEPOINT,
     _K.XA_START, _K.XA_END, _K.XA_COMMIT, _K.XA_ROLLBACK}
)  # fmt: skip
# What each of them must name.
_NAMED: Final = {
    _K.ROLLBACK_TO_SAVEPOINT: "a savepoint",
    _K.SAVEPOINT: "a savepoint",
    _K.XA_COMMIT: "an xid such as X'6731',X'',1",
    _K.XA_ROLLBACK: "an xid such as X'6731',X'',1",
}
# Kinds that change no table's columns or rows, whatever they name.
_HARMLESS_KINDS: Final = frozenset(
    {_K.VIEW, _K.TRIGGER, _K.ROUTINE, _K.ACCOUNT, _K.STORAGE, _K.ADMIN, _K.CREATE_DATABASE, _K.ALTER_DATABASE}
)
_CREATES: Final = frozenset({_K.CREATE_TABLE, _K.CREATE_TABLE_LIKE, _K.CREATE_TABLE_SELECT})
_ISOLATED: Final = _CREATES | {
    _K.ALTER_TABLE, _K.DROP_TABLE, _K.RENAME_TABLE, _K.TRUNCATE_TABLE, _K.CREATE_INDEX, _K.DROP_INDEX, _K.DROP_DATABASE,
}  # fmt: skip
_NEVER_ISOLATED_WORDS: Final = frozenset(
    {
        "BEGIN",
        "COMMIT",
        "SAVEPOINT",
        "RELEASE",
        "INSERT",
        "UPDATE",
        "DELETE",
        "REPLACE",
        "XA",
        "GRANT",
        "REVOKE",
        "FLUSH",
    }
)


def decide(
    sql: str,
    default_database: str,
    *,
    captured: Callable[[str, str], bool],
    known: Callable[[str, str], KnownTable | None],
    targets_in: Callable[[str], Collection[str]] | None = None,
    is_mariadb: bool = False,
    modes: SqlModes = UNKNOWN_MODES,
    journal: str = "",
    offset: int = -1,
) -> Decision:
    """The decision for one statement of the binlog.

    Args:
        sql: the QUERY event's text.
        default_database: its database.
        captured: whether (database, table) is captured.
        known: the recorded target of (database, table), None while it has none.
        targets_in: names of the tables of a database that have a target; without it DROP DATABASE always stops.
        journal, offset: place of the event, for errors and the decision's record.

    Raises:
        UnsupportedDdlError: a DDL of a captured table that cannot be applied, or a text that cannot be classified.
        UnsupportedEventError: a change of rows as text, XA PREPARE as text, an XA statement whose xid cannot be read.
        SchemaError: a column name that Delta cannot hold.
    """
    scene = Scene(sql, default_database, captured, known, targets_in, is_mariadb, modes, journal, offset)
    statement = classify(sql, default_database, is_mariadb=is_mariadb, modes=modes)
    try:
        decision = _decide(scene, statement)
        return replace(decision, told_by_rows=is_told_by_rows(decision, sql))
    except CdcError as error:
        error.journal = error.journal or journal or None
        if error.offset is None and offset >= 0:
            error.offset = offset
        raise


def _decide(scene: Scene, statement: Statement) -> Decision:
    kind = statement.kind
    if kind is _K.XA_PREPARE or (kind in _NAMED and not statement.name):
        raise UnsupportedEventError(
            f"{statement.verb} stands in the log in a form that no supported server writes",
            expected=_NAMED.get(kind, "the event XA_PREPARE"),
            got=scene.shown,
            next_step="start the capture after this transaction",
        )
    if kind in _SESSION_KINDS:
        return scene.decided(statement, "ignored", "session and transaction control")
    if kind is _K.UNKNOWN:
        raise scene.unsupported(
            "a statement that cannot be classified may change a captured table",
            None,
            next_step="see what it does at the source; start the capture after it, and load the tables that it changed",
        )
    if kind is _K.DML:
        return _dml(scene, statement)
    if kind in _HARMLESS_KINDS:
        return scene.decided(statement, "ignored", f"{statement.verb} changes no table")
    if statement.temporary:
        return scene.decided(statement, "ignored", "a temporary table")
    if kind is _K.DROP_DATABASE:
        return _drop_database(scene, statement)
    touched = scene.touched(statement)
    if not touched:
        return scene.decided(statement, "ignored", "not a captured table")
    if kind in (_K.MAINTENANCE, _K.SEQUENCE):
        return scene.decided(statement, "recorded", f"{statement.verb} changes neither columns nor rows")
    if kind in _CREATES:
        return _create(scene, statement)
    if kind is _K.ALTER_TABLE:
        return _alter(scene, statement)
    if kind in (_K.CREATE_INDEX, _K.DROP_INDEX):
        return _index(scene, statement)
    return _removal(scene, statement)


def _dml(scene: Scene, statement: Statement) -> Decision:
    touched = scene.touched(statement)
    if statement.tables and not touched:
        return scene.decided(statement, "ignored", "rows of tables that are not captured")
    raise UnsupportedEventError(
        f"the journal holds {statement.verb} as a statement instead of rows",
        table=".".join(touched[0]) if touched else None,
        setting="binlog_format",
        expected="binlog_format=ROW in every session",
        got=scene.shown,
        next_step="SET GLOBAL binlog_format = 'ROW', end the sessions that are older, start the capture after this "
        "statement, and load the tables that it changed",
    )


# -- CREATE -----------------------------------------------------------------------------------------------------------


def _create(scene: Scene, statement: Statement) -> Decision:
    table = statement.tables[0]
    if scene.known(*table) is not None:
        if statement.if_not_exists:
            return scene.decided(statement, "recorded", "the target exists")
        raise scene.unsupported("the table is created anew, but its target exists with rows of the old one", table)
    from_map = "the target is created from its first table map"
    if statement.kind is _K.CREATE_TABLE_LIKE:
        return scene.decided(statement, "recorded", f"LIKE another table: {from_map}")
    if statement.kind is _K.CREATE_TABLE_SELECT:
        return scene.decided(statement, "recorded", f"columns from a query: {from_map}")
    created = create_columns(scene.sql, scene.default_database, is_mariadb=scene.is_mariadb, modes=scene.modes)
    if created is None:
        return scene.decided(statement, "recorded", f"its columns cannot be read with certainty: {from_map}")
    check_column_names(".".join(table), (column.name for column in created.columns))
    if not created.primary_key:
        return scene.decided(statement, "recorded", f"no primary key in its text: {from_map}")
    columns = tuple(TargetColumn(name=c.name, delta_type=delta_type(c.column)) for c in created.columns)
    target = CreateTarget(table, columns, created.primary_key, may_exist=statement.if_not_exists)
    decision = scene.decided(statement, "applied", f"creates the target with {len(columns)} columns")
    return replace(decision, creates=(target,))


# -- ALTER ------------------------------------------------------------------------------------------------------------


def _alter(scene: Scene, statement: Statement) -> Decision:
    table = statement.tables[0]
    known = scene.known(*table) if scene.captured(*table) else None
    alteration = read_alteration(scene, statement, known)
    if known is None:
        others = [name for name in scene.touched(statement) if name != table]
        if others:
            raise scene.unsupported("rows come into or go out of a captured table without row events", others[0])
        return scene.decided(statement, "recorded", "no target yet: its first table map tells its columns")
    return _alteration_decided(scene, statement, table, alteration)


def _alteration_decided(scene: Scene, statement: Statement, table: TableName, alteration: Alteration) -> Decision:
    if not alteration.added:
        return scene.decided(statement, "recorded", alteration.reason)
    names = ", ".join(column.name for column in alteration.added)
    decision = scene.decided(statement, "applied", "; ".join(filter(None, (f"adds {names}", alteration.reason))))
    return replace(decision, add_columns=(AddColumns(table, alteration.added),))


def _index(scene: Scene, statement: Statement) -> Decision:
    table = statement.tables[0]
    if statement.index.upper() == "PRIMARY" and scene.known(*table) is not None:
        raise scene.unsupported("the primary key of a captured table is dropped", table)
    return scene.decided(statement, "recorded", "indexes do not exist in the lake")


# -- what removes rows ------------------------------------------------------------------------------------------------


def _removal(scene: Scene, statement: Statement) -> Decision:
    """DROP TABLE, TRUNCATE and RENAME."""
    touched = scene.touched(statement)
    if statement.kind is _K.RENAME_TABLE:
        new_names = {new for _, new in statement.renames}
        arriving = [name for name in touched if name in new_names]
        if arriving:
            raise scene.unsupported(
                "a renamed table takes a captured name, with rows that were not captured", arriving[0]
            )
    with_target = [name for name in touched if scene.known(*name) is not None]
    if with_target:
        raise scene.unsupported(f"{statement.verb} of a captured table cannot be applied yet", with_target[0])
    return scene.decided(statement, "recorded", "no target yet: nothing to change")


def _drop_database(scene: Scene, statement: Statement) -> Decision:
    if scene.targets_in is None:
        raise scene.unsupported(f"DROP DATABASE `{statement.database}` may remove captured tables", None)
    tables = sorted(scene.targets_in(statement.database))
    if tables:
        raise scene.unsupported(
            f"DROP DATABASE removes {len(tables)} captured tables, which cannot be applied yet",
            (statement.database, tables[0]),
        )
    return scene.decided(statement, "ignored", "no captured table has a target in this database")


# -- isolation and confirmation ---------------------------------------------------------------------------------------


def is_isolated(
    sql: str,
    default_database: str,
    captured: Callable[[str, str], bool],
    *,
    is_mariadb: bool = False,
    modes: SqlModes = UNKNOWN_MODES,
) -> bool:
    """True where the statement must be alone in its batch (SPEC S7, K9): DDL of a captured table, and the unknown."""
    if first_word(sql) in _NEVER_ISOLATED_WORDS:
        return False
    statement = classify(sql, default_database, is_mariadb=is_mariadb, modes=modes)
    if statement.kind in (_K.UNKNOWN, _K.DROP_DATABASE):
        return True
    if statement.kind not in _ISOLATED or statement.temporary:
        return False
    return any(captured(*table) for table in statement.tables)


def confirm(recorded: tuple[TargetColumn, ...], key: tuple[str, ...], schema: TableSchema) -> None:
    """Check that a table map says what is recorded of its target (K13); the order of columns may differ.

    Raises:
        SchemaError: another type, a column too many or too few, or another key; with both versions.
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
    if key != schema.key_names:
        differences.append(f"the key is ({', '.join(key)}) in the lake and ({', '.join(schema.key_names)}) in the map")
    if differences:
        raise SchemaError(
            "the table map contradicts the recorded columns: " + "; ".join(differences),
            table=schema.full_name,
            expected=_described(expected, key),
            got=_described(actual, schema.key_names),
            next_step=f"a change of this table was not seen (sql_log_bin=0, or a start inside its history): {RELOAD}",
        )


def _described(columns: dict[str, str], key: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items()) + f"; key ({', '.join(key)})"
