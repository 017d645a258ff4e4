"""Two databases, of which one is captured, and everything that can write from one into both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

import pymysql

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, TargetSuspendedError
from cdc_pipeline.position.cursor import Suspension
from cdc_pipeline.run.wiring import build_source
from tests.servers import Server
from tests.support.memory_shop import MemoryShop

PROVING: Final = ("SELECT", "TRIGGER", "SHOW VIEW")
_NUMBERS: Final = count(1)

# {c} is captured, {o} is not; {c}.untouched is named by nothing but its own rows.
TABLES: Final = """
CREATE TABLE {c}.a (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(30), n INT)
CREATE TABLE {c}.b (id INT PRIMARY KEY, v VARCHAR(30))
CREATE TABLE {c}.audit (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(30))
CREATE TABLE {c}.untouched (id INT PRIMARY KEY, v VARCHAR(30))
CREATE TABLE {c}.parent (id INT PRIMARY KEY)
CREATE TABLE {c}.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)
CREATE TABLE {o}.parent_of (id INT PRIMARY KEY)
CREATE TABLE {c}.kid (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {o}.parent_of (id) ON DELETE CASCADE)
CREATE TABLE {o}.plain (id INT PRIMARY KEY, v VARCHAR(30))
CREATE TABLE {o}.triggers (id INT PRIMARY KEY, v VARCHAR(30))
CREATE TABLE {o}.heartbeat (id INT PRIMARY KEY, ts VARCHAR(30))
CREATE TABLE {o}.checksums (id INT PRIMARY KEY, crc VARCHAR(30), cnt INT)
""".strip().splitlines()  # noqa: E501
ROWS: Final = """
INSERT INTO {c}.a (v, n) VALUES ('one', 1), ('two', 2), ('three', 3)
INSERT INTO {c}.b VALUES (1, 'one'), (2, 'two')
INSERT INTO {c}.audit (v) VALUES ('first')
INSERT INTO {c}.untouched VALUES (1, 'same')
INSERT INTO {c}.parent VALUES (1), (2), (3)
INSERT INTO {c}.child VALUES (1, 1), (2, 2), (3, 3)
INSERT INTO {o}.parent_of VALUES (1), (2), (3)
INSERT INTO {c}.kid VALUES (1, 1), (2, 2), (3, 3)
INSERT INTO {o}.plain VALUES (1, 'one'), (2, 'two')
""".strip().splitlines()
PROGRAMS: Final = """
CREATE TRIGGER {o}.into_a AFTER INSERT ON {o}.triggers FOR EACH ROW UPDATE {c}.a SET n = n + 1 WHERE id = 1
CREATE TRIGGER {c}.into_audit AFTER UPDATE ON {c}.b FOR EACH ROW INSERT INTO {c}.audit (v) VALUES (NEW.v)
CREATE VIEW {o}.view_of_a AS SELECT id, v FROM {c}.a
CREATE VIEW {o}.view_of_plain AS SELECT id, v FROM {o}.plain
CREATE PROCEDURE {o}.add_a(x VARCHAR(30)) INSERT INTO {c}.a (v, n) VALUES (x, 0)
CREATE FUNCTION {o}.add_b(x INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN REPLACE INTO {c}.b VALUES (x, 'function'); RETURN x; END
CREATE FUNCTION {o}.twice(x INT) RETURNS INT DETERMINISTIC NO SQL RETURN 2 * x
CREATE VIEW {o}.view_of_function AS SELECT {o}.add_b(77) AS id
""".strip().splitlines()  # noqa: E501


class World:
    """The databases on a server, and the lake of the captured one. `names`: what statements call
    the databases: {c} is captured, {o} is not.
    """

    def __init__(
        self, server: Server, folder: Path, *, grants: Sequence[str] = PROVING, **sections: Any
    ) -> None:
        number = next(_NUMBERS)
        self.server = server
        self.names = {"c": f"writers_c{number}", "o": f"writers_o{number}"}
        client = "REPLICATION CLIENT" if server.flavor == "mysql" else "BINLOG MONITOR"
        user, password = server.create_replication_user(
            grants=(*grants, "REPLICATION SLAVE", client)
        )
        server.execute_all(*(f"CREATE DATABASE {name}" for name in self.names.values()))
        server.flush_journal()
        journal, offset = server.end_position()
        server.execute_all(*self._named([*TABLES, *PROGRAMS, *ROWS]))
        self.shop = MemoryShop(
            PipelineConfig.model_validate(
                {
                    "name": "writers",
                    "source": {
                        "kind": "live",
                        "host": server.host,
                        "port": server.port,
                        "user": user,
                        "password": password,
                    },
                    "tables": {"include": [f"{self.names['c']}.*"], "allow_empty": True},
                    "start": {"journal": journal, "offset": offset},
                    "sink": {"lake_path": folder / f"lake{number}"},
                    **sections,
                }
            )
        )

    def close(self) -> None:
        self.server.execute_all(
            "SET foreign_key_checks = 0",
            *(f"DROP DATABASE IF EXISTS {name}" for name in self.names.values()),
            "SET foreign_key_checks = 1",
        )

    def _named(self, statements: Iterable[str]) -> list[str]:
        return [
            sql.replace("{c}", self.names["c"]).replace("{o}", self.names["o"])
            for sql in statements
        ]

    def write(
        self, binlog_format: str, statements: Iterable[str], *, database: str = "o"
    ) -> list[str]:
        """Statements in a session of its own; those that the server refuses, with why."""
        refused = []
        with (
            self.server.root_connection(
                database=self.names[database], local_infile=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SET SESSION binlog_format = {binlog_format}")
            for sql in self._named(statements):
                try:
                    cursor.execute(sql)
                except pymysql.MySQLError as error:
                    refused.append(f"{sql}: {error}")
        return refused

    def write_by_event(self, binlog_format: str, statements: Iterable[str]) -> None:
        """Statements that end in the creation of the event `once`, which runs at once, in a session
        of the server's own."""
        before = self.server.variable("binlog_format")
        self.server.execute(f"SET GLOBAL binlog_format = {binlog_format}")
        try:
            self.write(binlog_format, statements)
            while self.server.query(
                "SELECT 1 FROM information_schema.EVENTS WHERE EVENT_SCHEMA = %s AND "
                "LAST_EXECUTED IS NULL",
                (self.names["o"],),
            ):
                self.server.query("SELECT SLEEP(0.05)")
            while self.server.query(
                "SELECT 1 FROM information_schema.PROCESSLIST WHERE DB = %s", (self.names["o"],)
            ):
                self.server.query("SELECT SLEEP(0.05)")
            self.write("ROW", ["DROP EVENT {o}.once"])
        finally:
            self.server.execute(f"SET GLOBAL binlog_format = {before}")

    def capture(self) -> CdcError | None:
        """A run to the end of the log; the error with which it ended."""
        try:
            self.shop.run()
        except TargetSuspendedError as error:
            return error
        return None

    def suspended(self) -> dict[str, Suspension]:
        assert self.shop.cursors.cursor is not None
        prefix = f"{self.names['c']}."
        return {
            name.removeprefix(prefix): held
            for name, held in self.shop.cursors.cursor.suspended.items()
        }

    def warned(self) -> set[str]:
        """The captured tables of which a plan warns that the server does not log their cascades, or
        a cut that they lost a constraint."""
        source = build_source(self.shop.config)
        try:
            said = source.warnings([f"{self.names['c']}.{table}" for table in self.tables()])
        finally:
            source.close()
        return {
            table
            for table in self.tables()
            if any(f"{self.names['c']}.{table} " in warning for warning in said)
        } | self._lost_constraints()

    def _lost_constraints(self) -> set[str]:
        notes: list[dict[str, str]] = []
        for entry in self.shop.cursors.history(1_000_000):
            notes += cast("list[dict[str, str]]", entry.metadata.get("notes", []))
        prefix = f"{self.names['c']}."
        return {
            note["table"].removeprefix(prefix)
            for note in notes
            if note["kind"] in ("dropped_constraint", "replaced_table")
        }

    def tables(self) -> list[str]:
        return [
            str(name)
            for name, kind in self.server.query(f"SHOW FULL TABLES FROM {self.names['c']}")
            if kind == "BASE TABLE"
        ]

    def different(self) -> list[str]:
        """The captured tables whose rows in the lake are not the server's SELECT."""
        return [table for table in self.tables() if self._lake(table) != self._server(table)]

    def rows(self, table: str) -> list[dict[str, Any]]:
        with suppress(KeyError):  # nothing was ever in it
            return self.shop.rows(f"{self.names['c']}.{table}")
        return []

    def _server(self, table: str) -> list[tuple[Any, ...]]:
        columns = self._columns(table)
        listed = ", ".join(f"`{name}`" for name in columns)
        return sorted(
            self.server.query(f"SELECT {listed} FROM {self.names['c']}.`{table}`"), key=repr
        )

    def _lake(self, table: str) -> list[tuple[Any, ...]]:
        columns = self._columns(table)
        return sorted(
            (tuple(row.get(name) for name in columns) for row in self.rows(table)), key=repr
        )

    def _columns(self, table: str) -> list[str]:
        rows = self.server.query(f"SHOW COLUMNS FROM {self.names['c']}.`{table}`")
        return [str(name) for name, *_ in rows]
