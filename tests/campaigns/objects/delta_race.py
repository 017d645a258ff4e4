"""Two drivers that commit one version of a Delta table in S3 at once.

A proxy holds Spark's put of a commit until another writer has put one of that version, as if a
driver had been stopped between its last look and its put. First the other one's commit is of
another program; then it is the very batch that Spark applies, by a writer that has taken the lease.

Spark runs in a process of its own, ``python -m tests.campaigns.objects.delta_race ENDPOINT LAKE
[LOG_STORE]``: a library that waits for the proxy's answer may not let other threads run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from pydantic import SecretStr

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.storage.storage import opened, storage_of
from cdc_pipeline.sink.delta.commit import MERGE_STEP, transaction_version
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.campaigns.objects.faulty_store import FaultyStore, Request
from tests.campaigns.objects.story import new_lake
from tests.support.captures import SPARK
from tests.support.object_store import ROOT, Store
from tests.support.object_store_server import ACCESS_KEY, SECRET
from tests.support.sink_values import (
    applied,
    column,
    insert,
    record_batch,
    table_schema,
    update,
)

T = table_schema("shop.t", [column("id", Kind.INT32), column("n", Kind.INT64)], "id")
_OTHER = "/other/_delta_log/00000000000000000001.json"
_CHUNK = re.compile(rb"([0-9a-f]+)(;[^\r]*)?\r\n")

Action = dict[str, Any]


def race(store: Store, log_store: str = "") -> dict[str, Any]:
    """What came of both races. `log_store`: the class by which Spark commits, the product's own by
    default.
    """
    lake = new_lake(store.bucket)
    config = _config(lake, store.endpoint)
    raced: list[str] = []

    def put_first(_number: int, request: Request) -> None:
        actions = _commit_of(request)
        if request.path in raced or actions is None:
            return
        raced.append(request.path)
        path = opened(config.lake_path) / request.path.partition("/lake/")[2]
        text = "".join(f"{json.dumps(action)}\n" for action in actions)
        assert storage_of(path).put_if_absent(path, text.encode())

    with FaultyStore(store.endpoint, on_request=put_first) as proxy:
        command = [sys.executable, "-m", __name__, proxy.endpoint, lake, log_store]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(raced) == 2, raced
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _commit_of(request: Request) -> list[Action] | None:
    """The commit that another writer makes first; None unless the request is one to race."""
    if request.method != "PUT" or "/_delta_log/" not in request.path:
        return None
    if request.path.endswith(_OTHER):
        return [{"commitInfo": {"timestamp": 1, "operation": "OTHER"}}]
    actions = [json.loads(line) for line in _sent(request.body).splitlines()]
    if not any(
        action.get("txn", {}).get("version") == transaction_version(2, MERGE_STEP)
        for action in actions
    ):
        return None
    return [
        {"commitInfo": {**action["commitInfo"], "txnId": "of-another-writer"}}
        if "commitInfo" in action
        else action
        for action in actions
    ]


def main(endpoint: str, lake: str, log_store: str = "") -> int:
    config = _config(lake, endpoint, log_store)
    spark = SparkProvider.from_config(config)
    told = {
        "other": _against_another_program(spark, lake),
        "twin": _against_the_same_batch(spark, config),
    }
    print(json.dumps(told))
    return 0


def _config(lake: str, endpoint: str, log_store: str = "") -> SinkConfig:
    settings = {"spark.delta.logStore.s3a.impl": log_store} if log_store else {}
    spark = {**SPARK, "settings": {**SPARK.get("settings", {}), **settings}}
    storage = {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": SecretStr(ACCESS_KEY),
        "secret_access_key": SecretStr(SECRET),
        "lease_s": 600,
        "retry_s": 5,
    }
    return SinkConfig.model_validate(
        {"lake_path": lake, "engine": "spark", "storage": storage, "spark": spark}
    )


def _against_another_program(spark: SparkProvider, lake: str) -> dict[str, Any]:
    session, table = spark.session(), f"{lake}/other"
    session.range(3).write.format("delta").save(table)
    session.range(4).write.format("delta").mode("append").save(table)
    history = session.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()
    rows = session.read.format("delta").load(table).count()
    return {"operations": [row["operation"] for row in reversed(history)], "rows": rows}


def _against_the_same_batch(spark: SparkProvider, config: SinkConfig) -> dict[str, Any]:
    sink = DeltaSink(source="shop", config=config, spark=spark)
    with sink.lock():
        first = applied(sink, 1, (T, [insert(id=at, n=at) for at in range(5)], 1))
        record = record_batch(sink, 2, (T, [update({"id": 1, "n": 1}, {"id": 1, "n": 9})], 20))
        try:
            sink.finish(record)
            told: dict[str, Any] = {"outcome": "applied", "retryable": True}
        except CdcError as error:
            told = {"outcome": error.code(), "retryable": error.retryable, "text": str(error)}
    again = DeltaSink(source="shop", config=config, spark=spark)
    with again.lock():
        pending = again.pending_record()
        cut = again.finish(pending, recovered=True) if pending else again.last_cut()
        assert cut is not None
        rows = spark.session().read.format("delta").load(str(again.paths.table("shop.t")))
        before = first.tables["shop.t"].table_version
        return {
            **told,
            "suspended": sorted(cut.cursor.suspended),
            "commits": cut.tables["shop.t"].table_version - before,
            "rows": sorted([row["id"], row["n"]] for row in rows.collect()),
        }


def _sent(body: bytes) -> bytes:
    """What a body holds that may be sent in signed chunks."""
    if body.startswith(b"{"):
        return body
    found, at = b"", 0
    while (chunk := _CHUNK.match(body, at)) and (size := int(chunk[1], 16)):
        found += body[chunk.end() : chunk.end() + size]
        at = chunk.end() + size + 2
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
