"""Histories of one server in a process of their own, whose clock and time zone the seed chose."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers import Flavor
from tests.servers.preload import MovedClock

ZONES: Final = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia")
HISTORIES_OF_A_SET: Final = 5


@dataclass(frozen=True)
class Played:
    """One history: what happened, and what was found ("" if nothing)."""

    seed: int
    counts: Counter[str]
    finding: str
    trace: str


def play_set(flavor: Flavor, seeds: Sequence[int]) -> list[Played]:
    """Play the histories of some seeds, with the time zones of the first one. Raises RuntimeError:
    the process ended before the last one.
    """
    choose = random.Random(seeds[0] // HISTORIES_OF_A_SET)
    zone, server_zone = choose.choice(ZONES), choose.choice(ZONES)
    with tempfile.TemporaryDirectory(prefix="cdc-clock-") as home:
        clock = MovedClock(Path(home) / "clock", zone)
        module = "tests.campaigns.clocks.child"
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                module,
                *map(str, (flavor, clock.file, zone, server_zone, *seeds)),
            ],
            env={**os.environ, **clock.environment},
            capture_output=True,
            text=True,
            check=False,
        )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    if [one["seed"] for one in told] != list(seeds):
        raise RuntimeError(f"the histories {list(seeds)} ended early: {done.stderr[-4000:]}")
    return [
        Played(one["seed"], Counter(one["counts"]), one["finding"], one.get("trace", ""))
        for one in told
    ]


def play_spark() -> str:
    with tempfile.TemporaryDirectory(prefix="cdc-clock-") as home:
        clock = MovedClock(Path(home) / "clock", "Europe/Berlin")
        done = subprocess.run(
            [sys.executable, "-m", "tests.campaigns.clocks.spark_child", str(clock.file)],
            env={**os.environ, **clock.environment},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{done.stdout}{done.stderr[-4000:]}")
    return done.stdout
