"""Bounds on real servers: a GTID, a time, and logs that only others write to. No table of these
tests is captured, so that no JVM starts; the cursor tells where each run ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import (
    GtidBoundConfig,
    PipelineConfig,
    SecondsBoundConfig,
    TimeBoundConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.errors import PositionError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from tests.servers import Server, at_rest
from tests.support.captures import here, live

MakeConfig = Callable[..., PipelineConfig]
FLAVORS = pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)


@pytest.fixture
def config(server: Server, fresh_database: str, make_config: MakeConfig) -> PipelineConfig:
    """Captures tables that do not exist, from the server's end on; there is a table `t` that it
    does not capture."""
    server.execute(
        f"CREATE TABLE `{fresh_database}`.t (a INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)"
    )
    return make_config(live(server), include=["nothing.here"], start=start_at_rest(server))


def start_at_rest(server: Server) -> dict[str, Any]:
    """Start section: where the log ends and stays."""
    journal, offset = at_rest(server)
    return {"journal": journal, "offset": offset}


def insert(server: Server, database: str, *before: str) -> tuple[str, tuple[str, int], str]:
    """One transaction, in a session that runs `before` first: its GTID, and the log's end and set
    after it."""
    was = parse_gtid_set(server.gtid_set(), server.flavor)
    connection = server.root_connection(database=database)
    with connection.cursor() as cursor:
        for statement in (*before, "INSERT INTO t (b) VALUES (REPEAT('x', 1000))"):
            cursor.execute(statement)
    connection.close()
    now: Any = parse_gtid_set(server.gtid_set(), server.flavor)
    return str(now.subtract(was)), server.end_position(), str(now)


@FLAVORS
def test_a_gtid_ends_a_run_after_its_transaction(
    start_server: Callable[..., Server], make_config: MakeConfig, flavor: str
) -> None:
    """With a tag (MySQL) or a second domain (MariaDB) among them: on a server that no other test
    looks at."""
    server = start_server(flavor)
    fresh_database = "other"
    server.execute_all(
        "CREATE DATABASE other",
        "CREATE TABLE other.t (a INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)",
    )
    config = make_config(live(server), include=["nothing.here"], start=start_at_rest(server))
    tag = (
        ("SET gtid_next = 'AUTOMATIC:batch'",)
        if server.flavor == "mysql"
        else ("SET gtid_domain_id = 7",)
    )
    done = [insert(server, fresh_database, *before) for before in ((), (), tag, (), ())]
    cursors = MemoryCursorStore()
    for index, seen in ((1, 2), (2, 1), (3, 1)):
        gtid, end, executed = done[index]
        bound = GtidBoundConfig(gtid=gtid.upper() if index == 1 else gtid)
        made = plan(config, cursors=cursors, bound=bound)
        assert bound.gtid in made.limit
        assert (made.end.journal, made.end.offset) == done[-1][1]
        report = capture(config, cursors=cursors, bound=bound)
        assert report.outcome == "nothing_new"
        assert bound.gtid in report.reason
        assert report.interval.transactions_seen == seen
        assert report.cursor is not None
        assert (report.cursor.journal, report.cursor.offset) == end
        assert report.cursor.gtid_set == executed
        assert not report.spark_started
    before = report.cursor
    again = capture(config, cursors=cursors, bound=GtidBoundConfig(gtid=done[1][0]))
    assert "was executed before the start" in again.reason
    assert again.interval.transactions_seen == 0
    assert cursors.cursor == before
    rest = capture(config, cursors=cursors)
    assert rest.interval.transactions_seen == 1
    assert rest.cursor is not None
    assert rest.cursor.gtid_set == done[-1][2]


def test_a_time_ends_a_run_before_what_was_committed_after_it(
    server: Server, fresh_database: str, config: PipelineConfig
) -> None:
    """MySQL: the commit time of the GTID event, whatever the header says; MariaDB: the header of
    the GTID event."""
    first = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)

    def at(later_s: float) -> str:
        moment = first + timedelta(seconds=later_s)
        if server.flavor == "mariadb":
            return f"SET timestamp = {moment.timestamp():.0f}"
        return f"SET original_commit_timestamp = {round(moment.timestamp() * 1e6)}"

    done = [insert(server, fresh_database, at(later_s)) for later_s in (0, 10, 20, 5)]
    cursors = MemoryCursorStore()

    def run(later_s: float) -> tuple[int, tuple[str, int]]:
        bound = TimeBoundConfig(time=first + timedelta(seconds=later_s))
        report = capture(config, cursors=cursors, bound=bound)
        assert bound.time.isoformat() in report.reason
        assert report.cursor is not None
        return report.interval.transactions_seen, (report.cursor.journal, report.cursor.offset)

    assert run(-0.001) == (0, (config.start.journal, config.start.offset))  # type: ignore[union-attr]
    assert run(10) == (2, done[1][1])
    assert run(5) == (0, done[1][1])
    assert run(19.999) == (0, done[1][1])
    report = capture(
        config, cursors=cursors, bound=TimeBoundConfig(time=first + timedelta(seconds=20))
    )
    assert report.interval.transactions_seen == 2
    assert "the end of the log at planning time" in report.reason
    assert report.cursor is not None
    assert (report.cursor.journal, report.cursor.offset) == done[3][1]


# -- a log that is quiet, or that only others write to ---------------------------------------------


@contextmanager
def busy_writer(server: Server, database: str) -> Iterator[None]:
    """Someone else writes to `t` all the time, with a journal's end now and then."""
    stop, failed = threading.Event(), []

    def write() -> None:
        connection = server.root_connection(database=database)
        try:
            with connection.cursor() as cursor:
                count = 0
                while not stop.is_set():
                    cursor.execute("INSERT INTO t (b) VALUES (REPEAT('x', 3000))")
                    count += 1
                    if count % 500 == 0:
                        cursor.execute("FLUSH BINARY LOGS")
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        assert not failed


