"""The actions of ALTER TABLE.

Rules:
- Every action of the list is named; one that cannot be read to its end is UNKNOWN, with its text.
- Actions are classified by their effect on rows and columns of a Delta table, not by the server's
  syntax.

Source: MySQL 9.7 manual, 15.1.11 (ALTER TABLE); MariaDB 10.11, ALTER TABLE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cdc_pipeline.schema.ddl.columns import ColumnDefinition, column_definition, skip_references
from cdc_pipeline.schema.ddl.ddl import classify_tokens
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes, TokenKind, TokenReader


class ActionKind(StrEnum):
    """What an action of ALTER TABLE does."""

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
class Action:
    """One action of ALTER TABLE.

    Attributes:
        kind: what it does.
        text: as it is written.
        name: the column, index, engine or table concerned; "" if none.
        new_name: of RENAME COLUMN and CHANGE.
        column: of ADD COLUMN.
        if_exists: IF EXISTS or IF NOT EXISTS is written.
    """

    kind: ActionKind
    text: str
    name: str = ""
    new_name: str = ""
    column: ColumnDefinition | None = None
    if_exists: bool = False


_A = ActionKind
_OPTIONS: Final = frozenset(
    {
        "ALGORITHM",
        "LOCK",
        "COMMENT",
        "ROW_FORMAT",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHECKSUM",
        "COMPRESSION",
        "CONNECTION",
        "DELAY_KEY_WRITE",
        "ENCRYPTION",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "MAX_ROWS",
        "MIN_ROWS",
        "PACK_KEYS",
        "PASSWORD",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "TABLESPACE",
        "STORAGE",
        "UNION",
        "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "AUTOEXTEND_SIZE",
        "PAGE_CHECKSUM",
        "TRANSACTIONAL",
        "PAGE_COMPRESSED",
        "PAGE_COMPRESSION_LEVEL",
        "ENCRYPTED",
        "ENCRYPTION_KEY_ID",
        "IETF_QUOTES",
        "CHARSET",
        "COLLATE",
        "TABLE_CHECKSUM",
    }
)
_PARTITION_VERBS: Final = frozenset(
    {"COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"}
)
_INDEX_WORDS: Final = frozenset({"INDEX", "KEY", "FULLTEXT", "SPATIAL"})


def alter_actions(
    sql: str,
    default_database: str = "",
    *,
    is_mariadb: bool = False,
    modes: SqlModes = UNKNOWN_MODES,
) -> tuple[Action, ...]:
    """Return the actions of an ALTER TABLE statement, in order; () for any other statement."""
    tokens = TokenReader(sql, modes=modes, is_mariadb=is_mariadb)
    if classify_tokens(tokens, default_database).kind is not StatementKind.ALTER_TABLE:
        return ()
    actions: list[Action] = []
    while not tokens.at_end():
        if not actions and tokens.at(","):
            return (_unknown(tokens, tokens.peek().start),)
        actions.extend(_action(tokens))
        if tokens.take(","):
            if tokens.at_end():
                actions.append(_unknown(tokens, tokens.peek().start))
        elif not tokens.at_end() and not _may_follow_without_comma(tokens, actions[-1]):
            actions.append(_unknown(tokens, tokens.peek().start))
    return tuple(actions)


# -- one action ------------------------------------------------------------------------------------


def _text(tokens: TokenReader, start: int) -> str:
    return tokens.sql[start : tokens.peek().start].strip().rstrip(",").strip()


def _unknown(tokens: TokenReader, start: int) -> Action:
    """Pass over everything up to the next comma, or to the end of a truncated text, as UNKNOWN."""
    if not tokens.skip_to_comma():
        while not tokens.at_end():
            tokens.next()
    return Action(_A.UNKNOWN, _text(tokens, start))


def _may_follow_without_comma(tokens: TokenReader, last: Action) -> bool:
    if tokens.at_any("PARTITION", "REMOVE"):
        return True
    return last.kind in (_A.OPTION, _A.ENGINE) and _at_option(tokens)


def _action(tokens: TokenReader) -> list[Action]:
    """Pass over the action at the reader's position; ADD (a .., b ..) yields several."""
    start = tokens.peek().start
    here = tokens.index
    actions = _known(tokens, start)
    if actions is not None:
        return actions
    tokens.index = here
    return [_unknown(tokens, start)]


