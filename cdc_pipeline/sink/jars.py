"""Delta's jars: resolved once by Spark's own Ivy, kept in the cache, offline from then on.

Rules:
- No repository is named here: Spark knows its default; a machine with another says so in an Ivy settings file
  (CDC_PIPELINE_IVY_SETTINGS) or as a mirror in its Maven settings.
- Jars that Spark ships itself are not kept a second time: Spark's own are the ones that it would load anyway, and each
  jar that is passed costs start-up time.
- The checksum file is written last, and the folder appears under its name only when complete.
- Every start compares sizes; `fetch_jars` compares checksums.

``python -m cdc_pipeline.sink.jars`` fetches, and makes the archive of classes (`class_archive`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import CdcError, RuntimeSetupError
from cdc_pipeline.sink.java import cache_folder, find_java_home

COORDINATES: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
IVY_SETTINGS_VARIABLE: Final = "CDC_PIPELINE_IVY_SETTINGS"
CHECKSUM_FILE: Final = "checksums.json"

_FETCH_TIMEOUT_S: Final = 900
_NEXT_STEP: Final = (
    "check the network and run `python -m cdc_pipeline.sink.jars` again; behind a mirror, put it into "
    f"~/.m2/settings.xml or name an Ivy settings file in {IVY_SETTINGS_VARIABLE}"
)


def jar_paths() -> list[Path]:
    """The jars in the cache, fetched first where they are not there; sizes are compared.

    Raises:
        RuntimeSetupError: they cannot be fetched.
    """
    folder = jar_folder()
    jars = _listed(folder, full=False)
    return fetch_jars() if jars is None else jars


def fetch_jars() -> list[Path]:
    """The jars in the cache with their checksums compared; fetched where they are absent or damaged.

    Raises:
        RuntimeSetupError: they cannot be fetched.
    """
    folder = jar_folder()
    jars = _listed(folder, full=True)
    if jars is not None:
        return jars
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as work_name:
        work = Path(work_name)
        _resolve(work / "ivy")
        complete = work / "complete"
        complete.mkdir()
        entries = []
        for jar in sorted((work / "ivy" / "jars").glob("*.jar")):
            if artifact(jar.name, ivy=True) in _spark_artifacts():
                continue
            target = complete / jar.name
            shutil.move(jar, target)
            entries.append({"name": jar.name, "size_bytes": target.stat().st_size, "sha256": _sha256(target)})
        if not any(entry["name"].startswith("io.delta_delta-spark") for entry in entries):  # type: ignore[attr-defined]
            raise RuntimeSetupError(
                "Spark's Ivy ended well but brought no Delta jar", expected=COORDINATES, next_step=_NEXT_STEP
            )
        text = json.dumps({"coordinates": COORDINATES, "jars": entries}, indent=1)
        (complete / CHECKSUM_FILE).write_text(text, encoding="utf-8")
        try:
            complete.rename(folder)
        except OSError:
            # There is a folder already: another process was faster, or what is there is damaged.
            if _listed(folder, full=True) is None:
                shutil.rmtree(folder)
                complete.rename(folder)
    jars = _listed(folder, full=False)
    if jars is None:
        raise RuntimeSetupError("the fetched jars are not there", got=folder, next_step=_NEXT_STEP)
    return jars


def jar_folder() -> Path:
    """Folder of the jars in the cache, by a hash of what they were resolved for."""
    import pyspark

    key = hashlib.sha256(f"{COORDINATES} spark {pyspark.__version__}".encode()).hexdigest()[:16]
    return cache_folder() / "jars" / key


def artifact(jar_name: str, *, ivy: bool) -> str:
    """Artifact name of a jar's file name: without version, and without the group that Ivy puts before it."""
    name = re.sub(r"-\d[^/]*\.jar$", "", jar_name)
    return name.split("_", 1)[-1] if ivy else name


def maven_mirrors() -> list[str]:
    """Mirrors of Maven's central repository that this machine's Maven settings name."""
    found = []
    for file in (Path.home() / ".m2" / "settings.xml", Path("/etc/maven/settings.xml")):
        try:
            root = ElementTree.parse(file).getroot()  # noqa: S314 - the machine's own file
        except (OSError, ElementTree.ParseError):
            continue
        for mirror in root.findall(".//{*}mirror"):
            of = {part.strip() for part in (mirror.findtext("{*}mirrorOf") or "").split(",")}
            url = (mirror.findtext("{*}url") or "").strip()
            if url.startswith("https://") and "!central" not in of and of & {"*", "central", "external:*"}:
                found.append(url)
    return found


def _resolve(ivy_home: Path) -> None:
    """Let Spark resolve and download into ``ivy_home/jars``."""
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    attempts: list[list[str]] = [["--conf", f"spark.jars.ivySettings={settings}"]] if settings else [[]]
    mirrors = maven_mirrors()
    if mirrors:
        attempts.append(["--repositories", ",".join(mirrors)])
    said = ""
    for options in attempts:
        failure = _submit(ivy_home, options)
        if failure is None:
            return
        said = failure
    raise RuntimeSetupError("Delta's jars cannot be fetched", expected=COORDINATES, got=said, next_step=_NEXT_STEP)


def _submit(ivy_home: Path, options: list[str]) -> str | None:
    """Run an empty program under spark-submit with the package; None, or the last lines of what went wrong."""
    import pyspark

    home = Path(pyspark.__file__).parent
    ivy_home.mkdir(parents=True, exist_ok=True)
    program = ivy_home / "nothing.py"
    program.write_text("", encoding="utf-8")
    command = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--packages", COORDINATES]
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
            command, env=environment, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_FETCH_TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines()]
    telling = [line for line in lines if "unresolved dependency" in line or "Exception" in line]
    return "; ".join((telling or [line for line in lines if line])[-3:]) or f"exit code {done.returncode}"


def _listed(folder: Path, *, full: bool) -> list[Path] | None:
    """The jars that the checksum file lists, or None where one is absent or not as listed."""
    try:
        document = json.loads((folder / CHECKSUM_FILE).read_text(encoding="utf-8"))
        jars = []
        for entry in document["jars"]:
            jar = folder / entry["name"]
            if jar.stat().st_size != entry["size_bytes"] or (full and _sha256(jar) != entry["sha256"]):
                return None
            jars.append(jar)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return jars or None


def _spark_artifacts() -> set[str]:
    import pyspark

    return {artifact(jar.name, ivy=False) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _main() -> int:
    print(f"Delta's jars ({COORDINATES}) in {jar_folder()} ...", flush=True)  # noqa: T201 - a command
    try:
        jars = fetch_jars()
    except CdcError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    size_mib = sum(jar.stat().st_size for jar in jars) / (1 << 20)
    print(f"{len(jars)} jars, {size_mib:.0f} MiB: complete, checksums right", flush=True)  # noqa: T201
    from cdc_pipeline.sink.class_archive import make_archive

    said = "kept for a quick start" if make_archive() else "not kept: this Java cannot, so that sessions start slower"
    print(f"Spark's classes: {said}")  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
