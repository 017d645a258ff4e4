"""`sink.spark.session`: a run works in the Spark that the user's program has started; and
SPARK_HOME is the user's Spark."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pydantic import ValidationError
from pyspark import SparkContext

from cdc_pipeline.config.pipeline_config import PipelineConfig, SparkConfig
from cdc_pipeline.config.spark_config import SQL_SETTINGS
from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.storage.storage_settings import SparkStorage
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.spark.java import find_spark_home
from cdc_pipeline.sink.spark.own_session import users_session
from cdc_pipeline.sink.spark.session import SparkProvider, new_session
from tests.sink.spark import users_session as module
from tests.sink.spark.in_a_child import run_in_a_child
from tests.support.project import ROOT

PATH = module.__name__
SHOP = ROOT / "cdc_pipeline" / "demo" / "shop"


def _capture(folder: Path) -> None:
    """The shop's orders, in the user's session; what is told goes to the folder."""
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": SHOP / "journals"},
            "tables": {"include": ["shop.orders"]},
            "sink": {"lake_path": folder / "lake", "spark": {"session": f"{PATH}:session"}},
        }
    )
    provider = SparkProvider.from_config(config.sink)
    ours: Any = provider.session()
    users: Any = module.session()
    for one in (ours, new_session(ours)):
        assert {name: one.conf.get(name) for name in SQL_SETTINGS} == SQL_SETTINGS
    assert {name: users.conf.get(name) for name in module.OWN} == module.OWN, "it stays as it is"
    _check_access(users)
    report = capture(config, cursors=MemoryCursorStore())
    assert report.outcome == "applied"
    rows = ours.read.format("delta").load(str(folder / "lake" / "shop" / "orders")).count()
    provider.stop()
    assert users.range(3).count() == 3, "it is not ours to stop"
    (folder / "rows").write_text(json.dumps(rows))


def _check_access(users: Any) -> None:
    """Hadoop's settings for an object store reach a Spark that runs already, secrets too."""
    hadoop = users._jsc.hadoopConfiguration()
    for number, spark in enumerate((SparkConfig(session=f"{PATH}:session"), SparkConfig())):
        settings = {"spark.hadoop.fs.s3a.endpoint": f"https://store-{number}:9000"}
        storage = SparkStorage(
            "s3a://lake", "s3a", "s3", settings, {"fs.s3a.secret.key": f"s3cr3t-{number}"}
        )
        session: Any = SparkProvider(spark, storage).session()
        assert hadoop.get("fs.s3a.endpoint") == f"https://store-{number}:9000"
        assert hadoop.get("fs.s3a.secret.key") == f"s3cr3t-{number}"
        assert "s3cr3t" not in str(session.sql("SET").collect())


@pytest.mark.whole
@pytest.mark.spark
def test_k20_a_capture_in_a_session_of_the_users(tmp_path: Path) -> None:
    """K20: its settings do not decide what our texts mean."""
    run_in_a_child(partial(_capture, tmp_path))
    recording = json.loads((SHOP / "recording.json").read_text())
    assert json.loads((tmp_path / "rows").read_text()) == recording["end"]["rows"]["orders"]


def _without_delta() -> None:
    with pytest.raises(RuntimeSetupError, match=r"lacks spark\.sql\.extensions") as refused:
        users_session(f"{PATH}:without_delta")
    assert "DeltaSparkSessionExtension" in str(refused.value.expected)


@pytest.mark.whole
@pytest.mark.spark
def test_a_session_without_delta_is_refused() -> None:
    run_in_a_child(_without_delta)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("there.is.none:session", "cannot be imported"),
        (f"{PATH}:none", "cannot be imported"),
        (f"{PATH}:no_function", "is not a function"),
        (f"{PATH}:that_fails", "did not return a Spark session"),
        (f"{PATH}:of_another_kind", "it returned no SparkSession"),
    ],
)
def test_what_is_no_session_is_told_by_name(path: str, what: str) -> None:
    """K26: an error of another program's is named by its class alone."""
    with pytest.raises(RuntimeSetupError, match=what) as refused:
        users_session(path)
    assert refused.value.setting == "sink.spark.session"
    assert "s3cr3t" not in str(refused.value)


def test_a_session_brings_its_own_settings_and_is_asked_for_only_when_it_is_needed() -> None:
    config = SparkConfig(session=f"{PATH}:session")
    assert not config.is_local
    provider = SparkProvider(config)
    provider.cancel()
    provider.stop()
    assert not module.calls
    for others in ({"master": "local"}, {"settings": {"spark.a": "b"}}, {"driver_memory": "1g"}):
        with pytest.raises(ValidationError, match="exclude each other"):
            SparkConfig.model_validate({"session": "a:b", **others})
    for wrong in ("module", "a.b", "a:b()", "a b:c", "os:system:x"):
        with pytest.raises(ValidationError):
            SparkConfig(session=wrong)


def test_spark_home_is_the_users_if_its_spark_is_pysparks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(pyspark.__file__).parent
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert find_spark_home() == own
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(RuntimeSetupError, match="no Spark in it"):
        find_spark_home()
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "spark-core_2.13-3.5.1.jar"
    jar.touch()
    with pytest.raises(RuntimeSetupError, match=r"Spark 3\.5") as refused:
        find_spark_home()
    assert refused.value.setting == "SPARK_HOME"
    jar.rename(tmp_path / "jars" / f"spark-core_2.13-{pyspark.__version__}-amzn-0.jar")
    assert find_spark_home() == tmp_path


def _start_users_spark(home: Path) -> None:
    provider = SparkProvider(SparkConfig(master="local[1]", driver_memory="512m"))
    session: Any = provider.session()
    assert session.conf.get("spark.users.own") == "7", "its spark-defaults.conf"
    assert session.conf.get("spark.sql.session.timeZone") == "UTC", "K20"
    process = Path(f"/proc/{SparkContext._gateway.proc.pid}")  # type: ignore[attr-defined]
    assert str(home / "jars").encode() in (process / "cmdline").read_bytes()
    assert session.sql("SELECT 1").collect()[0][0] == 1
    provider.stop()


@pytest.mark.whole
@pytest.mark.spark
def test_k20_the_spark_in_spark_home_is_started_with_its_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "spark"
    (home / "conf").mkdir(parents=True)
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    defaults = "spark.users.own 7\nspark.sql.session.timeZone Asia/Tokyo\n"
    (home / "conf" / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_HOME", str(home))
    run_in_a_child(partial(_start_users_spark, home))
