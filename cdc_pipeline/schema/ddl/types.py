"""Type names of MySQL 9.7 and MariaDB 10.11 in column definitions.

Rules:
- The answer equals what the table map of the same column says (K13): synonyms, implied signs, default sizes, and text
  in charset ``binary``, which the server stores as bytes.
- MariaDB's UUID, INET4 and INET6 have kinds of their own; a table map, to which they are BINARY(n), is told by the
  schema history which of its columns they are.
- A type that is not known is None: its statement stops, or the target waits for its first table map.

Source: MySQL 9.7 manual, chapter 13 and 13.9 (types of other products); MariaDB 10.11, "Data types".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.schema.ddl.tokens import TokenKind, TokenReader

# A DDL text has no wire type; nothing that decodes rows ever sees these columns.
_NO_WIRE: Final = -1

_INTEGERS: Final[dict[str, Kind]] = {
    "TINYINT": Kind.INT8, "INT1": Kind.INT8, "BOOL": Kind.INT8, "BOOLEAN": Kind.INT8,
    "SMALLINT": Kind.INT16, "INT2": Kind.INT16,
    "MEDIUMINT": Kind.INT24, "INT3": Kind.INT24, "MIDDLEINT": Kind.INT24,
    "INT": Kind.INT32, "INTEGER": Kind.INT32, "INT4": Kind.INT32,
    "BIGINT": Kind.INT64, "INT8": Kind.INT64, "SERIAL": Kind.INT64,
}  # fmt: skip
_DECIMALS: Final = frozenset({"DECIMAL", "DEC", "NUMERIC", "FIXED"})
_TEXTS: Final = frozenset(
    {"CHAR", "CHARACTER", "NCHAR", "VARCHAR", "NVARCHAR", "VARCHARACTER", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"}
)
_BYTES: Final = frozenset({"VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"})
_GEOMETRIES: Final = frozenset(
    {"GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
     "GEOMETRYCOLLECTION", "GEOMCOLLECTION"}
)  # fmt: skip
_FIXED_BYTES: Final = {"UUID": 16, "INET6": 16, "INET4": 4}
_TEMPORALS: Final = {"DATETIME": Kind.DATETIME, "TIMESTAMP": Kind.TIMESTAMP, "TIME": Kind.TIME}


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A type as it is declared.

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
    """Pass over a type with its size, sign and charset; None where it is not known (the reader may have moved)."""
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
    return _numeric(tokens, name) or _temporal(tokens, name) or _textual(tokens, name) or _other(tokens, name)


def _column(kind: Kind, **sizes: object) -> Column:
    return replace(Column(name="", kind=kind, wire_type=_NO_WIRE, wire_meta=0, nullable=True), **sizes)  # type: ignore[arg-type]


def _numbers(tokens: TokenReader) -> list[int] | None:
    """``(n)`` or ``(n, m)``; [] where none stands here, None where it is anything else."""
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
    return {"DATE": "DATETIME", "VARCHAR2": "VARCHAR", "CLOB": "LONGTEXT", "RAW": "VARBINARY", "BLOB": "LONGBLOB"}.get(
        name, name
    )


def _numeric(tokens: TokenReader, name: str) -> DeclaredType | None:
    if name in _INTEGERS:
        if _numbers(tokens) is None:
            return None
        unsigned, zerofill = _sign(tokens)
        return DeclaredType(_column(_INTEGERS[name], unsigned=unsigned or name == "SERIAL"), name, zerofill=zerofill)
    if name in _DECIMALS:
        sizes = _numbers(tokens)
        if sizes is None or len(sizes) > 2:
            return None
        unsigned, zerofill = _sign(tokens)
        precision = (sizes[0] if sizes else 0) or 10
        scale = sizes[1] if len(sizes) == 2 else 0
        column = _column(Kind.DECIMAL, unsigned=unsigned, precision=precision, scale=scale)
        return DeclaredType(column, name, zerofill=zerofill)
    if name in ("FLOAT", "FLOAT4", "DOUBLE", "FLOAT8", "REAL"):
        tokens.take("PRECISION")
        sizes = _numbers(tokens)
        if sizes is None:
            return None
        unsigned, zerofill = _sign(tokens)
        single = (name.startswith("FLOAT") and name != "FLOAT8") or (name == "REAL" and tokens.modes.real_as_float)
        if name == "FLOAT" and len(sizes) == 1 and sizes[0] > 24:
            single = False
        return DeclaredType(_column(Kind.FLOAT if single else Kind.DOUBLE, unsigned=unsigned), name, zerofill=zerofill)
    if name == "BIT":
        sizes = _numbers(tokens)
        return None if sizes is None else DeclaredType(_column(Kind.BIT, bits=(sizes[0] if sizes else 0) or 1), name)
    if name == "YEAR":
        if _numbers(tokens) is None:
            return None
        _sign(tokens)
        return DeclaredType(_column(Kind.YEAR, unsigned=True), name)
    return None


def _temporal(tokens: TokenReader, name: str) -> DeclaredType | None:
    if name == "DATE":
        return DeclaredType(_column(Kind.DATE), name)
    if name not in _TEMPORALS:
        return None
    sizes = _numbers(tokens)
    if sizes is None or len(sizes) > 1 or (sizes and sizes[0] > 6):
        return None
    return DeclaredType(_column(_TEMPORALS[name], fraction_digits=sizes[0] if sizes else 0), name)


def _textual(tokens: TokenReader, name: str) -> DeclaredType | None:
    national = name in ("NATIONAL", "NCHAR", "NVARCHAR")
    if name == "NATIONAL":
        if not tokens.at_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER"):
            return None
        name = tokens.next().key
    if name == "LONG":  # LONG [VARCHAR | CHAR VARYING | VARBINARY]: a MEDIUMTEXT or MEDIUMBLOB
        if tokens.take("VARBINARY"):
            return DeclaredType(_column(Kind.BINARY), "MEDIUMBLOB")
        if tokens.take_any("CHAR", "CHARACTER"):
            tokens.take("VARYING")
        else:
            tokens.take_any("VARCHAR", "VARCHARACTER")
        name = "MEDIUMTEXT"
    if name not in _TEXTS:
        return None
    is_char = name in ("CHAR", "CHARACTER", "NCHAR")
    if is_char and tokens.take_any("VARYING", "VARCHAR", "VARCHARACTER"):
        is_char = False
    sizes = _numbers(tokens)
    if sizes is None or len(sizes) > 1:
        return None
    take_compressed(tokens)
    size = sizes[0] if sizes else (1 if is_char else 0)
    if name.endswith("TEXT"):
        size = 0  # TEXT(n) is the smallest TEXT that holds n
    charset = _charset(tokens) or ("utf8mb3" if national else "")
    column = _column(Kind.TEXT, char_length_max=size, charset=charset)
    return DeclaredType(bytes_of_text(column, is_char=is_char), name, is_char=is_char)


def take_compressed(tokens: TokenReader) -> bool:
    """Pass over MariaDB's ``COMPRESSED [= method]``, which changes no value."""
    if not tokens.is_mariadb or not tokens.take("COMPRESSED"):
        return False
    if tokens.take("="):
        tokens.next()
    return True


