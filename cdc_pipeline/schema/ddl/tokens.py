"""Tokens of MySQL and MariaDB statements, as far as DDL needs them.

Rules:
- Tolerant: a text that breaks off inside a string or a comment yields a BAD token instead of an
  error; callers treat unexpected tokens as unknown, never as harmless.
- Lazy: a statement of many MiB (a logged INSERT) is read only as far as needed.
- What the server ran counts: versioned comments (``/*!50100 ... */``, MariaDB's ``/*M! ... */``)
  are read as code where the server reads them so. Before logging a statement, both servers blank
  the marks of those that they skipped.
- A double-quoted text is a name in ANSI_QUOTES and a string otherwise; while the mode is not known,
  the grammar at its place decides (``Kind.QUOTED``).

Source: MySQL 9.7 manual, 11.1.1 (string literals), 11.2 (names), 11.7 (comments); MariaDB, comment
syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

from cdc_pipeline.schema.ddl.sql_modes import settings_of
from cdc_pipeline.text.table_names import NameRule

_Value = TypeVar("_Value")


class Uncertain(Exception):
    """A text does not determine what it does with certainty."""


def certain(value: _Value | None) -> _Value:
    """What was read. Raises Uncertain: nothing was (None or False)."""
    if value is None or value is False:
        raise Uncertain("its text cannot be read to its end")
    return value


class TokenKind(Enum):
    WORD = "word"  # keyword or unquoted name
    NAME = "name"  # quoted name
    QUOTED = "quoted"  # in double quotes: name or string
    STRING = "string"
    NUMBER = "number"
    HEX = "hex"  # x'1f' or 0x1f: text holds the digits
    BITS = "bits"  # b'101' or 0b101: text holds the digits
    PUNCTUATION = "punctuation"
    BAD = "bad"  # text that breaks off
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    text: str
    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SqlModes:
    """The settings that change the meaning of DDL: of the session, from the QUERY event's status
    variables (`sql_modes` says which mode sets which), and of the server.

    Attributes:
        ansi_quotes: None while not known.
        explicit_defaults_for_timestamp: None while not known; if it is off, a TIMESTAMP is NOT NULL
            by default.
        time_zone: of the session, for constant defaults of TIMESTAMP columns; "" while not known.
        oracle: MariaDB's sql_mode=ORACLE, where DATE is a DATETIME.
        maxdb: sql_mode=MAXDB, where TIMESTAMP is a DATETIME.
        omits_options: a CREATE TABLE that the server wrote itself lacks the table's options.
        empty_string_is_null: the literal '' is NULL.
        utf8_is_utf8mb4: the alias utf8 means utf8mb4. MariaDB's old_mode, which says the same, is
            not in its events: there it is utf8mb3, as by default.
        strict: STRICT_TRANS_TABLES or STRICT_ALL_TABLES: a value that its new type does not hold
            fails the ALTER; False while not known.
        trims_char: PAD_CHAR_TO_FULL_LENGTH is off: a CHAR is read, and copied, without its trailing
            blanks; False while not known.
        unknown_bits: of modes that no table has: nothing is certain.
        names: how the server compares names of schemas and tables (K30); no session changes it.
    """

    ansi_quotes: bool | None = None
    no_backslash_escapes: bool = False
    real_as_float: bool = False
    oracle: bool = False
    maxdb: bool = False
    omits_options: bool = False
    empty_string_is_null: bool = False
    utf8_is_utf8mb4: bool = False
    explicit_defaults_for_timestamp: bool | None = None
    time_zone: str = ""
    strict: bool = False
    trims_char: bool = False
    unknown_bits: int = 0
    names: NameRule = NameRule.AS_GIVEN

    @classmethod
    def from_bits(
        cls,
        sql_mode: int,
        *,
        is_mariadb: bool = False,
        explicit_defaults_for_timestamp: bool | None = None,
        time_zone: str = "",
        names: NameRule = NameRule.AS_GIVEN,
    ) -> SqlModes:
        """From the QUERY event's Q_SQL_MODE_CODE bits."""
        on, unknown_bits = settings_of(sql_mode, is_mariadb=is_mariadb)
        sets: dict[str, Any] = dict.fromkeys(on - {"ansi_quotes", "pads_char"}, True)
        return cls(
            ansi_quotes="ansi_quotes" in on,
            explicit_defaults_for_timestamp=explicit_defaults_for_timestamp,
            time_zone=time_zone,
            trims_char="pads_char" not in on,
            unknown_bits=unknown_bits,
            names=names,
            **sets,
        )


