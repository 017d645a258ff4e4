"""A history of some journals, recorded once from a server of its own, with what the server's SELECT
said at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from tests.servers import Server
from tests.support.captures import SPARK
from tests.support.comparison import server_rows
from tests.support.workload import COLUMNS, Workload, create_tables

DATABASE = "shop"
ALTERED = "ALTER TABLE account ADD COLUMN note VARCHAR(20) NULL"
ALL_COLUMNS = COLUMNS | {"account": [*COLUMNS["account"], "note"]}
MASKED = {
    "tables": [f"{DATABASE}.label"],
    "masks": {"text": {"hash": {"salt": "a salt of many characters"}}},
}


@dataclass(frozen=True)
class History:
    """An archive; `rows` are those of the server's tables at its end, `early` those where its
    fourth journal begins."""

    archive: Path
    journals: tuple[str, ...]
    rows: dict[str, list[tuple[Any, ...]]]
    early: dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """Eight journals: tables are made in the first, one is altered in the fourth, others' tables
    everywhere."""
    archive = tmp_path_factory.mktemp("history")
    with Server("mysql") as server:
        server.execute(f"CREATE DATABASE `{DATABASE}`")
        create_tables(server, DATABASE)
        workload = Workload(server, DATABASE, seed=11)
        for number in range(8):
            workload.run(6)
            server.execute(f"INSERT INTO `{DATABASE}`.elsewhere VALUES ({number})")
            if number == 1:
                workload.rolled_back_transaction()
            if number == 3:
                server.execute_all(f"USE `{DATABASE}`", ALTERED)
                workload.run(3)
                server.execute(f"UPDATE `{DATABASE}`.account SET note = 'new' WHERE id % 2 = 0")
            server.flush_journal()
            if number == 2:
                early = {
                    table: server_rows(server, DATABASE, table, names)
                    for table, names in COLUMNS.items()
                }
        workload.close()
        rows = {
            table: server_rows(server, DATABASE, table, names)
            for table, names in ALL_COLUMNS.items()
        }
        files = server.copy_journals(archive)
        yield History(archive, tuple(file.name for file in files), rows, early)


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., PipelineConfig]:
    """`make_config(archive, **sections)` -> a pipeline over an archive, with a lake of its own."""

    def make(source: Path | dict[str, Any], **sections: Any) -> PipelineConfig:
        kind = {"kind": "archive", "directory": source} if isinstance(source, Path) else source
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": kind,
                "tables": {"include": [f"{DATABASE}.*"]},
                "targets": [MASKED],
                "sink": {"lake_path": tmp_path / "lake", "spark": SPARK},
                **sections,
            }
        )

    return make
