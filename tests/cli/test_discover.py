"""``cdc-pipeline discover``, on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.servers import Server
from tests.support.project import ROOT, Project
from tests.support.told import COMMANDS, Told

JOURNALS = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
TABLES = (
    "CREATE TABLE {db}.orders (id BIGINT UNSIGNED PRIMARY KEY, at TIME, price DECIMAL(50,2), "
    "note TEXT, kind ENUM('a','b'), small INT UNSIGNED, made DATETIME)",
    "CREATE TABLE {db}.log (at DATETIME, text VARCHAR(20))",
    "CREATE TABLE {db}.strict (a INT, b INT)",
    "CREATE TABLE {db}.`with blank` (id INT PRIMARY KEY, `a b` INT)",
    "CREATE TABLE {db}.pairs (b INT NOT NULL, a INT NOT NULL, c INT, UNIQUE (b, a))",
    "CREATE TABLE {db}.secret (id INT PRIMARY KEY)",
    "CREATE TABLE {db}._orders_gho (id INT PRIMARY KEY)",
    "CREATE TABLE {db}.old (id INT PRIMARY KEY) ENGINE=MyISAM",
    "CREATE VIEW {db}.totals AS SELECT COUNT(*) AS n FROM {db}.orders",
    "INSERT INTO {db}.orders (id) VALUES (1), (2), (3)",
)
YAML = """\
source: {{kind: live, host: 127.0.0.1, port: {port}, user: {user}, password: right}}
tables: {{include: ['{db}.*'], exclude: ['{db}.secret']}}
targets:
- {{tables: ['{db}.strict'], keyless: stop}}
- {{tables: ['{db}.orders']}}
- {{tables: ['{db}.orders'], name: '{db}.orders_history', mode: history}}
sink: {{lake_path: ../lake}}
"""


@pytest.fixture
def shop(told: Told, project: Project, server: Server, fresh_database: str) -> Iterator[str]:
    user = f"see_{fresh_database}"
    for statement in TABLES:
        server.execute(statement.format(db=fresh_database))
    server.execute(f"ANALYZE TABLE {fresh_database}.orders")
    server.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'right'")
    server.execute(f"GRANT SELECT ON {fresh_database}.* TO '{user}'@'%'")
    (project.jobs / "shop.yaml").write_text(
        YAML.format(port=server.port, user=user, db=fresh_database)
    )
    yield fresh_database
    server.execute(f"DROP USER '{user}'@'%'")


def _json(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_table_has_its_verdict_and_what_it_becomes(shop: str) -> None:
    tables = {one["table"].partition(".")[2]: one for one in _json("discover", "shop")["tables"]}
    assert {name: (one["verdict"], one["key"]) for name, one in tables.items()} == {
        "orders": ("captured", ["id"]),
        "log": ("captured", []),
        "strict": ("refused", []),
        "with blank": ("refused", ["id"]),
        "pairs": ("captured", ["b", "a"]),
        "secret": ("left_out", ["id"]),
        "_orders_gho": ("left_out", ["id"]),
        "old": ("captured", ["id"]),
        "totals": ("left_out", []),
    }
    orders = tables["orders"]
    assert orders["how"] == f"mirror by id; {shop}.orders_history: history by id"
    assert orders["rows_estimated"] == 3
    assert orders["bytes_estimated"] > 0
    assert [one.partition(":")[0] for one in orders["notable"]] == ["id", "at", "price", "kind"]
    assert tables["log"]["how"] == "changelog"
    assert "primary key" in tables["strict"]["how"]
    assert "`a b`" in tables["with blank"]["how"]
    assert f"exclude has {shop}.secret" in tables["secret"]["how"]
    assert "schema change of orders" in tables["_orders_gho"]["how"]
    assert "does not roll back" in tables["old"]["how"]
    assert tables["totals"]["rows_estimated"] == -1


@pytest.mark.mysql
def test_what_a_person_reads(told: Told, project: Project, mysql_server: Server) -> None:
    """In a database of one name, so that columns are as wide in each run."""
    mysql_server.execute("CREATE DATABASE discovered")
    try:
        for statement in TABLES[:-1]:
            mysql_server.execute(statement.format(db="discovered"))
        mysql_server.execute("CREATE USER discoverer@'%' IDENTIFIED BY 'right'")
        mysql_server.execute("GRANT SELECT ON discovered.* TO discoverer@'%'")
        (project.jobs / "shop.yaml").write_text(
            YAML.format(port=mysql_server.port, user="discoverer", db="discovered")
        )
        version = mysql_server.query("SELECT VERSION()")[0][0]
        told.name(f"mysql {version} at 127.0.0.1:{mysql_server.port}", "SERVER")
        told.run("discover", "shop", exit_code=0)
    finally:
        mysql_server.execute("DROP DATABASE discovered")
        mysql_server.execute("DROP USER IF EXISTS discoverer@'%'")
    told.check("discover", folder=COMMANDS)


def test_an_archive_has_no_catalog(project: Project) -> None:
    (project.jobs / "shop.yaml").write_text(
        f"source: {{kind: archive, directory: {JOURNALS}}}\nsink: {{lake_path: ../lake}}\n"
    )
    done = CliRunner().invoke(cli, ["--jobs", str(project.jobs), "discover", "shop"])
    assert done.exit_code == 2
    assert f"`cdc-pipeline binlog {JOURNALS}`" in done.stderr
    assert "shop.orders" in CliRunner().invoke(cli, ["binlog", str(JOURNALS)]).stdout
