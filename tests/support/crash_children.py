"""Processes for runs that are killed: each its own, forked from one that has imported what they all
need.

A process that starts from nothing spends four CPU-seconds on that before it reaches its first line.
What is killed is the same: a process with threads, files, locks and a JVM of its own, none of which
were there when it was forked.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_TIMEOUT_S = 300
_context = multiprocessing.get_context("forkserver")


def run_child(
    arguments: list[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    module: str = "tests.support.crash_child",
    timeout_s: float = _TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """`main` of `module` with `arguments` in a process of its own; what it prints goes through
    files in `folder`. Raises subprocess.TimeoutExpired: it did not end; it is killed.
    """
    _context.set_forkserver_preload(["tests.support.crash_warm"])
    printed = [folder / "child.out", folder / "child.err"]
    child = _context.Process(
        target=_body, args=(module, arguments, dict(environment), *map(str, printed))
    )
    child.start()
    child.join(timeout_s)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise subprocess.TimeoutExpired(
            arguments, timeout_s, *(file.read_bytes() for file in printed)
        )
    out, err = (file.read_text(encoding="utf-8") for file in printed)
    return subprocess.CompletedProcess(arguments, child.exitcode, out, err)


def _body(
    module: str, arguments: list[str], environment: Mapping[str, str], out: str, err: str
) -> None:
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.environ.update(environment)
    sys.exit(importlib.import_module(module).main(*arguments))
