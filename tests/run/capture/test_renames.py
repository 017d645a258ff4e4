"""K28 on real servers: after each run the lake's table of a name equals the server's SELECT of that
name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.status import status
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import assert_equal, lake_rows
from tests.support.kills import killed_at
from tests.support.memory_sink import MemoryLake

MakeConfig = Callable[..., PipelineConfig]

FIRST = """
CREATE TABLE {0}.s (id INT PRIMARY KEY, night INT)
INSERT INTO {0}.s VALUES (1, 0), (2, 0)
CREATE TABLE {0}.p (id INT PRIMARY KEY, a INT)
CREATE TABLE {0}.q (k VARCHAR(9), b DATE, PRIMARY KEY (k))
INSERT INTO {0}.p VALUES (1, 1), (2, 2)
INSERT INTO {0}.q VALUES ('one', '2024-01-01')
CREATE TABLE {0}.x (id INT PRIMARY KEY, x INT)
CREATE TABLE {0}.y (id INT PRIMARY KEY, y INT)
CREATE TABLE {0}.z (id INT PRIMARY KEY, z INT)
INSERT INTO {0}.x VALUES (1, 10)
INSERT INTO {0}.y VALUES (1, 20), (2, 20)
INSERT INTO {0}.z VALUES (1, 30), (2, 30), (3, 30)
CREATE TABLE {0}.m (id INT PRIMARY KEY, a INT, gone INT)
INSERT INTO {0}.m VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)
ALTER TABLE {0}.m DROP COLUMN gone
UPDATE {0}.m SET a = 5 WHERE id = 2
"""
NIGHT = """
CREATE TABLE {0}.s_stage (id INT PRIMARY KEY, night INT)
INSERT INTO {0}.s_stage VALUES (1, {night}), (2, {night}), (3, {night})
RENAME TABLE {0}.s TO {0}.s_prev, {0}.s_stage TO {0}.s
UPDATE {0}.s SET night = night + 100 WHERE id = 2
DROP TABLE {0}.s_prev
"""
SWAPS = """
RENAME TABLE {0}.p TO {0}.aside, {0}.q TO {0}.p, {0}.aside TO {0}.q
INSERT INTO {0}.p VALUES ('two', NULL)
DELETE FROM {0}.q WHERE id = 1
RENAME TABLE {0}.x TO {0}.aside, {0}.y TO {0}.x, {0}.z TO {0}.y, {0}.aside TO {0}.z
UPDATE {0}.x SET y = y + 1 WHERE id = 2
RENAME TABLE {0}.m TO {1}.m
UPDATE {1}.m SET a = 7 WHERE id = 3
"""
BACK = """
RENAME TABLE {1}.m TO {0}.m
DELETE FROM {0}.m WHERE id = 1
RENAME TABLE {0}.p TO {0}.aside, {0}.q TO {0}.p, {0}.aside TO {0}.q
ALTER TABLE {0}.x ADD COLUMN n INT NOT NULL DEFAULT 4, RENAME TO {0}.w
INSERT INTO {0}.w VALUES (9, 9, 9)
CREATE TABLE {0}.x (id INT PRIMARY KEY, new INT)
INSERT INTO {0}.x VALUES (1, 1)
"""


class Source:
    """A server with two databases, and the lake of both."""

    def __init__(
        self, server: Server, database: str, make_config: MakeConfig, spark: Any, **sections: Any
    ) -> None:
        self.server, self.databases, self.spark = server, (database, f"{database}_other"), spark
        server.execute(f"CREATE DATABASE {self.databases[1]}")
        include = [f"{name}.*" for name in self.databases]
        self.config = make_config(live(server), include=include, start=here(server), **sections)
        self.cursors = MemoryCursorStore()

    def run(self, script: str, *points: str, **values: Any) -> None:
        """Statements at the server, and a run; it is killed at each fault point, and started
        again."""
        self.server.execute_all(
            *filter(None, script.format(*self.databases, **values).splitlines())
        )
        for point in points:
            with killed_at(point):
                capture(self.config, cursors=self.cursors)
        capture(self.config, cursors=self.cursors)
        self.check()

    def check(self) -> None:
        """Each table of the server, and the lake's table of its name."""
        for database in self.databases:
            tables = {
                table: [
                    name for name, *_ in self.server.query(f"SHOW COLUMNS FROM {database}.{table}")
                ]
                for (table,) in self.server.query(f"SHOW TABLES FROM {database}")
            }
            assert_equal(self.spark, self.config, self.server, database, tables)


