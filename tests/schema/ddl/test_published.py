"""K26: what leaves the decoder of a statement's text."""

from __future__ import annotations

import random

import pytest

from cdc_pipeline.errors import CdcError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.published import needed_later, published
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import KnownTable, Shadow, StatementContext
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import TargetColumn

CANARY = "Canary77b1"
MODES = SqlModes(ansi_quotes=False)

TEXTS = {
    f"UPDATE users SET email='{CANARY}@x.org' WHERE id=1": "UPDATE shop.users ({n} bytes)",
    f"INSERT INTO users VALUES (1, '{CANARY}')": "INSERT shop.users ({n} bytes)",
    f"CREATE TABLE t (id INT) ENGINE=FEDERATED CONNECTION='mysql://u:{CANARY}@h/d/t'": (
        "CREATE TABLE t (id INT) ENGINE=FEDERATED CONNECTION=?"
    ),
    f"ALTER TABLE users ADD COLUMN a VARCHAR(100) DEFAULT '{CANARY}' COMMENT \"{CANARY}\"": (
        "ALTER TABLE users ADD COLUMN a VARCHAR(100) DEFAULT ? COMMENT ?"
    ),
    "ALTER TABLE t ADD b DECIMAL(10, 2) DEFAULT 7701.5, ADD c ENUM('a','b'), AUTO_INCREMENT=7702": (
        "ALTER TABLE t ADD b DECIMAL(10, 2) DEFAULT ?, ADD c ENUM(?,?), AUTO_INCREMENT=?"
    ),
    (
        f"ALTER TABLE t PARTITION BY LIST COLUMNS (c) (PARTITION p VALUES IN ('{CANARY}', "
        f"0x{CANARY.encode().hex()}))"
    ): ("ALTER TABLE t PARTITION BY LIST COLUMNS (c) (PARTITION p VALUES IN (?, ?))"),
    f"CREATE USER u IDENTIFIED BY '{CANARY}'": "CREATE USER ({n} bytes)",
    f"SET PASSWORD FOR u = '{CANARY}'": "SET ({n} bytes)",
    f"GRANT ALL ON *.* TO u IDENTIFIED BY '{CANARY}'": "GRANT ({n} bytes)",
    (
        f"CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (PASSWORD '{CANARY}')"
    ): "CREATE SERVER ({n} bytes)",
    f"DROP TABLE t /* {CANARY} */": "DROP TABLE t",
    f"ALTER TABLE t COMMENT '{CANARY}": "ALTER TABLE shop.t ({n} bytes)",
    f"CREATE '{CANARY}'": "CREATE ({n} bytes)",
    f'ALTER "{CANARY}"': "ALTER ({n} bytes)",
    f"'{CANARY}'": "a statement ({n} bytes)",
}


@pytest.mark.parametrize("sql", TEXTS)
def test_k26_no_literal_is_in_what_is_published(sql: str) -> None:
    """F13: statement texts with passwords and row values reached errors, cuts and Dagster."""
    shown = published(parse_statement(sql, "shop", modes=MODES))
    assert CANARY not in shown
    assert shown == TEXTS[sql].replace("{n}", str(len(sql)))


def _known(*_: str) -> KnownTable:
    column = TargetColumn(name="id", delta_type="int")
    return KnownTable(RecordedSource(columns=(column,), key=("id",)))


@pytest.mark.parametrize(
    "sql", [*TEXTS, f"ALTER TABLE users ADD x BIT(3) DEFAULT '{CANARY}'", f"FOO '{CANARY}'"]
)
def test_k26_no_literal_is_in_a_decision_or_an_error(sql: str) -> None:
    """F13: neither in the cut's decision, nor in an error."""
    try:
        decision = decide(
            StatementContext(
                parse_statement(sql, "shop", modes=MODES),
                captured=lambda *_: True,
                known=_known,
                journal="b.1",
                offset=4,
            )
        )
    except CdcError as error:
        told = str(error) + repr(error.as_dict())
    else:
        told = decision.ddl.model_dump_json()
    assert CANARY not in told
    assert CANARY.encode().hex() not in told


