"""All modes of the same tables in one pipeline on real servers: what they hold follows from the
server's SELECT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import server_rows
from tests.support.delta_reader import Row, chosen_rows, is_deleted, is_open, lives
from tests.support.kills import killed_at
from tests.support.xa_session import XaSession

pytestmark = pytest.mark.spark

COLUMNS = ["id", "name", "price"]
BAG = ["a", "b"]


def targets(database: str) -> list[dict[str, Any]]:
    item = {"tables": [f"{database}.item"]}
    return [
        {**item, "mode": "mirror"},
        {**item, "mode": "soft_delete", "name": "{schema}.{table}_soft"},
        {**item, "mode": "history"},
        {**item, "mode": "history", "track": ["name"], "name": "{schema}.{table}_names"},
        {**item, "mode": "changelog"},
        {"tables": [f"{database}.bag"], "keyless": "row_hash"},
        {"tables": [f"{database}.coded"], "key": ["code"], "mode": "soft_delete"},
    ]


class Lake:
    def __init__(self, config: PipelineConfig, database: str) -> None:
        self._path, self._database = Path(str(config.sink.lake_path)), database

    def rows(
        self, table: str, columns: list[str], where: Callable[[Row], bool] = bool
    ) -> list[tuple[Any, ...]]:
        return chosen_rows(self._path / self._database / table, columns, where)

    def folded(self) -> list[tuple[Any, ...]]:
        """The table that the changelog's changes lead to."""
        changes = self.rows(
            "item_changelog", ["_cdc_seq", "_cdc_op", "_cdc_before", "_cdc_absent", *COLUMNS]
        )
        there: dict[int, tuple[Any, ...]] = {}
        for _, op, before, absent, *values in changes:
            if op == "truncate":
                there.clear()
                continue
            old = there.pop(before["id"]) if before is not None else ()
            if op != "delete":
                lacks = absent or []
                at = enumerate(COLUMNS)
                there[values[0]] = tuple(old[i] if name in lacks else values[i] for i, name in at)
        return sorted(there.values(), key=repr)


def shown(server: Server, database: str, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted(server_rows(server, database, table, columns), key=repr)


def as_text(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(str(v) if type(v).__name__ == "Decimal" else v for v in row) for row in rows),
        key=repr,
    )


