"""What the generated columns of a table are computed from, and which DDL may change their values
(K23: whatever decides a value is followed).

Rules:
- A server recomputes generated columns when a column of their expression changes, and does not log
  that. Only the server can compute the new values: such a statement needs a new snapshot.
- A name counts as a column of an expression if it stands anywhere in its text, in a literal too. A
  name that can be written in several ways (quotes, other scripts) counts in every expression.
- STORED values are computed again by any ALTER TABLE that copies the table, in that statement's
  session. Only an expression whose functions depend on nothing but their arguments keeps its value
  (`is_steady`).
- Expressions may contain secrets: only column names are kept.

Source: MySQL 9.7 manual, 15.1.24.8 (generated columns), 15.1.11; MariaDB 10.11, "Generated (Virtual
and Persistent/Stored) Columns"; what both servers do was tried.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind

_WORD: Final = re.compile(r"[\w$]+")
_PLAIN_NAME: Final = re.compile(r"[\w$]+", re.ASCII)
_STEADY: Final = """
    and or not xor is null true false in between like div mod case when then else end if
    ifnull nullif coalesce concat length octet_length char_length character_length bit_length
    left right substr substring mid lower lcase upper ucase trim ltrim rtrim leading trailing
    both from reverse replace instr locate hex crc32 md5 sha sha1 sha2 abs sign floor ceil
    ceiling greatest least isnull json_extract json_unquote json_value json_length json_valid
    utf8mb4 _utf8mb4 utf8mb3 _utf8mb3 latin1 _latin1
"""
_STEADY_WORDS: Final = frozenset(_STEADY.split())
# A division rounds by div_precision_increment.
_UNSTEADY_MARKS: Final = re.compile(r"/(?!\*)|@")


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """`bases` are the columns that its expression may name, in lower case; `is_steady`: a DDL
    that changes none of them leaves its values as they are.
    """

    name: str
    bases: tuple[str, ...]
    is_steady: bool


def generated_column(
    name: str, expression: str, columns: Collection[Column], *, is_stored: bool
) -> GeneratedColumn:
    """`columns` are all of the table; `expression` is from a statement or the catalog."""
    words = {word.lower() for word in _WORD.findall(expression)}
    bases = [
        column
        for column in columns
        if column.name.lower() != name.lower()
        and (column.name.lower() in words or not _PLAIN_NAME.fullmatch(column.name))
    ]
    known = _STEADY_WORDS | {base.name.lower() for base in bases}
    is_steady = "default" not in words and (
        not is_stored
        or (
            all(word in known or word.isdecimal() for word in words)
            and not _UNSTEADY_MARKS.search(expression)
            and all(base.kind is not Kind.TIMESTAMP for base in bases)
        )
    )
    return GeneratedColumn(name, tuple(base.name.lower() for base in bases), is_steady)


def renamed(
    generated: Iterable[GeneratedColumn], names: Mapping[str, str]
) -> tuple[GeneratedColumn, ...]:
    """`names`: new name by the old one in lower case."""
    return tuple(
        replace(
            column,
            name=names.get(column.name.lower(), column.name),
            bases=tuple(names.get(base, base).lower() for base in column.bases),
        )
        for column in generated
    )


def looks_the_same(old: Column, new: Column) -> bool:
    """Whether every expression keeps its value after a column's definition became `new`."""
    # Expressions see more of texts, whose collation decides comparisons; of unsigned numbers, which
    # ZEROFILL pads; of FLOAT(m,d); of bytes, whose declared type shows.
    sees = old.type.expressions_see
    if old.kind is not new.kind or sees == "more":
        return False
    if sees == "signed sizes" and (old.unsigned or new.unsigned):
        return False
    return (old.precision, old.scale, old.bits) == (new.precision, new.scale, new.bits) and (
        old.fraction_digits == new.fraction_digits >= 0
    )
