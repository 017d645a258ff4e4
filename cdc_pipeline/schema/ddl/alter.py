"""The actions of ALTER TABLE.

Rules:
- Every action of the list is named; one that cannot be read to its end is UNKNOWN, with its text.
- Actions are classified by their effect on rows and columns of a Delta table, not by the server's
  syntax.

Source: MySQL 9.7 manual, 15.1.11 (ALTER TABLE); MariaDB 10.11, ALTER TABLE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from cdc_pipeline.schema.ddl.columns import ColumnDefinition, column_definition, skip_references
from cdc_pipeline.schema.ddl.options import (
    NamedCharset,
    take_charset,
    take_key_options,
    take_option,
)
from cdc_pipeline.schema.ddl.tokens import TokenReader, Uncertain, certain


class ActionKind(StrEnum):
    ADD_COLUMN = "add_column"
    DROP_COLUMN = "drop_column"
    MODIFY_COLUMN = "modify_column"
    CHANGE_COLUMN = "change_column"
    RENAME_COLUMN = "rename_column"
    COLUMN_DEFAULT = "column_default"  # for rows to come
    COLUMN_VISIBILITY = "column_visibility"
    INDEX = "index"  # add, drop, rename or alter an index
    UNIQUE_INDEX = "unique_index"  # add one
    CONSTRAINT = "constraint"  # check and foreign keys
    ADD_PRIMARY_KEY = "add_primary_key"
    DROP_PRIMARY_KEY = "drop_primary_key"
    RENAME_TABLE = "rename_table"
    CONVERT_CHARSET = "convert_charset"
    OPTION = "option"  # comment, engine, row format, algorithm, lock ...
    ENGINE = "engine"  # `name` is the engine
    ORDER_BY = "order_by"
    PARTITION = "partition"  # keeps every row
    PARTITION_ROWS = "partition_rows"  # drops, truncates, exchanges, converts, discards or imports
    TABLESPACE = "tablespace"  # discards or imports all rows
    VERSIONING = "versioning"  # MariaDB's system versioning and periods
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """`parts` are columns, each with how many of its characters count; 0 for all."""

    parts: tuple[tuple[str, int], ...]
    is_hash: bool  # USING HASH


@dataclass(frozen=True, slots=True)
class Action:
    """One action of ALTER TABLE.

    Attributes:
        name: the column, index, option or engine concerned; "" if none.
        new_name: of RENAME COLUMN and CHANGE.
        column: the definition of ADD COLUMN, MODIFY and CHANGE.
        if_exists: IF EXISTS or IF NOT EXISTS is written.
        key: columns of a key or index that is added; () if an expression is among its parts.
        unique: of a unique index.
        charset: of CONVERT TO, and of an option that is one.
        value: of any other option.
        visible: of a column.
        table: the new name of RENAME, or the table that a partition is exchanged with, converted
            to or made of; its database is "" if none is written.
        text: as it is written.
    """

    kind: ActionKind
    name: str = ""
    new_name: str = ""
    column: ColumnDefinition | None = None
    if_exists: bool = False
    key: tuple[str, ...] = ()
    unique: UniqueKey | None = None
    charset: NamedCharset | None = None
    value: str = ""
    visible: bool = True
    table: tuple[str, str] | None = None
    text: str = ""


_A = ActionKind
_PARTITION_VERBS: Final = frozenset(
    {"COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"}
)
_INDEX_WORDS: Final = frozenset({"INDEX", "KEY", "FULLTEXT", "SPATIAL"})


def alter_actions(tokens: TokenReader) -> tuple[Action, ...]:
    """In order; the reader is after the table's name."""
    actions: list[Action] = []
    while not tokens.at_end():
        if not actions and tokens.at(","):
            return (_unknown(tokens),)
        actions.extend(_action(tokens))
        if tokens.take(","):
            if tokens.at_end():
                actions.append(_unknown(tokens))
        elif not tokens.at_end() and not _may_follow_without_comma(tokens, actions[-1]):
            actions.append(_unknown(tokens))
    if actions and tokens.modes.unknown_bits:
        uncertain = Action(_A.UNKNOWN, text=actions[0].text)
        return (uncertain, *(action for action in actions if action.table is not None))
    return tuple(actions)


# -- one action ------------------------------------------------------------------------------------


