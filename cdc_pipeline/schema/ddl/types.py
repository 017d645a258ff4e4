"""Type names of MySQL 9.7 and MariaDB 10.11 in column definitions.

Rules:
- The result equals what the table map of the same column says (K13: both are compared): synonyms,
  implied signs, default sizes, and text in charset ``binary``, which the server stores as bytes.
- A type's row of `binlog.column_types.TYPES` has its names and the syntax that follows them.
- For types that a table map reports as BINARY(n), the schema history says which columns have them.
- An unknown type is None: its statement stops, or the target waits for its first table map.

Source: MySQL 9.7 manual, chapter 13 and 13.9 (types of other products); MariaDB 10.11, "Data
types".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from cdc_pipeline.binlog.column_types import TYPES
from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.schema.ddl.tokens import TokenKind, TokenReader

# A DDL text has no wire type; nothing that decodes rows ever sees these columns.
_NO_WIRE: Final = -1


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A declared type.

    Attributes:
        column: name "", kind, sign, sizes, charset and labels; `wire_type` is -1: there is no wire.
        declared: the type's own name in upper case (``UUID``, ``SERIAL``, ``CHAR`` ...).
        is_char: CHAR(n), whose values have no trailing blanks.
        zerofill: numbers are shown with leading zeros; their values are the same.
    """

    column: Column
    declared: str
    is_char: bool = False
    zerofill: bool = False


def read_type(tokens: TokenReader) -> DeclaredType | None:
    """Pass over a type with its size, sign and charset; None if it is unknown (the reader may have
    moved)."""
    if tokens.peek().key in ("MARIADB_SCHEMA", "ORACLE_SCHEMA") and tokens.peek(1).key == ".":
        oracle = tokens.peek().key == "ORACLE_SCHEMA"
        tokens.next()
        tokens.next()
    else:
        oracle = tokens.modes.oracle
    if tokens.peek().kind is not TokenKind.WORD:
        return None
    name = tokens.next().key
    if oracle:
        name = _oracle_name(tokens, name)
    found = _types_by_name(tokens.is_mariadb).get(name)
    if found is None:
        return None
    kind, syntax = found
    return SYNTAXES[syntax](tokens, name, kind)


@cache
def _types_by_name(is_mariadb: bool) -> dict[str, tuple[Kind, str]]:
    """Kind and syntax of each type name of a server."""
    flavor = "mariadb" if is_mariadb else "mysql"
    return {
        name.name: (kind, name.syntax)
        for kind, spec in TYPES.items()
        for name in spec.ddl
        if name.flavor in ("", flavor)
    }


@cache
def sized_names() -> frozenset[str]:
    """Return the type names after which numbers in parentheses are sizes."""
    return frozenset(
        name.name for spec in TYPES.values() for name in spec.ddl if name.syntax in _SIZED_SYNTAXES
    )


def _column(kind: Kind, **sizes: object) -> Column:
    column = Column(name="", kind=kind, wire_type=_NO_WIRE, wire_meta=0, nullable=True)
    return replace(column, **sizes)  # type: ignore[arg-type]


def _numbers(tokens: TokenReader) -> list[int] | None:
    """``(n)`` or ``(n, m)``; [] if there is none here, None if it is anything else."""
    if not tokens.take("("):
        return []
    numbers: list[int] = []
    while True:
        token = tokens.next()
        if token.kind is not TokenKind.NUMBER or not token.text.isdigit():
            return None
        numbers.append(int(token.text))
        if tokens.take(")"):
            return numbers
        if not tokens.take(","):
            return None


def _sign(tokens: TokenReader) -> tuple[bool, bool]:
    """SIGNED, UNSIGNED, ZEROFILL in any order: (unsigned, zerofill); ZEROFILL implies UNSIGNED."""
    unsigned = zerofill = False
    while word := tokens.take_any("SIGNED", "UNSIGNED", "ZEROFILL"):
        unsigned |= word == "UNSIGNED"
        zerofill |= word == "ZEROFILL"
    return unsigned or zerofill, zerofill


