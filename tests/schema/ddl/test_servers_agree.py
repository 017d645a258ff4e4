"""Types and defaults as real servers have them: a DDL text against information_schema and SELECT
(K13)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from cdc_pipeline.schema.ddl.alter import ActionKind
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes, Uncertain
from cdc_pipeline.schema.evolution.backfill import backfill
from cdc_pipeline.schema.types import delta_type
from cdc_pipeline.sink.verify.changelog import constant
from tests.servers import Server

MODES = SqlModes(ansi_quotes=False, explicit_defaults_for_timestamp=True, time_zone="+00:00")

# Definitions whose value for existing rows is certain; "refused: " in front where it is not.
BOTH = r"""
TINYINT
TINYINT DEFAULT -128
TINYINT UNSIGNED DEFAULT 255
TINYINT(1) NOT NULL
BOOL DEFAULT TRUE
BOOLEAN NOT NULL DEFAULT false
INT1 DEFAULT '7'
SMALLINT DEFAULT -32768
SMALLINT UNSIGNED DEFAULT 65535
INT2
MEDIUMINT DEFAULT -5
MEDIUMINT UNSIGNED DEFAULT 16777215
INT3 NOT NULL
MIDDLEINT
INT DEFAULT 2147483647
INT(11) SIGNED DEFAULT +5
INTEGER UNSIGNED DEFAULT 4294967295
INT4 NOT NULL
INT ZEROFILL DEFAULT 5
INT(5) UNSIGNED ZEROFILL NOT NULL
INT DEFAULT 0x10
INT DEFAULT b'101'
INT NULL DEFAULT NULL
INT DEFAULT (7)
BIGINT DEFAULT -9223372036854775808
BIGINT UNSIGNED DEFAULT 18446744073709551615
INT8 DEFAULT 1
BIT
BIT DEFAULT b'1'
BIT(1) NOT NULL
BIT(8) DEFAULT b'10101010'
BIT(8) DEFAULT 5
BIT(63) DEFAULT 1
BIT(64) DEFAULT 0xFFFFFFFFFFFFFFFF
BIT(12) NOT NULL
DECIMAL
DECIMAL(10) DEFAULT 5
DECIMAL(10,2) DEFAULT 1.5
DECIMAL(10,2) DEFAULT '-1.25'
DECIMAL(10,2) NOT NULL
DECIMAL(10,2) UNSIGNED DEFAULT 3
DECIMAL(38,10) DEFAULT 1e3
DECIMAL(38,0) DEFAULT 99999999999999999999999999999999999999
DECIMAL(39,2) DEFAULT 1.5
DECIMAL(65,30) NOT NULL
DECIMAL(0) DEFAULT 3
DEC(5,2) DEFAULT 0.10
NUMERIC(5) DEFAULT -7
FIXED(6,3) DEFAULT 1
FLOAT DEFAULT 1.5
FLOAT NOT NULL
FLOAT UNSIGNED DEFAULT 0.1
FLOAT(7) DEFAULT 2
FLOAT(30) DEFAULT 0.1
FLOAT(7,2) DEFAULT 3
FLOAT4 DEFAULT 1e10
DOUBLE DEFAULT 0.1
DOUBLE PRECISION DEFAULT -1.7976931348623157e308
DOUBLE(10,2) NOT NULL
FLOAT8 DEFAULT 3
REAL DEFAULT 2.5
YEAR DEFAULT 2024
YEAR(4) DEFAULT '1999'
YEAR NOT NULL
YEAR DEFAULT 0
DATE
DATE DEFAULT '2024-02-29'
DATE NOT NULL DEFAULT '1000-01-01'
DATETIME DEFAULT '2024-02-29 12:34:56'
DATETIME(3) DEFAULT '2024-02-29 12:34:56.5'
DATETIME(6) NOT NULL DEFAULT '9999-12-31 23:59:59.999999'
DATETIME DEFAULT '2024-02-29'
TIMESTAMP NULL
TIMESTAMP NULL DEFAULT NULL
TIMESTAMP NULL DEFAULT '2024-02-29 12:34:56'
TIMESTAMP(6) NOT NULL DEFAULT '2001-02-03 04:05:06.000007'
TIME
TIME DEFAULT '12:34:56'
TIME(2) DEFAULT '-838:59:59'
TIME(6) DEFAULT '-00:00:00.1'
TIME NOT NULL
TIME(3) NOT NULL
CHAR DEFAULT 'x'
CHAR(10) DEFAULT 'ab  '
CHAR(10) NOT NULL
CHARACTER(5) CHARACTER SET latin1 DEFAULT 'é'
CHAR(5) CHARSET utf8mb4 COLLATE utf8mb4_bin DEFAULT 'ü'
CHAR(5) BINARY DEFAULT 'x'
CHAR(5) ASCII DEFAULT 'x'
CHAR(5) BYTE DEFAULT 'x'
CHAR(5) CHARACTER SET binary NOT NULL
NCHAR(5) DEFAULT N'x'
NATIONAL CHAR(5)
NATIONAL VARCHAR(5) DEFAULT 'x'
NATIONAL CHARACTER VARYING(5)
NVARCHAR(5)
NCHAR VARCHAR(5)
CHARACTER VARYING(5) DEFAULT 'x'
CHAR VARYING(5)
VARCHARACTER(5)
VARCHAR(20) DEFAULT 'ab  '
VARCHAR(20) DEFAULT ''
VARCHAR(20) NOT NULL
VARCHAR(20) DEFAULT 'it''s'
VARCHAR(20) DEFAULT 'a\\b\n\t\'"'
VARCHAR(20) DEFAULT "dq"
VARCHAR(20) DEFAULT 5
VARCHAR(20) DEFAULT -5
VARCHAR(20) DEFAULT TRUE
VARCHAR(20) DEFAULT '😀'
VARCHAR(20) DEFAULT _utf8mb4'x'
VARCHAR(20) COLLATE latin1_bin DEFAULT 'x'
VARCHAR(20) CHARACTER SET utf16 DEFAULT 'x'
VARCHAR(20) CHARACTER SET binary DEFAULT 'x'
VARCHAR(20) DEFAULT 'x' COMMENT 'a, (b' CHECK (c <> ')')
VARCHAR(20) DEFAULT 'x' UNIQUE
TINYTEXT
TEXT NOT NULL
TEXT(1000)
TEXT CHARACTER SET binary
TEXT BYTE
MEDIUMTEXT COLLATE utf8mb4_bin
LONGTEXT NOT NULL
LONG
LONG VARCHAR
LONG VARBINARY
BINARY DEFAULT 'x'
BINARY(4) DEFAULT 'ab'
BINARY(4) NOT NULL
BINARY(4) DEFAULT x'0aff'
BINARY(4) DEFAULT 0xABC
VARBINARY(4) DEFAULT 'ab'
VARBINARY(4) DEFAULT x''
VARBINARY(4) NOT NULL
VARBINARY(4) DEFAULT _binary'ab'
TINYBLOB
BLOB NOT NULL
BLOB(70000)
MEDIUMBLOB
LONGBLOB
ENUM('a','b')
ENUM('a','b') DEFAULT 'b'
ENUM('a ','b') DEFAULT 'A'
ENUM('x,y','it''s') NOT NULL
ENUM('a','b') CHARACTER SET latin1 NOT NULL DEFAULT 'b'
SET('a','b','c')
SET('a','b','c') DEFAULT 'c,a'
SET('a','b','c') NOT NULL
SET('a','b') DEFAULT ''
JSON
GEOMETRY
POINT
LINESTRING
POLYGON
MULTIPOINT
MULTILINESTRING
MULTIPOLYGON
GEOMETRYCOLLECTION
INT DEFAULT 1 INVISIBLE
INT UNIQUE KEY
INT DEFAULT 4 AFTER id
INT DEFAULT 4 FIRST
refused: INT AUTO_INCREMENT UNIQUE
refused: SERIAL
refused: BIGINT SERIAL DEFAULT VALUE
refused: TIMESTAMP DEFAULT CURRENT_TIMESTAMP
refused: DATETIME(6) DEFAULT NOW(6) ON UPDATE NOW(6)
refused: INT DEFAULT (1 + 1)
refused: VARCHAR(36) DEFAULT (CONCAT('a', 'b'))
refused: INT GENERATED ALWAYS AS (id + 1) VIRTUAL
refused: INT AS (id + 1) STORED
refused: DECIMAL(5,1) DEFAULT 1.25
refused: FLOAT(7,2) DEFAULT 1.5
refused: VARCHAR(20) DEFAULT 1.50
refused: VARCHAR(20) DEFAULT x'4142'
refused: BIT(8) DEFAULT 'A'
refused: YEAR DEFAULT 24
refused: DATE DEFAULT 20240102
refused: DATE DEFAULT '24-1-2'
refused: TIME DEFAULT '12:34'
refused: TIME DEFAULT 1234
""".strip().splitlines()
MYSQL = r"""
GEOMCOLLECTION
POINT SRID 4326
INT DEFAULT 3 COLUMN_FORMAT DEFAULT STORAGE DEFAULT
INT DEFAULT 3 CONSTRAINT CHECK (c > 0)
refused: INT DEFAULT (1 + 1) COMMENT 'x'
VECTOR(3)
VECTOR
SET('a','b') CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci DEFAULT 'B'
VARCHAR(20) DEFAULT ('x')
TEXT DEFAULT ('x')
INT NOT SECONDARY DEFAULT 2
INT DEFAULT 3 CHECK (c > 0) NOT ENFORCED
refused: JSON DEFAULT ('{}')
refused: JSON NOT NULL
""".strip().splitlines()
MARIADB = r"""
TEXT DEFAULT 'abc'
BLOB DEFAULT 'abc'
JSON DEFAULT '{}'
JSON NOT NULL
UUID
INET4
INET6
VARCHAR(20) COMPRESSED DEFAULT 'ab  '
VARCHAR(20) CHARACTER SET latin1 COMPRESSED=zlib DEFAULT 'x'
TEXT COMPRESSED BYTE
LONGBLOB COMPRESSED NOT NULL
mariadb_schema.date DEFAULT '2024-01-02'
refused: UUID NOT NULL
refused: UUID DEFAULT '00000000-0000-0000-0000-000000000001'
refused: INET6 DEFAULT '::1'
refused: INT DEFAULT length('abc') COMMENT 'x'
refused: VARCHAR(40) DEFAULT uuid()
refused: INT AS (id + 1) PERSISTENT
""".strip().splitlines()

_FIXED = {
    "double": "double", "float": "float", "date": "date", "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "time": "string", "year": "smallint", "json": "string", "enum": "string", "set": "string",
    "vector": "array<float>",
    "uuid": "string", "inet4": "string", "inet6": "string",
}  # fmt: skip
_GEOMETRIES = {
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
} | {
    "geometrycollection",
    "geomcollection",
}
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def _wanted_type(
    data_type: str, column_type: str, charset: str | None, precision: int, scale: int
) -> str:
    """By information_schema (docs/reference/types.md), independent of the code under test."""
    if data_type in _INTEGERS:
        bits = _INTEGERS[data_type] + ("unsigned" in column_type)
        for limit, name in ((8, "tinyint"), (16, "smallint"), (32, "int"), (64, "bigint")):
            if bits <= limit:
                return name
        return "decimal(20,0)"
    if data_type == "decimal":
        return f"decimal({precision},{scale})" if precision <= 38 else "string"
    if data_type == "bit":
        return "boolean" if precision == 1 else "bigint" if precision < 64 else "decimal(20,0)"
    if data_type in _GEOMETRIES:
        return "struct<srid:int,wkb:binary>"
    if data_type in _FIXED:
        return _FIXED[data_type]
    return "string" if charset else "binary"


def read_value(sql: str) -> Any:
    value = constant(sql).as_py()
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return Decimal(value) if type(value) is int else value


def selected(
    server: Server, database: str, delta: str, data_type: str, table: str = "t", column: str = "c"
) -> Any:
    shown = {"time": f"CAST({column} AS CHAR)", "float": f"{column} + 0e0"}.get(data_type, column)
    if data_type == "decimal" and delta == "string":
        shown = f"CAST({column} AS CHAR)"
    (value,) = server.query(f"SELECT {shown} FROM `{database}`.{table}")[0]
    if value is None:
        return None
    if data_type == "bit":
        number = int.from_bytes(value, "big")
        return bool(number) if delta == "boolean" else Decimal(number)
    return Decimal(value) if isinstance(value, int) else value


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_k13_added_column_has_the_servers_type_and_value(
    request: pytest.FixtureRequest, flavor: str
) -> None:
    server: Server = request.getfixturevalue(f"{flavor}_server")
    database: str = request.getfixturevalue(f"{flavor}_database")
    lines = BOTH + (MYSQL if flavor == "mysql" else MARIADB)
    with server.root_connection(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET time_zone = '+00:00'")
        for number, line in enumerate(lines):
            cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY) CHARACTER SET utf8mb4")
            cursor.execute(f"INSERT INTO t{number} VALUES (1)")
            cursor.execute(f"ALTER TABLE t{number} ADD COLUMN c {line.removeprefix('refused: ')}")
        connection.commit()
    shown = {
        table: columns
        for table, *columns in server.query(
            "SELECT table_name, lower(data_type), lower(column_type), character_set_name, "
            "numeric_precision, numeric_scale FROM information_schema.columns WHERE "
            f"table_schema = '{database}' AND column_name = 'c'"
        )
    }
    server.execute(f"USE `{database}`")
    for number, line in enumerate(lines):
        _compare(server, database, line, f"t{number}", *shown[f"t{number}"])


def _compare(
    server: Server,
    database: str,
    line: str,
    table: str,
    data_type: str,
    column_type: str,
    charset: str | None,
    precision: int | None,
    scale: int | None,
) -> None:
    is_mariadb = server.flavor == "mariadb"
    definition = line.removeprefix("refused: ")
    if data_type in ("enum", "set"):
        charset = None
    alter = f"ALTER TABLE {table} ADD COLUMN c {definition}"
    (action,) = parse_statement(alter, database, is_mariadb=is_mariadb, modes=MODES).actions
    assert action.kind is ActionKind.ADD_COLUMN, action
    assert action.column is not None, line
    ours = delta_type(action.column.column)
    assert ours == _wanted_type(data_type, column_type, charset, precision or 0, scale or 0), line

    if line.startswith("refused: "):
        with pytest.raises(Uncertain):
            pytest.fail(f"{line}: {backfill(action.column, modes=MODES)}")
        return
    value = backfill(action.column, modes=MODES)
    assert read_value(value) == selected(server, database, ours, data_type, table), line

    position = re.sub(r" (FIRST|AFTER id)$", "", definition)
    create = f"TABLE u_{table} (id INT, c {position}, PRIMARY KEY (id)) DEFAULT CHARSET=utf8mb4"
    server.execute(f"CREATE TEMPORARY {create}")
    created = parse_statement(
        f"CREATE {create}", database, is_mariadb=is_mariadb, modes=MODES
    ).created
    assert created is not None, line
    assert [delta_type(column.column) for column in created.columns] == ["int", ours], line
    assert created.primary_key == ("id",), line
