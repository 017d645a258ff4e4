"""Whole captures: sections of a test server, one Spark session for all tests, a lake each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, SparkConfig
from cdc_pipeline.run import wiring
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.servers import Server
from tests.support.memory_sink import MemoryLake, memory_sink

# A merge of a few rows costs half without code generation, re-planning, checksums of Delta's log
# and the long texts of plans for a page that is not served; of the rest, a collector without
# threads of its own and with room for what is young saves a sixth. The product's own settings are
# those of tests/sink/apply, tests/cli and the demo.
SPARK = {
    "master": "local[2]",
    "driver_memory": "1g",
    "settings": {
        "spark.driver.defaultJavaOptions": (
            "-XX:+UseSerialGC -XX:NewSize=400m -XX:MetaspaceSize=400m"
        ),
        "spark.sql.lightweightPlanChangeValidation": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "200",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
    },
}


def live(server: Server) -> dict[str, Any]:
    user, password = server.create_replication_user()
    return {
        "kind": "live",
        "host": server.host,
        "port": server.port,
        "user": user,
        "password": password,
    }


def here(server: Server) -> dict[str, Any]:
    """The server's current end, in a journal without other tests' events before it."""
    server.flush_journal()
    journal, offset = server.end_position()
    return {"journal": journal, "offset": offset}


@pytest.fixture(scope="session")
def provider() -> SparkProvider:
    """The Spark that captures in this process use too; it ends with the process."""
    return SparkProvider(SparkConfig(**SPARK))


@pytest.fixture(scope="session")
def spark(provider: SparkProvider) -> Any:
    return provider.session()


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryLake:
    """The tables of all captures of the test, in memory: where Delta is not the subject, this takes
    the place of `spark`."""
    lake = MemoryLake()
    monkeypatch.setattr(wiring, "DeltaSink", partial(memory_sink, lake))
    return lake


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., PipelineConfig]:
    """`make_config(source_dict, include=[...], **sections)`, with a lake of its own."""

    def make(
        source: dict[str, Any], *, include: list[str], name: str = "bank", **sections: Any
    ) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": name,
                "source": source,
                "tables": {"include": include, "allow_empty": True},
                "sink": {"lake_path": tmp_path / "lake", "spark": SPARK},
                **sections,
            }
        )

    return make
