"""The JVM beside the process: its space for compiled code, its archive of classes, and what happens
when it dies."""

from __future__ import annotations

import io
import json
import os
import threading
import urllib.request
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark import SparkContext

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.config.spark_config import is_secret
from cdc_pipeline.config.storage_config import LakeUri
from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.storage.storage_settings import spark_storage
from cdc_pipeline.sink.spark import class_archive, cluster
from cdc_pipeline.sink.spark.__main__ import make_archive
from cdc_pipeline.sink.spark.session import (
    CODE_CACHE_MB,
    SparkProvider,
    arguments,
    new_session,
    root_cause,
    session_settings,
)
from tests.sink.spark.in_a_child import run_in_a_child

SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": "s3cr3t-1",
    "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net": "s3cr3t-2",
    "spark.ssl.keyStorePassword": "s3cr3t-3",
    "spark.sql.catalog.unity.token": "s3cr3t-4",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:mysql://hive:s3cr3t-5@db/meta",
}


def _check_secrets(session: Any) -> None:
    """K26: they reach Spark, and stand in no process's arguments or environment."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in SECRETS.items():
        if name.startswith("spark.hadoop."):
            assert hadoop.get(name.removeprefix("spark.hadoop.")) == value
        assert session.sparkContext.getConf().get(name) == value
    assert new_session(session).conf.get("spark.sql.catalog.unity.token") == "s3cr3t-4"
    context: Any = SparkContext
    process = Path(f"/proc/{context._gateway.proc.pid}")
    for file in (process / "cmdline", process / "environ", Path("/proc/self/environ")):
        assert b"s3cr3t" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.keyStorePassword=word"),
        ("spark.executor.extraJavaOptions", "-Dtoken=word"),
        ("spark.jars.repositories", "https://me:word@repository/"),
    ],
)
def test_k26_a_secret_that_only_arguments_can_carry_is_refused(name: str, value: str) -> None:
    """K26: what is read before a JVM runs cannot be given to it afterwards."""
    with pytest.raises(ValidationError, match=f"{name} may contain a password") as refused:
        SparkConfig(settings={name: value})
    assert "word@" not in refused.value.errors(include_input=False)[0]["msg"]
    SparkConfig(
        settings={"spark.driver.extraJavaOptions": "-Xss4m -Djavax.net.ssl.trustStore=/etc/certs"}
    )


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.access.key", True), ("spark.hadoop.fs.s3a.session.token", True),
        ("spark.hadoop.fs.azure.sas.fixed.token.x", True),
        ("spark.hadoop.fs.azure.account.oauth2.client.secret", True),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", True),
        ("spark.authenticate.secret", True),
        ("spark.hadoop.javax.jdo.option.ConnectionPassword", True),
        ("spark.hadoop.fs.s3a.encryption.key", True),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("spark.sql.shuffle.partitions", False),
        ("spark.hadoop.fs.azure.account.oauth2.client.endpoint", False),
        ("spark.driver.memory", False),
    ],
)  # fmt: skip
def test_k26_names_that_may_be_of_a_secret(name: str, secret: bool) -> None:
    """Told by the name, whatever Hadoop, Hive or a catalog calls it."""
    assert is_secret(name, "x") is secret


def test_k26_of_a_failed_start_the_innermost_cause_is_told_without_secrets() -> None:
    """K26: Java's own words may hold what the settings hold. F22: they were dropped."""

    class Cause:
        def __init__(self, text: str, cause: Cause | None) -> None:
            self.toString, self.getCause = (lambda: text), (lambda: cause)

    failed = RuntimeError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext."
    )
    inner = Cause("java.net.BindException: s3cr3t-1 at jdbc://hive:word@db/meta" + "." * 500, None)
    failed.java_exception = Cause("org.apache.spark.SparkException: x", inner)  # type: ignore[attr-defined]
    told = root_cause(failed, hidden=["s3cr3t-1", ""])
    assert told.startswith("java.net.BindException: *** at jdbc://***@db/meta")
    assert len(told) == 400
    assert root_cause(ValueError("no Java\nmore")) == "ValueError: no Java"


def test_k26_secrets_are_no_arguments_and_are_given_to_spark() -> None:
    """K26: what starts the JVM has everything else."""
    settings = session_settings(SparkConfig(settings=SECRETS), warehouse="w")
    assert settings.items() >= SECRETS.items()
    shown = arguments(settings)
    assert settings.keys() - shown.keys() == SECRETS.keys()
    assert "s3cr3t" not in str(shown)