def _with_text(tokens: TokenReader, read: Callable[[TokenReader], Action]) -> Action:
    start = tokens.peek().start
    action = read(tokens)
    return replace(action, text=tokens.sql[start : tokens.peek().start].strip().rstrip(",").strip())


def _unknown(tokens: TokenReader) -> Action:
    """Pass over everything up to the next comma, or to the end of a truncated text."""

    def read(tokens: TokenReader) -> Action:
        return Action(_A.UNKNOWN) if tokens.skip_to_comma() else _all(tokens, _A.UNKNOWN)

    return _with_text(tokens, read)


def _may_follow_without_comma(tokens: TokenReader, last: Action) -> bool:
    if tokens.at_any("PARTITION", "REMOVE"):
        return True
    here = tokens.index
    is_option = _option(tokens) is not None
    tokens.index = here
    return is_option and last.kind in (_A.OPTION, _A.ENGINE)


def _action(tokens: TokenReader) -> list[Action]:
    here = tokens.index
    try:
        if tokens.at("ADD"):
            return _add(tokens)
        return [_with_text(tokens, _READERS.get(tokens.peek().key, _other))]
    except Uncertain:
        tokens.index = here
        return [_unknown(tokens)]


def _other(tokens: TokenReader) -> Action:
    if tokens.at("ORDER", "BY"):
        return _all(tokens, _A.ORDER_BY)
    return certain(_partition(tokens) or _option(tokens))


def _all(tokens: TokenReader, kind: ActionKind) -> Action:
    """To the end: actions whose lists contain commas (partition names, columns to order by)."""
    while not tokens.at_end():
        tokens.next()
    return Action(kind)


def _rest(tokens: TokenReader, kind: ActionKind, name: str = "") -> Action:
    certain(tokens.skip_to_comma())
    return Action(kind, name)


def at_key_part(tokens: TokenReader) -> bool:
    """Whether an index, a key or a constraint is defined, and not a column."""
    if tokens.peek().key in _INDEX_WORDS or tokens.at_any(
        "PRIMARY", "UNIQUE", "FOREIGN", "CONSTRAINT", "CHECK"
    ):
        return True
    if tokens.at("PERIOD", "FOR"):
        return True
    return tokens.at("VECTOR", "INDEX") or tokens.at("VECTOR", "KEY") or tokens.at("VECTOR", "(")


def added_key(tokens: TokenReader) -> Action:
    """Pass over an index, key or constraint. Raises Uncertain: it is not read to its end."""
    first = tokens.index
    kind, name = _A.CONSTRAINT, ""
    key: tuple[str, ...] = ()
    parts: tuple[tuple[str, int], ...] = ()
    if tokens.take("PERIOD", "FOR"):
        certain(tokens.name())
        certain(tokens.skip_group())
        return Action(_A.VERSIONING)
    if tokens.take("CONSTRAINT") and not tokens.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        tokens.take("IF", "NOT", "EXISTS")
        tokens.name()
    if tokens.take("CHECK"):
        known = tokens.skip_group()
    elif tokens.take("FOREIGN", "KEY"):
        known = _foreign_key(tokens)
    else:
        if tokens.take("PRIMARY", "KEY"):
            kind = _A.ADD_PRIMARY_KEY
        elif tokens.take("UNIQUE"):
            kind = _A.UNIQUE_INDEX
        else:
            kind = _A.INDEX
            tokens.take_any("FULLTEXT", "SPATIAL", "VECTOR")
        tokens.take_any("INDEX", "KEY")
        name = _key_name(tokens)
        parts, is_whole = _key_parts(tokens)
        key = tuple(column for column, _ in parts) if is_whole else ()
        known = tokens.skip_group() and (bool(key) or kind is not _A.ADD_PRIMARY_KEY)
    certain(known and take_key_options(tokens))
    unique = UniqueKey(parts, _is_hash(tokens, first)) if kind is _A.UNIQUE_INDEX else None
    return Action(kind, name, key=key, unique=unique)


def unique_key(tokens: TokenReader, first: int) -> UniqueKey:
    """Of CREATE UNIQUE INDEX, from its token `first` to the end; the reader is at its columns."""
    parts, _ = _key_parts(tokens)
    while not tokens.at_end():
        tokens.next()
    return UniqueKey(parts, _is_hash(tokens, first))


def _is_hash(tokens: TokenReader, first: int) -> bool:
    words = [token.key for token in tokens.read[first : tokens.index]]
    return any(word == "HASH" and before in ("USING", "TYPE") for before, word in pairwise(words))


