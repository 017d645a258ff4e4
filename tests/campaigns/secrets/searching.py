"""A search for canaries in files of every kind, and in the arguments of running processes.

Rules:
- A file is searched as it is, and as what it holds: Parquet decoded, gzip unpacked, SQLite's tables
  read.
- A finding names the canary, the file and how it was found; never the text.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.campaigns.secrets.canaries import Canaries

_SAMPLE_EVERY_S = 0.05


@dataclass(frozen=True, order=True)
class Finding:
    canary: str
    place: str
    how: str


class Search:
    def __init__(self, canaries: Canaries) -> None:
        self._names: dict[bytes, str] = {}
        for name, form in canaries.forms():
            self._names[form] = name
        self._pattern = re.compile(b"|".join(map(re.escape, self._names)))
        self.files = 0
        self.bytes = 0

    def in_bytes(self, content: bytes, place: str, how: str) -> set[Finding]:
        return {Finding(self._names[match], place, how) for match in self._pattern.findall(content)}

    def in_folder(self, folder: Path, *, leave_out: Iterable[Path] = ()) -> set[Finding]:
        found: set[Finding] = set()
        skipped = {str(path) for path in leave_out}
        for at, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if os.path.join(at, name) not in skipped]
            for name in (*names, *folders):
                found |= self.in_bytes(name.encode(), f"{at}/{name}", "name")
            for name in names:
                found |= self.in_file(Path(at) / name)
        return found

    def in_file(self, file: Path) -> set[Finding]:
        if file.is_symlink() or not file.is_file():
            return set()
        try:
            content = file.read_bytes()
        except OSError:  # gone meanwhile, or not ours
            return set()
        self.files += 1
        self.bytes += len(content)
        found = self.in_bytes(content, str(file), "bytes")
        for how, more in _unpacked(file, content):
            found |= self.in_bytes(more, str(file), how)
        return found


def _unpacked(file: Path, content: bytes) -> Iterator[tuple[str, bytes]]:
    if content[:4] == b"PAR1":
        with contextlib.suppress(pa.ArrowException, OSError):
            yield "Parquet", _texts(pq.read_table(pa.BufferReader(content)))
            yield (
                "Parquet metadata",
                str(pq.read_metadata(pa.BufferReader(content)).to_dict()).encode(),
            )
    elif content[:2] == b"\x1f\x8b":
        with contextlib.suppress(OSError, EOFError):
            yield "gzip", gzip.decompress(content)
    elif content[:6] == b"SQLite":
        address = f"file:{file}?mode=ro"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(address, uri=True)) as db,
        ):
            for (table,) in db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                yield (
                    f"SQLite {table}",
                    repr(db.execute(f'SELECT * FROM "{table}"').fetchall()).encode(),
                )


def _texts(table: pa.Table) -> bytes:
    parts = []
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            parts.append("\n".join(filter(None, column.to_pylist())).encode())
        elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            parts.append(b"\n".join(filter(None, column.to_pylist())))
        elif pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
            parts.append(repr(column.to_pylist()).encode())
    return b"\n".join(parts)


class ProcessWatch:
    """Reads the arguments of this process's descendants while a context lasts."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.found: set[Finding] = set()
        self.seen: set[bytes] = set()

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_EVERY_S):
            for pid in _descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    self.seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())
        for arguments in self.seen:
            program = arguments.split(b"\0")[0].decode("utf-8", "replace")
            self.found |= self._search.in_bytes(arguments, program, "process arguments")


def _descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path(f"/proc/{entry.name}/stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}
