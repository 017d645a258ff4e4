"""Actions of ALTER TABLE and column definitions, from their text alone."""

from __future__ import annotations

import re

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.schema.ddl.columns import DefaultKind
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes, Uncertain
from cdc_pipeline.schema.evolution.backfill import backfill
from cdc_pipeline.schema.types import delta_type

# actions | what stands behind ALTER TABLE t
CORPUS = """
 |
add_column | ADD a INT
add_column | ADD COLUMN `a b` INT NOT NULL DEFAULT 5 COMMENT 'x, y' AFTER `c`
add_column | ADD COLUMN IF NOT EXISTS a INT
add_column | ADD a INT REFERENCES u (a) ON DELETE CASCADE
add_column | ADD a INT DEFAULT 1 ENGINE_ATTRIBUTE = '{"a": 1}'
add_column | ADD comment VARCHAR(10) COMMENT 'x'
add_column | ADD first INT FIRST
add_column | ADD period INT
add_column | ADD vector VECTOR(3)
add_column | ADD a INT;
add_column,add_column | ADD (a INT, b ENUM('x,y', ')') DEFAULT ')')
add_column,index,constraint | ADD (a INT, KEY k (a), CHECK (a > 0))
add_column,add_column | ADD a INT, ADD b INT
add_column,option,option | ADD a INT, ALGORITHM=INPLACE, LOCK=NONE
add_column,option,option | ADD a INT, algorithm inplace, lock shared
add_column,partition | ADD a INT PARTITION BY HASH (a)
index | ADD INDEX i (a, b(10) DESC)
index | ADD KEY (a)
index | ADD INDEX IF NOT EXISTS i USING BTREE (a) COMMENT 'x' INVISIBLE
index | ADD FULLTEXT INDEX f (a) WITH PARSER ngram
index | ADD SPATIAL KEY s (g)
index | ADD VECTOR INDEX v (e)
index | ADD INDEX i ((a + 1))
index | DROP INDEX i
index | DROP KEY IF EXISTS i
index | RENAME INDEX i TO j
index | ALTER INDEX i INVISIBLE
unique_index | ADD UNIQUE (a)
unique_index | ADD CONSTRAINT u UNIQUE KEY k (a)
unique_index | ADD CONSTRAINT UNIQUE INDEX (a)
constraint | ADD CONSTRAINT `c` FOREIGN KEY f (a) REFERENCES `x`.`u` (a) ON DELETE NO ACTION ON UPDATE CASCADE
constraint | ADD FOREIGN KEY (a) REFERENCES u (a)
constraint | ADD CONSTRAINT CHECK (a > 0) NOT ENFORCED
constraint | ADD CHECK (a > 0)
constraint | DROP FOREIGN KEY f
constraint | DROP CONSTRAINT c
constraint | DROP CHECK c
constraint | ALTER CHECK c NOT ENFORCED
add_primary_key | ADD PRIMARY KEY (a)
add_primary_key | ADD CONSTRAINT c PRIMARY KEY USING BTREE (a)
drop_primary_key | DROP PRIMARY KEY
drop_primary_key | DROP CONSTRAINT `PRIMARY`
drop_primary_key | DROP INDEX `PRIMARY`
drop_primary_key,add_primary_key | DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)
drop_column | DROP a
drop_column | DROP COLUMN IF EXISTS a RESTRICT
drop_column,drop_column | DROP a, DROP COLUMN b
modify_column | MODIFY a INT NOT NULL AFTER b
modify_column | MODIFY COLUMN IF EXISTS a ENUM('x,y')
change_column | CHANGE a b INT
change_column | CHANGE COLUMN a a BIGINT
rename_column | RENAME COLUMN a TO b
rename_table | RENAME u
rename_table | RENAME TO x.u
rename_table | RENAME AS u
column_default | ALTER a SET DEFAULT 5
column_default | ALTER COLUMN a SET DEFAULT (1 + 2)
column_default | ALTER COLUMN a DROP DEFAULT
column_visibility | ALTER COLUMN a SET INVISIBLE
convert_charset | CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
option | COMMENT = 'a, b'
option | COMMENT 'x'
option,option | ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=8
option | DEFAULT CHARACTER SET = utf8mb4
option,option | CHARSET utf8mb4 COLLATE utf8mb4_bin
option | AUTO_INCREMENT = 5
option | UNION = (a, b)
option | FORCE
option | DISABLE KEYS
option | DATA DIRECTORY = '/x'
option | `PAGE_COMPRESSED`=1
option | WITHOUT VALIDATION
engine | ENGINE = InnoDB
engine | ENGINE BLACKHOLE
order_by | ORDER BY a, b DESC
partition | ADD PARTITION (PARTITION p VALUES LESS THAN (10))
partition | ADD PARTITION PARTITIONS 4
partition | COALESCE PARTITION 2
partition | REORGANIZE PARTITION a, b INTO (PARTITION c VALUES LESS THAN (1))
partition_rows | REORGANIZE PARTITION a, b INTO (PARTITION c VALUES IN (1))
partition | REMOVE PARTITIONING
partition | ANALYZE PARTITION a, b
partition_rows | DROP PARTITION a, b
partition_rows | TRUNCATE PARTITION ALL
partition_rows | EXCHANGE PARTITION a WITH TABLE u WITHOUT VALIDATION
partition_rows | DISCARD PARTITION a TABLESPACE
partition_rows | CONVERT PARTITION a TO TABLE u
tablespace | DISCARD TABLESPACE
tablespace | IMPORT TABLESPACE
versioning | ADD SYSTEM VERSIONING
versioning | DROP SYSTEM VERSIONING
versioning | ADD PERIOD FOR SYSTEM_TIME (a, b)
unknown | ADD a GIZMO
unknown | ADD a INT FROBNICATED
add_column | ADD a VARCHAR(10) COMPRESSED
add_column | ADD a TEXT COMPRESSED=zlib NOT NULL
add_column | ADD a BLOB NOT NULL COMPRESSED
unknown | ADD a VARCHAR(10) COMPRESSED('zlib')
unknown | FROBNICATE a
unknown | ADD a INT DEFAULT 'x
unknown | ADD (a INT
unknown | , ADD a INT
add_column,unknown | ADD a INT,
add_column,unknown | ADD a INT, FROBNICATE (1, 2)
""".strip("\n").splitlines()  # noqa: E501


