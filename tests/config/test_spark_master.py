"""A Spark master that Spark would not understand is found before a JVM starts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cdc_pipeline.config.spark_config import SparkConfig


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
def test_anything_else_is_refused_with_the_forms(master: str) -> None:
    with pytest.raises(ValidationError, match="not a Spark master such as"):
        SparkConfig(master=master)
