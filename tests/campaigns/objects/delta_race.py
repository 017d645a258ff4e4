"""Two drivers that commit one version of a Delta table in S3 at once, as one child process:
``python -m tests.campaigns.objects.delta_race ENDPOINT BUCKET [LOG_STORE]``.

A proxy holds Spark's put of a commit until another writer has put one of that version, as if a
driver had been stopped between its last look and its put. First the other one's commit is of
another program; then it is the very batch that Spark applies, by a writer that has taken the lease.
Prints as JSON what came of both. LOG_STORE is the class by which Spark commits, the product's own
by default.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.campaigns.objects.faulty_store import FaultyStore, Request
from tests.campaigns.objects.story import new_lake
from tests.support.captures import SPARK
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
_CHUNK = re.compile(rb"([0-9a-f]+)(;[^\r]*)?\r\n")


class _Race:
    """Puts another writer's commit first.

    Attributes:
        version: of the table at `log` whose commit is raced for; None for no race.
    """

    def __init__(self) -> None:
        self.log: Path | None = None
        self.version = 0
        self.make: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda actions: actions

    def __call__(self, _number: int, request: Request) -> None:
        name = f"{self.version:020d}.json"
        if self.log is None or request.method != "PUT" or not request.path.endswith(name):
            return
        path, self.log = self.log / name, None
        actions = [json.loads(line) for line in _sent(request.body).splitlines()]
        text = "".join(f"{json.dumps(action)}\n" for action in self.make(actions))
        assert storage_of(path).put_if_absent(path, text.encode())


def main(endpoint: str, bucket: str, log_store: str = "") -> int:
    race = _Race()
    with FaultyStore(endpoint, on_request=race) as store:
        config = _config(new_lake(bucket), store.endpoint, log_store)
        direct = LakePaths(_config(str(config.lake_path), endpoint, "").lake_path, "shop")
        spark = SparkProvider.from_config(config)
        told = {
            "other": _against_another_program(spark, race, config, direct),
            "twin": _against_the_same_batch(spark, race, config, direct),
        }
    print(json.dumps(told))
    return 0


def _config(lake: str, endpoint: str, log_store: str) -> SinkConfig:
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
    return SinkConfig.model_validate({"lake_path": lake, "storage": storage, "spark": spark})


def _against_another_program(
    spark: SparkProvider, race: _Race, config: SinkConfig, direct: LakePaths
) -> dict[str, Any]:
    session, table = spark.session(), f"{config.lake_path}/other"
    session.range(3).write.format("delta").save(table)
    race.log, race.version = direct.lake / "other" / "_delta_log", 1
    race.make = lambda _actions: [{"commitInfo": {"timestamp": 1, "operation": "OTHER"}}]
    session.range(4).write.format("delta").mode("append").save(table)
    assert race.log is None, "Spark did not commit version 1"
    log = direct.lake / "other" / "_delta_log"
    names = [name for name in storage_of(log).names(log) if name.endswith(".json")]
    return {
        "kept": b"OTHER" in (log / f"{1:020d}.json").read_bytes(),
        "versions": len(names),
        "rows": session.read.format("delta").load(table).count(),
    }


def _against_the_same_batch(
    spark: SparkProvider, race: _Race, config: SinkConfig, direct: LakePaths
) -> dict[str, Any]:
    sink = DeltaSink(source="shop", config=config, spark=spark)
    with sink.lock():
        first = applied(sink, 1, (T, [insert(id=at, n=at) for at in range(5)], 1))
        record = record_batch(sink, 2, (T, [update({"id": 1, "n": 1}, {"id": 1, "n": 9})], 20))
        race.log = direct.table("shop.t") / "_delta_log"
        race.version = first.tables["shop.t"].table_version + 1
        race.make = _twin
        try:
            sink.finish(record)
            outcome: dict[str, Any] = {"outcome": "applied", "retryable": True}
        except CdcError as error:
            outcome = {"outcome": error.code(), "retryable": error.retryable, "text": str(error)}
        assert race.log is None, "Spark did not commit the batch"
    again = DeltaSink(source="shop", config=config, spark=spark)
    with again.lock():
        pending = again.pending_record()
        cut = again.finish(pending, recovered=True) if pending else again.last_cut()
        assert cut is not None
        rows = spark.session().read.format("delta").load(str(again.paths.table("shop.t")))
        return {
            **outcome,
            "suspended": sorted(cut.cursor.suspended),
            "version": cut.tables["shop.t"].table_version - race.version,
            "rows": sorted([row["id"], row["n"]] for row in rows.collect()),
        }


def _twin(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same commit by another writer."""
    return [
        {"commitInfo": {**action["commitInfo"], "txnId": "of-another-writer"}}
        if "commitInfo" in action
        else action
        for action in actions
    ]


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
