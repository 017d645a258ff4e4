"""Record the fuzzer's seeds again from real servers: ``python -m tests.campaigns.fuzz.record``.

Each seed is one small journal, xz-compressed, named by flavor and subject. They are made once: the
mutations of a case under crashers/ name events of these bytes, so that a new recording asks for new
cases.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import Server
from tests.support.xa_session import XaSession

SEEDS = Path(__file__).with_name("seeds")

COLUMNS = {
    "numbers": [
        ("TINYINT", "-128"), ("TINYINT UNSIGNED", "255"), ("SMALLINT", "-32768"),
        ("MEDIUMINT", "-8388608"),
        ("MEDIUMINT UNSIGNED", "16777215"), ("INT", "7"), ("INT UNSIGNED", "4294967295"),
        ("BIGINT", "-9223372036854775808"), ("BIGINT UNSIGNED", "18446744073709551615"),
        ("BIT(1)", "1"),
        ("BIT(13)", "5461"), ("BIT(64)", "18446744073709551615"), ("DECIMAL(65,30)", "-12345.678"),
        ("DECIMAL(38,30)", "-0.5"), ("DECIMAL(12,2)", "1234567890.12"), ("DECIMAL(1,1)", "-0.9"),
        ("DECIMAL(40,2)", "12345678901234567890.10"), ("FLOAT", "1.5e-7"),
        ("DOUBLE", "-1.7976931348623157e308"),
        ("YEAR", "2155"), ("BOOLEAN", "TRUE"),
    ],
    "times": [
        ("DATE", "'2024-02-29'"), ("DATE", "'0000-00-00'"), ("DATETIME", "'9999-12-31 23:59:59'"),
        ("DATETIME(3)", "'2024-02-00 10:00:00.987'"),
        ("DATETIME(6)", "'1969-12-31 23:59:59.987654'"),
        ("TIMESTAMP NULL", "'2038-01-19 03:14:07'"),
        ("TIMESTAMP(4) NULL", "'2001-09-09 01:46:40.9876'"),
        ("TIME", "'-838:59:59'"), ("TIME(1)", "'-00:00:00.1'"), ("TIME(6)", "'-12:34:56.987654'"),
    ],
    "texts": [
        ("VARCHAR(40)", "'ä漢😀'"), ("VARCHAR(300)", "REPEAT('y', 280)"), ("CHAR(100)", "'  a  '"),
        ("TINYTEXT", "'a'"),
        ("MEDIUMTEXT", "REPEAT('abc', 40)"), ("LONGTEXT", "''"), ("BINARY(16)", "x'6162630000'"),
        ("VARBINARY(16)", "x'00ff'"), ("BLOB", "x'ff00'"),
        ("ENUM('a','bä','c')", "'bä'"), ("SET('a','b','cä')", "'a,cä'"),
        ("ENUM('x','ü') CHARACTER SET latin1", "2"), ("SET('x','ü') CHARACTER SET utf16", "3"),
        ("VARCHAR(20) CHARACTER SET latin1", "'ü'"), ("VARCHAR(20) CHARACTER SET cp932", "'漢x'"),
        ("VARCHAR(20) CHARACTER SET utf16", "'a漢😀'"), ("VARCHAR(20) CHARACTER SET utf32", "'a漢'"),  # noqa: E501
        ("VARCHAR(20) CHARACTER SET ujis", "'漢字'"), ("VARCHAR(20) CHARACTER SET utf8mb3", "'ä漢'"),  # noqa: E501
        ("VARCHAR(20) CHARACTER SET ascii", "'plain'"),
        ("GEOMETRY", "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)"),
    ],
}  # fmt: skip

DOCUMENTS = (
    "'null'", "'[]'", "'{}'", "'-32769'", "'18446744073709551615'", "'1e300'",
    """'{"b": 1, "aa": [1, 2, {"c": "d", "e": [true, false, null, -1.5]}], "": 65536}'""",
    "JSON_ARRAY(CAST('12.340' AS DECIMAL(10,3)), CAST('2024-01-02' AS DATE), "
    "CAST('-100:01:02.000003' AS TIME(6)))",
    "JSON_ARRAY(CAST('2024-01-02 03:04:05.123' AS DATETIME(3)), CAST(REPEAT('A', 58) AS BINARY))",
    "JSON_OBJECT('big', REPEAT('x', 200), 'n', "
    "JSON_ARRAY(JSON_ARRAY(JSON_ARRAY(JSON_OBJECT('deep', 1)))))",
)  # fmt: skip


class Recorder:
    def __init__(self, server: Server) -> None:
        self.server = server

    @contextmanager
    def seed(self, name: str) -> Iterator[Callable[..., None]]:
        self.server.flush_journal()
        connection = self.server.root_connection(database="f")
        with connection, connection.cursor() as cursor:

            def run(*statements: str) -> None:
                for statement in statements:
                    cursor.execute(statement)

            run("SET sql_mode = 'ALLOW_INVALID_DATES'")
            yield run
        self.server.flush_journal()
        data = self.server.journals()[-2].read_bytes()
        file = SEEDS / f"{self.server.flavor}-{name}.xz"
        file.write_bytes(lzma.compress(data, format=lzma.FORMAT_XZ, preset=9))
        print(f"{file.name}: {len(data)} bytes, {file.stat().st_size} stored")

    def types(self, name: str, columns: list[tuple[str, str]]) -> None:
        declared = ", ".join(f"c{index} {kind}" for index, (kind, _) in enumerate(columns))
        values = ", ".join(value for _, value in columns)
        with self.seed(name) as run:
            run(
                f"CREATE TABLE t_{name} (id INT AUTO_INCREMENT PRIMARY KEY, {declared}) "
                "CHARACTER SET utf8mb4",
                f"INSERT INTO t_{name} VALUES (1, {values}), (2, {values})",
                f"INSERT INTO t_{name} (id) VALUES (3)",
                f"UPDATE t_{name} SET c1 = NULL WHERE id < 3",
                "SET SESSION binlog_row_image = MINIMAL",
                f"UPDATE t_{name} SET c0 = NULL, c2 = NULL WHERE id = 1",
                f"DELETE FROM t_{name} WHERE id = 3",
                "SET SESSION binlog_row_image = NOBLOB",
                f"DELETE FROM t_{name}",
            )


def transactions(run: Callable[..., None], flavor: str) -> None:
    """Savepoints, two tables in a transaction, a rollback that is logged, DDL in between, CREATE
    ... SELECT."""
    run(
        "CREATE TABLE a (id INT PRIMARY KEY, word VARCHAR(30)) ENGINE=InnoDB",
        "CREATE TABLE b (id INT PRIMARY KEY, word VARCHAR(30)) ENGINE=InnoDB",
        "CREATE TABLE m (id INT PRIMARY KEY, word VARCHAR(30)) ENGINE=MyISAM",
        "INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "BEGIN", "INSERT INTO b SELECT * FROM a",
        "UPDATE a, b SET a.word = 'x', b.word = 'y' WHERE a.id = b.id",
        "SAVEPOINT s", "DELETE FROM b WHERE id = 1", "ROLLBACK TO s",
        "INSERT INTO a VALUES (9, NULL)", "COMMIT",
    )  # fmt: skip
    # MySQL refuses both kinds of tables in one transaction where it has GTIDs
    if flavor == "mariadb":
        run(
            "BEGIN", "INSERT INTO a VALUES (10, 'ten')", "SAVEPOINT s",
            "INSERT INTO m VALUES (1, 'kept')",
            "DELETE FROM a WHERE id = 9", "ROLLBACK TO s", "COMMIT",
        )  # fmt: skip
    run(
        "INSERT INTO m VALUES (2, 'alone')",
        "ALTER TABLE a ADD COLUMN more INT NOT NULL DEFAULT 5",
        "INSERT INTO a VALUES (11, 'eleven', 6)",
        "CREATE TABLE c AS SELECT id, word FROM a",
        "SET @v = 'text'", "INSERT INTO b VALUES (20, @v)",
        "RENAME TABLE c TO d", "TRUNCATE TABLE d", "DROP TABLE d",
    )  # fmt: skip
    if flavor == "mariadb":
        run("CREATE SEQUENCE q", "SELECT NEXT VALUE FOR q")


def xa(server: Server) -> None:
    """A prepared transaction that is committed, one that is rolled back, and one phase."""
    for xid, end in (
        ("'one','b',7", "commit"),
        ("X'00ff'", "rollback"),
        ("'p'", "commit_one_phase"),
    ):
        session = XaSession(server, "f", xid).run(f"INSERT INTO b VALUES ({100 + len(xid)}, 'xa')")
        if end != "commit_one_phase":
            session.prepare()
        getattr(session, end)()


def compressible(run: Callable[..., None]) -> None:
    run(
        "CREATE TABLE z (id INT PRIMARY KEY, word VARCHAR(400), note TEXT, n DECIMAL(12,2))",
        "INSERT INTO z VALUES (1, REPEAT('ab', 90), REPEAT('note ', 60), 1.25), (2, NULL, "
        "REPEAT('q', 300), NULL)",
        "UPDATE z SET word = REPEAT('cd', 120)",
        "BEGIN", "INSERT INTO z SELECT id + 10, word, note, n FROM z", "DELETE FROM z WHERE id = 1",
        "COMMIT",
        "ALTER TABLE z MODIFY word VARCHAR(500) COMMENT 'a long comment that is worth to be "
        "compressed, so long it is'",
        "DELETE FROM z",
    )  # fmt: skip


def record_mysql() -> None:
    with Server("mysql", {"local_infile": True, "binlog_rows_query_log_events": True}) as server:
        server.execute("CREATE DATABASE f CHARACTER SET utf8mb4")
        recorder = Recorder(server)
        for name, columns in COLUMNS.items():
            recorder.types(name, columns)
        with recorder.seed("json") as run:
            run("CREATE TABLE j (id INT AUTO_INCREMENT PRIMARY KEY, d JSON, v VECTOR(3))")
            for document in DOCUMENTS:
                run(f"INSERT INTO j (d, v) VALUES ({document}, STRING_TO_VECTOR('[1,2.5,-0.125]'))")
            run(
                "UPDATE j SET d = JSON_ARRAY(d, d) WHERE id < 8", "DELETE FROM j WHERE id IN (2, 7)"
            )
        with recorder.seed("jsonlarge") as run:
            run(
                "CREATE TABLE l (id INT PRIMARY KEY, d JSON)",
                "INSERT INTO l VALUES (1, JSON_ARRAY(REPEAT('y', 66000), 70000, JSON_OBJECT('k', "
                "5, 'o', JSON_ARRAY(1.5))))",
            )
        with recorder.seed("transactions") as run:
            transactions(run, "mysql")
            xa(server)
            run("SET gtid_next = 'AUTOMATIC:tag1'", "INSERT INTO b VALUES (200, 'tagged')")
        with recorder.seed("payload") as run:
            run("SET binlog_transaction_compression = ON")
            compressible(run)
            run(
                "SET gtid_next = 'AUTOMATIC:tag2'",
                "INSERT INTO z VALUES (300, REPEAT('t', 300), NULL, 0)",
            )
        with recorder.seed("partial") as run:
            run(
                "CREATE TABLE p (id INT PRIMARY KEY, d JSON, e JSON)",
                """INSERT INTO p VALUES (1, '{"a": [1, 2, 3], "b": {"c": "text"}, "f": 1.5}', '[1]')""",  # noqa: E501
                """INSERT INTO p VALUES (2, '{"a": 1}', NULL)""",
                "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
                "UPDATE p SET d = JSON_SET(d, '$.a[1]', 'x', '$.b.c', JSON_ARRAY(1, 2)), e = "
                "JSON_REMOVE(e, '$[0]')",
                "SET SESSION binlog_row_image = MINIMAL",
                "UPDATE p SET d = JSON_REMOVE(JSON_REPLACE(d, '$.a', 7), '$.f') WHERE id = 1",
            )
        server.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
        with recorder.seed("metadata") as run:
            run(
                "CREATE TABLE n (id BIGINT UNSIGNED PRIMARY KEY, e ENUM('a','b'), w "
                "VARCHAR(20), d DECIMAL(9,3))",
                "INSERT INTO n VALUES (18446744073709551615, 'b', 'word', -1.5)",
                "UPDATE n SET w = 'other'",
            )
        server.execute("SET GLOBAL binlog_row_metadata = FULL")
    with Server(
        "mysql", {"gtid_mode": False, "enforce_gtid_consistency": False, "binlog_checksum": "NONE"}
    ) as server:
        server.execute("CREATE DATABASE f")
        with Recorder(server).seed("anonymous") as run:
            run(
                "CREATE TABLE a (id INT PRIMARY KEY, word VARCHAR(30), d JSON, n DECIMAL(20,6), t "
                "TIME(3), z DATETIME)",
                "INSERT INTO a VALUES (1, 'one', '{\"k\": [1, \"v\"]}', 1.5, "
                "'-10:00:00.5', '2024-01-01')",
                "UPDATE a SET word = 'two'",
                "SET binlog_format = STATEMENT", "INSERT INTO a (id, word) VALUES (2, 'text')",
                "SET binlog_format = ROW", "DELETE FROM a",
                "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM", "BEGIN",
                "INSERT INTO a (id) VALUES (3)",
                "INSERT INTO m VALUES (1)", "ROLLBACK",
            )  # fmt: skip


def record_mariadb() -> None:
    with Server("mariadb") as server:
        server.execute("CREATE DATABASE f CHARACTER SET utf8mb4")
        recorder = Recorder(server)
        for name, columns in COLUMNS.items():
            recorder.types(name, columns)
        own: list[tuple[str, str]] = [
            ("UUID", "UUID()"), ("INET6", "'::1'"), ("INET4", "'10.0.0.1'"),
            ("JSON", "'{\"k\": [1, null]}'"), ("VARCHAR(300) COMPRESSED", "REPEAT('c', 250)"),
            ("TEXT COMPRESSED", "REPEAT('d', 400)"), ("BLOB COMPRESSED", "x'00'"),
        ]  # fmt: skip
        recorder.types("own", own)
        server.execute("SET GLOBAL mysql56_temporal_format = OFF")
        with recorder.seed("old") as run:
            run(
                "CREATE TABLE o (id INT PRIMARY KEY, a TIME, b DATETIME, c TIMESTAMP NULL, d "
                "TIME(3), e DATETIME(6))",
                "INSERT INTO o VALUES (1, '-10:11:12', '2024-01-02', '2024-01-02 03:04:05', "
                "'-1:00:00.5', NULL)",
                "UPDATE o SET e = '2024-01-02 03:04:05.000001'",
            )
        server.execute("SET GLOBAL mysql56_temporal_format = ON")
        with recorder.seed("transactions") as run:
            transactions(run, "mariadb")
            xa(server)
        server.execute("SET GLOBAL log_bin_compress_min_len = 10")
        server.execute("SET GLOBAL log_bin_compress = ON")
        with recorder.seed("compressed") as run:
            compressible(run)
        server.execute("SET GLOBAL log_bin_compress = OFF")
        server.execute("SET GLOBAL binlog_checksum = NONE")
        with recorder.seed("plain") as run:
            run(
                "CREATE TABLE r (id INT PRIMARY KEY, word VARCHAR(30), n DECIMAL(20,6), t TIME(3), "
                "e ENUM('a','b'))",
                "INSERT INTO r VALUES (1, 'one', 1.5, '-10:00:00.5', 'b')",
                "UPDATE r SET word = 'two'", "DELETE FROM r",
            )  # fmt: skip


def main() -> None:
    SEEDS.mkdir(exist_ok=True)
    record_mysql()
    record_mariadb()


if __name__ == "__main__":
    main()
