"""Names of schemas and tables as the server compares them (K30), on servers that fold them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SourceIdentityError, TargetSuspendedError
from cdc_pipeline.operations.discover import discover
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.position.position import ServerIdentity
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.run.plan.starting import check_names
from cdc_pipeline.text.table_names import NameRule
from tests.servers import Server
from tests.support.captures import live
from tests.support.fake_capture import cursor
from tests.support.memory_shop import MemoryShop


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
def folding(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with lower_case_table_names=1."""
    with Server(request.param, {"lower_case_table_names": 1}) as server:
        yield server


def shop(folder: Path, source: dict[str, Any], *include: str) -> MemoryShop:
    return MemoryShop(
        PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": source,
                "tables": {"include": include},
                "start": "earliest",
                "sink": {"lake_path": folder / "lake"},
            }
        )
    )


def archived(server: Server, folder: Path, names: int = 1) -> dict[str, Any]:
    server.copy_journals(folder)
    return {"kind": "archive", "directory": folder, "lower_case_table_names": names}


def in_lake(at: MemoryShop, table: str) -> list[dict[str, Any]]:
    """The source's columns of a target, by the first one."""
    rows = [
        {name: value for name, value in row.items() if not name.startswith("_cdc_")}
        for row in at.rows(table)
    ]
    return sorted(rows, key=lambda row: list(row.values()))


def at_source(server: Server, table: str) -> list[dict[str, Any]]:
    with server.root_connection(cursorclass=pymysql.cursors.DictCursor) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        return list(cursor.fetchall())


def partial_targets(at: MemoryShop) -> set[str]:
    return {name for name, state in at.last_cut().cursor.targets.items() if state.partial}


# What F73 lost, ignored or stopped, in an order in which each shows.
_BEFORE = (
    "CREATE DATABASE Sh1",
    "USE SH1",
    "CREATE TABLE SH1.C (id INT PRIMARY KEY, v VARCHAR(9))",
    "INSERT INTO c VALUES (1, 'a'), (2, 'b')",
    "CREATE TABLE D (id INT PRIMARY KEY)",
    "INSERT INTO d VALUES (1), (2)",
    "CREATE TABLE a (Id INT PRIMARY KEY, V INT)",
    "INSERT INTO A VALUES (1, 1)",
    "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "INSERT INTO P VALUES (1), (20)",
    "CREATE TABLE gone (id INT PRIMARY KEY)",
    "INSERT INTO gone VALUES (1)",
    "CREATE DATABASE other",
)
_AFTER = (
    "TRUNCATE TABLE SH1.C",
    "INSERT INTO sh1.c VALUES (3, 'c')",
    "RENAME TABLE SH1.D TO sh1.DD",
    "INSERT INTO dD VALUES (3)",
    "ALTER TABLE Sh1.A ADD COLUMN w INT DEFAULT 7, RENAME COLUMN v TO V2, ADD x INT AFTER iD",
    "UPDATE A SET v2 = 9",
    "ALTER TABLE A DROP PRIMARY KEY, ADD PRIMARY KEY (ID), ALTER COLUMN V2 SET DEFAULT 3",
    "CREATE TABLE SH1.Bee (id INT PRIMARY KEY)",
    "INSERT INTO sh1.bee VALUES (5)",
    "CREATE TABLE Ä_K LIKE Sh1.BEE",
    "INSERT INTO ä_k VALUES (8)",
    "TRUNCATE Ä_\u212a",  # the sign for Kelvin is a k
    "INSERT INTO ä_K VALUES (9)",
    "USE other",
    "DROP TABLE sH1.GONE",
)


@pytest.mark.parametrize("from_files", [False, True], ids=["live", "archive"])
def test_k30_f73_a_statement_means_the_table_in_any_case(
    folding: Server, tmp_path: Path, from_files: bool
) -> None:
    """F73: with lower_case_table_names=1 rows log sh1.c, and statements what was typed."""
    folding.reset_log()
    folding.new_session()
    at = shop(tmp_path, live(folding), "Sh1.*")
    folding.execute_all(*_BEFORE)
    try:
        if not from_files:
            at.run()
        folding.execute_all(*_AFTER)
        if from_files:
            at = shop(tmp_path, archived(folding, tmp_path / "journals"), "Sh1.*")
        at.run()
        for table in ("c", "dd", "a", "p", "bee", "ä_k"):
            assert in_lake(at, f"sh1.{table}") == at_source(folding, f"sh1.`{table}`"), table
        assert not at.suspended()
        assert partial_targets(at) == set(), "each was seen from its CREATE TABLE on"
        targets = at.last_cut().cursor.targets
        assert {name for name in targets if name != name.lower()} == set()
        assert at.last_cut().tables["sh1.gone"].spec.sources["sh1.gone"].gone
        folding.execute("ALTER TABLE SH1.P DROP PARTITION p0")
        if from_files:
            archived(folding, tmp_path / "journals")
        with pytest.raises(TargetSuspendedError, match=r"sh1\.p .*\n?.*DROP PARTITION p0"):
            at.run()
        with pytest.raises(TargetSuspendedError, match=r"sh1\.p"):
            at.run(tables=["SH1.P"])
    finally:
        folding.execute_all("DROP DATABASE sh1", "DROP DATABASE other")


