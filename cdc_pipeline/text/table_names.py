"""Table names as text, and patterns that match them.

The pair of schema and table identifies a table; each text names exactly one pair.

Rules:
- The text is ``schema.table``. The first dot ends the schema, so a dot in the table's name needs no
  quotes.
- A schema that contains a dot or begins with a backtick is written in backticks: ```a.b`.c``.
  Without them table ``c`` of schema ``a.b`` and table ``b.c`` of schema ``a`` would share one name
  (K20).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Final


def table_name(schema: str, table: str) -> str:
    """Return the text of a pair; `split_table_name` is its inverse."""
    if "." in schema or schema.startswith("`"):
        schema = f"`{schema.replace('`', '``')}`"
    return f"{schema}.{table}"


def split_table_name(name: str) -> tuple[str, str]:
    """Return schema and table of a name;
    a text without a dot is a schema, and the table is empty.
    """
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
    def parse(cls, text: str) -> TablePattern:
        """Parse `text` as a pattern.

        Raises:
            ValueError: it is not a pattern.
        """
        return _parsed(text)

    @property
    def exact(self) -> str | None:
        """The only table that matches, as `table_name` writes it; None with wildcards."""
        if self.exact_schema is None or self.exact_table is None:
            return None
        return table_name(self.exact_schema, self.exact_table)

    def matches(self, schema: str, table: str) -> bool:
        """Return whether the pair matches."""
        return self.schema.match(schema) is not None and self.table.match(table) is not None

    def matches_name(self, name: str) -> bool:
        """Return whether the table `name` matches."""
        return self.matches(*split_table_name(name))


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
        """Return whether one of the patterns matches the pair."""
        return (schema, table) in self._exact or any(
            pattern.matches(schema, table) for pattern in self._others
        )


# A run reads the same patterns several times.
@lru_cache(maxsize=65536)
def _parsed(text: str) -> TablePattern:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a pattern such as shop.orders or shop.*; names that contain "
            "dots or blanks, or begin with a backtick, are written in backticks: `my "
            "schema`.`my table`"
        )
    (schema, exact_schema), (table, exact_table) = _part(match["schema"]), _part(match["table"])
    return TablePattern(text, schema, table, exact_schema, exact_table)


def exact_pattern(name: str) -> str:
    """Return the text of the pattern that matches only the table `name`."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in split_table_name(name))


def matches_any(patterns: Iterable[TablePattern], name: str) -> bool:
    """Return whether the table `name` matches one of the patterns."""
    return any(pattern.matches_name(name) for pattern in patterns)


def _part(text: str) -> tuple[re.Pattern[str], str | None]:
    """Return the pattern of a schema or table, and the only name that matches it, if any."""
    if text.startswith("`"):
        name = text[1:-1].replace("``", "`")
        return re.compile(re.escape(name) + r"\Z"), name
    return re.compile(translate(text)), None if _WILDCARD.search(text) else text
