"""What the package imports is among its dependencies, not only among those of development."""

import re
import sys
import tomllib
from pathlib import Path

from tests.house.sources import libraries, trees

ROOT = Path(__file__).parents[2]
# Distribution -> the modules that it gives, where they have other names.
MODULES = {
    "mysql-replication": "pymysqlreplication",
    "pyyaml": "yaml",
    "delta-spark": "delta",
    "numba": "numba llvmlite",
    "openlineage-python": "openlineage",
}


def test_what_the_package_imports_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # Dagster is an extra; its room alone imports it (`test_fence.py`). Object stores and the client
    # of OpenLineage are others.
    extras = project["optional-dependencies"]
    assert extras["s3"] == extras["azure"] == extras["gcs"]
    listed = project["dependencies"] + [
        line for name in ("dagster", "s3", "openlineage") for line in extras[name]
    ]
    names = [re.split(r"[<>=!~ \[]", line)[0].lower() for line in listed]
    declared = {
        module for name in names for module in MODULES.get(name, name.replace("-", "_")).split()
    }
    imported = set().union(*(libraries(tree) for _, tree in trees(ROOT / "cdc_pipeline")))
    assert not imported - declared - set(sys.stdlib_module_names) - {"cdc_pipeline"}
