"""K29: which captured tables a statement may have changed without row events."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from cdc_pipeline.errors import ContentUnknownError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import StatementContext
from cdc_pipeline.schema.programs import Disturbance, Program, ProgramKind, StoredPrograms
from cdc_pipeline.text.table_names import NameRule

A, B, KID = ("c", "a"), ("c", "b"), ("c", "kid")
PROGRAMS = (
    Program.of(ProgramKind.TRIGGER, "log", "INSERT INTO `c`.`A` VALUES (NEW.id)"),
    Program.of(ProgramKind.TRIGGER, "chained", "INSERT INTO log VALUES (1)"),
    Program.of(ProgramKind.TRIGGER, "parent", "kid"),  # a foreign key
    Program.of(ProgramKind.VIEW, "over_a", "select `c`.`a`.`id` AS `id` from `c`.`a`"),
    Program.of(ProgramKind.VIEW, "over_view", "select 1 from `o`.`over_a`"),
    Program.of(ProgramKind.VIEW, "calling", "select `o`.`put b`() AS `x`"),
    Program.of(ProgramKind.ROUTINE, "put b", "BEGIN INSERT INTO c.b VALUES (1); RETURN 1; END"),
    Program.of(ProgramKind.ROUTINE, "pure", "RETURN 2 * x"),
    Program.of(ProgramKind.ROUTINE, "foreign", None),
    Program.of(ProgramKind.ROUTINE, "dynamic", "BEGIN PREPARE s FROM @x; EXECUTE s; END"),
)


def reached(
    sql: str,
    *,
    among: Collection[tuple[str, str]] = (A, B, KID),
    programs: StoredPrograms | None = None,
    modes: SqlModes = UNKNOWN_MODES,
    **rest: Any,
) -> set[str]:
    """The tables that a statement is an error of, one after the other, as a run suspends them."""
    found: set[str] = set()
    while True:
        try:
            decide(
                StatementContext(
                    parse_statement(sql, "o", is_mariadb=True, modes=modes),
                    captured=lambda database, table: database == "c" and table not in found,
                    known=lambda *_: None,
                    journal="b.000002",
                    offset=500,
                    reachable=lambda: among,
                    programs=lambda: programs,
                    **rest,
                )
            )
        except ContentUnknownError as error:
            found.add(str(error.table).partition(".")[2])
        else:
            return found


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("INSERT INTO plain VALUES (1)", ""),
        ("INSERT INTO c.b VALUES (1)", "b"),
        ("INSERT INTO log VALUES (1)", "a"),
        ("INSERT INTO chained VALUES (1)", "a"),
        ("DELETE FROM parent", "kid"),
        ("UPDATE over_a SET id = 2", "a"),
        ("UPDATE `over_view` SET id = 2", "a"),
        ("INSERT INTO plain SELECT * FROM over_a", ""),
        ("INSERT INTO plain SELECT * FROM calling", "b"),
        ("INSERT INTO plain VALUES (`put b`())", "b"),
        ("INSERT INTO plain VALUES (PURE(1))", ""),
        ("INSERT INTO plain VALUES (o.foreign())", "a b kid"),
        ("SELECT o.`put b`()", "b"),
        ("SELECT o.pure(1)", ""),
        ("DO dynamic()", "a b kid"),
        ("CREATE TABLE x SELECT `put b`() AS y", "b"),
        ("CREATE TEMPORARY TABLE x SELECT 1", ""),
        ("CALL anything()", ""),
        ("CALL other('c', 'a')", "a"),
        ("REPLACE INTO checksums SELECT COUNT(*) FROM c.a", ""),
    ],
)
def test_k29_f72_programs_prove_what_a_statement_leaves_alone(sql: str, tables: str) -> None:
    assert reached(sql, programs=StoredPrograms(PROGRAMS)) == set(tables.split())


def test_k29_without_a_proof_every_table_may_be_reached() -> None:
    assert reached("INSERT INTO plain VALUES (1)") == {"a", "b", "kid"}
    assert reached("CREATE TABLE x SELECT f(1)") == {"a", "b", "kid"}
    assert reached("CREATE TABLE x (a INT)") == set()


@pytest.mark.parametrize(
    ("query", "is_proved"),
    [
        ("SELECT 1", True),
        ("SELECT id, COUNT(*) AS n FROM c.a WHERE id IN (1, 2) GROUP BY id, v", True),
        ("SELECT x.id FROM c.a x JOIN (c.b, c.kid) USING (id) ORDER BY id", True),
        ("SELECT (SELECT MAX(id) FROM c.b), v FROM c.a UNION ALL SELECT 1, 2 FROM DUAL", True),
        ("SELECT * FROM (SELECT * FROM c.a) AS d", False),  # `d` may be anything: too many
        ("SELECT f(1)", False),
        ("SELECT count (1)", False),
        ("SELECT `count`(1)", False),
        ("SELECT o.count(1)", False),
        ("SELECT * FROM view", False),
        ("SELECT * FROM c.a, view", False),
        ("SELECT * FROM c.a WHERE id IN (SELECT id FROM view)", False),
        ("SELECT * FROM (c.a, c.b), view", False),
        ("SELECT * FROM c.a JOIN c.b USING (id) JOIN view", False),
        ("SELECT * FROM c.a USE KEY FOR ORDER BY (v), view", False),
        ("VALUES (f(1), (SELECT 1))", False),
        ("WITH w AS (SELECT 1 FROM view) SELECT 1", False),
    ],
)
def test_k29_a_query_that_calls_no_stored_function_writes_nothing(
    query: str, is_proved: bool
) -> None:
    """Of CREATE TABLE ... SELECT in MariaDB's archives, whose programs nobody knows."""

    def before(database: str, _table: str) -> Any:
        return object() if database == "c" else None

    for columns in ("", " (id INT PRIMARY KEY)"):
        found = reached(f"CREATE TABLE x{columns} {query}", before=before)
        assert found == (set() if is_proved else {"a", "b", "kid"}), query