def _key_name(tokens: TokenReader) -> str:
    tokens.take("IF", "NOT", "EXISTS")
    name = ""
    if not tokens.at("(") and not tokens.at_any("USING", "TYPE"):
        name = tokens.name() or ""
    if tokens.take_any("USING", "TYPE"):
        tokens.next()
    return name


def _key_parts(tokens: TokenReader) -> tuple[tuple[tuple[str, int], ...], bool]:
    """Of ``(a, b(10) DESC)``, without passing over it; whether all of its parts are columns."""
    here = tokens.index
    parts: list[tuple[str, int]] = []
    tokens.next()
    while (name := tokens.name()) is not None:
        prefix = tokens.peek(1).text if tokens.at("(") else ""
        parts.append((name, int(prefix) if prefix.isdecimal() else 0))
        tokens.skip_group()
        tokens.take_any("ASC", "DESC")
        if not tokens.take(","):
            break
    is_whole = tokens.at(")")
    tokens.index = here
    return tuple(parts), is_whole


def _foreign_key(tokens: TokenReader) -> bool:
    tokens.take("IF", "NOT", "EXISTS")
    if not tokens.at("("):
        tokens.name()
    return tokens.skip_group() and skip_references(tokens)


def _add(tokens: TokenReader) -> list[Action]:
    start = tokens.next().start

    def one(read: Callable[[TokenReader], Action]) -> list[Action]:
        action = _with_text(tokens, read)
        return [replace(action, text=f"{tokens.sql[start:at]}{action.text}")]

    at = tokens.peek().start
    if tokens.at("SYSTEM", "VERSIONING") or tokens.at("PERIOD", "FOR"):
        return one(lambda tokens: _rest(tokens, _A.VERSIONING))
    if tokens.at("PARTITION"):
        return one(lambda tokens: _rest(tokens, _A.PARTITION))
    if at_key_part(tokens):
        return one(added_key)
    tokens.take("COLUMN")
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")

    def added_column(tokens: TokenReader) -> Action:
        column = column_definition(tokens)
        return Action(_A.ADD_COLUMN, column.name, column=column, if_exists=if_not_exists)

    if not tokens.take("("):
        at = tokens.peek().start
        return one(added_column)
    actions: list[Action] = []
    while not actions or not tokens.take(")"):
        certain(not actions or tokens.take(","))
        read = added_key if at_key_part(tokens) else added_column
        actions.append(_with_text(tokens, read))
    return actions


def _drop(tokens: TokenReader) -> Action:
    tokens.next()
    if tokens.take("PRIMARY", "KEY"):
        return _rest(tokens, _A.DROP_PRIMARY_KEY)
    if tokens.at("SYSTEM", "VERSIONING") or tokens.at("PERIOD", "FOR"):
        return _rest(tokens, _A.VERSIONING)
    if tokens.at("PARTITION"):
        return _all(tokens, _A.PARTITION_ROWS)
    if word := tokens.take_any("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"):
        if word == "FOREIGN":
            tokens.take("KEY")
        if_exists = tokens.take("IF", "EXISTS")
        name = certain(tokens.name())
        kind = _A.INDEX if word in ("INDEX", "KEY") else _A.CONSTRAINT
        if word != "FOREIGN" and name.upper() == "PRIMARY":
            kind = _A.DROP_PRIMARY_KEY
        return Action(kind, name, if_exists=if_exists)
    tokens.take("COLUMN")
    if_exists = tokens.take("IF", "EXISTS")
    name = certain(tokens.column())
    tokens.take_any("RESTRICT", "CASCADE")
    return Action(_A.DROP_COLUMN, name, if_exists=if_exists)


def _alter(tokens: TokenReader) -> Action:
    """ALTER [COLUMN] c SET | DROP DEFAULT, SET VISIBLE; ALTER INDEX i VISIBLE; ALTER CHECK c ..."""
    tokens.next()
    if tokens.take_any("INDEX", "KEY"):
        return _rest(tokens, _A.INDEX)
    if tokens.take_any("CHECK", "CONSTRAINT"):
        return _rest(tokens, _A.CONSTRAINT)
    tokens.take("COLUMN")
    if_exists = tokens.take("IF", "EXISTS")
    name = certain(tokens.column())
    visible = tokens.take("SET", "VISIBLE")
    if visible or tokens.take("SET", "INVISIBLE"):
        return Action(_A.COLUMN_VISIBILITY, name, if_exists=if_exists, visible=visible)
    certain(tokens.at("SET", "DEFAULT") or tokens.at("DROP", "DEFAULT"))
    return _rest(tokens, _A.COLUMN_DEFAULT, name)


