"""Which captured tables a statement may have changed without row events (K29): the only judge.

Rules:
- A statement that may carry rows counts as a change of every captured table that it names, and of
  every other one unless something proves that it left it alone.
- Proofs are the databases that its event lists (MySQL, which counts those of triggers, views and
  functions), and the server's triggers, views, routines and foreign keys (`schema/programs.py`).
- Under ROW both servers log CREATE TABLE ... SELECT without the SELECT. One with a SELECT carries
  its rows; MySQL lets its query write nothing else. On MariaDB its text may prove that it calls no
  stored function.
- DDL fires no triggers, so a DDL that cannot be classified changes the tables or databases that it
  names. Anything else that cannot be classified may be anything.
- What people declare in `accept.statements` counts as proved: tables that have no triggers.
"""

from __future__ import annotations

from typing import Final

from cdc_pipeline.schema.ddl.dml import may_write_by_functions
from cdc_pipeline.schema.ddl.statement import StatementKind, TableName
from cdc_pipeline.schema.ddl.tokens import TokenReader
from cdc_pipeline.schema.evolution.statement_context import StatementContext
from cdc_pipeline.schema.programs import words

_K = StatementKind
_DDL_VERBS: Final = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")
# What these write is written by routines that they name.
_WRITES_NOTHING: Final = frozenset({"SELECT", "DO", "VALUES", "TABLE"})


def reached(context: StatementContext) -> tuple[TableName, ...]:
    """The captured tables whose rows the statement may have changed: first those it names."""
    statement = context.statement
    if statement.kind is _K.UNKNOWN:
        return _reached_by_unknown(context)
    if statement.kind is _K.CREATE_TABLE_SELECT:
        named = () if statement.temporary else _created(context)
        if not statement.is_mariadb:
            return named
    elif statement.kind is _K.DML:
        named = context.touched
    else:
        return ()
    return named + _through_programs(context, named)


def _created(context: StatementContext) -> tuple[TableName, ...]:
    """The table that CREATE TABLE ... SELECT fills; one that exists is left as it is."""
    table = context.touched
    known = context.recorded(table[0]) if table else None
    exists = context.statement.if_not_exists and known is not None and not known.source.gone
    return () if exists else table


def _reached_by_unknown(context: StatementContext) -> tuple[TableName, ...]:
    text = words(context.statement.sql)
    others = _listed(context)
    named = tuple(table for table in others if words(table[1]) <= text or words(table[0]) <= text)
    if context.statement.verb.startswith(_DDL_VERBS) and "select" not in text:
        return named
    return named + _through_programs(context, named)


def _listed(context: StatementContext) -> tuple[TableName, ...]:
    """Tables with rows in the lake, in the databases that the event lists."""
    listed = context.databases
    names = context.statement.modes.names
    compared = None if listed is None else {names.fold(name) for name in listed}
    return tuple(
        table
        for table in context.reachable()
        if context.is_captured(table) and (compared is None or table[0] in compared)
    )


def _through_programs(
    context: StatementContext, named: tuple[TableName, ...]
) -> tuple[TableName, ...]:
    statement = context.statement
    others = tuple(table for table in _listed(context) if table not in named)
    if not others or (
        statement.tables and all(context.accepted(*table) for table in statement.tables)
    ):
        return ()
    programs = context.programs()
    if programs is None:
        is_query = statement.kind is _K.CREATE_TABLE_SELECT
        return () if is_query and not _may_call(context) else others
    written = statement.tables if statement.tables else None
    if statement.kind is _K.CREATE_TABLE_SELECT or statement.verb in _WRITES_NOTHING:
        written = ()  # a new table has no triggers
    return programs.reached(
        others, sql=statement.sql, written=written, journal=context.journal, offset=context.offset
    )


def _may_call(context: StatementContext) -> bool:
    """Whether a query may call stored functions; what the schema history has is a base table."""
    statement = context.statement
    tokens = TokenReader(statement.sql, modes=statement.modes, is_mariadb=statement.is_mariadb)
    return may_write_by_functions(
        tokens, statement.default_database, lambda table: context.before(*table) is not None
    )
