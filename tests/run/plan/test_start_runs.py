"""Whole runs that turn to another server, without a captured table and so without Spark: epochs,
counts, reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import (
    LakeStateError,
    MergeError,
    PositionError,
    ServerChangedError,
    ServerSettingError,
    ServerUnreachableError,
    TableIdNotFoundError,
)
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.run_notes import dump_error_file
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.run.plan.starting import counted
from cdc_pipeline.schema.evolution.statement_context import Shadow
from tests.servers import Server
from tests.servers.pair import ReplicaPair
from tests.support.captures import live

pytestmark = pytest.mark.mysql

MakeConfig = Callable[..., PipelineConfig]
OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


def section(server: Server, standby: Server | None = None, **start: Any) -> dict[str, Any]:
    """Source section; both servers get the account."""
    found = live(server)
    if standby is not None:
        standby.create_replication_user()
        found["standby"] = {"host": standby.host, "port": standby.port, **start}
    return found


def write(server: Server, rows: int = 3) -> None:
    server.execute_all("CREATE DATABASE IF NOT EXISTS a", "CREATE TABLE IF NOT EXISTS a.t (k INT)")
    for row in range(rows):
        server.execute(f"INSERT INTO a.t VALUES ({row})")


def errors_file(config: PipelineConfig) -> Path:
    return config.sink.lake_path / "_cdc" / config.name / "dump_errors.json"


def at_end(server: Server, cursors: MemoryCursorStore, *, epoch: int) -> None:
    """The cursor is of the server, at its end, in the epoch."""
    cursor = cursors.read()
    assert cursor is not None
    assert (cursor.server_id, cursor.address) == (server.server_id, f"{server.host}:{server.port}")
    assert (cursor.journal, cursor.offset) == server.end_position()
    assert cursor.epoch == epoch
    assert cursor.batch_number == 0


def test_p6_k1_runs_follow_the_server_that_answers_each_in_an_epoch_of_its_own(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    primary, standby = start_server("mysql", **OFF), start_server("mysql", **OFF)
    config = make_config(section(primary, standby), include=["nothing.here"])
    cursors = MemoryCursorStore()
    write(primary)
    first = capture(config, cursors=cursors)
    at_end(primary, cursors, epoch=1)
    assert first.plan.start_reasons[0] == f"the primary 127.0.0.1:{primary.port} answers"

    write(standby)
    primary.stop()
    planned = plan(config, cursors=cursors)
    second = capture(config, cursors=cursors)
    at_end(standby, cursors, epoch=2)
    assert planned.start_reasons == second.plan.start_reasons
    reasons = second.plan.start_reasons
    assert "cannot be reached" in reasons[0]
    assert any(reason.startswith("primary and standby were switched") for reason in reasons)
    assert cursors.metadata["start_reasons"] == list(reasons)
    assert second.interval.transactions_seen >= 4

    assert capture(config, cursors=cursors).outcome == "nothing_new"
    at_end(standby, cursors, epoch=2)

    write(standby)
    primary.start()
    write(primary)
    capture(config, cursors=cursors)
    at_end(primary, cursors, epoch=3)


@pytest.mark.whole
def test_k13_a_switch_with_nothing_to_read_keeps_online_schema_changes(
    make_config: MakeConfig,
) -> None:
    with ReplicaPair("mysql") as pair:
        source = section(pair.primary)
        address = {"host": pair.replica.host, "port": pair.replica.port}
        config = make_config({**source, "standby": address}, include=["nothing.here"])
        cursors = MemoryCursorStore()
        write(pair.primary)
        capture(config, cursors=cursors)
        cursor = cursors.read()
        assert cursor is not None
        shadow = Shadow(of="a.t").model_dump_json()
        cursors.write(cursor.model_copy(update={"shadows": {"a._t_gho": shadow}}), {})
        pair.wait_caught_up()
        pair.primary.stop()
        report = capture(config, cursors=cursors)
        at_end(pair.replica, cursors, epoch=2)
    after = cursors.read()
    assert after is not None
    assert report.interval.transactions_seen == 0
    assert after.shadows == {"a._t_gho": shadow}


def test_p4_a_first_run_on_the_standby_starts_where_its_own_start_says(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    primary, standby = start_server("mysql"), start_server("mysql")
    silent = make_config(
        section(primary, standby), include=["nothing.here"], name="silent", start="earliest"
    )
    told = make_config(
        section(primary, standby, start="earliest"),
        include=["nothing.here"],
        name="told",
        start="latest",
    )
    write(standby)
    primary.kill()
    cursors = MemoryCursorStore()
    report = capture(silent, cursors=cursors)
    assert (report.plan.start.journal, report.plan.start.offset) == standby.end_position()
    assert "there is no cursor: the standby without a configured start" in report.plan.start_reasons
    at_end(standby, cursors, epoch=1)
    assert plan(told, cursors=MemoryCursorStore()).start.offset == 4


def test_p5_a_virtual_ip_that_moved_is_followed_after_more_than_two_dump_errors(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    old, new = start_server("mysql", **OFF), start_server("mysql", **OFF)
    cursors = MemoryCursorStore()
    write(old)
    capture(make_config(section(old), include=["nothing.here"]), cursors=cursors)
    cursor = cursors.read()
    assert cursor is not None
    # The address leads to the new server now.
    cursors.write(cursor.model_copy(update={"address": f"{new.host}:{new.port}"}), {})
    write(new)
    config = make_config(section(new), include=["nothing.here"])
    for number in (1, 2, 3):
        with pytest.raises(ServerChangedError, match=f"after {3 - number} more"):
            capture(config, cursors=cursors)
        assert json.loads(errors_file(config).read_text())["count"] == number
    planned = plan(config, cursors=cursors)
    assert any("search by time" in reason for reason in planned.start_reasons)
    assert json.loads(errors_file(config).read_text())["count"] == 3, "planning writes nothing"
    report = capture(config, cursors=cursors)
    assert report.plan.start_reasons == planned.start_reasons
    at_end(new, cursors, epoch=2)
    assert json.loads(errors_file(config).read_text())["count"] == 0


def test_k7_a_standby_that_lags_publishes_nothing_and_moves_no_cursor(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    primary, standby = start_server("mysql", **OFF), start_server("mysql", **OFF)
    source = section(primary, standby) | {"fallback_interval_s": 0}
    config = make_config(source, include=["nothing.here"])
    cursors = MemoryCursorStore()
    write(primary)
    capture(config, cursors=cursors)
    cursor = cursors.read()
    assert cursor is not None
    ahead = cursor.model_copy(update={"timestamp_s": cursor.timestamp_s + 3600})
    cursors.write(ahead, {})
    primary.kill()
    assert any(
        "the end of the log at" in reason for reason in plan(config, cursors=cursors).start_reasons
    )
    with pytest.raises(PositionError, match="lags"):
        capture(config, cursors=cursors)
    assert cursors.read() == ahead


def test_p5_failed_runs_are_counted_and_a_whole_one_resets_the_count(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    server = start_server("mysql")
    config = make_config(section(server), include=["nothing.here"])
    server.stop()
    for number in (1, 2):
        with pytest.raises(ServerUnreachableError):
            capture(config, cursors=MemoryCursorStore())
        assert json.loads(errors_file(config).read_text())["count"] == number
    server.start()
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors)
    assert json.loads(errors_file(config).read_text()) == DumpErrors().model_dump()
    with pytest.raises(PositionError):
        capture(config, cursors=cursors, bound=_bound_beyond(server))
    assert json.loads(errors_file(config).read_text())["count"] == 1


def _bound_beyond(server: Server) -> Any:
    from cdc_pipeline.config.pipeline_config import PositionConfig

    journal, offset = server.end_position()
    return PositionConfig(journal=journal, offset=offset + 10_000)


def test_p3_a_server_that_begins_to_use_gtids_and_stops_again_is_followed(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="ON")
    config = make_config(section(server), include=["nothing.here"])
    cursors = MemoryCursorStore()
    modes = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")

    def run() -> str:
        write(server)
        capture(config, cursors=cursors)
        at_end(server, cursors, epoch=1)
        cursor = cursors.read()
        assert cursor is not None
        return cursor.gtid_set

    assert run() == ""
    for mode in modes[1:]:
        server.execute(f"SET GLOBAL gtid_mode = '{mode}'")
    assert run() == server.gtid_set() != ""
    assert run() == server.gtid_set()
    for mode in reversed(modes[:-1]):
        server.execute(f"SET GLOBAL gtid_mode = '{mode}'")
    assert run() == ""
    for mode in modes[1:]:
        server.execute(f"SET GLOBAL gtid_mode = '{mode}'")
    assert run() == server.gtid_set()
    assert any("the server has begun to use GTIDs" in reason for reason in _reasons(cursors))


def test_k22_gtids_that_are_switched_off_before_they_are_read_have_a_way_out(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    """K22, F22: the error names the statement that lets the server send them, and that works from
    there."""
    server = start_server("mysql")
    config = make_config(section(server), include=["nothing.here"])
    cursors = MemoryCursorStore()
    write(server)
    capture(config, cursors=cursors)
    write(server)
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
        server.execute(f"SET GLOBAL gtid_mode = '{mode}'")
    with pytest.raises(ServerSettingError, match="gtid_mode is OFF") as caught:
        capture(config, cursors=cursors)
    (statement,) = re.findall(r"SET GLOBAL gtid_mode = '\w+'", str(caught.value.next_step))
    server.execute(statement)
    capture(config, cursors=cursors)
    server.execute("SET GLOBAL gtid_mode = 'OFF'")
    write(server)
    capture(config, cursors=cursors)
    at_end(server, cursors, epoch=1)


def _reasons(cursors: MemoryCursorStore) -> list[str]:
    reasons = cursors.metadata["start_reasons"]
    assert isinstance(reasons, list)
    return reasons


def test_p7_rows_without_a_table_map_are_remembered_for_the_next_start(tmp_path: Path) -> None:
    store = dump_error_file(LakePaths(tmp_path, "shop"))
    with pytest.raises(TableIdNotFoundError), counted(store):
        raise TableIdNotFoundError("rows without a table map", at=("binlog.000001", 500))
    assert store.read() == DumpErrors(
        count=1, table_id_not_found=True, last="rows without a table map"
    )
    with pytest.raises(MergeError), counted(store):
        raise MergeError("Spark fell over")
    assert store.read().table_id_not_found
    with counted(store):
        pass
    assert store.read() == DumpErrors()


def test_an_error_that_cannot_be_counted_is_raised_all_the_same(tmp_path: Path) -> None:
    paths = LakePaths(tmp_path, "shop")
    paths.state.mkdir(parents=True)
    paths.dump_errors.write_text("damaged")
    with pytest.raises(MergeError), counted(dump_error_file(paths)):
        raise MergeError("Spark fell over")


def test_p5_the_count_is_replaced_whole_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    store = dump_error_file(LakePaths(tmp_path, "shop"))
    assert store.read() == DumpErrors()
    store.write(DumpErrors())
    assert not (tmp_path / "_cdc").exists(), "nothing to remember, nothing written"
    store.write(DumpErrors(count=2, table_id_not_found=True, last="lost"))
    assert store.read() == DumpErrors(count=2, table_id_not_found=True, last="lost")
    assert [file.name for file in (tmp_path / "_cdc" / "shop").iterdir()] == ["dump_errors.json"]
    for damaged in ("{", '{"count": -1}'):
        (tmp_path / "_cdc" / "shop" / "dump_errors.json").write_text(damaged)
        with pytest.raises(LakeStateError) as caught:
            store.read()
        assert caught.value.next_step
