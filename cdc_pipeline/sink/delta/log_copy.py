"""What is needed of a log in an object store, on this machine's disk: one listing, and one request
for each file that is not known yet.

Rules:
- A file is known by the tag of its version: a table that was created again has others.
- Copied are the newest checkpoint, if it is one small file, and the commits after it. Whoever finds
  more opens the table where it is.
- Only a commit of our own may be based on a listing that is not new: it is refused if the version
  exists, and the work is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cdc_pipeline.lake.storage.newest_kept import NewestKept
from cdc_pipeline.lake.storage.object_path import is_object

LOG_FOLDER: Final = "_delta_log"
_NAME: Final = re.compile(r"(\d{20})\.(json|checkpoint\.parquet|checkpoint\..+)")
_TAIL_BYTES_MAX: Final = 4 << 20
_TAILS_BYTES_MAX: Final = 64 << 20  # of all tables


@dataclass(frozen=True, slots=True)
class LogTail:
    """A log from its newest checkpoint on (-1: there is none): tag and content of each file."""

    checkpoint: int
    version: int
    files: Mapping[str, tuple[str, bytes]]

    @property
    def size_bytes(self) -> int:
        return sum(len(content) for _, content in self.files.values())


_tails: NewestKept[LogTail] = NewestKept(_TAILS_BYTES_MAX, lambda tail: tail.size_bytes)


def log_tail(table: Path, *, is_new: bool = True) -> LogTail | None:
    """None of a table on a disk, or if it cannot be copied. `is_new`: listed now."""
    known, log = _tails.get(str(table)), table / LOG_FOLDER
    if not is_object(table) or (known is not None and not is_new):
        return known
    after = f"{known.checkpoint:020d}" if known is not None else ""
    tail = _listed(log, after, known)
    if tail is None and after:
        tail = _listed(log, "", known)
    if tail is None:
        _tails.forget(str(table))
    else:
        _tails.put(str(table), tail)
    return tail


@contextmanager
def log_on_disk(table: Path, *, version: int | None = None, is_new: bool = True) -> Iterator[Path]:
    """The table's folder, or one with a copy of its log from which `version` can be read."""
    tail = log_tail(table, is_new=is_new)
    if tail is None or not (version is None or tail.checkpoint <= version <= tail.version):
        yield table
        return
    with TemporaryDirectory(prefix="cdc_pipeline-log-") as folder:
        log = Path(folder) / LOG_FOLDER
        log.mkdir()
        for name, (_, content) in tail.files.items():
            (log / name).write_bytes(content)
        yield Path(folder)


def note_commit(file: Path, version: int, content: bytes) -> None:
    """This process has put the commit; without content: another writer has."""
    if not is_object(file):
        return
    table = str(file.parent.parent)
    known = _tails.get(table)
    if known is not None and known.version == version - 1 and content:
        files = {**known.files, file.name: (file.store.tag_written(file.key), content)}
        _tails.put(table, LogTail(known.checkpoint, version, files))
    else:
        _tails.forget(table)


def _listed(log: Path, after: str, known: LogTail | None) -> LogTail | None:
    assert is_object(log)
    listed = log.store.listed_after(log.key, after)
    commits: dict[int, str] = {}
    checkpoints: dict[int, str] = {}
    for name in listed:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        if match[2] not in ("json", "checkpoint.parquet"):
            return None
        (commits if match[2] == "json" else checkpoints)[int(match[1])] = name
    checkpoint = max(checkpoints, default=-1)
    needed = {number: name for number, name in commits.items() if number > checkpoint}
    version = max(needed, default=checkpoint)
    if version < 0 or len(needed) != version - checkpoint:
        return None
    names = [*needed.values(), *([checkpoints[checkpoint]] if checkpoints else ())]
    sizes = [listed[name].size_bytes for name in names]
    if not all(sizes) or sum(sizes) > _TAIL_BYTES_MAX:
        return None
    files = {}
    for name in names:
        tag = listed[name].tag
        held = known.files.get(name) if known is not None else None
        same = held is not None and held[0] == tag
        files[name] = held if same and held is not None else (tag, (log / name).read_bytes())
    return LogTail(checkpoint, version, files)
