"""`dg` finds the component in an installed package, and what it scaffolds loads.

The package is installed from its own wheel into a folder of the test's, because entry points exist
only where a package is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package.environments import build_wheel

Dg = Callable[..., str]
PROJECT = """\
[project]
name = "sales"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "sales"
"""
DEFINITIONS = """\
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as its wheel installs it."""
    made = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(made)
    site = made / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def dg(installed: Path, tmp_path: Path) -> Dg:
    """Runs `dg` in a new project and returns what it prints."""
    package = tmp_path / "src" / "sales"
    (package / "defs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (package / "definitions.py").write_text(DEFINITIONS)
    for folder in (package, package / "defs"):
        (folder / "__init__.py").touch()
    (home := tmp_path / "home").mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = os.environ | {
        "DAGSTER_HOME": str(home),
        "COLUMNS": "200",
        "HOME": str(home),
        "PYTHONPATH": f"{installed}:{tmp_path / 'src'}",
    }

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("dg")), *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.nightly
def test_a_scaffolded_component_is_listed_and_loads(dg: Dg, tmp_path: Path) -> None:
    listed = json.loads(dg("list", "components", "--package", "cdc_pipeline", "--json"))
    assert [item["key"] for item in listed["items"]] == ["cdc_pipeline.CdcComponent"]
    assert listed["items"][0]["summary"]
    dg("scaffold", "defs", "cdc_pipeline.CdcComponent", "shop", "--tables", "shop.orders")
    folder = tmp_path / "src" / "sales" / "defs" / "shop"
    assert "type: cdc_pipeline.CdcComponent" in (folder / "defs.yaml").read_text()
    written = (folder / "shop.yaml").read_text()
    assert "`cdc-pipeline --jobs src/sales/defs/shop doctor shop`" in written
    assert 'lake_path: "../../../../lake"' in written
    assert "All definitions loaded successfully" in dg("check", "defs")
    defined = dg("list", "defs")
    for name in ("shop/shop/orders", "shop/cursor", "shop_capture", "shop_snapshot"):
        assert name in defined
