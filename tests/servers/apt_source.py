"""Debian packages fetched without root, from the machine's own apt sources.

Rules:
- No mirror is named here: every address comes from the machine's own apt configuration, only the
  suite is replaced.
- The machine's package state is neither read nor written: lists, status and archives live in a
  folder of our own. With an empty status file apt resolves every dependency down to the C library,
  so that the tree runs by its own loader.
- Nothing is installed: packages are downloaded, verified by apt against the archive's key, and
  unpacked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from cdc_pipeline.errors import RuntimeSetupError

_ONE_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>(?:\s+\S+)+)"
)
_DEBIAN_SUITES = frozenset(
    [
        "bullseye",
        "bookworm",
        "trixie",
        "forky",
        "sid",
        "oldoldstable",
        "oldstable",
        "stable",
        "testing",
        "unstable",
    ]
)
_OPTION_FIELDS = {"signed-by": "Signed-By", "arch": "Architectures", "trusted": "Trusted"}

WAY_OUT = (
    "name servers by CDC_PIPELINE_MYSQLD and CDC_PIPELINE_MARIADBD, or put mysqld and "
    "mariadbd on the PATH"
)

Stanza = dict[str, str]
"""One deb822 source: field name in its usual spelling -> value (continuation lines kept)."""


def machine_stanzas(etc_apt: Path = Path("/etc/apt")) -> list[Stanza]:
    """Enabled binary sources, both forms, as deb822."""
    files = [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))]
    stanzas: list[Stanza] = []
    for file in files:
        if file.suffix not in (".list", ".sources") or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        stanzas += parse_deb822(text) if file.suffix == ".sources" else parse_one_line(text)
    return stanzas


def parse_deb822(text: str) -> list[Stanza]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    stanzas: list[Stanza] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        stanza: Stanza = {}
        field = None
        for line in block.splitlines():
            if line[:1] in (" ", "\t") and field is not None:
                stanza[field] += "\n" + line
            elif ":" in line:
                name, value = line.split(":", 1)
                field = name.strip().title()
                stanza[field] = value.strip()
        enabled = stanza.get("Enabled", "yes").lower() not in ("no", "false", "0")
        if enabled and "deb" in stanza.get("Types", "").split() and "Uris" in stanza:
            stanza["Types"] = "deb"
            stanzas.append(stanza)
    return stanzas


def parse_one_line(text: str) -> list[Stanza]:
    stanzas: list[Stanza] = []
    for line in text.splitlines():
        match = _ONE_LINE.fullmatch(line.split("#", 1)[0].strip())
        if match is None:
            continue
        stanza = {
            "Types": "deb",
            "Uris": match["uri"],
            "Suites": match["suite"],
            "Components": match["components"].strip(),
        }
        for option in (match["options"] or "").split():
            name, _, value = option.partition("=")
            if name in _OPTION_FIELDS:
                stanza[_OPTION_FIELDS[name]] = value.replace(",", " ") if name == "arch" else value
        stanzas.append(stanza)
    return stanzas


def own_suite(stanzas: list[Stanza]) -> str | None:
    """That this machine's own packages come from, such as ``bookworm``."""
    for stanza in stanzas:
        for suite in stanza["Suites"].split():
            if suite in _DEBIAN_SUITES and "main" in stanza.get("Components", "").split():
                return suite
    return None


def stanzas_for(suite: str, stanzas: list[Stanza], *, way_out: str = WAY_OUT) -> list[Stanza]:
    """The machine's sources of `suite` and its updates, else its first Debian main source with
    the suite replaced. Raises RuntimeSetupError: it has none with the component main.
    """
    own = [
        s
        for s in stanzas
        if any(name == suite or name.startswith(suite + "-") for name in s["Suites"].split())
    ]
    if any(suite in s["Suites"].split() for s in own):
        return own
    for stanza in stanzas:
        plain = _DEBIAN_SUITES.intersection(stanza["Suites"].split())
        if plain and "main" in stanza.get("Components", "").split():
            return [{**stanza, "Suites": suite, "Components": "main"}]
    raise RuntimeSetupError(
        f"no apt source of this machine can serve Debian's suite {suite}",
        expected="a Debian source with the component main in the apt configuration",
        got=f"{len(stanzas)} package sources",
        next_step=way_out,
    )


def fetch_tree(
    packages: list[str],
    *,
    suite: str,
    tree: Path,
    work: Path,
    leave_out: Collection[str] = (),
    way_out: str = WAY_OUT,
) -> dict[str, str]:
    """Download packages of a Debian suite with all their dependencies and unpack them into `tree`,
    but for `leave_out`, which the machine has; return the version of each requested one. The caller
    removes `work`. `way_out` says what to do where nothing can be fetched. Raises
    RuntimeSetupError, with a command's last lines: apt or dpkg-deb are missing, no source fits, or
    a command failed.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RuntimeSetupError(
                f"{tool} is not on this machine, so {' and '.join(packages)} cannot be fetched",
                expected="a Debian machine, or installed programs",
                next_step=way_out,
            )
    archives = work / "cache" / "archives"
    for folder in (work / "lists" / "partial", archives / "partial", work / "log", tree):
        folder.mkdir(parents=True, exist_ok=True)
    (work / "status").touch()
    sources = work / "machine.sources"
    stanzas = stanzas_for(suite, machine_stanzas(), way_out=way_out)
    blocks = ["\n".join(f"{k}: {v}" for k, v in s.items()) for s in stanzas]
    sources.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": work,
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Cache::archives": archives,
        "Dir::Log": work / "log",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::IndexTargets::deb::CNF::DefaultEnabled": "false",
    }
    apt = ["apt-get", "-q", "-y"]
    for name, value in settings.items():
        apt += ["-o", f"{name}={value}"]
    _run([*apt, "update"], way_out)
    _run([*apt, "install", "--download-only", *packages], way_out)
    versions: dict[str, str] = {}
    for deb in sorted(archives.glob("*.deb")):
        name, version = deb.name.split("_")[:2]
        if name in leave_out:
            continue
        _run(["dpkg-deb", "-x", str(deb), str(tree)], way_out)
        if name in packages:
            versions[name] = version.replace("%3a", ":")
    return versions


def _run(command: list[str], way_out: str) -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    # apt-get update answers 0 when no index could be fetched; the install that follows then fails
    # and tells.
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise RuntimeSetupError(
            f"{command[0]} {command[-1]} failed with exit code {done.returncode}",
            got=tail,
            next_step=f"check that `apt-get update` works on this machine; or {way_out}",
        )
