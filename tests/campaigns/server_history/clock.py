"""A server whose wall clock can be moved: the Python side of `clock.c`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

from cdc_pipeline.sink.spark.java import cache_folder
from tests.servers import Server

SOURCE: Final = Path(__file__).with_name("clock.c")


class MovedClock:
    """The clock of one server; from its next start on.

    Attributes:
        by_s: by how many seconds it is moved from the machine's.

    Raises:
        RuntimeError: there is no C compiler.
    """

    def __init__(self, server: Server, file: Path) -> None:
        self.by_s = 0
        self._file = file
        self.move(0)
        server.prepare()
        preload = ("env", f"LD_PRELOAD={_compiled()}", f"CLOCK_FILE={file}")
        installation = server.installation
        server.installation = replace(installation, command=(*preload, *installation.command))

    def move(self, by_s: int) -> None:
        """Move it by so many seconds from the machine's clock, at once."""
        self.by_s = by_s
        mode = "r+b" if self._file.exists() else "wb"
        with self._file.open(mode) as handle:
            handle.write(by_s.to_bytes(8, "little", signed=True))


def _compiled() -> Path:
    name = f"{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    built = cache_folder() / "torture_history" / name
    if built.exists():
        return built
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a clock that moves needs a C compiler: run  apt-get install gcc")
    built.parent.mkdir(parents=True, exist_ok=True)
    unfinished = built.with_suffix(".part")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(unfinished)]
    subprocess.run([*command, str(SOURCE), "-ldl"], check=True)
    unfinished.rename(built)
    return built
