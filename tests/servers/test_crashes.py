"""The plugin `tests.servers.crashes` in sessions of its own, with servers of their own that a test
kills."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Flavor

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = """
import pytest
from pathlib import Path
from tests.servers import Server, crashes
from tests.servers.crashes import watched

def pytest_configure(config):
    config.pluginmanager.register(crashes)

@pytest.fixture(scope="session")
def server():
    with watched(Server("{flavor}")) as server:
        yield server

@pytest.fixture(scope="module")
def table(server):
    server.execute_all("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    return "d.t"

@pytest.fixture
def run(request):
    \"\"\"How often this test has begun, this time with it.\"\"\"
    path = Path(__file__).with_name(request.node.name)
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())
"""

CASES = """
import os, signal
import pytest

def end(server, number):
    os.kill(server.pid, number)
    server._process.wait(60)

def test_before(server, table, run):
    server.execute(f"INSERT INTO {table} VALUES (1)")

def test_crash(server, table, run):
    server.execute("SET GLOBAL max_connect_errors = 77")
    if run == 1:
        end(server, signal.SIGSEGV)
    assert server.query(f"SELECT a FROM {table}") == [(1,)]
    assert server.variable("max_connect_errors") == "77"

def test_after(server, table, run):
    assert run == 1
    assert server.query(f"SELECT a FROM {table}") == [(1,)]

def test_own_failure(server, run):
    assert run > 1, "never a second time"

def test_always_crashes(server, run):
    end(server, signal.SIGKILL)
    pytest.fail("crashed again")

def test_ended_in_order(server, run):
    assert run == 1
    end(server, signal.SIGTERM)

def test_killed_by_the_test(server, table, run):
    server.kill()
    server.start()
    assert run == 1
    assert server.query(f"SELECT a FROM {table}") == [(1,)]

def test_fixture_of_the_module(late, run):
    assert late == "made"

@pytest.fixture(scope="module")
def late(server, tmp_path_factory):
    mark = tmp_path_factory.getbasetemp() / "late"
    if not mark.exists():
        mark.touch()
        end(server, signal.SIGSEGV)
        server.query("SELECT 1")
    return "made"
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("flavor", "workers"),
    [
        pytest.param("mysql", 0, marks=pytest.mark.mysql, id="mysql"),
        pytest.param("mariadb", 1, marks=pytest.mark.mariadb, id="mariadb-in_a_worker"),
    ],
)
def test_a_crash_costs_one_run_more_and_is_told(
    tmp_path: Path, flavor: Flavor, workers: int
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(flavor=flavor), encoding="utf-8")
    (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-n",
        str(workers),
        "--tb=line",
        ".",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert re.search(r"\b2 failed, 6 passed in ", done.stdout), done.stdout + done.stderr
    assert "AssertionError: never a second time" in done.stdout
    summary = done.stdout.split("= servers that crashed =")[1].split("= short test summary")[0]
    assert "crashes: 5; tests run again: 3" in summary
    assert re.findall(r"run again: test_cases.py::(.*)", summary) == [
        "test_crash (the first run failed in call)",
        "test_always_crashes (the first run failed in call)",
        "test_fixture_of_the_module (the first run failed in setup)",
    ]
    assert f"{flavor} " in summary
    assert len(re.findall(r"got signal 11", summary)) == 2
    assert "could not be started again" not in summary
    runs = {
        path.name: len(path.read_text()) for path in tmp_path.glob("test_*") if path.suffix == ""
    }
    assert runs == {
        "test_before": 1,
        "test_crash": 2,
        "test_after": 1,
        "test_own_failure": 1,
        "test_always_crashes": 2,
        "test_ended_in_order": 1,
        "test_killed_by_the_test": 1,
        "test_fixture_of_the_module": 1,
    }
