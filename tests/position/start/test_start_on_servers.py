"""The start on real servers: GTIDs switched on and off while it runs, search by time, primary and
standby."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, TimeConfig
from cdc_pipeline.errors import ServerSettingError, ServerUnreachableError, SourceError
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.gtid.sets import executed_set, parse_gtid_set
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.context import StartDecision
from cdc_pipeline.position.start.lookup import search_by_time
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.source.archive.archive import ArchiveSource
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.source.live.standby import choose_server
from tests.servers import Flavor, Server
from tests.support.live_source import (
    Event,
    archived_events,
    events_of,
    live_config,
    live_source,
    place,
)

StartServer = Callable[..., Server]
FLAVORS = pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
MODES = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


@dataclass
class Consumer:
    """Reads run after run from where the decision table says; holds what was read and the
    cursor."""

    source: LiveSource
    cursor: CursorState | None = None
    decision: StartDecision | None = None

    def __post_init__(self) -> None:
        self.events: list[Event] = []

    def run(self, *, until: Position | None = None) -> StartDecision:
        """One run to `until`, or the end of the log."""
        decision = resolve_start(cursor=self.cursor, start="earliest", source=self.source)
        end = until or self.source.end_position()
        gtid_set = decision.position.gtid_set
        last = decision.position
        for chunk in self.source.chunks(decision.read_from, end):
            self.events += events_of([chunk])
            gtid_set = _with(gtid_set, chunk, self.source.identity.flavor)
            last = Position(
                chunk.journal,
                int(chunk.events["next_offset"][-1]),
                timestamp_s=int(chunk.events["timestamp_s"][-1]),
                journal_created_s=chunk.journal_format.created_s,
            )
        at = Position(
            last.journal,
            last.offset,
            last.timestamp_s,
            gtid_set=gtid_set,
            journal_created_s=last.journal_created_s,
        )
        if not self.source.uses_gtids:
            at = replace(at, gtid_set="")  # as `pipeline.place` does
        self.cursor = cursor_state("shop", self.source.identity, at)
        return decision


def _with(gtid_set: str, chunk: Chunk, flavor: Flavor) -> str:
    from cdc_pipeline.binlog.events import gtid

    before: Any = parse_gtid_set(gtid_set, flavor)
    return str(
        before.union(executed_set(gtid.executed(chunk, 0, len(chunk.events)), flavor=flavor))
    )


def insert(server: Server, rows: int = 2) -> None:
    server.execute("CREATE DATABASE IF NOT EXISTS a")
    server.execute("CREATE TABLE IF NOT EXISTS a.t (k INT PRIMARY KEY AUTO_INCREMENT)")
    for _ in range(rows):
        server.execute("INSERT INTO a.t VALUES ()")


def set_mode(server: Server, to: str) -> None:
    """Step by step, as the server demands."""
    now, then = MODES.index(server.variable("gtid_mode")), MODES.index(to)
    step = 1 if then > now else -1
    for index in range(now + step, then + step, step):
        server.execute(f"SET GLOBAL gtid_mode = '{MODES[index]}'")


@pytest.mark.mysql
def test_p3_gtids_are_switched_on_and_off_and_on_and_nothing_is_lost_or_doubled(
    start_server: StartServer,
) -> None:
    """The set stays whole, and no transaction without a GTID is passed over between those with
    one.
    """
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="ON")
    insert(server)
    consumer = Consumer(live_source(server))
    assert consumer.run().position.gtid_set == ""
    for mode in MODES[1:]:
        insert(server)
        set_mode(server, mode)
        insert(server)
        consumer.run()
    assert consumer.cursor is not None
    assert consumer.cursor.gtid_set == server.gtid_set()

    # A place with GTIDs before it, of which the cursor holds none: as a first run while GTIDs were
    # off would leave it.
    insert(server)
    consumer.cursor = consumer.cursor.model_copy(update={"gtid_set": ""})
    decision = consumer.run()
    assert decision.reasons[0].startswith("the server has begun to use GTIDs")
    assert consumer.cursor.gtid_set == server.gtid_set()

    # Off and on again between two runs: those without a GTID stand after the cursor's set, and
    # before others with one.
    set_mode(server, "OFF")
    insert(server, 3)
    server.flush_journal()
    insert(server, 3)
    set_mode(server, "ON")
    insert(server)
    source, cursor = consumer.source, consumer.cursor
    with pytest.raises(ServerSettingError, match="gtid_mode is ON") as refused:
        # by the cursor's set the server would send what comes after them, and say nothing
        consumer.run()
    by_set = list(source.chunks(cursor.position, source.end_position()))
    assert (
        sum(int(np.count_nonzero(chunk.events["event_type"] == EventType.XID)) for chunk in by_set)
        == 2
    )
    assert "ON_PERMISSIVE" in str(refused.value.next_step)
    consumer.events = [event for event in consumer.events if place(event) < cursor.position.order]
    set_mode(server, "ON_PERMISSIVE")
    consumer.run()
    assert consumer.cursor.gtid_set == ""
    set_mode(server, "ON")
    consumer.run()
    assert consumer.cursor.gtid_set == server.gtid_set()

    # The same, with a run while they are off.
    set_mode(server, "OFF")
    insert(server)
    consumer.run()
    assert consumer.cursor.gtid_set == ""
    set_mode(server, "ON")
    insert(server)
    decision = consumer.run()
    assert decision.position.gtid_set
    assert consumer.cursor.gtid_set == server.gtid_set()

    end = consumer.source.end_position()
    expected = archived_events(server.journals(), Position(server.journals()[0].name, 4), end)
    assert consumer.events == expected


@FLAVORS
def test_p3_a_purged_journal_whose_transactions_are_all_known_is_no_gap(
    start_server: StartServer, flavor: Flavor
) -> None:
    server = start_server(flavor)
    insert(server)
    consumer = Consumer(live_source(server))
    consumer.run()
    before = len(consumer.events)
    server.flush_journal()
    # MariaDB keeps journals that its crash recovery may still need
    while len(server.journals()) > 1:
        server.purge_to(server.end_position()[0])
    insert(server, 3)
    decision = consumer.run()
    assert decision.reasons[0].startswith("the cursor's journal was purged")
    assert not decision.epoch_grows
    end = consumer.source.end_position()
    expected = archived_events(server.journals(), Position(server.journals()[0].name, 4), end)
    commits = [event for event in consumer.events[before:] if event.fields[-1] == 16]
    assert commits == [event for event in expected if event.fields[-1] == 16]
    assert len(commits) == 3


def begins(chunks: Iterable[Chunk]) -> list[tuple[tuple[int, int], int]]:
    """(order, commit time) of every transaction, in the order of the log."""
    grouping = TransactionPass()
    found = []
    for chunk in chunks:
        for row in grouping.apply(chunk).starts.tolist():
            event = chunk.events[row]
            found.append(
                (Position(chunk.journal, int(event["offset"])).order, int(event["commit_ts_us"]))
            )
    return found


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("flavor", "options"),
    [
        pytest.param("mysql", {}, id="mysql"),
        pytest.param("mariadb", {}, id="mariadb"),
        pytest.param(
            "mysql",
            {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"},
            marks=pytest.mark.whole,
            id="mysql without GTIDs",
        ),
    ],
)
def test_k6_live_server_and_archive_find_the_first_commit_at_or_after_a_time(
    start_server: StartServer, tmp_path: Path, flavor: Flavor, options: dict[str, str]
) -> None:
    server = start_server(flavor, **options)
    insert(server, 1)
    with server.root_connection() as slow, slow.cursor() as cursor:
        for number in range(3):
            begun, beside = threading.Event(), server.root_connection()
            cursor.execute("BEGIN")
            # its events carry this second, it commits in a later one
            cursor.execute("INSERT INTO a.t VALUES ()")
            begun.set()
            until = time.monotonic() + 1.1
            while time.monotonic() < until:
                beside.cursor().execute("INSERT INTO a.t VALUES ()")
                threading.Event().wait(0.2)
            cursor.execute("COMMIT")
            beside.close()
            if number < 2:
                server.flush_journal()
    live = live_source(server)  # makes an account, which is logged too
    server.copy_journals(tmp_path / "archive")
    archive = ArchiveSource(tmp_path / "archive")
    transactions = begins(archive.chunks(archive.earliest_position(), archive.end_position()))
    times = sorted({commit_us for _, commit_us in transactions})
    asked = {t + step for t in times[:: max(1, len(times) // 6)] for step in (0, 1)} | {
        times[0] - 10**7,
        times[-1],
    }
    for t_us in sorted(asked):
        expected = next(((order) for order, commit_us in transactions if commit_us >= t_us), None)
        for source in (archive, live):
            found = search_by_time(source, t_us=t_us)
            assert (None if found is None else found.order) == expected, (t_us, source)
    # As a configured start: with the GTIDs executed before it, and readable from there.
    from datetime import UTC, datetime

    middle_us = transactions[len(transactions) // 2][1]
    start = TimeConfig(time=datetime.fromtimestamp(middle_us / 1e6, tz=UTC))
    decision = resolve_start(cursor=None, start=start, source=live)
    assert decision.position == resolve_start(cursor=None, start=start, source=archive).position
    events = events_of(live.chunks(decision.read_from, live.end_position()))
    expected_events = archived_events(server.journals(), decision.position, live.end_position())
    assert [event for event in events if place(event) >= decision.position.order] == expected_events
    if flavor == "mysql" and not options:
        set_of_rest = decision.position.gtid_set
        for chunk in live.chunks(decision.read_from, live.end_position()):
            set_of_rest = _with(set_of_rest, chunk, "mysql")
        assert set_of_rest == server.gtid_set()


@pytest.mark.mysql
@pytest.mark.mariadb
def test_p6_the_standby_answers_while_the_primary_does_not(start_server: StartServer) -> None:
    primary, standby = start_server("mysql"), start_server("mysql")
    for server in (primary, standby):
        server.create_replication_user()
    config = LiveSourceConfig(
        **live_config(primary).model_dump(exclude={"standby", "password"}),
        password="cdc-Secret-1",  # type: ignore[arg-type]
        standby={"host": standby.host, "port": standby.port, "start": "latest"},  # type: ignore[arg-type]
    )
    assert config.addresses == (f"127.0.0.1:{primary.port}", f"127.0.0.1:{standby.port}")
    chosen, reason = choose_server(config)
    assert chosen.port == primary.port
    assert reason == f"the primary 127.0.0.1:{primary.port} answers"

    # One that answers and refuses is a mistake to be told, not to be passed over.
    with pytest.raises(SourceError, match="refuses the account") as refused:
        choose_server(config.model_copy(update={"user": "nobody"}))
    assert not isinstance(refused.value, ServerUnreachableError)

    primary.kill()
    chosen, reason = choose_server(config)
    assert chosen.port == standby.port
    assert "cannot be reached" in reason
    assert LiveSource(chosen, pipeline_name="shop").identity.server_id == standby.server_id

    standby.kill()
    with pytest.raises(ServerUnreachableError) as caught:
        choose_server(config)
    assert all(address in str(caught.value) for address in config.addresses)