UNKNOWN_MODES: Final = SqlModes()

_NAME_CHARACTERS = r"0-9A-Za-z_$\u0080-\U0010ffff"
_PATTERN = r"""
    (?P<blank>[\x00\t\n\v\f\r\ ]+ | \#[^\n]* | --(?=[\x00-\x20]|$)[^\n]*)
  | (?P<opened>/\*(?:M!|!)\d*)
  | (?P<closed>\*/)
  | (?P<comment>/\*.*?\*/)
  | (?P<hex>[xX]'[0-9A-Fa-f]*' | 0x[0-9A-Fa-f]+(?![%(name)s]))
  | (?P<bits>[bB]'[01]*' | 0b[01]+(?![%(name)s]))
  | (?P<string>[nN]?'(?:%(single)s)*+')
  | (?P<quoted>"(?:%(double)s)*+")
  | (?P<name>`(?:[^`]++|``)*+`)
  | (?P<number>(?:\d+(?:\.\d*)?|(?<![%(name)s`"])\.\d+)(?:[eE][+-]?\d+)?(?![%(name)s]))
  | (?P<word>[%(name)s]+)
  | (?P<broken>['"`]|/\*)
  | (?P<punctuation>.)
"""
_FLAGS = re.VERBOSE | re.DOTALL
# What may stand between single and between double quotes.
_ESCAPED: Final = r"[^'\\]++|\\.|''", r'[^"\\]++|\\.|""'
_PLAIN: Final = r"[^']++|''", r'[^"]++|""'
_ANSI: Final = r"[^'\\]++|\\.|''", r'[^"]++|""'


@cache
def _tokens_with(single: str, double: str) -> re.Pattern[str]:
    """Compiled on first use, since it takes 20 ms."""
    return re.compile(
        _PATTERN % {"name": _NAME_CHARACTERS, "single": single, "double": double}, _FLAGS
    )


_BACKSLASH: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}
_SKIPPED = frozenset({"blank", "comment"})


def tokenize(
    sql: str, *, modes: SqlModes = UNKNOWN_MODES, is_mariadb: bool = False
) -> Iterator[Token]:
    """Without comments and END."""
    if modes.no_backslash_escapes:
        quotes = _PLAIN
    else:
        quotes = _ANSI if modes.ansi_quotes else _ESCAPED
    pattern = _tokens_with(*quotes)
    at, depth = 0, 0
    while at < len(sql):
        match = pattern.match(sql, at)
        if match is None:  # the pattern ends in "any character"
            break
        group = match.lastgroup or ""
        text, start, at = match[0], match.start(), match.end()
        if group in _SKIPPED:
            continue
        if group == "opened":
            if _is_code(text, is_mariadb):
                depth += 1
            else:
                end = sql.find("*/", at)
                if end < 0:
                    yield Token(TokenKind.BAD, sql[start:], "", start, len(sql))
                    return
                at = end + 2
            continue
        if group == "closed" and depth:
            depth -= 1
            continue
        if group == "broken":
            yield Token(TokenKind.BAD, sql[start:], "", start, len(sql))
            return
        yield _token(group, text, start, at, modes)
    if depth:
        yield Token(TokenKind.BAD, "", "", len(sql), len(sql))


def _is_code(opening: str, is_mariadb: bool) -> bool:
    if opening.startswith("/*M!"):
        return is_mariadb
    version = int(opening[3:] or "0")
    # MariaDB does not run what is meant for MySQL 5.7 and later; 10.0.0 is its 100000.
    return not (is_mariadb and 50700 <= version <= 99999)


def _token(group: str, text: str, start: int, end: int, modes: SqlModes) -> Token:
    if group == "word":
        return Token(TokenKind.WORD, text, text.upper(), start, end)
    if group == "name":
        return Token(TokenKind.NAME, text[1:-1].replace("``", "`"), "", start, end)
    if group == "string":
        body = text[text.index("'") + 1 : -1].replace("''", "'")
        return Token(TokenKind.STRING, _unescaped(body, modes), "", start, end)
    if group == "quoted":
        body = text[1:-1].replace('""', '"')
        if modes.ansi_quotes:
            return Token(TokenKind.NAME, body, "", start, end)
        kind = TokenKind.STRING if modes.ansi_quotes is False else TokenKind.QUOTED
        return Token(kind, _unescaped(body, modes), "", start, end)
    if group == "number":
        return Token(TokenKind.NUMBER, text, "", start, end)
    if group in ("hex", "bits"):
        digits = text[2:].rstrip("'")
        return Token(TokenKind.HEX if group == "hex" else TokenKind.BITS, digits, "", start, end)
    return Token(TokenKind.PUNCTUATION, text, text, start, end)


