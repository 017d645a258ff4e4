"""Jars that Spark needs: resolved once by Spark's own Ivy, kept in the cache, offline from then on.

Every installation needs Delta's; lakes in an object store need another set, fetched with
``--with``.

Rules:
- No repository is named here: Spark knows its default; a machine with another one names it in an
  Ivy settings file (CDC_PIPELINE_IVY_SETTINGS) or as a mirror in its Maven settings.
- Jars that Spark ships are not kept a second time: Spark would load its own anyway, and each jar
  that is passed costs start-up time.
- Which jars belong to a set, and their checksums, are in the package (`jar_checksums.json`; K26):
  another file under the same name is refused before Java sees it, whether it was served or put into
  the cache later.
- The folder appears under its name only when complete. Every start compares sizes and times with
  those recorded when the checksums last matched, and computes the checksums again if one differs.
- Hadoop's connectors match the Hadoop that pyspark ships. The one for S3 depends on a bundle of
  every service of its SDK (600 MB); here it gets only the modules that it uses (19 MB).

``python -m cdc_pipeline.sink.spark [--with s3|azure|gcs]`` fetches them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.sink.spark.java import cache_folder, find_java_home

_log = logging.getLogger(__name__)

DELTA_VERSION: Final = "4.4.0"
_COORDINATES: Final = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"
HADOOP_VERSION: Final = "3.5.0"  # of pyspark 4.2
_AWS_SDK_VERSION: Final = "2.35.4"  # that Hadoop's connector was built with
IVY_SETTINGS_VARIABLE: Final = "CDC_PIPELINE_IVY_SETTINGS"
_STAMP_FILE: Final = "checked.json"  # sizes and times of the jars when their checksums last matched
_CHECKSUMS: Final = Path(__file__).with_name("jar_checksums.json")


@dataclass(frozen=True, slots=True)
class JarSet:
    title: str
    coordinates: str
    excluded: str


_AWS: Final = "software.amazon.awssdk"
DELTA: Final = "delta"
JAR_SETS: Final = {
    DELTA: JarSet("Delta's jars", _COORDINATES, ""),
    "s3": JarSet(
        "the jars for S3",
        ",".join(
            [f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}"]
            + [
                f"{_AWS}:{name}:{_AWS_SDK_VERSION}"
                for name in ("s3", "s3-transfer-manager", "sts", "apache-client")
            ]
        ),
        f"{_AWS}:bundle",
    ),
    "azure": JarSet("the jars for Azure", f"org.apache.hadoop:hadoop-azure:{HADOOP_VERSION}", ""),
    "gcs": JarSet(
        "the jars for Google Cloud Storage", f"org.apache.hadoop:hadoop-gcp:{HADOOP_VERSION}", ""
    ),
}

_FETCH_TIMEOUT_S: Final = 900
_NEXT_STEP: Final = (
    "check the network and run `python -m cdc_pipeline.sink.spark` again; if a mirror is "
    "needed, put it into ~/.m2/settings.xml or name an Ivy settings file in "
    f"{IVY_SETTINGS_VARIABLE}"
)


def jar_paths(jar_set: str = DELTA) -> list[Path]:
    """Fetched if they are absent or have changed. RuntimeSetupError: another is served, or none."""
    jars = _checked(jar_set, full=False)
    return fetch_jars(jar_set) if jars is None else jars


def fetch_jars(jar_set: str = DELTA) -> list[Path]:
    """The same with checksums compared. Raises RuntimeSetupError: as `jar_paths`."""
    wanted = JAR_SETS[jar_set]
    folder = jar_folder(jar_set)
    jars = _checked(jar_set, full=True)
    if jars is not None:
        return jars
    _log.info("downloading %s, once for this machine, into %s", wanted.title, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as work_name:
        work = Path(work_name)
        resolve(work / "ivy", wanted)
        complete = work / "complete"
        complete.mkdir()
        pinned, kept_names = checksums(jar_set), set()
        for jar in sorted((work / "ivy" / "jars").glob("*.jar")):
            if _artifact(jar.name, ivy=True) in _spark_artifacts():
                continue
            sha256 = _sha256(jar)
            if pinned.get(jar.name) != sha256:
                raise _refused(
                    jar.name, expected=pinned.get(jar.name, "no jar of this name"), got=sha256
                )
            kept_names.add(jar.name)
            shutil.move(jar, complete / jar.name)
        missing = sorted(pinned.keys() - kept_names)
        if missing:
            raise RuntimeSetupError(
                f"Spark's Ivy succeeded but did not download {missing[0]}",
                expected=wanted.coordinates,
                next_step=_NEXT_STEP,
            )
        try:
            complete.rename(folder)
        except OSError:
            # The folder exists: another process was faster, or its content is damaged.
            if _checked(jar_set, full=True) is None:
                shutil.rmtree(folder)
                complete.rename(folder)
    jars = _checked(jar_set, full=False)
    if jars is None:
        raise RuntimeSetupError("the downloaded jars are missing", got=folder, next_step=_NEXT_STEP)
    return jars


def complete_jars(jar_set: str = DELTA) -> list[Path] | None:
    """With checksums compared; None if one is absent or damaged. Fetches nothing."""
    return _checked(jar_set, full=True)


def checksums(jar_set: str) -> dict[str, str]:
    digests: dict[str, str] = json.loads(_CHECKSUMS.read_text(encoding="utf-8"))[jar_set]
    return digests


def jar_folder(jar_set: str = DELTA) -> Path:
    """Named by a hash of what it was resolved for."""
    import pyspark

    wanted = JAR_SETS[jar_set]
    text = f"{wanted.coordinates}{wanted.excluded} spark {pyspark.__version__}"
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cache_folder() / "jars" / key


def _artifact(jar_name: str, *, ivy: bool) -> str:
    """Without version, and without the group that Ivy puts before it."""
    name = re.sub(r"-\d[^/]*\.jar$", "", jar_name)
    return name.split("_", 1)[-1] if ivy else name


def maven_mirrors() -> list[str]:
    """Mirrors of Maven's central repository that this machine's Maven settings name."""
    mirrors = []
    for file in (Path.home() / ".m2" / "settings.xml", Path("/etc/maven/settings.xml")):
        try:
            root = ElementTree.parse(file).getroot()  # noqa: S314 - the machine's own file
        except (OSError, ElementTree.ParseError):
            continue
        for mirror in root.findall(".//{*}mirror"):
            of = {part.strip() for part in (mirror.findtext("{*}mirrorOf") or "").split(",")}
            url = (mirror.findtext("{*}url") or "").strip()
            if (
                url.startswith("https://")
                and "!central" not in of
                and of & {"*", "central", "external:*"}
            ):
                mirrors.append(url)
    return mirrors


def resolve(ivy_home: Path, wanted: JarSet) -> None:
    """Let Spark's Ivy download jars into ``ivy_home/jars``, unchecked. Raises RuntimeSetupError."""
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    attempts: list[list[str]] = (
        [["--conf", f"spark.jars.ivySettings={settings}"]] if settings else [[]]
    )
    mirrors = maven_mirrors()
    if mirrors:
        attempts.append(["--repositories", ",".join(mirrors)])
    said = ""
    for options in attempts:
        failure = _submit(ivy_home, wanted, options)
        if failure is None:
            return
        said = failure
    raise RuntimeSetupError(
        f"{wanted.title} cannot be downloaded",
        expected=wanted.coordinates,
        got=said,
        next_step=_NEXT_STEP,
    )