def test_a_log_that_only_others_write_to_ends_by_position(
    server: Server, fresh_database: str, config: PipelineConfig
) -> None:
    """Every run ends at the place that was planned, while the log goes on; the runs join."""
    cursors = MemoryCursorStore()
    reports = []
    with busy_writer(server, fresh_database):
        while len(reports) < 4:
            report = capture(config, cursors=cursors)
            if report.interval.transactions_seen < 20:
                continue  # the writer has only just begun
            reports.append(report)
            assert report.outcome == "nothing_new"
            assert not report.spark_started
            assert report.cursor is not None
            assert report.cursor.position.order == report.plan.end.order
            at = parse_gtid_set(report.cursor.gtid_set, server.flavor)
            while parse_gtid_set(server.gtid_set(), server.flavor) == at:
                pass  # the writer goes on: its next transaction comes
    for before, after in pairwise(reports):
        assert after.interval.start.order >= before.interval.end.order
    last = capture(config, cursors=cursors)
    assert last.cursor is not None
    assert parse_gtid_set(last.cursor.gtid_set, server.flavor) == parse_gtid_set(
        server.gtid_set(), server.flavor
    )


@pytest.mark.mysql
def test_without_gtids_a_log_that_only_others_write_to_ends_by_position(
    start_server: Callable[..., Server], make_config: MakeConfig
) -> None:
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute_all(
        "CREATE DATABASE other",
        "CREATE TABLE other.t (a INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)",
    )
    config = make_config(live(server), include=["nothing.here"], start=here(server))
    cursors = MemoryCursorStore()
    runs = 0
    with busy_writer(server, "other"):
        while runs < 2:
            report = capture(config, cursors=cursors)
            runs += report.interval.transactions_seen >= 20
            assert report.cursor is not None
            assert report.cursor.position.order == report.plan.end.order
            assert report.cursor.gtid_set == ""
    with pytest.raises(PositionError, match="the log's GTIDs are unknown"):
        capture(
            config,
            cursors=cursors,
            bound=GtidBoundConfig(gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1"),
        )


def test_a_quiet_log_ends_by_position(
    server: Server, fresh_database: str, config: PipelineConfig
) -> None:
    """Nothing at all, and nothing but the journals' own marks. MariaDB writes one more of them, a
    checkpoint, in its own time after each new journal."""
    cursors = MemoryCursorStore()
    for _ in range(10):
        still = capture(config, cursors=cursors)
        assert still.interval.transactions_seen == 0
        if "and so is the cursor" in still.reason:
            break
    else:
        raise AssertionError(still.reason)
    for _ in range(3):
        server.flush_journal()
    for bound in (None, TransactionsBoundConfig(transactions=1), SecondsBoundConfig(seconds=1e-6)):
        server.flush_journal()
        report = capture(config, cursors=cursors, bound=bound)
        assert report.interval.transactions_seen == 0
        assert report.cursor is not None
        assert report.cursor.journal == server.end_position()[0]
        assert report.cursor.position.order == report.plan.end.order
        assert "the end of the log at planning time" in report.reason
