"""The console script as a process of its own: what it loads, closed pipes, streams."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cdc_pipeline.binlog.native.compiling import COMPILING
from cdc_pipeline.cli.app import cli
from tests.support.fake_capture import cut, write_config, write_cut
from tests.support.project import ROOT, Project

SCRIPT = str(Path(sys.executable).with_name("cdc-pipeline"))


HEAVY = {"dagster", "pyspark", "numba", "llvmlite", "pyarrow", "numpy", "pandas", "deltalake"}


@pytest.mark.parametrize(
    "arguments", ["--help", "run --help", "validate", "status", "cuts list shop", "cuts show shop"]
)
def test_a_command_loads_no_library_that_it_does_not_need(
    fake_project: Project, arguments: str
) -> None:
    """What files tell needs neither Dagster nor Arrow (what it costs: `make bench
    NAME=commands`)."""
    write_config(
        fake_project.jobs,
        "shop",
        include=("shop.orders",),
        extra="schedule: {cron: '*/15 * * * *', timezone: Europe/Berlin}\n",
    )
    write_cut(fake_project.lake, cut(batch=1, tables={"shop.orders": 1}))
    script = (
        "import sys\nfrom cdc_pipeline.cli.app import cli\n"
        f"code = cli.main({arguments.split()!r}, standalone_mode=False)\n"
        f"print({HEAVY!r} & set(sys.modules), code, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] in ("set() 0", "set() None"), done.stderr


@pytest.mark.usefixtures("fake_project", "captured_output")
def test_a_run_that_finds_nothing_keeps_to_its_streams() -> None:
    assert CliRunner().invoke(cli, ["run", "shop"]).exit_code == 0
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
    # Kernels that are not compiled yet are announced.
    assert process.stderr.read() in ("", COMPILING + "\n")
    assert process.wait(timeout=120) == 0


@pytest.mark.parametrize(
    ("number", "code", "options"),
    [(signal.SIGINT, 130, []), (signal.SIGTERM, 143, []), (signal.SIGTERM, 143, ["--json"])],
)
def test_f250_a_command_that_is_stopped_says_what_it_leaves(
    tmp_path: Path, number: signal.Signals, code: int, options: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = {"kind": "live", "host": "127.0.0.1", "port": silent.getsockname()[1]}
        account = {"user": "cdc", "password": "${SECRET}"}
        pipeline = {
            "source": source | account,
            "tables": {"include": ["a.*"]},
            "sink": {"lake_path": str(tmp_path / "lake")},
        }
        (tmp_path / "shop.yaml").write_text(json.dumps(pipeline))
        with subprocess.Popen(
            [SCRIPT, "--jobs", str(tmp_path), "--cursor", "lake", "run", "shop", *options],
            env={**os.environ, "SECRET": "x"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Tests in the background ignore SIGINT, and Dagster makes of SIGTERM what SIGINT is.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        ) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(number)
                result, said = process.communicate()
                if options:
                    document = json.loads(result)
                    assert (document["code"], document["got"]) == ("stopped", "no cut yet")
                else:
                    assert said.splitlines()[-3:] == [
                        "Error: the command was stopped",
                        "  got       no cut yet",
                        "  next      give the same command again: what is published stays, and it "
                        "goes on from there",
                    ]
    assert process.returncode == code
