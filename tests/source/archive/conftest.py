"""A server whose oldest journals were purged after they had been copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_pipeline.position.position import Position
from cdc_pipeline.source.archive.archive_then_live import ArchiveThenLive
from cdc_pipeline.source.live.live import LiveSource
from tests.servers import Server
from tests.support.live_source import live_config

StartServer = Callable[..., Server]
WITHOUT_GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


class Log:
    """A server with six journals, the first three of them purged after all were copied
    (`all_files`, up to `end`); `start` is in the second, as a cursor keeps it, and a test's
    source reads `archive`.
    """

    archive: Path

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.config = live_config(server)
        live = self.live()
        server.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)")
        self.sets: list[Position] = []
        for number in range(6):
            server.execute(f"INSERT INTO shop.t VALUES ({number})")
            self.sets.append(live.end_position())
            server.execute(f"INSERT INTO shop.t VALUES ({number + 100})")
            if number < 5:
                server.flush_journal()
        (chunk, *_) = live.chunks(Position("binlog.000002", 4), replace(self.sets[1], gtid_set=""))
        self.start = replace(self.sets[1], journal_created_s=chunk.journal_format.created_s)
        while True:  # MariaDB adds a checkpoint to its log when it likes
            self.end = live.end_position()
            self.all_files = server.copy_journals(folder / "all")
            if self.all_files[-1].stat().st_size == self.end.offset:
                break
        server.purge_to("binlog.000004")

    def begin(self, tmp_path: Path) -> Log:
        """Of a test, with an archive of its own."""
        self.archive = tmp_path / "archive"
        self.archive.mkdir()
        return self

    def keep(self, *numbers: int) -> None:
        """The archive holds these journals."""
        for number in numbers:
            shutil.copy2(self.all_files[number - 1], self.archive)

    def source(self) -> ArchiveThenLive:
        config = self.config.model_copy(update={"archive_directory": self.archive})
        return ArchiveThenLive(config, pipeline_name="shop")

    def live(self) -> LiveSource:
        return LiveSource(self.config, pipeline_name="shop")


MYSQL = pytest.param(("mysql", True), id="mysql", marks=pytest.mark.mysql)
MYSQL_WITHOUT_GTIDS = pytest.param(
    ("mysql", False), id="mysql-without-gtids", marks=[pytest.mark.mysql, pytest.mark.whole]
)
MARIADB = pytest.param(
    ("mariadb", True), id="mariadb", marks=[pytest.mark.mariadb, pytest.mark.whole]
)


LOGS = [MYSQL, MYSQL_WITHOUT_GTIDS, MARIADB]


@pytest.fixture(scope="module", params=LOGS)
def shared_log(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Log]:
    flavor, gtids = request.param
    with Server(flavor, {} if gtids else WITHOUT_GTIDS) as server:
        yield Log(server, tmp_path_factory.mktemp("log"))


@pytest.fixture
def log(shared_log: Log, tmp_path: Path) -> Log:
    """Its server is shared: nothing more is written to it, or purged."""
    return shared_log.begin(tmp_path)


@pytest.fixture(params=LOGS)
def own_log(request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path) -> Log:
    flavor, gtids = request.param
    return Log(start_server(flavor, **({} if gtids else WITHOUT_GTIDS)), tmp_path).begin(tmp_path)