def bytes_of_text(column: Column, *, is_char: bool) -> Column:
    """A TEXT column as it is stored: bytes where its charset is ``binary``; CHAR(n) then becomes BINARY(n)."""
    if column.kind is not Kind.TEXT or column.charset != "binary":
        return column
    return replace(column, kind=Kind.BINARY, charset="", pad_bytes=column.char_length_max if is_char else 0)


def _charset(tokens: TokenReader) -> str:
    """Charset attributes directly behind a text type; "" where none tells it."""
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
        elif tokens.take("CHARSET") or tokens.take("CHARACTER", "SET") or tokens.take("CHAR", "SET"):
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


def _other(tokens: TokenReader, name: str) -> DeclaredType | None:
    if name in ("ENUM", "SET"):
        labels = _labels(tokens)
        if labels is None:
            return None
        kind = Kind.ENUM if name == "ENUM" else Kind.SET
        return DeclaredType(_column(kind, labels=labels, charset=_charset(tokens)), name)
    if name == "BINARY":
        sizes = _numbers(tokens)
        if sizes is None:
            return None
        return DeclaredType(_column(Kind.BINARY, pad_bytes=sizes[0] if sizes else 1), name)
    if name in _BYTES:
        sizes = _numbers(tokens)
        if sizes is None:
            return None
        size = sizes[0] if sizes and name == "VARBINARY" else 0  # BLOB(n) is the smallest BLOB that holds n
        return DeclaredType(_column(Kind.BINARY, char_length_max=size), name)
    if name == "JSON":
        # MariaDB's JSON is a LONGTEXT.
        column = _column(Kind.TEXT, charset="utf8mb4") if tokens.is_mariadb else _column(Kind.JSON)
        return DeclaredType(column, name)
    if name in _GEOMETRIES:
        return DeclaredType(_column(Kind.GEOMETRY), name)
    if name == "VECTOR" and not tokens.is_mariadb:
        return None if _numbers(tokens) is None else DeclaredType(_column(Kind.VECTOR), name)
    if name in _FIXED_BYTES and tokens.is_mariadb:
        return DeclaredType(_column(Kind(name.lower()), pad_bytes=_FIXED_BYTES[name]), name)
    return None
