"""The column types: one row for each source type, with all that the pipeline must know of it.

Rules:
- A new type is a row of `TYPES`. A room asks the row (`column.type`); it lists no types itself.
  Rules that belong to one type alone, such as TIMESTAMP's NULL, stand where they are applied.
- Code is named here and stands in its room: the decoder of a type in `rows/columns.py`, its form in
  a result set in `rows/result_columns.py`, its reading in DDL in `schema/ddl/types.py`, its
  defaults in `schema/evolution/backfill.py`.
- A test takes the table and asks every room about every type.
- The Arrow type follows from the Delta type (`arrow_types`). docs/reference/types.md is made from
  this table (``make docs``).

docs/inside/extending.md walks through a new type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from cdc_pipeline.binlog.wire_types import WireType
from cdc_pipeline.errors import SchemaError

DECIMAL_DIGITS_MAX: Final = 38  # of decimal128, of Spark and of Delta; wider ones travel as text

_W = WireType
# What a server announces of a column that it sends as bytes with their length in front.
_BYTES: Final = (
    _W.VARCHAR,
    _W.TINY_BLOB,
    _W.MEDIUM_BLOB,
    _W.LONG_BLOB,
    _W.BLOB,
    _W.VAR_STRING,
    _W.STRING,
)


class Kind(StrEnum):
    """The source type of a column, as errors and the recorded schemas name it."""

    INT8 = "tinyint"
    INT16 = "smallint"
    INT24 = "mediumint"
    INT32 = "int"
    INT64 = "bigint"
    BIT = "bit"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    YEAR = "year"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    TEXT = "text"  # CHAR, VARCHAR, TINYTEXT ... LONGTEXT: text in `charset`
    BINARY = "binary"  # BINARY, VARBINARY, BLOBs: bytes; `pad_bytes` for BINARY(n)
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    GEOMETRY = "geometry"
    VECTOR = "vector"
    UUID = "uuid"  # MariaDB's; on the wire BINARY(16): a table map does not identify these three
    INET4 = "inet4"  # BINARY(4)
    INET6 = "inet6"  # BINARY(16)


@dataclass(frozen=True, slots=True)
class Column:
    """One column in the binlog.

    Attributes:
        name: column name.
        kind: source type.
        wire_type: type code of the table map (MYSQL_TYPE_*), with ENUM, SET and long CHAR unwrapped
            from STRING.
        wire_meta: the type's metadata word in the row decoder's form (for VARCHAR the maximum
            bytes; for BLOB, JSON and GEOMETRY the count of length bytes, for the "2" temporal types
            the fraction digits, for BIT the bits, for STRING the maximum bytes, for ENUM and SET
            the count of pack bytes, for NEWDECIMAL precision << 8 | scale).
        nullable: from the null bits of the table map.
        unsigned: from SIGNEDNESS; False for types without a sign.
        charset: server charset name for TEXT, ENUM and SET (``utf8mb4``, ``latin1`` ...), "" for
            others.
        labels: labels of ENUM and SET, decoded to text; index 0 is the first label.
        precision, scale: of DECIMAL.
        fraction_digits: of DATETIME, TIMESTAMP and TIME, 0 to 6; -1 if only the catalog knows them
            (a table map of MariaDB's old temporal format).
        bits: of BIT, 1 to 64.
        pad_bytes: n of BINARY(n), to which values are padded with zero bytes; 0 for others.
        char_length_max: declared length in characters or bytes if the wire has it, else 0.
        visible: False for invisible columns, including generated invisible primary keys.
        masked: the mask of the values, as written by `targets/masks.py`; "" for plain
            values. The other attributes still describe the source's column.
    """

    name: str
    kind: Kind
    wire_type: int
    wire_meta: int
    nullable: bool
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
    fraction_digits: int = 0
    bits: int = 0
    pad_bytes: int = 0
    char_length_max: int = 0
    visible: bool = True
    masked: str = ""

    @property
    def type(self) -> TypeSpec:
        return TYPES[self.kind]


class Example(NamedTuple):
    """A definition and the Delta type that it gets; `flavor` if only one server has it."""

    definition: str
    delta: str
    flavor: str = ""


class DdlName(NamedTuple):
    """A name of a type in DDL, and how what stands behind it is read (`schema/ddl/types.py`).

    `flavor` if only one server means this type by it.
    """

    name: str
    syntax: str
    flavor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSpec:
    """One source type.

    Attributes:
        source: the type as docs/reference/types.md names it, with `note` for what the values
            become, and `delta_note` where the Delta types of the examples do not say it all.
        examples: definitions. Tests ask servers and rooms about each.
        flavor: "mysql" or "mariadb" if only one server has the type; "" for both.
        ddl: its names in definitions.
        wire: its codes in table maps, today's first. Empty for text and bytes, which share theirs
            and are told apart by the collation, and for what a table map calls BINARY(n): then
            `fixed_bytes` is n.
        decoder: what makes Arrow values of it, in `rows/columns_tiled.py` or `rows/columns.py`.
        result: how a SELECT's values of it are rewritten for the decoder; `announced` are the codes
            that a server may announce for it.
        delta: the Delta (Spark DDL) type of a column, in lower case without blanks.
        not_held: why Delta has no such value, and it is rescued; "" if Delta holds all values.
            ``{charset}`` is the column's.
        not_held_text: what stands for it: the bytes as hex, or the server's own text of a moment or
            a document.
        is_date: `zero_dates`, and not `on_invalid_value`, says what becomes of such values.
        default: how a constant default and the implicit default of NOT NULL are written for Delta.
        change: what decides how MODIFY to a similar type changes the values; "fixed": every
            definition of the type has the same values; "unknown": always a reload.
        text_chars_max: of values that are text in the lake and become the same text in a text
            column: characters of the longest one, if all are ASCII; -1 where the definition tells
            it; 0 for types that are not such text.
        expressions_see: what of a definition expressions of generated columns may see, besides the
            values: its sizes; its sizes, if it is signed; or more ("more").
        key: how a value is written as a literal of the source's SQL; "" where it is never part of a
            key.
        compared: how Spark tells two values of the lake apart: "value" by ``=``, "text" by their
            texts, because -0.0 = 0.0.
        integer_bits: width of an integer; 0 for others.
        has_sign: UNSIGNED says something of the values.
        has_charset: values or labels are text in the column's charset.
        has_labels: ENUM and SET.
        has_fraction: `Column.fraction_digits` counts.
    """

    source: str
    examples: tuple[Example, ...]
    ddl: tuple[DdlName, ...]
    decoder: str
    result: str
    announced: tuple[WireType, ...]
    delta: Callable[[Column], str]
    note: str = ""
    delta_note: str = ""
    flavor: str = ""
    wire: tuple[WireType, ...] = ()
    fixed_bytes: int = 0
    not_held: str = ""
    not_held_text: Literal["hex", "moment", "document"] = "hex"
    is_date: bool = False
    default: str = "none"
    change: Literal[
        "whole", "decimal", "real", "text", "labels", "bytes", "fraction", "fixed", "unknown"
    ] = "unknown"
    text_chars_max: int = 0
    expressions_see: Literal["sizes", "signed sizes", "more"] = "more"
    key: Literal[
        "number",
        "bits",
        "labels",
        "real",
        "date",
        "datetime",
        "time",
        "text",
        "bytes",
        "address",
        "",
    ] = ""
    compared: Literal["value", "text"] = "value"
    integer_bits: int = 0
    has_sign: bool = False
    has_charset: bool = False
    has_labels: bool = False
    has_fraction: bool = False


def _always(delta: str) -> Callable[[Column], str]:
    return lambda _column: delta


def _by_sign(signed: str, unsigned: str) -> Callable[[Column], str]:
    return lambda column: unsigned if column.unsigned else signed


def _text_delta(column: Column) -> str:
    return "binary" if column.charset == "binary" else "string"


def _decimal_delta(column: Column) -> str:
    if not (1 <= column.precision <= 65 and 0 <= column.scale <= column.precision):
        raise SchemaError(
            f"column `{column.name}` has an impossible precision",
            expected="decimal(1..65, 0..precision)",
            got=f"decimal({column.precision},{column.scale})",
            next_step="check the journal for damage with `cdc-pipeline binlog JOURNAL`",
        )
    if column.precision > DECIMAL_DIGITS_MAX:
        return "string"
    return f"decimal({column.precision},{column.scale})"


def _bit_delta(column: Column) -> str:
    if not 1 <= column.bits <= 64:
        raise SchemaError(
            f"column `{column.name}` has an impossible width",
            expected="bit(1) to bit(64)",
            got=f"bit({column.bits})",
            next_step="check the journal for damage with `cdc-pipeline binlog JOURNAL`",
        )
    if column.bits == 1:
        return "boolean"
    return "bigint" if column.bits < 64 else "decimal(20,0)"


def _each(delta: str, *definitions: str, flavor: str = "") -> tuple[Example, ...]:
    return tuple(Example(definition, delta, flavor) for definition in definitions)


def _names(syntax: str, *names: str, flavor: str = "") -> tuple[DdlName, ...]:
    return tuple(DdlName(name, syntax, flavor) for name in names)


def _integer(bits: int, code: WireType, signed: str, unsigned: str, *names: str) -> TypeSpec:
    examples = (*_each(signed, *names), Example(f"{names[0]} UNSIGNED", unsigned))
    return TypeSpec(
        source=", ".join(names[:1]),
        examples=examples,
        ddl=_names("integer", *names),
        wire=(code,),
        decoder="integer",
        result="integer",
        announced=(code,),
        delta=_by_sign(signed, unsigned),
        delta_note="" if signed == unsigned else f"`{signed}`; UNSIGNED: `{unsigned}`",
        default="number",
        change="whole",
        expressions_see="signed sizes",
        key="number",
        integer_bits=bits,
        has_sign=True,
    )


def _address(name: str, fixed_bytes: int, text_chars_max: int = 0) -> TypeSpec:
    """A type of MariaDB whose values are bytes with a text of the server's own."""
    return TypeSpec(
        source=f"{name} (MariaDB)",
        note="the server's text. A table map does not distinguish it from BINARY(n): without "
        "a schema history it is `binary`",
        examples=_each("string", name),
        flavor="mariadb",
        ddl=_names("fixed_bytes", name, flavor="mariadb"),
        fixed_bytes=fixed_bytes,
        decoder=name.lower(),
        result="text",
        announced=_BYTES,
        delta=_always("string"),
        not_held=f"longer than {fixed_bytes} bytes",
        default="server_form",
        change="fixed",
        text_chars_max=text_chars_max,
        key="address",
    )


_TINYINT: Final = _integer(8, _W.TINY, "tinyint", "smallint", "TINYINT", "INT1", "BOOL", "BOOLEAN")
_BIGINT: Final = _integer(64, _W.LONGLONG, "bigint", "decimal(20,0)", "BIGINT", "INT8")
_REAL_NOTE: Final = (
    "FLOAT(p) with p above 24 is a DOUBLE; REAL is one unless sql_mode has REAL_AS_FLOAT"
)

TYPES: Final[dict[Kind, TypeSpec]] = {
    Kind.INT8: replace(
        _TINYINT,
        source="TINYINT, BOOL",
        note="BOOL is a number at the source",
        examples=(*_TINYINT.examples, Example("TINYINT(1)", "tinyint")),
    ),
    Kind.INT16: _integer(16, _W.SHORT, "smallint", "int", "SMALLINT", "INT2"),
    Kind.INT24: _integer(24, _W.INT24, "int", "int", "MEDIUMINT", "INT3", "MIDDLEINT"),
    Kind.INT32: _integer(32, _W.LONG, "int", "bigint", "INT", "INTEGER", "INT4"),
    Kind.INT64: replace(
        _BIGINT,
        source="BIGINT, SERIAL",
        note="SERIAL is UNSIGNED",
        # SERIAL is no example: a table can have only one.
        ddl=(*_BIGINT.ddl, *_names("integer", "SERIAL")),
    ),
    Kind.BIT: TypeSpec(
        source="BIT(n)",
        delta_note="n = 1: `boolean`; up to 63: `bigint`; 64: `decimal(20,0)`",
        examples=(
            *_each("boolean", "BIT", "BIT(1)"),
            *_each("bigint", "BIT(2)", "BIT(63)"),
            Example("BIT(64)", "decimal(20,0)"),
        ),
        ddl=_names("bit", "BIT"),
        wire=(_W.BIT,),
        decoder="bit",
        result="bits",
        announced=(_W.BIT,),
        delta=_bit_delta,
        default="bit",
        change="whole",
        expressions_see="sizes",
        key="bits",
    ),
    Kind.DECIMAL: TypeSpec(
        source="DECIMAL(p,s)",
        note="exact; with p from 39 it is plain text with s digits",
        delta_note="p up to 38: `decimal(p,s)`; p from 39: `string`",
        examples=(
            Example("DECIMAL(10,2)", "decimal(10,2)"),
            Example("DECIMAL(38,30)", "decimal(38,30)"),
            Example("NUMERIC(5)", "decimal(5,0)"),
            *_each("string", "DECIMAL(39,0)", "DECIMAL(65,30)"),
        ),
        ddl=_names("decimal", "DECIMAL", "DEC", "NUMERIC", "FIXED"),
        wire=(_W.NEWDECIMAL,),
        decoder="decimal",
        result="decimal",
        announced=(_W.NEWDECIMAL,),
        delta=_decimal_delta,
        not_held="digits that are not decimal",
        default="number",
        change="decimal",
        expressions_see="signed sizes",
        key="number",
        has_sign=True,
    ),
    Kind.FLOAT: TypeSpec(
        source="FLOAT",
        note=_REAL_NOTE,
        examples=_each("float", "FLOAT", "FLOAT(24)"),
        ddl=_names("real", "FLOAT", "FLOAT4"),
        wire=(_W.FLOAT,),
        decoder="real",
        result="real",
        announced=(_W.FLOAT,),
        delta=_always("float"),
        not_held="not a finite number",
        default="number",
        change="real",
        key="real",
        compared="text",
        has_sign=True,
    ),
    Kind.DOUBLE: TypeSpec(
        source="DOUBLE",
        examples=_each("double", "DOUBLE", "FLOAT(30)", "REAL"),
        ddl=_names("real", "DOUBLE", "FLOAT8", "REAL"),
        wire=(_W.DOUBLE,),
        decoder="real",
        result="real",
        announced=(_W.DOUBLE,),
        delta=_always("double"),
        not_held="not a finite number",
        default="number",
        change="real",
        key="real",
        compared="text",
        has_sign=True,
    ),
    Kind.YEAR: TypeSpec(
        source="YEAR",
        note="0 stays 0",
        examples=_each("smallint", "YEAR"),
        ddl=_names("year", "YEAR"),
        wire=(_W.YEAR,),
        decoder="year",
        result="year",
        announced=(_W.YEAR,),
        delta=_always("smallint"),
        default="year",
        key="number",
    ),
    Kind.DATE: TypeSpec(
        source="DATE",
        note="zero, partial and impossible dates are not held",
        examples=_each("date", "DATE"),
        ddl=_names("plain", "DATE"),
        wire=(_W.DATE, _W.NEWDATE),
        decoder="date",
        result="date",
        announced=(_W.DATE, _W.NEWDATE),
        delta=_always("date"),
        not_held="zero or partial date",
        not_held_text="moment",
        is_date=True,
        default="date",
        change="fixed",
        expressions_see="sizes",
        key="date",
    ),
    Kind.DATETIME: TypeSpec(
        source="DATETIME(f)",
        note="a wall clock without a zone; zero, partial and impossible dates are not held",
        examples=_each("timestamp_ntz", "DATETIME", "DATETIME(6)"),
        ddl=_names("fraction", "DATETIME"),
        wire=(_W.DATETIME2, _W.DATETIME),
        decoder="datetime",
        result="datetime",
        announced=(_W.DATETIME,),
        delta=_always("timestamp_ntz"),
        not_held="zero or partial date",
        not_held_text="moment",
        is_date=True,
        default="datetime",
        change="fraction",
        expressions_see="sizes",
        key="datetime",
        has_fraction=True,
    ),
    Kind.TIMESTAMP: TypeSpec(
        source="TIMESTAMP(f)",
        note="an instant; the zero timestamp is not held",
        examples=_each("timestamp", "TIMESTAMP NULL", "TIMESTAMP(6) NULL"),
        ddl=_names("fraction", "TIMESTAMP"),
        wire=(_W.TIMESTAMP2, _W.TIMESTAMP),
        decoder="timestamp",
        result="timestamp",
        announced=(_W.TIMESTAMP, _W.DATETIME),
        delta=_always("timestamp"),
        not_held="zero timestamp",
        not_held_text="moment",
        is_date=True,
        default="timestamp",
        change="fraction",
        expressions_see="sizes",
        key="datetime",
        has_fraction=True,
    ),
    Kind.TIME: TypeSpec(
        source="TIME(f)",
        note="`[-]HH:MM:SS[.ffffff]`, up to 838 hours",
        examples=_each("string", "TIME", "TIME(6)"),
        ddl=_names("fraction", "TIME"),
        wire=(_W.TIME2, _W.TIME),
        decoder="time",
        result="time",
        announced=(_W.TIME,),
        delta=_always("string"),
        not_held="not a time",
        not_held_text="moment",
        default="time",
        change="fraction",
        expressions_see="sizes",
        key="time",
        has_fraction=True,
    ),
    Kind.TEXT: TypeSpec(
        source="CHAR, VARCHAR, TEXT and similar",
        note="decoded by the column's own charset as the server does it; bytes that are not "
        "valid text in it are not held; MariaDB's JSON is a LONGTEXT, and its COMPRESSED "
        "texts are decompressed",
        examples=(
            *_each(
                "string",
                "CHAR(5)",
                "VARCHAR(5)",
                "TINYTEXT",
                "TEXT",
                "MEDIUMTEXT",
                "LONGTEXT",
                "VARCHAR(5) CHARACTER SET latin1",
            ),
            *_each(
                "string", "JSON", "VARCHAR(100) COMPRESSED", "TEXT COMPRESSED", flavor="mariadb"
            ),
        ),
        ddl=(
            *_names("char", "CHAR", "CHARACTER"),
            *_names("national_char", "NCHAR"),
            *_names("varchar", "VARCHAR", "VARCHARACTER"),
            *_names("national_varchar", "NVARCHAR"),
            *_names("national", "NATIONAL"),
            *_names("text", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
            *_names("long", "LONG"),
            *_names("utf8_text", "JSON", flavor="mariadb"),
        ),
        decoder="text",
        result="bytes",
        announced=_BYTES,
        delta=_text_delta,
        not_held="bytes are not valid {charset}",
        default="text",
        change="text",
        text_chars_max=-1,
        key="text",
        has_charset=True,
    ),
    Kind.BINARY: TypeSpec(
        source="BINARY, VARBINARY, BLOB and similar",
        note="BINARY(n) is padded to n; text in CHARACTER SET binary counts as bytes; "
        "MariaDB's COMPRESSED bytes are decompressed, and not held if that fails",
        examples=(
            *_each(
                "binary",
                "BINARY(16)",
                "VARBINARY(16)",
                "TINYBLOB",
                "BLOB",
                "MEDIUMBLOB",
                "LONGBLOB",
                "VARCHAR(5) CHARACTER SET binary",
            ),
            *_each("binary", "BLOB COMPRESSED", flavor="mariadb"),
        ),
        ddl=(
            *_names("padded_bytes", "BINARY"),
            *_names("bytes", "VARBINARY"),
            *_names("blob", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
        ),
        decoder="binary",
        result="bytes",
        announced=_BYTES,
        delta=_always("binary"),
        default="bytes",
        change="bytes",
        key="bytes",
    ),
    Kind.ENUM: TypeSpec(
        source="ENUM",
        note="the label, '' for the number 0",
        examples=_each("string", "ENUM('a','b')"),
        ddl=_names("labels", "ENUM"),
        wire=(_W.ENUM,),
        decoder="enum",
        result="number",
        announced=(_W.LONGLONG, _W.LONG),
        delta=_always("string"),
        not_held="number of no label, or 0 in a key of which '' is a label",
        default="enum",
        change="labels",
        text_chars_max=-1,
        key="labels",
        has_charset=True,
        has_labels=True,
    ),
    Kind.SET: TypeSpec(
        source="SET",
        note="labels joined by commas in the order of the definition",
        examples=_each("string", "SET('a','b')"),
        ddl=_names("labels", "SET"),
        wire=(_W.SET,),
        decoder="set",
        result="number",
        announced=(_W.LONGLONG, _W.LONG),
        delta=_always("string"),
        not_held="bit above the column's labels, or in a key one of '' that adds no text",
        default="set",
        change="labels",
        text_chars_max=-1,
        key="labels",
        has_charset=True,
        has_labels=True,
    ),
    Kind.JSON: TypeSpec(
        source="JSON (MySQL)",
        note="the text that CAST(doc AS CHAR) prints; JSON null is `null`",
        examples=_each("string", "JSON"),
        flavor="mysql",
        ddl=_names("plain", "JSON", flavor="mysql"),
        wire=(_W.JSON,),
        decoder="json",
        result="text",
        announced=(_W.JSON, *_BYTES),
        delta=_always("string"),
        not_held="not a JSON document in the server's binary form",
        not_held_text="document",
        change="fixed",
        text_chars_max=-1,
        expressions_see="sizes",
    ),
    Kind.GEOMETRY: TypeSpec(
        source="GEOMETRY, POINT and similar",
        examples=_each("struct<srid:int,wkb:binary>", "GEOMETRY", "POINT", "POLYGON"),
        ddl=_names(
            "plain",
            "GEOMETRY",
            "POINT",
            "LINESTRING",
            "POLYGON",
            "MULTIPOINT",
            "MULTILINESTRING",
            "MULTIPOLYGON",
            "GEOMETRYCOLLECTION",
            "GEOMCOLLECTION",
        ),
        wire=(_W.GEOMETRY,),
        decoder="geometry",
        result="bytes",
        announced=(_W.GEOMETRY,),
        delta=_always("struct<srid:int,wkb:binary>"),
        not_held="shorter than its SRID",
        change="fixed",
    ),
    Kind.VECTOR: TypeSpec(
        source="VECTOR (MySQL 9)",
        examples=_each("array<float>", "VECTOR(3)"),
        flavor="mysql",
        ddl=_names("vector", "VECTOR", flavor="mysql"),
        wire=(_W.VECTOR,),
        decoder="vector",
        result="bytes",
        announced=(_W.VECTOR, *_BYTES),
        delta=_always("array<float>"),
        not_held="not a whole number of elements, or one that is not finite",
        compared="text",
    ),
    Kind.UUID: _address("UUID", 16, text_chars_max=36),
    Kind.INET4: _address("INET4", 4),
    Kind.INET6: _address("INET6", 16),
}

KIND_BY_CODE: Final[dict[int, Kind]] = {
    code: kind for kind, spec in TYPES.items() for code in spec.wire
}
FIXED_WIDTHS_BYTES: Final = frozenset(
    spec.fixed_bytes for spec in TYPES.values() if spec.fixed_bytes
)
# Values that Spark's ``=`` does not tell apart, by their Delta types.
DELTA_TYPES_COMPARED_AS_TEXT: Final = frozenset(
    example.delta for spec in TYPES.values() if spec.compared == "text" for example in spec.examples
)


def number_bytes(column: Column) -> int:
    """The size of an ENUM's or a SET's number, by how many labels there are."""
    if column.kind is Kind.ENUM:
        return 1 if len(column.labels) < 256 else 2
    size_bytes = (len(column.labels) + 7) // 8
    return size_bytes if size_bytes <= 4 else 8
