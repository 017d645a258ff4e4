"""Every mode of a session (`sql_mode`) of both servers, and what it changes in the reading of a DDL
text.

A bit that is not in the table may change anything: DDL of its session is not read with certainty.

Source: MySQL 5.7 to 9.7 and MariaDB 10.11, "Server SQL modes"; the bits are those of the QUERY
event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SqlMode:
    """One bit (from 0) of `sql_mode`.

    `sets` is what `tokens.SqlModes` makes of it, names with blanks between; `why` says what it
    is about, and why no reading depends on it where `sets` is "". `flavor` is the only server
    that has it, or means this by it.
    """

    name: str
    bit: int
    sets: str = ""
    why: str = ""
    flavor: str = ""


_EXPRESSIONS: Final = "expressions, whose values are never computed from the text"
_QUERIES: Final = "queries and changes of rows"
_SHOWN: Final = "what SHOW CREATE TABLE omits: a text in the server's own form lacks options"
_DATES: Final = "dates that are no days, which are never taken from a text"

SQL_MODES: Final = (
    SqlMode("REAL_AS_FLOAT", 0, "real_as_float"),
    SqlMode("PIPES_AS_CONCAT", 1, why=_EXPRESSIONS),
    SqlMode("ANSI_QUOTES", 2, "ansi_quotes"),
    SqlMode("IGNORE_SPACE", 3, why="blanks before parentheses, which are always skipped"),
    SqlMode("NOT_USED", 4, why="no meaning", flavor="mysql"),
    SqlMode("IGNORE_BAD_TABLE_OPTIONS", 4, why="options of engines", flavor="mariadb"),
    SqlMode("ONLY_FULL_GROUP_BY", 5, why=_QUERIES),
    SqlMode("NO_UNSIGNED_SUBTRACTION", 6, why=_EXPRESSIONS),
    SqlMode("NO_DIR_IN_CREATE", 7, why="directories of files"),
    SqlMode("POSTGRESQL", 8, "omits_options", _SHOWN),
    SqlMode("ORACLE", 9, "oracle omits_options", "names of types; " + _SHOWN, "mariadb"),
    SqlMode("ORACLE", 9, "omits_options", _SHOWN, "mysql"),
    SqlMode("MSSQL", 10, "omits_options", _SHOWN),
    SqlMode("DB2", 11, "omits_options", _SHOWN),
    SqlMode("MAXDB", 12, "maxdb omits_options", "TIMESTAMP is DATETIME; " + _SHOWN),
    SqlMode("NO_KEY_OPTIONS", 13, why="options of keys in SHOW CREATE TABLE"),
    SqlMode("NO_TABLE_OPTIONS", 14, "omits_options", _SHOWN),
    SqlMode("NO_FIELD_OPTIONS", 15, "omits_options", _SHOWN),
    SqlMode("MYSQL323", 16, "omits_options", _SHOWN),
    SqlMode("MYSQL40", 17, "omits_options", _SHOWN),
    SqlMode("ANSI", 18, "omits_options", _SHOWN),
    SqlMode("NO_AUTO_VALUE_ON_ZERO", 19, why="a new AUTO_INCREMENT always counts as new numbers"),
    SqlMode("NO_BACKSLASH_ESCAPES", 20, "no_backslash_escapes"),
    SqlMode("STRICT_TRANS_TABLES", 21, "strict"),
    SqlMode("STRICT_ALL_TABLES", 22, "strict"),
    SqlMode("NO_ZERO_IN_DATE", 23, why=_DATES),
    SqlMode("NO_ZERO_DATE", 24, why=_DATES),
    SqlMode("ALLOW_INVALID_DATES", 25, why=_DATES),
    SqlMode("ERROR_FOR_DIVISION_BY_ZERO", 26, why=_EXPRESSIONS),
    SqlMode("TRADITIONAL", 27, why="the name of a combination"),
    SqlMode("NO_AUTO_CREATE_USER", 28, why="accounts"),
    SqlMode("HIGH_NOT_PRECEDENCE", 29, why=_EXPRESSIONS),
    SqlMode("NO_ENGINE_SUBSTITUTION", 30, why="an engine that the server does not have"),
    SqlMode("PAD_CHAR_TO_FULL_LENGTH", 31, "pads_char"),
    SqlMode("TIME_TRUNCATE_FRACTIONAL", 32, why="checked: no fraction may be cut", flavor="mysql"),
    SqlMode("INTERPRET_UTF8_AS_UTF8MB4", 33, "utf8_is_utf8mb4", flavor="mysql"),
    SqlMode("EMPTY_STRING_IS_NULL", 32, "empty_string_is_null", flavor="mariadb"),
    SqlMode("SIMULTANEOUS_ASSIGNMENT", 33, why=_QUERIES, flavor="mariadb"),
    SqlMode("TIME_ROUND_FRACTIONAL", 34, why="checked: no fraction may be cut", flavor="mariadb"),
)


def settings_of(bits: int, *, is_mariadb: bool) -> tuple[frozenset[str], int]:
    """What the modes set, and the bits that no mode has."""
    other = "mysql" if is_mariadb else "mariadb"
    modes = [mode for mode in SQL_MODES if mode.flavor != other and bits >> mode.bit & 1]
    return (
        frozenset(name for mode in modes for name in mode.sets.split()),
        bits & ~sum(1 << mode.bit for mode in modes),
    )


def bits_of(names: str, *, is_mariadb: bool) -> int | None:
    """Of a list with commas, as `@@sql_mode` has it; None: not all of them are known."""
    other = "mysql" if is_mariadb else "mariadb"
    bits = {mode.name: 1 << mode.bit for mode in SQL_MODES if mode.flavor != other}
    named = [name.strip().upper() for name in names.split(",") if name.strip()]
    return sum({bits[name] for name in named}) if bits.keys() >= set(named) else None
