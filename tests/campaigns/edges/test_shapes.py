"""Tables of unusual shape: very many labels and columns, no key, invisible and generated
columns."""

from __future__ import annotations

import random

from cdc_pipeline.binlog.table_schema import Column, Kind
from tests.binlog.kernels.test_kernels import decode
from tests.campaigns.edges.evidence import Journal, printed, texts_of
from tests.campaigns.edges.test_charsets import SWEEP
from tests.servers import Server
from tests.source.rows.helpers import differences

# The servers compare each label with each other: 65,535 take half a minute. MariaDB's labels fill
# 64 KiB at most.
MEMBERS = {"mysql": 65_535 if SWEEP else 600, "mariadb": 13_000 if SWEEP else 600}


def test_enum_of_very_many_members(server: Server, fresh_database: str) -> None:
    count = MEMBERS[server.flavor]
    members = ",".join(f"'{number:x}'" for number in range(1, count + 1))
    server.execute_all(
        f"USE `{fresh_database}`", f"CREATE TABLE t (id INT PRIMARY KEY, c ENUM({members}))",
        f"INSERT INTO t VALUES (1, 1), (2, 255), (3, 256), (4, {count}), (5, '1ab'), (6, NULL)",
    )  # fmt: skip
    selected = [value for (value,) in server.query("SELECT c FROM t ORDER BY id")]
    rows = Journal(server, fresh_database).rows("t")
    assert (
        rows.after.column("c").to_pylist()
        == selected
        == ["1", "ff", "100", f"{count:x}", "1ab", None]
    )
    assert len(rows.schema.columns[1].labels) == count


def test_enum_of_65535_members_by_number() -> None:
    labels = tuple(f"{number:x}" for number in range(1, 65_536))
    column = Column("c", Kind.ENUM, 247, 2, True, charset="utf8mb4", labels=labels)
    numbers = [0, 1, 255, 256, 65_534, 65_535, *random.Random(1).sample(range(65_536), 300)]
    rows = decode(column, [number.to_bytes(2, "little") for number in numbers])
    assert rows.after.column("c").to_pylist() == [("", *labels)[number] for number in numbers]


TYPES = [
    ("INT", "-5"), ("TINYINT UNSIGNED", "255"), ("BIT(3)", "5"), ("VARCHAR(3)", "'ä'"),
    ("BINARY(2)", "x'01'"),
    ("DECIMAL(5,2)", "-1.25"), ("DATE", "'2024-02-29'"), ("TIME(3)", "'-00:00:00.5'"),
    ("ENUM('a','b')", "'b'"),
    ("SET('a','b')", "'a,b'"), ("DOUBLE", "0.5"), ("YEAR", "1999"),
    ("CHAR(2) CHARACTER SET latin1", "'é'"),
]  # fmt: skip
SHOWN = {
    "BIT(3)": "{c} + 0",
    "BINARY(2)": "LOWER(HEX({c}))",
    "CHAR(2) CHARACTER SET latin1": "CONVERT({c} USING utf8mb4)",
}


def test_a_thousand_columns_with_every_pattern_of_nulls(
    server: Server, fresh_database: str
) -> None:
    columns = [TYPES[index % len(TYPES)] for index in range(999)]
    declared = ", ".join(f"c{index} {name} NULL" for index, (name, _) in enumerate(columns))
    source = random.Random(5)
    rows = []
    for row in range(40):
        share = (0, 1, 0.5, 0.1)[row % 4]
        rows.append(
            [f"{row}", *("NULL" if source.random() < share else value for _, value in columns)]
        )
    server.execute_all(
        f"USE `{fresh_database}`", "SET sql_mode = ''",
        f"CREATE TABLE t (id INT PRIMARY KEY, {declared})",
        "INSERT INTO t VALUES " + ", ".join(f"({', '.join(row)})" for row in rows),
    )  # fmt: skip
    shown = [
        SHOWN.get(name, "{c}").format(c=f"c{index}") for index, (name, _) in enumerate(columns)
    ]
    selected = server.query(
        f"SELECT {', '.join(f'CAST({text} AS CHAR)' for text in shown)} FROM t ORDER BY id"
    )
    server.execute_all(
        "UPDATE t SET c998 = NULL, c0 = 1 WHERE id = 0", "DELETE FROM t WHERE id = 1"
    )
    decoded = Journal(server, fresh_database).rows("t")
    assert decoded.invalid == []
    for index in range(999):
        got, _ = texts_of(decoded, index + 1)
        expected = [printed(row[index]) for row in selected]
        if columns[index][0] in ("DOUBLE",):
            assert [value and float(value) for value in got[:40]] == [
                value and float(value) for value in expected
            ]
        else:
            assert got[:40] == expected, columns[index]
    assert decoded.after.column("c0").to_pylist()[40] == 1
    assert decoded.before.column("c2").to_pylist()[41] == decoded.after.column("c2").to_pylist()[1]


def test_tables_without_a_key(server: Server, fresh_database: str) -> None:
    server.execute_all(
        f"USE `{fresh_database}`", "CREATE TABLE t (a INT, b VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
        "UPDATE t SET b = 'y' WHERE a = 1", "DELETE FROM t WHERE a IS NULL",
    )  # fmt: skip
    rows = Journal(server, fresh_database).rows("t")
    assert rows.schema.primary_key == ()
    assert rows.after.to_pylist()[3:5] == [{"a": 1, "b": "y"}] * 2
    assert rows.before.to_pylist()[5] == {"a": None, "b": None}


def test_invisible_and_generated_columns(server: Server, fresh_database: str) -> None:
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 3 INVISIBLE, s INT AS (id * 2) "
        "STORED, v VARCHAR(20) AS (CONCAT('v', id)) VIRTUAL, w INT AS (id + 1) VIRTUAL "
        "INVISIBLE, last INT)",
        "INSERT INTO t (id, last) VALUES (1, 10), (2, 20)",
        "INSERT INTO t (id, a, last) VALUES (3, -1, NULL)",
        "UPDATE t SET id = 7 WHERE id = 2",
    )  # fmt: skip
    names = ("id", "a", "s", "v", "w", "last")
    selected = server.query(f"SELECT {', '.join(names)} FROM t ORDER BY id")
    rows = Journal(server, fresh_database).rows("t")
    assert rows.schema.column_names == names
    if server.flavor == "mysql":  # MariaDB's table map does not tell it
        assert [column.visible for column in rows.schema.columns] == [
            True,
            False,
            True,
            True,
            False,
            True,
        ]
    after = [tuple(row[name] for name in names) for row in rows.after.to_pylist()]
    assert [after[0], after[2], after[3]] == selected
    assert tuple(rows.before.to_pylist()[3].values()) == after[1]


def test_generated_invisible_primary_key(mysql_server: Server, mysql_database: str) -> None:
    mysql_server.execute_all(
        f"USE `{mysql_database}`", "SET sql_generate_invisible_primary_key = ON",
        "CREATE TABLE t (b VARCHAR(9))",
        "INSERT INTO t VALUES ('x'), ('y')",
    )  # fmt: skip
    selected = mysql_server.query("SELECT my_row_id, b FROM t ORDER BY my_row_id")
    journal = Journal(mysql_server, mysql_database)
    rows = journal.rows("t")
    assert rows.schema.key_names == ("my_row_id",)
    assert not rows.schema.columns[0].visible
    assert rows.schema.columns[0].unsigned
    assert [(int(row["my_row_id"]), row["b"]) for row in rows.after.to_pylist()] == selected
    assert differences(mysql_server, journal, "t") == []
