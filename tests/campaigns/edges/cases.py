"""Columns at their edges, for both servers: docs/reference/types.md row by row."""

from __future__ import annotations

from itertools import product

from tests.campaigns.edges.evidence import Case

HEX = "LOWER(HEX({c}))"
NUMBER = "{c} + 0"
REAL = "{c} * 1e0"
FRACTIONS = ["", ".9", ".98", ".987", ".9876", ".98765", ".987654"]
TIMES = [
    "-00:00:00.1", "-12:34:56.987654", "-838:59:59", "838:59:59", "00:00:00", "-00:59:00.000001",
    "100:00:00.5",
    "-00:00:00.000001", "-00:00:01", "-00:01:00", "-01:00:00", "23:59:59.999999",
    "-838:59:58.999999",
]  # fmt: skip
INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}


def _integers() -> list[Case]:
    found = []
    for name, bits in INTEGER_BITS.items():
        half = 1 << (bits - 1)
        found.append(Case(name, [str(value) for value in (-half, half - 1, -1, 0, 1)]))
        unsigned = (0, 1, half - 1, half, 2 * half - 1)
        found.append(Case(f"{name} UNSIGNED", [str(value) for value in unsigned]))
    return [
        *found,
        Case("BOOL", ["TRUE", "FALSE", "127"]),
        Case("INT ZEROFILL", ["5", "0"], NUMBER),
    ]


def _bits() -> list[Case]:
    found = []
    for bits in range(1, 65):
        values = ((1 << bits) - 1, 0, 1, 1 << (bits - 1), 0x5555555555555555 % (1 << bits))
        found.append(Case(f"BIT({bits})", [str(value) for value in values], NUMBER))
    return found


def _decimals() -> list[Case]:
    found = []
    sizes = {
        (precision, scale)
        for precision in (1, 9, 10, 18, 19, 27, 37, 38, 39, 64, 65)
        for scale in (0, 1, 9, 30)
    }
    for precision, scale in sorted(sizes):
        if scale <= precision:
            digits = "9" * precision
            most = digits[: precision - scale] + (
                "." + digits[precision - scale :] if scale else ""
            )
            least = "0." + "0" * (scale - 1) + "1" if scale else "1"
            found.append(
                Case(f"DECIMAL({precision},{scale})", [most, f"-{most}", least, f"-{least}", "0"])
            )  # fmt: skip
    found.append(
        Case("DECIMAL(38,38)", ["0." + "9" * 38, "-0." + "0" * 37 + "1"], flavor="mariadb")
    )
    return [*found, Case("DECIMAL(12,2)", ["-1234567890.12", "0.01", "-0.00", "1e3"])]


def _temporals() -> list[Case]:
    dates = [
        "0000-00-00", "2024-00-00", "2024-02-00", "0000-01-01", "9999-12-31", "2024-02-29",
        "2023-02-31", "0001-01-01",
        "1000-01-01", "1969-12-31", "1900-02-29",
    ]  # fmt: skip
    found = [
        Case("DATE", [f"'{value}'" for value in dates]),
        Case("YEAR", ["0", "1901", "1970", "2155"], NUMBER),
    ]
    for digits, tail in enumerate(FRACTIONS):
        moments = [f"{date} 00:00:00" for date in dates[:5]] + [
            f"9999-12-31 23:59:59{tail}", f"2024-02-00 10:00:00{tail}",
            f"1969-12-31 23:59:59{tail}",
            f"0000-00-00 00:00:00{tail}", "2023-02-31 00:00:00", f"0001-01-01 00:00:00{tail}",
        ]  # fmt: skip
        found.append(Case(f"DATETIME({digits})", [f"'{value}'" for value in moments]))
        instants = [
            "0000-00-00 00:00:00",
            f"2038-01-19 03:14:07{tail}",
            "1970-01-01 00:00:01",
            f"2001-09-09 01:46:40{tail}",
        ]
        found.append(Case(f"TIMESTAMP({digits}) NULL", [f"'{value}'" for value in instants]))
        if digits:
            found.append(
                Case(
                    f"TIMESTAMP({digits}) NULL /* second 0 */",
                    [f"'1970-01-01 00:00:00{tail}'"],
                    flavor="mariadb",
                )
            )
        found.append(
            Case(f"TIME({digits})", [f"'{value}'" for value in [*TIMES, f"-00:00:01{tail}"]])
        )
    return found


