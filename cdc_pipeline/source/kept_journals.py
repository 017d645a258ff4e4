"""Journals that runs keep (`source.keep_journals`), as files in a folder or an object store.

Rules:
- A folder holds one log: that of one server, between two resets. `newest_log` finds the last.
- A journal is *sealed*, whole under its own name (compressed: ``<name>.<bytes>.zst``), or *open*:
  parts, whose names say which bytes of it they hold. A part appears whole or not at all, and is
  durable then. Of an open journal only the parts count that join from its first byte on.
- Parts hold whole events, and the one from 0 also the magic number: one after the other they are
  the server's file, and compressed they are one zstd file.
- Sealing joins the parts under a temporary name, renames that, and then removes the parts. Parts
  of a sealed journal are left over from a kill; the next run removes them.
- A pipeline's runs remove what is older than `retention`, but nothing that a consumer of the log
  (the cursor, a suspended table, an unfinished operation) still needs.
- What is read again is compared with the parts: bytes that differ are another history (K24).
- The files hold every table's rows: folders are readable by their owner alone.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from cdc_pipeline.binlog.event_types import HEADER_BYTES
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import KeepJournalsConfig
from cdc_pipeline.errors import SinkError, SourceIdentityError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import opened, refused, storage_of
from cdc_pipeline.position.position import FIRST_OFFSET, ServerIdentity

_SEALED: Final = re.compile(r"(?P<name>[^/.][^/]*\.\d{6,})(\.(?P<size>\d+)\.zst)?")
_PART: Final = re.compile(
    r"(?P<name>[^/.][^/]*\.\d{6,})\.(?P<created>\d+)\.(?P<start>\d+)-(?P<stop>\d+)\.part(\.zst)?"
)
_SEALING: Final = ".sealing"
_COPY_BYTES: Final = 256 << 10
_SEAL_BYTES: Final = 4 << 20  # larger blocks compress better


@dataclass(frozen=True, slots=True)
class KeptJournal:
    """`size_bytes`: of the journal, as far as it is kept from its beginning. `files`: their names,
    in order. `created_s` of its format description; 0 if it is sealed: see `created_s_of`.
    """

    name: str
    size_bytes: int
    is_sealed: bool
    files: tuple[str, ...]
    created_s: int = 0

    @property
    def number(self) -> int:
        return journal_number(self.name)


class KeptJournals:
    def __init__(self, folder: Path, *, compress: bool = False) -> None:
        self.folder = folder
        self._compress = compress
        self._storage = storage_of(folder)

    def is_readable_in_place(self) -> bool:
        """Whether sealed journals are local files under their own names, and will be."""
        return (
            not self._compress
            and not is_object(self.folder)
            and all(one.files == (one.name,) for one in self.journals() if one.is_sealed)
        )

    def journals(self) -> list[KeptJournal]:
        """By number, then by the time of their creation."""
        return self._listed(self._sizes())

    @staticmethod
    def _listed(sizes: dict[str, int]) -> list[KeptJournal]:
        sealed = {}
        parts: dict[tuple[str, int], dict[int, tuple[int, str]]] = {}
        for name in sorted(sizes):
            if match := _SEALED.fullmatch(name):
                size = int(match["size"] or sizes[name])
                sealed[match["name"]] = KeptJournal(match["name"], size, True, (name,))
            elif match := _PART.fullmatch(name):
                of_journal = parts.setdefault((match["name"], int(match["created"])), {})
                start, stop = int(match["start"]), int(match["stop"])
                of_journal[start] = max(of_journal.get(start, (0, "")), (stop, name))
        listed = list(sealed.values())
        for (name, created_s), by_start in parts.items():
            if name not in sealed:
                stop, files = 0, []
                while stop in by_start:
                    stop, file = by_start[stop]
                    files.append(file)
                listed.append(KeptJournal(name, stop, False, tuple(files), created_s))
        return sorted(listed, key=lambda journal: (journal.number, journal.created_s))

    def append(self, journal: KeptJournal, content: bytes | memoryview) -> KeptJournal:
        """Add a part behind what is kept; returns the journal with it."""
        plain, start, stop = content, journal.size_bytes, journal.size_bytes + len(content)
        name = f"{journal.name}.{journal.created_s}.{start}-{stop}.part"
        if self._compress:
            name += ".zst"
            content = _compressed(content)
        if is_object(self.folder):
            content = bytes(content)
        else:
            self._make_private()
        with_part = replace(journal, size_bytes=stop, files=(*journal.files, name))
        if not self._storage.put_if_absent(self.folder / name, content):  # type: ignore[arg-type]
            self.compare(with_part, start, plain)
        reach("journal_part")
        return with_part

    def compare(self, journal: KeptJournal, offset: int, content: bytes | memoryview) -> None:
        """Raises SourceIdentityError: an open journal has other bytes from `offset` on."""
        stop = offset + len(content)
        for file in journal.files:
            match = _PART.fullmatch(file)
            assert match is not None
            first, last = max(int(match["start"]), offset), min(int(match["stop"]), stop)
            if first >= last:
                continue
            kept = self._content(file)[first - int(match["start"]) : last - int(match["start"])]
            sent = content[first - offset : last - offset]
            if kept != sent:
                differs = next(i for i, (a, b) in enumerate(zip(kept, sent, strict=True)) if a != b)
                raise SourceIdentityError(
                    "the server sends other bytes than a run before has read and kept: it was "
                    "restored, or lost the end of its log",
                    journal=journal.name,
                    offset=first + differs,
                    setting="source.keep_journals",
                    expected=f"the bytes of {file}",
                    got=f"another byte at {first + differs}",
                    next_step="compare the lake with the server (cdc-pipeline verify); to go on, "
                    f"move {self.folder} away",
                )

    def seal(self, journal: KeptJournal) -> None:
        """Make an open journal, whose parts are its whole, one file."""
        name = f"{journal.name}.{journal.size_bytes}.zst" if self._compress else journal.name
        temporary = self.folder / f"{name}.{uuid.uuid4().hex}{_SEALING}"
        stream, size_bytes = self._storage.create(temporary), 0
        # The parts may be of runs with another `compress`.
        for block in self._blocks(journal, _SEAL_BYTES):
            size_bytes += len(block)
            stream.write(_compressed(block) if self._compress else block)
        self._storage.finish(stream)
        if size_bytes != journal.size_bytes:
            self._storage.remove(temporary)
            raise SourceIdentityError(
                "the parts of a kept journal are not as long as their names say",
                journal=journal.name,
                setting="source.keep_journals",
                expected=f"{journal.size_bytes} bytes",
                got=f"{size_bytes} bytes",
                next_step=f"remove {journal.name}.*.part* from {self.folder}: the next run fetches "
                "them from the server",
            )
        reach("journal_sealing")
        self._storage.move(temporary, self.folder / name)
        self._storage.make_durable(self.folder)
        reach("journal_sealed")
        self.tidy()

    def tidy(self) -> None:
        """Remove what a killed run has left of sealed journals, and parts that do not join."""
        sizes = self._sizes()
        kept = {file for journal in self._listed(sizes) for file in journal.files}
        for name in sizes.keys() - kept:
            if name.endswith(_SEALING) or _PART.fullmatch(name):
                self._storage.remove(self.folder / name)

    def remove(self, journal: KeptJournal) -> None:
        for file in journal.files:
            self._storage.remove(self.folder / file)

    def sealed_s(self) -> dict[str, float]:
        """When each file was written, by its name, in seconds since 1970."""
        return self._storage.written_s(self.folder) if self._storage.exists(self.folder) else {}

    def created_s_of(self, journal: KeptJournal) -> int:
        """The header timestamp of its format description."""
        return self.origin_of(journal)[0] if journal.is_sealed else journal.created_s

    def origin_of(self, journal: KeptJournal) -> tuple[int, int]:
        """When it was created, and the server id, as its first event says."""
        with (self.folder / journal.files[0]).open("rb") as stream:
            head = self._plain(journal.files[0], stream).read(FIRST_OFFSET + HEADER_BYTES)
        created_s, server_id = struct.unpack_from("<IxI", head, FIRST_OFFSET)
        return created_s, server_id

    def copy(self, journal: KeptJournal, folder: Path) -> Path:
        """What is kept of a journal, as a file of its own under its own name."""
        file = folder / journal.name
        with file.open("wb") as target:
            for block in self._blocks(journal, _COPY_BYTES):
                target.write(block)
        return file

    def _blocks(self, journal: KeptJournal, block_bytes: int) -> Iterator[bytes]:
        for name in journal.files:
            with (self.folder / name).open("rb") as stream:
                plain = self._plain(name, stream)
                while block := plain.read(block_bytes):
                    yield block

    def _content(self, file: str) -> bytes:
        with (self.folder / file).open("rb") as stream:
            return bytes(self._plain(file, stream).read())

    @staticmethod
    def _plain(file: str, stream: IO[bytes]) -> Any:
        if not file.endswith(".zst"):
            return stream
        import pyarrow as pa

        return pa.input_stream(stream, compression="zstd")

    def _sizes(self) -> dict[str, int]:
        if is_object(self.folder):
            key = self.folder.key
            return {
                name.removeprefix(f"{key}/"): size
                for name, size in self.folder.store.sizes(key).items()
            }
        try:
            with os.scandir(self.folder) as entries:
                return {entry.name: entry.stat().st_size for entry in entries}
        except FileNotFoundError:
            return {}

    def _make_private(self) -> None:
        if not self.folder.is_dir():
            self._storage.make_folder(self.folder.parent)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._storage.make_durable(self.folder.parent)
        if stat.S_IMODE(self.folder.stat().st_mode) != 0o700:
            self.folder.chmod(0o700)


def _compressed(content: bytes | memoryview) -> bytes:
    import pyarrow as pa

    packed: bytes = pa.Codec("zstd").compress(content, asbytes=True)
    return packed


@contextmanager
def place_named(path: Path) -> Iterator[None]:
    """Raises SinkError: a failure of the disk or store, with the setting and the path."""
    try:
        yield
    except (SinkError, OSError) as error:
        named = error if isinstance(error, SinkError) else refused(error, path)
        named.what = f"journals are kept in {path}, but {named.what}"
        named.setting = "source.keep_journals"
        raise named from None


def logs_of(path: Path) -> list[Path]:
    """The folders of all logs in `source.keep_journals.path`."""
    folder = opened(path)
    return [folder / name for name in sorted(storage_of(folder).names(folder))]


def newest_log(path: Path, identity: ServerIdentity, *, after: int = 0) -> Path:
    """The folder of a server's log since its last known reset; with `after` 1 the next one's."""
    name = str(identity).replace(":", "-")
    numbers = [
        int(match[1] or 1)
        for folder in logs_of(path)
        if (match := re.fullmatch(re.escape(name) + r"(?:\.(\d+))?", folder.name))
    ]
    number = max([*numbers, 1]) + after
    return opened(path) / (name if number == 1 else f"{name}.{number}")


def prune(keep: KeepJournalsConfig, identity: ServerIdentity, *, needed: str) -> None:
    """Remove sealed journals that are older than `retention` and of another log than the server's,
    or before the journal `needed`.
    """
    if keep.retention is None:
        return
    with place_named(keep.path):
        _prune(keep, identity, keep.retention.total_seconds(), needed=needed)


def _prune(
    keep: KeepJournalsConfig, identity: ServerIdentity, retention_s: float, *, needed: str
) -> None:
    newest, before_s = newest_log(keep.path, identity), time.time() - retention_s
    for folder in logs_of(keep.path):
        kept = KeptJournals(folder)
        sealed_s = kept.sealed_s()
        for journal in kept.journals():
            is_over = folder != newest or journal.number < journal_number(needed)
            if is_over and all(sealed_s.get(file, before_s) < before_s for file in journal.files):
                kept.remove(journal)
                reach("journal_pruned")
