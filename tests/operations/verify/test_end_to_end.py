"""A lake against its server: what differs is named and repaired; expected rows are the server's own
SELECT."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.report import Difference, TableVerified, VerifyReport
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import server_rows
from tests.support.delta_reader import Row, chosen_rows, is_deleted, is_open, lives

pytestmark = pytest.mark.spark


class Verified:
    """One source with its lake."""

    def __init__(self, server: Server, database: str, config: PipelineConfig) -> None:
        self.config, self.cursors = config, MemoryCursorStore()
        self._server, self._database = server, database

    def verify(self, *tables: str, **asked: Any) -> VerifyReport:
        names = tuple(f"{self._database}.{name}" for name in tables)
        report = verify(
            self.config, cursors=self.cursors, options=VerifyOptions(tables=names, **asked)
        )
        state = self.config.sink.lake_path / "_cdc" / self.config.name / "verify"
        assert not state.is_dir() or not list(state.iterdir())
        return report

    def one(self, table: str, **asked: Any) -> TableVerified:
        return self.verify(table, **asked).tables[f"{self._database}.{table}"]

    @property
    def cursor(self) -> CursorState:
        cursor = self.cursors.read()
        assert cursor is not None
        return cursor

    def lake(
        self, table: str, columns: list[str], where: Callable[[Row], bool] = bool
    ) -> list[tuple[Any, ...]]:
        return chosen_rows(self.path(table), columns, where)

    def path(self, table: str) -> Any:
        return LakePaths(self.config.sink.lake_path, self.config.name).table(
            f"{self._database}.{table}"
        )

    def source(self, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
        return sorted(server_rows(self._server, self._database, table, columns), key=repr)

    def unlogged(self, *statements: str) -> None:
        """Changes that the log never shows."""
        connection = self._server.root_connection(database=self._database, autocommit=True)
        with connection.cursor() as run:
            run.execute("SET SESSION sql_log_bin = 0")
            for statement in statements:
                run.execute(statement)
        connection.close()


def keys(found: Sequence[Difference]) -> dict[str, list[tuple[str | None, ...]]]:
    """Differing keys by kind."""
    told: dict[str, list[tuple[str | None, ...]]] = {}
    for one in found:
        told.setdefault(one.kind, []).append(tuple(one.key.values()))
    return {kind: sorted(values, key=repr) for kind, values in told.items()}


@contextmanager
def writing(server: Server, database: str) -> Iterator[None]:
    """Somebody who inserts, updates and deletes without end, also keys that come and go at once."""
    stop, failed = threading.Event(), []
    connection = server.root_connection(database=database, autocommit=True)

    def write() -> None:
        number = 0
        try:
            with connection.cursor() as run:
                while not stop.is_set():
                    number += 1
                    run.execute("INSERT INTO item VALUES (%s, 'now', 1)", (1000 + number,))
                    run.execute("UPDATE item SET price = price + 1 WHERE id = 1")
                    run.execute("DELETE FROM item WHERE id = %s", (1000 + number - number % 3,))
                    run.execute("INSERT INTO item VALUES (777, 'gone', 1)")
                    run.execute("DELETE FROM item WHERE id = 777")
                    stop.wait(0.01)  # the verification shares its processors with this
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        connection.close()
    assert not failed


@pytest.mark.whole
def test_k17_mariadb_what_the_log_never_showed_is_found_and_repaired_in_every_mode(
    mariadb_server: Server,
    mariadb_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    """Deletes by a cascade, and changes that were kept out of the log."""
    database, start = mariadb_database, here(mariadb_server)
    mariadb_server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (p INT, n INT, PRIMARY KEY (p, n), FOREIGN KEY (p) REFERENCES parent "
        "(id) ON DELETE CASCADE)",
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price INT, old INT)",
        "CREATE TABLE bag (a INT, b VARCHAR(5))",
    )
    item = {"tables": [f"{database}.item"]}
    targets = [
        item,
        {**item, "mode": "soft_delete", "name": "{schema}.soft"},
        {**item, "mode": "history", "name": "{schema}.history"},
        {**item, "mode": "changelog", "name": "{schema}.changes"},
        {"tables": [f"{database}.bag"], "keyless": "row_hash"},
    ]
    include = [f"{database}.{table}" for table in ("child", "item", "bag")]
    config = make_config(live(mariadb_server), include=include, start=start, targets=targets)
    lake = Verified(mariadb_server, database, config)
    mariadb_server.execute_all(
        "INSERT INTO parent VALUES (1),(2)",
        "INSERT INTO child VALUES (1,1),(1,2),(2,1)",
        "INSERT INTO item VALUES (1,'a',1,10),(2,'b',2,20),(3,'c',3,30),(4,NULL,NULL,40)",
        "UPDATE item SET price = 9 WHERE id = 3",
        "ALTER TABLE item DROP COLUMN old",
        "INSERT INTO bag VALUES (1,'x'),(1,'x'),(2,NULL),(3,'z')",
    )
    capture(config, cursors=lake.cursors)
    mariadb_server.execute("DELETE FROM parent WHERE id = 1")
    lake.unlogged(
        "UPDATE item SET name = 'other' WHERE id IN (2, 4)",
        "DELETE FROM item WHERE id = 3",
        "INSERT INTO item VALUES (50,'new',NULL)",
        "DELETE FROM bag WHERE b = 'x' LIMIT 1",
        "INSERT INTO bag VALUES (2,NULL),(9,'n')",
    )
    report = lake.verify(repair=True)
    told = {name.partition(".")[2]: table for name, table in report.tables.items()}
    of_items = {"missing": [("50",)], "extra": [("3",)], "different": [("2",), ("4",)]}
    assert {name: keys(table.repaired_keys) for name, table in told.items()} == {
        "changes": {},
        "child": {"extra": [("1", "1"), ("1", "2")]},
        **dict.fromkeys(("item", "soft", "history"), of_items),
        "bag": {"missing": [("2", None), ("9", "n")], "extra": [("1", "x")]},
    }
    assert told["item"].repaired == {"inserted": 1, "updated": 2, "deleted": 1}
    assert next(one.columns for one in told["item"].repaired_keys if one.kind == "different") == (
        "name",
    )
    assert {name for name, table in told.items() if table.status != "equal"} == {"changes"}
    assert keys(told["changes"].differences) == of_items
    assert "in their order" in told["changes"].reason
    assert report.status == "different"
    columns = ["id", "name", "price"]
    rows = lake.source("item", columns)
    assert lake.lake("item", columns) == rows
    assert lake.lake("soft", columns, lives) == rows
    kept = [(1, 10), (2, 20), (4, 40), (50, None)]
    for table, live_rows in (
        ("item", bool), ("soft", lives), ("history", is_open)
    ):  # fmt: skip
        assert lake.lake(table, ["id", "old"], live_rows) == kept, "of its own row, not another's"
    assert lake.lake("soft", columns, is_deleted) == [(3, "c", 9)]
    assert lake.lake("history", columns, is_open) == rows
    assert told["history"].intervals is not None
    assert told["history"].intervals.versions == len(lake.lake("history", ["id"]))
    assert lake.lake("bag", ["a", "b"]) == lake.source("bag", ["a", "b"])
    assert lake.lake("child", ["p", "n"]) == lake.source("child", ["p", "n"])
    cut = last_cut(LakePaths(config.sink.lake_path, config.name))
    assert cut is not None
    assert cut.kind == "repair"
    assert not cut.cursor.targets[f"{database}.item"].exact


@pytest.mark.whole
def test_k17_rows_without_a_key_in_the_lake_are_never_a_sample(
    mariadb_server: Server, mariadb_database: str, make_config: Callable[..., PipelineConfig]
) -> None:
    """Of a sample by a later key of the source, rows not read would seem to be the lake's alone."""
    database, start = mariadb_database, here(mariadb_server)
    mariadb_server.execute_all(
        f"USE `{database}`", "CREATE TABLE bag (a INT)", "INSERT INTO bag VALUES (1),(2),(3)",
        "CREATE TABLE item (id INT PRIMARY KEY)", "INSERT INTO item VALUES (1),(2),(3)",
    )  # fmt: skip
    config = make_config(
        live(mariadb_server), include=[f"{database}.*"], start=start,
        targets=[{"tables": [f"{database}.bag"], "keyless": "row_hash"}],
    )  # fmt: skip
    lake = Verified(mariadb_server, database, config)
    capture(config, cursors=lake.cursors)
    mariadb_server.execute(f"ALTER TABLE `{database}`.bag ADD PRIMARY KEY (a)")
    told = lake.verify(share=1e-9, rows_per_range=1).tables
    figures = [(t.status, t.rows_source, t.rows_lake) for _, t in sorted(told.items())]
    assert figures == [("equal", 3, 3), ("equal", 1, 1)]
    with pytest.raises(ConfigError, match="a sample is not repaired"):
        lake.verify(share=0.5, repair=True)