def _modify(tokens: TokenReader) -> Action:
    kind = _A.MODIFY_COLUMN if tokens.next().key == "MODIFY" else _A.CHANGE_COLUMN
    tokens.take("COLUMN")
    if_exists = tokens.take("IF", "EXISTS")
    old = certain(tokens.column()) if kind is _A.CHANGE_COLUMN else ""
    column = column_definition(tokens)
    return Action(kind, old or column.name, column.name, column, if_exists)


def _convert(tokens: TokenReader) -> Action:
    """``CONVERT TO CHARACTER SET name [COLLATE name]``, or MariaDB's of partitions."""
    tokens.next()
    if tokens.at("TABLE"):
        return _with_table(tokens, "TABLE")
    if tokens.at("PARTITION"):
        return _with_table(tokens, "TO", "TABLE")
    certain(tokens.take("TO"))
    charset = certain(take_charset(tokens)).then(take_charset(tokens) or NamedCharset())
    return Action(_A.CONVERT_CHARSET, charset=charset)


def _with_table(tokens: TokenReader, *words: str) -> Action:
    """Of a partition; `words` stand before the table."""
    while not tokens.at_end() and not tokens.at(*words):
        tokens.next()
    table = tokens.table("") if tokens.take(*words) else None
    return replace(_rest(tokens, _A.PARTITION_ROWS), table=table)


def _rename(tokens: TokenReader) -> Action:
    tokens.next()
    if tokens.take_any("INDEX", "KEY"):
        return _rest(tokens, _A.INDEX)
    if tokens.take("COLUMN"):
        if_exists = tokens.take("IF", "EXISTS")
        old = certain(tokens.name())
        certain(tokens.take("TO"))
        return Action(_A.RENAME_COLUMN, old, certain(tokens.name()), if_exists=if_exists)
    tokens.take_any("TO", "AS", "=")
    return Action(_A.RENAME_TABLE, table=certain(tokens.table("")))


def _partition(tokens: TokenReader) -> Action | None:
    key, follows = tokens.peek().key, tokens.peek(1).key
    if key in ("DISCARD", "IMPORT") and follows == "TABLESPACE":
        return _all(tokens, _A.TABLESPACE)
    if key == "PARTITION" and follows == "BY":
        return _all(tokens, _A.PARTITION)
    if follows == "PARTITION" and key == "EXCHANGE":
        return _with_table(tokens, "WITH", "TABLE")
    if follows == "PARTITION" and key in ("DISCARD", "IMPORT", "TRUNCATE"):
        return _all(tokens, _A.PARTITION_ROWS)
    if follows == "PARTITION" and key in _PARTITION_VERBS:
        first = tokens.index
        action = _all(tokens, _A.PARTITION)
        words = [token.key for token in tokens.read[first : tokens.index]]
        if key == "REORGANIZE" and ("VALUES", "IN") in pairwise(words):
            # Both servers drop the rows whose values are in none of the new lists.
            return replace(action, kind=_A.PARTITION_ROWS)
        return action
    return Action(_A.PARTITION) if tokens.take("REMOVE", "PARTITIONING") else None


# Actions of one or two words that change no row.
_FLAGS: Final = (
    ("FORCE",),
    ("NOWAIT",),
    ("ENABLE", "KEYS"),
    ("DISABLE", "KEYS"),
    ("WITH", "VALIDATION"),
    ("WITHOUT", "VALIDATION"),
    ("SECONDARY_LOAD",),
    ("SECONDARY_UNLOAD",),
)


def _option(tokens: TokenReader) -> Action | None:
    if any(tokens.take(*words) for words in _FLAGS):
        return Action(_A.OPTION)
    option = take_option(tokens)
    if option is None:
        return None
    if option.name in ("ENGINE", "TYPE"):
        return Action(_A.ENGINE, option.value)
    return Action(_A.OPTION, option.name, charset=option.charset, value=option.value)


# By the first word of an action.
_READERS: Final[dict[str, Callable[[TokenReader], Action]]] = {
    "DROP": _drop,
    "ALTER": _alter,
    "MODIFY": _modify,
    "CHANGE": _modify,
    "RENAME": _rename,
    "CONVERT": _convert,
}
