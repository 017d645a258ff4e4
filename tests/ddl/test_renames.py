"""K28 on real servers: after each run the lake's table of a name equals the server's SELECT of that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config import PipelineConfig
from cdc_pipeline.pipeline.capture import capture
from cdc_pipeline.pipeline.report import SilentObserver
from cdc_pipeline.position.cursor import MemoryCursorStore
from tests.load.crash_child import Killed
from tests.pipeline.comparison import lake_rows, server_rows
from tests.pipeline.test_end_to_end import here, live
from tests.servers import Server

pytestmark = [pytest.mark.spark]

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


class Killing(SilentObserver):
    """Ends a run where it would be killed, at each of some joints once."""

    def __init__(self, *joints: str) -> None:
        self.joints = list(joints)

    def reached(self, joint: str) -> None:
        if self.joints[:1] == [joint]:
            del self.joints[0]
            raise Killed


class Source:
    """A server with two databases, and the lake of both."""

    def __init__(self, server: Server, database: str, make_config: MakeConfig, spark: Any, **sections: Any) -> None:
        self.server, self.databases, self.spark = server, (database, f"{database}_other"), spark
        server.execute(f"CREATE DATABASE {self.databases[1]}")
        include = [f"{name}.*" for name in self.databases]
        self.config = make_config(live(server), include=include, start=here(server), **sections)
        self.cursors = MemoryCursorStore()

    def run(self, script: str, *joints: str, **values: Any) -> None:
        """Statements at the server, and a run; it is killed at each joint, and started again."""
        self.server.execute_all(*filter(None, script.format(*self.databases, **values).splitlines()))
        killing = Killing(*joints)
        while killing.joints:
            left = len(killing.joints)
            with pytest.raises(Killed):
                capture(self.config, cursors=self.cursors, observer=killing)
            assert len(killing.joints) < left
        capture(self.config, cursors=self.cursors)
        self.check()

    def check(self) -> None:
        """Each table of the server, and the lake's table of its name."""
        for database in self.databases:
            for (table,) in self.server.query(f"SHOW TABLES FROM {database}"):
                columns = [name for (name, *_) in self.server.query(f"SHOW COLUMNS FROM {database}.{table}")]
                expected = server_rows(self.server, database, table, columns)
                assert lake_rows(self.spark, self.config.sink.lake_path, database, table, columns) == expected, table


def play(source: Source, *, joints: dict[str, tuple[str, ...]]) -> None:
    source.run(FIRST)
    source.run("".join(NIGHT.replace("{night}", str(night)) for night in (1, 2)))
    source.run(NIGHT, *joints.get("night", ()), night=3)
    source.run(SWAPS, *joints.get("swaps", ()))
    source.run(BACK, *joints.get("back", ()))
    assert source.cursors.cursor is not None
    assert source.cursors.cursor.suspended == {}


@pytest.mark.mysql
def test_k28_f26_a_name_shows_its_table_whatever_was_renamed_and_whenever_a_run_is_killed(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, spark: Any
) -> None:
    joints = {
        "night": ("before_record", "after_record", "before_replaced", "before_cut"),
        "swaps": ("before_replaced", "between_merges", "before_cut", "before_cursor", "before_replaced"),
        "back": ("after_record", "before_replaced", "between_merges", "before_ack"),
    }
    play(Source(mysql_server, mysql_database, make_config, spark), joints=joints)


@pytest.mark.mariadb
def test_k28_f26_on_mariadb_too(
    mariadb_server: Server, mariadb_database: str, make_config: MakeConfig, spark: Any
) -> None:
    play(Source(mariadb_server, mariadb_database, make_config, spark), joints={})
