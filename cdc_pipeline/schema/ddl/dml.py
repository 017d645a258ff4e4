"""Tables that a logged data-changing statement may change.

Rules:
- One table too many is a stop that names it; one too few is a lost change. So all joined tables
  count, and if the text does not show them (CALL, SELECT of a function, IMPORT) the result is ():
  any table.
- A query writes nothing but by a stored function, which it or a view calls. A call is a name before
  "(": where a server has a function of its own of that name, unqualified and with no blank between,
  it is never a stored one (MariaDB Knowledge Base, "Function Name Resolution").
"""

from __future__ import annotations

from collections.abc import Callable
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
    {"SET", "WHERE", "ORDER", "LIMIT", "RETURNING", "FROM", "GROUP", "HAVING", "UNION"}
)
_NAMES: Final = frozenset({TokenKind.WORD, TokenKind.NAME, TokenKind.QUOTED})
_QUERIES: Final = ("SELECT", "WITH", "VALUES", "TABLE")
# Before "(": reserved words, and functions of the server itself.
_WORDS: Final = (
    "ALL AND AS BY DISTINCT EXISTS FROM IN JOIN NOT ON OR SELECT THEN USING VALUES WHERE"
)
_FUNCTIONS: Final = """
    ABS AVG CAST CEIL CHAR_LENGTH COALESCE CONCAT CONCAT_WS CONVERT COUNT CRC32 DATE DATE_ADD
    DATE_FORMAT DATE_SUB FLOOR GREATEST GROUP_CONCAT HEX IF IFNULL LEAST LEFT LENGTH LOWER MAX MD5
    MIN MOD NOW NULLIF RAND REPEAT REPLACE RIGHT ROUND SUBSTR SUBSTRING SUM TRIM UNHEX UPPER YEAR
"""
_RESERVED: Final = frozenset(_WORDS.split())
_BUILT_IN: Final = frozenset(_FUNCTIONS.split())


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
        tables = _references(tokens, default_database, ends=_ENDS_REFERENCES | {"USING"})
        return tables + _references(tokens, default_database) if tokens.take("USING") else tables
    # DELETE a, b.* FROM references: the names before FROM may be aliases, the references hold the
    # tables themselves.
    while not tokens.at_end() and not tokens.at("FROM"):
        tokens.next()
    return _references(tokens, default_database) if tokens.take("FROM") else ()


def _references(
    tokens: TokenReader, default_database: str, *, ends: frozenset[str] = _ENDS_REFERENCES
) -> tuple[TableName, ...]:
    """All tables in references, up to the next clause; subqueries only read."""
    tables: dict[TableName, None] = {}
    expected, depth = True, 0
    while not tokens.at_end():
        token = tokens.peek()
        if token.kind is TokenKind.BAD:
            return ()
        if expected and token.key == "(":
            if tokens.peek(1).key in _QUERIES:
                if not tokens.skip_group():
                    return ()
                expected = False
            else:
                depth += 1
                tokens.next()
        elif expected and token.key not in ("LATERAL", "{"):
            table = tokens.table(default_database)
            if table is None:
                return ()
            tables[table] = None
            expected = False
        elif token.key in ends or (token.key == ")" and not depth):
            break
        elif token.key == "(":
            if not tokens.skip_group():
                return ()
        else:
            depth -= token.key == ")"
            expected = token.key in _JOINS
            tokens.next()
            if token.key == "FOR":  # an index's: USE INDEX FOR ORDER BY (i)
                tokens.next()
    return tuple(tables)


def may_write_by_functions(
    tokens: TokenReader, default_database: str, is_base_table: Callable[[TableName], bool]
) -> bool:
    """Whether the query of a CREATE TABLE ... SELECT may call a stored function."""
    while not tokens.at_any("SELECT", "WITH", "VALUES"):
        if tokens.at_end():
            return True
        tokens.next()
    qualified = False
    while not tokens.at_end():
        token, following = tokens.next(), tokens.peek()
        if token.kind is TokenKind.BAD:
            return True
        if following.key == "(" and token.kind in _NAMES and token.key not in _RESERVED:
            if qualified or token.key not in _BUILT_IN or token.end != following.start:
                return True
        elif token.key == "FROM" and not tokens.at("DUAL"):
            here = tokens.index
            tables = _references(tokens, default_database)
            if not tables or not all(map(is_base_table, tables)):
                return True
            tokens.index = here
        qualified = token.key == "."
    return False
