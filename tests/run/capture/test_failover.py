"""The primary dies and its replica takes over: the tables equal the new primary's SELECT, no row
lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import PositionError, ServerChangedError, TargetSuspendedError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.server_switch import history_path
from cdc_pipeline.run.report import CaptureReport
from tests.servers import Flavor, Forwarder, ReplicaPair, Server
from tests.support.captures import live
from tests.support.comparison import assert_equal, lake_rows, server_rows
from tests.support.memory_sink import MemoryLake

MakeConfig = Callable[..., PipelineConfig]
TABLES = {"counter": ["id", "n"], "entry": ["id", "amount"]}


class Shop:
    """Writes of which each shows in the tables: entries that are counted, and a counter of them."""

    def __init__(self, server: Server) -> None:
        self.entries = 0
        server.execute_all(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.counter (id INT PRIMARY KEY, n INT NOT NULL)",
            "CREATE TABLE shop.entry (id INT PRIMARY KEY, amount INT NOT NULL)",
            "INSERT INTO shop.counter VALUES (1, 0)",
        )

    def write(self, server: Server, count: int) -> None:
        """`count` transactions: each adds an entry and counts it; every third deletes one as
        well."""
        with server.root_connection(autocommit=False) as connection, connection.cursor() as cursor:
            for _ in range(count):
                self.entries += 1
                cursor.execute(
                    "INSERT INTO shop.entry VALUES (%s, %s)", (self.entries, self.entries * 10)
                )
                cursor.execute("UPDATE shop.counter SET n = n + 1 WHERE id = 1")
                if self.entries % 3 == 0:
                    cursor.execute("DELETE FROM shop.entry WHERE id = %s", (self.entries - 1,))
                connection.commit()


def source_of(server: Server, address: Forwarder | Server, **changes: Any) -> dict[str, Any]:
    return live(server) | {"host": address.host, "port": address.port, **changes}


def entries_inserted(report: CaptureReport) -> int:
    return report.tables["shop.entry"].rows_inserted


@pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.whole]),
    ],
)
def test_p3_after_a_failover_executed_transactions_are_skipped_exactly(
    flavor: Flavor, make_config: MakeConfig, memory: MemoryLake
) -> None:
    with ReplicaPair(flavor) as pair, Forwarder(pair.primary) as address:
        config = make_config(source_of(pair.primary, address), include=["shop.*"], start="earliest")
        cursors = MemoryCursorStore()
        shop = Shop(pair.primary)
        shop.write(pair.primary, 7)
        first = capture(config, cursors=cursors)
        assert entries_inserted(first) == 7
        pair.primary.flush_journal()
        shop.write(pair.primary, 5)  # read from the replica only
        pair.wait_caught_up()
        new = pair.promote()
        address.point_to(new)
        shop.write(new, 4)
        new.flush_journal()
        shop.write(new, 2)
        second = capture(config, cursors=cursors)
        assert entries_inserted(second) == 11
        assert second.interval.transactions_applied == 11
        assert_equal(memory, config, new, "shop", TABLES)
        third = capture(config, cursors=cursors)
        assert third.outcome == "nothing_new"


@pytest.mark.whole
@pytest.mark.mysql
def test_k7_without_gtids_the_address_moves_and_nothing_is_applied_twice(
    make_config: MakeConfig, memory: MemoryLake
) -> None:
    """P5: the server behind the one address is another one; searched by time, what was applied is
    known by content."""
    with ReplicaPair("mysql", gtid=False) as pair, Forwarder(pair.primary) as address:
        source = source_of(pair.primary, address, dump_errors_max=0)
        config = make_config(source, include=["shop.*"], start="earliest")
        cursors = MemoryCursorStore()
        shop = Shop(pair.primary)
        shop.write(pair.primary, 6)
        assert entries_inserted(capture(config, cursors=cursors)) == 6
        shop.write(pair.primary, 3)
        pair.wait_caught_up()
        new = pair.promote(stop=True)
        address.point_to(new)
        shop.write(new, 4)
        with pytest.raises(ServerChangedError):
            capture(config, cursors=cursors)
        report = capture(config, cursors=cursors)
        assert entries_inserted(report) == 7
        assert report.interval.transactions_applied == 7
        assert any("were applied already" in reason for reason in report.plan.start_reasons)
        assert_equal(memory, config, new, "shop", TABLES)
        shop.write(new, 1)
        assert entries_inserted(capture(config, cursors=cursors)) == 1
        assert_equal(memory, config, new, "shop", TABLES)


@pytest.mark.whole
@pytest.mark.mysql
def test_k7_no_cut_is_published_inside_an_overlap_that_is_not_known(
    make_config: MakeConfig, memory: MemoryLake
) -> None:
    """P6: primary and standby. Without a history all of the interval is applied once more, at one
    cut behind it."""
    with ReplicaPair("mysql", gtid=False) as pair:
        standby = {"host": pair.replica.host, "port": pair.replica.port}
        source = source_of(pair.primary, pair.primary, standby=standby)
        changelog = {"tables": ["shop.entry"], "mode": "changelog"}
        sections: dict[str, Any] = {"start": "earliest", "batch": {"merge_rows": 2}}
        sections["targets"] = [{"tables": ["shop.*"]}, changelog]
        config = make_config(source, include=["shop.*"], **sections)
        cursors = MemoryCursorStore()
        shop = Shop(pair.primary)
        shop.write(pair.primary, 6)
        capture(config, cursors=cursors)
        before = cursors.cursor
        assert before is not None
        pair.wait_caught_up()
        new = pair.promote(stop=True)
        history_path(config).unlink()
        with pytest.raises(PositionError, match="go back in time"):
            capture(config, cursors=cursors)
        assert cursors.cursor == before
        shop.write(new, 2)
        # The changelog would have the changes twice: it waits for a decision, the mirror goes on.
        with pytest.raises(TargetSuspendedError, match=r"accept\.overlap"):
            capture(config, cursors=cursors)
        cut = last_cut(LakePaths(config.sink.lake_path, config.name))
        assert cut is not None
        assert set(cut.cursor.suspended) == {"shop.entry_changelog"}
        assert cut.tables["shop.entry"].rows_inserted == 8
        already = {
            decision.kind: decision for decision in cut.ddl if "already applied" in decision.reason
        }
        assert already["create_table"].decision == "recorded"
        assert_equal(memory, config, new, "shop", TABLES)
        accept = config.accept.model_copy(update={"overlap": ("shop.entry_changelog",)})
        capture(config.model_copy(update={"accept": accept}), cursors=cursors)
        assert (
            len(lake_rows(memory, config.sink.lake_path, "shop", "entry_changelog", ["id"]))
            == 8 + 10
        )


@pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.whole]),
    ],
)
def test_k4_on_another_server_a_suspended_table_meets_its_ddl_with_the_columns_before_it(
    flavor: Flavor, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """F65: a change of values that needs a snapshot stays one on the server that takes over; a
    change that can be followed is followed there."""
    with ReplicaPair(flavor) as pair, Forwarder(pair.primary) as address:
        pair.primary.execute_all(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.shift (id INT PRIMARY KEY, at TIME(3))",
            "CREATE TABLE shop.visit (id INT PRIMARY KEY, n INT)",
            "CREATE TABLE shop.other (id INT PRIMARY KEY)",  # it goes on
            "INSERT INTO shop.shift VALUES (1, '10:00:00.600')",
            "INSERT INTO shop.visit VALUES (1, 1)",
        )
        source = source_of(pair.primary, address)
        stop = {"tables": ["shop.visit"], "schema_changes": "stop"}
        careful = make_config(source, include=["shop.*"], start="earliest", targets=[stop])
        cursors = MemoryCursorStore()
        capture(careful, cursors=cursors)
        pair.primary.execute_all(
            "ALTER TABLE shop.shift MODIFY at TIME",  # rounds the row, which no event shows
            "INSERT INTO shop.shift VALUES (2, '11:00:00')",
            "ALTER TABLE shop.visit MODIFY n BIGINT",
            "INSERT INTO shop.visit VALUES (2, 2)",
        )
        with pytest.raises(TargetSuspendedError, match="new snapshot"):
            capture(careful, cursors=cursors)
        assert cursors.cursor is not None
        assert set(cursors.cursor.suspended) == {"shop.shift", "shop.visit"}
        config = make_config(source, include=["shop.*"], start="earliest")
        pair.wait_caught_up()
        new = pair.promote()
        address.point_to(new)
        new.execute_all(
            "INSERT INTO shop.shift VALUES (3, '12:00:00')", "INSERT INTO shop.visit VALUES (3, 3)"
        )
        for _ in range(2):
            with pytest.raises(TargetSuspendedError, match="new snapshot"):
                capture(config, cursors=cursors)
        assert set(cursors.cursor.suspended) == {"shop.shift"}
        lake = config.sink.lake_path
        assert len(lake_rows(memory, lake, "shop", "shift", ["id"])) == 1
        columns = ["id", "n"]
        expected = server_rows(new, "shop", "visit", columns)
        assert lake_rows(memory, lake, "shop", "visit", columns) == expected
