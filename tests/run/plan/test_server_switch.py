"""The history of a run, and what it says of the log of a replica that takes over without GTIDs
(K7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import (
    LiveSourceConfig,
    PipelineConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.errors import LakeStateError, SourceIdentityError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.start.context import OverlapResult
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.server_switch import build_overlap, history_path, read_history
from cdc_pipeline.source.live.live import LiveSource
from tests.servers import ReplicaPair, Server

pytestmark = [pytest.mark.mysql]

ACCOUNT = ("cdc", "cdc-Secret-1")


def config_of(server: Server, lake: Path, **sections: Any) -> PipelineConfig:
    user, password = ACCOUNT
    live = {
        "kind": "live",
        "host": server.host,
        "port": server.port,
        "user": user,
        "password": password,
    }
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": live,
            "start": "earliest",
            # No table of the log is captured: no JVM is started.
            "tables": {"include": ["elsewhere.*"], "allow_empty": True},
            "sink": {"lake_path": lake},
            **sections,
        }
    )


@pytest.fixture
def pair() -> Iterator[ReplicaPair]:
    with ReplicaPair("mysql", gtid=False) as pair:
        pair.primary.create_replication_user(*ACCOUNT)
        pair.primary.execute_all(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY, n INT)"
        )
        for number in range(5):
            pair.primary.execute(f"INSERT INTO shop.t VALUES ({number}, 0)")
        pair.wait_caught_up()
        yield pair


def overlap_with(
    config: PipelineConfig, server: Server, cursors: MemoryCursorStore, *, since_us: int = 0
) -> tuple[OverlapResult, LiveSource]:
    assert cursors.cursor is not None
    other = config_of(server, config.sink.lake_path)
    assert isinstance(other.source, LiveSourceConfig)
    source = LiveSource(other.source, pipeline_name="shop")
    overlap = build_overlap(config, source, cursors.cursor)
    assert overlap is not None
    return overlap(source.earliest_position(), since_us), source


def test_k7_a_replica_that_has_all_is_read_on_from_there(pair: ReplicaPair, tmp_path: Path) -> None:
    config = config_of(pair.primary, tmp_path / "lake")
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors, bound=TransactionsBoundConfig(transactions=4))
    pair.primary.flush_journal()
    pair.primary.execute("UPDATE shop.t SET n = n + 1")
    capture(config, cursors=cursors)  # the history goes on over runs and journals
    pair.wait_caught_up()
    end = pair.replica.end_position()
    pair.promote()
    pair.primary.execute("UPDATE shop.t SET n = n + 1")
    result, source = overlap_with(config, pair.primary, cursors)
    assert result.until_us is None, result.reason
    assert (result.position.journal, result.position.offset) == end
    source.validate_position(result.position)
    history = read_history(history_path(config))
    assert cursors.cursor is not None
    assert (history.journal, history.offset) == cursors.cursor.position.order
    assert len(history.entries) == len(set(history.entries["high"].tolist()))


def test_k7_a_replica_that_lacks_some_holds_the_cuts_back(
    pair: ReplicaPair, tmp_path: Path
) -> None:
    config = config_of(pair.primary, tmp_path / "lake")
    cursors = MemoryCursorStore()
    end = pair.replica.end_position()
    pair.stop_replication()
    pair.primary.execute("INSERT INTO shop.t VALUES (100, 0)")  # never reaches the replica
    capture(config, cursors=cursors)
    pair.promote()
    pair.primary.execute("INSERT INTO shop.t VALUES (200, 0)")
    result, _ = overlap_with(config, pair.primary, cursors)
    last_us = int(read_history(history_path(config)).entries["commit_us"][-1])
    assert result.until_us is not None
    assert result.until_us >= last_us
    assert (result.position.journal, result.position.offset) == end


def test_k7_a_log_with_none_of_the_last_transactions_is_refused(
    pair: ReplicaPair, tmp_path: Path
) -> None:
    """As of a replica with log_replica_updates = OFF: what came last may be missing, too."""
    config = config_of(pair.primary, tmp_path / "lake")
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors)
    pair.promote()
    pair.primary.reset_log()
    pair.primary.execute("INSERT INTO shop.t VALUES (200, 0)")
    with pytest.raises(SourceIdentityError, match="none of the last transactions"):
        overlap_with(config, pair.primary, cursors)
    # What came before the time that was searched for is not looked for: a log that was idle, then
    # rotated, takes the cursor behind its last transaction.
    result, source = overlap_with(config, pair.primary, cursors, since_us=2**62)
    assert result.position == source.earliest_position()


@pytest.mark.whole
def test_k7_what_comes_after_the_cursor_is_no_history(pair: ReplicaPair, tmp_path: Path) -> None:
    """A run died between the history and its cursor."""
    config = config_of(pair.primary, tmp_path / "lake")
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors, bound=TransactionsBoundConfig(transactions=4))
    early = cursors.cursor
    capture(config, cursors=cursors)
    assert len(read_history(history_path(config)).entries) > 4
    pair.promote(stop=True)
    result, source = overlap_with(config, pair.primary, MemoryCursorStore(early))
    assert result.until_us is None
    assert "4 transactions" in result.reason
    # Run again from the early cursor: the entries are not kept twice.
    assert early is not None
    again = MemoryCursorStore(early)
    pair.replica.start()
    capture(config, cursors=again)
    entries = read_history(history_path(config)).entries
    assert len(entries) == len(set(entries["high"].tolist()))
    assert result.position.offset > source.earliest_position().offset


def test_k7_no_history_a_damaged_one_and_one_with_a_gap(pair: ReplicaPair, tmp_path: Path) -> None:
    config = config_of(pair.primary, tmp_path / "lake")
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors, bound=TransactionsBoundConfig(transactions=4))
    path = history_path(config)
    early = path.read_bytes()
    capture(config, cursors=cursors)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(LakeStateError, match="damaged"):
        overlap_with(config, pair.replica, cursors)
    path.unlink()
    result, source = overlap_with(config, pair.replica, cursors)
    assert result.position == source.earliest_position()
    assert cursors.cursor is not None
    assert result.until_us is not None
    assert result.until_us >= cursors.cursor.timestamp_s * 1_000_000
    # One that ends before the cursor lacks what comes next: nothing is added to it.
    path.write_bytes(early)
    pair.primary.execute("INSERT INTO shop.t VALUES (100, 0)")
    capture(config, cursors=cursors)
    assert len(read_history(path).entries) == 1


def test_k7_a_log_with_gtids_keeps_no_history(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server("mysql")
    server.create_replication_user(*ACCOUNT)
    config = config_of(server, tmp_path / "lake")
    cursors = MemoryCursorStore()
    for number in range(2):
        server.execute(f"CREATE DATABASE shop_{number}")
        capture(config, cursors=cursors)
        assert cursors.cursor is not None
        assert (cursors.cursor.journal, cursors.cursor.offset) == server.end_position()
        assert not history_path(config).exists()
