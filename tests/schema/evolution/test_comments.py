"""Comments of tables and columns, from the statement to what a target is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.schema.catalog import catalog
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.evolution.changes import Decision, KnownTable, StatementContext, decide
from cdc_pipeline.schema.evolution.statement_context import Shadow
from cdc_pipeline.schema.evolution.steps import Describe
from cdc_pipeline.schema.target_spec import RecordedShape, TargetSpec, described
from tests.schema.evolution.test_policies import state_of
from tests.support.comments import TEXTS

TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, a INT COMMENT 'A', b INT, c INT COMMENT 'C') COMMENT='T'"
)
MODES = SqlModes(ansi_quotes=False)
STATE = state_of(TABLE)


def decided(sql: str, known: KnownTable | None = None, **more: object) -> Decision:
    return decide(
        StatementContext(
            parse_statement(sql, "d", modes=MODES),
            captured=lambda _database, table: table == "t",
            known=lambda _database, table: known if table == "t" else None,
            before=lambda *_: STATE,
            **more,  # type: ignore[arg-type]
        )
    )


def known_of(sql: str = TABLE) -> KnownTable:
    (created,) = decided(sql).creates
    return KnownTable(created.source, name="d.t")


def told(known: KnownTable, sql: str, **more: object) -> tuple[dict[str, str], dict[str, str]]:
    """What the last step says, and what is recorded afterwards."""
    changes = decided(sql, known, **more).changes
    if not changes:
        return {}, dict(known.source.comments)
    last = changes[0].steps[-1] if changes[0].steps else None
    said = dict(last.comments) if isinstance(last, Describe) else {}
    return said, dict(changes[0].known.source.comments)


@pytest.mark.parametrize(
    ("sql", "said", "recorded"),
    [
        ("COMMENT 'new'", {"": "new"}, {"": "new", "a": "A", "c": "C"}),
        ("COMMENT = ''", {"": ""}, {"a": "A", "c": "C"}),
        ("MODIFY a INT COMMENT 'z'", {"a": "z"}, {"": "T", "a": "z", "c": "C"}),
        ("MODIFY a INT", {"a": ""}, {"": "T", "c": "C"}),
        ("MODIFY a INT COMMENT 'A'", {}, {"": "T", "a": "A", "c": "C"}),
        ("MODIFY b INT", {}, {"": "T", "a": "A", "c": "C"}),
        ("CHANGE a q INT COMMENT 'z'", {"q": "z"}, {"": "T", "q": "z", "c": "C"}),
        ("CHANGE a q INT", {"q": ""}, {"": "T", "c": "C"}),
        ("RENAME COLUMN a TO q", {"q": "A"}, {"": "T", "q": "A", "c": "C"}),
        ("RENAME COLUMN a TO c, RENAME COLUMN c TO a", {"a": "C", "c": "A"}, {"a": "C", "c": "A"}),
        ("ADD q INT COMMENT 'z'", {"q": "z"}, {"q": "z"}),
        ("DROP COLUMN a", {}, {"": "T", "c": "C"}),
        ("DROP COLUMN a, ADD a INT", {"a": ""}, {"": "T", "c": "C"}),
        ("MODIFY a VARCHAR(9) COMMENT 'A'", {"a": "A"}, {"a": "A"}),
        ("ENGINE=InnoDB", {}, {"": "T"}),
    ],
)
def test_an_alter_tells_the_comments_that_it_changes(
    sql: str, said: dict[str, str], recorded: dict[str, str]
) -> None:
    policy = SchemaChangePolicy(incompatible="rewrite", drop_column="apply")
    step, after = told(replace(known_of(), policy=policy), f"ALTER TABLE t {sql}")
    assert {name: text for name, text in step.items() if text or name in said} == said
    assert recorded.items() <= after.items()
    assert all(after.values())


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_read_as_the_server_reads_it(text: str) -> None:
    literal = "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"
    known = known_of(f"CREATE TABLE t (id INT PRIMARY KEY COMMENT {literal}) COMMENT {literal}")
    kept = text.replace("\U0001f600", "?")
    assert dict(known.source.comments) == {"": kept, "id": kept}
    assert told(known_of(), f"ALTER TABLE t MODIFY a INT COMMENT {literal}")[0] == {"a": kept}


def test_a_table_that_is_made_like_another_has_its_comments() -> None:
    (created,) = decide(
        StatementContext(
            parse_statement("CREATE TABLE t2 LIKE t", "d"),
            captured=lambda *_: True,
            known=lambda _database, table: known_of() if table == "t" else None,
            before=lambda *_: STATE,
        )
    ).creates
    assert created.source.comments == known_of().source.comments


def test_columns_that_the_rule_leaves_out_and_dropped_ones_tell_nothing() -> None:
    known = known_of()
    shape = RecordedShape(exclude=("a",), masks={"c": "drop"})
    spec = TargetSpec(sources={"d.t": known.source}, shape=shape)
    assert spec.comments == {"": "T"}
    assert told(replace(known, shape=shape), "ALTER TABLE t MODIFY a INT COMMENT 'z'")[0] == {}
    assert TargetSpec(columns=known.source.columns).comments == {}


def test_tables_of_one_target_must_agree() -> None:
    one, other = known_of().source, known_of(TABLE.replace("'C'", "'other'")).source
    assert described((one, other), None) == {"": "T", "id": "", "a": "A", "b": "", "c": ""}
    assert described((other, one), None) == described((one, other), None)
    shared = KnownTable(one, name="d.t", others=(other,))
    assert told(shared, "ALTER TABLE t MODIFY c INT COMMENT 'other'")[0] == {"c": "other"}
    assert told(shared, "ALTER TABLE t MODIFY a INT COMMENT 'z'")[0] == {"a": ""}


def test_what_a_shadow_was_told_is_taken_with_it() -> None:
    known = known_of()
    names = {"shadowed": lambda name: "t" if name == "_t_gho" else ""}
    alter = f"ALTER TABLE _t_gho MODIFY a BIGINT COMMENT 'z', MODIFY c INT, COMMENT='{SPIDER}'"
    shadow = decided(alter, known, shadow=lambda *_: Shadow(of="d.t"), **names).shadows[0].shadow
    assert shadow is not None
    assert "geheim" not in shadow.model_dump_json()
    step, after = told(
        known,
        "RENAME TABLE t TO _t_del, _t_gho TO t",
        shadow=lambda _database, name: shadow if name == "_t_gho" else None,
        **names,
    )
    assert step == {"": "", "a": "z", "c": ""}
    assert after == {"a": "z"}


def test_an_owners_comment_goes_with_a_column_that_is_renamed() -> None:
    """The source gives it none."""
    step, after = told(known_of(), "ALTER TABLE t RENAME COLUMN b TO q")
    assert step == {}
    assert after == {"": "T", "a": "A", "c": "C"}


SPIDER = 'wrapper "mysql", host "10.0.0.1", port 3306, user "u", password "geheim"'
REMOTE = (
    (SPIDER, "SPIDER"),
    (SPIDER, ""),
    (" pwd 'geheim'", ""),
    ("mysql://u:geheim@db/shop/t", ""),
    ("of the shop, geheim", "federated"),
)
PLAIN = (
    "of the shop",
    'the "orders" of 2024',
    "see https://wiki/a@b",
    "a, b 'c'",
    "v 2, x",
    "passwords",
)


@pytest.mark.parametrize(("text", "engine"), [*REMOTE, *((text, "InnoDB") for text in PLAIN)])
def test_k26_what_leads_to_another_server_is_no_comment(text: str, engine: str) -> None:
    """It may hold a password."""
    literal = "'" + text.replace("'", "''") + "'"
    expected = text if text in PLAIN else ""
    options = f"ENGINE={engine}" if engine else ""
    create = f"CREATE TABLE t (id INT PRIMARY KEY) COMMENT={literal} {options}"
    assert dict(known_of(create).source.comments).get("", "") == expected
    alter = f"ALTER TABLE t COMMENT={literal}{engine and ', '}{options}"
    assert told(known_of(), alter)[1].get("", "") == expected
    row = {"table_schema": "d", "table_name": "t"}
    column = {
        "column_name": "id", "column_type": "int", "data_type": "int", "extra": "",
        "is_nullable": "NO", "expression": "", "column_comment": "", "character_set_name": None,
    }  # fmt: skip
    facts = {"engine": engine or None, "table_type": "BASE TABLE", "collation": "utf8mb4_bin"}
    found = catalog(
        columns=[row | column],
        keys=[],
        tables=[row | facts | {"table_comment": text}],
        databases={},
        is_mariadb=True,
    )
    assert dict(found.comments["d", "t"]).get("", "") == expected
