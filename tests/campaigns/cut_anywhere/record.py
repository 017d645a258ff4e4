"""Record the logs again from real servers: ``python -m tests.campaigns.cut_anywhere.record``.

Each story is a database and a journal of its own, so that each can be played alone; its tables are
created in the first journal, before all stories, unless CREATE TABLE is part of it. Beside the
journals stands what the server's SELECT gives at the end of the story. Tables of the database
`elsewhere` are not captured.

MySQL refuses some stories where it has GTIDs, so there is a log of a server without them.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.servers import Flavor, Server
from tests.support.xa_session import XaSession

LOGS: Final = Path(__file__).with_name("logs")
ELSEWHERE: Final = "elsewhere"
_SERVER_UUID: Final = "601dc0de-0000-4000-8000-000000000002"
_COMMON: Final[dict[str, Any]] = {
    "server_id": 31,
    "binlog_row_event_max_size": 256,  # rows of a few hundred bytes are several events
    "transaction_isolation": "READ-COMMITTED",
}
_MYSQL: Final = {"binlog_rows_query_log_events": "ON"}
_OPTIONS: Final[dict[str, tuple[Flavor, dict[str, Any]]]] = {
    "mysql": ("mysql", _MYSQL),
    "mysql-anonymous": (
        "mysql", {**_MYSQL, "gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"},
    ),
    "mariadb": ("mariadb", {"binlog_annotate_row_events": "ON"}),
}  # fmt: skip
_TABLES: Final = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(900)) ENGINE=InnoDB",
    "CREATE TABLE u (a INT, b INT, v VARCHAR(40), PRIMARY KEY (a, b)) ENGINE=InnoDB",
)

Run = Callable[..., None]


@dataclass(frozen=True)
class Session:
    server: Server
    database: str
    log: str
    run: Run

    def xa(self, xid: str, *statements: str) -> XaSession:
        """A prepared XA transaction, which nobody's session holds any more."""
        return XaSession(self.server, self.database, xid).run(*statements).prepare()


