"""Builds a peer's program in the cache folder, once for each state of its sources; the checkout
stays as it is."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.decode.result import NotRunError
from benchmarks.decode.workloads import cache_folder
from tests.servers.installation import fill_once

_SOURCES = Path(__file__).parent


def require(*tools: str) -> None:
    """Raise NotRunError that names the tools that are not on the PATH."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise NotRunError("no " + ", no ".join(missing))


def built(name: str, command: list[str]) -> Path:
    """The folder where `command` has built the program whose sources are the folder `name` beside
    this file.

    Raises:
        NotRunError: it could not be built, for want of a registry or of a newer tool; the tool's
            first words are told.
    """
    sources = _SOURCES / name
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

    return fill_once(cache_folder() / "peers" / f"{name}-{digest.hexdigest()[:12]}", fill)
