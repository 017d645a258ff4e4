"""K29 on real servers: what a session writes as statements is in no rows event. Each captured table
equals the server's SELECT, or is named as suspended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from tests.campaigns.writers.world import World
from tests.servers import Server

MakeWorld = Callable[..., World]

# Tables that must be suspended under STATEMENT, others that may be, statements.
FORMS = """
c | | CREATE TABLE {c}.c (PRIMARY KEY (id)) SELECT id, v FROM {c}.a
c | | CREATE TABLE {c}.c (PRIMARY KEY (id)) SELECT id, v FROM {o}.plain
 | | CREATE TABLE {o}.c (PRIMARY KEY (id)) SELECT id, v FROM {c}.a
 | | CREATE TEMPORARY TABLE {o}.c (PRIMARY KEY (id)) SELECT id, v FROM {c}.a
a | | INSERT INTO {o}.triggers VALUES (1, 'x')
a | | UPDATE {o}.view_of_a SET v = 'view' WHERE id = 1
 | | UPDATE {o}.view_of_plain SET v = 'view' WHERE id = 1
b | audit | INSERT INTO {o}.plain VALUES ({o}.add_b(9), 'x')
 | | INSERT INTO {o}.plain VALUES ({o}.twice(9), 'x')
b | audit | DO {o}.add_b(8)
b | audit | SELECT {o}.add_b(7)
b | audit | SELECT * FROM {o}.view_of_function
b | audit | INSERT INTO {o}.plain SELECT id, 'x' FROM {o}.view_of_function
b | audit | SET @x = {o}.add_b(6)
a | | CALL {o}.add_a('procedure')
kid | | DELETE FROM {o}.parent_of WHERE id = 1
parent, child | | DELETE FROM {c}.parent WHERE id = 1
a | | UPDATE {o}.plain JOIN {c}.a ON plain.id = a.id SET a.v = 'join', plain.v = 'join'
a | | DELETE {c}.a FROM {c}.a JOIN {o}.plain ON plain.id = a.id
audit, b | | UPDATE {c}.b SET v = 'x' WHERE id = 1
a | | LOAD DATA LOCAL INFILE '{file}' INTO TABLE {c}.a (id, v)
 | | LOAD DATA LOCAL INFILE '{file}' INTO TABLE {o}.plain
a | | LOAD DATA LOCAL INFILE '{file}' INTO TABLE {o}.triggers
a | | PREPARE s FROM 'INSERT INTO {c}.a (v, n) VALUES (7, 7)' ; EXECUTE s
a, untouched | | BEGIN ; INSERT INTO {c}.untouched VALUES (2, 'two') ; DELETE FROM {c}.a ; COMMIT
 | | REPLACE INTO {o}.heartbeat VALUES (1, NOW())
 | | REPLACE INTO {o}.checksums SELECT 1, CONCAT('a', COUNT(*)), COUNT(*) FROM {c}.a
 | | UPDATE {o}.checksums SET cnt = (SELECT COUNT(*) FROM {c}.b)
 | | DELETE FROM {o}.plain
