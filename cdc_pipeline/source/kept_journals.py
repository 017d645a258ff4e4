"""Journals that runs keep (`source.keep_journals`), as files in a folder or an object store.

Rules:
- A folder holds one log: that of one server, between two resets. `KeptJournals.newest` finds the
  last, and `is_of` says whether it is still the server's.
- A journal is *sealed*, as ``<name>``, or compressed as ``<name>.<bytes>.zst``; or *open*, in
  files ``<name>.<created>.<start>-<stop>.part`` (compressed: ``.part.<file's bytes>.zst``) with
  those bytes of the journal. The ones that join from 0 on count. One after the other they are the
  sealed file, because frames of zstd join too. All are compressed if the first is.
- A name promises no byte that is not durable. On a disk an open journal is one file that grows:
  bytes are written and synced, then its name is changed. What a killed run has left behind the
  bytes of the name is written over. In an object store each write adds a file.
- Sealing changes the name of the only file; several are joined under a temporary name first, and
  removed last. What does not count is left over from a kill, and the next run removes it.
- A pipeline's runs remove what is older than `retention`, but nothing that a consumer of the log
  (the cursor, a suspended table, an unfinished operation) still needs.
- What is read again is compared with what is kept: bytes that differ are another history (K24).
- The files hold every table's rows: only their owner may read them.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import stat
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
from cdc_pipeline.position.failback import Consumer
from cdc_pipeline.position.position import FIRST_OFFSET, ServerIdentity

_SEALED: Final = re.compile(r"(?P<name>[^/.][^/]*\.\d{6,})(\.(?P<size>\d+)\.zst)?")
_PART: Final = re.compile(
    r"(?P<name>[^/.][^/]*\.\d{6,})\.(?P<created>\d+)\.(?P<start>\d+)-(?P<stop>\d+)\.part"
    r"(\.(?P<bytes>\d+)\.zst)?"
)
_SEALING: Final = ".sealing"
_FILE: Final = re.compile(rf"{_SEALED.pattern}|.*\.part(\.\d+\.zst)?|.*\{_SEALING}")
_COPY_BYTES: Final = 256 << 10
_log = logging.getLogger(__name__)


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
    """Those of one log."""

    def __init__(self, folder: Path, *, compress: bool = False) -> None:
        self.folder = folder
        self._compress = compress
        self._storage = storage_of(folder)

    # -- which log ---------------------------------------------------------------------------------

    @classmethod
    def newest(cls, keep: KeepJournalsConfig, identity: ServerIdentity) -> KeptJournals:
        """Of a server's log since its last known reset."""
        name = str(identity).replace(":", "-")
        numbers = [
            int(match[1] or 1)
            for folder in logs_of(keep.path)
            if (match := re.fullmatch(re.escape(name) + r"(?:\.(\d+))?", folder.name))
        ]
        number = max(numbers, default=1)
        folder = opened(keep.path) / (name if number == 1 else f"{name}.{number}")
        return cls(folder, compress=keep.compress)

    def after_reset(self) -> KeptJournals:
        name, _, number = self.folder.name.partition(".")
        folder = self.folder.parent / f"{name}.{int(number or 1) + 1}"
        return KeptJournals(folder, compress=self._compress)

    def is_of(
        self, on_server: Sequence[str], read_from: str, *, created_s: Callable[[str], int]
    ) -> bool:
        """Whether the log is still the server's, which has the journals `on_server` and a run
        begins to read at `read_from`. After a reset, some of what is kept is not on the server,
        which has older journals, or was created at another time, or after a later one, or has
        another name. What the server has purged since the reset cannot be compared.
        """
        kept = self.journals()
        oldest, base = journal_number(on_server[0]), read_from.rpartition(".")[0]
        if any(
            journal.name.rpartition(".")[0] != base
            or (journal.number > oldest and journal.name not in on_server)
            for journal in kept
        ):
            return False
        if common := [journal for journal in kept if journal.name in on_server]:
            # A journal has the time at which the statement that filled the one before began: of one
            # log, too, it may be before the creation of an older journal.
            return self.created_s_of(common[-1]) == created_s(common[-1].name)
        before = [journal for journal in kept if journal.number < journal_number(read_from)]
        return not before or self.created_s_of(before[-1]) <= created_s(read_from)

    # -- what is there -----------------------------------------------------------------------------

    def is_readable_in_place(self) -> bool:
        """Whether sealed journals are local files under their own names, and will be."""
        return (
            not self._compress
            and not is_object(self.folder)
            and not any(name.endswith(".zst") for name in self._sizes())
        )

    def journals(self) -> list[KeptJournal]:
        """By number, then by the time of their creation."""
        return self._listed(self._sizes())

    @staticmethod
    def _listed(sizes: dict[str, int]) -> list[KeptJournal]:
        sealed: dict[str, KeptJournal] = {}
        parts: dict[tuple[str, int], dict[int, tuple[int, str]]] = {}
        for name in sorted(sizes):
            if match := _SEALED.fullmatch(name):
                size = int(match["size"] or sizes[name])
                sealed.setdefault(match["name"], KeptJournal(match["name"], size, True, (name,)))
            elif match := _PART.fullmatch(name):
                of_journal = parts.setdefault((match["name"], int(match["created"])), {})
                start, stop = int(match["start"]), int(match["stop"])
                if stop > start:
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

    def _sizes(self, *, is_again: bool = False) -> dict[str, int]:
        if is_object(self.folder):
            key = self.folder.key
            return {
                name.removeprefix(f"{key}/"): size
                for name, size in self.folder.store.sizes(key).items()
            }
        try:
            entries = list(os.scandir(self.folder))
        except FileNotFoundError:
            return {}
        sizes = {}
        for entry in entries:
            if _FILE.fullmatch(entry.name) is None:
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:  # a run goes on, and has renamed it; or it leads nowhere
                if not is_again:
                    return self._sizes(is_again=True)
                continue
            if stat.S_ISREG(status.st_mode):
                sizes[entry.name] = status.st_size
        return sizes

    def created_s_of(self, journal: KeptJournal) -> int:
        """The header timestamp of its format description. Raises SinkError: it has none."""
        if not journal.is_sealed:
            return journal.created_s
        try:
            head = self.beginning(journal, FIRST_OFFSET + HEADER_BYTES)
            return int(struct.unpack_from("<I", head, FIRST_OFFSET)[0])
        except (struct.error, SourceIdentityError):
            raise SinkError(
                f"{journal.name} is shorter than a journal's head",
                expected=f"at least {FIRST_OFFSET + HEADER_BYTES} bytes",
                next_step=f"remove {journal.files[0]} from {self.folder}: the next run fetches it "
                "from the server",
            ) from None

    def beginning(self, journal: KeptJournal, bytes_max: int) -> bytes:
        return next(self._blocks(journal, bytes_max), b"")

    def copy(self, journal: KeptJournal, folder: Path) -> Path:
        """What is kept of a journal, as a file of its own under its own name; none if it fails."""
        file = folder / journal.name
        try:
            self._fill(file, journal)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return file

    def _fill(self, file: Path, journal: KeptJournal) -> None:
        try:
            with file.open("wb") as target:
                for block in self._blocks(journal, _COPY_BYTES):
                    target.write(block)
        except FileNotFoundError:  # a run goes on: the file has another name
            named = next((one for one in self.journals() if one.name == journal.name), journal)
            if (
                named.files == journal.files
                or named.size_bytes < journal.size_bytes
                or self.created_s_of(named) != journal.created_s
            ):
                raise
            self._fill(file, named)
            os.truncate(file, journal.size_bytes)

    def _blocks(self, journal: KeptJournal, block_bytes: int) -> Iterator[bytes]:
        """Raises SourceIdentityError: less is there than the name says."""
        offset = 0
        for file in journal.files:
            part = _part_of(file)
            stop = journal.size_bytes if part is None else part.stop
            with (self.folder / file).open("rb") as stream:
                plain = _plain(file, stream)
                while block := plain.read(min(block_bytes, stop - offset)):
                    offset += len(block)
                    yield block
            if offset < stop:
                raise self._shorter(journal, file, offset - (part.start if part else 0), offset)

    # -- keeping -----------------------------------------------------------------------------------

    def append(self, journal: KeptJournal, content: bytes | memoryview) -> KeptJournal:
        """Keep what follows; returns the journal with it."""
        stop = journal.size_bytes + len(content)
        last = _part_of(journal.files[-1]) if journal.files else None
        is_packed = self._compress if last is None else last.is_packed
        stored = _compressed(content) if is_packed else content
        if last is None or is_object(self.folder):
            last = _Part(journal.size_bytes, journal.size_bytes, is_packed, 0)
        part = _Part(last.start, stop, is_packed, last.file_bytes + len(stored))
        before, name = last.name(journal), part.name(journal)
        kept = tuple(file for file in journal.files if file != before)
        added, file = replace(journal, size_bytes=stop, files=(*kept, name)), self.folder / name
        if is_object(self.folder):
            if not self._storage.put_if_absent(file, bytes(stored)):
                self.compare(added, journal.size_bytes, content)
        else:
            with self._writing(journal, before, last.file_bytes, stored):
                reach("journal_written")
                self._storage.move(self.folder / before, file)
            self._storage.make_durable(self.folder)
        reach("journal_part")
        return added

    @contextmanager
    def _writing(
        self, journal: KeptJournal, file: str, offset: int, content: bytes | memoryview
    ) -> Iterator[None]:
        """Durably, on a disk; what was behind `offset` is gone. In it the file is locked, and gets
        its next name: a run that was paused and has lost the source's lock cuts off nothing.
        """
        self._make_private()
        flags = os.O_WRONLY | os.O_CLOEXEC | (0 if offset else os.O_CREAT)
        descriptor = os.open(self.folder / file, flags, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            self._lock(descriptor, file)
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes < offset:
                raise self._shorter(journal, file, size_bytes)
            os.fchmod(descriptor, 0o600)
            if size_bytes > offset:
                stream.truncate(offset)
            stream.seek(offset)
            left = memoryview(content)
            while left:
                left = left[stream.write(left) :]
            os.fsync(descriptor)
            yield

    def _lock(self, descriptor: int, file: str) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_named = os.path.samestat(os.fstat(descriptor), os.stat(self.folder / file))
        except (BlockingIOError, FileNotFoundError):
            is_named = False
        if not is_named:
            raise SinkError(
                f"another run writes to {file}",
                expected="one run of the source at a time",
                next_step="wait for that run to end, or stop it",
            )

    def compare(self, journal: KeptJournal, offset: int, content: bytes | memoryview) -> None:
        """Raises SourceIdentityError: an open journal has other bytes from `offset` on, or is
        shorter than its files' names say.
        """
        for file in journal.files:
            part = _part_of(file)
            assert part is not None
            first, last = max(part.start, offset), min(part.stop, offset + len(content))
            if first >= last:
                continue
            with (self.folder / file).open("rb") as stream:
                plain = _plain(file, stream)
                if part.is_packed:
                    plain.read(first - part.start)
                else:
                    stream.seek(first - part.start)
                kept = bytes(plain.read(last - first))
            sent = content[first - offset : last - offset]
            if len(kept) < len(sent):
                raise self._shorter(journal, file, first - part.start + len(kept))
            if kept != sent:
                differs = next(i for i, (a, b) in enumerate(zip(kept, sent, strict=True)) if a != b)
                raise SourceIdentityError(
                    "the server sends other bytes than a run before has read and kept: it was "
                    "restored, or lost the end of its log",
                    at=(journal.name, first + differs),
                    setting="source.keep_journals",
                    expected=f"the bytes of {file}",
                    got=f"another byte at {first + differs}",
                    next_step="compare the lake with the server (cdc-pipeline verify); to go on, "
                    f"move {self.folder} away",
                )

    def seal(self, journal: KeptJournal) -> None:
        """Make an open journal, whose files are its whole, one file."""
        first = _part_of(journal.files[0])
        assert first is not None
        name = f"{journal.name}.{journal.size_bytes}.zst" if first.is_packed else journal.name
        is_one = len(journal.files) == 1
        whole = journal.files[0] if is_one else self._joined(journal, name)
        is_written = is_one and not is_object(self.folder)
        with self._writing(journal, whole, first.file_bytes, b"") if is_written else nullcontext():
            reach("journal_sealing")
            self._storage.move(self.folder / whole, self.folder / name)
        self._storage.make_durable(self.folder)
        reach("journal_sealed")
        self.tidy()

    def _joined(self, journal: KeptJournal, name: str) -> str:
        whole = f"{name}.{uuid.uuid4().hex}{_SEALING}"
        stream = self._storage.create(self.folder / whole)
        try:
            for file in journal.files:
                part = _part_of(file)
                assert part is not None
                stored = (self.folder / file).read_bytes()
                if len(stored) < part.file_bytes:
                    raise self._shorter(journal, file, len(stored))
                stream.write(stored[: part.file_bytes])
        except SourceIdentityError:
            stream.close()
            self._storage.remove(self.folder / whole)
            raise
        self._storage.finish(stream)
        return whole

    def _shorter(
        self, journal: KeptJournal, file: str, got_bytes: int, offset: int | None = None
    ) -> SourceIdentityError:
        return SourceIdentityError(
            "a kept journal is shorter than its file's name says",
            at=(journal.name, offset),
            setting="source.keep_journals",
            expected=f"all bytes of {file}",
            got=f"{got_bytes} bytes",
            next_step=f"remove {file} from {self.folder}: the next run fetches it from the server",
        )

    def tidy(self) -> None:
        """Remove what a killed run has left of sealed journals, and what does not join."""
        sizes = self._sizes()
        kept = {file for journal in self._listed(sizes) for file in journal.files}
        for name in sizes.keys() - kept:
            if name.endswith(_SEALING) or _PART.fullmatch(name):
                self._storage.remove(self.folder / name)

    def remove(self, journal: KeptJournal) -> None:
        for file in journal.files:
            self._storage.remove(self.folder / file)

    def _make_private(self) -> None:
        if not self.folder.is_dir():
            self._storage.make_folder(self.folder.parent)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._storage.make_durable(self.folder.parent)
        if stat.S_IMODE(self.folder.stat().st_mode) != 0o700:
            self.folder.chmod(0o700)


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of an open journal: its bytes [start, stop), which fill `file_bytes` of the file."""

    start: int
    stop: int
    is_packed: bool
    file_bytes: int

    def name(self, journal: KeptJournal) -> str:
        plain = f"{journal.name}.{journal.created_s}.{self.start}-{self.stop}.part"
        return f"{plain}.{self.file_bytes}.zst" if self.is_packed else plain


def _part_of(file: str) -> _Part | None:
    """None of a sealed journal."""
    match = _PART.fullmatch(file)
    if match is None:
        return None
    start, stop, file_bytes = int(match["start"]), int(match["stop"]), match["bytes"]
    return _Part(start, stop, file_bytes is not None, int(file_bytes or stop - start))


def _compressed(content: bytes | memoryview) -> bytes:
    import pyarrow as pa

    packed: bytes = pa.Codec("zstd").compress(content, asbytes=True)
    return packed


def _plain(file: str, stream: IO[bytes]) -> Any:
    if not file.endswith(".zst"):
        return stream
    import pyarrow as pa

    return pa.input_stream(stream, compression="zstd")


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
    """The folders of all logs in `source.keep_journals.path`. Raises NotADirectoryError."""
    folder = opened(path)
    logs = [folder / name for name in sorted(storage_of(folder).names(folder))]
    if is_object(folder):
        return logs
    if folder.is_file():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return [log for log in logs if log.is_dir()]


def prune(
    keep: KeepJournalsConfig, identity: ServerIdentity, *, needed: Sequence[Consumer]
) -> None:
    """Remove sealed journals that are older than `retention` and of another log than the server's,
    or before all that consumers still need. Nothing goes unless each of these places is in the
    server's log: another log may hold it.
    """
    if keep.retention is None:
        return
    before_s = time.time() - keep.retention.total_seconds()
    with place_named(keep.path):
        newest = KeptJournals.newest(keep, identity)
        named = {journal.name: journal for journal in newest.journals()}
        for consumer in needed:
            name, created_s = consumer.position.journal, consumer.position.journal_created_s
            journal = named.get(name)
            if journal is None or (created_s and newest.created_s_of(journal) != created_s):
                what = f"{consumer.name} needs {name}, which is not in {newest.folder}"
                _log.warning("kept journals: none is removed, because %s", what)
                return
        first = min(journal_number(consumer.position.journal) for consumer in needed)
        for folder in logs_of(keep.path):
            kept, written_s = KeptJournals(folder), storage_of(folder).written_s(folder)
            for journal in kept.journals():
                is_over = folder != newest.folder or journal.number < first
                if is_over and all(
                    written_s.get(file, before_s) < before_s for file in journal.files
                ):
                    kept.remove(journal)
                    reach("journal_pruned")
