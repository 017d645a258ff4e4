"""What the server adds to tables, their columns and their rows is the server's (K32): from the log,
from a snapshot, and both in turn, a table in the lake is what SELECT returns, in every row metadata
mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_value, server_rows
from tests.support.memory_shop import MemoryShop

VERSIONED = "WITH SYSTEM VERSIONING"
KEPT = {"s", "e"}  # columns that one table drops, and a target keeps
PERIOD = "PERIOD FOR SYSTEM_TIME (s, e)"


class Table(NamedTuple):
    """A table, and statements that change it: of two rounds, each over again for the next way.

    Attributes:
        no_rows: it is no base table, and never gets into the lake.
        is_keyless: its target has a key by configuration.
    """

    name: str
    create: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    no_rows: bool = False
    is_keyless: bool = False


# Rows, and changes of each kind: a new row, another one, the same key again, and another key.
ROWS = ("INSERT INTO {t} (id, a) VALUES (1, 1), (2, 2), (3, 3)",
        "UPDATE {t} SET a = 10 WHERE id = 1", "DELETE FROM {t} WHERE id = 2")  # fmt: skip
CHANGES = (
    "UPDATE {t} SET a = a + 1", "INSERT INTO {t} (id, a) VALUES (2, 20), (4, 40)",
    "UPDATE {t} SET id = 5 WHERE id = 4", "DELETE FROM {t} WHERE id = 3",
    "REPLACE INTO {t} (id, a) VALUES (1, 7)",
)  # fmt: skip
TEXTS = ("INSERT INTO {t} (id, a) VALUES (1, 'a'), (2, 'b'), (3, NULL)",
         "UPDATE {t} SET a = 'x' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")  # fmt: skip
TEXT_CHANGES = (
    "UPDATE {t} SET a = CONCAT(a, 'y')", "INSERT INTO {t} (id, a) VALUES (2, 'b'), (4, 'd')",
    "DELETE FROM {t} WHERE id = 3",
)  # fmt: skip


# REPLACE, the last of the changes, is refused with WITHOUT OVERLAPS.
PORTIONS = ("DELETE FROM {t} FOR PORTION OF p FROM '2020-03-01' TO '2020-04-01'",
            "UPDATE {t} FOR PORTION OF p FROM '2020-05-01' TO '2020-06-01' SET a = 99")  # fmt: skip


def table(
    name: str, columns: str, options: str = "", *, texts: bool = False, also: tuple[str, ...] = ()
) -> Table:
    create = f"CREATE TABLE {{t}} ({columns}) {options}"
    first, second = (TEXTS, TEXT_CHANGES) if texts else (ROWS, CHANGES)
    if is_keyless := "keyless" in name:
        second = second[:-1]  # without a key REPLACE inserts
    return Table(name, create, first, (*also, *second), is_keyless=is_keyless)


MARIADB = [
    table("hash_text", "id INT PRIMARY KEY, a TEXT UNIQUE", texts=True),
    table("hash_two", "id INT PRIMARY KEY, a TEXT, b BLOB, UNIQUE (a), UNIQUE (b)", texts=True),
    table("hash_using", "id INT PRIMARY KEY, a VARCHAR(20), UNIQUE (a) USING HASH", texts=True),
    table("hash_long", "id INT PRIMARY KEY, a VARCHAR(3000), UNIQUE (a)", texts=True),
    table("hash_not", "id INT PRIMARY KEY, a VARCHAR(700), UNIQUE (a)", texts=True),
    table("hash_prefix", "id INT PRIMARY KEY, a TEXT, UNIQUE (a(9))", texts=True),
    table("hash_myisam", "id INT PRIMARY KEY, a TEXT UNIQUE", "ENGINE = MyISAM", texts=True),
    table("hash_memory", "id INT PRIMARY KEY, a VARCHAR(9), UNIQUE (a) USING HASH",
          "ENGINE = MEMORY", texts=True),
    table("hash_named", "id INT PRIMARY KEY, a TEXT UNIQUE, DB_ROW_HASH_1 BIGINT UNSIGNED "
          "DEFAULT 7", texts=True),
    table("hash_own", "id INT PRIMARY KEY, a INT, DB_ROW_HASH_1 BIGINT UNSIGNED DEFAULT 7"),
    table("hash_later", "id INT PRIMARY KEY, a TEXT", texts=True,
          also=("ALTER TABLE {t} ADD UNIQUE (a)",)),
    table("hash_index", "id INT PRIMARY KEY, a TEXT, b INT", texts=True,
          also=("CREATE UNIQUE INDEX ua ON {t} (a)", "ALTER TABLE {t} ADD COLUMN c INT")),
    table("versioned", "id INT PRIMARY KEY, a INT", VERSIONED),
    table("versioned_keyless", "id INT, a INT", VERSIONED),
    table("versioned_unique", "id INT NOT NULL UNIQUE, a INT", VERSIONED),
    table("versioned_hash", "id INT PRIMARY KEY, a TEXT UNIQUE", VERSIONED, texts=True),
    table("versioned_column", "id INT PRIMARY KEY, a INT WITH SYSTEM VERSIONING, b INT"),
    table("unversioned_column", "id INT PRIMARY KEY, a INT WITHOUT SYSTEM VERSIONING, b INT",
          VERSIONED),
    table("declared", "id INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, "
          f"a INT, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, {PERIOD}", VERSIONED),
    table("declared_keyless", "id INT, a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
          f"e TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE, {PERIOD}", VERSIONED),
    table("partitioned", "id INT PRIMARY KEY, a INT",
          f"{VERSIONED} PARTITION BY SYSTEM_TIME PARTITIONS 2"),
    table("unversioned", "id INT PRIMARY KEY, row_start TIMESTAMP(6) NOT NULL DEFAULT "
          "'2001-01-01', a INT, row_end TIMESTAMP(6) NOT NULL DEFAULT '2002-01-01'"),
    table("like_period", "id INT PRIMARY KEY, a INT, row_start TIMESTAMP(6) NOT NULL DEFAULT "
          "'2001-01-01', row_end TIMESTAMP(6) NOT NULL DEFAULT '2002-01-01'"),
    table("gets_versions", "id INT PRIMARY KEY, a INT",
          also=("ALTER TABLE {t} ADD SYSTEM VERSIONING",)),
    table("loses_versions", "id INT PRIMARY KEY, a INT", VERSIONED,
          also=("DELETE HISTORY FROM {t}", "ALTER TABLE {t} DROP SYSTEM VERSIONING")),
    table("altered", "id INT PRIMARY KEY, a INT", VERSIONED,
          also=("ALTER TABLE {t} ADD COLUMN b INT", "ALTER TABLE {t} ADD COLUMN c INT AFTER id")),
    table("undeclared", "id INT PRIMARY KEY, a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
          f"e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, {PERIOD}", VERSIONED,
          also=("ALTER TABLE {t} DROP COLUMN s, DROP COLUMN e, DROP PERIOD FOR SYSTEM_TIME, "
                "DROP SYSTEM VERSIONING",)),
    Table("application_time", "CREATE TABLE {t} (id INT, a INT, d DATE DEFAULT '2020-01-01', "
          "u DATE DEFAULT '2021-01-01', PERIOD FOR p (d, u), PRIMARY KEY (id, p WITHOUT OVERLAPS))",
          ROWS, (*PORTIONS, *CHANGES[:-1])),
    Table("bitemporal", "CREATE TABLE {t} (id INT, a INT, d DATE DEFAULT '2020-01-01', u DATE "
          "DEFAULT '2021-01-01', PERIOD FOR p (d, u), UNIQUE (id, p WITHOUT OVERLAPS)) "
          f"{VERSIONED}", ROWS, CHANGES[:-1], is_keyless=True),
    table("invisible", "id INT PRIMARY KEY, a INT, i INT INVISIBLE DEFAULT 3, g INT AS (a + 1) "
          "VIRTUAL, p INT AS (a + 2) PERSISTENT"),
    Table("numbers", "CREATE SEQUENCE {t}", ("SELECT NEXTVAL({t})", "DO SETVAL({t}, 50)"),
          ("SELECT NEXTVAL({t})", "ALTER SEQUENCE {t} INCREMENT 3", "SELECT NEXTVAL({t})"), True),
    Table("like_a_sequence", "CREATE TABLE {t} (PRIMARY KEY (minimum_value)) AS SELECT * "
          "FROM numbers", (), ("UPDATE {t} SET cycle_count = 9",)),
    Table("seen", "CREATE VIEW {t} AS SELECT * FROM versioned", (), (), True),
]  # fmt: skip
MYSQL = [
    table("functional", "id INT PRIMARY KEY, a INT, t VARCHAR(9) DEFAULT 'T', KEY ((LOWER(t))), "
          "UNIQUE KEY ((id * 2)), KEY ((a + 1))"),
    table("multi_valued", "id INT PRIMARY KEY, a INT, j JSON DEFAULT ('[1, 2]'), "
          "KEY ((CAST(j AS UNSIGNED ARRAY)))"),
    table("invisible", "id INT PRIMARY KEY, a INT, i INT INVISIBLE DEFAULT 3, g INT AS (a + 1) "
          "VIRTUAL, p INT AS (a + 2) STORED"),
    table("generated_key", "id INT, a INT"),
    Table("seen", "CREATE VIEW {t} AS SELECT * FROM invisible", (), (), True),
    Table("seen_often", "CREATE MATERIALIZED VIEW {t} AS SELECT id FROM invisible", (), (), True),
]  # fmt: skip
SESSION = {
    "mariadb": "SET SESSION system_versioning_alter_history = KEEP",
    "mysql": "SET SESSION sql_generate_invisible_primary_key = ON",
}
MODES = [("mariadb", mode) for mode in ("FULL", "MINIMAL", "NO_LOG")] + [
    ("mysql", mode) for mode in ("FULL", "MINIMAL")
]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    """A server of each flavor, started when it is used first."""
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.stop()


@pytest.fixture(params=MODES, ids=lambda mode: "-".join(mode))
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    flavor, mode = request.param
    if flavor not in servers:
        servers[flavor] = Server(flavor)
        servers[flavor].start()
    servers[flavor].new_session()
    servers[flavor].execute(f"SET GLOBAL binlog_row_metadata = {mode}")
    return servers[flavor]


class Lake:
    """A pipeline over one database, and its tables in memory."""

    def __init__(self, server: Server, database: str, folder: Path, **sections: Any) -> None:
        self.server, self.database = server, database
        self.tables = MARIADB if server.flavor == "mariadb" else MYSQL
        self.shop = MemoryShop(
            PipelineConfig.model_validate(
                {
                    "name": "shop",
                    "source": live(server),
                    "tables": {"include": [f"{database}.*"]},
                    "targets": [
                        {
                            "tables": [
                                f"{database}.{one.name}" for one in self.tables if one.is_keyless
                            ],
                            "key": ["id"],
                        }
                    ]
                    if server.flavor == "mariadb"
                    else [],
                    "sink": {"lake_path": folder / "lake"},
                    **sections,
                }
            )
        )

    def execute(self, *statements: str, of: Table) -> None:
        for statement in statements:
            self.server.query(statement.format(t=f"`{of.name}`"))

    def create(self) -> None:
        for one in self.tables:
            self.execute(one.create, *one.first, of=one)

    def change(self) -> None:
        for one in self.tables:
            self.execute(*one.second, of=one)

    def run(self) -> None:
        self.shop.run()
        self.check()

    def take_snapshot(
        self, monkeypatch: pytest.MonkeyPatch, names: list[str] | None = None
    ) -> None:
        with monkeypatch.context() as patch:
            self.shop.take_place(patch)
            take_snapshot(self.shop.config, cursors=self.shop.cursors, tables=names)
        self.check()

    def check(self) -> None:
        """Every table is the server's, and nothing else is in the lake."""
        assert self.shop.suspended() == {}
        expected = {one.name: self._on_server(one.name) for one in self.tables if not one.no_rows}
        folder = self.shop.paths.table(f"{self.database}.x").parent
        found = {one.name: one for one in self.shop.lake.tables if one.parent == folder}
        assert found.keys() == expected.keys()
        for name, (columns, rows) in expected.items():
            there = self.shop.rows(f"{self.database}.{name}")
            assert not there or _columns(there) - {*columns} <= KEPT, name
            values = [[_text(lake_value(row[column])) for column in columns] for row in there]
            assert sorted(values) == rows, name

    def _on_server(self, name: str) -> tuple[list[str], list[list[str]]]:
        columns = [
            str(row[0])
            for row in self.server.query(
                "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = "
                f"'{self.database}' AND TABLE_NAME = '{name}' ORDER BY ORDINAL_POSITION"
            )
        ]
        rows = server_rows(self.server, self.database, name, columns)
        return columns, sorted([_text(value) for value in row] for row in rows)


