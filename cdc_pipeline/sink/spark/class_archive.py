"""Java's archive of Spark's classes: parsed and verified once, mapped into memory at every later
start.

Rules:
- It saves a third of what a session's start and its first merge cost (11 instead of 17
  CPU-seconds). Nothing depends on it: without one, or with one that does not fit, Java reads the
  jars as usual.
- Java itself refuses an archive of another version, of other jars or of jars that have changed; our
  file name already distinguishes them, so that two installations on a machine do not replace each
  other's.
- Only classes of the class path can be archived: on a local master it holds Delta's jars, before
  Spark's (they have no class in common: see `jars`).

``python -m cdc_pipeline.sink.spark.jars`` makes it after the jars.

Source: JEP 350, dynamic archives of class data.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.sink.spark.jars import jar_paths
from cdc_pipeline.sink.spark.java import cache_folder, find_java_home

_TRAIN_TIMEOUT_S: Final = 600
_DUMP_VARIABLE: Final = "CDC_PIPELINE_DUMP_CLASSES"


def class_path(config: SparkConfig) -> str:
    own = config.settings.get("spark.driver.extraClassPath", "")
    return os.pathsep.join([*map(str, jar_paths()), *([own] if own else [])])


def java_options() -> str:
    """Options that use the archive, or make it if this process was started to do so."""
    target = os.environ.get(_DUMP_VARIABLE)
    if target:
        return f" -XX:ArchiveClassesAtExit={target}"
    archive = archive_path()
    # A path with a space cannot be passed: Spark splits the options at spaces.
    if not archive.is_file() or " " in str(archive):
        return ""
    return f" -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_path() -> Path:
    """For this Java and these jars, existing or not."""
    import pyspark

    home = find_java_home()
    release = home / "release"
    said = release.read_bytes() if release.is_file() else (home / "bin" / "java").read_bytes()
    names = "\n".join(str(path) for path in (home, Path(pyspark.__file__).parent, *jar_paths()))
    # Java refuses an archive whose jars were rewritten, such as by a reinstallation in the same
    # place.
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    times = "\n".join(f"{jar.name} {jar.stat().st_mtime_ns}" for jar in jars)
    key = hashlib.sha256(
        said + names.encode() + times.encode() + pyspark.__version__.encode()
    ).hexdigest()[:16]
    return cache_folder() / "java" / f"classes-{key}.jsa"


def make_archive() -> Path | None:
    """Made by a separate session if it does not exist; None if this Java cannot make one."""
    archive = archive_path()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=archive.parent) as work:
        new_archive = Path(work) / archive.name
        subprocess.run(  # noqa: S603 - this module
            [sys.executable, "-m", __name__, work],
            env={**os.environ, _DUMP_VARIABLE: str(new_archive)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRAIN_TIMEOUT_S,
            check=False,
        )
        if not new_archive.is_file():
            return None
        new_archive.replace(archive)
    return archive


def _train(folder: Path) -> None:
    """Do what a run does once: classes that are loaded are archived at exit."""
    from pyspark import SparkContext

    from cdc_pipeline.sink.spark.session import SparkProvider

    provider = SparkProvider(SparkConfig())
    session: Any = provider.session()
    table = f"delta.`{folder / 'table'}`"
    columns = (
        "id BIGINT, name STRING, amount DECIMAL(12,2), at TIMESTAMP, day DATE, "
        "_cdc_seq DECIMAL(38,0)"
    )
    session.sql(
        f"CREATE TABLE {table} ({columns}) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true')"
    )
    rows = (
        "SELECT id, concat('n', id) AS name, CAST(id AS DECIMAL(12,2)) AS amount, "
        "current_timestamp() AS at, current_date() AS day, CAST(id AS DECIMAL(38,0)) AS "
        "_cdc_seq FROM range({})"
    )
    for number, count in enumerate((100, 300)):
        staged = str(folder / f"staged-{number}")
        session.sql(rows.format(count)).write.parquet(staged)
        session.read.parquet(staged).createOrReplaceTempView("staged")
        session.sql(
            f"MERGE INTO {table} t USING staged s ON t.id = s.id WHEN MATCHED AND s.id % 7 = 0 "
            "THEN DELETE WHEN MATCHED AND t._cdc_seq <= s._cdc_seq THEN UPDATE SET * WHEN NOT "
            "MATCHED THEN INSERT *"
        ).collect()
    session.sql(f"ALTER TABLE {table} ADD COLUMN more INT").collect()
    session.sql(f"UPDATE {table} SET more = 1").collect()  # noqa: S608 - a folder of our own
    session.sql(f"SELECT count(*) FROM {table}").toArrow()  # noqa: S608
    context: Any = SparkContext
    process = context._gateway.proc
    provider.stop()
    process.stdin.close()  # Java writes the archive when it exits
    process.wait(_TRAIN_TIMEOUT_S)


if __name__ == "__main__":
    _train(Path(sys.argv[1]))
