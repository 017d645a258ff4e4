"""The Python side of `shim.c`: compiled once, controlled by a file that all processes map, its log
read.

It is loaded into processes that `environment` is given to, and does nothing in them before `arm`.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.servers.preload import compiled

SOURCE: Final = Path(__file__).with_name("shim.c")
Fault = Literal["none", "full", "broken", "exit", "kill"]
_FAULTS: Final[tuple[Fault, ...]] = ("none", "full", "broken", "exit", "kill")
_CONTROL: Final = struct.Struct("=QQIIII512s")


@dataclass(frozen=True, slots=True)
class Call:
    """One call that succeeded. `second`: the other path, the size after a sync, or the name in the
    grave of what was unlinked; `third`: the name in the grave of what was renamed over.
    """

    number: int
    name: str
    path: Path
    second: str
    third: str = ""


class Disk:
    """Faults and the log of all processes that work below `root`, from `folder`'s files."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self._folder = folder
        self.grave = folder / "grave"
        self.grave.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log"
        self._log.touch()
        control = folder / "control"
        if not control.exists():
            control.write_bytes(bytes(4096))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 4096)

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(compiled(SOURCE)),
            "DISK_ROOT": str(self.root),
            "DISK_CONTROL": str(self._folder / "control"),
            "DISK_LOG": str(self._log),
            "DISK_GRAVE": str(self.grave),
        }

    @contextmanager
    def armed(self, fault: Fault = "none", *, at: int = 0, stays: bool = False) -> Iterator[None]:
        """Count and log while the context lasts; call number `at` fails, with `stays` all later
        ones too."""
        self._control[: _CONTROL.size] = _CONTROL.pack(
            0, at, _FAULTS.index(fault), stays, 1, 0, b""
        )
        try:
            yield
        finally:
            self._control[24:28] = struct.pack("=I", 0)

    @property
    def counted(self) -> int:
        return int(_CONTROL.unpack(self._control[: _CONTROL.size])[0])

    @property
    def hit(self) -> str:
        found = _CONTROL.unpack(self._control[: _CONTROL.size])
        return found[6].split(b"\0")[0].decode() if found[5] else ""

    def clear(self) -> None:
        os.truncate(self._log, 0)
        for file in self.grave.iterdir():
            file.unlink()

    def calls(self) -> list[Call]:
        found = []
        for line in self._log.read_text().splitlines():
            number, name, path, second, *rest = line.split("\t")
            found.append(Call(int(number), name, Path(path), second, rest[0] if rest else ""))
        return found


if __name__ == "__main__":
    compiled(SOURCE)