def _text(value: Any) -> str:
    return repr(value) if value is None else str(value)  # BIGINT UNSIGNED is a decimal in the lake


def _columns(rows: list[dict[str, Any]]) -> set[str]:
    return {name for name in rows[0] if not name.startswith("_cdc")}


def _database(server: Server, name: str) -> str:
    server.execute_all(
        f"DROP DATABASE IF EXISTS {name}",
        f"CREATE DATABASE {name}",
        f"USE {name}",
        SESSION[server.flavor],
    )
    return name


@pytest.mark.whole
def test_k32_f79_f80_from_the_log_and_then_a_snapshot(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = _database(server, "logged")
    lake = Lake(server, database, tmp_path, start=here(server))
    lake.create()
    lake.run()
    lake.change()
    lake.run()
    names = [f"{database}.{one.name}" for one in lake.tables if not one.no_rows]
    lake.take_snapshot(monkeypatch, names)
    for one in lake.tables:
        lake.execute(*(("DELETE FROM {t}", *one.first) if not one.no_rows else one.first), of=one)
    lake.run()


@pytest.mark.whole
def test_k32_f79_f80_from_a_snapshot_and_then_the_log(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = _database(server, "selected")
    lake = Lake(server, database, tmp_path, start="latest")
    lake.create()
    lake.take_snapshot(monkeypatch)
    lake.change()
    lake.run()
