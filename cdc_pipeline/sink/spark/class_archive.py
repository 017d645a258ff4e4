"""Java's archive of Spark's classes: parsed and verified once, mapped into memory at every later
start.

Rules:
- It saves a third of what a session's start and its first merge cost (11 instead of 17
  CPU-seconds). Nothing depends on it: without one, or with one that does not fit, Java reads the
  jars as usual.
- Java itself refuses an archive of other jars or versions; our file name distinguishes them, so
  that two installations on a machine do not replace each other's.
- Only classes of the class path can be archived: on a local master it holds Delta's jars, before
  Spark's (they have no class in common: see `jars`).

``python -m cdc_pipeline.sink.spark`` makes it after the jars (`__main__`).

Source: JEP 350, dynamic archives of class data.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.sink.spark.jars import jar_paths
from cdc_pipeline.sink.spark.java import cache_folder, find_java_home

DUMP_VARIABLE: Final = "CDC_PIPELINE_DUMP_CLASSES"


def class_path(config: SparkConfig) -> str:
    own = config.settings.get("spark.driver.extraClassPath", "")
    return os.pathsep.join([*map(str, jar_paths()), *([own] if own else [])])


def java_options() -> str:
    """Options that use the archive, or make it if this process was started to do so."""
    target = os.environ.get(DUMP_VARIABLE)
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
