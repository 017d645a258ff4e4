"""The decoders that ours is compared with, each through its registry package, in a process of its
own.

Rules:
- A peer decodes the whole journal once to warm up, then again, measured by its own process's CPU
  clock (user and system, all threads: collectors and just-in-time compilers count). What takes
  minutes says so in `note`.
- Each says how many changes, images, cells and NULLs it found, so that all have decoded the same.
- A peer whose tools are missing raises NotRunError; nothing else does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.decode.peers.build import built, java_command, require
from benchmarks.decode.result import Decoded, NotRunError
from cdc_pipeline.errors import CdcError
from tests.servers import find_installation

_COUNTED_BYTES = 8 << 20
_SOURCES = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Peer:
    """A decoder. `name`: what a person reads; with its version. `json`: what it makes of JSON
    values; `crc`: whether it verifies checksums; `run`: decodes a journal. Raises NotRunError.
    `note`: what else distinguishes its figure.
    """

    name: str
    json: str
    crc: str
    run: Callable[[Path], Decoded]
    note: str = ""


def _result(command: list[str]) -> Decoded:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "nothing was said").splitlines()[0]
        raise NotRunError(f"it failed: {said}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Decoded(
        **{name: found[name] for name in ("changes", "images", "cells", "nulls", "cpu_s")}
    )


def _go_mysql(journal: Path) -> Decoded:
    require("go")
    folder = built(_SOURCES / "go_mysql", ["go", "build", "-o", "peer", "."])
    return _result([str(folder / "peer"), str(journal), str(journal)])


def _mysql_common(journal: Path) -> Decoded:
    require("cargo")
    folder = built(_SOURCES / "mysql_common", ["cargo", "build", "--quiet", "--release"])
    return _result([str(folder / "target/release/peer"), str(journal), str(journal)])


def _java(folder_name: str, journal: Path, *arguments: str) -> Decoded:
    command = java_command(_SOURCES / folder_name)
    return _result([*command, *arguments, str(journal), str(journal)])


def _pymysqlreplication(journal: Path) -> Decoded:
    from benchmarks.decode.peers.pymysql_decoder import PART_CHANGES

    command = [
        sys.executable,
        "-m",
        "benchmarks.decode.peers.pymysql_decoder",
        str(journal),
        str(PART_CHANGES),
    ]
    whole = _result(command)
    return Decoded(whole.changes, whole.images, whole.cells, None, whole.cpu_s, is_whole=False)


def _mysqlbinlog(journal: Path) -> Decoded:
    """It prints text, which is read and counted here; only its own CPU time is taken. Nothing of it
    warms up."""
    try:
        tool = find_installation("mysql").tool("mysqlbinlog")
    except CdcError as error:
        raise NotRunError("no mysqlbinlog") from error
    process = subprocess.Popen(
        [*tool, "--no-defaults", "-v", "--base64-output=decode-rows", str(journal)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    changes = images = cells = nulls = 0
    rest = b""
    while block := process.stdout.read(_COUNTED_BYTES):
        text, newline, rest = (rest + block).rpartition(b"\n")
        text = b"\n" + text + newline
        changes += sum(
            text.count(b"\n### %s " % op) for op in (b"INSERT INTO", b"UPDATE", b"DELETE FROM")
        )
        images += text.count(b"\n###   @1=")
        cells += text.count(b"\n###   @")
        nulls += len(re.findall(rb"\n###   @\d+=NULL(?=\n)", text))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise NotRunError(f"it failed with exit code {process.returncode}")
    return Decoded(changes, images, cells, nulls, usage.ru_utime + usage.ru_stime)


PEERS = (
    Peer("go-mysql 1.13.0", "text", "no", _go_mysql, "Go module"),
    Peer("Canal 1.1.7 LogDecoder", "text", "no", lambda path: _java("canal", path), "Maven"),
    Peer(
        "connector-java 0.30.1", "bytes", "no", lambda path: _java("connector_java", path, "bytes"),
        "mysql-binlog-connector-java, Maven; its JSON stays as bytes",
    ),
    Peer(
        "... with JSON text", "text", "no", lambda path: _java("connector_java", path, "text"),
        "the same, JSON rendered by its own JsonBinary",
    ),
    Peer("mysql_common 0.38.0", "text", "no", _mysql_common,
        "Rust crate; JSON by its parse() and serde_json"),
    Peer("mysqlbinlog -v", "text", "no", _mysqlbinlog,
        "of the same MySQL; prints pseudo-SQL; no warm-up"),
    Peer("pymysqlreplication", "objects", "no", _pymysqlreplication,
        "1.0.17, PyPI; the first 10,000 changes only"),
)  # fmt: skip
