"""pymysqlreplication's decoder on the same journal, for the types that it reads rightly."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from cdc_pipeline.binlog.table_schema import Column, Kind
from tests.campaigns.edges.evidence import Journal
from tests.servers import Server

ROWS = 300
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(source: random.Random, digits: int) -> str:
    fraction = f".{source.randrange(10**digits):0{digits}d}" if digits else ""
    return (
        f"'{source.randint(1971, 2037)}-{source.randint(1, 12):02d}-{source.randint(1, 28):02d} "
        f"12:34:56{fraction}'"
    )


def clock(source: random.Random, digits: int) -> str:
    fraction = f".{source.randrange(10**digits):0{digits}d}" if digits else ""
    return f"'{source.randint(0, 838):02d}:{source.randint(0, 59):02d}:{source.randint(0, 58):02d}{fraction}'"  # noqa: E501


def text(source: random.Random, most: int) -> str:
    return "'" + "".join(source.choices("abz ä漢é😀0", k=source.randint(1, most))) + "z'"


def decimal(source: random.Random, whole: int, scale: int) -> str:
    return f"{source.choice(['', '-'])}{source.randrange(10**whole)}.{source.randrange(10**scale):0{scale}d}"  # noqa: E501


# declared: a random value of it
COLUMNS: dict[str, Any] = {
    **{
        f"{name}{sign}": (
            lambda s, bits=bits, low=low: str(s.randrange(1 << bits) - low * (1 << (bits - 1)))
        )
        for name, bits in (
            ("TINYINT", 8),
            ("SMALLINT", 16),
            ("MEDIUMINT", 24),
            ("INT", 32),
            ("BIGINT", 64),
        )
        for sign, low in (("", 1), (" UNSIGNED", 0))
    },
    **{
        f"BIT({bits})": (lambda s, bits=bits: str(s.getrandbits(bits)))
        for bits in (1, 7, 8, 9, 33, 64)
    },
    "DECIMAL(65,30)": lambda s: decimal(s, 35, 30),
    "DECIMAL(12,2)": lambda s: decimal(s, 10, 2),
    "DECIMAL(38,9)": lambda s: decimal(s, 29, 9),
    "FLOAT": lambda s: repr(s.uniform(-1e30, 1e30)),
    "DOUBLE": lambda s: repr(s.uniform(-1e300, 1e300)),
    "DATE": lambda s: moment(s, 0)[:11] + "'",
    **{f"DATETIME({digits})": (lambda s, digits=digits: moment(s, digits)) for digits in range(7)},
    **{
        f"TIMESTAMP({digits}) NULL": (lambda s, digits=digits: moment(s, digits))
        for digits in range(7)
    },
    **{f"TIME({digits})": (lambda s, digits=digits: clock(s, digits)) for digits in range(7)},
    "VARCHAR(20)": lambda s: text(s, 18),
    "VARCHAR(400)": lambda s: text(s, 300),
    "CHAR(30)": lambda s: text(s, 18),
    "TEXT": lambda s: text(s, 600),
    "VARBINARY(20)": lambda s: f"x'{s.randbytes(s.randint(1, 20)).hex()}'",
    "BLOB": lambda s: f"x'{s.randbytes(s.randint(1, 300)).hex()}'",
    "ENUM('a','bä','c')": lambda s: str(s.randint(1, 3)),
    "SET('a','b','cä')": lambda s: str(s.randint(1, 7)),
    "GEOMETRY": lambda s: (
        f"ST_GeomFromText('POINT({s.randint(-80, 80)} {s.randint(-80, 80)})', 4326)"
    ),
}


def theirs(server: Server, database: str, journal: str) -> list[tuple[Any, Any]]:
    """(before, after) of all rows of table `o`, as pymysqlreplication reads them."""
    stream = BinLogStreamReader(
        connection_settings={
            "host": server.host, "port": server.port, "user": "root", "password": "",
            "ssl_disabled": True,
        },
        server_id=987_654, blocking=False, log_file=journal, log_pos=4, resume_stream=True,
        is_mariadb=False,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent], only_schemas=[database],
        only_tables=["o"],
    )  # fmt: skip
    found: list[tuple[Any, Any]] = []
    try:
        for event in stream:
            for row in event.rows:
                values = row.get("values")
                is_delete = isinstance(event, DeleteRowsEvent)
                before = row.get("before_values", values if is_delete else None)
                found.append((before, row.get("after_values", None if is_delete else values)))
    finally:
        stream.close()
    return found


def in_their_form(column: Column, value: Any) -> Any:
    """Our value of a column as pymysqlreplication would give it."""
    if value is None:
        return None
    kind = column.kind
    if kind is Kind.BIT:
        return f"{int(value):0{column.bits}b}"
    if kind is Kind.DECIMAL:
        return str(value)
    if kind is Kind.TIMESTAMP:
        return value.replace(tzinfo=None)
    if kind is Kind.TIME:
        hours, minutes, seconds = value.split(":")
        return timedelta(
            hours=int(hours), minutes=int(minutes), microseconds=round(float(seconds) * 1e6)
        )
    if kind is Kind.SET:
        return set(value.split(","))
    if kind is Kind.GEOMETRY:
        return value["srid"].to_bytes(4, "little") + value["wkb"]
    if kind is Kind.JSON:
        return json.loads(value)
    return value


def in_one_form(column: Column, value: Any) -> Any:
    """Their value, where they have two forms of one thing."""
    if column.kind is Kind.DECIMAL and value is not None:
        return format(value, "f")
    if column.kind is Kind.DATE and isinstance(value, datetime):
        return date(value.year, value.month, value.day)
    return value


def test_pymysqlreplication_reads_the_same(server: Server, fresh_database: str) -> None:
    source = random.Random(server.flavor)
    declared = ", ".join(f"c{index} {name}" for index, name in enumerate(COLUMNS))
    rows = []
    for number in range(ROWS):
        cells = ["NULL" if source.random() < 0.1 else make(source) for make in COLUMNS.values()]
        rows.append(f"({number}, {', '.join(cells)})")
    server.execute_all(
        f"USE `{fresh_database}`", "SET NAMES utf8mb4", "SET time_zone = '+00:00'",
        f"CREATE TABLE o (id INT PRIMARY KEY, {declared}) CHARACTER SET utf8mb4",
        f"INSERT INTO o VALUES {', '.join(rows)}", "UPDATE o SET c0 = 1 - id % 2 WHERE id < 50",
        "DELETE FROM o WHERE id > 250",
    )  # fmt: skip
    journal = Journal(server, fresh_database)
    decoded = journal.rows("o")
    columns = decoded.schema.columns
    mine = [
        [
            [in_their_form(column, value) for value in batch.column(index).to_pylist()]
            for index, column in enumerate(columns)
        ]
        for batch in (decoded.before, decoded.after)
    ]
    other = theirs(server, fresh_database, journal.path.name)
    assert len(other) == len(decoded) > ROWS
    for row, images in enumerate(other):
        for image, values in enumerate(images):
            for index, column in enumerate(columns):
                expected = None if values is None else in_one_form(column, values[column.name])
                assert mine[image][index][row] == expected, (row, image, list(COLUMNS)[index - 1])


@pytest.mark.mysql
def test_pymysqlreplication_reads_the_same_json(mysql_server: Server, mysql_database: str) -> None:
    source = random.Random(3)

    def document(depth: int) -> Any:
        choice = source.randrange(7 if depth else 4)
        if choice < 4:
            return [
                source.randint(-(2**40), 2**40),
                source.choice(["a", "ä😀", ""]),
                True,
                source.uniform(-9, 9),
            ][choice]
        if choice == 4:
            return [document(depth - 1) for _ in range(source.randint(0, 5))]
        return {f"k{number}": document(depth - 1) for number in range(source.randint(0, 5))}

    documents = [document(4) for _ in range(200)]
    values = ", ".join(
        f"({number}, '{json.dumps(found, ensure_ascii=False)}')"
        for number, found in enumerate(documents)
    )
    mysql_server.execute_all(
        f"USE `{mysql_database}`", "SET NAMES utf8mb4",
        "CREATE TABLE o (id INT PRIMARY KEY, c JSON)",
        f"INSERT INTO o VALUES {values}",
    )  # fmt: skip
    journal = Journal(mysql_server, mysql_database)
    mine = [json.loads(value) for value in journal.rows("o").after.column("c").to_pylist()]
    other = [after["c"] for _, after in theirs(mysql_server, mysql_database, journal.path.name)]
    assert mine == documents == [_decoded(value) for value in other]


def _decoded(value: Any) -> Any:
    """Their JSON, whose strings and keys are bytes."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_decoded(key): _decoded(part) for key, part in value.items()}
    return [_decoded(part) for part in value] if isinstance(value, list) else value
