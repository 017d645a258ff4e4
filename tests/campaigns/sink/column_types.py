"""Types of columns with random literals at their edges, and one plain form of a value for server
and lake.

Rules:
- A literal is SQL text that the server takes in strict mode. The values that it becomes are the
  server's: what is compared is its SELECT through `shown`, never the literal.
- `plain` gives equal values for equal contents, whichever of SELECT, Delta and binlog a value comes
  from.
"""

from __future__ import annotations

import datetime as dt
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Literal = Callable[[random.Random], str]

TEXTS = (
    "", "a", "A", "ä", "Ä", "é", "漢字", "x' OR 1=1 --", "back\\slash", "tab\there", "line\nend",
    "quote\"s", "null",
    "0", "100%", "_", "\x01", "  lead", "ﬀ", "ß",
)  # fmt: skip
WIDE_TEXTS = (*TEXTS, "🙂", "a🙂b", "e\u0301", "\u200b")
LATIN_TEXTS = ("", "a", "A", "ä", "Ä", "é", "ß", "x' --", "back\\slash", "ÿ", "0")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One declared type. `declared`: as in CREATE TABLE; `literal`: a value that is not NULL, as
    SQL; `key`: may be part of a key; `default`: may have a constant default; `flavor`: only on
    this server; "" on both. `kind`: a word that DDL asks for: int, text, decimal, json .
    """

    declared: str
    literal: Literal
    key: bool = False
    default: bool = True
    flavor: str = ""
    kind: str = ""


def text_literal(value: str) -> str:
    escaped = (
        value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\x00", "\\0")
    )
    return f"'{escaped}'"


def _integer(bits: int, *, unsigned: bool = False) -> Literal:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def literal(choose: random.Random) -> str:
        if choose.random() < 0.3:
            return str(choose.choice((low, high, 0, 1, low + 1, high - 1, max(low, -1))))
        return str(choose.randint(max(low, -1000), min(high, 1000)))

    return literal


def _decimal(precision: int, scale: int) -> Literal:
    def literal(choose: random.Random) -> str:
        digits = choose.choice((1, precision // 2 or 1, precision))
        whole = choose.randrange(10**digits)
        if choose.random() < 0.15:
            whole = 10**precision - 1
        sign = choose.choice(("", "-"))
        if scale == 0:
            return f"{sign}{whole}"
        text = str(whole).rjust(scale + 1, "0")
        return f"{sign}{text[:-scale]}.{text[-scale:]}"

    return literal


def _text(values: tuple[str, ...], chars_max: int, *, repeat: bool = True) -> Literal:
    def literal(choose: random.Random) -> str:
        value = choose.choice(values)
        if repeat and choose.random() < 0.2:
            value = (value or "y") * choose.randrange(1, 12)
        elif choose.random() < 0.5:
            value += str(choose.randrange(100))
        return text_literal(value[:chars_max])

    return literal


def _binary(bytes_max: int) -> Literal:
    def literal(choose: random.Random) -> str:
        size = choose.choice((0, 1, bytes_max, choose.randrange(bytes_max + 1)))
        data = bytes(choose.choice((0, 0, 0x20, 0xFF, choose.randrange(256))) for _ in range(size))
        return f"x'{data.hex()}'"

    return literal


def _moment(digits: int, *, first_year: int, last_year: int) -> Literal:
    def literal(choose: random.Random) -> str:
        if choose.random() < 0.2:
            day = (
                f"{choose.choice((first_year, last_year)):04d}-{choose.choice(('01-02', '12-30'))}"
            )
        else:
            day = f"{choose.randint(1990, 2030):04d}-{choose.randint(1, 12):02d}-{choose.randint(1, 28):02d}"  # noqa: E501
        clock = choose.choice(("00:00:00", "23:59:59", f"{choose.randrange(24):02d}:30:01"))
        fraction = f".{choose.randrange(10**digits):0{digits}d}" if digits else ""
        return f"'{day} {clock}{fraction}'"

    return literal


def _date(choose: random.Random) -> str:
    if choose.random() < 0.2:
        return choose.choice(
            ("'1000-01-01'", "'9999-12-31'", "'1969-12-31'", "'2024-02-29'", "'1582-10-10'")
        )
    return f"'{choose.randint(1900, 2100):04d}-{choose.randint(1, 12):02d}-{choose.randint(1, 28):02d}'"  # noqa: E501


def _time(choose: random.Random) -> str:
    edges = ("-838:59:59", "838:59:59", "00:00:00", "-00:00:01.5", "23:59:59.999")
    return f"'{choose.choice((*edges, f'{choose.randint(-200, 200):03d}:{choose.randrange(60):02d}:07.123'))}'"  # noqa: E501


def _real(*edges: str) -> Literal:
    def literal(choose: random.Random) -> str:
        return (
            choose.choice(edges)
            if choose.random() < 0.3
            else repr(round(choose.uniform(-1e6, 1e6), 3))
        )

    return literal


def _labels(choose: random.Random) -> str:
    return choose.choice(("'a'", "'bä'", "'c,d'", "'漢'"))


def _members(choose: random.Random) -> str:
    return text_literal(",".join(sorted(choose.sample(("x", "yä", "z"), choose.randrange(4)))))


def _json(choose: random.Random) -> str:
    number = choose.randrange(1000)
    return choose.choice(
        (
            """'{"a": 1, "b": [1, 2, {"c": "d"}]}'""",
            f"""'{{"a": {number}, "b": "ä漢", "long": "{'x' * 40}"}}'""",
            "'[]'", "'null'", f"'[{number}, 1.5, true]'", "'\"text\"'",
        )
    )  # fmt: skip


def _bits(bits: int) -> Literal:
    return lambda choose: str(choose.choice((0, 1, 2**bits - 1, choose.randrange(2**bits))))


def _shape(choose: random.Random) -> str:
    points = [f"{choose.randint(-50, 50)} {choose.randint(-50, 50)}" for _ in range(2)]
    shape = choose.choice((f"POINT({points[0]})", f"LINESTRING({points[0]}, {points[1]})"))
    return f"ST_GeomFromText('{shape}'{choose.choice(('', ', 3857'))})"


def _uuid(choose: random.Random) -> str:
    digits = f"{choose.getrandbits(128):032x}"
    return f"'{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}'"


TYPES: tuple[ColumnType, ...] = (
    ColumnType("TINYINT", _integer(8), key=True, kind="int"),
    ColumnType("SMALLINT", _integer(16), key=True, kind="int"),
    ColumnType("MEDIUMINT", _integer(24), kind="int"),
    ColumnType("INT", _integer(32), key=True, kind="int"),
    ColumnType("BIGINT", _integer(64), key=True),
    ColumnType("TINYINT UNSIGNED", _integer(8, unsigned=True)),
    ColumnType("INT UNSIGNED", _integer(32, unsigned=True), key=True),
    ColumnType("BIGINT UNSIGNED", _integer(64, unsigned=True), key=True),
    ColumnType("DECIMAL(10,2)", _decimal(10, 2), key=True, kind="decimal"),
    ColumnType("DECIMAL(38,10)", _decimal(38, 10)),
    ColumnType("DECIMAL(20,0)", _decimal(20, 0)),
    ColumnType("DECIMAL(65,30)", _decimal(65, 30)),
    ColumnType("FLOAT", _real("0.1", "-3.4e38", "1e-30", "16777216", "0"), kind="float"),
    ColumnType("DOUBLE", _real("0.1", "-1.7e308", "5e-300", "9007199254740993", "-0e0")),
    ColumnType("BIT(1)", _bits(1)),
    ColumnType("BIT(9)", _bits(9)),
    ColumnType("BIT(64)", _bits(64)),
    ColumnType("DATE", _date, key=True),
    ColumnType("DATETIME", _moment(0, first_year=1000, last_year=9999), key=True),
    ColumnType("DATETIME(6)", _moment(6, first_year=1000, last_year=9999)),
    ColumnType("TIMESTAMP NULL", _moment(0, first_year=1971, last_year=2037)),
    ColumnType("TIMESTAMP(3) NULL", _moment(3, first_year=1971, last_year=2037)),
    ColumnType("TIME(3)", _time),
    ColumnType("YEAR", lambda choose: str(choose.choice((0, 1901, 2155, 2026)))),
    ColumnType("CHAR(10)", _text(WIDE_TEXTS, 10), key=True),
    ColumnType("VARCHAR(40)", _text(WIDE_TEXTS, 40), key=True, kind="varchar"),
    ColumnType("VARCHAR(20) CHARACTER SET latin1", _text(LATIN_TEXTS, 20), key=True, kind="latin1"),
    ColumnType("VARCHAR(300)", _text(WIDE_TEXTS, 300)),
    ColumnType("TEXT", _text(WIDE_TEXTS, 2000), default=False),
    ColumnType("MEDIUMTEXT", _text(WIDE_TEXTS, 2000), default=False),
    ColumnType("BINARY(6)", _binary(6)),
    ColumnType("VARBINARY(20)", _binary(20), key=True),
    ColumnType("BLOB", _binary(60), default=False),
    ColumnType("ENUM('a','bä','c,d','漢')", _labels),
    ColumnType("SET('x','yä','z')", _members),
    ColumnType("JSON", _json, default=False, flavor="mysql", kind="json"),
    ColumnType("JSON", _json, default=False, flavor="mariadb"),
    ColumnType("GEOMETRY", _shape, default=False),
    ColumnType("UUID", _uuid, default=False, flavor="mariadb", key=True),
)


def types_for(flavor: str) -> list[ColumnType]:
    return [column_type for column_type in TYPES if column_type.flavor in ("", flavor)]


def shown(name: str, data_type: str) -> str:
    """The SELECT expression of a column, by its DATA_TYPE in the catalog."""
    quoted = "`" + name.replace("`", "``") + "`"
    if data_type in ("float", "double"):
        return f"{quoted} * 1e0"  # FLOAT itself prints six digits
    if data_type in ("bit", "year"):
        return f"{quoted} + 0"
    if data_type in ("time", "json", "uuid", "inet4", "inet6"):
        return f"CAST({quoted} AS CHAR)"
    if data_type in _SHAPES:
        return f"HEX({quoted})"
    return quoted


_SHAPES = frozenset(
    [
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    ]
)


def plain(value: Any) -> Any:
    """One form of a value, whichever side it comes from."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else f"{value:f}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dict) and value.keys() == {"srid", "wkb"}:
        return (struct.pack("<I", value["srid"]) + value["wkb"]).hex().upper()
    if isinstance(value, bytearray):
        return bytes(value)
    return value
