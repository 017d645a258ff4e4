"""Options of tables, databases and keys, and the charsets that a statement names: one table of
spellings for every place where they may stand.

Rules:
- A DEFAULT in front and a `=` are optional everywhere: what one server refuses is not in its log.
- `CHARACTER SET DEFAULT` is the charset of what is above: a table's is its database's. A collation
  without a charset of its own (DEFAULT, MariaDB's ``uca1400_ai_ci``) changes none.
- What is no option of this table is None: the statement is not read with certainty.
- Engines for tables of other servers keep their account in the table's COMMENT (SPIDER, FEDERATED),
  also after the table was altered to another engine: such a text is no comment (K26).

Source: MySQL 9.7 manual, 15.1.14 (CREATE DATABASE), 15.1.24 (CREATE TABLE), 15.1.11 (ALTER TABLE);
MariaDB 10.11, the same statements, and "engine-defined options".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.schema.ddl.tokens import TokenKind, TokenReader

_CHARSET_WORDS: Final = (("CHARACTER", "SET"), ("CHARSET",), ("CHAR", "SET"))
# Options whose `=` may be missing; any other name is one if a `=` follows it.
_NAMES: Final = tuple(
    tuple(line.split())
    for line in """
        ALGORITHM
        AUTOEXTEND_SIZE
        AUTO_INCREMENT
        AVG_ROW_LENGTH
        CHECKSUM
        COMMENT
        COMPRESSION
        CONNECTION
        DATA DIRECTORY
        DELAY_KEY_WRITE
        ENCRYPTION
        ENGINE
        ENGINE_ATTRIBUTE
        INDEX DIRECTORY
        INSERT_METHOD
        KEY_BLOCK_SIZE
        LOCK
        MAX_ROWS
        MIN_ROWS
        PACK_KEYS
        PAGE_CHECKSUM
        PASSWORD
        READ ONLY
        ROW_FORMAT
        SECONDARY_ENGINE
        SECONDARY_ENGINE_ATTRIBUTE
        SEQUENCE
        STATS_AUTO_RECALC
        STATS_PERSISTENT
        STATS_SAMPLE_PAGES
        STORAGE
        TABLESPACE
        TABLE_CHECKSUM
        TRANSACTIONAL
        TYPE
        UNION
        USING
        WITH PARSER
    """.strip().splitlines()
)
_KEY_WORDS: Final = (
    ("VISIBLE",),
    ("INVISIBLE",),
    ("IGNORED",),
    ("NOT", "IGNORED"),
    ("ENFORCED",),
    ("NOT", "ENFORCED"),
)
_REMOTE_ENGINES: Final = frozenset({"SPIDER", "FEDERATED", "FEDERATEDX", "CONNECT"})
# Spider's `host "db", port "3306"`; the ALTER of a table does not name its engine.
_PARAMETER: Final = r"""\s*\w+\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\s\d+)\s*"""
_CONNECTION: Final = re.compile(
    rf"(?:{_PARAMETER},)+(?:{_PARAMETER})?|\s*(?:password|passwd|pwd)\s*[\"'].*|.*\w://[^/\s]*@.*",
    re.DOTALL | re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class NamedCharset:
    """A charset as a statement names it: the server's own name in lower case (``utf8mb3`` for
    ``utf8``), or CHARACTER SET DEFAULT.
    """

    name: str = ""
    is_default: bool = False

    def over(self, own: str, outer: str) -> str:
        return self.name or (outer if self.is_default else own)

    def then(self, other: NamedCharset) -> NamedCharset:
        return NamedCharset(self.name or other.name, self.is_default or other.is_default)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `name` in upper case, "" of a charset; `value` as it is written, "" of a list."""

    name: str
    value: str = ""
    charset: NamedCharset | None = None


def server_charset(name: str) -> str:
    name = name.lower()
    return "utf8mb3" if name == "utf8" else name


def table_comment(text: str, engine: str = "") -> str:
    """ "" if it may tell how to connect to another server."""
    return "" if engine.upper() in _REMOTE_ENGINES or _CONNECTION.fullmatch(text) else text


def take_charset(tokens: TokenReader) -> NamedCharset | None:
    """``[DEFAULT] CHARACTER SET [=] name`` or ``[DEFAULT] COLLATE [=] name``; None, and the
    reader stays, if there is none here.
    """
    here = tokens.index
    tokens.take("DEFAULT")
    is_charset = any(tokens.take(*words) for words in _CHARSET_WORDS)
    if is_charset or tokens.take("COLLATE"):
        tokens.take("=")
        is_default = tokens.at("DEFAULT")
        name = tokens.name_or_string()
        if is_default:
            return NamedCharset(is_default=is_charset)
        if name is not None:
            # latin1_swedish_ci is of latin1, binary is both, uca1400_ai_ci goes with many.
            charset = name.lower() if is_charset else name.lower().split("_", 1)[0]
            if charset == "utf8" and tokens.modes.utf8_is_utf8mb4:
                charset = "utf8mb4"
            return NamedCharset("" if charset == "uca1400" else server_charset(charset))
    tokens.index = here
    return None


def take_option(tokens: TokenReader) -> Option | None:
    """None if there is none here, or it is not read to its end (the reader may have moved)."""
    charset = take_charset(tokens)
    if charset is not None:
        return Option("", charset=charset)
    tokens.take("DEFAULT")  # ENCRYPTION
    words = next((words for words in _NAMES if tokens.take(*words)), None)
    if words is None:
        if tokens.peek(1).key != "=":
            return None
        name = (tokens.name() or "").upper()
    else:
        name = " ".join(words)
    has_sign = tokens.take("=")
    if tokens.at("("):
        return Option(name) if tokens.skip_group() else None
    value = tokens.next()
    if value.kind in (TokenKind.PUNCTUATION, TokenKind.BAD, TokenKind.END):
        return None
    return Option(name, value.text) if words or has_sign else None


def take_key_options(tokens: TokenReader) -> bool:
    """Behind a key's columns; False if something else is among them."""
    while not tokens.at_end() and not tokens.at_any(",", ")", "PARTITION", "REMOVE"):
        if not any(tokens.take(*words) for words in _KEY_WORDS) and take_option(tokens) is None:
            return False
    return True


def database_charset(tokens: TokenReader) -> NamedCharset | None:
    """To the end; None if one cannot be read."""
    charset = NamedCharset()
    while not tokens.at_end():
        option = take_option(tokens)
        if option is None:
            return None
        charset = charset.then(option.charset or NamedCharset())
    return charset
