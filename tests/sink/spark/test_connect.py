"""A session of Spark Connect: every command works in a Spark whose JVM is another process's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.storage.storage_settings import spark_storage
from tests.cluster.gateway import gateway_or_skip
from tests.servers import Server
from tests.sink.spark import users_session
from tests.sink.spark.connect_server import ADDRESS, connect_server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.crash_children import run_child
from tests.support.object_store_server import ACCESS_KEY, SECRET
from tests.support.project import ROOT
from tests.support.workload import COLUMNS, Workload, create_tables

pytestmark = [pytest.mark.spark, pytest.mark.mysql]

_IDLE = f"""
import time
from cdc_pipeline.config.spark_config import SparkConfig
from cdc_pipeline.sink.spark.session import SparkProvider, new_session

provider = SparkProvider(SparkConfig(session="{users_session.__name__}:connected"))
for wait_s in (0, 8):
    time.sleep(wait_s)
    assert new_session(provider.session()).sql("SELECT 7").collect()[0][0] == 7
provider.session().client.close()  # as `stop` does
assert new_session(provider.session()).sql("SELECT 7").collect()[0][0] == 7
"""


_WITHOUT_CLASSES = f"""
from cdc_pipeline.config.spark_config import SparkConfig
from cdc_pipeline.config.storage_config import LakeUri
from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.storage.storage_settings import spark_storage
from cdc_pipeline.sink.spark.session import SparkProvider

storage = spark_storage(LakeUri("s3a", "bucket", ("lake",)))
try:
    SparkProvider(SparkConfig(session="{users_session.__name__}:connected"), storage).session()
except RuntimeSetupError as error:
    assert error.what == "the Connect server cannot open s3a:// addresses", error
    assert "org.apache.hadoop:hadoop-aws" in str(error.expected), error
else:
    raise AssertionError("it was not refused")
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(_IDLE, marks=pytest.mark.whole, id="dropped"),
        pytest.param(_WITHOUT_CLASSES, marks=pytest.mark.nightly, id="no classes"),
    ],
)
def test_a_dropped_session_is_made_again_and_a_server_without_the_stores_classes_is_refused(
    tmp_path: Path, program: str
) -> None:
    pytest.importorskip("grpc_status", reason="the extra `connect` is not installed")
    daemon, address = connect_server(tmp_path, idle="3s" if program is _IDLE else "60m")
    with daemon:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(ROOT), ADDRESS: address},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["folder", "store"])
def test_k1_k18_every_command_in_a_session_of_spark_connect(
    mysql_server: Server, mysql_database: str, tmp_path: Path, place: str
) -> None:
    pytest.importorskip("grpc_status", reason="the extra `connect` is not installed")
    server, database = mysql_server, mysql_database
    create_tables(server, database)
    workload = Workload(server, database, seed=5)
    workload.run(15)
    history = {"tables": [f"{database}.label"], "mode": "history"}
    computed = {
        "tables": [f"{database}.account"],
        "computed": {"size": {"type": "int", "expression": "length(name)"}},
    }
    document: dict[str, Any] = {
        "name": "bank",
        "source": live(server),
        "tables": {"include": [f"{database}.{table}" for table in COLUMNS]},
        "targets": [history, computed],
        "start": here(server),
        "schema_changes": {"incompatible": "rewrite"},
        "sink": {
            "lake_path": str(tmp_path / "lake"),
            "engine": "spark",
            "spark": {"session": f"{users_session.__name__}:connected"},
        },
    }
    file, storage = tmp_path / "config.json", None
    stack = ExitStack()
    if place == "store":
        gateway = stack.enter_context(gateway_or_skip(tmp_path))
        document["sink"] |= {
            "lake_path": gateway.store.lake(),
            "storage": {
                "endpoint": gateway.store.endpoint,
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET,
                "lease_s": 3000,
            },
        }
        storage = spark_storage(PipelineConfig.model_validate(document).sink.lake_path)
    file.write_text(json.dumps(document), encoding="utf-8")
    daemon, address = connect_server(tmp_path, storage)

    def told(commands: str) -> dict[str, object]:
        done = run_child(
            [str(file), str(tmp_path / "cursors"), commands],
            environment={"PYTHONPATH": str(ROOT), ADDRESS: address},
            folder=tmp_path,
            module="tests.cluster.child",
            timeout_s=900,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        assert "java" not in done.stderr, "no JVM of its own"
        answers: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return answers

    with stack, daemon:
        assert told("snapshot")["snapshot"] == "taken"
        workload.run(15)
        server.execute_all(
            f"ALTER TABLE `{database}`.account ADD COLUMN level INT NOT NULL DEFAULT 7, "
            "MODIFY flag INT",
        )
        workload.run(10)
        workload.close()
        answers = told("capture,verify,maintain")
    assert answers["capture"] == "applied"
    names = [f"{database}.{name}" for name in ("account", "label_history", "transfer")]
    assert answers["verify"] == ["equal", names]
    assert answers["maintain"] == [[], names]
    if place == "store":
        return  # Spark has read it: what it wrote is what the server has
    for table, more in {"account": ["level"], "transfer": []}.items():
        names = [*COLUMNS[table], *more]
        expected = server_rows(server, database, table, names)
        assert lake_rows(None, tmp_path / "lake", database, table, names) == expected, table
