"""Starts `cases` in a process that the shim is loaded into, and reads what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from tests.campaigns.disk.disk import Disk

Part = Literal["full", "broken", "exit", "power"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
_ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class PartReport:
    """`cases`: runs with a fault, or states of the disk after a power cut."""

    cases: int
    findings: list[dict[str, Any]]


def run_part(
    folder: Path,
    part: Part,
    *,
    spark: bool,
    stride: int,
    seed: int,
    states: int,
    offset: int = 0,
) -> PartReport:
    """Run each `stride`-th case of one part behind an offset, below `folder`. Raises RuntimeError:
    the process did not come to its end, or there is no C compiler.
    """
    disk = Disk(folder / "lakes", folder / "disk")
    numbers = {"stride": stride, "offset": offset, "seed": seed, "states": states}
    options = [f"--{name}={number}" for name, number in numbers.items()]
    options += ["--spark"] if spark else []
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.disk.cases", str(folder), part, *options],
        cwd=_ROOT,
        env={**os.environ, **disk.environment(), "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines or "done" not in lines[-1]:
        raise RuntimeError(
            f"{part} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return PartReport(cases=lines[-1]["cases"], findings=lines[:-1])