def _texts() -> list[Case]:
    found = [
        Case("VARCHAR(300)", ["'x'", "''", "'ä漢😀'", "REPEAT('y', 300)", "'a\\0b'", "'  '"]),
        Case("VARCHAR(63)", ["'x'", "''", "REPEAT('😀', 63)"]),
        Case("VARCHAR(64)", ["'x'", "''", "REPEAT('😀', 64)"]),
        Case("CHAR(100)", ["'  a  '", "''", "REPEAT('ä', 100)"]),
        Case("CHAR(255)", ["REPEAT('😀', 255)", "'z'"]),
        Case("CHAR(0)", ["''"]),
        Case("TINYTEXT", ["''", "'a'", "REPEAT('a', 255)"]),
        Case("TEXT", ["''", "REPEAT('b', 65535)"]),
        Case("MEDIUMTEXT", ["REPEAT('abc', 100000)", "''"]),
        Case("LONGTEXT", ["'q'", "REPEAT('c', 70000)"]),
        Case("VARCHAR(9) CHARACTER SET utf8mb3", ["'ä漢'", "''"], "CONVERT({c} USING utf8mb4)"),
        Case("BINARY(16)", ["x'6162630000'", "x''", "x'00'", "x'20'",
            "x'00000000000000000000000000000001'"], HEX),
        Case("BINARY(255)", ["x'01'", "REPEAT(x'ff', 255)"], HEX),
        Case("VARBINARY(16)", ["x''", "x'6162630000'", "x'00'", "x'20'"], HEX),
        Case("VARBINARY(300)", ["x'00'", "REPEAT(x'00', 300)"], HEX),
        Case("TINYBLOB", ["x''", "REPEAT(x'00', 255)"], HEX),
        Case("BLOB", ["x''", "x'ff00'"], HEX),
        Case("LONGBLOB", ["x'00'", "REPEAT(x'fe', 70000)"], HEX),
        Case("VARCHAR(9) CHARACTER SET latin1", [f"x'{code}'" for code in ("81", "8d", "8f", "90",
            "9d")],
             "CONVERT({c} USING utf8mb4)", name="latin1 81"),
        Case("CHAR(9) CHARACTER SET cp1251", ["x'98'", "x'c6'"], "CONVERT({c} USING utf8mb4)",
            name="cp1251 98"),
        Case("VARCHAR(9) CHARACTER SET binary", ["x'ff00'", "x''"], HEX),
    ]  # fmt: skip
    for charset in ("ucs2", "utf16", "utf16le", "utf32"):
        values = ["'abc'", "'ä漢'", "''", *(["'😀x'"] if charset != "ucs2" else [])]
        for declared in ("VARCHAR(20)", "CHAR(20)", "TEXT"):
            found.append(
                Case(f"{declared} CHARACTER SET {charset}", values, "CONVERT({c} USING utf8mb4)")
            )
    return found


LABEL_CHARSETS = {
    "latin1": "ü", "gbk": "漢", "utf16": "ä漢", "utf16le": "漢", "utf32": "ä", "ucs2": "ä",
    "sjis": "漢",
    "cp932": "漢", "ujis": "漢", "eucjpms": "漢", "euckr": "가", "big5": "漢", "gb2312": "汉",
    "cp1251": "Ж",
    "greek": "Ω", "hebrew": "א", "latin2": "ő", "koi8r": "Ж", "tis620": "ก", "macroman": "é",
    "utf8mb3": "漢",
    "utf8mb4": "😀", "ascii": "z", "macce": "č", "armscii8": "Ա", "cp1256": "ش", "cp850": "é",
    "geostd8": "ა",
    "hp8": "é", "keybcs2": "č", "dec8": "é",
}  # fmt: skip