def _oracle_name(tokens: TokenReader, name: str) -> str:
    """MariaDB's sql_mode=ORACLE: its names for MariaDB's types."""
    if name == "NUMBER":
        return "DECIMAL" if tokens.at("(") else "DOUBLE"
    return {
        "DATE": "DATETIME",
        "VARCHAR2": "VARCHAR",
        "CLOB": "LONGTEXT",
        "RAW": "VARBINARY",
        "BLOB": "LONGBLOB",
    }.get(name, name)


def _integer(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    if _numbers(tokens) is None:
        return None
    unsigned, zerofill = _sign(tokens)
    return DeclaredType(
        _column(kind, unsigned=unsigned or name == "SERIAL"), name, zerofill=zerofill
    )


def _decimal(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    sizes = _numbers(tokens)
    if sizes is None or len(sizes) > 2:
        return None
    unsigned, zerofill = _sign(tokens)
    precision = (sizes[0] if sizes else 0) or 10
    scale = sizes[1] if len(sizes) == 2 else 0
    return DeclaredType(
        _column(kind, unsigned=unsigned, precision=precision, scale=scale), name, zerofill=zerofill
    )


def _real(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    tokens.take("PRECISION")
    sizes = _numbers(tokens)
    if sizes is None:
        return None
    unsigned, zerofill = _sign(tokens)
    if name == "REAL" and tokens.modes.real_as_float:
        kind = Kind.FLOAT
    elif name == "FLOAT" and len(sizes) == 1 and sizes[0] > 24:
        kind = Kind.DOUBLE
    return DeclaredType(_column(kind, unsigned=unsigned), name, zerofill=zerofill)


def _bit(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    sizes = _numbers(tokens)
    return (
        None
        if sizes is None
        else DeclaredType(_column(kind, bits=(sizes[0] if sizes else 0) or 1), name)
    )


def _year(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    if _numbers(tokens) is None:
        return None
    _sign(tokens)
    return DeclaredType(_column(kind, unsigned=True), name)


def _plain(_tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    return DeclaredType(_column(kind), name)


def _fixed_bytes(_tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    return DeclaredType(_column(kind, pad_bytes=TYPES[kind].fixed_bytes), name)


def _fraction(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    sizes = _numbers(tokens)
    if sizes is None or len(sizes) > 1 or (sizes and sizes[0] > 6):
        return None
    return DeclaredType(_column(kind, fraction_digits=sizes[0] if sizes else 0), name)


def _vector(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    return None if _numbers(tokens) is None else DeclaredType(_column(kind), name)


def _char(
    tokens: TokenReader, name: str, kind: Kind, *, national: bool = False
) -> DeclaredType | None:
    is_char = not tokens.take_any("VARYING", "VARCHAR", "VARCHARACTER")
    return _varchar(tokens, name, kind, national=national, is_char=is_char)


def _varchar(
    tokens: TokenReader, name: str, kind: Kind, *, national: bool = False, is_char: bool = False
) -> DeclaredType | None:
    sizes = _numbers(tokens)
    if sizes is None or len(sizes) > 1:
        return None
    take_compressed(tokens)
    size = sizes[0] if sizes else (1 if is_char else 0)
    if name.endswith("TEXT"):
        size = 0  # TEXT(n) is the smallest TEXT that holds n
    charset = _charset(tokens) or ("utf8mb3" if national else "")
    column = _column(kind, char_length_max=size, charset=charset)
    return DeclaredType(bytes_of_text(column, is_char=is_char), name, is_char=is_char)


def _national(tokens: TokenReader, _name: str, kind: Kind) -> DeclaredType | None:
    """``NATIONAL CHAR``, ``NATIONAL VARCHAR`` and their like."""
    if not tokens.at_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER"):
        return None
    name = tokens.next().key
    return (_char if name in ("CHAR", "CHARACTER") else _varchar)(tokens, name, kind, national=True)


def _long(tokens: TokenReader, _name: str, kind: Kind) -> DeclaredType | None:
    """``LONG [VARCHAR | CHAR VARYING | VARBINARY]``: a MEDIUMTEXT or MEDIUMBLOB."""
    if tokens.take("VARBINARY"):
        return DeclaredType(_column(Kind.BINARY), "MEDIUMBLOB")
    if tokens.take_any("CHAR", "CHARACTER"):
        tokens.take("VARYING")
    else:
        tokens.take_any("VARCHAR", "VARCHARACTER")
    return _varchar(tokens, "MEDIUMTEXT", kind)


def _utf8_text(_tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    return DeclaredType(_column(kind, charset="utf8mb4"), name)


def take_compressed(tokens: TokenReader) -> bool:
    """Pass over MariaDB's ``COMPRESSED [= method]``, which changes no value."""
    if not tokens.is_mariadb or not tokens.take("COMPRESSED"):
        return False
    if tokens.take("="):
        tokens.next()
    return True


def bytes_of_text(column: Column, *, is_char: bool) -> Column:
    """A TEXT column as it is stored: bytes if its charset is ``binary``; CHAR(n) then becomes
    BINARY(n)."""
    if column.kind is not Kind.TEXT or column.charset != "binary":
        return column
    return replace(
        column, kind=Kind.BINARY, charset="", pad_bytes=column.char_length_max if is_char else 0
    )


def _charset(tokens: TokenReader) -> str:
    """Pass over charset attributes directly after a text type; "" if none names one."""
    charset = ""
    while True:
        if tokens.take("BYTE"):
            charset = "binary"
        elif tokens.take("ASCII"):
            charset = "latin1"
        elif tokens.take("UNICODE"):
            charset = "ucs2"
        elif tokens.take("BINARY"):  # the charset's binary collation: still text
            continue
        elif (
            tokens.take("CHARSET") or tokens.take("CHARACTER", "SET") or tokens.take("CHAR", "SET")
        ):
            charset = (tokens.name_or_string() or "").lower()
        elif tokens.take("COLLATE"):
            collation = tokens.name_or_string() or ""
            charset = charset or charset_of_collation(collation)
        else:
            return charset


def charset_of_collation(collation: str) -> str:
    """``latin1_swedish_ci`` -> ``latin1``; ``binary`` is both."""
    return collation.lower().split("_", 1)[0]


def _labels(tokens: TokenReader) -> tuple[str, ...] | None:
    if not tokens.take("("):
        return None
    labels: list[str] = []
    while True:
        label = tokens.string()
        if label is None:
            return None
        labels.append(label.rstrip(" "))  # the server strips them too
        if tokens.take(")"):
            return tuple(labels)
        if not tokens.take(","):
            return None


def _labelled(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    labels = _labels(tokens)
    if labels is None:
        return None
    return DeclaredType(_column(kind, labels=labels, charset=_charset(tokens)), name)


def _padded_bytes(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    sizes = _numbers(tokens)
    return (
        None
        if sizes is None
        else DeclaredType(_column(kind, pad_bytes=sizes[0] if sizes else 1), name)
    )


def _bytes(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    sizes = _numbers(tokens)
    return (
        None
        if sizes is None
        else DeclaredType(_column(kind, char_length_max=sizes[0] if sizes else 0), name)
    )


def _blob(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType | None:
    # BLOB(n) is the smallest BLOB that holds n.
    return None if _numbers(tokens) is None else DeclaredType(_column(kind), name)


# By `DdlName.syntax`: each gets the type's name and kind and passes over what belongs to the type.
SYNTAXES: Final[dict[str, Callable[[TokenReader, str, Kind], DeclaredType | None]]] = {
    "integer": _integer,
    "decimal": _decimal,
    "real": _real,
    "bit": _bit,
    "year": _year,
    "plain": _plain,
    "fixed_bytes": _fixed_bytes,
    "fraction": _fraction,
    "vector": _vector,
    "char": _char,
    "national_char": partial(_char, national=True),
    "varchar": _varchar,
    "national_varchar": partial(_varchar, national=True),
    "national": _national,
    "text": _varchar,
    "long": _long,
    "utf8_text": _utf8_text,
    "labels": _labelled,
    "padded_bytes": _padded_bytes,
    "bytes": _bytes,
    "blob": _blob,
}
_SIZED_SYNTAXES: Final = frozenset(
    {
        "integer",
        "decimal",
        "real",
        "bit",
        "year",
        "fraction",
        "vector",
        "char",
        "national_char",
        "varchar",
        "national_varchar",
        "text",
        "padded_bytes",
        "bytes",
        "blob",
    }
)