def test_k3_k17_a_row_changed_by_hand_in_the_lake_is_told_and_put_back_also_while_others_write(
    mariadb_server: Server,
    mariadb_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    database, start = mariadb_database, here(mariadb_server)
    mariadb_server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO item VALUES (1,'a',1),(2,'b',2),(4,NULL,NULL)",
    )
    config = make_config(live(mariadb_server), include=[f"{database}.*"], start=start)
    lake, columns = Verified(mariadb_server, database, config), ["id", "name", "price"]
    capture(config, cursors=lake.cursors)
    spark.sql(f"UPDATE delta.`{lake.path('item')}` SET price = -1 WHERE id = 4")
    spark.sql(f"DELETE FROM delta.`{lake.path('item')}` WHERE id = 1")
    mariadb_server.execute("INSERT INTO item VALUES (3,'while it stands',1)")
    by_hand = lake.one("item")
    assert by_hand.status == "different"
    assert by_hand.foreign is not None
    assert keys(by_hand.foreign.differences) == {"missing": [("1",)], "different": [("4",)]}
    assert set(by_hand.foreign.versions.values()) == {"UPDATE", "DELETE"}
    assert f"{database}.item" in lake.cursor.suspended

    repaired = lake.one("item", repair=True)
    assert repaired.status == "equal", repaired
    assert repaired.foreign is not None
    assert repaired.foreign.restored
    assert not lake.cursor.suspended
    assert lake.lake("item", columns) == lake.source("item", columns)

    with writing(mariadb_server, database):
        busy = lake.one("item")
    assert busy.status == "equal", busy
    assert busy.rows_equal >= 3
