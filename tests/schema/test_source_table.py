"""One ALTER is parsed once, and applied to one model of its table, whoever asks (K13, K33)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import CdcError, SchemaError
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.decode.schemas import journal_schemas
from cdc_pipeline.schema.ddl import ddl
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes, Uncertain
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import KnownTable, StatementContext
from cdc_pipeline.schema.source_table import SourceTable, altered, created
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import target_columns
from tests.schema.ddl.generated_statements import Maker
from tests.targets.renames_model import Names, names

MODES = SqlModes(ansi_quotes=False, strict=True, trims_char=True)
AT = Position("b.000001", 4)


def test_k33_an_alter_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the reader, which isolates it, by the decision, and by the schema history."""
    model: Names = names()
    model.create("d.a")
    sql = "ALTER TABLE d.a ADD COLUMN parsed_once INT, RENAME COLUMN c1 TO c2"
    read: list[str] = []

    def classify(tokens: ddl.TokenReader, database: str) -> ddl.Statement:
        read.append(tokens.sql)
        return classify_tokens(tokens, database)

    classify_tokens = ddl.classify_tokens
    monkeypatch.setattr(ddl, "classify_tokens", classify)
    query = model.query(sql)
    assert model.rules.is_isolated(query)
    decision = model.rules.decide(
        query, targets=model.targets, journal=AT.journal, offset=AT.offset
    )
    assert decision.changes
    journal_schemas().apply(
        query,
        decision.statement,
        lambda *_: True,
        journal=AT.journal,
        offset=AT.offset,
        time_us=1,
    )
    assert read == [sql]


@pytest.mark.parametrize("is_mariadb", [False, True])
def test_k13_what_is_recorded_of_a_table_is_what_its_history_says(is_mariadb: bool) -> None:
    compared = 0
    for generated in Maker(7).statements(1200):
        *before, alter = (
            parse_statement(sql, "g", is_mariadb=is_mariadb, modes=MODES)
            for sql in generated.statements
        )
        if not before or before[0].created is None:
            continue
        table = created(
            ("g", generated.name),
            before[0].created,
            database_charset="latin2",
            is_mariadb=is_mariadb,
        )
        try:
            after = altered(table, alter)
        except Uncertain:
            continue
        known = KnownTable(
            RecordedSource(columns=target_columns(table.schema), key=table.schema.key_names)
        )
        try:
            decision = decide(_context(alter, known, table))
        except CdcError:
            continue
        (change,) = decision.changes or [None]
        recorded = known.source if change is None else change.known.source
        assert set(recorded.columns) == set(target_columns(after.schema)), alter.sql
        assert recorded.key == after.schema.key_names, alter.sql
        compared += 1
    assert compared > 300


def _context(statement: ddl.Statement, known: KnownTable, table: SourceTable) -> StatementContext:
    policy = SchemaChangePolicy(drop_column="apply", incompatible="new_column")
    return StatementContext(
        statement,
        captured=lambda *_: True,
        known=lambda *_: replace(known, policy=policy),
        before=lambda *_: table,
    )


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ("DROP a, MODIFY a BIGINT", "`a` is changed twice"),
        ("RENAME COLUMN a TO x, RENAME COLUMN a TO y", "`a` is changed twice"),
        ("RENAME COLUMN a TO x, MODIFY a BIGINT", "`a` is changed twice"),
        ("MODIFY a BIGINT, RENAME COLUMN a TO x", "`a` is changed twice"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a, RENAME COLUMN id TO b", "another one"),
        ("ADD x INT, ADD X INT", "another one"),
        ("RENAME COLUMN a TO b", "another one"),
    ],
)
def test_k22_an_alter_that_contradicts_itself_stops_its_table(actions: str, why: str) -> None:
    """No server logs one; renames that take one another's names were tried for ever."""
    statement = parse_statement(f"ALTER TABLE t {actions}", "d", is_mariadb=True, modes=MODES)
    plain = parse_statement("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "d").created
    assert plain is not None
    table = created(("d", "t"), plain, database_charset="", is_mariadb=True)
    known = KnownTable(RecordedSource(columns=target_columns(table.schema), key=("id",)))
    with pytest.raises(SchemaError, match=why):
        decide(_context(statement, known, table))
    with pytest.raises(Uncertain):
        altered(table, statement)
    other = replace(statement, actions=())
    assert not decide(_context(other, known, table)).changes


@pytest.mark.parametrize(
    ("actions", "columns"),
    [
        ("ADD COLUMN IF NOT EXISTS a BIGINT, DROP COLUMN a", ["id"]),
        ("DROP COLUMN a, ADD COLUMN IF NOT EXISTS a BIGINT", ["id"]),
        ("DROP COLUMN a, ADD COLUMN a BIGINT", ["id", "a"]),
        ("ADD COLUMN IF NOT EXISTS a BIGINT, CHANGE a z INT", ["id", "z"]),
        ("ADD COLUMN IF NOT EXISTS a BIGINT, RENAME COLUMN a TO z", ["id", "z"]),
    ],
)
def test_k13_if_not_exists_asks_for_the_columns_before_the_statement(
    actions: str, columns: list[str]
) -> None:
    """As MariaDB 10.11 does."""
    statement = parse_statement(f"ALTER TABLE t {actions}", "d", is_mariadb=True, modes=MODES)
    plain = parse_statement("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "d").created
    assert plain is not None
    table = created(("d", "t"), plain, database_charset="", is_mariadb=True)
    assert altered(table, statement).schema.column_names == tuple(columns)
