"""A project with the demo's shop, captured once, and the CPU-seconds of processes that use it."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JOURNALS = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
REPEATS = 5


@dataclass(frozen=True)
class ShopProject:
    """A folder with jobs, lake and Dagster's home of its own."""

    root: Path

    def python(self, program: str) -> list[str]:
        """Return the command that runs `program`."""
        return [sys.executable, "-c", program]

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a `cdc-pipeline` command."""
        return [
            str(Path(sys.executable).parent / "cdc-pipeline"),
            "--jobs",
            str(self.root / "jobs"),
            *arguments,
        ]

    def run(self, command: Sequence[str]) -> str:
        """Run a command to its end; return its standard output.

        Raises:
            SystemExit: it failed.
        """
        environment = {**os.environ, "DAGSTER_HOME": str(self.root / "home")}
        # As installed: modules are not compiled again by each process.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            command,
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def cpu_s(self, command: Sequence[str], *, repeats: int = REPEATS) -> float:
        """Return the median CPU-seconds of a command and its children, after one run to warm up."""
        self.run(command)
        found = []
        for _ in range(repeats):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.run(command)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return statistics.median(found)


@contextmanager
def captured_shop() -> Iterator[ShopProject]:
    """Capture the shop into a lake in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="cdc-bench-shop-") as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "jobs", root / "jobs")
        (root / "home").mkdir()
        shutil.copy(ROOT / "dagster_home" / "dagster.yaml", root / "home")
        job = root / "jobs" / "shop.yaml"
        text = job.read_text(encoding="utf-8")
        job.write_text(text.replace("../cdc_pipeline/demo/shop/journals", str(JOURNALS)))
        project = ShopProject(root)
        project.run(project.command("run", "shop"))
        yield project
