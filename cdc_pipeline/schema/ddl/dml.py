"""Tables that a logged data-changing statement may change.

Rules:
- One table too many is a stop that names it; one too few is a lost change. So all joined tables
  count, and if the text does not show them (CALL, SELECT of a function, IMPORT) the result is ():
  any table.
"""

from __future__ import annotations

from typing import Final

from cdc_pipeline.schema.ddl.statement import TableName
from cdc_pipeline.schema.ddl.tokens import TokenKind, TokenReader

_PRIORITIES: Final = (
    "LOW_PRIORITY",
    "DELAYED",
    "HIGH_PRIORITY",
    "IGNORE",
    "QUICK",
    "CONCURRENT",
    "LOCAL",
    "HISTORY",
)
_JOINS: Final = frozenset({",", "JOIN", "STRAIGHT_JOIN"})
_ENDS_REFERENCES: Final = frozenset(
    {"SET", "WHERE", "ORDER", "LIMIT", "RETURNING", "USING", "FROM"}
)


def dml_tables(tokens: TokenReader, default_database: str) -> tuple[TableName, ...]:
    """() if the text does not show all."""
    if tokens.take("WITH") and not _skip_common_tables(tokens):
        return ()
    verb = tokens.next().key
    while tokens.take_any(*_PRIORITIES):
        continue
    if verb in ("INSERT", "REPLACE"):
        tokens.take("INTO")
        table = tokens.table(default_database)
        return () if table is None else (table,)
    if verb == "LOAD":
        return _load_table(tokens, default_database)
    if verb == "UPDATE":
        return _references(tokens, default_database)
    if verb == "DELETE":
        return _delete_tables(tokens, default_database)
    return ()


def _skip_common_tables(tokens: TokenReader) -> bool:
    tokens.take("RECURSIVE")
    while True:
        if tokens.name() is None:
            return False
        tokens.skip_group()
        if not (tokens.take("AS") and tokens.skip_group()):
            return False
        if not tokens.take(","):
            return True


def _load_table(tokens: TokenReader, default_database: str) -> tuple[TableName, ...]:
    while not tokens.at_end():
        if tokens.take("INTO", "TABLE"):
            table = tokens.table(default_database)
            return () if table is None else (table,)
        tokens.next()
    return ()


def _delete_tables(tokens: TokenReader, default_database: str) -> tuple[TableName, ...]:
    if tokens.take("FROM"):
        tables = _references(tokens, default_database)
        return tables + _references(tokens, default_database) if tokens.take("USING") else tables
    # DELETE a, b.* FROM references: the names before FROM may be aliases, the references hold the
    # tables themselves.
    while not tokens.at_end() and not tokens.at("FROM"):
        tokens.next()
    return _references(tokens, default_database) if tokens.take("FROM") else ()


def _references(tokens: TokenReader, default_database: str) -> tuple[TableName, ...]:
    """All tables in references, up to the next clause; subqueries only read."""
    tables: dict[TableName, None] = {}
    expected = True
    while not tokens.at_end():
        token = tokens.peek()
        if token.kind is TokenKind.BAD:
            return ()
        if expected and token.key == "(":
            if tokens.peek(1).key in ("SELECT", "WITH", "VALUES", "TABLE"):
                if not tokens.skip_group():
                    return ()
                expected = False
            else:
                tokens.next()
        elif expected and token.key not in ("LATERAL", "{"):
            table = tokens.table(default_database)
            if table is None:
                return ()
            tables[table] = None
            expected = False
        elif token.key in _ENDS_REFERENCES:
            break
        elif token.key == "(":
            if not tokens.skip_group():
                return ()
        else:
            expected = token.key in _JOINS
            tokens.next()
    return tuple(tables)
