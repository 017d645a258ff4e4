"""A server that was restored to an earlier state and went on otherwise never reads as the same log
(K24, F5).

Whole runs, nearly all without a captured table and so without Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SourceIdentityError
from cdc_pipeline.operations.cursor.cursor_change import apply_set, plan_set
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from tests.run.plan.test_start_runs import OFF, section, write
from tests.servers import Server, at_rest
from tests.support.comparison import lake_rows, server_rows
from tests.support.memory_sink import MemoryLake


@pytest.fixture(
    params=[
        pytest.param(("mysql", {}), id="mysql", marks=pytest.mark.mysql),
        pytest.param(
            ("mysql", OFF), id="mysql-without-gtids", marks=[pytest.mark.mysql, pytest.mark.whole]
        ),
        pytest.param(("mariadb", {}), id="mariadb", marks=pytest.mark.mariadb),
    ]
)
def own_server(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> Server:
    """A server of the test's own, since it is set back."""
    flavor, options = request.param
    return start_server(flavor, **options)


def hot_copy(server: Server, to: Path) -> None:
    """A snapshot of the disk while the server runs; nothing is written meanwhile."""
    with server.root_connection() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        at_rest(server)
        shutil.copytree(
            server.datadir, to, ignore=shutil.ignore_patterns("*.sock*", "*.pid", "*.lock")
        )


def set_back(server: Server, copy: Path) -> None:
    server.kill()
    shutil.rmtree(server.datadir)
    shutil.copytree(copy, server.datadir)
    server.start()


def test_k24_f5_a_server_that_was_set_back_and_went_on_stops_by_name(
    own_server: Server, make_config: Callable[..., PipelineConfig], tmp_path: Path
) -> None:
    """Its GTIDs have passed the cursor's by then, its log is longer, and its journal of that name
    is the same one."""
    server = own_server
    account = section(server)
    write(server)
    hot_copy(server, tmp_path / "copy")
    journal, short = server.end_position()
    write(server, rows=9)
    config = make_config(account, include=["nothing.here"])
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors)
    cursor = cursors.read()
    assert cursor is not None
    assert cursor.last_event is not None
    assert cursor.offset == cursor.last_event.offset + cursor.last_event.size_bytes
    assert plan(config, cursors=cursors).start.offset == cursor.offset, "the same log goes on"

    set_back(server, tmp_path / "copy")
    write(server, rows=30)
    assert server.end_position() > (cursor.journal, cursor.offset)
    with_event = cursor
    without_event = cursor.model_copy(update={"last_event": None})
    for known in (with_event, without_event):
        for run in (plan, capture):
            with pytest.raises(
                SourceIdentityError, match="restored to an earlier state"
            ) as stopped:
                run(config, cursors=MemoryCursorStore(known))
            assert not stopped.value.retryable
            assert (stopped.value.journal, stopped.value.offset) == (journal, cursor.offset)
            assert (stopped.value.expected, stopped.value.got) == (
                f"a journal of at least {cursor.offset} bytes",
                f"{short} bytes",
            )
            assert f"cursor set {config.name} --from latest" in str(stopped.value.next_step)

    # The way out that the error names.
    _begun_again(config, cursors, server, epoch=2, why="restored to an earlier state")


def test_k24_f5_an_archive_that_was_filled_again_after_a_set_back_stops_by_name(
    own_server: Server, make_config: Callable[..., PipelineConfig], tmp_path: Path
) -> None:
    """The cursor was written live; the archive holds journals of the other history, or the lost
    ones."""
    server = own_server
    account = section(server)
    write(server)
    hot_copy(server, tmp_path / "copy")
    write(server, rows=9)
    live = make_config(account, include=["nothing.here"])
    cursors = MemoryCursorStore()
    capture(live, cursors=cursors)
    lost = tmp_path / "lost"
    lost.mkdir()
    server.copy_journals(lost)
    of_lost = make_config({"kind": "archive", "directory": lost}, include=["nothing.here"])
    assert capture(of_lost, cursors=cursors).outcome == "nothing_new", (
        "the archive's log is the one that was read live"
    )

    set_back(server, tmp_path / "copy")
    write(server, rows=30)
    other = tmp_path / "other"
    other.mkdir()
    server.copy_journals(other)
    of_other = make_config({"kind": "archive", "directory": other}, include=["nothing.here"])
    with pytest.raises(SourceIdentityError, match="restored to an earlier state") as stopped:
        capture(of_other, cursors=cursors)
    assert f"if {stopped.value.journal} is an incomplete copy" in str(stopped.value.next_step)


