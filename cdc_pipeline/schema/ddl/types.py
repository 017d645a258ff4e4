"""Type names of MySQL 9.7 and MariaDB 10.11 in column definitions.

Rules:
- The result equals what the table map of the same column says (K13: both are compared): synonyms,
  implied signs, default sizes, and text in charset ``binary``, which the server stores as bytes.
- A type's row of `binlog.column_types.TYPES` has its names and the syntax that follows them.
- For types that a table map reports as BINARY(n), the schema history says which columns have them.
- An unknown type is `Uncertain`: its statement stops, or the target waits for its first table map.

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
from cdc_pipeline.errors import SchemaError, UnrepresentableValueError
from cdc_pipeline.schema.ddl.options import NamedCharset, take_charset
from cdc_pipeline.schema.ddl.tokens import TokenKind, TokenReader, certain

# A DDL text has no wire type; nothing that decodes rows ever sees these columns.
_NO_WIRE: Final = -1


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A declared type.

    `column` has kind, sign, sizes, charset and labels; no name, and `wire_type` -1: there is no
    wire. `declared` is the type's own name in upper case (``UUID``, ``SERIAL``, ``CHAR`` ...).
    `is_char`: CHAR(n), whose values have no trailing blanks. `sizes` are the numbers behind the
    name of a real, a TEXT or a BLOB.
    """

    column: Column
    declared: str
    is_char: bool = False
    sizes: tuple[int, ...] = ()


def read_type(tokens: TokenReader) -> DeclaredType:
    """With its size, sign and charset. Raises Uncertain: it is unknown."""
    names = _names_of(tokens)
    certain(tokens.peek().kind is TokenKind.WORD)
    name = tokens.next().key
    name = names.get(name, name)
    if name == "NUMBER":
        name = "DECIMAL" if tokens.at("(") else "DOUBLE"
    kind, syntax = certain(_types_by_name(tokens.is_mariadb).get(name))
    return SYNTAXES[syntax](tokens, name, kind)


@cache
def _types_by_name(is_mariadb: bool) -> dict[str, tuple[Kind, str]]:
    flavor = "mariadb" if is_mariadb else "mysql"
    return {
        name.name: (kind, name.syntax)
        for kind, spec in TYPES.items()
        for name in spec.ddl
        if name.flavor in ("", flavor)
    }


@cache
def sized_names() -> frozenset[str]:
    """The words after which numbers in parentheses are sizes of a type."""
    names = {
        name.name for spec in TYPES.values() for name in spec.ddl if name.syntax in _SIZED_SYNTAXES
    }
    return frozenset(names | _ORACLE_NAMES.keys() | {"PRECISION", "VARYING"})


def _column(kind: Kind, **sizes: object) -> Column:
    column = Column(name="", kind=kind, wire_type=_NO_WIRE, wire_meta=0, nullable=True)
    return replace(column, **sizes)  # type: ignore[arg-type]


def _numbers(tokens: TokenReader) -> tuple[int, ...]:
    """``(n)``, ``(n, m)``; () if there is none. ``(7.4)`` is ``(7)``. Raises Uncertain."""
    if not tokens.take("("):
        return ()
    numbers: list[int] = []
    while True:
        token = tokens.next()
        whole, _, fraction = token.text.partition(".")
        certain(token.kind is TokenKind.NUMBER and (whole + fraction).isdigit())
        numbers.append(int(whole or "0"))
        if tokens.take(")"):
            return tuple(numbers)
        certain(tokens.take(","))


def _size(tokens: TokenReader, *, without: int) -> int:
    """The first number; `without` if there is none."""
    numbers = _numbers(tokens)
    return numbers[0] if numbers else without


def _sign(tokens: TokenReader) -> bool:
    """SIGNED, UNSIGNED, ZEROFILL in any order; ZEROFILL implies UNSIGNED."""
    unsigned = False
    while word := tokens.take_any("SIGNED", "UNSIGNED", "ZEROFILL"):
        unsigned |= word != "SIGNED"
    return unsigned


# Names of types in other products' modes, and with `oracle_schema.` in front.
_ORACLE_NAMES: Final = {
    "DATE": "DATETIME",
    "VARCHAR2": "VARCHAR",
    "CLOB": "LONGTEXT",
    "RAW": "VARBINARY",
    "BLOB": "LONGBLOB",
    "NUMBER": "NUMBER",  # DECIMAL or DOUBLE
}
_MAXDB_NAMES: Final = {"TIMESTAMP": "DATETIME"}
_SCHEMAS: Final[dict[str, dict[str, str]]] = {
    "mariadb_schema": {},
    "oracle_schema": _ORACLE_NAMES,
    "maxdb_schema": _MAXDB_NAMES,
}