@pytest.mark.parametrize("line", CORPUS)
def test_actions_are_named(line: str) -> None:
    kinds, _, text = line.partition("|")
    actions = parse_statement(
        f"ALTER TABLE t {text.strip()}", "d", is_mariadb="vector VECTOR" not in text
    ).actions
    assert [action.kind.value for action in actions] == [
        kind for kind in kinds.strip().split(",") if kind
    ]


def test_an_action_tells_its_parts() -> None:
    (action,) = parse_statement(
        "ALTER TABLE t ADD COLUMN `a``b` DECIMAL(5,2) UNSIGNED NOT NULL DEFAULT -1.50 AFTER `c,d`",
        "",
    ).actions
    column = action.column
    assert column is not None
    assert (column.name, column.sql_type, column.after, column.not_null) == (
        "a`b", "DECIMAL(5,2) UNSIGNED", "c,d", True,
    )  # fmt: skip
    assert column.column.kind is Kind.DECIMAL
    assert (column.column.precision, column.column.scale, column.column.unsigned) == (5, 2, True)
    assert column.default is DefaultKind.CONSTANT
    assert column.literal is not None
    assert column.literal.text == "-1.50"
    (change,) = parse_statement("ALTER TABLE t CHANGE a b INT", "").actions
    assert (change.name, change.new_name) == ("a", "b")


def test_create_columns_gives_none_where_the_text_does_not_tell() -> None:
    for sql in (
        "CREATE TABLE t (a GIZMO)",
        "CREATE TABLE t (a INT, s TIMESTAMP(6) AS ROW NUMBER)",
        "CREATE TABLE t (a INT, PERIOD FOR SYSTEM_TIME)",
        "CREATE TABLE t (a INT, PRIMARY KEY (b))",
        "CREATE TABLE t (a INT, PRIMARY KEY ((a + 1)))",
        "CREATE TABLE t (KEY (a))",
        "CREATE TABLE t (CHECK (1))",
        "CREATE TABLE t LIKE u",
        "CREATE TABLE t SELECT 1",
        "CREATE TABLE t (a INT",
        "DROP TABLE t",
    ):
        assert parse_statement(sql, "").created is None, sql


def test_oracle_mode_and_real_as_float_change_types() -> None:
    oracle = SqlModes.from_bits(0x200, is_mariadb=True)
    sql = (
        "CREATE TABLE t (a NUMBER(10,2) PRIMARY KEY, b NUMBER, c VARCHAR2(10), d DATE, "
        "e RAW(5), f CLOB)"
    )
    created = parse_statement(sql, "", is_mariadb=True, modes=oracle).created
    assert created is not None
    assert [delta_type(c.column) for c in created.columns] == [
        "decimal(10,2)", "double", "string", "timestamp_ntz", "binary", "string",
    ]  # fmt: skip
    for bits, wanted in ((0, "double"), (1, "float")):
        real = parse_statement(
            "CREATE TABLE t (a REAL)", "", modes=SqlModes.from_bits(bits)
        ).created
        assert real is not None
        assert delta_type(real.columns[0].column) == wanted