""".strip().splitlines()
MARIADB_FORMS = """
a | | CREATE OR REPLACE TABLE {c}.a (PRIMARY KEY (id)) SELECT id, v FROM {o}.plain
a | | EXECUTE IMMEDIATE 'INSERT INTO {c}.a (v, n) VALUES (8, 8)'
b | audit | CREATE TABLE {o}.c AS SELECT {o}.add_b(5) AS id
b | audit | CREATE TEMPORARY TABLE {o}.c AS SELECT {o}.add_b(5) AS id
a | | BEGIN NOT ATOMIC INSERT INTO {c}.a (v) VALUES ('block'); END
""".strip().splitlines()


@pytest.fixture
def make_world(server: Server, tmp_path: Path) -> Iterator[MakeWorld]:
    worlds: list[World] = []
    before = server.variable("local_infile")
    server.execute("SET GLOBAL local_infile = 1")

    def make(**options: object) -> World:
        worlds.append(World(server, tmp_path, **options))  # type: ignore[arg-type]
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()
    server.execute(f"SET GLOBAL local_infile = {before}")


def _forms(server: Server) -> list[tuple[set[str], set[str], list[str]]]:
    found = []
    for line in FORMS + (MARIADB_FORMS if server.flavor == "mariadb" else []):
        always, further, statements = line.split("|", 2)
        found.append((_names(always), _names(further), statements.strip().split(" ; ")))
    return found


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


@pytest.mark.whole
@pytest.mark.parametrize(
    "formats",
    [{"mysql": "STATEMENT", "mariadb": "STATEMENT"}, {"mysql": "MIXED", "mariadb": "ROW"}],
    ids=["STATEMENT", "another"],
)
def test_k29_f72_a_table_equals_the_servers_or_is_named(
    server: Server, make_world: MakeWorld, tmp_path: Path, formats: dict[str, str]
) -> None:
    binlog_format, lines = formats[server.flavor], tmp_path / "lines.txt"
    lines.write_text("101\tone\n102\ttwo\n")
    problems = []
    for suspended, further, statements in _forms(server):
        world = make_world()
        refused = world.write(
            binlog_format, [sql.replace("{file}", str(lines)) for sql in statements]
        )
        error = world.capture()
        held = world.suspended()
        lost = set(world.different()) - held.keys() - world.warned()
        needless = held.keys() - suspended - further
        missing = suspended - held.keys() if binlog_format == "STATEMENT" else set()
        if binlog_format == "ROW":
            needless = set(held)
        if refused or lost or needless or missing or bool(error) != bool(held):
            problems.append((statements, refused, lost, needless, missing, error, held))
        world.close()
    assert problems == []


def test_k29_an_account_that_sees_no_triggers_proves_nothing(
    server: Server, make_world: MakeWorld
) -> None:
    """MySQL's own list does: it has no table of a captured database there."""
    world = make_world(grants=("SELECT",))
    world.write("STATEMENT", ["DELETE FROM {o}.plain"])
    assert (world.capture() is None) is (server.flavor == "mysql")
    assert (set(world.suspended()) == set(world.tables())) is (server.flavor == "mariadb")
    for held in world.suspended().values():
        assert "no trigger, view, function or foreign key led it to this table" in held.what
        assert "GRANT SELECT, TRIGGER, SHOW VIEW ON *.* to the account" in held.next_step


def test_k29_tables_that_people_declare_to_have_no_triggers_reach_no_other(
    server: Server, make_world: MakeWorld
) -> None:
    world = make_world(grants=("SELECT",), accept={"statements": ["*.heartbeat", "*.checksums"]})
    world.write(
        "STATEMENT",
        [
            "REPLACE INTO {o}.heartbeat VALUES (1, NOW())",
            "REPLACE INTO {o}.checksums SELECT 1, CONCAT('a', COUNT(*)), COUNT(*) FROM {c}.parent",
            "UPDATE {o}.checksums SET cnt = (SELECT COUNT(*) FROM {c}.b)",
        ],
    )
    assert world.capture() is None
    assert world.different() == []


def test_k29_a_trigger_that_is_gone_when_the_catalog_is_read_is_not_forgotten(
    server: Server, make_world: MakeWorld
) -> None:
    world = make_world()
    world.write(
        "STATEMENT", ["INSERT INTO {o}.triggers VALUES (1, 'x')", "DROP TRIGGER {o}.into_a"]
    )
    assert world.capture() is not None
    assert "a" in world.suspended()
    assert set(world.different()) <= world.suspended().keys()