@pytest.mark.whole
def test_k10_all_modes_of_one_table(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
    tmp_path: Path,
) -> None:
    """MINIMAL images, key swaps, a rolled back transaction, XA, tables without a key; twice, so
    that the second run meets rows of the first; and is killed between merges (K2)."""
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(8,2))",
        "CREATE TABLE bag (a INT, b VARCHAR(5))",
        "CREATE TABLE loose (a INT)",
        "CREATE TABLE coded (id INT PRIMARY KEY, code VARCHAR(5) NOT NULL)",
        "CREATE TABLE marked (a INT, mark INT NOT NULL, UNIQUE KEY u (mark))",
    )
    include = [f"{mysql_database}.*"]
    config = make_config(
        live(mysql_server),
        include=include,
        start=here(mysql_server),
        targets=targets(mysql_database),
    )
    cursors, lake = MemoryCursorStore(), Lake(config, mysql_database)
    connection = mysql_server.root_connection(database=mysql_database, autocommit=False)
    run = connection.cursor()
    run.execute("SET SESSION binlog_row_image = 'FULL'")
    run.execute("INSERT INTO item VALUES (1,'a',1),(2,'b',2),(3,'c',3),(4,'d',NULL)")
    run.execute("UPDATE item SET id = id + 10 WHERE id = 3")
    run.execute("INSERT INTO bag VALUES (1,'x'),(1,'x'),(1,NULL),(2,'y')")
    run.execute("INSERT INTO loose VALUES (1),(1)")
    run.execute("INSERT INTO coded VALUES (1,'p'),(2,'q')")
    run.execute("INSERT INTO marked VALUES (NULL,1)")
    connection.commit()
    run.execute("INSERT INTO item VALUES (99,'ghost',0)")
    connection.rollback()
    capture(config, cursors=cursors)
    first = shown(mysql_server, mysql_database, "item", COLUMNS)
    cut = last_cut(LakePaths(config.sink.lake_path, config.name))
    assert cut is not None
    at = max(row[0] for row in lake.rows("item_changelog", ["_cdc_seq"]))

    run.execute("SET SESSION binlog_row_image = 'MINIMAL'")
    run.execute("UPDATE item SET price = price + 1 WHERE id IN (1, 2)")
    for old, new in ((1, 50), (2, 1), (50, 2)):  # they change places
        run.execute("UPDATE item SET id = %s WHERE id = %s", (new, old))
    run.execute("DELETE FROM item WHERE id = 13")
    run.execute("INSERT INTO item VALUES (13,'again',7)")
    run.execute("UPDATE item SET name = 'z' WHERE id = 4")
    run.execute("DELETE FROM item WHERE id = 4")
    run.execute("DELETE FROM bag WHERE b = 'x' LIMIT 1")
    run.execute("UPDATE bag SET b = 'x' WHERE b IS NULL")
    run.execute("SET SESSION binlog_row_image = 'FULL'")
    run.execute("UPDATE coded SET id = id + 10, code = 'r' WHERE code = 'q'")
    connection.commit()
    connection.close()
    xa = XaSession(mysql_server, mysql_database, "'m'")
    xa.run("INSERT INTO item VALUES (60,'xa',6)").prepare()
    mysql_server.execute(f"INSERT INTO `{mysql_database}`.loose VALUES (2)")
    before_commit = mysql_server.gtid_set()
    xa.commit()
    after_commit = mysql_server.gtid_set()
    with killed_at("between_merges", 3):
        capture(config, cursors=cursors)
    report = capture(config, cursors=cursors)
    assert report.recovered_batch == 2
    assert not report.suspended

    now = shown(mysql_server, mysql_database, "item", COLUMNS)
    assert as_text(lake.rows("item", COLUMNS)) == now
    assert as_text(lake.rows("item_soft", COLUMNS, lives)) == now
    assert as_text(lake.rows("item_soft", COLUMNS, is_deleted)) == [
        (3, "c", "3.00"),
        (4, "z", None),
        (50, "a", "2.00"),
    ]
    for history in ("item_history", "item_names"):
        assert as_text(lake.rows(history, COLUMNS, is_open)) == now
    was = lake.rows(
        "item_history",
        COLUMNS,
        lambda row: row["__START_AT"] <= at and (is_open(row) or row["__END_AT"] > at),
    )
    assert as_text(was) == first
    assert as_text(lake.folded()) == now
    assert lake.rows("bag", BAG) == shown(mysql_server, mysql_database, "bag", BAG)
    assert lake.rows("loose", ["a", "_cdc_op"]) == [(1, "insert"), (1, "insert"), (2, "insert")]
    assert lake.rows("coded", ["id", "code", "_cdc_deleted"]) == [
        (1, "p", False),
        (12, "r", False),
        (2, "q", True),
    ]

    # The XA transaction's rows carry the id of XA COMMIT.
    (name,) = lake.rows("item_changelog", ["_cdc_transaction"], lambda row: row["id"] == 60)[0]
    number = name.replace("-", ":").split(":")[-1]
    assert number not in before_commit.replace("-", ":").split(":")[-1:]
    assert number in after_commit.replace("-", ":").split(":")[-1:]
    cut = last_cut(LakePaths(config.sink.lake_path, config.name))
    assert cut is not None
    found = {table.split(".")[1]: (of.spec.mode, of.spec.key) for table, of in cut.tables.items()}
    assert found == {
        "item": ("mirror", ("id",)),
        "item_soft": ("soft_delete", ("id",)),
        "item_history": ("history", ("id",)),
        "item_names": ("history", ("id",)),
        "item_changelog": ("changelog", ()),
        "bag": ("mirror", ()),
        "loose": ("changelog", ()),
        "coded": ("soft_delete", ("code",)),
        "marked": ("mirror", ("mark",)),
    }

    # DDL: a constant default belongs to the rows that the source has, TRUNCATE is told in each
    # mode's own way (K13).
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "ALTER TABLE item ADD COLUMN grade INT NOT NULL DEFAULT 7",
        "UPDATE item SET grade = 8 WHERE id = 1",
        "TRUNCATE TABLE item",
        "INSERT INTO item VALUES (1,'new',1,1)",
    )
    report = capture(config, cursors=cursors)
    assert not report.suspended
    columns = [*COLUMNS, "grade"]
    last = shown(mysql_server, mysql_database, "item", columns)
    assert as_text(lake.rows("item", columns)) == last
    assert as_text(lake.rows("item_soft", columns, lives)) == last
    assert as_text(lake.rows("item_history", columns, is_open)) == last
    assert as_text(lake.folded()) == shown(mysql_server, mysql_database, "item", COLUMNS)
    (truncate,) = lake.rows(
        "item_changelog",
        ["_cdc_seq", "id", "_cdc_transaction"],
        lambda row: row["_cdc_op"] == "truncate",
    )
    assert truncate[1] is None
    ended = lake.rows("item_history", ["id", "grade"], lambda row: row["__END_AT"] == truncate[0])
    assert sorted(ended) == sorted((row[0], 8 if row[0] == 1 else 7) for row in now)
    early = lake.rows(
        "item_history", ["grade"], lambda row: not is_open(row) and row["__END_AT"] <= at
    )
    assert set(early) == {(None,)}
    ((before, grade),) = lake.rows(
        "item_changelog",
        ["_cdc_before", "grade"],
        lambda row: (row["_cdc_op"], row["grade"]) == ("update", 8),
    )
    assert (before["grade"], grade) == (7, 8)
    truncated = [row for row in lake.rows("item_soft", ["_cdc_deleted", "_cdc_seq"]) if row[0]]
    assert [seq for _, seq in truncated].count(truncate[0]) == len(now) - 1
