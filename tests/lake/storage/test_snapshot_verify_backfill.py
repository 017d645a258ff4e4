"""Tables with rows, loaded into a lake in an S3-compatible store while they are written to, killed
inside the swap, gone on with; then verified, repaired, compacted, copied, and replayed into a side
lake there (K2, K16, K17)."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.long_operations import operation_ids
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import BatchRecord
from tests.operations.snapshot.writer import Writer
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.comparison import server_rows
from tests.support.crash_children import run_child
from tests.support.object_store import Store
from tests.support.object_store_server import ACCESS_KEY, SECRET

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_k2_k16_k17_a_load_verify_and_backfill_in_an_object_store(
    mysql_server: Server, mysql_database: str, store: Store, tmp_path: Path
) -> None:
    server, database = mysql_server, mysql_database
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
        "CREATE TABLE h (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES "
        + ", ".join(f"({key}, 'first', {key})" for key in (*range(400), 900, 901)),
        "INSERT INTO h VALUES (100, 1), (101, 2), (102, 3)",
    )
    lake = store.lake()
    document = {
        "name": "bank",
        "source": live(server),
        "tables": {"include": [f"{database}.*"]},
        "start": here(server),
        "targets": [{"tables": [f"{database}.h"], "mode": "history"}],
        "snapshot": {"chunk_rows": 200},
        "sink": {
            "lake_path": lake,
            "spark": SPARK,
            "storage": {
                "endpoint": store.endpoint,
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET,
                "lease_s": 3000,
            },
        },
    }
    file, cursors = tmp_path / "config.json", str(tmp_path / "cursors")
    file.write_text(json.dumps(document), encoding="utf-8")
    server.execute_all(
        f"USE `{database}`",
        "UPDATE a SET v = 'second' WHERE id < 50",
        "CREATE TABLE e (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO e VALUES (1, 'x'), (2, 'y'), (3, 'z')",
        "DELETE FROM e WHERE id = 2",
    )
    with Writer(server, database, "ah", seed=5, pause_s=1) as writer:
        writer.wait_for(3)
        killed = run_child(
            [str(file), cursors, "snapshot_swapping/before_replaced"],
            environment={},
            folder=tmp_path,
            module="tests.operations.snapshot.crash_child",
            timeout_s=900,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        writer.wait_for(3)
    config = PipelineConfig.model_validate(document)
    paths = LakePaths(config.sink.lake_path, "bank")
    number = list_numbers(paths.batches)[-1]
    assert list_numbers(paths.cuts)[-1] == number - 1, (
        "killed between the record and the cut of the swap"
    )
    record = BatchRecord.model_validate_json(paths.batch(number).read_text())
    assert [target.table for target in record.targets if target.content is not None] == [
        f"{database}.a",
        f"{database}.h_history",
    ]
    (operation_id,) = operation_ids(config)
    with server.root_connection(database=database) as session, session.cursor() as cursor:
        for sql in ("SET sql_log_bin = 0", "UPDATE a SET v = 'unseen' WHERE id = 901", "COMMIT"):
            cursor.execute(sql)

    done = run_child(
        [str(file), cursors, database, f"{lake.rpartition('/')[0]}/side"],
        environment={},
        folder=tmp_path,
        module="tests.lake.storage.snapshot_child",
        timeout_s=900,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["load"] == ["nothing_to_do", 0], (
        "the recorded swap was finished, and nothing is read again"
    )
    assert told["left"] == ["operations.lock"]
    assert not [key for key in store.all_keys(lake) if operation_id in key], (
        "neither files nor what stands for folders"
    )
    assert told["foreign"] == {"different": 1}, "the row that was changed by hand"
    assert told["verified"] == ["equal", [["different", {"id": "901"}, ["v"]]]]
    assert told["scratch"] == []
    assert told["maintained"][0] == []
    assert f"{database}.a" in told["maintained"][1]
    expected = {
        "a": repr(server_rows(server, database, "a", ["id", "v", "n"])),
        "e": repr(server_rows(server, database, "e", ["id", "v"])),
    }
    assert told["rows"] == told["copy"] == expected
    assert (told["h"], told["twice"]) == (repr(server_rows(server, database, "h", ["id", "v"])), 0)
    assert (told["backfill"], told["into"]) == (["applied", [], "nothing_new"], expected["e"])
