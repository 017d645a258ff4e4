"""Decisions, isolation and confirmation, from texts alone; what servers log is in
test_journals.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import (
    ContentUnknownError,
    SchemaError,
    UnsupportedDdlError,
    UnsupportedEventError,
)
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.published import published
from cdc_pipeline.schema.evolution.changes import confirm, decide
from cdc_pipeline.schema.evolution.statement_context import Decision, KnownTable, StatementContext
from cdc_pipeline.schema.evolution.steps import AddColumn, FillColumns
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import TargetColumn

KNOWN = KnownTable(
    RecordedSource(
        columns=(
            TargetColumn(name="a", delta_type="int"),
            TargetColumn(name="b", delta_type="string"),
        ),
        key=("a",),
    )
)


def captured(database: str, table: str) -> bool:
    return database == "d" and not table.startswith("x")


def said(sql: str, *, known: bool = True, before: Any = None) -> Decision:
    """`t` and `u` are captured, `x...` are not; only `t` has a target. `before`: in the history."""
    return decide(
        StatementContext(
            parse_statement(sql, "d", is_mariadb=True),
            captured=captured,
            known=lambda _, table: KNOWN if known and table == "t" else None,
            targets_in=lambda database: ["t"] if database == "d" and known else [],
            journal="binlog.000007",
            offset=1234,
            reachable=lambda: [("d", "t")] if known else [],
            before=lambda *_: before,
        )
    )


def test_added_columns_and_their_values() -> None:
    decision = said(
        "ALTER TABLE t ADD c INT NOT NULL, ADD d VARCHAR(5) DEFAULT 'it''s', ADD INDEX i (c)"
    )
    (change,) = decision.changes
    assert change.table == ("d", "t")
    assert change.steps == (
        AddColumn(name="c", delta_type="int"),
        AddColumn(name="d", delta_type="string"),
        FillColumns(
            values=(("c", "int", "CAST('0' AS int)"), ("d", "string", r"'it\u0027s'")),
            defaults=("c", "d"),
            seq="0",
        ),
    )
    assert [column.name for column in change.known.source.columns] == ["a", "b", "c", "d"]
    assert change.known.target_columns == change.known.source.columns
    assert decision.ddl.decision == "applied"
    assert decision.ddl.reason == "adds c; adds d; indexes do not exist in the lake"
    assert (decision.ddl.journal, decision.ddl.offset, decision.ddl.tables) == (
        "binlog.000007",
        1234,
        ("d.t",),
    )


def test_a_created_target_has_columns_and_key() -> None:
    (target,) = said("CREATE TABLE u (a INT, b BIGINT UNSIGNED, PRIMARY KEY (B))").creates
    assert target.source.columns == (
        TargetColumn(name="a", delta_type="int"), TargetColumn(name="b",
            delta_type="decimal(20,0)"),
    )  # fmt: skip
    assert (target.source.key, target.may_exist) == (("b",), False)
    assert said("CREATE TABLE IF NOT EXISTS u (a INT PRIMARY KEY)").creates[0].may_exist


def test_k13_f189_a_text_does_not_describe_a_table_that_exists() -> None:
    """MySQL logs it, and the first table map may show other columns."""
    decision = said("CREATE TABLE IF NOT EXISTS u (a INT PRIMARY KEY)", before=object())
    assert not decision.creates
    assert decision.ddl.decision == "recorded"
    assert said("CREATE TABLE u (a INT PRIMARY KEY)", before=object()).creates


@pytest.mark.parametrize(
    "sql",
    ["DROP TABLE IF EXISTS u", "DROP TABLE u", "TRUNCATE u", "ALTER TABLE u DROP COLUMN a",
        "RENAME TABLE u TO x1",
     "ALTER TABLE u MODIFY a GIZMO", "CREATE INDEX i ON u (a)", "DROP INDEX `PRIMARY` ON u"],
)  # fmt: skip
def test_a_captured_table_without_a_target_has_nothing_to_lose(sql: str) -> None:
    assert said(sql).ddl.decision == "recorded"


@pytest.mark.parametrize(
    "sql",
    ["DROP TABLE x", "ALTER TABLE x ADD a GIZMO", "RENAME TABLE x TO x1", "TRUNCATE other.t",
     "DROP TEMPORARY TABLE t", "CREATE TEMPORARY TABLE t (a INT)", "BEGIN", "COMMIT", "SAVEPOINT s",
     "SET @a = 1",
     "XA START 'x'", "XA END 'x'", "XA COMMIT X'78',X'',1", "XA ROLLBACK 'x'", "ROLLBACK TO `s`",
     "DROP DATABASE other", "GRANT ALL ON *.* TO a", "# nothing"],
)  # fmt: skip
def test_what_is_not_captured_is_ignored(sql: str) -> None:
    assert said(sql).ignored


@pytest.mark.parametrize(
    ("sql", "arrivals", "reason"),
    [
        ("RENAME TABLE x TO u", {"u": "x"},
            "d.x takes the name d.u, with rows that are unknown here"),
        ("ALTER TABLE x RENAME TO u", {"u": "x"},
            "d.x takes the name d.u, with rows that are unknown here"),
        ("RENAME TABLE t TO x", {}, "d.t no longer has a table: its target is kept unchanged"),
        ("RENAME TABLE t TO x, x2 TO t", {"t": "x2"},
            "d.x2 takes the name d.t, with rows that are unknown here"),
        ("RENAME TABLE t TO u, x TO t", {"u": "t", "t": "x"},
         "the target of d.u takes over the rows of d.t; d.x takes the name d.t, with rows that "
         "are unknown here"),
    ],
)  # fmt: skip
def test_k28_a_decision_names_each_table_that_takes_a_captured_name(
    sql: str, arrivals: dict[str, str], reason: str
) -> None:
    decision = said(sql)
    assert {arrival.name[1]: arrival.before[1] for arrival in decision.arrivals} == arrivals
    assert decision.ddl.reason == reason


@pytest.mark.parametrize(
    "sql",
    ["CREATE TABLE t (a INT PRIMARY KEY)",
     "ALTER TABLE x EXCHANGE PARTITION p WITH TABLE t", "ALTER TABLE t ADD c GIZMO",
     "ALTER TABLE t ADD c INT PRIMARY KEY",
     "ALTER TABLE t ENGINE=BLACKHOLE", "ALTER IGNORE TABLE t ADD UNIQUE (b)",
     "ALTER IGNORE TABLE t ADD q INT NOT NULL DEFAULT 0 UNIQUE",
     "ALTER TABLE t REORGANIZE PARTITION p INTO (PARTITION q VALUES IN (2))",
     "ALTER TABLE t ADD c JSON DEFAULT (JSON_OBJECT())"],
)  # fmt: skip
def test_what_cannot_be_applied_stops_with_its_place_and_the_way_out(sql: str) -> None:
    with pytest.raises(UnsupportedDdlError) as caught:
        said(sql)
    assert (caught.value.journal, caught.value.offset) == ("binlog.000007", 1234)
    assert caught.value.got == published(parse_statement(sql, "shop"))  # without literals (K26)
    assert caught.value.next_step


@pytest.mark.parametrize(
    "sql",
    ["XA PREPARE 'x'", "XA COMMIT x", "XA ROLLBACK 1, 'x'", "XA COMMIT X'61',X'',1 ONE PHASE",
        "ROLLBACK TO"],
)  # fmt: skip
def test_events_that_cannot_be_applied_stop(sql: str) -> None:
    with pytest.raises(UnsupportedEventError) as caught:
        said(sql)
    assert caught.value.next_step
    assert caught.value.offset == 1234


@pytest.mark.parametrize(
    "sql",
    ["FROBNICATE t", "DROP TABLE `t", "CREATE TABLE t SELECT 1",
     "CREATE OR REPLACE TABLE t SELECT 1", "CREATE TABLE x SELECT f()",
     "CREATE TEMPORARY TABLE t SELECT f()", "CALL p()", "SELECT f()",
     "INSERT INTO t VALUES ('secret')", "INSERT INTO x VALUES ('secret')", "EXECUTE IMMEDIATE 'x'",
     "ANALYZE UPDATE x SET a = 'secret'", "UPDATE x JOIN t ON x.a = t.a SET x.b = 1"],
)  # fmt: skip
def test_k29_f72_what_may_carry_rows_is_an_error_of_each_table_that_it_may_have_reached(
    sql: str,
) -> None:
    with pytest.raises(ContentUnknownError) as caught:
        said(sql)
    error = caught.value
    assert (error.table, error.journal, error.offset) == ("d.t", "binlog.000007", 1234)
    assert error.got == published(parse_statement(sql, "d", is_mariadb=True))
    assert "secret" not in f"{error.what} {error.got} {error.next_step}"  # K26
    assert error.next_step


@pytest.mark.parametrize("name", ["A", "_cdc_x", "`a b`"])
def test_added_names_that_delta_cannot_hold_stop(name: str) -> None:
    with pytest.raises(SchemaError) as caught:
        said(f"ALTER TABLE t ADD {name} INT")
    assert (caught.value.table, caught.value.journal) == ("d.t", "binlog.000007")


def test_drop_database_stops_where_its_targets_are_not_told() -> None:
    with pytest.raises(UnsupportedDdlError):
        decide(
            StatementContext(
                parse_statement("DROP DATABASE other", "d"),
                captured=captured,
                known=lambda *_: None,
            )
        )


def test_long_statements_are_shortened() -> None:
    decision = said("ALTER TABLE t COMMENT '" + "x" * 10_000 + "'")
    assert len(decision.ddl.sql) < 600


@pytest.mark.parametrize(
    ("sql", "isolated"),
    [
        ("ALTER TABLE t ADD c INT", True),
        ("CREATE TABLE u (a INT)", True),
        ("/* x */ DROP TABLE t", True),
        ("RENAME TABLE x TO t", True),
        ("TRUNCATE t", True),
        ("CREATE INDEX i ON t (a)", True),
        ("DROP INDEX i ON t", True),
        ("DROP DATABASE q", True),
        ("FROBNICATE", True),
        ("ALTER TABLE x ADD c INT", False),
        ("DROP TEMPORARY TABLE t", False),
        ("CREATE VIEW t AS SELECT 1", False),
        ("ANALYZE TABLE t", False),
        ("BEGIN", False),
        ("COMMIT", False),
        ("INSERT INTO t VALUES (1)", False),
        ("SET @a = 1", False),
    ],
)
def test_s7_ddl_of_captured_tables_stands_alone(sql: str, isolated: bool) -> None:
    assert parse_statement(sql, "d").is_isolated(captured) is isolated


SCHEMA = TableSchema(
    "d",
    "t",
    (Column("b", Kind.TEXT, 0, 0, True, charset="utf8mb4"), Column("a", Kind.INT32, 0, 0, False)),
    (1,),
)


def test_k13_a_table_map_confirms_whatever_the_order_of_columns() -> None:
    confirm(KNOWN.source.columns, KNOWN.source.key, SCHEMA)


@pytest.mark.parametrize(
    ("columns", "key", "told"),
    [
        (KNOWN.source.columns[:1], ("a",), "`b` is not in the lake"),
        (
            (*KNOWN.source.columns, TargetColumn(name="z", delta_type="int")),
            ("a",),
            "`z` is not in the table map",
        ),
        (
            (TargetColumn(name="a", delta_type="bigint"), KNOWN.source.columns[1]),
            ("a",),
            "`a` is bigint in the lake and int",
        ),
        (KNOWN.source.columns, ("b",), "another key"),
    ],
)
def test_k13_a_contradiction_stops_with_both_versions(
    columns: tuple[TargetColumn, ...], key: tuple[str, ...], told: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        confirm(columns, key, SCHEMA)
    assert told in caught.value.what
    assert caught.value.expected is not None
    assert "b string, a int; key (a)" in str(caught.value.got)


def test_k13_a_renamed_column_does_not_pass() -> None:
    renamed = replace(SCHEMA, columns=(replace(SCHEMA.columns[0], name="c"), SCHEMA.columns[1]))
    with pytest.raises(SchemaError, match="`b` is not in the table map; `c` is not in the lake"):
        confirm(KNOWN.source.columns, KNOWN.source.key, renamed)