@pytest.mark.parametrize(
    ("definition", "modes", "refused"),
    [
        ("TIMESTAMP", SqlModes(), "explicit_defaults_for_timestamp"),
        ("TIMESTAMP NULL DEFAULT '2024-01-01 00:00:00'", SqlModes(), "time zone"),
        (
            "TIMESTAMP NULL DEFAULT '2024-01-01 00:00:00'",
            SqlModes(time_zone="Europe/Berlin"),
            "time zone",
        ),
        ("DATE NOT NULL", SqlModes(), "zero date"),
        ("DATE DEFAULT '0000-00-00'", SqlModes(), "converts"),
        ("DATETIME DEFAULT '2024-00-10 00:00:00'", SqlModes(), "converts"),
        ("ENUM('a','b') DEFAULT 1", SqlModes(), "converts"),
        ("VARBINARY(9) DEFAULT 'é'", SqlModes(), "charset"),
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", SqlModes(), "time of the ALTER"),
        ("INT NULL DEFAULT (1 + RAND())", SqlModes(), "expression"),
        ("INT GENERATED ALWAYS AS (a + 1) STORED", SqlModes(), "generated"),
        ("INT NOT NULL AUTO_INCREMENT UNIQUE", SqlModes(), "numbers the existing rows"),
    ],
)
def test_k13_a_value_that_the_text_does_not_tell_is_refused(
    definition: str, modes: SqlModes, refused: str
) -> None:
    (action,) = parse_statement(f"ALTER TABLE t ADD c {definition}", "", modes=modes).actions
    assert action.column is not None
    with pytest.raises(Uncertain, match=re.escape(refused)):
        backfill(action.column, modes=modes)


def test_a_timestamp_constant_becomes_an_instant() -> None:
    modes = SqlModes(time_zone="-05:30")
    (action,) = parse_statement(
        "ALTER TABLE t ADD c TIMESTAMP NULL DEFAULT '2024-01-01 00:00:00'", "", modes=modes
    ).actions
    assert action.column is not None
    assert backfill(action.column, modes=modes) == "TIMESTAMP'2024-01-01 05:30:00.000000+00:00'"


@given(st.text(max_size=200))
def test_any_text_behind_alter_table_ends_in_actions(text: str) -> None:
    parse_statement("ALTER TABLE t " + text, "")
    parse_statement("CREATE TABLE t (" + text + ")", "")


def test_sqlglot_agrees_on_names_where_it_parses() -> None:
    """A second source for names of added columns; not the truth: it reads some wrongly."""
    compared = 0
    for line in CORPUS:
        kinds, _, text = line.partition("|")
        if "unknown" in kinds or "add_column" not in kinds:
            continue
        sql = f"ALTER TABLE t {text.strip()}"
        try:
            tree = sqlglot.parse_one(sql, dialect="mysql", error_level=sqlglot.ErrorLevel.RAISE)
        except sqlglot.ParseError:
            continue
        if not isinstance(tree, sqlglot.exp.Alter):
            continue
        theirs = [a.name for a in tree.args["actions"] if isinstance(a, sqlglot.exp.ColumnDef)]
        ours = [a.name for a in parse_statement(sql, "").actions if a.column is not None]
        if theirs:
            assert ours == theirs, sql
            compared += 1
    assert compared >= 5


def test_k33_f76_an_empty_string_may_be_null() -> None:
    """MariaDB's EMPTY_STRING_IS_NULL; MySQL's mode of the same bit is about fractions."""
    for definition, wanted in (
        ("VARCHAR(9) DEFAULT ''", "NULL"),
        ("VARCHAR(9) DEFAULT N'' ''", "NULL"),
        ("VARCHAR(9) DEFAULT '' 'x'", "'x'"),
        ("VARCHAR(9) NOT NULL", "''"),
        ("ENUM('','a') NOT NULL", "''"),
    ):
        for is_mariadb in (True, False):
            modes = SqlModes.from_bits(1 << 32, is_mariadb=is_mariadb)
            (action,) = parse_statement(
                f"ALTER TABLE t ADD c {definition}", "", modes=modes, is_mariadb=is_mariadb
            ).actions
            assert action.column is not None
            expected = "''" if wanted == "NULL" and not is_mariadb else wanted
            assert backfill(action.column, modes=modes) == expected, definition
