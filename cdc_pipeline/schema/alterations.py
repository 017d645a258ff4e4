"""What an ALTER TABLE does to a target: the columns that it adds, or why it cannot be applied (K13).

Rules:
- ADD COLUMN is applied where the value of existing rows is certain; indexes, constraints and options are recorded; all
  that removes, renames or rewrites rows or columns is refused by name.
- One action that is refused refuses the statement: it is one change at the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdc_pipeline.errors import SchemaError
from cdc_pipeline.schema.backfill import backfill
from cdc_pipeline.schema.ddl_alter import Action, ActionKind, alter_actions
from cdc_pipeline.schema.decisions import AddedColumn
from cdc_pipeline.schema.scene import KnownTable, Scene
from cdc_pipeline.schema.statement import Statement, TableName
from cdc_pipeline.schema.types import check_column_names, delta_type

_A = ActionKind

_RECORDED: Final[dict[ActionKind, str]] = {
    _A.INDEX: "indexes",
    _A.UNIQUE_INDEX: "indexes",
    _A.CONSTRAINT: "constraints",
    _A.OPTION: "options",
    _A.ENGINE: "options",
    _A.ORDER_BY: "row order",
    _A.COLUMN_DEFAULT: "defaults of rows to come",
    _A.COLUMN_VISIBILITY: "visibility of columns",
    _A.PARTITION: "partitions, with every row kept",
}
_REFUSED: Final[dict[ActionKind, str]] = {
    _A.DROP_COLUMN: "a column of a captured table is dropped",
    _A.MODIFY_COLUMN: "a column of a captured table is modified",
    _A.CHANGE_COLUMN: "a column of a captured table is changed",
    _A.RENAME_COLUMN: "a column of a captured table is renamed",
    _A.ADD_PRIMARY_KEY: "a captured table gets another primary key",
    _A.DROP_PRIMARY_KEY: "the primary key of a captured table is dropped",
    _A.RENAME_TABLE: "a captured table is renamed",
    _A.CONVERT_CHARSET: "the values of a captured table are converted to another charset",
    _A.PARTITION_ROWS: "partitions of a captured table come or go with their rows, without row events",
    _A.TABLESPACE: "all rows of a captured table come or go with its tablespace, without row events",
    _A.VERSIONING: "system versioning adds or removes columns of a captured table",
    _A.UNKNOWN: "an ALTER TABLE of a captured table cannot be read with certainty",
}
_ENGINES_WITHOUT_ROWS: Final = frozenset({"BLACKHOLE", "MEMORY", "HEAP"})


@dataclass(frozen=True, slots=True)
class Alteration:
    """Columns to add, and what else the statement did that the lake does not have."""

    added: tuple[AddedColumn, ...] = ()
    reason: str = ""


def read_alteration(scene: Scene, statement: Statement, known: KnownTable | None) -> Alteration:
    """What an ALTER TABLE does to its target; nothing where it has none.

    Raises:
        UnsupportedDdlError: an action that cannot be applied.
        SchemaError: a column that exists already, or whose name Delta cannot hold.
    """
    if known is None:
        return Alteration()
    table = statement.tables[0]
    actions = alter_actions(scene.sql, scene.default_database, is_mariadb=scene.is_mariadb, modes=scene.modes)
    present = {column.name.lower() for column in known.columns}
    added: list[AddedColumn] = []
    notes: dict[str, None] = {}
    for action in actions:
        if action.kind is _A.ADD_COLUMN:
            column = _added(scene, table, action, present)
            if column is None:
                notes[f"column {action.name} exists"] = None
            else:
                added.append(column)
                present.add(column.name.lower())
            continue
        _check_recorded(scene, statement, action)
        notes[f"{_RECORDED[action.kind]} do not exist in the lake"] = None
    names = [column.name for column in known.columns] + [column.name for column in added]
    check_column_names(".".join(table), names)
    return Alteration(tuple(added), "; ".join(notes) or ("" if added else "changes nothing"))


def _check_recorded(scene: Scene, statement: Statement, action: Action) -> None:
    table = statement.tables[0]
    if action.kind in _REFUSED:
        raise scene.unsupported(f"{_REFUSED[action.kind]}: {_short(action.text)}", table)
    if action.kind is _A.ENGINE and action.name.upper() in _ENGINES_WITHOUT_ROWS:
        raise scene.unsupported(f"engine {action.name} loses the rows of a captured table without row events", table)
    if statement.ignore and action.kind is _A.UNIQUE_INDEX:
        raise scene.unsupported("ALTER IGNORE drops rows that the unique index refuses, without row events", table)


def _added(scene: Scene, table: TableName, action: Action, present: set[str]) -> AddedColumn | None:
    definition = action.column
    assert definition is not None
    if definition.name.lower() in present:
        if action.if_exists:
            return None
        raise SchemaError(
            f"column `{definition.name}` is added, but the target has it",
            table=".".join(table),
            got=scene.shown,
            next_step="the lake is ahead of the journal: check the start position, or load the table anew",
        )
    if definition.primary_key:
        raise scene.unsupported(f"{_REFUSED[_A.ADD_PRIMARY_KEY]}: {_short(action.text)}", table)
    value = backfill(definition, modes=scene.modes)
    if value.refused:
        raise scene.unsupported(
            f"column `{definition.name}` gives existing rows values that the journal does not hold "
            f"({value.refused}): the table needs a re-load",
            table,
        )
    return AddedColumn(name=definition.name, delta_type=delta_type(definition.column), backfill_sql=value.sql)


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + " ..."
