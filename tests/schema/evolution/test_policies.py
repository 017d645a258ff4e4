"""Each kind of schema change under each policy, from texts alone (K13): steps, what is recorded, or
why it stops."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import ContentUnknownError, UnsupportedDdlError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import (
    Decision,
    KnownTable,
    RowPosition,
    Shadow,
    StatementContext,
    TableChange,
)
from cdc_pipeline.schema.evolution.steps import (
    ALL_FEATURES,
    ROW_STEPS,
    ROW_STEPS_MAX,
    FillColumns,
    columns_after,
)
from cdc_pipeline.schema.source_table import SourceTable, created
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import TargetColumn, target_columns

TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(10), e ENUM('x','y'), tm TIME, dt "
    "DATETIME(3), dc DECIMAL(10,2), f FLOAT, u INT UNSIGNED, by4 BINARY(4), l1 VARCHAR(9) "
    "CHARACTER SET latin1)"
)


def state_of(sql: str) -> SourceTable:
    by = parse_statement(sql, "").created
    assert by is not None
    return replace(
        created(("d", "t"), by, database_charset="utf8mb4", is_mariadb=False), database_charset=""
    )


STATE = state_of(TABLE)
KNOWN = KnownTable(
    RecordedSource(columns=target_columns(STATE.schema), key=STATE.schema.key_names), name="d.t"
)


def said(
    sql: str,
    *,
    known: KnownTable | None = KNOWN,
    state: SourceTable = STATE,
    features: Any = ALL_FEATURES,
    strict: bool = True,
    shadows: dict[str, Shadow] | None = None,
    catalog: TableSchema | None = None,
    default_database: str = "d",
    offset: int = 1234,
    is_mariadb: bool = True,
    **policy: Any,
) -> Decision:
    """`t` and `v` are captured; only `t` has a target."""
    known = known and replace(known, policy=SchemaChangePolicy(**policy))
    return decide(
        StatementContext(
            parse_statement(
                sql,
                default_database,
                is_mariadb=is_mariadb,
                modes=SqlModes(strict=strict, trims_char=True),
            ),
            captured=lambda database, table: database == "d" and table in ("t", "v"),
            known=lambda database, table: known if (database, table) == ("d", "t") else None,
            targets_in=lambda database: ["t"] if database == "d" and known is not None else [],
            journal="binlog.000007",
            offset=offset,
            before=lambda database, table: state if (database, table) == ("d", "t") else None,
            catalog_after=lambda _database, _table: catalog,
            shadow=lambda database, table: (shadows or {}).get(f"{database}.{table}"),
            features=features,
            place=RowPosition(77, 5, "g:1"),
            reachable=lambda: [("d", "t")],
        )
    )


def changed(sql: str, **rest: Any) -> TableChange:
    (change,) = said(sql, **rest).changes
    return change


def shown(change: TableChange) -> list[str]:
    lines = []
    for step in change.steps:
        hidden = {"kind", "defaults", "seq"} if step.kind == "fill_columns" else {"kind"}
        plain = step.model_dump(exclude=hidden)
        lines.append(" ".join([step.kind.split("_")[0], *(str(value) for value in plain.values())]))
    return lines


# sql | policy | steps, "" for none; or "stop: part of the reason"
CASES: list[tuple[str, dict[str, Any], list[str] | str]] = [
    ("DROP COLUMN a", {}, []),
    ("DROP COLUMN a", {"drop_column": "apply"}, ["drop a"]),
    ("DROP COLUMN a", {"drop_column": "stop"}, "stop: is dropped"),
    ("DROP COLUMN a", {"drop_column": "apply", "features": ()}, []),
    ("DROP COLUMN a, ADD a INT", {"drop_column": "apply"}, ["fill (('a', 'int', 'NULL'),)"]),
    ("DROP COLUMN a, ADD a INT", {}, ["rename a a__dropped", "add a int"]),
    ("DROP COLUMN a, ADD a INT", {"features": ()}, ["fill (('a', 'int', 'NULL'),)"]),
    ("DROP COLUMN a, ADD a DATE", {"features": ()}, ["add a__v2 date"]),
    ("RENAME COLUMN a TO z", {}, ["rename a z"]),
    ("RENAME COLUMN a TO z", {"features": ()}, ["add z int", "fill (('z', 'int', '`a`'),)"]),
    ("CHANGE a z BIGINT", {"features": ()}, ["add z bigint", "fill (('z', 'bigint', '`a`'),)"]),
    ("CHANGE dc z DECIMAL(9,1)", {"features": (), "incompatible": "rewrite"},
        ["add z decimal(10,2)", "fill (('z', 'decimal(10,2)', 'round(`dc`, 1)'),)"]),
    ("CHANGE a z DATE", {"features": (), "incompatible": "new_column"},
        ["add z int", "add z__v2 date", "fill (('z', 'int', '`a`'),)"]),
    ("RENAME COLUMN a TO z", {"policy": "careful"}, "stop: renamed"),
    ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", {},
        ["rename a a__renaming", "rename b a", "rename a__renaming b"]),
    ("CHANGE a A INT", {}, ["rename a a__renaming", "rename a__renaming A"]),
    ("DROP COLUMN b, RENAME COLUMN a TO b", {}, ["rename b b__dropped", "rename a b"]),
    ("MODIFY a BIGINT NOT NULL AFTER b", {}, ["widen a bigint"]),
    ("MODIFY a BIGINT", {"policy": "careful"}, ["widen a bigint"]),
    ("MODIFY a BIGINT", {"policy": "stop"}, "stop: becomes BIGINT"),
    ("MODIFY u INT", {"policy": "stop"}, "stop: becomes INT"),
    ("ADD q INT DEFAULT 5", {"policy": "careful"},
        ["add q int", "fill (('q', 'int', \"CAST('5' AS int)\"),)"]),
    ("ADD q INT", {"policy": "stop"}, "stop: is added"),
    ("ADD INDEX (a), COMMENT 'x'", {"policy": "stop"}, ["describe (('', 'x'),)"]),
    ("DROP COLUMN a", {"policy": "careful"}, "stop: is dropped"),
    ("DROP COLUMN a", {"policy": "stop", "drop_column": "keep"}, []),
    ("DROP COLUMN a, ADD q INT", {"policy": "careful", "drop_column": "apply"},
        ["drop a", "add q int"]),
    ("MODIFY a BIGINT", {"features": ()}, "stop: without columnMapping"),
    (
        "MODIFY a BIGINT",
        {"features": ("columnMapping",)},
        ["add a__converted bigint", "fill (('a__converted', 'bigint', 'CAST(`a` AS bigint)'),)",
            "drop a",
         "rename a__converted a"],
    ),
    ("MODIFY u BIGINT UNSIGNED", {}, ["widen u decimal(20,0)"]),
    ("MODIFY u INT", {}, []),
    ("MODIFY u INT", {"strict": False},
        ["check CAST(`u` AS decimal(20,0)) BETWEEN -2147483648 AND 2147483647 "
                                         "`u`: values were cut to the new range"]),
    ("MODIFY f DOUBLE", {}, ["widen f double"]),
    ("MODIFY f DOUBLE(9,2)", {}, "stop: rounds"),
    ("MODIFY dc DECIMAL(12,4)", {}, ["widen dc decimal(12,4)"]),
    ("MODIFY dc DECIMAL(10,1)", {}, "stop: rewrites values"),
    ("MODIFY dc DECIMAL(10,1)", {"incompatible": "rewrite"},
     ["add dc__converted decimal(10,1)",
         "fill (('dc__converted', 'decimal(10,1)', 'round(`dc`, 1)'),)", "drop dc",
      "rename dc__converted dc"]),
    ("MODIFY e ENUM('x','y','z')", {}, []),
    ("MODIFY e ENUM('y','x')", {}, []),
    ("MODIFY e ENUM('x')", {},
        ["check `e` NOT IN ('y') `e`: values with a removed label became others"]),
    ("MODIFY e VARCHAR(9)", {}, []),
    ("MODIFY dt DATETIME(6)", {}, []),
    ("MODIFY dt DATETIME", {},
        ["check date_part('SECOND', `dt`) = round(date_part('SECOND', `dt`), 0) "
                                "`dt`: fractions were rounded"]),
    ("MODIFY tm TIME(2)", {}, "stop: rewrites values"),
    ("MODIFY tm TIME(2)", {"incompatible": "rewrite"},
        ["fill (('tm', 'string', \"concat(`tm`, '.00')\"),)"]),
    ("MODIFY by4 BINARY(6)", {"incompatible": "rewrite"},
        ["fill (('by4', 'binary', \"rpad(`by4`, 6, X'00')\"),)"]),
    ("MODIFY b VARCHAR(90)", {}, []),
    ("MODIFY b VARCHAR(3)", {"strict": False},
        ["check char_length(`b`) <= 3 `b`: texts were cut to the new length"]),
    ("MODIFY b CHAR(20)", {}, ["check `b` NOT LIKE '% ' `b`: trailing blanks were dropped"]),
    ("MODIFY b VARCHAR(90) CHARACTER SET latin1", {"strict": False}, "stop: may lose characters"),
    ("MODIFY b DATE", {}, "stop: converts every value"),
    ("MODIFY b DATE", {"incompatible": "rewrite"}, "stop: converts every value"),
    ("MODIFY b DATE", {"incompatible": "new_column"}, ["add b__v2 date"]),
    ("MODIFY id DATE", {"incompatible": "new_column"}, "stop: in the key"),
    ("MODIFY a VARCHAR(20)", {"incompatible": "rewrite"},
     ["add a__converted string", "fill (('a__converted', 'string', 'CAST(`a` AS string)'),)",
         "drop a",
      "rename a__converted a"]),
    ("MODIFY id BIGINT AUTO_INCREMENT", {},
     ["check `id` <> 0 `id`: AUTO_INCREMENT may have numbered rows with 0", "widen id bigint"]),
    ("MODIFY a INT NOT NULL", {"strict": False},
        ["check `a` IS NOT NULL `a`: NULLs were replaced by another value"]),
    ("MODIFY a INT AS (id + 1)", {}, "stop: generated"),
    ("MODIFY a INT DEFAULT 7 COMMENT 'x' FIRST", {}, ["describe (('a', 'x'),)"]),
    ("CONVERT TO CHARACTER SET utf8mb4", {"strict": False}, []),
    ("CONVERT TO CHARACTER SET latin1", {"strict": False}, "stop: may lose characters of b"),
    ("CONVERT TO CHARACTER SET utf8mb4", {"policy": "stop"}, []),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id)", {}, []),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id)", {"policy": "careful"}, []),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id)", {"policy": "stop"}, "stop: another primary key"),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", {}, "stop: another primary key"),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", {"change_key": "apply"}, []),
    ("DROP PRIMARY KEY, ADD n INT AUTO_INCREMENT PRIMARY KEY", {"change_key": "apply"},
        "stop: another primary key"),
    ("DROP PRIMARY KEY", {"change_key": "apply"}, "stop: is dropped"),
    ("DROP COLUMN id", {}, "stop: primary key"),
    ("DROP PARTITION p", {}, "stop: without row events"),
    ("DROP PARTITION p", {"truncate": "keep"}, []),
    ("EXCHANGE PARTITION p WITH TABLE x", {"truncate": "keep"}, "stop: without row events"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "options", "expected"), CASES)
def test_k13_every_kind_under_every_policy(
    action: str, options: dict[str, Any], expected: list[str] | str
) -> None:
    sql = f"ALTER TABLE t {action}"
    if isinstance(expected, str):
        with pytest.raises(UnsupportedDdlError, match=expected.removeprefix("stop: ")) as caught:
            said(sql, **options)
        assert caught.value.next_step
        assert (caught.value.table, caught.value.offset) == ("d.t", 1234)
        return
    decision = said(sql, **options)
    assert decision.ddl.reason
    assert decision.ddl.decision == ("applied" if expected else "recorded")
    for change in decision.changes:
        assert shown(change) == expected
        check_target(change)
    assert bool(decision.changes) or not expected


def check_target(change: TableChange) -> None:
    states = [KNOWN.target_columns]
    for step in change.steps:
        after = columns_after(states[-1], step)
        if after != states[-1]:
            assert after not in states
            states.append(after)
    assert change.known.target_columns == states[-1]
    held = {column.name for column in states[-1]}
    assert {change.known.target_name(column.name) for column in change.known.source.columns} <= held


def test_k13_kept_columns_are_recorded_and_known() -> None:
    change = changed("ALTER TABLE t DROP COLUMN a")
    assert "a" not in {column.name for column in change.known.source.columns}
    assert TargetColumn(name="a", delta_type="int") in change.known.target_columns
    again = changed("ALTER TABLE t ADD a DATE", known=change.known, features=())
    assert again.known.target_name("a") == "a__v2"
    once_more = changed(
        "ALTER TABLE t MODIFY a DATETIME", known=again.known, incompatible="new_column", features=()
    )
    assert once_more.known.target_name("a") == "a__v3"


@pytest.mark.parametrize(
    ("sql", "options", "steps", "gone", "inexact"),
    [
        ("TRUNCATE t", {}, ["remove truncate 77 5 g:1"], False, False),
        ("TRUNCATE t", {"truncate": "keep"}, [], False, True),
        ("DROP TABLE x, t", {}, [], True, False),
        ("DROP TABLE t", {"drop_table": "apply"}, ["remove drop_table 77 5 g:1"], True, False),
        ("DROP DATABASE d", {}, [], True, False),
        ("DROP DATABASE d", {"drop_table": "apply"}, ["remove drop_table 77 5 g:1"], True, False),
        ("RENAME TABLE t TO zz", {"rename_table": "keep"}, [], True, False),
    ],
)
def test_k13_rows_that_leave_without_row_events(
    sql: str, options: dict[str, Any], steps: list[str], gone: bool, inexact: bool
) -> None:
    change = changed(sql, **options)
    assert (shown(change), change.known.source.gone, change.inexact) == (steps, gone, inexact)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [("TRUNCATE t", "truncate"), ("DROP TABLE t", "drop_table"), ("DROP DATABASE d", "drop_table"),
     ("RENAME TABLE t TO zz", "rename_table"), ("ALTER TABLE t RENAME zz", "rename_table")],
)  # fmt: skip
def test_a_switch_that_stops_is_named(sql: str, kind: str) -> None:
    for policy in ({kind: "stop"}, {"policy": "careful"}, {"policy": "stop"}):
        with pytest.raises(UnsupportedDdlError) as caught:
            said(sql, **policy)
        assert f"schema_changes.{kind}" in str(caught.value.next_step)


def test_a_dropped_table_begins_anew() -> None:
    gone = changed("DROP TABLE t").known
    made = changed("CREATE TABLE t (k BIGINT PRIMARY KEY)", known=gone)
    assert made.replaces
    assert made.known.source.columns == (TargetColumn(name="k", delta_type="bigint"),)
    assert not made.known.source.gone
    emptied = changed("CREATE TABLE t LIKE x", known=gone)
    assert (shown(emptied), emptied.known.source.gone) == (["remove drop_table 77 5 g:1"], True)
    (like,) = said("CREATE TABLE v LIKE t").creates
    assert (like.source.columns, like.source.key) == (KNOWN.source.columns, KNOWN.source.key)
    assert changed("CREATE OR REPLACE TABLE t (k INT PRIMARY KEY)").replaces
    with pytest.raises(UnsupportedDdlError):
        said("CREATE TABLE t (k INT PRIMARY KEY)")


def test_a_target_follows_its_table_where_the_policy_says_so() -> None:
    change = changed("RENAME TABLE t TO x1, x1 TO zz", rename_table="follow")
    assert (change.table, change.new_name, change.is_carried) == (("d", "t"), ("d", "zz"), False)
    change = changed("ALTER TABLE t ADD q INT, RENAME TO v", rename_table="follow")
    assert (shown(change), change.new_name) == (["add q int"], ("d", "v"))


def test_k28_rows_go_with_the_name_and_the_change_goes_with_the_rows() -> None:
    carried, left = said("ALTER TABLE t ADD q INT, RENAME TO v").changes
    assert (shown(carried), carried.new_name, carried.is_carried) == (
        ["add q int"],
        ("d", "v"),
        True,
    )
    assert (shown(left), left.known.source.gone, left.is_carried) == ([], True, False)
    _, removed = said("RENAME TABLE t TO v", drop_table="apply").changes
    assert (shown(removed), removed.known.source.gone) == (["remove drop_table 77 5 g:1"], True)
    (only,) = said("RENAME TABLE t TO zz", drop_table="stop").changes
    assert (shown(only), only.known.source.gone) == ([], True)
    (uncertain,) = said("ALTER TABLE t ADD q DATETIME NOT NULL DEFAULT NOW(), RENAME TO v").changes
    assert (shown(uncertain), uncertain.known.source.gone) == ([], True)


def shadow_after(*statements: str, name: str = "d._t_gho") -> dict[str, Shadow]:
    kept: dict[str, Shadow] = {}
    for at, sql in enumerate(statements):
        for change in said(sql, shadows=kept, offset=at).shadows:
            kept.pop(".".join(change.name), None)
            if change.shadow is not None:
                kept[".".join(change.name)] = change.shadow
    return kept


SWAP = "RENAME TABLE t TO _t_del, _t_gho TO t"
# What INSERT IGNORE and ALTER IGNORE drop rows for.
DROPPING = [
    ("MODIFY a INT UNIQUE", "the unique index"),
    ("ADD q INT NOT NULL DEFAULT 0 UNIQUE", "the unique index"),
    ("ADD q SERIAL", "the unique index"),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", "the primary key"),
    ("DROP PRIMARY KEY, MODIFY a INT PRIMARY KEY", "the primary key"),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id(3))", "the primary key"),
    ("ADD CHECK (a > 0)", "the constraint"),
    ("ADD FOREIGN KEY (a) REFERENCES x (id)", "the constraint"),
    ("MODIFY a INT CHECK (a > 0)", "the constraint"),
    ("MODIFY l1 JSON", "the constraint"),
    ("PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (2))", "in no partition"),
    ("PARTITION BY LIST (id) (PARTITION p VALUES IN (2))", "in no partition"),
]


def test_pitfall_8_a_swap_brings_what_was_made_of_the_shadow() -> None:
    kept = shadow_after(
        "CREATE TABLE _t_gho LIKE t",
        "ALTER TABLE _t_gho ADD q INT DEFAULT 5, MODIFY a BIGINT",
        "ALTER TABLE _t_gho MODIFY a DECIMAL(30,0)",
    )
    decision = said(SWAP, shadows=kept)
    (change,) = decision.changes
    assert shown(change) == ["widen a bigint", "add q int",
        "fill (('q', 'int', \"CAST('5' AS int)\"),)",
                             "widen a decimal(30,0)"]  # fmt: skip
    assert [step.defaults for step in change.steps if isinstance(step, FillColumns)] == [("q",)]
    assert change.new_name == ("d", "t")
    assert [(part.name, part.shadow) for part in decision.shadows] == [(("d", "_t_gho"), None)]
    fills = [f"ALTER TABLE _t_gho ADD q{i} INT NOT NULL DEFAULT {i}" for i in range(16)]
    (most,) = said(SWAP, shadows=shadow_after("CREATE TABLE _t_gho LIKE t", *fills[1:])).changes
    assert sum(isinstance(step, ROW_STEPS) for step in most.steps) == ROW_STEPS_MAX
    with pytest.raises(UnsupportedDdlError, match="more than 15 changes to a shadow table"):
        said(SWAP, shadows=shadow_after("CREATE TABLE _t_gho LIKE t", *fills))
    # Statements that are read again are kept once.
    (repeated,) = said("ALTER TABLE _t_gho MODIFY a DECIMAL(30,0)", shadows=kept, offset=2).shadows
    assert repeated.shadow == kept["d._t_gho"]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ((), "was not seen"),
        (("CREATE TABLE _t_gho LIKE v",), "like another table"),
        (("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD UNIQUE (a)"), "drops rows"),
        *(
            (("CREATE TABLE _t_gho LIKE t", f"ALTER TABLE _t_gho {actions}"), f"drops rows .*{why}")
            for actions, why in DROPPING
        ),
        (("CREATE TABLE _t_gho LIKE t", "CREATE UNIQUE INDEX i ON _t_gho (a)"), "unique index"),
        (
            ("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho RENAME COLUMN a TO z"),
            "renamed columns",
        ),
        (
            ("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD q DATETIME DEFAULT NOW()"),
            "time of the ALTER",
        ),
        (("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho GIZMO"), "cannot be read"),
        (("CREATE TABLE _t_gho LIKE t", "DROP TABLE _t_gho"), "was not seen"),
    ],
)
def test_pitfall_8_what_a_copy_may_lose_stops(statements: tuple[str, ...], why: str) -> None:
    with pytest.raises(UnsupportedDdlError, match=why):
        said(SWAP, shadows=shadow_after(*statements))


@pytest.mark.parametrize(
    ("actions", "why"),
    [*DROPPING, ("MODIFY b VARCHAR(20)", "collation"), ("CONVERT TO CHARSET utf8mb4", "collation")],
)
def test_k13_f124_f125_alter_ignore_that_may_drop_rows_stops(actions: str, why: str) -> None:
    with pytest.raises(UnsupportedDdlError, match=why):
        said(f"ALTER IGNORE TABLE t {actions}")


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("key", ["id", ""])
def test_k13_f125_another_key_drops_rows_whatever_the_target_makes_of_keys(
    key: str, by_key: bool
) -> None:
    source = KNOWN.source.model_copy(update={"key": (key,) if key else ()})
    known = replace(KNOWN, source=source, by_key=by_key)
    drop = "DROP PRIMARY KEY, " if key else ""
    shadows = shadow_after(
        "CREATE TABLE _t_gho LIKE t", f"ALTER TABLE _t_gho {drop}ADD PRIMARY KEY (a)"
    )
    for sql in (f"ALTER IGNORE TABLE t {drop}ADD PRIMARY KEY (a)", SWAP):
        with pytest.raises(UnsupportedDdlError, match="violate the primary key"):
            said(sql, shadows=shadows, known=known, change_key="apply")


@pytest.mark.parametrize(
    "actions",
    ["DROP PRIMARY KEY, ADD PRIMARY KEY (id)", "DROP CONSTRAINT c", "MODIFY a BIGINT",
     "PARTITION BY HASH (id) PARTITIONS 2", "ADD q JSON"],
)  # fmt: skip
def test_k13_alter_ignore_that_keeps_every_row_is_followed(actions: str) -> None:
    said(f"ALTER IGNORE TABLE t {actions}")
    said(SWAP, shadows=shadow_after("CREATE TABLE _t_gho LIKE t", f"ALTER TABLE _t_gho {actions}"))


def test_pitfall_7_an_unreadable_text_stops_only_where_it_may_reach_a_captured_table() -> None:
    assert said("CREATE GIZMO other.thing WITH 5", default_database="other").ignored
    assert said("ALTER GIZMO thing").ignored
    for text in (
        "FROBNICATE thing",
        "CREATE GIZMO x SELECT 1",
        "CREATE GIZMO x FOR t",
        "FROBNICATE t",
        "FROBNICATE `d`.`t`",
        "FROBNICATE x 'd.t'",
        "FROBNICATE DATABASE d",
        "DROP TABLE `t",
    ):
        with pytest.raises(ContentUnknownError):
            said(text)
    with pytest.raises(ContentUnknownError):
        said("FROBNICATE d.t", default_database="other")


def test_k13_an_unreadable_alter_is_passed_where_the_catalog_proves_the_columns() -> None:
    sql = "ALTER TABLE t GIZMO"
    change = changed(sql, catalog=STATE.schema)
    assert (change.known, change.inexact, change.steps) == (KNOWN, True, ())
    with pytest.raises(UnsupportedDdlError, match="cannot be read"):
        said(sql)
    with pytest.raises(UnsupportedDdlError, match="cannot be read"):
        said(sql, catalog=state_of("CREATE TABLE t (id INT PRIMARY KEY)").schema)


def test_k23_a_copy_into_a_shadow_computes_stored_columns_again() -> None:
    """Whatever was made of the shadow: its rows were written in another session (K23)."""
    state = state_of(TABLE.removesuffix(")") + ", g DECIMAL(20,9) AS (a / 3) STORED)")
    known = KnownTable(
        RecordedSource(columns=target_columns(state.schema), key=state.schema.key_names), name="d.t"
    )
    with pytest.raises(UnsupportedDdlError, match="generated column `g`"):
        said(
            SWAP,
            shadows=shadow_after("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD INDEX (a)"),
            state=state,
            known=known,
        )
    assert said("ALTER TABLE t ADD INDEX (a)", state=state, known=known).ddl.decision == "recorded"


def test_k23_an_unreadable_alter_that_may_rewrite_values_stops_whatever_the_catalog_says() -> None:
    """Labels, charsets, and a column that is dropped and added decide values too (K23)."""
    for sql, catalog in (
        ("ALTER TABLE t GIZMO, DROP COLUMN a, ADD a INT", TABLE),
        ("ALTER TABLE t GIZMO", TABLE.replace("ENUM('x','y')", "ENUM('y','x')")),
        ("ALTER TABLE t GIZMO", TABLE.replace("CHARACTER SET latin1", "CHARACTER SET ascii")),
        ("ALTER TABLE t GIZMO", TABLE.replace("tm TIME", "tm TIME(3)")),
        ("ALTER TABLE t GIZMO", TABLE.replace("a INT", "a INT NOT NULL")),
    ):
        with pytest.raises(UnsupportedDdlError, match="cannot be read"):
            said(sql, catalog=state_of(catalog).schema)


def test_k13_other_tables_of_a_target_keep_values_from_being_changed() -> None:
    shared = replace(KNOWN, others=(KNOWN.source,))
    assert changed("ALTER TABLE t ADD q INT", known=shared).steps
    for sql in ("ALTER TABLE t ADD q INT DEFAULT 5", "TRUNCATE t"):
        with pytest.raises(UnsupportedDdlError, match="share"):
            said(sql, known=shared)


def test_widened_then_compared_types_hold_all_values() -> None:
    steps = [
        changed(f"ALTER TABLE t MODIFY u {kind}") for kind in ("BIGINT UNSIGNED", "DECIMAL(30,5)")
    ]
    targets = [next(c.delta_type for c in s.known.target_columns if c.name == "u") for s in steps]
    assert targets == ["decimal(20,0)", "decimal(30,5)"]
    assert (
        reduce(columns_after, steps[-1].steps, KNOWN.target_columns)
        == steps[-1].known.target_columns
    )


@pytest.mark.parametrize("words", ["CHARACTER SET", "CHARSET", "CHAR SET"])
def test_k33_f75_a_conversion_that_may_lose_characters_is_seen_in_every_spelling(
    words: str,
) -> None:
    for actions in (f"CONVERT TO {words} latin1", f"MODIFY b VARCHAR(10) {words} latin1"):
        with pytest.raises(UnsupportedDdlError, match="may lose characters"):
            said(f"ALTER TABLE t {actions}", strict=False)
    whole = said(f"ALTER TABLE t CONVERT TO {words} utf8mb4", strict=False)
    assert "loses nothing" in whole.ddl.reason


def test_k33_f82_a_table_that_has_its_name_again_keeps_its_rows() -> None:
    decision = said("RENAME TABLE t TO x, x TO t")
    assert (decision.ddl.decision, decision.changes, decision.arrivals) == ("recorded", (), ())
    assert decision.ddl.reason == "each table has its name again"


def test_k33_a_database_that_is_created_in_the_place_of_another_is_dropped_first() -> None:
    decision = said("CREATE OR REPLACE DATABASE d", drop_table="apply")
    (change,) = decision.changes
    assert change.known.source.gone
    assert [step.kind for step in change.steps] == ["remove_rows"]


def test_k33_f82_a_unique_index_over_a_column_that_may_be_null_is_no_key() -> None:
    """MySQL refuses NULL in a primary key; MariaDB leaves it out in silence."""
    modify = "ALTER TABLE t MODIFY id INT NULL"
    with pytest.raises(UnsupportedDdlError, match="no key any more"):
        said(modify, is_mariadb=False)
    assert said(modify, is_mariadb=True).ddl.decision == "recorded"
    assert said("ALTER TABLE t MODIFY id INT", is_mariadb=False).ddl.decision == "recorded"


def test_k13_columns_exchange_names_beside_one_that_the_source_no_longer_has() -> None:
    """The walk through the names never ended where a kept column had the name that a version of
    another one takes: the run hung."""
    table = state_of("CREATE TABLE t (id INT PRIMARY KEY, a TEXT, c DATE)")
    source = RecordedSource(
        columns=target_columns(table.schema), key=("id",), names=(("c", "c__v2"),)
    )
    target = tuple(
        TargetColumn(name=name, delta_type=delta_type)
        for name, delta_type in (
            ("id", "int"), ("a", "string"), ("c", "bigint"), ("c__v2", "date"),
        )
    )  # fmt: skip
    decision = said(
        "ALTER TABLE t RENAME COLUMN c TO a, RENAME COLUMN a TO c",
        known=KnownTable(source, target, name="d.t"),
        state=table,
    )
    (change,) = decision.changes
    assert [(step.name, step.new_name) for step in change.steps] == [
        ("c", "c__dropped"), ("a", "c"), ("c__v2", "a"),
    ]  # fmt: skip
    after = reduce(columns_after, change.steps, target)
    assert {column.name: column.delta_type for column in after} == {
        "id": "int", "a": "date", "c": "string", "c__dropped": "bigint",
    }  # fmt: skip
    assert change.known.source.names == ()
