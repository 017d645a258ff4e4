"""The import fence: heavy libraries stay in their rooms (ARCHITECTURE.md); `make lint` sees that
layers point downward."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.house.sources import imports, libraries, trees

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cdc_pipeline"

# library -> the only places below cdc_pipeline/ that may import it
ROOMS = {
    "dagster": ("orchestration/",),
    "pyspark": ("sink/",),
    "pymysqlreplication": ("source/live/",),
    "numba": ("binlog/",),
    "llvmlite": ("binlog/",),
    "obstore": ("lake/storage/object_storage",),
}


# Distribution -> the modules that it gives, where they have other names.
MODULES = {
    "mysql-replication": "pymysqlreplication",
    "pyyaml": "yaml",
    "delta-spark": "delta",
    "numba": "numba llvmlite",
    "openlineage-python": "openlineage",
}


def test_libraries_are_declared_and_heavy_ones_stay_in_their_rooms() -> None:
    """Declared: among the package's dependencies, not only among those of development."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # Dagster, object stores and the client of OpenLineage are extras.
    extras = project["optional-dependencies"]
    assert extras["s3"] == extras["azure"] == extras["gcs"]
    listed = project["dependencies"] + [
        line for name in ("dagster", "s3", "openlineage") for line in extras[name]
    ]
    names = [re.split(r"[<>=!~ \[]", line)[0].lower() for line in listed]
    declared = {
        module for name in names for module in MODULES.get(name, name.replace("-", "_")).split()
    }
    users: dict[str, list[str]] = {}
    for file, tree in trees(PACKAGE):
        for library in libraries(tree):
            users.setdefault(library, []).append(str(file.relative_to(PACKAGE)))
    assert not users.keys() - declared - set(sys.stdlib_module_names) - {"cdc_pipeline"}
    for library, rooms in ROOMS.items():
        assert users.get(library), f"nobody imports {library}: the fence guards nothing"
        assert not [user for user in users[library] if not user.startswith(rooms)], library


@cache
def _names_of(file: Path) -> set[str]:
    """Those of a module's own level, and of branches there."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
            else:
                if isinstance(node, ast.Name):
                    found.add(node.id)
                waiting.append(node)
    return found


def test_what_is_imported_is_there() -> None:
    """Programs that campaigns start are imported by no test, mypy reads no tests, and some import
    in a function."""
    missing = []
    for file, tree in trees(ROOT / "tests"):
        for node in imports(tree):
            if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
                continue
            module = ROOT.joinpath(*node.module.split("."))
            source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            if not (ROOT / node.module.split(".")[0]).is_dir():
                continue
            if not source.is_file():
                missing.append(f"{file.relative_to(ROOT)}: {node.module}")
                continue
            missing += [
                f"{file.relative_to(ROOT)}: {node.module}.{alias.name}"
                for alias in node.names
                if alias.name not in _names_of(source)
                and not any(module.glob(f"{alias.name}.py"))
                and not (module / alias.name).is_dir()
            ]
    assert missing == []


@pytest.mark.parametrize(
    "statement",
    [
        "import cdc_pipeline",
        "import cdc_pipeline.config.pipeline_config, cdc_pipeline.errors",
        "import cdc_pipeline.cli",
    ],
)
def test_import_is_light(statement: str) -> None:
    script = (
        f"{statement}\nimport sys\nprint([m for m in ('dagster', 'pyspark', 'numba', 'pymysql') if "
        "m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_decoding_loads_no_pandas() -> None:
    """pyarrow imports it as soon as it is given a list: half a second of every run."""
    program = (
        "import sys; from pathlib import Path; from tests.support.shown_journals import "
        "inspect; found = inspect([Path('cdc_pipeline/demo/shop/journals')]); assert found.error "
        "is None and found.tables; print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# `monotonic` ends waits that would never end
CLOCKS = {"perf_counter", "process_time", "ru_utime", "ru_stime"}


def test_no_test_holds_a_time_or_cpu_limit() -> None:
    """Machines differ by a factor of two and are noisy (finding F24): figures belong in
    benchmarks."""
    timed = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file, tree in trees(ROOT / "tests", "|".join(CLOCKS))
        if file.name.startswith("test_")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        and any(
            (isinstance(part, ast.Attribute) and part.attr in CLOCKS)
            or (isinstance(part, ast.Name) and part.id in CLOCKS)
            for part in ast.walk(node)
        )
    ]
    assert not timed
