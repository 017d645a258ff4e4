"""Libraries in C that LD_PRELOAD puts between a program and the system."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.servers.installation import cache_folder

_CLOCK: Final = Path(__file__).with_name("clock.c")


def compiled(source: Path) -> Path:
    """A source as a shared object, in the cache. Raises RuntimeError: there is no C compiler."""
    name = f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    built = cache_folder() / "preload" / name
    if built.exists():
        return built
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError(f"{source.name} needs a C compiler: run  apt-get install gcc libc6-dev")
    built.parent.mkdir(parents=True, exist_ok=True)
    unfinished = built.with_suffix(f".{os.getpid()}")
    options = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", unfinished]
    subprocess.run([compiler, *options, source, "-ldl"], check=True)
    unfinished.rename(built)
    return built


class MovedClock:
    """The wall clock of a process that is started with `environment`, while it runs too. Monotonic
    clocks and times of files are the machine's. `by_s`: by how many seconds it is ahead of the
    machine's. Raises RuntimeError: there is no C compiler.
    """

    def __init__(self, file: Path, zone: str | None = None) -> None:
        self.file = file
        self.move(0)
        self.environment = {"LD_PRELOAD": str(compiled(_CLOCK)), "CLOCK_FILE": str(file)}
        if zone is not None:
            self.environment["TZ"] = zone

    def move(self, by_s: int) -> None:
        """So many seconds from the machine's clock, at once."""
        self.by_s = by_s
        with self.file.open("r+b" if self.file.exists() else "wb") as handle:
            handle.write(by_s.to_bytes(8, "little", signed=True))
