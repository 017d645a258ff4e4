"""What other readers of Delta make of the lakes: ``python -m tests.campaigns.readers``
(``make readers``)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from rich.console import Console

from tests.campaigns.readers.lakes import main as make_lakes

HERE = Path(__file__).parent


def main() -> int:
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="cdc-readers-") as folder:
        environment = Path(folder) / "venv"
        python = environment / "bin" / "python"
        with console.status("installing DuckDB, Polars and delta-rs"):
            venv.create(environment, with_pip=True)
            install = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ]
            subprocess.run(
                [*install, "--require-hashes", "-r", str(HERE / "requirements.lock")], check=True
            )
        with console.status("writing lakes from a real server"):
            make_lakes(Path(folder))
        # A process of its own folder: it imports nothing of this project.
        return subprocess.run(
            [str(python), str(HERE / "read.py"), folder], cwd=folder, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
