"""Both ends of the ranges of pyproject.toml: the lowest versions that it accepts, and the highest
that there are (`make ends-test`).

The lowest versions are those that the ranges name, exactly, so a bound that nobody has tried is
found here. What is needed by other packages only is as new as they accept. `make test` compares
the lock with the ranges; two more environments take minutes.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import temporary_database
from tests.package.environments import Environment, build_wheel, follow_a_server
from tests.servers import Server
from tests.support.project import ROOT

_RANGE = re.compile(r"^(?P<name>[a-z0-9-]+)>=(?P<lowest>[0-9.]+)(?:,<[0-9.]+)?$")
_LOCKED = re.compile(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==([0-9.]+)", re.MULTILINE)


def _ranges() -> dict[str, str]:
    """Return the lowest version of each direct dependency, those of Dagster and S3 too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = project["dependencies"] + extras["dagster"] + extras["s3"]
    found = [_RANGE.match(line) for line in lines]
    assert None not in found, lines
    return {match["name"]: match["lowest"] for match in found if match}


def _as_numbers(version: str) -> list[int]:
    numbers = [int(part) for part in version.split(".")]
    while numbers[-1:] == [0]:
        numbers.pop()
    return numbers


def test_the_lock_is_within_the_ranges() -> None:
    lock = dict(_LOCKED.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    below = [
        f"{name} {lock[name]} is below {lowest}"
        for name, lowest in _ranges().items()
        if _as_numbers(lock[name]) < _as_numbers(lowest)
    ]
    assert not below


@pytest.mark.skipif(not os.environ.get("ENDS_TEST"), reason="`make ends-test` runs it")
@pytest.mark.mysql
@pytest.mark.spark
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_the_package_works_at_both_ends(end: str, tmp_path: Path, mysql_server: Server) -> None:
    """The recorded shop as runs of Dagster, definitions, a server, and the cursor in the lake."""
    wheel = build_wheel(tmp_path / "dist")
    environment = Environment.make(tmp_path / "environment", tmp_path / "work")
    constraints = tmp_path / "constraints.txt"
    ranges = _ranges() if end == "lowest" else {}
    constraints.write_text("".join(f"{name}=={lowest}\n" for name, lowest in ranges.items()))
    environment.install("--constraint", str(constraints), f"{wheel}[dagster,s3]")
    for name, lowest in ranges.items():
        version = environment.python(f"import importlib.metadata as m; print(m.version({name!r}))")
        assert _as_numbers(version) == _as_numbers(lowest), name

    assert json.loads(environment.run("cdc-pipeline", "demo", "--json").stdout)["verified"]
    project = environment.working / "cdc_demo"
    validate = ("definitions", "validate", "-w", "workspace.yaml")
    environment.run("dagster", *validate, cwd=project)
    moved = environment.run(
        "cdc-pipeline", "run", "shop", "--cursor", "lake", "--json", cwd=project
    )
    assert json.loads(moved.stdout)["outcome"] == "nothing_new"
    environment.run("cdc-pipeline", "--cursor", "lake", "cursor", "history", "shop", cwd=project)

    environment.run("cdc-pipeline", "init", "my_project")
    with temporary_database(mysql_server) as database:
        follow_a_server(environment, environment.working / "my_project", mysql_server, database)
