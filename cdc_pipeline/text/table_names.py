"""Table names as text, and patterns that match them.

The pair of schema and table identifies a table; each text names exactly one pair.

Rules:
- The text is ``schema.table``. The first dot ends the schema, so a dot in the table's name needs no
  quotes.
- A schema that contains a dot or begins with a backtick is written in backticks: ```a.b`.c``.
  Without them table ``c`` of schema ``a.b`` and table ``b.c`` of schema ``a`` would share one name
  (K20).
- Names are compared as their server compares them (K30): `NameRule` folds each where it comes in
  (a statement, a table map, a catalog, a pattern, a command line), so that everything inside
  compares texts. Nothing else folds the name of a table or a schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import translate
from functools import lru_cache
from typing import Final

SYSTEM_SCHEMAS: Final = ("mysql", "information_schema", "performance_schema", "sys")


class NameRule(IntEnum):
    """How a server compares names of schemas and tables: its lower_case_table_names.

    Under 2 names are stored as they were given and compared in lower case: here they are in
    lower case under both, because any letter case may come in a log.
    """

    AS_GIVEN = 0
    LOWER = 1
    STORED_AS_GIVEN = 2

    def fold(self, name: str) -> str:
        """The name of a schema or a table, or a pattern of one, by which it is compared."""
        if self is NameRule.AS_GIVEN:
            return name
        return name.lower() if name.isascii() else name.translate(_lower_case())

    def pair(self, schema: str, table: str) -> tuple[str, str]:
        return self.fold(schema), self.fold(table)

    def same_as(self, other: NameRule) -> bool:
        return (self is NameRule.AS_GIVEN) == (other is NameRule.AS_GIVEN)


# What both servers lower in a name (the casing of utf8mb3_general_ci), as first and last letters:
# what `str.lower` does with each, but for one exception. Letters that Unicode has cased since, and
# those outside of its first plane, they leave as they are.
_LOWERED: Final = (
    "0041-021e 0222-0232 0386-03ab 03da-03ee 0400-0480 048c-04be 04c1-04c3 04c7-04c7 04cb-04cb "
    "04d0-04f4 04f8-04f8 0531-0556 1e00-1e94 1ea0-1ef8 1f08-212b 2160-216f 24b6-24cf ff21-ff3a"
)
_DOTTED_I: Final = 0x130  # whose lower case in Python is i with a combining dot


@lru_cache(maxsize=1)
def _lower_case() -> dict[int, str]:
    ends = ([int(end, 16) for end in part.split("-")] for part in _LOWERED.split())
    return {
        code: "i" if code == _DOTTED_I else chr(code).lower()
        for first, last in ends
        for code in range(first, last + 1)
    }


def quoted(name: str) -> str:
    """As the servers and Spark read it, whatever it contains (K20: a name is never SQL)."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(full_name: str) -> str:
    return ".".join(quoted(part) for part in split_table_name(full_name) if part)


def table_name(schema: str, table: str) -> str:
    """The text of a pair; `split_table_name` is its inverse."""
    if "." in schema or schema.startswith("`"):
        schema = quoted(schema)
    return f"{schema}.{table}"


def split_table_name(name: str) -> tuple[str, str]:
    """Schema and table of a name; a text without a dot is a schema, and the table is empty."""
    if name.startswith("`"):
        at = 1
        while (end := name.find("`", at)) >= 0 and name[end + 1 : end + 2] == "`":
            at = end + 2
        if end > 0 and name[end + 1 : end + 2] == ".":
            return name[1:end].replace("``", "`"), name[end + 2 :]
    schema, _, table = name.partition(".")
    return schema, table


_QUOTED: Final = r"`(?:[^`]|``)+`"
_PATTERN: Final = re.compile(
    rf"(?P<schema>{_QUOTED}|[^.`\s][^.\s]*)\.(?P<table>{_QUOTED}|[^`\s][^\s]*)"
)
_WILDCARD: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class TablePattern:
    """A shell pattern for schemas and one for their tables, such as ``shop.*``.

    A part in backticks is a literal name without wildcards: ``shop.`two words` ``, ```a.b`.*``.

    Attributes:
        text: the pattern as written.
        schema, table: expressions that each name must match; ``*`` matches dots as well.
        exact_schema, exact_table: the one name that matches; None with wildcards.
    """

    text: str
    schema: re.Pattern[str]
    table: re.Pattern[str]
    exact_schema: str | None
    exact_table: str | None

    @classmethod
    def parse(cls, text: str, names: NameRule = NameRule.AS_GIVEN) -> TablePattern:
        """Parse `text` as a pattern of names that `names` has folded. Raises ValueError: it is not
        a pattern.
        """
        return _parsed(text, names)

    @property
    def exact(self) -> str | None:
        """The only table that matches, as `table_name` writes it; None with wildcards."""
        if self.exact_schema is None or self.exact_table is None:
            return None
        return table_name(self.exact_schema, self.exact_table)

    def matches(self, schema: str, table: str) -> bool:
        return self.schema.match(schema) is not None and self.table.match(table) is not None


class TablePatterns:
    """Many patterns: those without wildcards are looked up and not tried one by one."""

    def __init__(self, patterns: Iterable[TablePattern]) -> None:
        found = tuple(patterns)
        self._exact = frozenset(
            (pattern.exact_schema, pattern.exact_table)
            for pattern in found
            if pattern.exact is not None
        )
        self._others = tuple(pattern for pattern in found if pattern.exact is None)

    def match(self, schema: str, table: str) -> bool:
        return (schema, table) in self._exact or any(
            pattern.matches(schema, table) for pattern in self._others
        )


# A run reads the same patterns several times.
@lru_cache(maxsize=65536)
def _parsed(text: str, names: NameRule) -> TablePattern:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a pattern such as shop.orders or shop.*; names that contain "
            "dots or blanks, or begin with a backtick, are written in backticks: `my "
            "schema`.`my table`"
        )
    (schema, exact_schema), (table, exact_table) = (
        _part(names.fold(match[part])) for part in ("schema", "table")
    )
    return TablePattern(text, schema, table, exact_schema, exact_table)


def exact_pattern(name: str) -> str:
    """The text of the pattern that matches only the table `name`."""
    return ".".join(map(quoted, split_table_name(name)))


def matches_any(patterns: Iterable[TablePattern], name: str) -> bool:
    parts = split_table_name(name)
    return any(pattern.matches(*parts) for pattern in patterns)


def _part(text: str) -> tuple[re.Pattern[str], str | None]:
    """The pattern of a schema or table, and the only name that matches it, if any."""
    if text.startswith("`"):
        name = text[1:-1].replace("``", "`")
        return re.compile(re.escape(name) + r"\Z"), name
    return re.compile(translate(text)), None if _WILDCARD.search(text) else text
