"""Rows that are erased from a lake in an object store."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.erase.erase import EraseRequest, check, erase
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.read.cuts import paths_of
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.kills import killed_at
from tests.support.object_store import Store

SECRET = "secret@" * 9


def _holding(lake: Path) -> list[str]:
    """Files that hold the key, but for the bounds in logs."""
    found = []
    for file in storage_of(lake).files(lake):
        content = b"" if "_delta_log" in file.parts else file.read_bytes()
        if content and file.suffix == ".parquet":
            content += repr(pq.read_table(io.BytesIO(content)).to_pylist()).encode()
        if SECRET.encode() in content:
            found.append(file.relative_to(lake).as_posix())
    return found


@pytest.mark.mariadb
@pytest.mark.whole
def test_k14_erased_rows_leave_no_old_file_in_a_bucket(
    mariadb_server: Server, mariadb_database: str, store: Store
) -> None:
    server, database = mariadb_server, mariadb_database
    cursors, sink = MemoryCursorStore(), store.sink_config()
    table = f"{database}.person"
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": live(server),
            "tables": {"include": [f"{database}.*"]},
            "start": here(server),
            "sink": sink.model_copy(
                update={"zero_dates": "quarantine", "on_bad_row": "quarantine"}
            ),
            "targets": [
                {"tables": [table], "mode": mode, "name": f"{database}.{mode}"}
                for mode in ("mirror", "changelog")
            ]
            + [
                {"tables": [table], "name": f"{database}.parts", "partition_by": ["mail"]},
            ],
        }
    )
    server.execute_all(
        f"USE `{database}`",
        "SET sql_mode = ''",
        "CREATE TABLE person (mail VARCHAR(90) PRIMARY KEY, d DATE)",
        f"INSERT INTO person VALUES ('{SECRET}', NULL), ('ann@', NULL), "
        f"('{SECRET}2', '0000-00-00')",
        f"UPDATE person SET mail = 'bob@' WHERE mail = '{SECRET}'",
        f"DELETE FROM person WHERE mail LIKE '{SECRET}%'",
    )
    capture(config, cursors=cursors)
    lake = paths_of(config.sink.lake_path, "shop").lake
    assert len(_holding(lake)) >= 2
    keys = ({"mail": SECRET}, {"mail": f"{SECRET}2"})
    asked = EraseRequest(table=table, keys=keys, at_once=True)
    with killed_at("before_record"):
        erase(config, asked, cursors=cursors)
    assert [file for file in _holding(lake) if "/staging/" in file]
    done = erase(config, asked, cursors=cursors)
    assert done.quarantine == 1
    assert done.removed[f"{database}.changelog"] == 3
    assert {one.what for one in done.held} == {"log"}
    assert _holding(lake) == []
    left = {file.relative_to(lake).as_posix() for file in storage_of(lake).files(lake)}
    assert not [file for file in left if SECRET in file], "no folder of a partition"
    (again,) = check(config, cursors=cursors, table=table)
    assert again.held == done.held
    assert capture(config, cursors=cursors).interval.rows_erased == 0
