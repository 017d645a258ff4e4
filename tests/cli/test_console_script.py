"""The console script as a process of its own: what it loads, closed pipes, streams."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.project import ROOT, Project

SCRIPT = str(Path(sys.executable).with_name("cdc-pipeline"))


def test_help_and_validate_load_neither_dagster_nor_spark_nor_numba(fake_project: Project) -> None:
    for arguments in (["--help"], ["validate"], ["run", "--help"]):
        script = (
            f"import sys\nfrom cdc_pipeline.cli.app import cli\ncode = cli.main({arguments!r}, "
            "standalone_mode=False)\nprint({'dagster', 'pyspark', 'numba', 'pyarrow', 'numpy'} & "
            "set(sys.modules), code, file=sys.stderr)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stderr.splitlines()[-1] in ("set() 0", "set() None"), (arguments, done.stderr)


def test_a_run_that_finds_nothing_keeps_to_its_streams(fake_project: Project) -> None:
    subprocess.run([SCRIPT, "run", "shop"], check=True, capture_output=True)
    done = subprocess.run(
        [SCRIPT, "run", "shop", "--json"], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout)["outcome"] == "nothing_new"
    assert "dagster" not in done.stderr.lower()


def test_a_reader_that_goes_away_ends_binlog_quietly() -> None:
    journals = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
    process = subprocess.Popen(
        [SCRIPT, "binlog", str(journals), "--format", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    first = json.loads(process.stdout.readline())
    process.stdout.close()
    assert first["op"] == "statement"
    assert process.stderr.read() == ""
    assert process.wait(timeout=120) == 0
