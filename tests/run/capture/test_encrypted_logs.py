"""Logs that a server keeps encrypted: a running one sends them in plain (K32, F77)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import BinlogError, RuntimeSetupError
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from tests.servers import Server
from tests.servers.installation import mariadb_plugins
from tests.support.captures import live
from tests.support.memory_shop import MemoryShop

KEY = "1;" + "0123456789abcdef" * 2 + "\n"


def shop(folder: Path, source: dict[str, Any], start: Any) -> MemoryShop:
    return MemoryShop(
        PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": source,
                "tables": {"include": ["shop.*"]},
                "start": start,
                "sink": {"lake_path": folder / "lake"},
            }
        )
    )


def keys(pipeline: MemoryShop) -> list[int]:
    return sorted(int(row["id"]) for row in pipeline.rows("shop.t"))


@pytest.mark.mariadb
@pytest.mark.whole
def test_k32_f77_mariadb_encrypts_its_log_under_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        plugins = mariadb_plugins()
    except RuntimeSetupError as error:
        pytest.skip(str(error))
    (tmp_path / "keys").write_text(KEY, encoding="ascii")
    options = {
        "plugin_dir": str(plugins),
        "plugin_load_add": "file_key_management",
        "plugin_maturity": "unknown",
        "file_key_management_filename": str(tmp_path / "keys"),
    }
    with Server("mariadb", options) as server:
        server.execute_all(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
        )  # fmt: skip
        source = live(server)
        followed = shop(tmp_path / "followed", source, "earliest")
        followed.run()
        executed = server.gtid_set()
        server.restart({"encrypt_binlog": True})
        server.execute("INSERT INTO shop.t VALUES (2)")
        followed.run()
        assert keys(followed) == [1, 2]
        server.flush_journal()
        server.execute("INSERT INTO shop.t VALUES (3)")
        followed.run()  # from within an encrypted journal into the next one
        server.kill()  # the end of an encrypted journal is proved by the next one's beginning
        server.start()
        server.execute("INSERT INTO shop.t VALUES (4)")
        followed.run()
        assert keys(followed) == [1, 2, 3, 4]
        by_set = shop(tmp_path / "by_set", source, {"gtid_set": executed})
        by_set.run()
        assert keys(by_set) == [2, 3, 4]
        loaded = shop(tmp_path / "loaded", source, "latest")
        loaded.take_place(monkeypatch)
        take_snapshot(loaded.config, cursors=loaded.cursors)
        server.execute("INSERT INTO shop.t VALUES (5)")
        loaded.run()
        assert keys(loaded) == [1, 2, 3, 4, 5]
        server.restart({"encrypt_binlog": False})
        server.execute("INSERT INTO shop.t VALUES (6)")
        followed.run()
        assert keys(followed) == [1, 2, 3, 4, 5, 6]
        (tmp_path / "copies").mkdir()
        for journal in server.journals():
            shutil.copy(journal, tmp_path / "copies")
    archive = shop(
        tmp_path / "copied",
        {"kind": "archive", "directory": tmp_path / "copies"},
        {"gtid_set": executed},
    )
    with pytest.raises(BinlogError, match="encrypted") as refused:
        archive.run()
    assert (refused.value.journal or "").startswith("binlog.00000")
    assert "running server" in refused.value.next_step
