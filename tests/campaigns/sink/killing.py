"""Captures in processes of their own, which kill themselves with SIGKILL at random fault points and
are run again.

python -m tests.campaigns.sink.killing CONFIG [JOURNAL OFFSET] [--point NAME --occurrence N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.campaigns.sink.group import FAULT_POINTS, SOURCE, run_once
from tests.support.kills import AtPoint, sigkill

ROOT = Path(__file__).resolve().parents[3]
KILLS_MAX = 2  # a process starts a JVM of its own
TIMEOUT_S = 7200  # a large group takes its time on a busy machine: that is no finding


def killed_runs(config: PipelineConfig, bound: Bound | None, choose: random.Random) -> int:
    """Run to the end, killed at most `KILLS_MAX` times before; returns how often."""
    file = config.sink.lake_path.parent / "config.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document_of(config)), encoding="utf-8")
    at = [bound.journal, str(bound.offset)] if isinstance(bound, PositionConfig) else []
    killed = 0
    for _ in range(choose.randint(0, KILLS_MAX)):
        point = ["--point", choose.choice(FAULT_POINTS), "--occurrence", str(choose.randint(1, 4))]
        killed += _run(str(file), *at, *point) == -signal.SIGKILL
    _run(str(file), *at)
    return killed


def _run(*arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.sink.killing", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        pytest.fail(f"a capture ended with {done.returncode}: {done.stderr[-3000:]}")
    return done.returncode


def document_of(config: PipelineConfig) -> dict[str, Any]:
    """A configuration as plain values, the password in it: it goes to a process of the same
    user."""
    document: dict[str, Any] = json.loads(config.model_dump_json(by_alias=True, exclude_unset=True))
    if config.source.kind == "live":
        document["source"]["password"] = config.source.password.get_secret_value()
    return document


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("at", nargs="*")
    parser.add_argument("--point", default="")
    parser.add_argument("--occurrence", type=int, default=1)
    options = parser.parse_args()
    config = PipelineConfig.model_validate_json(options.config.read_text(encoding="utf-8"))
    bound = PositionConfig(journal=options.at[0], offset=int(options.at[1])) if options.at else None
    cursors = DeltaCursorStore(options.config.parent / "cursors", source=SOURCE)
    with (
        listening(AtPoint(options.point, sigkill, options.occurrence))
        if options.point
        else nullcontext()
    ):
        run_once(config, bound, cursors=cursors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
