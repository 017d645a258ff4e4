"""Where the tests' browser comes from.

Order of search:
1. the program named by ``CDC_PIPELINE_CHROMIUM`` (one that does not run is an error);
2. ``chromium``, ``chromium-browser`` or ``google-chrome`` on the PATH, if it runs;
3. the project's cache; filled once from the machine's own Debian suite through its own apt sources,
   without root.

Rules:
- The fetched browser runs by the machine's C library and loader, and by the tree's libraries for
  all else: the browser starts itself again by ``/proc/self/exe``, so no other loader can stand
  before it. Both are of the same suite.
- The fetched browser sees the tree's fonts alone, so that pages look the same on every machine.
- A folder of the cache is complete or absent (see `fill_once`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers.apt_source import fetch_tree, machine_stanzas, own_suite
from tests.servers.installation import cache_folder, fill_once

VARIABLE = "CDC_PIPELINE_CHROMIUM"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
"""Without a display, without root's sandbox, and without a word to anyone but the page's own server."""  # noqa: E501

_PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
_SUITE_WHERE_UNKNOWN = "bookworm"
_WAY_OUT = (
    f"name a Chromium or Chrome by {VARIABLE}, or put one of {', '.join(PROGRAMS)} on the PATH"
)
_VERSION_TIMEOUT_S = 60


@dataclass(frozen=True)
class Browser:
    """A browser that can be run. `program`: the executable; `version`: as the program itself tells,
    such as ``Chromium 150.0.7871.100``; `environment`: variables that it needs beside the
    present ones; `origin`: for people: where it was found.
    """

    program: Path
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""

    def full_environment(self) -> dict[str, str | float | bool]:
        return {**os.environ, **self.environment}


@cache
def find_browser() -> Browser:
    """The browser for this process, fetched if need be. Raises RuntimeSetupError: there is none and
    it cannot be fetched, or the named one does not run.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = _tried(Path(named), origin=f"named by {VARIABLE}")
        if isinstance(found, Browser):
            return found
        raise RuntimeSetupError(
            f"{named} does not run",
            setting=VARIABLE,
            expected="a Chromium or Chrome that answers --version",
            got=found,
            next_step=f"name another program, or unset {VARIABLE} to let the tests fetch one",
        )
    for program in PROGRAMS:
        path = shutil.which(program)
        # Some systems put a script there that only tells how to install a browser: it answers with
        # an error.
        if path is not None and isinstance(found := _tried(Path(path), origin=path), Browser):
            return found
    return _cached_browser()


def _cached_browser() -> Browser:
    folder = fill_once(_folder(), _fill)
    tree = folder / "tree"
    environment = {
        "LD_LIBRARY_PATH": ":".join(map(str, library_folders(tree))),
        "FONTCONFIG_FILE": str(folder / "fonts.conf"),
    }
    found = _tried(
        tree / "usr/lib/chromium/chromium-headless-shell",
        origin=f"fetched packages in {folder}",
        environment=environment,
    )
    if isinstance(found, Browser):
        return found
    raise RuntimeSetupError(
        "the fetched browser does not run",
        got=found,
        next_step=f"remove {folder} and try again; or {_WAY_OUT}",
    )


def _folder() -> Path:
    return cache_folder().with_name("browser")


def _fill(unfinished: Path) -> dict[str, object]:
    suite = own_suite(machine_stanzas()) or _SUITE_WHERE_UNKNOWN
    work, tree = unfinished / "apt", unfinished / "tree"
    versions = fetch_tree(
        list(_PACKAGES), suite=suite, tree=tree, work=work, leave_out={"libc6"}, way_out=_WAY_OUT
    )
    shutil.rmtree(work)
    shutil.rmtree(tree / "usr/share/doc", ignore_errors=True)
    (unfinished / "fonts.conf").write_text(fonts_configuration(_folder()), encoding="utf-8")
    return {"packages": versions, "suite": suite}


def fonts_configuration(folder: Path) -> str:
    """A fontconfig file that knows the fonts in `folder`, the browser's own, and no others."""
    aliases = "".join(
        f"<alias><family>{name}</family><prefer><family>{font}</family></prefer></alias>"
        for name, font in (
            ("sans-serif", "DejaVu Sans"),
            ("serif", "DejaVu Serif"),
            ("monospace", "DejaVu Sans Mono"),
        )
    )
    return (
        '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "fonts.dtd">\n<fontconfig>'
        f"<dir>{escape(str(folder / 'tree/usr/share/fonts'))}</dir>"
        f"<cachedir>{escape(str(folder / 'fonts-cache'))}</cachedir>{aliases}</fontconfig>\n"
    )


def library_folders(tree: Path) -> list[Path]:
    """The folders of an unpacked tree that hold shared libraries, those named by other libraries'
    run paths too."""
    folders = {
        file.parent
        for part in ("lib", "usr/lib")
        for pattern in ("*-linux-gnu*/lib*.so*", "*-linux-gnu*/*/lib*.so*")
        for file in (tree / part).glob(pattern)
    }
    return sorted(folders, key=lambda folder: (len(folder.parts), folder))


def _tried(
    program: Path, *, origin: str, environment: Mapping[str, str] | None = None
) -> Browser | str:
    environment = dict(environment or {})
    try:
        done = subprocess.run(
            [str(program), "--version"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return f"{program}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{program}: no answer to --version within {_VERSION_TIMEOUT_S} s"
    version = done.stdout.strip()
    if done.returncode != 0 or not any(
        name in version for name in ("Chromium", "Chrome", "HeadlessShell")
    ):
        return (version + done.stderr).strip()[
            -400:
        ] or f"exit code {done.returncode} and no version"
    return Browser(program, version, environment, origin)
