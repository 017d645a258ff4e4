"""One mutation in a copy of the project: its test must pass before it, and fail with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("cdc_pipeline", "tests", "tools", "jobs", "dagster_home", "benchmarks", "docs")
FILES = ("pyproject.toml", "README.md", "ARCHITECTURE.md", "Makefile", "requirements.lock", "workspace.yaml")
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Mutation:
    """A rule taken out.

    Attributes:
        rule: ``K1`` ...
        what: what is not done any more, in words.
        path: of the file, below ``cdc_pipeline/``.
        old: a text that is there once.
        new: what stands in its place.
        test: pytest's name of the test that must fail, below ``tests/``.
        spark: whether that test starts Spark.
    """

    rule: str
    what: str
    path: str
    old: str
    new: str
    test: str
    spark: bool = False


@dataclass(frozen=True)
class Outcome:
    mutation: Mutation
    killed: bool
    what: str


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A copy of the project in `folder`; compiled kernels come along, with the times of their sources."""
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
    assert text.count(mutation.old) == 1, f"{mutation.path}: not there once: {mutation.old}"
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(project: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """pytest's run of some tests in a copy, up to the first that fails."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def judge(project: Path, mutation: Mutation) -> Outcome:
    """Whether the test sees that the rule is out. A test that cannot be collected sees nothing."""
    with mutated(project, mutation):
        done = run_tests(project, mutation.test)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr.strip()[-200:]]
    return Outcome(mutation, done.returncode == 1 and " failed" in last[0], last[0])
