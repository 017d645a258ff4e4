"""Builds a peer's program in the cache folder, once for each state of its sources; the checkout
stays as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.decode.result import NotRunError
from benchmarks.decode.workloads import cache_folder
from cdc_pipeline.errors import CdcError
from cdc_pipeline.sink.spark.java import find_java_home
from tests.servers.installation import fill_once


def require(*tools: str) -> None:
    """Raise NotRunError that names the tools that are not on the PATH."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise NotRunError("no " + ", no ".join(missing))


MAVEN = (
    "mvn",
    "--quiet",
    "--batch-mode",
    "package",
    "dependency:copy-dependencies",
    "-DincludeScope=runtime",
    "-DoutputDirectory=lib",
)


def java_command(sources: Path) -> list[str]:
    """The command that runs the class `Peer` of a Maven project, which is built first. Raises
    NotRunError: there is no Java or Maven, or the project could not be built.
    """
    require("mvn", "javac")
    folder = built(sources, MAVEN)
    try:
        java = find_java_home() / "bin" / "java"
    except CdcError as error:
        raise NotRunError("no Java") from error
    path = os.pathsep.join([str(folder / "target/classes"), str(folder / "lib" / "*")])
    return [str(java), "-cp", path, "Peer"]


def built(sources: Path, command: Sequence[str]) -> Path:
    """The folder where `command` has built the program of a folder of sources. Raises NotRunError:
    it could not be built, for want of a registry or of a newer tool; the tool's first words are
    told.
    """
    digest = hashlib.sha256(" ".join(command).encode())
    for file in sorted(path for path in sources.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(sources)).encode() + b"\0" + file.read_bytes())

    def fill(unfinished: Path) -> dict[str, object]:
        shutil.copytree(sources, unfinished, dirs_exist_ok=True)
        begin = time.monotonic()
        done = subprocess.run(command, cwd=unfinished, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr + done.stdout).strip().splitlines() or ["nothing was said"]
            raise NotRunError(f"{command[0]} could not build it: {said[0]}")
        return {"build_seconds": round(time.monotonic() - begin, 1)}

    return fill_once(cache_folder() / "peers" / f"{sources.name}-{digest.hexdigest()[:12]}", fill)
