"""Clocks of processes that tests set: libfaketime, loaded into them, reads an offset from a file.

Rules:
- The library comes from the machine, or from Debian's package through the machine's own apt
  sources into the cache, without root (`tests/servers/apt_source.py`).
- Each process has a file of its own, so that a server and a pipeline have clocks of their own. A
  change holds for the next call that asks for the time.
- Monotonic clocks go on, as on a real machine whose clock is set. Times of files are the machine's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers.apt_source import fetch_tree, machine_stanzas, own_suite
from tests.servers.installation import cache_folder, fill_once

_PACKAGE: Final = "libfaketime"
_NAME: Final = "libfaketimeMT.so.1"
_PLACES: Final = (Path("/usr/lib"), Path("/usr/local/lib"), Path("/lib"))
_WAY_OUT: Final = "install it: apt-get install libfaketime"


def library() -> Path:
    """The library, fetched once if the machine has none.

    Raises:
        RuntimeSetupError: it is not on this machine and cannot be fetched.
    """
    found = _library_in(*_PLACES)
    if found is not None:
        return found

    def fill(unfinished: Path) -> dict[str, object]:
        suite = own_suite(machine_stanzas())
        if suite is None:
            raise RuntimeSetupError(
                f"{_PACKAGE} is not on this machine, which has no Debian package source",
                expected=_NAME,
                next_step=_WAY_OUT,
            )
        work = unfinished / "apt"
        versions = fetch_tree(
            [_PACKAGE], suite=suite, tree=unfinished / "tree", work=work, way_out=_WAY_OUT
        )
        shutil.rmtree(work)
        return {"packages": versions, "suite": suite}

    tree = fill_once(cache_folder() / _PACKAGE, fill) / "tree"
    found = _library_in(tree)
    if found is None:
        raise RuntimeSetupError(
            f"the package {_PACKAGE} has no {_NAME}",
            got=tree,
            next_step=f"remove {tree.parent} and try again",
        )
    return found


def _library_in(*folders: Path) -> Path | None:
    places = (place for folder in folders for place in sorted(folder.glob(f"**/faketime/{_NAME}")))
    return next(places, None)


@dataclass
class FakeClock:
    """The clock of a process that is started with `environment`.

    Attributes:
        file: holds the offset.
        zone: name of its time zone.
    """

    file: Path
    zone: str = "UTC"

    def __post_init__(self) -> None:
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Be so many seconds ahead of the machine's clock from now on."""
        self.offset_s = offset_s
        begun = self.file.with_name(f".{self.file.name}")
        begun.write_text(f"{offset_s:+d}")
        begun.replace(self.file)

    def environment(self) -> dict[str, str]:
        """For the process that is to have this clock."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # its repair of timed waits for an old C library makes those of a new one end at once
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
            "TZ": self.zone,
        }
