"""Types of columns and values at their edges, for every ordered pair of a MODIFY.

Rules:
- A value is SQL text that is inserted outside of strict mode: what the column then holds is the
  server's own, and what a type cannot hold is bent into one more value of it.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.column_types import TYPES
from tests.campaigns.edges.cases import CASES

_NAME: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Sample:
    """A type with its values. `declared`: as in a definition, without NULL or NOT NULL; `values`:
    SQL literals, NULL not among them; `flavor`: only on this server; "" on both.
    """

    declared: str
    values: tuple[str, ...]
    flavor: str = ""


_NUMBERS: Final = (
    "0", "1", "-1", "2", "-5", "9", "10", "99", "100", "127", "128", "-128", "255", "256", "32767",
    "-32768", "65535",
    "8388607", "-8388608", "16777215", "2147483647", "-2147483648", "4294967295", "4294967296",
    "9007199254740993",
    "9223372036854775807", "-9223372036854775808", "18446744073709551615",
)  # fmt: skip
_FRACTIONS: Final = (
    "0", "0.5", "-0.5", "1.25", "-1.25", "1.05", "9.94", "9.95", "9.99", "-9.99", "99.995", "0.1",
    "-0.001",
    "123456.789",
    "99999999.99", "-99999999.99", "12345678901234567890.5",
    "9999999999999999999999999999.9999999999", "1e20", "1e-20",
)  # fmt: skip
_FLOATS: Final = (
    *_FRACTIONS,
    "1e0/3",
    "-0e0",
    "16777217",
    "3.4e38",
    "-3.4e38",
    "1.17e-38",
    "123456789",
    "0.30000001192",
)
_TEXTS: Final = (
    "''", "'a'", "'A'", "'b'", "'a '", "' a'", "'ab   '", "'abcdef'", "'ü'", "'Ü'", "'€'", "'漢字'",
    "'😀'", "'~'",
    "'1'", "'01'", "'1.50'", "'a,b'", "'b,a'", "'null'", "'2024-02-29'", "'back\\\\slash'", "'¥'",
    "'‾'", "'\\0'",
    "'123e4567-e89b-12d3-a456-426655440000'", "'{\"b\": 1, \"a\": [1.50]}'", "REPEAT(' ', 300)",
    "REPEAT('x', 300)",
    "REPEAT('ü', 200)", "CONCAT('x', REPEAT(' ', 256))", "REPEAT('漢', 90)",
)  # fmt: skip
_BYTES: Final = (
    "''", "'a'", "'a '", "'ab   '", "x'00'", "x'6100'", "x'61000000'", "x'ff'", "x'c3bc'",
    "x'6162636465'",
    "REPEAT('x', 300)", "REPEAT(x'00', 20)", "REPEAT(x'20', 300)",
)  # fmt: skip
_DATES: Final = (
    "'2024-02-29'", "'1000-01-01'", "'9999-12-31'", "'1970-01-01'", "'0000-00-00'", "'2024-00-10'",
    "'0001-01-01'",
    "'1900-02-28'",
)  # fmt: skip
_MOMENTS: Final = (
    "'2024-02-29 23:59:59.999999'", "'2024-02-29 00:00:00'", "'1970-01-01 00:00:01'",
    "'2038-01-19 03:14:07'",
    "'2024-06-30 12:00:00.5'", "'2024-06-30 12:00:00.0004'", "'2024-06-30 12:00:00.125'",
    "'0000-00-00'",
    "'1969-12-31 23:59:59'", "'9999-12-31 23:59:59'", "'1000-01-01'",
)  # fmt: skip
_TIMES: Final = (
    "'00:00:00'", "'-00:00:00.5'", "'838:59:59'", "'-838:59:59'", "'23:59:59.999999'",
    "'10:20:30.4'", "'-10:20:30'",
    "'100:00:00.125'",
)  # fmt: skip
_LABELS: Final = (
    "'a'",
    "'b'",
    "'c'",
    "'d'",
    "'1'",
    "'2'",
    "'3'",
    "'ü'",
    "'A'",
    "''",
    "'a,b'",
    "'b,c'",
    "'a,b,c'",
    "2",
    "3",
)
_SHAPES: Final = (
    "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-0.5 1e10)')",
    "ST_GeomFromText('LINESTRING(1 2,3 4)')",
    "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')", "ST_GeomFromText('POINT(1 2)', 4326)",
)  # fmt: skip
_DOCUMENTS: Final = (
    "'{\"b\": 1, \"a\": [1.50, null, \"x\"]}'", "'1'", "'\"ü😀\"'", "'null'",
    "'[1e20, -0.0, 12345678901234567890]'",
    "'\"a \"'",
)  # fmt: skip
_UUIDS: Final = ("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'")
_ADDRESSES: Final = ("'1.2.3.4'", "'255.255.255.255'", "'0.0.0.0'")
_LONG_ADDRESSES: Final = ("'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'")


def _samples(values: tuple[str, ...], *declared: str, flavor: str = "") -> tuple[Sample, ...]:
    return tuple(Sample(one, values, flavor) for one in declared)


_LISTED: Final = (
    *_samples(_NUMBERS, "TINYINT", "TINYINT UNSIGNED", "SMALLINT", "SMALLINT UNSIGNED", "MEDIUMINT",
              "MEDIUMINT UNSIGNED",
              "INT", "INT UNSIGNED", "INT(8) UNSIGNED ZEROFILL", "BIGINT", "BIGINT UNSIGNED",
              "BIT(1)", "BIT(8)",
              "BIT(63)", "BIT(64)"),
    *_samples(_FRACTIONS, "DECIMAL(2,1)", "DECIMAL(3,2)", "DECIMAL(10,0)", "DECIMAL(10,2)",
        "DECIMAL(10,2) UNSIGNED",
              "DECIMAL(20,0)", "DECIMAL(38,10)", "DECIMAL(40,5)", "DECIMAL(65,30)"),
    *_samples(_FLOATS, "FLOAT", "FLOAT UNSIGNED", "FLOAT(7,2)", "DOUBLE", "DOUBLE UNSIGNED",
        "DOUBLE(10,2)"),
    *_samples(("0", "1901", "1999", "2024", "2155"), "YEAR"),
    *_samples(_DATES, "DATE"),
    *_samples(_MOMENTS, "DATETIME", "DATETIME(3)", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(6)"),
    *_samples(_TIMES, "TIME", "TIME(3)", "TIME(6)"),
    *_samples(_TEXTS, "CHAR(5)", "CHAR(30) CHARACTER SET latin1", "CHAR(1)", "VARCHAR(5)",
        "VARCHAR(30)",
              "VARCHAR(300)",
              "VARCHAR(30) CHARACTER SET latin1", "VARCHAR(30) CHARACTER SET ascii",
              "VARCHAR(30) CHARACTER SET utf8mb3",
              "VARCHAR(30) CHARACTER SET cp1251", "VARCHAR(30) CHARACTER SET utf16",
              "VARCHAR(30) CHARACTER SET sjis",
              "VARCHAR(30) COLLATE utf8mb4_bin", "TINYTEXT", "TEXT", "TEXT(100)", "MEDIUMTEXT",
              "LONGTEXT",
              "TEXT CHARACTER SET latin1", "TINYTEXT CHARACTER SET latin1",
              "TINYTEXT CHARACTER SET utf16"),
    *_samples(_BYTES, "BINARY(4)", "BINARY(8)", "VARBINARY(4)", "VARBINARY(30)", "TINYBLOB", "BLOB",
        "BLOB(100)",
              "LONGBLOB", "VARCHAR(30) CHARACTER SET binary", "CHAR(4) CHARACTER SET binary"),
    *_samples(_LABELS, "ENUM('a','b')", "ENUM('a','b','c')", "ENUM('c','b','a')",
        "ENUM('a','b','c','d')",
              "ENUM('A','B')",
              "ENUM('1','2','3')", "ENUM('3','1','2')", "ENUM('','a')", "ENUM('ü','a')",
              "ENUM('ü','a') CHARACTER SET latin1", "ENUM('ü','a') CHARACTER SET ascii",
              "SET('a','b','c')", "SET('a','b')", "SET('c','b','a')", "SET('a','b','c','d')",
              "SET('ü','a')",
              "SET('ü','a') CHARACTER SET latin1", "SET('ü','a') CHARACTER SET ascii"),
    *_samples(_DOCUMENTS, "JSON"),
    *_samples(_SHAPES, "GEOMETRY", "POINT", "POLYGON"),
    *_samples(("STRING_TO_VECTOR('[1,2,3]')", "STRING_TO_VECTOR('[0.1,-0,1e30]')"), "VECTOR(3)",
        "VECTOR(4)",
              flavor="mysql"),
    *_samples(_UUIDS, "UUID", flavor="mariadb"),
    *_samples(_ADDRESSES, "INET4", flavor="mariadb"),
    *_samples((*_ADDRESSES, *_LONG_ADDRESSES), "INET6", flavor="mariadb"),
)  # fmt: skip


def _others() -> Iterator[Sample]:
    """Types that are not listed above, with the values of the cases at their edges."""
    kinds = {name.name: kind for kind, spec in TYPES.items() for name in spec.ddl}
    listed = {kinds[_NAME.match(sample.declared)[0]] for sample in _LISTED}  # type: ignore[index]
    for case in CASES:
        name = _NAME.match(case.declared)
        if name is not None and kinds[name[0]] not in listed:
            yield Sample(case.declared, tuple(case.values), case.flavor)


SAMPLES: Final = (*_LISTED, *_others())


def samples_of(flavor: str, choose: random.Random, *, drawn: int = 4) -> tuple[Sample, ...]:
    """Return the types of a server, each with its edge values and `drawn` random ones."""
    found = []
    for sample in SAMPLES:
        if sample.flavor in ("", flavor):
            found.append(
                Sample(
                    sample.declared,
                    (*sample.values, *_random(sample, choose, drawn)),
                    sample.flavor,
                )
            )
    return tuple(found)


def _random(sample: Sample, choose: random.Random, count: int) -> list[str]:
    if sample.values is _NUMBERS:
        return [
            str(choose.randint(-(2 ** choose.randint(1, 63)), 2 ** choose.randint(1, 64) - 1))
            for _ in range(count)
        ]
    if sample.values in (_FRACTIONS, _FLOATS):
        return [
            f"{choose.randint(-(10**12), 10**12)}e-{choose.randint(0, 12)}" for _ in range(count)
        ]
    if sample.values is _TEXTS:
        letters = "ab 09,ñŸЖ漢😀\u00a5\u203e\uff5e"
        return [
            "'" + "".join(choose.choices(letters, k=choose.randint(0, 12))) + "'"
            for _ in range(count)
        ]
    if sample.values is _BYTES:
        return [f"x'{choose.randbytes(choose.randint(1, 9)).hex()}'" for _ in range(count)]
    if sample.values is _MOMENTS:
        first = dt.datetime(1971, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
        return [
            f"'{first + dt.timedelta(microseconds=choose.randrange(2 * 10**15))}'"
            for _ in range(count)
        ]
    return []