def _go_on_in_a_store() -> None:
    os.environ.pop("SPARK_DIST_CLASSPATH", None)
    local = SparkProvider(SparkConfig(master="local[1]", driver_memory="512m"))
    lake = LakeUri("s3a", "bucket", ("lake",))
    in_store = SparkProvider(local._config, spark_storage(lake))
    running = local.session()
    with pytest.raises(RuntimeSetupError, match="cannot open s3a://") as refused:
        in_store.session()
    assert "hadoop-aws" in str(refused.value)
    local.stop()
    replaced: Any = in_store.session()
    assert replaced.range(3).count() == 3
    assert replaced is not running
    assert "SPARK_DIST_CLASSPATH" not in os.environ, "a local lake's process would have them too"
    hadoop = replaced.sparkContext._jsc.hadoopConfiguration()
    replaced._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", hadoop)


@pytest.mark.whole
@pytest.mark.spark
def test_a_lake_in_a_store_after_one_in_a_folder_gets_a_jvm_with_the_stores_classes() -> None:
    """The class path is fixed at a JVM's start: an earlier lake's JVM ends, a busy one is named."""
    run_in_a_child(_go_on_in_a_store)


def _die_and_go_on() -> None:
    archive = make_archive()  # `make setup` has made it
    assert archive is not None
    config = SparkConfig(master="local[1]", driver_memory="512m", settings=SECRETS)
    bad = config.model_copy(update={"settings": {**SECRETS, "spark.scheduler.mode": "NONSENSE"}})
    with pytest.raises(RuntimeSetupError, match="Spark does not start") as failed:
        SparkProvider(bad).session()
    assert "NONSENSE" in str(failed.value.got), f"the cause is dropped: {failed.value.got}"
    provider = SparkProvider(config)
    session: Any = provider.session()
    _check_secrets(session)
    beans = session._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = sum(pool.getUsage().getMax() for pool in beans if "Code" in pool.getName())
    assert code >= CODE_CACHE_MB << 20, (
        f"{code} bytes for compiled code: Spark's classes fill the default of 48 MiB"
    )
    context: Any = SparkContext
    process = context._gateway.proc
    assert archive.name in Path(f"/proc/{process.pid}/maps").read_text(), (
        "Java did not take the archive of classes"
    )
    process.kill()
    process.wait()
    assert provider.session().sql("SELECT 1").collect()[0][0] == 1
    assert SparkProvider(SparkConfig()).session().range(3).count() == 3
    context._gateway.proc.kill()
    context._gateway.proc.wait()
    provider.stop()
    assert not provider.started


@pytest.mark.whole
@pytest.mark.spark
def test_k26_a_jvm_that_died_is_replaced_and_its_code_cache_is_large() -> None:
    """K26: nor does a secret of the settings stand in the JVM's arguments or in an error."""
    run_in_a_child(_die_and_go_on)


def test_without_an_archive_java_is_asked_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        SparkConfig(
            settings={"spark.driver.extraClassPath": "/own/a.jar", "spark.jars": "/own/b.jar"}
        ),
        warehouse="w",
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


class _Starved:
    """A session whose jobs wait."""

    def __init__(self, master: str, memory: str) -> None:
        self.conf = {"spark.master": master, "spark.executor.memory": memory}
        self.interrupted: list[str] = []

    def addTag(self, tag: str) -> None:  # noqa: N802 - Spark's
        pass

    def interruptTag(self, tag: str) -> None:  # noqa: N802
        self.interrupted.append(tag)

    def range(self, _end: int) -> Any:
        threading.Event().wait(2)
        raise RuntimeError


@pytest.mark.parametrize(
    ("workers", "told", "raises"),
    [
        ([], "the master has no workers", True),
        ([(4, 1024)] * 2, "2 workers with 1.0 GiB and 4 cores; 8 cores free", True),
        ([(4, 8192)], "1 worker with 8.0 GiB and 4 cores; 4 cores free", False),
        (None, "unknown: the cluster manager's own page shows what it has", False),
    ],
)
def test_k22_a_cluster_that_gives_no_executors_is_told(
    workers: list[tuple[int, int]] | None,
    told: str,
    raises: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A run waits for what is only busy; `doctor` never does."""
    answer = {
        "status": "ALIVE",
        "workers": [
            {"state": "ALIVE", "cores": cores, "coresfree": cores, "memory": memory}
            for cores, memory in workers or ()
        ],
    }

    def page(url: str, timeout: float) -> Any:
        assert url == "http://there:8080/json/"
        if workers is None:
            raise OSError
        return io.StringIO(json.dumps(answer))

    monkeypatch.setattr(cluster, "_EXECUTORS_S", 0.05)
    monkeypatch.setattr(urllib.request, "urlopen", page)
    session = _Starved("spark://there:7077", "2g")
    with pytest.raises(RuntimeSetupError, match="no executors after") as refused:
        cluster.check_executors(session, is_patient=False)
    assert refused.value.got == told
    assert "2g of memory and 1 core each" in str(refused.value.expected)
    assert session.interrupted
    with pytest.raises(RuntimeSetupError) if raises else nullcontext():
        cluster.check_executors(session)
    assert raises != (told in caplog.text)
    cluster.check_executors(_Starved("local[4]", "2g"), is_patient=False)