def test_k1_f147_journals_of_another_numbering_are_another_log_and_the_cursor_begins_an_epoch(
    own_server: Server, make_config: Callable[..., PipelineConfig]
) -> None:
    """Another base name whose numbers have passed the cursor's; then a reset after which the server
    is told what it executed. Later changes would have seqs below those of the lake's rows."""
    server = own_server
    config = make_config(section(server), include=["nothing.here"])
    write(server)
    server.flush_journal()
    write(server)
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors)

    server.restart({"log_bin": "journal"})
    for _ in range(4):
        server.flush_journal()
        write(server)
    for run in (plan, capture):
        with pytest.raises(SourceIdentityError, match="not the one that the cursor came from"):
            run(config, cursors=cursors)
    _begun_again(config, cursors, server, epoch=2)

    server.flush_journal()
    capture(config, cursors=cursors)
    server.reset_log(keeps_gtids=True)
    with pytest.raises(SourceIdentityError, match="ahead of the log"):
        capture(config, cursors=cursors)
    _begun_again(config, cursors, server, epoch=3)


def _begun_again(
    config: PipelineConfig,
    cursors: MemoryCursorStore,
    server: Server,
    *,
    epoch: int,
    why: str = "is not the one that the cursor",
) -> None:
    """As the error says."""
    change = plan_set(config, cursors=cursors, to="latest", who="a test")
    assert why in change.consequences[0]
    apply_set(config, cursors=cursors, change=change)
    write(server)
    after = capture(config, cursors=cursors).cursor
    assert isinstance(after, CursorState)
    assert (after.epoch, after.journal, after.offset) == (epoch, *server.end_position())
    assert after.last_event is not None


@pytest.mark.mariadb
@pytest.mark.whole
def test_k24_f5_the_way_out_that_the_error_names_makes_the_lake_equal_again(
    start_server: Callable[..., Server],
    make_config: Callable[..., PipelineConfig],
    memory: MemoryLake,
    tmp_path: Path,
) -> None:
    """Rows of the lost transactions go, rows of those that took their places come."""
    server = start_server("mariadb")
    account = section(server)
    server.execute_all(
        "CREATE DATABASE a",
        "CREATE TABLE a.t (k INT PRIMARY KEY, b INT)",
        "INSERT INTO a.t VALUES (1, 1)",
    )
    config = make_config(account, include=["a.t"])
    cursors = MemoryCursorStore()
    hot_copy(server, tmp_path / "copy")
    server.execute_all("INSERT INTO a.t VALUES (2, 2), (3, 3)", "UPDATE a.t SET b = 10 WHERE k = 1")
    assert capture(config, cursors=cursors).outcome == "applied"
    rows = partial(lake_rows, memory, config.sink.lake_path, "a", "t", ["k", "b"])
    assert rows() == [(1, 10), (2, 2), (3, 3)]

    set_back(server, tmp_path / "copy")
    for key in range(3, 9):
        server.execute(f"INSERT INTO a.t VALUES ({key}, {-key})")
    for step in (
        lambda: capture(config, cursors=cursors),
        lambda: take_snapshot(config, cursors=cursors),
    ):
        with pytest.raises(SourceIdentityError):
            step()
    apply_set(
        config, cursors=cursors, change=plan_set(config, cursors=cursors, to="latest", who="a test")
    )
    server.execute("INSERT INTO a.t VALUES (9, 9)")
    take_snapshot(config, cursors=cursors, restart=True)
    capture(config, cursors=cursors)
    expected = server_rows(server, "a", "t", ["k", "b"])
    assert rows() == expected
    assert {-3, 9} < {b for _, b in expected}
