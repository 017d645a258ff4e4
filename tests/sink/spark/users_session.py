"""Functions that `sink.spark.session` names, as a user writes them."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from cdc_pipeline.sink.spark.jars import jar_paths
from tests.sink.spark.connect_server import ADDRESS

OWN = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "false"}
no_function = 7
calls: list[str] = []


def session() -> SparkSession:
    """A Spark with Delta, and settings that the product's sessions do not have."""
    calls.append("session")
    extension = "io.delta.sql.DeltaSparkSessionExtension"
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    builder: Any = _builder()
    for name, value in {
        "spark.sql.extensions": extension,
        "spark.sql.catalog.spark_catalog": catalog,
        **OWN,
    }.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def without_delta() -> SparkSession:
    made: SparkSession = _builder().getOrCreate()
    return made


def connected() -> Any:
    builder: Any = SparkSession.builder
    builder = builder.remote(os.environ[ADDRESS])
    return builder.config("spark.sql.session.timeZone", "America/New_York").getOrCreate()


def of_another_kind() -> object:
    return SimpleNamespace(version="4.2.0")


def that_fails() -> object:
    raise OSError("the password is s3cr3t")


def _builder() -> Any:
    builder: Any = SparkSession.builder
    jars = ",".join(jar.as_uri() for jar in [*jar_paths(), *jar_paths("s3")])
    for name, value in {
        "spark.master": "local[2]",
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }.items():
        builder = builder.config(name, value)
    return builder