def test_k29_a_statement_reaches_databases_that_its_event_lists() -> None:
    sql = "INSERT INTO plain VALUES (1)"
    assert reached(sql, databases=frozenset({"o"})) == set()
    assert reached(sql, databases=frozenset({"o", "c"})) == {"a", "b", "kid"}
    assert reached(sql, databases=frozenset({"o", "C"})) == set(), "another database"
    folding = SqlModes(names=NameRule.LOWER)
    assert reached(sql, databases=frozenset({"C"}), modes=folding) == {"a", "b", "kid"}
    assert reached(sql, databases=None) == {"a", "b", "kid"}


def test_k29_what_people_declare_to_have_no_triggers_counts_as_proved() -> None:
    declared = {"accepted": lambda _database, table: table == "plain"}
    assert reached("INSERT INTO plain VALUES (1)", **declared) == set()
    assert reached("UPDATE plain JOIN log SET a = 1", **declared) == {"a", "b", "kid"}
    assert reached("UPDATE plain JOIN c.a SET x = 1", **declared) == {"a", "b", "kid"}
    assert reached("CALL p()", **declared) == {"a", "b", "kid"}


@pytest.mark.parametrize(
    ("disturbance", "is_proved"),
    [
        (Disturbance("b.000002", 499, ""), True),
        (Disturbance("b.000002", 501, ""), False),
        (Disturbance("b.000003", 4, "plain"), False),
        (Disturbance("b.000003", 4, "unrelated"), True),
    ],
)
def test_k29_a_catalog_proves_nothing_of_what_was_changed_since(
    disturbance: Disturbance, is_proved: bool
) -> None:
    programs = StoredPrograms(PROGRAMS, [disturbance])
    found = reached("INSERT INTO plain VALUES (1)", programs=programs)
    assert found == (set() if is_proved else {"a", "b", "kid"})


def test_k29_mysqls_create_table_select_writes_its_own_table_alone() -> None:
    sql = "CREATE TABLE c.a SELECT f()"
    found = []
    for is_mariadb in (False, True):
        with pytest.raises(ContentUnknownError) as caught:
            decide(
                StatementContext(
                    parse_statement(sql, "o", is_mariadb=is_mariadb),
                    captured=lambda *table: table == A,
                    known=lambda *_: None,
                    reachable=lambda: [A, B],
                )
            )
        found.append(caught.value.table)
    assert found == ["c.a", "c.a"]
    context = StatementContext(
        parse_statement(sql, "o"),
        captured=lambda _, table: table == "b",
        known=lambda *_: None,
        reachable=lambda: [B],
    )
    assert decide(context).ignored