def test_k29_a_table_stands_at_the_statement_and_a_snapshot_is_the_way_out(
    server: Server, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    world.write("ROW", ["INSERT INTO {c}.a (v, n) VALUES ('before', 4)"])
    world.write("STATEMENT", ["UPDATE {o}.view_of_a SET v = 'secret' WHERE id = 1"])
    world.write(
        "ROW", ["DELETE FROM {c}.a WHERE id = 2", "INSERT INTO {c}.untouched VALUES (5, 'five')"]
    )
    error = world.capture()
    assert isinstance(error, TargetSuspendedError)
    assert "secret" not in str(error)  # K26
    assert "UPDATE" in str(error)
    assert world.different() == ["a"]
    assert {row["v"] for row in world.rows("a")} == {"one", "two", "three", "before"}
    world.shop.take_place(monkeypatch)
    take_snapshot(world.shop.config, cursors=world.shop.cursors, tables=[f"{world.names['c']}.a"])
    assert world.suspended() == {}
    assert world.capture() is None
    assert world.different() == []


def test_k22_f114_a_table_that_is_created_again_with_its_rows_replaces_what_the_batch_has(
    server: Server, make_world: MakeWorld
) -> None:
    """CREATE TABLE ... SELECT under ROW is part of the transaction of its rows. Without a key it
    costs that table alone."""
    again = ["CREATE OR REPLACE TABLE"]
    if server.flavor == "mysql":
        again = ["DROP TABLE {t}", "CREATE TABLE"]
    world = make_world()
    for table, key in (("a", "(PRIMARY KEY (id))"), ("b", "")):
        name = f"{{c}}.{table}"
        *before, create = [sql.replace("{t}", name) for sql in again]
        refused = world.write(
            "ROW",
            [
                f"INSERT INTO {name} (id, v) VALUES (50, 'gone')",
                *before,
                f"{create} {name} {key} SELECT id, v FROM {{o}}.plain",
                f"INSERT INTO {name} VALUES (70, 'x')",
            ],
        )
        assert refused == []
    assert isinstance(world.capture(), TargetSuspendedError)
    assert world.different() == ["b"]
    assert list(world.suspended()) == ["b"]
    assert "without a primary key" in world.suspended()["b"].what


def test_k29_k28_a_table_whose_rows_are_unknown_takes_that_to_its_new_name(
    server: Server, make_world: MakeWorld
) -> None:
    """It never had a target. Once it is gone, it needs none."""
    world = make_world()
    create = "CREATE TABLE {c}.first (PRIMARY KEY (id)) SELECT id, v FROM {o}.plain"
    world.write("STATEMENT", [create, "RENAME TABLE {c}.first TO {c}.second"])
    assert world.capture() is not None
    assert list(world.suspended()) == ["second"] == world.different()
    world.write("ROW", ["DROP TABLE {c}.second"])
    assert world.capture() is None
    assert world.suspended() == {}
    world.write("STATEMENT", [create])
    assert world.capture() is not None
    world.write("ROW", ["RENAME TABLE {c}.first TO {o}.first"])
    assert world.capture() is None


def test_k4_k28_a_suspended_table_takes_its_suspension_to_its_new_name(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new name was partial: it followed without what its table had missed."""
    world = make_world()
    assert world.capture() is None
    world.write("ROW", ["ALTER TABLE {c}.a ADD COLUMN at DATETIME(6) DEFAULT NOW(6)"])
    assert world.capture() is not None
    world.write("ROW", ["RENAME TABLE {c}.a TO {c}.moved"])
    world.write("ROW", ["INSERT INTO {c}.moved (v) VALUES ('moved')"])
    assert world.capture() is not None
    assert sorted(world.suspended()) == ["a", "moved"]
    assert set(world.different()) <= world.suspended().keys()
    world.shop.take_place(monkeypatch)
    take_snapshot(
        world.shop.config, cursors=world.shop.cursors, tables=[f"{world.names['c']}.moved"]
    )
    assert set(world.different()) <= world.suspended().keys()
    assert "moved" not in world.suspended()
