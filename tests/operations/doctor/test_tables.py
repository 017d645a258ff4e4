"""Tables of a real server that the log does not show whole, or the lake does not take as they
are."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.operations.doctor import tables
from cdc_pipeline.operations.doctor.context import Context
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.source.live.table_facts import ColumnFacts, TableFacts
from tests.operations.doctor.helpers import (
    carry_out,
    diagnosis,
    is_fine,
    live,
    only,
    pipeline,
    troubles,
)
from tests.servers import Server
from tests.support.fake_capture import cut, write_cut

AREAS = ("grants", "tables")


def test_odd_tables_are_named_with_what_puts_them_right(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    server.execute_all(
        f"USE {fresh_database}",
        "CREATE TABLE orders (id INT PRIMARY KEY, placed DATE)",
        "CREATE TABLE items (id INT PRIMARY KEY, o INT, "
        "CONSTRAINT `of` FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
        "CREATE TABLE keyless (v INT)",
        "CREATE TABLE by_unique (v INT NOT NULL UNIQUE)",
        "CREATE TABLE visits (id INT PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE cached (id INT PRIMARY KEY) ENGINE = MEMORY",
        "CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2",
        "CREATE TABLE named (id INT PRIMARY KEY, `a b` INT)",
        "CREATE VIEW seen AS SELECT 1 AS a",
    )
    is_mariadb = server.flavor == "mariadb"
    if is_mariadb:
        server.execute_all(
            "CREATE SEQUENCE numbers",
            "CREATE TABLE kept (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        )
    config = pipeline(live(server), tmp_path, include=[f"{fresh_database}.*", "absent.*"])
    found = diagnosis(config, areas=AREAS)
    assert is_fine(found, "select")

    def told(check: str) -> list[tuple[str, str]]:
        return [
            (one.severity, f"{one.what} {one.got}".replace(fresh_database, "db"))
            for one in troubles(found, check)
        ]

    ((severity, text),) = told("matching")
    assert severity == "error"
    assert "absent.*" in text
    assert told("keys") == [
        (
            "note",
            "db.keyless has no key: it becomes a changelog, which keeps every change but cannot "
            "identify rows none",
        )
    ]
    assert [text.split(" ")[0] for _, text in told("engines")] == ["db.cached", "db.visits"]
    assert [text.rpartition(" ")[2] for _, text in told("partitions")] == ["db.parts"]
    (columns,) = told("columns")
    assert columns[0] == "error"
    assert "`a b`" in columns[1]
    not_tables = sorted(told("not tables"))
    assert not_tables[-1] == (
        "note",
        "views are not captured, but the tables that they read are db.seen",
    )
    # MySQL 9.6 logs what cascades change; MariaDB does not.
    assert [severity for severity, _ in told("cascades")] == ["warning"] * is_mariadb
    assert [severity for severity, _ in not_tables[:-1]] == ["note"] * is_mariadb
    assert [text.rpartition(" ")[2] for _, text in told("system versioned")] == [
        "db.kept"
    ] * is_mariadb
    carry_out(server, [*troubles(found, "cascades"), *troubles(found, "engines")])
    after = diagnosis(config, areas=AREAS)
    assert is_fine(after, "cascades")
    assert is_fine(after, "engines")


def test_no_captured_table_is_an_error(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    found = only(
        diagnosis(
            pipeline(live(mysql_server), tmp_path, include=[f"{mysql_database}.*"]), areas=AREAS
        ),
        "matching",
    )
    assert found.severity == "error"
    database = mysql_database.replace("_", r"\_")  # a wildcard there
    assert f"GRANT SELECT ON `{database}`.* TO 'cdc'@'%';" in found.next_step


def test_k19_partial_tables_come_with_the_command_that_loads_them(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        mysql_server.execute(f"CREATE TABLE {mysql_database}.{name} (id INT PRIMARY KEY)")
    old = f"{mysql_database}.old"
    partial = cut(batch=1, tables={old: 1})
    targets = {old: partial.cursor.targets[old].model_copy(update={"partial": True})}
    cursor = partial.cursor.model_copy(update={"targets": targets})
    write_cut(tmp_path / "lake", partial.model_copy(update={"cursor": cursor}))
    config = pipeline(live(mysql_server), tmp_path, include=[f"{mysql_database}.*"])
    found = troubles(diagnosis(config, areas=AREAS), "partial")
    assert [(one.severity, one.next_step) for one in found] == [
        ("warning", f"cdc-pipeline snapshot shop --table {old}"),
        ("note", f"cdc-pipeline snapshot shop --table {mysql_database}.new"),
    ]


def test_a_rule_decides_what_becomes_of_a_table_without_a_key(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        mysql_server.execute(f"CREATE TABLE {mysql_database}.{name} (v INT)")
    rules = [
        {"tables": [f"{mysql_database}.a"], "keyless": "stop"},
        {"tables": [f"{mysql_database}.b"], "keyless": "row_hash"},
        {"tables": [f"{mysql_database}.c"], "key": ["v"]},
    ]
    config = pipeline(live(mysql_server), tmp_path, include=[f"{mysql_database}.*"], targets=rules)
    found = troubles(diagnosis(config, areas=AREAS), "keys")
    assert [(one.severity, one.what.partition(" ")[0]) for one in found] == [
        ("error", f"{mysql_database}.a"),
        ("note", f"{mysql_database}.b"),
    ]


def test_types_and_charsets_that_nobody_knows_are_named(tmp_path: Path) -> None:
    """No server of the tests has such: a later one may."""
    config = pipeline({"kind": "live", "host": "x", "user": "cdc", "password": "x"}, tmp_path)
    context = Context(config, MemoryCursorStore())
    odd = ColumnFacts("shape", "hologram(3)", "", None)
    text = ColumnFacts("name", "varchar(9)", "klingon", ColumnFacts)  # type: ignore[arg-type]
    context.tables = [
        TableFacts("shop.odd", "BASE TABLE", "InnoDB", has_key=True, columns=(odd, text))
    ]
    found = [(one.severity, one.got) for one in tables._columns(context)]
    assert found[:2] == [
        ("error", "shape hologram(3)"),
        ("error", "name varchar(9) CHARACTER SET klingon"),
    ]
