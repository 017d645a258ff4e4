"""A statement of the log as errors, records, cuts, notes and Dagster may hold it: without any of
its literals (K26).

Rules:
- A statement's text leaves the process only through here. Only the binlog inspector prints texts
  unchanged, to the person at the terminal.
- Of DDL of tables the words, names and types stay; strings, numbers outside of a type's length, and
  anything in double quotes (a name or a string, depending on the session) become `?`; comments are
  removed.
- Of all other statements (rows as text, accounts, servers, what cannot be classified) only the
  verb, the tables and the length stay. The same holds for a truncated text: what looks like a name
  there may be inside a string.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cdc_pipeline.schema.ddl.alter import ActionKind
from cdc_pipeline.schema.ddl.options import table_comment
from cdc_pipeline.schema.ddl.statement import TABLE_DDL, Statement, StatementKind
from cdc_pipeline.schema.ddl.tokens import (
    UNKNOWN_MODES,
    SqlModes,
    Token,
    TokenKind,
    respelled,
    tokenize,
)
from cdc_pipeline.schema.ddl.types import sized_names
from cdc_pipeline.text.table_names import table_name
from cdc_pipeline.text.wording import listed

_TEXT_MAX_CHARS: Final = 500
_K = StatementKind
_WITH_TEXT: Final = TABLE_DDL | {_K.CREATE_DATABASE, _K.ALTER_DATABASE}
# Functions after which numbers in parentheses are sizes.
_SIZED_WORDS: Final = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})
# After these a string is a name.
_NAMED: Final = frozenset({"CHARSET", "SET", "COLLATE", "ENGINE"})
_OPAQUE: Final = frozenset({TokenKind.STRING, TokenKind.QUOTED, TokenKind.HEX, TokenKind.BITS})


def published(statement: Statement) -> str:
    """What may be shown and kept of it."""
    sql = statement.sql
    if statement.kind in _WITH_TEXT:
        text = without_literals(sql, modes=statement.modes, is_mariadb=statement.is_mariadb)
        if text is not None:
            return text
    tables = listed([table_name(*table) for table in statement.tables], most=5)
    shown = " ".join(part for part in (statement.verb or "a statement", tables) if part)
    return f"{shown} ({len(sql.encode())} bytes)"


def without_literals(
    sql: str,
    *,
    modes: SqlModes = UNKNOWN_MODES,
    is_mariadb: bool = False,
    max_chars: int = _TEXT_MAX_CHARS,
) -> str | None:
    """With `?` for each literal, shortened; None if it cannot be read with certainty."""
    sizes = _Sizes()
    breaks_off = False

    def spelling(token: Token) -> str | None:
        nonlocal breaks_off
        breaks_off |= token.kind is TokenKind.BAD
        is_literal = token.kind in _OPAQUE or sql.startswith('"', token.start)
        is_literal |= token.kind is TokenKind.NUMBER and not sizes.holds(token)
        sizes.see(token)
        return "?" if is_literal else None

    parts: list[str] = []
    length = 0
    for part in respelled(sql, tokenize(sql, modes=modes, is_mariadb=is_mariadb), spelling):
        if breaks_off:
            return None
        parts.append(part)
        length += len(part)
        if length > max_chars:
            return "".join(parts)[:max_chars] + " ..."
    return "".join(parts)


class _Sizes:
    """Whether a number is the length or precision of a type: `VARCHAR(100)`, `DECIMAL(10,2)`."""

    def __init__(self) -> None:
        self._last = ""
        self._inside = False

    def holds(self, token: Token) -> bool:
        return self._inside and token.text.isdigit()

    def see(self, token: Token) -> None:
        if token.key == "(":
            self._inside = self._last in _SIZED_WORDS or self._last in sized_names()
        elif token.kind is not TokenKind.NUMBER and token.key != ",":
            self._inside = False
        self._last = token.key


def needed_later(statement: Statement, masked: Collection[str]) -> str:
    """An ALTER TABLE as it is kept until it is executed: of its strings with defaults, labels and
    comments alone.

    If it names a `masked` column, its defaults go as well; it cannot be executed then, but
    neither could it be with them: a default of a masked column is never filled in.
    """
    hidden = {name.lower() for name in masked}
    tokens = list(tokenize(statement.sql, modes=statement.modes, is_mariadb=statement.is_mariadb))
    if any(token.kind is TokenKind.BAD for token in tokens):
        return published(statement)
    keeps_defaults = not any(
        token.text.lower() in hidden for token in tokens if token.kind not in _OPAQUE
    )
    engines = [act.name for act in statement.actions if act.kind is ActionKind.ENGINE]
    engine = engines[-1] if engines else ""
    last, before, in_labels, depth = "", "", False, 0

    def spelling(token: Token) -> str | None:
        nonlocal last, before, in_labels, depth
        if token.key == "(":
            in_labels = last in ("ENUM", "SET")
            depth += 1
        elif token.key == ")":
            in_labels = False
            depth -= 1
        is_default = last == "DEFAULT"
        word = before if last == "=" else last
        is_option = last != "=" or not depth  # in parentheses it is a column's name
        is_kept = is_option and word in _NAMED
        if is_option and word == "COMMENT":
            is_kept = bool(table_comment(token.text, engine))
        # An introducer (`_utf8mb4'...'`), a sign or a parenthesis belongs to the default after it.
        if not (is_default and (token.key.startswith("_") or token.key in ("-", "+", "("))):
            before, last = last, token.key
        if is_default and not keeps_defaults and token.kind in (*_OPAQUE, TokenKind.NUMBER):
            return "?"
        return "''" if token.kind in _OPAQUE and not (in_labels or is_default or is_kept) else None

    return "".join(respelled(statement.sql, tokens, spelling))