def _known(tokens: TokenReader, start: int) -> list[Action] | None:
    key = tokens.peek().key
    if key == "ADD":
        return _add(tokens, start)
    simple: Action | None
    if key == "DROP":
        simple = _drop(tokens, start)
    elif key == "ALTER":
        simple = _alter(tokens, start)
    elif key in ("MODIFY", "CHANGE"):
        simple = _modify(tokens, start)
    elif key == "RENAME":
        simple = _rename(tokens, start)
    elif key == "CONVERT" and tokens.peek(1).key in ("PARTITION", "TABLE"):
        simple = _rest(tokens, start, _A.PARTITION_ROWS)
    elif key == "CONVERT":
        simple = _rest(tokens, start, _A.CONVERT_CHARSET)
    elif tokens.at("ORDER", "BY"):
        simple = _all(tokens, start, _A.ORDER_BY)
    else:
        simple = _partition(tokens, start) or _option(tokens, start)
    return None if simple is None else [simple]


def _all(tokens: TokenReader, start: int, kind: ActionKind) -> Action:
    """Pass over everything to the end: actions whose lists contain commas (partition names, columns
    to order by)."""
    while not tokens.at_end():
        tokens.next()
    return Action(kind, _text(tokens, start))


def _rest(tokens: TokenReader, start: int, kind: ActionKind, name: str = "") -> Action | None:
    return Action(kind, _text(tokens, start), name) if tokens.skip_to_comma() else None


def at_key_part(tokens: TokenReader) -> bool:
    """Return whether an index, a key or a constraint is defined, and not a column."""
    if tokens.peek().key in _INDEX_WORDS or tokens.at_any(
        "PRIMARY", "UNIQUE", "FOREIGN", "CONSTRAINT", "CHECK"
    ):
        return True
    if tokens.at("PERIOD", "FOR"):
        return True
    return tokens.at("VECTOR", "INDEX") or tokens.at("VECTOR", "KEY") or tokens.at("VECTOR", "(")


def added_key(tokens: TokenReader) -> Action | None:
    """Pass over the definition of an index, key or constraint; None if it cannot be read to its
    end."""
    start = tokens.peek().start
    kind = _A.CONSTRAINT
    if tokens.at("PERIOD", "FOR"):
        return None
    if tokens.take("CONSTRAINT") and not tokens.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        tokens.take("IF", "NOT", "EXISTS")
        tokens.name()
    if tokens.take("CHECK"):
        known = tokens.skip_group()
    elif tokens.take("PRIMARY", "KEY"):
        kind, known = _A.ADD_PRIMARY_KEY, _key_definition(tokens)
    elif tokens.take("FOREIGN", "KEY"):
        known = _foreign_key(tokens)
    elif tokens.take("UNIQUE"):
        tokens.take_any("INDEX", "KEY")
        kind, known = _A.UNIQUE_INDEX, _key_definition(tokens)
    else:
        kind = _A.INDEX
        tokens.take_any("FULLTEXT", "SPATIAL", "VECTOR")
        tokens.take_any("INDEX", "KEY")
        known = _key_definition(tokens)
    if not known or not _skip_key_options(tokens):
        return None
    return Action(kind, _text(tokens, start))


def _key_definition(tokens: TokenReader) -> bool:
    tokens.take("IF", "NOT", "EXISTS")
    if not tokens.at("(") and not tokens.at_any("USING", "TYPE"):
        tokens.name()
    if tokens.take_any("USING", "TYPE"):
        tokens.next()
    return tokens.skip_group()


def _foreign_key(tokens: TokenReader) -> bool:
    tokens.take("IF", "NOT", "EXISTS")
    if not tokens.at("("):
        tokens.name()
    return tokens.skip_group() and skip_references(tokens)