def xa(at: Session) -> None:
    """Committed, rolled back, one phase, the same xid again, several at once, rows in several
    events, and one that stays open."""
    at.run("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    at.xa("'one'", "INSERT INTO t VALUES (10, 'prepared')", "DELETE FROM t WHERE id = 1").commit()
    at.xa("'two','b',7", "UPDATE t SET v = 'never' WHERE id = 2").rollback()
    session = XaSession(at.server, at.database, "'phase'").run("INSERT INTO t VALUES (11, 'p')")
    session.commit_one_phase()
    at.xa("'one'", "INSERT INTO t VALUES (12, 'the same xid again')").rollback()
    at.xa("'one'", "INSERT INTO t VALUES (12, 'and again')").commit()
    first = at.xa("X'00ff'", "INSERT INTO t VALUES (20, REPEAT('a', 300)), (21, REPEAT('b', 300))")
    at.run("INSERT INTO t VALUES (30, 'between')", "UPDATE t SET v = 'x' WHERE id = 10")
    second = at.xa(
        "'second'",
        "INSERT INTO u VALUES (1, 1, 'a')",
        "SAVEPOINT s",
        "INSERT INTO u VALUES (2, 2, 'undone')",
        "ROLLBACK TO SAVEPOINT s",
        "UPDATE u SET v = 'b' WHERE a = 1 AND b = 1",
    )
    third = at.xa("'third'", "INSERT INTO t VALUES (40, 'no')", "INSERT INTO t VALUES (41, 'n')")
    second.commit()
    at.run("DELETE FROM u WHERE a = 1 AND b = 1", "INSERT INTO u VALUES (1, 1, 'once more')")
    third.rollback()
    first.commit()
    at.run("UPDATE t SET v = 'y' WHERE id = 20")
    at.xa("'open'", "INSERT INTO t VALUES (50, 'never seen')")
    at.run("INSERT INTO t VALUES (60, 'last')")


def savepoints(at: Session) -> None:
    """Nested, released, set again by the same name, and large transactions between them."""
    at.run(
        "BEGIN",
        "INSERT INTO t VALUES (1, 'kept')", "SAVEPOINT a",
        "INSERT INTO t VALUES (2, 'undone')", "SAVEPOINT b",
        "INSERT INTO u VALUES (1, 1, 'undone')", "ROLLBACK TO SAVEPOINT a",
        "INSERT INTO t VALUES (2, 'again')", "COMMIT",
        "BEGIN",
        "UPDATE t SET v = 'x'", "SAVEPOINT a",
        "DELETE FROM t WHERE id = 1", "SAVEPOINT a",
        "INSERT INTO t VALUES (1, 'undone')", "ROLLBACK TO SAVEPOINT a",
        "INSERT INTO u VALUES (3, 1, 'kept')", "RELEASE SAVEPOINT a", "COMMIT",
        "BEGIN", "SAVEPOINT nothing", "INSERT INTO u VALUES (7, 7, 'gone')",
        "INSERT INTO t VALUES (7, REPEAT('7', 600))", "ROLLBACK TO SAVEPOINT nothing",
        "INSERT INTO u VALUES (8, 8, 'alone')", "COMMIT",
        "BEGIN", "SAVEPOINT all_of_it", "DELETE FROM u", "ROLLBACK TO all_of_it", "COMMIT",
        "INSERT INTO t VALUES (3, 'between')",
        "BEGIN", "DELETE FROM u WHERE a = 3", "SAVEPOINT c",
        "INSERT INTO t SELECT id + 100, v FROM t", "ROLLBACK TO SAVEPOINT c",
        "INSERT INTO t SELECT id + 200, CONCAT(v, '!') FROM t", "COMMIT",
    )  # fmt: skip


def rollbacks(at: Session) -> None:
    """Tables of two engines in one transaction: the log has its rollback, and what stays."""
    at.run(
        "CREATE TABLE m (id INT PRIMARY KEY, v VARCHAR(40)) ENGINE=MyISAM",
        "INSERT INTO m VALUES (1, 'alone')",
        "BEGIN", "INSERT INTO t VALUES (1, 'undone')", "INSERT INTO m VALUES (2, 'stays')",
        "UPDATE t SET v = 'undone too'", "ROLLBACK",
        "INSERT INTO t VALUES (1, 'real')",
        "BEGIN", "INSERT INTO t VALUES (2, 'kept')", "SAVEPOINT s",
        "INSERT INTO t VALUES (3, 'undone')", "INSERT INTO m VALUES (3, 'stays')",
        "ROLLBACK TO SAVEPOINT s", "DELETE FROM t WHERE id = 1", "COMMIT",
        "BEGIN", "INSERT INTO t VALUES (9, REPEAT('n', 700))", "INSERT INTO m VALUES (9, 'stays')",
        "INSERT INTO t VALUES (10, REPEAT('n', 700))", "ROLLBACK",
        "DELETE FROM m WHERE id = 1", "UPDATE t SET v = 'end' WHERE id = 2",
    )  # fmt: skip


def ddl(at: Session) -> None:
    """Columns come, go and change, tables are renamed, emptied and made from a SELECT."""
    at.run(
        "CREATE TABLE d (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
        "INSERT INTO d VALUES (1, 'a', 1), (2, 'b', 2)",
        "ALTER TABLE d ADD COLUMN w INT NOT NULL DEFAULT 5",
        "BEGIN", "INSERT INTO d VALUES (3, 'c', 3, 6)", "UPDATE d SET w = 7 WHERE id = 1", "COMMIT",
        "ALTER TABLE d MODIFY n BIGINT", "UPDATE d SET n = 5000000000 WHERE id = 2",
        "ALTER TABLE d RENAME COLUMN v TO vv", "INSERT INTO d VALUES (4, 'd', 4, 8)",
        "ALTER TABLE d DROP COLUMN n", "DELETE FROM d WHERE id = 1",
        "CREATE INDEX i ON d (vv)",
        "INSERT INTO t VALUES (1, 'before')", "TRUNCATE TABLE t", "INSERT INTO t VALUES (1, 'new')",
        "CREATE TABLE made (PRIMARY KEY (id)) SELECT id, vv FROM d",
        "UPDATE made SET vv = 'made' WHERE id = 2",
        "CREATE TABLE old (id INT PRIMARY KEY)", "INSERT INTO old VALUES (1)", "DROP TABLE old",
    )  # fmt: skip


def compressed(at: Session) -> None:
    """The same kinds of transactions in compressed events, among plain ones."""
    is_mariadb = at.log == "mariadb"

    def compress(wanted: bool) -> None:
        word = "ON" if wanted else "OFF"
        if is_mariadb:
            at.server.execute("SET GLOBAL log_bin_compress_min_len = 10")
            at.server.execute(f"SET GLOBAL log_bin_compress = {word}")
        else:
            at.server.execute(f"SET GLOBAL binlog_transaction_compression = {word}")
            at.run(f"SET binlog_transaction_compression = {word}")

    at.run("INSERT INTO t VALUES (1, 'plain')")
    compress(True)
    at.run(
        "BEGIN", "INSERT INTO t VALUES (2, REPEAT('packed ', 60)), (3, REPEAT('packed ', 70))",
        "SAVEPOINT s", "INSERT INTO u VALUES (1, 1, 'undone')", "ROLLBACK TO SAVEPOINT s",
        "UPDATE t SET v = CONCAT(v, '!')", "INSERT INTO u SELECT id, id, 'from t' FROM t", "COMMIT",
        "DELETE FROM t WHERE id = 3",
        "ALTER TABLE u ADD COLUMN later INT DEFAULT 3",
        "INSERT INTO u VALUES (9, 9, REPEAT('z', 40), 4)",
        "BEGIN", "INSERT INTO t SELECT id + 10, REPEAT('m', 400) FROM t",
        "INSERT INTO t SELECT id + 20, v FROM t", "INSERT INTO t SELECT id + 40, v FROM t",
        "COMMIT",
    )  # fmt: skip
    rows = "(100, REPEAT('x', 300)), (101, REPEAT('x', 300))"
    at.xa("'packed'", f"INSERT INTO t VALUES {rows}").commit()
    compress(False)
    at.run("UPDATE t SET v = 'plain again' WHERE id = 2")


def large(at: Session) -> None:
    """Rows over several events, a statement of two tables, a trigger, keys that move."""
    at.run(
        "INSERT INTO t VALUES (1, REPEAT('l', 900)), (2, REPEAT('m', 900)), (3, 's')",
        "BEGIN",
        "INSERT INTO u SELECT a.id * 10 + b.id, a.id, REPEAT('r', 40) FROM t a, t b",
        "UPDATE u SET b = b + 1, v = REPEAT('q', 40)",
        "UPDATE t, u SET t.v = CONCAT(t.v, 'u'), u.v = 'both' WHERE t.id = 3 AND u.a = 33",
        "DELETE FROM u WHERE a < 20", "COMMIT",
        "CREATE TRIGGER copy AFTER INSERT ON t FOR EACH ROW INSERT INTO u VALUES (NEW.id, 0, 't')",
        "INSERT INTO t VALUES (50, 'fires'), (51, 'fires')",
        "UPDATE t SET id = id + 1 ORDER BY id DESC", "UPDATE t SET id = id - 1 ORDER BY id",
        "REPLACE INTO t VALUES (1, 'replaced'), (52, 'new')",
        "INSERT INTO t VALUES (1, 'x') ON DUPLICATE KEY UPDATE v = 'duplicate'",
    )  # fmt: skip


def documents(at: Session) -> None:
    """JSON, in differences where a server has them, and rows without columns that are the same."""
    is_mariadb = at.log == "mariadb"
    at.run(
        "CREATE TABLE j (id INT PRIMARY KEY, doc JSON, n INT)",
        "INSERT INTO j VALUES (1, JSON_OBJECT('a', 1, 'pad', REPEAT('p', 100)), 1), "
        "(2, JSON_ARRAY(1, 2, 3), 2), (3, NULL, 3)",
    )
    if not is_mariadb:
        at.run("SET binlog_row_value_options = PARTIAL_JSON")
    at.run(
        "UPDATE j SET doc = JSON_SET(doc, '$.a', 2) WHERE id = 1",
        "BEGIN", "UPDATE j SET doc = JSON_REPLACE(doc, '$.a', 7) WHERE id = 1",
        "UPDATE j SET doc = JSON_REMOVE(doc, '$[0]'), n = 8 WHERE id = 2",
        "SAVEPOINT s", "UPDATE j SET doc = JSON_SET(doc, '$.a', 'undone') WHERE id = 1",
        "ROLLBACK TO SAVEPOINT s", "UPDATE j SET doc = JSON_SET(doc, '$.b', 9) WHERE id = 1",
        "COMMIT",
    )  # fmt: skip
    if not is_mariadb:
        at.run("SET binlog_row_value_options = ''")  # needs the whole image before
    at.run(
        "SET binlog_row_image = MINIMAL",
        "UPDATE j SET doc = JSON_SET(doc, '$.a', 3) WHERE id = 1", "UPDATE j SET n = 4",
        "UPDATE j SET id = 5 WHERE id = 3", "DELETE FROM j WHERE id = 5",
        "SET binlog_row_image = NOBLOB", "UPDATE j SET n = 6 WHERE id = 1",
        "INSERT INTO j VALUES (6, '[]', 6)", "UPDATE j SET n = 7 WHERE id = 6",
    )  # fmt: skip


def statements(at: Session) -> None:
    """Statements of a table that is not captured inside transactions with rows of one that is, and
    what changes no table of ours."""
    at.run(
        "SET binlog_format = MIXED",
        "BEGIN", "INSERT INTO t VALUES (1, CONCAT('c', CONNECTION_ID() * 0))",
        f"INSERT INTO {ELSEWHERE}.e VALUES (1)", "INSERT INTO t VALUES (2, UUID() IS NULL)",
        f"UPDATE {ELSEWHERE}.e SET id = 2", "COMMIT",
        f"INSERT INTO {ELSEWHERE}.e VALUES (5)",
        "SET binlog_format = ROW",
        "BEGIN", "INSERT INTO t VALUES (3, 'three')", f"INSERT INTO {ELSEWHERE}.e VALUES (6)",
        "COMMIT",
        "CREATE TEMPORARY TABLE tmp (id INT)", "INSERT INTO tmp VALUES (1)",
        "INSERT INTO t SELECT id + 8, 'from tmp' FROM tmp", "DROP TEMPORARY TABLE tmp",
        "CREATE VIEW seen AS SELECT id FROM t", "DROP VIEW seen",
        "CREATE USER somebody@localhost", "GRANT SELECT ON *.* TO somebody@localhost",
        "DROP USER somebody@localhost", "ANALYZE TABLE t",
        "UPDATE t SET v = 'end' WHERE id = 1",
    )  # fmt: skip


def bare(at: Session) -> None:
    """Table maps without names of columns: the log's CREATE TABLE says them."""
    less = "NO_LOG" if at.log == "mariadb" else "MINIMAL"
    at.server.execute(f"SET GLOBAL binlog_row_metadata = {less}")
    at.run(
        "CREATE TABLE b (id INT PRIMARY KEY, n INT UNSIGNED, v VARCHAR(30)) CHARSET=utf8mb4",
        "INSERT INTO b VALUES (1, 4000000000, 'é'), (2, NULL, NULL)",
        "ALTER TABLE b ADD COLUMN w TINYINT UNSIGNED FIRST",
        "BEGIN", "UPDATE b SET w = 200 WHERE id = 1", "INSERT INTO b VALUES (7, 3, 7, 'x')",
        "COMMIT",
        "CREATE TABLE keyless (n INT, v VARCHAR(10)) CHARSET=utf8mb4",
        "INSERT INTO keyless VALUES (1, 'a'), (1, 'a')",
        "DELETE FROM b WHERE id = 2",
    )  # fmt: skip
    at.server.execute("SET GLOBAL binlog_row_metadata = FULL")


STORIES: Final = {
    story.__name__: story
    for story in (
        xa, savepoints, rollbacks, ddl, compressed, large, documents, statements, bare,
    )
}  # fmt: skip
# MySQL with GTIDs refuses transactions of two engines.
NOT_RECORDED: Final = {("mysql", "rollbacks")}


def _selected(server: Server, database: str) -> dict[str, list[dict[str, Any]]]:
    rows = {}
    for table, _kind in server.query(
        f"SHOW FULL TABLES FROM {database} WHERE Table_type = 'BASE TABLE'"
    ):
        names = [
            name
            for (name,) in server.query(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY column_name",
                (database, table),
            )
        ]
        wanted = ", ".join(f"`{name}`" for name in names)
        found = server.query(f"SELECT {wanted} FROM {database}.{table}")
        rows[table] = [dict(zip(names, row, strict=True)) for row in found]
    return rows


def record(log: str) -> None:
    flavor, options = _OPTIONS[log]
    server = Server(flavor, _COMMON | options)
    server.prepare()
    if flavor == "mysql":
        (server.datadir / "auto.cnf").write_text(
            f"[auto]\nserver-uuid={_SERVER_UUID}\n", encoding="utf-8"
        )
    stories = [name for name in STORIES if (log, name) not in NOT_RECORDED]
    with server:
        server.flush_journal()
        server.execute_all(f"CREATE DATABASE {ELSEWHERE}", f"CREATE TABLE {ELSEWHERE}.e (id INT)")
        for name in stories:
            server.execute_all(f"CREATE DATABASE {name}", f"USE {name}", *_TABLES)
        server.flush_journal()
        files, expected = [server.journals()[-2]], {}
        for name in stories:
            connection = server.root_connection(database=name)
            with connection, connection.cursor() as cursor:

                def run(*statements: str, cursor: Any = cursor) -> None:
                    for statement in statements:
                        cursor.execute(statement)

                STORIES[name](Session(server, name, log, run))
            server.flush_journal()
            files.append(server.journals()[-2])
            expected[name] = _selected(server, name)
        LOGS.mkdir(exist_ok=True)
        target = LOGS / f"{log}.tar.xz"
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for name, file in zip(["before", *stories], files, strict=True):
                _add(archive, f"{name}/{file.name}", file.read_bytes())
            _add(archive, "expected.json", json.dumps(expected).encode())
    print(f"{target.name}: {target.stat().st_size:,} bytes")


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    for each in _OPTIONS:
        record(each)
