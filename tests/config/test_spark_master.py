"""A Spark master that Spark would not understand is found before a JVM starts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cdc_pipeline.config.spark_config import SparkConfig
from cdc_pipeline.sink.spark.cluster import memory_bytes


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[4]", "local[4,2]", "local[*, 3]", "local-cluster[1,1,1024]"),
        *("yarn", "k8s://https://host:443", "spark://host:7077", "spark://a:7077,b:7077"),
        "spark://[::1]:7077",
    ],
)
def test_what_spark_understands_is_accepted(master: str) -> None:
    assert SparkConfig(master=master).master == master


@pytest.mark.parametrize(
    "master", ["", "local[]", "local[x]", "spark:/host", "spark://host", "sparkk://host:1", "k8s"]
)
def test_anything_else_is_refused(master: str) -> None:
    with pytest.raises(ValidationError, match="should match pattern"):
        SparkConfig(master=master)


def test_a_setting_that_takes_delta_s_checks_away_is_refused() -> None:
    flag = "spark.hadoop.fs.s3a.performance.flags"
    SparkConfig(settings={flag: "mkdir"})
    with pytest.raises(ValidationError, match="without create"):
        SparkConfig(settings={flag: "create,mkdir"})


def test_what_an_executor_asks_for_is_read_as_the_jvm_reads_it() -> None:
    texts = ("2g", "512M", "1024", "1 tb", "much")
    assert [memory_bytes(text) for text in texts] == [2 << 30, 512 << 20, 1024, 1 << 40, 0]
