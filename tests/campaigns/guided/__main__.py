"""Fuzzing of single parsers, guided by the code that an input reaches.

``python -m tests.campaigns.guided [--minutes M] [--target NAME] [--keep]`` (``make fuzz-guided``).

Installs the fuzzer into an environment of its own, and runs each target (see `targets.py`) in
processes that share the time. Exits with 1 if one ended otherwise than it must; the input is
printed, and belongs into the target's file under `corpus/` with the repair.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.campaigns.guided import corpus
from tests.campaigns.guided.targets import TARGETS, beginnings

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
_INPUT_S_MAX: Final = 25
_MEMORY_MB_MAX: Final = 3000


@dataclass(frozen=True)
class Run:
    """How a target ended.

    Attributes:
        count: inputs that were tried.
        findings: names of what went wrong, with the input; `log` is the end of what was printed.
    """

    name: str
    count: int
    findings: list[tuple[str, bytes]]
    log: str


def install(folder: Path) -> Path:
    """An environment with the fuzzer alone; its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*install, "--require-hashes", "-r", str(HERE / "requirements.lock")], check=True
    )
    return python


def fuzz(python: Path, name: str, seconds: int, folder: Path, *, keep: bool) -> Run:
    """Run a target for a time; with `keep` its corpus gets the inputs that reach something new."""
    started, found, made = (folder / f"{name}-{part}" for part in ("started", "found", "made"))
    for part in (started, found, made):
        part.mkdir()
    for number, data in enumerate([*beginnings(name), *corpus.inputs(name)]):
        (started / f"{number}").write_bytes(data)
    options = [
        f"-timeout={_INPUT_S_MAX}",
        f"-rss_limit_mb={_MEMORY_MB_MAX}",
        "-max_len=8000",
        f"-artifact_prefix={made}/",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    count, until_s, is_full = 0, time.monotonic() + seconds, True
    while is_full and (left_s := round(until_s - time.monotonic())) > 0:
        limit = f"-max_total_time={left_s}"
        ended = _child(python, name, limit, *options, str(found), str(started))
        log = ended.stdout + ended.stderr
        count += _executed(log)
        # The fuzzer's own memory grows with its inputs: it is an input's only if that one alone
        # takes as much. Otherwise another process goes on.
        is_full = False
        for file in made.glob("oom-*"):
            if not _child(python, name, *options, str(file)).returncode:
                file.unlink()
                is_full = True
    findings = [(file.name, file.read_bytes()) for file in sorted(made.iterdir())]
    if ended.returncode and not findings and not is_full:
        findings = [(f"the process ended with {ended.returncode}", b"")]
    if keep and not findings:
        new = [file.read_bytes() for file in found.iterdir()]
        corpus.keep(name, [*corpus.inputs(name), *new])
    return Run(name, count, findings, log[-3000:])


def _executed(log: str) -> int:
    """How many inputs a process tried, by what it says at its end."""
    said = "stat::number_of_executed_units"
    return next((int(line.split(":")[-1]) for line in log.splitlines() if line.startswith(said)), 0)


def _child(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of the fuzzer's interpreter that also finds what this one has installed."""
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return subprocess.run(
        [str(python), str(HERE / "child.py"), *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "NUMBA_DISABLE_JIT": "1",
        },
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.guided", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="of all targets together")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append", help="only this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="write what was found to corpus/")
    options = parser.parse_args()
    names = options.target or list(TARGETS)
    rounds = -(-len(names) // options.workers)
    seconds = max(1, int(options.minutes * 60 / rounds))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="cdc-guided-") as name:
        folder = Path(name)
        python = install(folder / "venv")
        with ThreadPoolExecutor(options.workers) as pool:
            runs = pool.map(
                lambda target: fuzz(python, target, seconds, folder, keep=options.keep), names
            )
            for run in runs:
                print(f"{run.name}: {run.count} inputs, {len(run.findings)} findings", flush=True)
                for what, data in run.findings:
                    failed += 1
                    print(f"  {what}: {data.hex()}\n{run.log}")
    print(f"{len(names)} targets of {seconds} s each: {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
