"""Spark's own Connect server, with Delta's jars, as a daemon beside the tests."""

from __future__ import annotations

from pathlib import Path

import pyspark

from cdc_pipeline.lake.storage.storage_settings import SparkStorage
from cdc_pipeline.sink.spark.jars import jar_paths
from cdc_pipeline.sink.spark.java import find_java_home
from cdc_pipeline.sink.spark.session import _LOG_STORES, LOG_STORE_JAR, _hadoop_settings
from tests.cluster.daemon import Daemon, accepts, free_port
from tests.support.captures import SPARK

ADDRESS = "TEST_CONNECT_ADDRESS"  # the variable that `users_session.connected` reads


def connect_server(
    folder: Path, store: SparkStorage | None = None, *, idle: str = "60m"
) -> tuple[Daemon, str]:
    """`store` is what it may open besides folders; `idle`, after how long it drops a session."""
    jars = [*jar_paths(), *([] if store is None else [*jar_paths(store.jar_set), LOG_STORE_JAR])]
    stored = {} if store is None else {**_LOG_STORES, **_hadoop_settings(store)}
    port, home = free_port(), Path(pyspark.__file__).parent
    own: dict[str, str] = SPARK["settings"]
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        **own,
        **stored,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.session.manager.defaultSessionTimeout": idle,
        "spark.connect.session.manager.maintenanceInterval": "1s",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for item in settings.items() for part in ("--conf", "=".join(item))]
    server = Daemon(
        "Spark's Connect server",
        [*command, "spark-internal"],
        log=folder / "connect.log",
        is_ready=lambda: accepts(port),
        environment={"JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(home)},
        folder=folder,
    )
    return server, f"sc://127.0.0.1:{port}"