def _skip_key_options(tokens: TokenReader) -> bool:
    """Options behind an index: KEY_BLOCK_SIZE, USING, WITH PARSER, COMMENT, VISIBLE, ENFORCED
    ..."""
    while not tokens.at_end() and not tokens.at_any(",", ")"):
        if tokens.at_any("PARTITION", "REMOVE"):
            return True
        if tokens.peek().kind is TokenKind.BAD or tokens.at("("):
            return False
        tokens.next()
    return True


def _add(tokens: TokenReader, start: int) -> list[Action] | None:
    tokens.next()
    if tokens.at("SYSTEM", "VERSIONING") or tokens.at("PERIOD", "FOR"):
        return _listed(_rest(tokens, start, _A.VERSIONING))
    if tokens.at("PARTITION"):
        return _listed(_rest(tokens, start, _A.PARTITION))
    if at_key_part(tokens):
        added = added_key(tokens)
        return None if added is None else [Action(added.kind, _text(tokens, start))]
    tokens.take("COLUMN")
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")
    if not tokens.take("("):
        column = column_definition(tokens)
        return None if column is None else [_added_column(tokens, start, column, if_not_exists)]
    actions: list[Action] = []
    while True:
        if at_key_part(tokens):
            added = added_key(tokens)
            if added is None:
                return None
            actions.append(added)
        else:
            start = tokens.peek().start
            column = column_definition(tokens)
            if column is None:
                return None
            actions.append(_added_column(tokens, start, column, if_not_exists))
        if tokens.take(")"):
            return actions
        if not tokens.take(","):
            return None


def _added_column(
    tokens: TokenReader, start: int, column: ColumnDefinition, if_not_exists: bool
) -> Action:
    return Action(
        _A.ADD_COLUMN, _text(tokens, start), column.name, column=column, if_exists=if_not_exists
    )


def _listed(action: Action | None) -> list[Action] | None:
    return None if action is None else [action]


def _drop(tokens: TokenReader, start: int) -> Action | None:
    tokens.next()
    if tokens.take("PRIMARY", "KEY"):
        return _rest(tokens, start, _A.DROP_PRIMARY_KEY)
    if tokens.at("SYSTEM", "VERSIONING") or tokens.at("PERIOD", "FOR"):
        return _rest(tokens, start, _A.VERSIONING)
    if tokens.at("PARTITION"):
        return _all(tokens, start, _A.PARTITION_ROWS)
    if word := tokens.take_any("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"):
        if word == "FOREIGN":
            tokens.take("KEY")
        if_exists = tokens.take("IF", "EXISTS")
        name = tokens.name()
        if name is None:
            return None
        kind = _A.INDEX if word in ("INDEX", "KEY") else _A.CONSTRAINT
        if word != "FOREIGN" and name.upper() == "PRIMARY":
            kind = _A.DROP_PRIMARY_KEY
        return Action(kind, _text(tokens, start), name, if_exists=if_exists)
    tokens.take("COLUMN")
    if_exists = tokens.take("IF", "EXISTS")
    name = tokens.name()
    if name is None:
        return None
    tokens.take_any("RESTRICT", "CASCADE")
    return Action(_A.DROP_COLUMN, _text(tokens, start), name, if_exists=if_exists)


def _alter(tokens: TokenReader, start: int) -> Action | None:
    """ALTER [COLUMN] c SET | DROP DEFAULT, SET VISIBLE; ALTER INDEX i VISIBLE; ALTER CHECK c NOT
    ENFORCED."""
    tokens.next()
    if tokens.take_any("INDEX", "KEY"):
        return _rest(tokens, start, _A.INDEX)
    if tokens.take_any("CHECK", "CONSTRAINT"):
        return _rest(tokens, start, _A.CONSTRAINT)
    tokens.take("COLUMN")
    tokens.take("IF", "EXISTS")
    name = tokens.name()
    if name is None:
        return None
    if tokens.at("SET", "VISIBLE") or tokens.at("SET", "INVISIBLE"):
        return _rest(tokens, start, _A.COLUMN_VISIBILITY, name)
    if tokens.at("SET", "DEFAULT") or tokens.at("DROP", "DEFAULT"):
        return _rest(tokens, start, _A.COLUMN_DEFAULT, name)
    return None


