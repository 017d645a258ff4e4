"""A project with the demo's shop, captured once, and the CPU-seconds of processes that use it."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Spent, spent

ROOT = Path(__file__).resolve().parents[1]
JOURNALS = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
REPEATS = 5


@dataclass(frozen=True)
class ShopProject:
    root: Path

    def python(self, program: str) -> list[str]:
        return [sys.executable, "-c", program]

    def command(self, *arguments: str) -> list[str]:
        return [
            str(Path(sys.executable).parent / "cdc-pipeline"),
            "--jobs",
            str(self.root / "jobs"),
            *arguments,
        ]

    def run(self, command: Sequence[str]) -> str:
        return self._spent(command).output

    def _spent(self, command: Sequence[str]) -> Spent:
        environment = {**os.environ, "DAGSTER_HOME": str(self.root / "home")}
        # As installed: modules are not compiled again by each process.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return spent(command, env=environment, cwd=self.root)

    def cpu_s(self, command: Sequence[str], *, repeats: int = REPEATS) -> float:
        """Return the median CPU-seconds of a command and its children, after one run to warm up."""
        self.run(command)
        return statistics.median(self._spent(command).cpu_s for _ in range(repeats))


@contextmanager
def captured_shop() -> Iterator[ShopProject]:
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
