"""Runs that keep journals read from them what the server has purged, and remove what nobody
needs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import JournalMissingError, SinkError, TargetSuspendedError
from cdc_pipeline.operations.backfill.backfill import backfill
from cdc_pipeline.operations.journals import kept_logs
from cdc_pipeline.run.capture import capture as capture_module
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.source.kept_journals import KeptJournals, logs_of
from tests.servers import Server
from tests.support.captures import live
from tests.support.memory_shop import MemoryShop
from tests.support.memory_sink import memory_sink
from tests.support.object_store import Store, running_store
from tests.support.workload import Workload, create_tables

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("store")) as running:
        yield running


class _Shop(MemoryShop):
    def run(self, transactions: int | None = None, **rest: Any) -> CaptureReport:
        assert transactions is None
        sink = memory_sink(self.lake, source=self.config.name, config=self.config.sink)
        return capture(self.config, cursors=self.cursors, sink=sink, **rest)


def _shop(server: Server, folder: Path, *, keep: Any, storage: Any = None) -> MemoryShop:
    source = live(server) | ({} if keep is None else {"keep_journals": keep})
    sink = {"lake_path": folder} if storage is None else {"lake_path": storage.lake()}
    if storage is not None:
        sink["storage"] = storage.settings()
    document = {
        "name": "shop",
        "source": source,
        "tables": {"include": ["shop.*"]},
        "start": "earliest",
        "sink": sink,
    }
    return _Shop(PipelineConfig.model_validate(document))


@pytest.mark.parametrize("kind", ["folder", "compressed", "store"])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_what_the_server_has_purged_comes_from_what_was_kept(
    flavor: str, kind: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.lake() + "/kept" if kind == "store" else str(tmp_path / "kept")
    keep = {"path": path, "compress": kind == "compressed", "retention": "1 day"}
    with Server(flavor) as server:
        server.execute("CREATE DATABASE shop")
        create_tables(server, "shop")
        workload = Workload(server, "shop", seed=3)
        shop = _shop(
            server, tmp_path / "lake", keep=keep, storage=store if kind == "store" else None
        )
        whole = _shop(server, tmp_path / "whole", keep=None)
        begin = server.journals()[0].name
        workload.run(5)
        whole.run()
        shop.run()
        table = sorted(shop.last_cut().tables)[0]
        shop.fails_at("log", table, lambda: KeyError("metaData"))
        for point in ("before_record", "after_record"):
            workload.run(5)
            server.flush_journal()
            workload.run(5)
            shop.stop_at(point)
            whole.run()
            server.purge_to(server.journals()[-1].name)
        with pytest.raises(TargetSuspendedError):
            shop.run()
        server.flush_journal()
        with pytest.raises(TargetSuspendedError):
            shop.run()
        server.purge_to(server.journals()[-1].name)
        listed = kept_logs(shop.config, verify=True)
        assert listed.is_whole
        assert listed.journals[0].journal == begin
        # The suspended table needs old journals, whatever their age.
        monkeypatch.setattr("time.time", lambda: os.stat(tmp_path).st_mtime + 10 * 86_400)
        with pytest.raises(TargetSuspendedError):
            shop.run()
        suspended = shop.cursors.cursor.suspended[table].journal
        assert any(journal.journal <= suspended for journal in kept_logs(shop.config).journals)
        monkeypatch.undo()
        shop.heal()
        workload.run(5)
        workload.close()
        shop.run()
        whole.run()
        for name in whole.last_cut().tables:
            assert _rows(shop, name) == _rows(whole, name), name
        # Now nobody needs them.
        monkeypatch.setattr("time.time", lambda: os.stat(tmp_path).st_mtime + 10 * 86_400)
        shop.run()
        assert [journal.is_sealed for journal in kept_logs(shop.config).journals] == [False]


def test_a_place_that_cannot_be_written_fails_the_run_after_it_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server("mysql") as server:
        server.execute("CREATE DATABASE shop")
        create_tables(server, "shop")
        with closing(Workload(server, "shop", seed=3)) as workload:
            shop = _shop(server, tmp_path / "lake", keep={"path": str(tmp_path / "kept")})
            workload.run(5)
            shop.run()
            (folder,) = logs_of(tmp_path / "kept" / "shop")
            before = shop.cursors.cursor.position
            workload.run(5)

            def full(*_: Any) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            with monkeypatch.context() as patched:
                patched.setattr(KeptJournals, "append", full)
                with pytest.raises(SinkError) as caught:
                    shop.run()
            assert caught.value.setting == "source.keep_journals"
            assert str(folder) in caught.value.what
            assert shop.cursors.cursor.position.order > before.order
            assert folder.stat().st_mode & 0o777 == 0o700
            before = shop.cursors.cursor.position
            workload.run(1)
            (tmp_path / "kept").rename(tmp_path / "away")
            (tmp_path / "kept").write_text("a file")
            with pytest.raises(SinkError) as caught:
                shop.run()
            assert caught.value.setting == "source.keep_journals"
            assert shop.cursors.cursor.position.order > before.order
            (tmp_path / "kept").unlink()
            (tmp_path / "away").rename(tmp_path / "kept")
            workload.run(1)
            shop.run()
            (journal,) = KeptJournals(folder).journals()
            assert journal.size_bytes == shop.cursors.cursor.position.offset


def _rows(shop: MemoryShop, table: str) -> list[str]:
    return sorted(
        repr({name: value for name, value in row.items() if not name.startswith("_cdc")})
        for row in shop.rows(table)
    )


@pytest.mark.mysql
def test_a_backfill_reads_kept_journals_and_changes_none(
    mysql_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = mysql_server
    server.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)")
    shop = _shop(server, tmp_path / "lake", keep={"path": tmp_path / "kept", "retention": "1 min"})
    monkeypatch.setattr(capture_module, "prune_journals", lambda *_: None)
    for number in range(3):
        server.execute(f"INSERT INTO shop.t VALUES ({number})")
        shop.run()
        server.flush_journal()
    server.execute("INSERT INTO shop.t VALUES (3)")
    shop.run()
    server.purge_to(server.journals()[-1].name)
    monkeypatch.undo()
    shop.take_place(monkeypatch)
    (folder,) = logs_of(tmp_path / "kept" / "shop")
    before = sorted(os.listdir(folder))
    side = tmp_path / "side"
    backfill(shop.config, tables=["shop.t"], into=side)
    assert sorted(os.listdir(folder)) == before
    rows = shop.lake.rows(side / "shop" / "t")
    assert sorted(row["a"] for row in rows) == [0, 1, 2, 3]
    oldest = KeptJournals(folder).journals()[0]
    KeptJournals(folder).remove(oldest)
    with pytest.raises(JournalMissingError):
        backfill(
            shop.config,
            tables=["shop.t"],
            into=tmp_path / "more",
            start=PositionConfig(journal=oldest.name, offset=4),
        )