def test_k30_every_command_compares_alike(folding: Server, tmp_path: Path) -> None:
    """A pattern with capitals means the tables of this server, before anything was captured."""
    folding.execute_all("CREATE DATABASE Crm", "CREATE TABLE CRM.People (id INT PRIMARY KEY)")
    at = shop(tmp_path, live(folding), "CRM.PEOPLE")
    try:
        assert plan(at.config, cursors=at.cursors).tables == ("crm.people",)
        found = {table.table: table.verdict for table in discover(at.config).tables}
        assert found["crm.people"] == "captured"
        at.run()
        assert at.last_cut().cursor.lower_case_table_names is NameRule.LOWER
    finally:
        folding.execute("DROP DATABASE crm")


def test_k30_letters_are_lowered_as_the_server_lowers_them(folding: Server) -> None:
    """Every letter with a lower case in Python or in the server."""
    letters = [
        chr(code)
        for code in range(0x80, 0x10000)
        if not 0xD800 <= code < 0xE000
        and (chr(code).lower() != chr(code) or NameRule.LOWER.fold(chr(code)) != chr(code))
    ]
    assert len(letters) > 1000
    for at in range(0, len(letters), 60):
        name = "".join(letters[at : at + 60])
        with pytest.raises(pymysql.MySQLError) as told:
            folding.execute(f"SELECT 1 FROM `{name}`.t")
        said = re.search(r"(?:database|Table) '(.*?)(?:\.t)?'", told.value.args[1])
        assert said is not None, told.value
        assert NameRule.LOWER.fold(name) == said[1]


@pytest.mark.mysql
def test_k30_names_that_a_server_stores_as_given_are_one_table(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    """lower_case_table_names=2, which only file systems without letter case have: its log may have
    any case. Here are the journals of a server that tells them apart, in which one name moves."""
    at = mysql_database
    mysql_server.execute_all(
        f"CREATE TABLE `{at}`.Orders (id INT PRIMARY KEY)",
        f"INSERT INTO `{at}`.Orders VALUES (1)",
        f"RENAME TABLE `{at}`.Orders TO `{at}`.ORDERS",
        f"INSERT INTO `{at}`.ORDERS VALUES (2)",
        f"ALTER TABLE `{at}`.ORDERS ADD COLUMN c INT",
        f"UPDATE `{at}`.ORDERS SET c = id",
    )
    read = shop(tmp_path, archived(mysql_server, tmp_path / "journals", 2), f"{at}.oRDERS")
    read.run()
    assert set(read.last_cut().tables) == {f"{at}.orders"}
    assert in_lake(read, f"{at}.orders") == at_source(mysql_server, f"`{at}`.ORDERS")


@pytest.mark.mysql
def test_k30_a_source_that_compares_otherwise_is_not_read_in_silence(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    """From one run to the next: told with the way out, or recorded where no name differs."""
    at = mysql_database
    mysql_server.execute_all(
        f"CREATE TABLE `{at}`.Orders (id INT PRIMARY KEY)", f"INSERT INTO `{at}`.Orders VALUES (1)"
    )
    read = shop(tmp_path, archived(mysql_server, tmp_path / "journals", 0), f"{at}.*")
    read.run()

    def with_names(names: int) -> MemoryShop:
        source = {**read.config.source.model_dump(), "lower_case_table_names": names}
        config = PipelineConfig.model_validate({**read.config.model_dump(), "source": source})
        return MemoryShop(config, read.lake, read.cursors)

    mysql_server.execute(f"INSERT INTO `{at}`.Orders VALUES (2)")
    archived(mysql_server, tmp_path / "journals")
    with pytest.raises(SourceIdentityError) as told:
        with_names(1).run()
    assert told.value.table == f"{at}.Orders"
    assert "was 0 and is 1" in told.value.what
    assert "source.lower_case_table_names" in (told.value.next_step or "")
    mysql_server.execute_all(
        f"RENAME TABLE `{at}`.Orders TO `{at}`.orders", f"INSERT INTO `{at}`.orders VALUES (3)"
    )
    archived(mysql_server, tmp_path / "journals")
    assert with_names(0).run().outcome == "applied"
    with pytest.raises(SourceIdentityError, match="Orders"):
        with_names(2).run()


def test_k30_a_lake_in_lower_case_goes_on_either_way() -> None:
    """No name of it means another table now; the run records it."""
    at = cursor().model_copy(update={"targets": {"a.b": state("a.b")}})
    before, now = NameRule.AS_GIVEN, NameRule.LOWER
    for recorded, identity in ((before, now), (now, before)):
        known = at.model_copy(update={"lower_case_table_names": recorded})
        (reason,) = check_names(ServerIdentity("mysql", 1, names=identity), known)
        assert f"was {recorded:d} and is {identity:d} now" in reason
    stored = at.model_copy(update={"lower_case_table_names": NameRule.STORED_AS_GIVEN})
    assert check_names(ServerIdentity("mysql", 1, names=now), stored) == (), "both in lower case"


def state(name: str) -> TargetState:
    return TargetState(table=name, app_id=name, table_version=1, applied_batch=1)