def _names_of(tokens: TokenReader) -> dict[str, str]:
    """The product whose names of types hold, if it is written, else the session's."""
    if tokens.peek(1).key == "." and tokens.peek().text.lower() in _SCHEMAS:
        schema = tokens.next().text.lower()
        tokens.next()
        return _SCHEMAS[schema]
    if tokens.modes.oracle:
        return _ORACLE_NAMES
    return _MAXDB_NAMES if tokens.modes.maxdb else {}


def _integer(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    _numbers(tokens)
    return DeclaredType(_column(kind, unsigned=_sign(tokens) or name == "SERIAL"), name)


def _decimal(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    sizes = _numbers(tokens)
    certain(len(sizes) <= 2)
    precision = (sizes[0] if sizes else 0) or 10
    scale = sizes[1] if len(sizes) == 2 else 0
    return DeclaredType(
        _column(kind, unsigned=_sign(tokens), precision=precision, scale=scale), name
    )


def _real(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    tokens.take("PRECISION")
    sizes = _numbers(tokens)
    if name == "REAL" and tokens.modes.real_as_float:
        kind = Kind.FLOAT
    elif name == "FLOAT" and len(sizes) == 1 and sizes[0] > 24:
        kind = Kind.DOUBLE
    return DeclaredType(_column(kind, unsigned=_sign(tokens)), name, sizes=sizes)


def _bit(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    return DeclaredType(_column(kind, bits=_size(tokens, without=0) or 1), name)


def _year(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    _numbers(tokens)
    _sign(tokens)
    return DeclaredType(_column(kind, unsigned=True), name)


def _plain(_tokens: TokenReader, name: str, kind: Kind, *, charset: str = "") -> DeclaredType:
    return DeclaredType(_column(kind, charset=charset), name)


def _fixed_bytes(_tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    return DeclaredType(_column(kind, pad_bytes=TYPES[kind].fixed_bytes), name)


def _fraction(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    sizes = _numbers(tokens) or (0,)
    certain(len(sizes) == 1 and sizes[0] <= 6)
    return DeclaredType(_column(kind, fraction_digits=sizes[0]), name)


def _vector(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    _numbers(tokens)
    return DeclaredType(_column(kind), name)


def _char(tokens: TokenReader, name: str, kind: Kind, *, national: bool = False) -> DeclaredType:
    is_char = not tokens.take_any("VARYING", "VARCHAR", "VARCHARACTER")
    return _varchar(tokens, name, kind, national=national, is_char=is_char)


def _varchar(
    tokens: TokenReader, name: str, kind: Kind, *, national: bool = False, is_char: bool = False
) -> DeclaredType:
    sizes = _numbers(tokens)
    certain(len(sizes) <= 1)
    take_compressed(tokens)
    size = sizes[0] if sizes else (1 if is_char else 0)
    if name.endswith("TEXT"):
        size = 0  # TEXT(n) is the smallest TEXT that holds n
    column = _column(kind, char_length_max=size, charset="utf8mb3" if national else "")
    return _with_charset(tokens, DeclaredType(column, name, is_char, sizes))


def _national(tokens: TokenReader, _name: str, kind: Kind) -> DeclaredType:
    certain(tokens.at_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER"))
    name = tokens.next().key
    return (_char if name in ("CHAR", "CHARACTER") else _varchar)(tokens, name, kind, national=True)


def _long(tokens: TokenReader, _name: str, kind: Kind) -> DeclaredType:
    """``LONG [VARCHAR | CHAR VARYING | VARBINARY]``: a MEDIUMTEXT or MEDIUMBLOB."""
    if tokens.take("VARBINARY"):
        return DeclaredType(_column(Kind.BINARY), "MEDIUMBLOB")
    if not (tokens.take("CHAR", "VARYING") or tokens.take("CHARACTER", "VARYING")):
        tokens.take_any("VARCHAR", "VARCHARACTER")
    return _varchar(tokens, "MEDIUMTEXT", kind)


def take_compressed(tokens: TokenReader) -> bool:
    """Pass over MariaDB's ``COMPRESSED [= method]``, which changes no value."""
    if not tokens.is_mariadb or not tokens.take("COMPRESSED"):
        return False
    if tokens.take("="):
        tokens.next()
    return True


def in_charset(column: Column, charset: str, *, is_char: bool, is_mariadb: bool) -> Column:
    """A column as it is stored, in the charset that holds where it has none of its own: text in
    charset ``binary`` is bytes, CHAR(n) then BINARY(n); labels that are written as bytes become
    text.
    """
    if not column.type.has_charset:
        return column
    column = replace(column, charset=column.charset or charset)
    if column.kind is Kind.TEXT and column.charset == "binary":
        pad_bytes = column.char_length_max if is_char else 0
        return replace(column, kind=Kind.BINARY, charset="", pad_bytes=pad_bytes)
    if column.charset and any(map(_is_bytes, column.labels)):
        labels = tuple(
            _text(label, column.charset, is_mariadb=is_mariadb) for label in column.labels
        )
        return replace(column, labels=labels)
    return column


def _with_charset(tokens: TokenReader, declared: DeclaredType) -> DeclaredType:
    """Charset attributes directly after a text type."""
    charset = NamedCharset()
    while True:
        if tokens.take("BYTE"):
            named = NamedCharset("binary")
        elif tokens.take("ASCII"):
            named = NamedCharset("latin1")
        elif tokens.take("UNICODE"):
            named = NamedCharset("ucs2")
        elif tokens.take("BINARY"):  # the charset's binary collation: still text
            continue
        elif (named_charset := take_charset(tokens)) is not None:
            named = named_charset
        else:
            break
        charset = charset.then(named)
    column = replace(declared.column, charset=charset.name or declared.column.charset)
    return replace(
        declared,
        column=in_charset(column, "", is_char=declared.is_char, is_mariadb=tokens.is_mariadb),
    )


# A label that is written as bytes, until its charset is known: lone surrogates, one for a byte.
_BYTE: Final = 0xDC00
# Charsets in whose characters the servers put zero bytes in front of missing ones.
_UNITS_BYTES: Final = {"ucs2": 2, "utf16": 2, "utf32": 4}


def _is_bytes(label: str) -> bool:
    return any(_BYTE <= ord(character) < _BYTE + 256 for character in label)


def are_known(labels: tuple[str, ...]) -> bool:
    return not any(map(_is_bytes, labels))


def _text(label: str, charset: str, *, is_mariadb: bool) -> str:
    """It stays as it is if the charset does not say what its bytes are."""
    if not _is_bytes(label):
        return label
    # With numba, which few statements need.
    from cdc_pipeline.binlog.tables.charsets import decode_label

    try:
        raw = bytes(ord(character) - _BYTE for character in label)
        raw = bytes(-len(raw) % _UNITS_BYTES.get(charset, 1)) + raw
        return decode_label(raw, charset, is_mariadb=is_mariadb).rstrip(" ")
    except (SchemaError, UnrepresentableValueError):
        return label


def _label(tokens: TokenReader) -> str:
    token = tokens.peek()
    if token.kind in (TokenKind.HEX, TokenKind.BITS):
        tokens.next()
        base = 16 if token.kind is TokenKind.HEX else 2
        length = (len(token.text) * (4 if base == 16 else 1) + 7) // 8
        raw = int(token.text or "0", base).to_bytes(length, "big")
        return "".join(chr(_BYTE + byte) for byte in raw)
    return certain(tokens.string()).rstrip(" ")  # the server strips them too


def _labelled(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    certain(tokens.take("("))
    labels = [_label(tokens)]
    while not tokens.take(")"):
        certain(tokens.take(","))
        labels.append(_label(tokens))
    return _with_charset(tokens, DeclaredType(_column(kind, labels=tuple(labels)), name))


def _padded_bytes(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    return DeclaredType(_column(kind, pad_bytes=_size(tokens, without=1)), name)


def _bytes(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    return DeclaredType(_column(kind, char_length_max=_size(tokens, without=0)), name)


def _blob(tokens: TokenReader, name: str, kind: Kind) -> DeclaredType:
    # BLOB(n) is the smallest BLOB that holds n.
    return DeclaredType(_column(kind), name, sizes=_numbers(tokens))


# By `DdlName.syntax`: each gets the type's name and kind and passes over what belongs to the type.
SYNTAXES: Final[dict[str, Callable[[TokenReader, str, Kind], DeclaredType]]] = {
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
    "utf8_text": partial(_plain, charset="utf8mb4"),
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