def test_k26_a_decision_keeps_the_meaning_of_a_ddl() -> None:
    sql = f"ALTER TABLE t ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT '{CANARY}'"
    decision = decide(
        StatementContext(
            parse_statement(sql, "shop", modes=MODES), captured=lambda *_: True, known=_known
        )
    )
    assert decision.ddl.sql == "ALTER TABLE t ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT ?"
    assert CANARY in repr(decision.changes), "the default is data: old rows get it"


def _shadow_sql(sql: str, *masked: str) -> str:
    decision = decide(
        StatementContext(
            parse_statement(sql, "shop", modes=MODES),
            captured=lambda _database, table: table == "t",
            known=_known,
            shadow=lambda *_: Shadow(of="shop.t"),
            shadowed=lambda name: "t" if name == "_t_gho" else "",
            masked=lambda *_: masked,
        )
    )
    (change,) = decision.shadows
    assert change.shadow is not None
    return change.shadow.statements[0].sql


def test_k26_a_shadow_keeps_only_the_literals_that_it_needs() -> None:
    """F13: the whole text of what a schema change tool ran stood in the cursor."""
    account = f"mysql://u:{CANARY}@db/shop/t"
    sql = (
        "ALTER TABLE _t_gho ADD a VARCHAR(9) CHARACTER SET 'latin1' DEFAULT _utf8mb4'x' COMMENT "
        "'of a', ADD b ENUM('p','q') DEFAULT 'q', ADD email INT DEFAULT -7, ENGINE='InnoDB', "
        f"CONNECTION='{CANARY}', COMMENT='{account}'"
    )
    assert _shadow_sql(sql) == sql.replace(account, "").replace(CANARY, "")
    masked = _shadow_sql(sql.replace("'x'", f"'{CANARY}'"), "Email")
    assert CANARY not in masked
    assert "-7" not in masked
    kept = [
        action.kind for action in parse_statement(_shadow_sql(sql), "shop", modes=MODES).actions
    ]
    assert kept == [action.kind for action in parse_statement(sql, "shop", modes=MODES).actions]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE _t_gho ENGINE = SPIDER, COMMENT = '{}'",
        "ALTER TABLE _t_gho COMMENT '{}', ENGINE 'Federated'",
        "ALTER TABLE _t_gho ADD CHECK (comment = '{}')",
        "ALTER TABLE _t_gho ADD b INT AS (IF(comment = '{}', 1, 0))",
        "ALTER TABLE _t_gho ADD CHECK (engine = '{}')",
        "ALTER TABLE _t_gho ADD b INT AS (IF(charset = '{}', 1, 0))",
    ],
)
def test_k26_a_shadow_keeps_no_comment_of_a_remote_engine_and_no_value_of_a_condition(
    sql: str,
) -> None:
    assert _shadow_sql(sql.replace("{}", CANARY)) == sql.replace("{}", "")
    kept = "ALTER TABLE _t_gho ADD (c INT COMMENT 'of c'), COMMENT = 'of t', ENGINE = InnoDB"
    assert _shadow_sql(kept) == kept


def test_k26_broken_and_random_texts_give_nothing_away() -> None:
    """Whatever stands in quotes stays out, wherever a text is cut or put together."""
    rng = random.Random(26)
    pieces = [
        "ALTER TABLE t ",
        "ADD a INT ",
        "DEFAULT ",
        "'{}'",
        '"{}"',
        "'it''s {}'",
        "'\\'{}'",
        "_utf8'{}'",
        ", ",
    ]
    pieces += [
        "(",
        ")",
        "/*!50100 ",
        "*/ ",
        "/* {} */",
        "-- {}\n",
        "COMMENT ",
        "=",
        "`n` ",
        "x'41'",
        "N'{}'",
    ]
    for _ in range(3000):
        sql = "ALTER TABLE t " + "".join(rng.choices(pieces, k=rng.randint(1, 12))).replace(
            "{}", CANARY
        )
        assert CANARY not in published(parse_statement(sql, "shop", modes=MODES)), sql
        cut = sql[: rng.randint(0, len(sql))]
        shown = published(parse_statement(cut, "shop", modes=MODES))
        assert not any(CANARY[:size] in shown for size in range(4, len(CANARY) + 1)), cut


def test_needed_later_of_a_text_that_breaks_off_is_what_is_published() -> None:
    text = needed_later(
        parse_statement(f"ALTER TABLE t COMMENT '{CANARY}", "", modes=MODES, is_mariadb=False), ()
    )
    assert CANARY not in text