def _labels() -> list[Case]:
    found = [
        Case("ENUM('a','bä','c')", ["'a'", "'bä'", "3", "0"]),
        Case("SET('a','b','cä')", ["''", "'a,cä'", "'b'", "7"]),
        Case("SET(" + ",".join(f"'m{n}'" for n in range(64)) + ")",
             ["18446744073709551615", "9223372036854775808", "1", "0", "6148914691236517205"],
             name="SET of 64"),
    ]  # fmt: skip
    for size in (8, 9, 16, 17, 24, 25, 32, 33):
        members = ",".join(f"'m{n}'" for n in range(size))
        found.append(
            Case(
                f"SET({members})",
                [str((1 << size) - 1), str(1 << (size - 1)), "0"],
                name=f"SET of {size}",
            )
        )
    for size in (255, 256):
        members = ",".join(f"'m{n}'" for n in range(size))
        found.append(
            Case(f"ENUM({members})", [str(size), "1", f"'m{size - 1}'"], name=f"ENUM of {size}")
        )
    for charset, character in LABEL_CHARSETS.items():
        labels = f"('x','{character}','{character}x')"
        shown = "CONVERT({c} USING utf8mb4)"
        found.append(
            Case(
                f"ENUM{labels} CHARACTER SET {charset}",
                ["1", "2", "3"],
                shown,
                name=f"ENUM in {charset}",
            )
        )
        found.append(
            Case(
                f"SET{labels} CHARACTER SET {charset}",
                ["0", "2", "7"],
                shown,
                name=f"SET in {charset}",
            )
        )
    gb18030 = "ENUM('x','漢😀') CHARACTER SET gb18030"
    return [
        *found,
        Case(
            gb18030,
            ["1", "2"],
            "CONVERT({c} USING utf8mb4)",
            flavor="mysql",
            name="ENUM in gb18030",
        ),
    ]


def _others() -> list[Case]:
    shapes = [
        "POINT(1 2)", "LINESTRING(0 0, 1 1)", "POLYGON((0 0, 0 1, 1 1, 0 0))",
        "MULTIPOINT(0 0, 1 1)",
        "GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))",
        "MULTIPOLYGON(((0 0, 0 1, 1 1, 0 0)))",
    ]  # fmt: skip
    values = [
        f"ST_GeomFromText('{shape}'{srid})"
        for shape, srid in product(shapes, ("", ", 4326", ", 3857"))
    ]
    return [
        Case("GEOMETRY", values, HEX),
        Case("POINT", ["ST_GeomFromText('POINT(-1.5 2e300)')"], HEX),
        Case("JSON", ["""'{"b": 1,  "a":null}'""", "'null'", "'[1.50]'"], flavor="mariadb"),
        Case("JSON", ["""'{"b": 1,  "a":null}'""", "'null'", "'[1.50]'"], flavor="mysql",
            name="JSON of MySQL"),
        Case("UUID", ["'123e4567-e89b-12d3-a456-426655440000'"], flavor="mariadb"),
        Case("INET4", ["'0.0.0.0'", "'1.2.3.0'", "'255.255.255.255'"], flavor="mariadb"),
        Case("INET6", ["'::'", "'::ffff:1.2.3.4'", "'2001:db8::ff00:42:8329'"], flavor="mariadb"),
        Case("POINT SRID 4326", ["ST_GeomFromText('POINT(1 2)', 4326)"], HEX, "mysql"),
        Case("VECTOR(3)", ["STRING_TO_VECTOR('[1,2.5,-0.125]')"], "VECTOR_TO_STRING({c})", "mysql"),
        Case("VECTOR(9999)", [f"STRING_TO_VECTOR('[{','.join(['-1.5'] * 9999)}]')"],
            "VECTOR_TO_STRING({c})", "mysql"),
    ]  # fmt: skip


_FLOATS = "0.1 -3.4028234e38 3.4028234e38 1.1754944e-38 1e-45 -1e-40 16777217 0 123456.789"
_DOUBLES = (
    "0.1 -1.7976931348623157e308 1.7976931348623157e308 2.2250738585072014e-308 5e-324 -1e-310 "
    "9007199254740993 0 -0e0"
)
REALS = [
    Case("FLOAT", _FLOATS.split(), REAL),
    Case("DOUBLE", _DOUBLES.split(), REAL),
    Case("FLOAT UNSIGNED", ["0.1", "0"], REAL),
    Case("DOUBLE(10,2)", ["12345678.91", "-0.01"], REAL),
]
CASES = [*_integers(), *_bits(), *_decimals(), *_temporals(), *_texts(), *_labels(), *_others()]
