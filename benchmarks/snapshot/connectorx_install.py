"""Fetches connectorx into the cache folder; the project does not depend on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.decode.workloads import cache_folder
from tests.servers.installation import fill_once

VERSION = "0.4.6"


def connectorx_folder() -> Path:
    """The folder to import it from."""

    def fill(unfinished: Path) -> dict[str, object]:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*command, str(unfinished), f"connectorx=={VERSION}"], check=True)
        return {"version": VERSION}

    return fill_once(cache_folder() / "peers" / f"connectorx-{VERSION}", fill)