def _submit(ivy_home: Path, wanted: JarSet, options: list[str]) -> str | None:
    """Run an empty program with the packages; return the last lines of a failure."""
    import pyspark

    home = Path(pyspark.__file__).parent
    ivy_home.mkdir(parents=True, exist_ok=True)
    program = ivy_home / "nothing.py"
    program.write_text("", encoding="utf-8")
    command = [
        str(home / "bin" / "spark-submit"),
        "--master",
        "local[1]",
        "--packages",
        wanted.coordinates,
    ]
    if wanted.excluded:
        command += ["--exclude-packages", wanted.excluded]
    command += ["--conf", f"spark.jars.ivy={ivy_home}", *options, str(program)]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program of the pyspark package
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not finished after {_FETCH_TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines()]
    telling = [line for line in lines if "unresolved dependency" in line or "Exception" in line]
    return (
        "; ".join((telling or [line for line in lines if line])[-3:])
        or f"exit code {done.returncode}"
    )


def _checked(jar_set: str, *, full: bool) -> list[Path] | None:
    folder = jar_folder(jar_set)
    pinned = checksums(jar_set)
    stamps: dict[str, list[int]] = {}
    try:
        for name in pinned:
            jar_stat = (folder / name).stat()
            stamps[name] = [jar_stat.st_size, jar_stat.st_mtime_ns]
        if full or _noted(folder) != stamps:
            if any(_sha256(folder / name) != sha256 for name, sha256 in pinned.items()):
                return None
            _note(folder, stamps)
    except OSError:
        return None
    return [folder / name for name in pinned]


def _noted(folder: Path) -> object:
    try:
        return json.loads((folder / _STAMP_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _note(folder: Path, stamps: dict[str, list[int]]) -> None:
    # A read-only cache: the checksums are computed at each start.
    with contextlib.suppress(OSError):
        new = folder / f".{_STAMP_FILE}.{os.getpid()}"
        new.write_text(json.dumps(stamps), encoding="utf-8")
        new.replace(folder / _STAMP_FILE)


def _refused(name: str, *, expected: str, got: str) -> RuntimeSetupError:
    return RuntimeSetupError(
        f"{name} is not the jar that this package was built with, so it was not installed",
        expected=expected,
        got=got,
        next_step="find out which mirror serves this file, that of the Maven settings or the "
        f"one that {IVY_SETTINGS_VARIABLE} names; remove it and run `python -m "
        "cdc_pipeline.sink.spark` again",
    )


def _spark_artifacts() -> set[str]:
    import pyspark

    return {
        _artifact(jar.name, ivy=False)
        for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
