"""The newest state is opened by the program of an earlier commit: it goes on, or stops unharmed.

``python -m tests.campaigns.upgrades --commit COMMIT [--state FILE]``.

The earlier program is taken from Git and runs in this environment, which must suit it. It asks for
the status and captures, in Dagster's home and lake of a state that `tests/golden/record_state.py`
left. Each command must either succeed, or end with an error of its own and change nothing that lake
and cursor hold; afterwards this version goes on from there to the end of the shop. Exits with 1 if
not. The other direction, an earlier state in the hands of this version, is
`tests/golden/test_golden_lake.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo.verify import read_expected
from cdc_pipeline.sink.read.cuts import find_cut, paths_of
from tests.golden.record_state import ROOT, config_text
from tests.support.delta_reader import newest_rows

_COMMANDS = (("status", "shop"), ("run", "shop"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.upgrades", description=__doc__)
    parser.add_argument("--commit", required=True, help="of the earlier program")
    parser.add_argument("--state", type=Path, help="by default the newest of tests/golden")
    options = parser.parse_args(arguments)
    states = sorted((ROOT / "tests" / "golden").glob("state-*.tar.xz"))
    state = options.state or states[-1]
    findings = 0
    with tempfile.TemporaryDirectory(prefix="upgrades-") as home:
        program, project = Path(home) / "program", Path(home) / "project"
        _program_of(options.commit, program)
        with tarfile.open(state) as archive:
            archive.extractall(project, filter="data")
        (project / "jobs").mkdir()
        (project / "jobs" / "shop.yaml").write_text(config_text(SHOP_DIRECTORY / "journals"))
        for command in _COMMANDS:
            before = _content(project)
            done = _play(program, project, command)
            told = f"{options.commit}, {' '.join(command)}"
            if done.returncode == 0:
                print(f"{told}: goes on", flush=True)
            elif "Traceback" in done.stdout + done.stderr:
                findings += 1
                print(f"{told}: no error of its own\n{done.stdout}{done.stderr}", flush=True)
            elif _content(project) != before:
                findings += 1
                changed = sorted(dict(_content(project).items() ^ before.items()))
                print(f"{told}: stops, and has changed {', '.join(changed)}\n{done.stderr}")
            else:
                print(f"{told}: stops, nothing changed\n{done.stdout}{done.stderr}", flush=True)
        done = _play(ROOT, project, ("run", "shop"))
        if done.returncode:
            findings += 1
            print(f"this version cannot go on then\n{done.stdout}{done.stderr}")
        elif not _is_at_end(project / "lake"):
            findings += 1
            print("this version goes on then, and the customers are not the shop's")
        else:
            print("this version goes on then, to the shop's end")
    return 1 if findings else 0


def _program_of(commit: str, folder: Path) -> None:
    packed = subprocess.run(
        ["git", "archive", commit, "cdc_pipeline", "pyproject.toml"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _play(program: Path, project: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cdc_pipeline.cli", "--jobs", project / "jobs", *command],
        env={
            **os.environ,
            "PYTHONPATH": str(program),
            "DAGSTER_HOME": str(project / "dagster_home"),
        },
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )


def _content(project: Path) -> dict[str, str]:
    """What each file of lake and cursor holds, but for locks."""
    return {
        str(file.relative_to(project)): hashlib.sha256(file.read_bytes()).hexdigest()
        for folder in ("lake", "cursors")
        for file in (project / folder).rglob("*")
        if file.is_file() and file.suffix != ".lock"
    }


def _is_at_end(lake: Path) -> bool:
    """Whether the customers of the lake are those of the shop at its end."""
    header, expected = read_expected(SHOP_DIRECTORY / "expected" / "customers.jsonl.gz")
    assert find_cut(paths_of(lake, "shop")).cursor.suspended == {}
    rows = newest_rows(lake / "shop" / "customers")
    keys = {tuple(row[name] for name in header["key"]) for row in rows}
    return len(rows) == len(keys) == expected.num_rows


if __name__ == "__main__":
    sys.exit(main())
