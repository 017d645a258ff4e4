"""One mutation in a copy of the project: its test must pass before it, and fail with it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations import places
from tests.mutations.rules import Mutation

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("cdc_pipeline", "tests", "tools", "jobs", "dagster_home", "benchmarks", "docs")
FILES = (
    "pyproject.toml",
    "README.md",
    "ARCHITECTURE.md",
    "Makefile",
    "requirements.lock",
    "workspace.yaml",
)
TIMEOUT_S = 1800
LIBRARIES = (
    "pytest",
    "hypothesis",
    "numba",
    "numpy",
    "pyarrow.parquet",
    "pydantic",
    "sqlglot",
    "deltalake",
    "pymysql",
    "click",
    "rich",
)


@dataclass(frozen=True)
class Outcome:
    mutation: Mutation
    killed: bool
    what: str


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A copy of the project in `folder`; compiled kernels come along, with the times of their
    sources."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, folder / name)
    yield folder


@contextmanager
def mutated(project: Path, mutation: Mutation) -> Iterator[None]:
    """The rule is out while the context lasts."""
    file = project / "cdc_pipeline" / mutation.path
    text, times = file.read_text(encoding="utf-8"), file.stat()
    file.write_text(places.mutated(text, mutation.scope, mutation.edits), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(project: Path, *tests: str) -> tuple[int, str]:
    """pytest's exit code for some tests in a copy, up to the first that fails, and what it printed.

    It runs in a process that is forked from this one, which has imported the libraries and nothing
    of the project.
    """
    for name in LIBRARIES:
        importlib.import_module(name)
    printed = project / "printed"
    child = multiprocessing.get_context("fork").Process(
        target=_body, args=(project, tests, printed)
    )
    child.start()
    child.join(TIMEOUT_S)
    if child.exitcode is None:
        child.kill()
        child.join()
    return child.exitcode or 0, printed.read_text(encoding="utf-8", errors="replace")


def _body(project: Path, tests: tuple[str, ...], printed: Path) -> None:
    file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(file, number)
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("tests", "tools", "cdc_pipeline")
    ]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = str(project)  # for processes that the tests start
    sys.dont_write_bytecode = True
    sys.path[:] = [str(project), *(place for place in sys.path if place not in ("", str(ROOT)))]
    os.chdir(project)
    import pytest
    from hypothesis import Phase, settings

    # That a test fails is all that is asked: no example is made smaller.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutations", phases=phases, derandomize=True, deadline=None)
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=mutations"]
    code = pytest.main([*options, *(f"tests/{test}" for test in tests)])
    sys.stdout.flush()
    os._exit(int(code))


def judge(project: Path, mutation: Mutation) -> Outcome:
    """Whether the test sees that the rule is out. A test that cannot be collected sees nothing."""
    with mutated(project, mutation):
        code, printed = run_tests(project, mutation.test)
    last = (printed.strip().splitlines() or ["nothing was printed"])[-1]
    return Outcome(mutation, code == 1 and " failed" in last, last)