def _modify(tokens: TokenReader, start: int) -> Action | None:
    kind = _A.MODIFY_COLUMN if tokens.next().key == "MODIFY" else _A.CHANGE_COLUMN
    tokens.take("COLUMN")
    tokens.take("IF", "EXISTS")
    old = tokens.name()
    new = old if kind is _A.MODIFY_COLUMN else tokens.name()
    if old is None or new is None or not tokens.skip_to_comma():
        return None
    return Action(kind, _text(tokens, start), old, new)


def _rename(tokens: TokenReader, start: int) -> Action | None:
    tokens.next()
    if tokens.take_any("INDEX", "KEY"):
        return _rest(tokens, start, _A.INDEX)
    if tokens.take("COLUMN"):
        tokens.take("IF", "EXISTS")
        old = tokens.name()
        new = tokens.name() if tokens.take("TO") else None
        if old is None or new is None:
            return None
        return Action(_A.RENAME_COLUMN, _text(tokens, start), old, new)
    tokens.take_any("TO", "AS", "=")
    table = tokens.table("")
    return (
        None
        if table is None
        else Action(_A.RENAME_TABLE, _text(tokens, start), ".".join(filter(None, table)))
    )


def _partition(tokens: TokenReader, start: int) -> Action | None:
    """Partition and tablespace actions that do not start with ADD, DROP or CONVERT."""
    key, follows = tokens.peek().key, tokens.peek(1).key
    if key in ("DISCARD", "IMPORT") and follows == "TABLESPACE":
        return _all(tokens, start, _A.TABLESPACE)
    if key == "PARTITION" and follows == "BY":
        return _all(tokens, start, _A.PARTITION)
    if follows == "PARTITION" and key in ("DISCARD", "IMPORT", "TRUNCATE", "EXCHANGE"):
        return _all(tokens, start, _A.PARTITION_ROWS)
    if follows == "PARTITION" and key in _PARTITION_VERBS:
        return _all(tokens, start, _A.PARTITION)
    if tokens.take("REMOVE", "PARTITIONING"):
        return Action(_A.PARTITION, _text(tokens, start))
    return None


def _at_option(tokens: TokenReader) -> bool:
    token = tokens.peek()
    if token.key in _OPTIONS or token.key in (
        "ENGINE",
        "TYPE",
        "DEFAULT",
        "DATA",
        "INDEX",
        "CHARACTER",
        "FORCE",
    ):
        return True
    return token.kind in (TokenKind.WORD, TokenKind.NAME) and tokens.peek(1).key == "="


def _option(tokens: TokenReader, start: int) -> Action | None:
    """One table option, or an action that changes no row: FORCE, ENABLE KEYS, WITH VALIDATION, WAIT
    n."""
    if (
        tokens.take("FORCE")
        or tokens.take("NOWAIT")
        or tokens.take("ENABLE", "KEYS")
        or tokens.take("DISABLE", "KEYS")
    ):
        return Action(_A.OPTION, _text(tokens, start))
    if tokens.take("WITH", "VALIDATION") or tokens.take("WITHOUT", "VALIDATION"):
        return Action(_A.OPTION, _text(tokens, start))
    if tokens.take("SECONDARY_LOAD") or tokens.take("SECONDARY_UNLOAD"):
        return Action(_A.OPTION, _text(tokens, start))
    if not _at_option(tokens):
        return None
    word = tokens.next().key
    if word == "DEFAULT":
        word = tokens.next().key
        if word not in ("CHARACTER", "CHARSET", "COLLATE"):
            return None
    if (word == "CHARACTER" and not tokens.take("SET")) or (
        word in ("DATA", "INDEX") and not tokens.take("DIRECTORY")
    ):
        return None
    tokens.take("=")
    if tokens.at("("):
        return Action(_A.OPTION, _text(tokens, start)) if tokens.skip_group() else None
    value = tokens.next()
    if value.kind in (TokenKind.PUNCTUATION, TokenKind.BAD, TokenKind.END):
        return None
    if word in ("ENGINE", "TYPE"):
        return Action(_A.ENGINE, _text(tokens, start), value.text)
    return Action(_A.OPTION, _text(tokens, start))
