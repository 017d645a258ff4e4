"""MariaDB without gtid_strict_mode, its default: numbers of a domain need not grow, as on a replica
that is also written to. Each change is read once all the same (K5, F151)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import JournalMissingError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import live
from tests.support.comparison import lake_rows
from tests.support.memory_sink import MemoryLake

pytestmark = pytest.mark.mariadb

# (server, number) of one transaction after another.
NUMBERS = (
    [(1, 5000), (9, 4000), (1, 3000), (9, 5001), (1, 5001), (9, 5002), (1, 5002), (1, 5003)],
    [(9, 101), (9, 102), (9, 103), (1, 101), (1, 102), (9, 104), (1, 103), (1, 104), (1, 105)],
)


class Writer:
    """Each transaction inserts the next number."""

    def __init__(self, server: Server) -> None:
        self.server, self.written = server, 0
        server.execute_all("CREATE DATABASE a", "CREATE TABLE a.t (k INT PRIMARY KEY)")

    def write(self, server_id: int, number: int, *, domain: int = 0) -> None:
        self.written += 1
        self._as(server_id, number, f"INSERT INTO a.t (k) VALUES ({self.written})", domain=domain)

    def add_column(self, server_id: int, number: int) -> None:
        self._as(server_id, number, "ALTER TABLE a.t ADD c INT NOT NULL DEFAULT 7")

    def _as(self, server_id: int, number: int, statement: str, *, domain: int = 0) -> None:
        with self.server.root_connection(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute(f"SET server_id = {server_id}, gtid_seq_no = {number}")
            cursor.execute(f"SET gtid_domain_id = {domain}")
            cursor.execute(statement)

    def purge(self) -> None:
        self.server.flush_journal()
        while len(self.server.journals()) > 1:
            self.server.purge_to(self.server.end_position()[0])


@pytest.fixture
def writer(start_server: Callable[..., Server]) -> Writer:
    return Writer(start_server("mariadb", gtid_strict_mode="OFF"))


Captured = tuple[Callable[..., Any], Callable[[], list[Any]]]


@pytest.fixture
def captured(
    writer: Writer, make_config: Callable[..., PipelineConfig], memory: MemoryLake, tmp_path: Path
) -> Callable[..., Captured]:
    """A run, and the keys that the changelog has."""

    def of(name: str, **source: Any) -> Captured:
        config = make_config(
            live(writer.server) | source,
            include=["a.t"],
            targets=[{"tables": ["a.t"], "mode": "changelog"}],
            start="latest",
            sink={"lake_path": tmp_path / name},
        )
        cursors = MemoryCursorStore()

        def run() -> Any:
            cursor = capture(config, cursors=cursors).cursor
            assert cursor is not None
            executed = writer.server.gtid_set()
            assert sorted(cursor.gtid_set.split(",")) == sorted(executed.split(","))
            return cursor

        def keys() -> list[Any]:
            with suppress(KeyError):  # no table yet
                found = lake_rows(memory, config.sink.lake_path, "a", "t_changelog", ["k"])
                return sorted(k for (k,) in found)
            return []

        return run, keys

    return of


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("transactions_each", [1, 2, 5])
def test_k5_f151_each_change_is_read_once_wherever_runs_end(
    writer: Writer,
    captured: Callable[..., Captured],
    numbers: list[tuple[int, int]],
    transactions_each: int,
) -> None:
    run, keys = captured("lake")
    run()
    for first in range(0, len(numbers), transactions_each):
        for server_id, number in numbers[first : first + transactions_each]:
            writer.write(server_id, number)
        run()
        assert keys() == list(range(1, writer.written + 1))
    writer.add_column(9, 50)
    writer.write(9, 60)
    run()
    assert keys() == list(range(1, writer.written + 1))


def test_k5_f151_what_was_purged_unread_is_missed_and_what_was_read_is_not(
    writer: Writer, captured: Callable[..., Captured], tmp_path: Path
) -> None:
    """An archive has what was purged; another lacks the cursor's own journal."""
    archives = [tmp_path / name for name in ("whole", "late")]
    alone, *others = pairs = [
        captured("alone"),
        *(captured(folder.name, archive_directory=folder) for folder in archives),
    ]

    def copy(*to: Path) -> None:
        for folder in to:
            folder.mkdir(exist_ok=True)
            for file in writer.server.copy_journals(tmp_path / "all"):
                shutil.copy2(file, folder)

    for written in range(2):
        writer.write(9, 5010 + written)
        for run, keys in pairs:
            run()
            assert keys() == [2][:written]
    copy(archives[0])
    writer.purge()
    alone[0]()  # all of it was read
    writer.write(1, 4001)
    writer.server.flush_journal()
    writer.write(1, 4002)
    copy(*archives)
    writer.purge()
    writer.write(9, 5012)
    with pytest.raises(JournalMissingError, match="purged"):
        alone[0]()
    for run, keys in others:
        run()
        assert keys() == [2, 3, 4, 5]


def test_k22_f152_a_deleted_domain_stops_no_run(
    writer: Writer, captured: Callable[..., Captured]
) -> None:
    """FLUSH BINARY LOGS DELETE_DOMAIN_ID: for a cursor that has it, one that was taken later, and
    one whose journal was purged."""
    run, keys = captured("lake")
    writer.write(1, 7, domain=5)
    run()
    writer.write(1, 8, domain=5)
    run()
    writer.purge()
    writer.server.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (5)")
    run()
    later, later_keys = captured("later")
    later()
    writer.write(1, 9000)
    assert [each() and of() for each, of in ((run, keys), (later, later_keys))] == [[2, 3], [3]]
    writer.purge()
    writer.write(1, 9001)
    assert [each() and of() for each, of in ((run, keys), (later, later_keys))] == [
        [2, 3, 4],
        [3, 4],
    ]
