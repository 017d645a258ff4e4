"""The JVM beside the process: its space for compiled code, its archive of classes, and what happens when it dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from cdc_pipeline.config import SparkConfig
from cdc_pipeline.sink import class_archive
from cdc_pipeline.sink.spark import CODE_CACHE_MB, SparkProvider, session_settings
from tests.sink.in_a_child import run_in_a_child


def _die_and_go_on() -> None:
    archive = class_archive.make_archive()  # `make setup` has made it
    assert archive is not None
    provider = SparkProvider(SparkConfig(master="local[1]", driver_memory="512m"))
    session: Any = provider.session()
    beans = session._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = sum(pool.getUsage().getMax() for pool in beans if "Code" in pool.getName())
    assert code >= CODE_CACHE_MB << 20, f"{code} bytes for compiled code: Spark's classes fill the default of 48 MiB"
    context: Any = SparkContext
    process = context._gateway.proc
    assert archive.name in Path(f"/proc/{process.pid}/maps").read_text(), "Java did not take the archive of classes"
    process.kill()
    process.wait()
    assert provider.session().sql("SELECT 1").collect()[0][0] == 1
    assert SparkProvider(SparkConfig()).session().range(3).count() == 3
    context._gateway.proc.kill()
    context._gateway.proc.wait()
    provider.stop()
    assert not provider.started


@pytest.mark.spark
def test_a_jvm_that_died_is_replaced_and_its_code_cache_is_large() -> None:
    run_in_a_child(_die_and_go_on)


def test_without_an_archive_java_is_asked_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "classes.jsa"
    monkeypatch.setattr(class_archive, "archive_path", lambda: archive)
    assert class_archive.java_options() == ""
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.java_options()
    spaced = tmp_path / "a blank" / "classes.jsa"
    spaced.parent.mkdir()
    spaced.touch()
    monkeypatch.setattr(class_archive, "archive_path", lambda: spaced)
    assert class_archive.java_options() == "", "Spark splits the options at blanks"


def test_jars_of_the_configuration_join_deltas() -> None:
    local = session_settings(
        SparkConfig(settings={"spark.driver.extraClassPath": "/own/a.jar", "spark.jars": "/own/b.jar"}), warehouse="w"
    )
    assert "io.delta_delta-spark" in local["spark.driver.extraClassPath"]
    assert local["spark.driver.extraClassPath"].endswith(":/own/a.jar")
    assert local["spark.jars"] == "/own/b.jar"
    cluster = session_settings(
        SparkConfig(master="spark://h:7077", settings={"spark.jars": "/own/b.jar"}), warehouse="w"
    )
    assert "io.delta_delta-spark" in cluster["spark.jars"]
    assert cluster["spark.jars"].endswith(",/own/b.jar")
    assert "SharedArchiveFile" not in cluster["spark.driver.extraJavaOptions"]