@pytest.mark.whole
def test_k28_f26_a_name_shows_its_table_whatever_was_renamed_and_whenever_a_run_is_killed(
    server: Server, fresh_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    source = Source(server, fresh_database, make_config, memory)
    source.run(FIRST)
    source.run("".join(NIGHT.replace("{night}", str(night)) for night in (1, 2)))
    source.run(NIGHT, "before_record", "after_record", "before_cut", night=3)
    source.run(SWAPS, "between_merges", "between_merges", "before_cut", "before_cursor")
    source.run(BACK, "after_record", "between_merges", "before_ack")
    assert source.cursors.cursor is not None
    assert source.cursors.cursor.suspended == {}


MODES_FIRST = """
CREATE TABLE {0}.soft (id INT PRIMARY KEY, v VARCHAR(9))
INSERT INTO {0}.soft VALUES (1, 'old'), (2, 'old'), (3, 'old')
DELETE FROM {0}.soft WHERE id = 3
CREATE TABLE {0}.h (id INT PRIMARY KEY, v VARCHAR(9))
INSERT INTO {0}.h VALUES (1, 'one'), (2, 'two')
UPDATE {0}.h SET v = 'uno' WHERE id = 1
CREATE TABLE {0}.p (id INT PRIMARY KEY, v VARCHAR(9))
INSERT INTO {0}.p VALUES (1, 'old')
CREATE TABLE {0}.hidden (id INT PRIMARY KEY, w VARCHAR(9))
INSERT INTO {0}.hidden VALUES (1, 'new'), (2, 'new')
"""
MODES_REBUILT = """
CREATE TABLE {0}.soft_stage (id INT PRIMARY KEY, v VARCHAR(9))
INSERT INTO {0}.soft_stage VALUES (1, 'new'), (4, 'new')
RENAME TABLE {0}.soft TO {0}.soft_prev, {0}.soft_stage TO {0}.soft
CREATE TABLE {0}.h_stage (id INT PRIMARY KEY, v VARCHAR(9))
INSERT INTO {0}.h_stage VALUES (1, 'uno'), (2, 'due')
RENAME TABLE {0}.h TO {0}.h_prev, {0}.h_stage TO {0}.h
RENAME TABLE {0}.p TO {0}.p_prev, {0}.hidden TO {0}.p
INSERT INTO {0}.p VALUES (3, 'newer')
"""


@pytest.mark.spark
@pytest.mark.whole
def test_k28_what_a_name_cannot_take_over_is_loaded_and_verify_compares_by_name(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, spark: Any
) -> None:
    name = mysql_database
    own = {"name": "{schema}.{table}"}
    rules = [
        {"tables": [f"{name}.soft*"], "mode": "soft_delete", **own},
        {"tables": [f"{name}.h*"], "mode": "history"},
    ]
    source = Source(mysql_server, name, make_config, spark, targets=[rules[0], {**rules[1], **own}])
    tables = source.config.tables.model_copy(update={"exclude": (f"{name}.hidden",)})
    config = source.config = source.config.model_copy(update={"tables": tables})

    def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
        return lake_rows(spark, config.sink.lake_path, name, table, list(columns))

    source.server.execute_all(*filter(None, MODES_FIRST.format(name).splitlines()))
    capture(config, cursors=source.cursors)
    source.server.execute_all(*filter(None, MODES_REBUILT.format(name).splitlines()))
    with pytest.raises(TargetSuspendedError) as caught:
        capture(config, cursors=source.cursors)
    cursor = source.cursors.cursor
    assert cursor is not None
    assert set(cursor.suspended) == {f"{name}.h", f"{name}.p"}
    assert all(held.needs_snapshot for held in cursor.suspended.values())
    assert f"`cdc-pipeline snapshot bank --table {name}.p`" in str(caught.value)
    # What the name has held goes on as deleted; what its table had before is another name's.
    assert rows("soft", "id", "v", "_cdc_deleted") == [
        (1, "new", False), (2, "old", True), (3, "old", True), (4, "new", False),
    ]  # fmt: skip
    assert rows("soft_prev", "id", "v", "_cdc_deleted") == [
        (1, "old", False),
        (2, "old", False),
        (3, "old", True),
    ]
    assert [row[:2] for row in rows("h_prev", "id", "v", "__START_AT")] == [
        (1, "one"),
        (1, "uno"),
        (2, "two"),
    ]

    def statuses(*tables: str) -> dict[str, str]:
        options = VerifyOptions(tables=tuple(f"{name}.{table}" for table in tables))
        report = verify(config, cursors=source.cursors, options=options)
        return {target.partition(".")[2]: of.status for target, of in report.tables.items()}

    unknown = dict.fromkeys(("h", "p", "soft_stage"), "not_compared")
    assert statuses("soft", "h_prev", *unknown) == {"soft": "equal", "h_prev": "equal", **unknown}
    take_snapshot(config, cursors=source.cursors)
    assert statuses("h", "p") == {"h": "equal", "p": "equal"}
    versions = rows("h", "id", "v", "__START_AT", "__END_AT")
    assert [row[:2] for row in versions if row[3] is None] == [(1, "uno"), (2, "due")]
    assert len(versions) == 4  # (1, one) and (2, two) have ended; (1, uno) goes on


@pytest.mark.whole
def test_k28_a_lake_whose_targets_followed_renamed_tables_shows_names_after_a_load(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """As another policy left it after a nightly rebuild: `s` follows `s_prev`, and `s_stage`
    the living table."""
    source = Source(mysql_server, mysql_database, make_config, memory)
    config, name = source.config, mysql_database
    following = config.model_copy(
        update={"schema_changes": SchemaChangePolicy(rename_table="follow")}
    )
    first = FIRST.splitlines()[1:3]
    source.server.execute_all(*(line.format(name) for line in first))
    source.server.execute_all(*filter(None, NIGHT.format(name, night=1).splitlines()))
    capture(following, cursors=source.cursors)
    capture(config, cursors=source.cursors)
    shown = status(config, cursors=source.cursors).tables
    assert shown[f"{name}.s"].needs_snapshot.startswith(f"it follows {name}.s_prev")
    assert shown[f"{name}.s_stage"].needs_snapshot.startswith(f"it follows {name}.s,")
    assert shown[f"{name}.s"].next_step == f"cdc-pipeline snapshot bank --table {name}.s"
    assert status(following, cursors=source.cursors).tables[f"{name}.s"].needs_snapshot == ""
    take_snapshot(config, cursors=source.cursors)
    source.check()
    assert source.cursors.cursor is not None
    assert all(state.origin is None for state in source.cursors.cursor.targets.values())
    source.run(NIGHT, night=2)
