"""Masks that come later to a lake in an object store."""

from __future__ import annotations

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.erase.remask import RemaskRequest, check, remask
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.read.cuts import paths_of
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.object_store import Store


@pytest.mark.mariadb
@pytest.mark.whole
def test_k14_new_masks_leave_no_old_file_in_a_bucket(
    mariadb_server: Server, mariadb_database: str, store: Store
) -> None:
    server, database = mariadb_server, mariadb_database
    cursors, sink = MemoryCursorStore(), store.sink_config()
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": live(server),
            "tables": {"include": [f"{database}.*"]},
            "start": here(server),
            "sink": sink,
        }
    )
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE person (id INT PRIMARY KEY, mail VARCHAR(90))",
        f"INSERT INTO person VALUES (1, '{'secret@' * 9}')",
    )
    capture(config, cursors=cursors)
    table = f"{database}.person"
    rule = TargetRule.model_validate({"tables": [table], "masks": {"mail": {"truncate": 3}}})
    config = config.model_copy(update={"targets": (rule,)})
    asked = RemaskRequest(table=table, at_once=True)
    done = remask(config, asked, cursors=cursors)
    assert {one.what for one in done.held} == {"log"}
    folder = paths_of(config.sink.lake_path, "shop").table(table)
    data = [file for file in storage_of(folder).files(folder) if file.suffix == ".parquet"]
    held = [file for file in data if b"secret@" in file.read_bytes()]
    assert not [file for file in held if "_delta_log" not in file.parts]
    assert len([file for file in data if "_delta_log" not in file.parts]) == done.files_read == 1
    (again,) = check(config, cursors=cursors, table=table)
    assert again.held == done.held