def _unescaped(body: str, modes: SqlModes) -> str:
    if modes.no_backslash_escapes or "\\" not in body:
        return body
    return _BACKSLASH.sub(lambda match: _ESCAPES.get(match[1], match[1]), body)


def respelled(
    sql: str, tokens: Iterable[Token], spelling: Callable[[Token], str | None]
) -> Iterator[str]:
    """A text's tokens without comments, as `spelling` says; None leaves one as it is written."""
    end = -1
    for token in tokens:
        spelled = spelling(token)
        yield (" " if 0 <= end < token.start else "") + (
            sql[token.start : token.end] if spelled is None else spelled
        )
        end = token.end


class TokenReader:
    """Reads a statement's tokens forward, with any look-ahead. `index` may be kept and set back."""

    def __init__(
        self, sql: str, *, modes: SqlModes = UNKNOWN_MODES, is_mariadb: bool = False
    ) -> None:
        self.sql = sql
        self.modes = modes
        self.is_mariadb = is_mariadb
        self.index = 0
        self.read: list[Token] = []  # all tokens up to here
        self._more = tokenize(sql, modes=modes, is_mariadb=is_mariadb)
        self._end = Token(TokenKind.END, "", "", len(sql), len(sql))

    def peek(self, ahead: int = 0) -> Token:
        """END after the last one."""
        wanted = self.index + ahead
        while len(self.read) <= wanted:
            token = next(self._more, None)
            if token is None:
                return self._end
            self.read.append(token)
        return self.read[wanted]

    def next(self) -> Token:
        token = self.peek()
        if token is not self._end:
            self.index += 1
        return token

    def at(self, *keys: str) -> bool:
        return all(self.peek(ahead).key == key for ahead, key in enumerate(keys))

    def at_any(self, *keys: str) -> bool:
        return self.peek().key in keys

    def take(self, *keys: str) -> bool:
        if self.at(*keys):
            self.index += len(keys)
            return True
        return False

    def take_any(self, *keys: str) -> str:
        key = self.peek().key
        if key in keys:
            self.index += 1
            return key
        return ""

    def at_end(self) -> bool:
        """A closing semicolon counts as the end."""
        token = self.peek()
        return token.kind is TokenKind.END or (
            token.key == ";" and self.peek(1).kind is TokenKind.END
        )

    def name(self) -> str | None:
        token = self.peek()
        if token.kind in (TokenKind.WORD, TokenKind.NAME, TokenKind.QUOTED):
            self.index += 1
            return token.text
        return None

    def column(self) -> str | None:
        """MariaDB takes a column with its table and database before it."""
        self.take(".")
        name = self.name()
        while name is not None and self.take("."):
            name = self.name()
        return name

    def string(self) -> str | None:
        """Adjacent strings are one; an introducer such as _utf8mb4 is dropped."""
        here = self.index
        if self.peek().key.startswith("_"):
            self.next()
        parts: list[str] = []
        while self.peek().kind in (TokenKind.STRING, TokenKind.QUOTED):
            parts.append(self.next().text)
        if not parts:
            self.index = here
            return None
        return "".join(parts)

    def name_or_string(self) -> str | None:
        """As charsets are written."""
        text = self.string()
        return self.name() if text is None else text

    def database(self) -> str | None:
        name = self.name()
        return None if name is None else self.modes.names.fold(name)

    def table(self, default_database: str) -> tuple[str, str] | None:
        if self.take("."):  # ODBC's form: .table
            name = self.name()
            return None if name is None else self.modes.names.pair(default_database, name)
        first = self.name()
        if first is None:
            return None
        if self.at("."):
            self.next()
            second = self.name()
            return None if second is None else self.modes.names.pair(first, second)
        return self.modes.names.pair(default_database, first)

    def skip_group(self) -> bool:
        """``( ... )`` including nested ones; False if there is none here or it does not end."""
        if not self.at("("):
            return False
        depth = 0
        while True:
            token = self.next()
            if token.kind in (TokenKind.END, TokenKind.BAD):
                return False
            if token.key == "(":
                depth += 1
            elif token.key == ")":
                depth -= 1
                if depth == 0:
                    return True

    def skip_to_comma(self) -> bool:
        """Outside of parentheses, or to the end; False if the text breaks off."""
        while not self.at_end() and not self.at(","):
            if self.at("("):
                if not self.skip_group():
                    return False
            elif self.next().kind is TokenKind.BAD or self.at(")"):
                return False
        return True
