"""What a newcomer does with a source, on servers of every release that packages have
(`make nightly`): doctor, snapshot, changes, DDL, every type of the release, a failover.
`verify` compares each table with the server's own SELECT.

The suite has one of them as a sample: servers of one release differ from those of another in
their catalogs, their SHOW statements and what they write into the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.servers import Forwarder, ReplicaPair, Server
from tests.servers.installation import RELEASES, find_release, release_flavor
from tests.support.captures import SPARK
from tests.support.project import Project

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

# Of every release: declaration, two values.
TYPES = [
    ("TINYINT UNSIGNED", "0", "255"),
    ("BIGINT", "-9223372036854775808", "9223372036854775807"),
    ("DECIMAL(30,10)", "-12345678901234567890.0123456789", "0.1"),
    ("FLOAT", "1.5", "-2.25"),
    ("DOUBLE", "1e300", "-0.1"),
    ("BIT(12)", "b'101'", "b'111111111111'"),
    ("DATE", "'1000-01-01'", "'9999-12-31'"),
    ("TIME(6)", "'-838:59:59'", "'12:34:56.123456'"),
    ("DATETIME(6)", "'1000-01-01'", "'2026-02-03 04:05:06.789'"),
    ("TIMESTAMP(3) NULL", "'1971-01-01'", "'2026-02-03 04:05:06.789'"),
    ("YEAR", "1901", "2155"),
    ("CHAR(10)", "'größe'", "''"),
    ("VARCHAR(300) CHARACTER SET latin1", "'größe'", "REPEAT('x', 300)"),
    ("BINARY(8)", "x'00ff'", "'12345678'"),
    ("VARBINARY(20)", "x'00ff00'", "''"),
    ("LONGTEXT", "REPEAT('€', 1000)", "'a'"),
    ("BLOB", "x'00'", "REPEAT('b', 5000)"),
    ("ENUM('a','b')", "'a'", "'b'"),
    ("SET('x','y','z')", "'x,z'", "''"),
    ("JSON", """'{"a": [1, 2.5, null, "é"]}'""", "'[]'"),
    ("POINT", "POINT(1, 2)", "POINT(-0.5, 1e10)"),
]
_MARIADB = [
    ("VARCHAR(200) COMPRESSED", "REPEAT('ab', 90)", "'x'"),
    ("INET6", "'::1'", "'2001:db8::ff'"),
]
_UUID = [
    ("UUID", "'123e4567-e89b-12d3-a456-426655440000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    ("INET4", "'127.0.0.1'", "'255.255.255.255'"),
]
OWN = {
    "mysql-9.7": [("VECTOR(3)", "TO_VECTOR('[1, 2, 3]')", "TO_VECTOR('[1, 2, -0.5]')")],
    "mariadb-10.5": _MARIADB,
    "mariadb-10.11": [*_MARIADB, *_UUID],
    "mariadb-11.4": [*_MARIADB, *_UUID],
    "mariadb-11.8": [*_MARIADB, *_UUID],
}  # fmt: skip


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(release: str) -> Iterator[Server]:
    with Server(release_flavor(release), installation=find_release(release)) as started:
        yield started


class Shop:
    """A project for all tables of the database `shop`."""

    def __init__(self, project: Project, server: Server, address: Server | Forwarder) -> None:
        user, password = server.create_replication_user()
        document = {
            "source": {
                "kind": "live",
                "host": address.host,
                "port": address.port,
                "user": user,
                "password": password,
            },
            "tables": {"include": ["shop.*"]},
            "start": "latest",
            "sink": {"lake_path": str(project.lake), "spark": SPARK},
        }
        (project.jobs / "shop.yaml").write_text(yaml.safe_dump(document))

    def run(self, *arguments: str, exit_code: int | None = 0) -> str:
        done = CliRunner().invoke(cli, ["--cursor", "lake", *arguments])
        # None: what `doctor` warns of differs from release to release
        assert done.exit_code == exit_code or (exit_code is None and done.exit_code < 2), (
            done.output
        )
        return done.output


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(project.root)
    return project


def test_a_snapshot_changes_and_ddl_equal_the_server(
    release: str, server: Server, here: Project
) -> None:
    types = [*TYPES, *OWN[release]]
    declared = ", ".join(f"c{number} {one[0]}" for number, one in enumerate(types))
    first, second = (", ".join(one[at] for one in types) for at in (1, 2))
    server.execute_all(
        "CREATE DATABASE shop",
        "USE shop",
        "SET time_zone = '+00:00'",
        f"CREATE TABLE typed (id INT PRIMARY KEY, {declared})",
        f"INSERT INTO typed VALUES (1, {first})",
        "INSERT INTO typed (id) VALUES (2)",
        "CREATE TABLE item (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20), n SMALLINT, "
        "gone INT)",
        "INSERT INTO item (name, n, gone) VALUES ('a', 1, 1), ('b', 2, 2), ('c', 3, 3)",
    )
    shop = Shop(here, server, server)
    shop.run("doctor", "shop", exit_code=None)
    shop.run("snapshot", "shop")
    changed = ", ".join(f"c{number} = {one[2]}" for number, one in enumerate(types))
    server.execute_all(
        f"INSERT INTO typed VALUES (3, {second}), (4, {first})",
        f"UPDATE typed SET {changed} WHERE id = 1",
        "UPDATE typed SET c0 = NULL WHERE id = 4",
        "DELETE FROM typed WHERE id = 2",
        "ALTER TABLE item ADD COLUMN added VARCHAR(5) NOT NULL DEFAULT 'new' AFTER id",
        "INSERT INTO item (name, n, gone) VALUES ('d', 4, 4)",
        "ALTER TABLE item MODIFY n BIGINT, RENAME COLUMN name TO title",
        "UPDATE item SET n = 5000000000, title = 'e' WHERE id = 2",
        "ALTER TABLE item DROP COLUMN gone",
        "DELETE FROM item WHERE id = 1",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1)",
        "TRUNCATE TABLE emptied",
        "INSERT INTO emptied VALUES (2)",
    )
    shop.run("run", "shop")
    verified = shop.run("verify", "shop")
    for table in ("typed", "item", "emptied"):
        assert f"shop.{table}" in verified
    assert "not compared" not in verified


def test_a_replica_takes_over(release: str, here: Project) -> None:
    with (
        ReplicaPair(release_flavor(release), installation=find_release(release)) as pair,
        Forwarder(pair.primary) as address,
    ):
        pair.primary.execute_all(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.item (id INT PRIMARY KEY, n INT)",
            "INSERT INTO shop.item VALUES (1, 1), (2, 2)",
        )
        shop = Shop(here, pair.primary, address)
        shop.run("snapshot", "shop")
        pair.primary.execute("UPDATE shop.item SET n = 3 WHERE id = 1")
        shop.run("run", "shop")
        pair.primary.execute("INSERT INTO shop.item VALUES (3, 3)")
        pair.wait_caught_up()
        pair.promote()
        address.point_to(pair.primary)
        pair.primary.execute("DELETE FROM shop.item WHERE id = 2")
        shop.run("run", "shop")
        shop.run("verify", "shop")


@pytest.mark.parametrize("stored", ["STORED", "VIRTUAL"])
def test_k23_f120_generated_columns_follow_or_are_told(
    release: str, server: Server, here: Project, stored: str
) -> None:
    """MariaDB 11.8 leaves them out of updates: the lake kept what they were."""
    server.execute_all(
        "CREATE DATABASE shop",
        f"CREATE TABLE shop.item (id INT PRIMARY KEY, n INT, twice INT AS (n * 2) {stored})",
        "INSERT INTO shop.item (id, n) VALUES (1, 1), (2, 2)",
    )
    shop = Shop(here, server, server)
    shop.run("snapshot", "shop")
    server.execute("UPDATE shop.item SET n = 3 WHERE id = 1")
    if release != "mariadb-11.8":
        shop.run("run", "shop")
        shop.run("verify", "shop")
        return
    told = shop.run("run", "shop", exit_code=1)
    assert "an update lacks columns that the server computes: twice" in told
    file = Path("jobs/shop.yaml")
    document = yaml.safe_load(file.read_text())
    document["targets"] = [{"tables": ["shop.item"], "columns": {"exclude": ["twice"]}}]
    file.write_text(yaml.safe_dump(document))
    (here.lake / "shop" / "item").rename(here.root / "moved_away")
    shop.run("snapshot", "shop", "--table", "shop.item")
    server.execute("UPDATE shop.item SET n = 4 WHERE id = 1")
    shop.run("run", "shop")
    shop.run("verify", "shop")
