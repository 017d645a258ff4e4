"""Read the journals that a person names: files, directories, standard input, or a log that is still
written.

Rules:
- One pass from front to back, in blocks, without seeking, so that a pipe serves as well as a file.
- A followed stream has no end: it waits until an event is whole. The next journal is begun when it
  exists and the one before is read to its end.
- A name without a number (a copy, standard input) gets one inside (`numbered`), because the decoder
  counts journals. People read it without (`shown_name`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import HEADER_BYTES, MAGIC
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.native.byte_buffer import ByteBuffer
from cdc_pipeline.binlog.seq import JOURNAL_BITS
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    JournalMissingError,
    SourceIdentityError,
)
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.source.archive.files import check_magic, framed, journal_files, read_head

STDIN: Final = Path("-")
_STREAM_CHUNK_BYTES: Final = 8 << 20
_NUMBER: Final = re.compile(r"\.(\d+)$")
_NO_NUMBER: Final = "~.000000"
_SAFE_MARGIN_S: Final = 3600
_MYSQL_WITH_COMMIT_TIMES: Final = re.compile(r"(8|9|\d\d+)\.")

FileChunk = tuple[Path, Chunk]  # the journal that it is of, or STDIN


def numbered(file: Path) -> str:
    """The file's name if it ends with a journal's number, else with one added."""
    name = "stdin" if file == STDIN else file.name
    match = _NUMBER.search(name)
    is_numbered = match is not None and int(match[1]) < 1 << JOURNAL_BITS
    return name if is_numbered else f"{name}{_NO_NUMBER}"


def shown_name(journal: str) -> str:
    return journal.removesuffix(_NO_NUMBER)


def read_all(
    paths: Sequence[Path], selection: Selection, *, stdin: BinaryIO | None = None
) -> Iterator[FileChunk]:
    """In order; what cannot match is not opened. CdcError comes after everything before it."""
    files = _expand_paths(paths)
    for index, file in enumerate(files):
        if file == STDIN:
            assert stdin is not None
            yield from _read(stdin, file)
        elif not _is_skipped(file, files[index + 1 :], selection):
            with _opened(file) as handle:
                yield from _read(handle, file)


def follow(path: Path, selection: Selection, *, wait: Callable[[], bool]) -> Iterator[FileChunk]:
    """Chunks of a log that is being written, while `wait`, called when there is nothing new,
    allows. `path`: a directory, or one journal: those with higher numbers beside it follow. Raises
    BinlogError; SourceIdentityError: a journal became shorter or was replaced while it was read.
    """
    file = None if path.is_dir() else path
    while file is None:
        wanted = (one for one in journal_files(path) if not selection.skips_before(numbered(one)))
        file = next(wanted, None)
        if file is None and not wait():
            return
    while True:
        with _opened(file) as handle:
            stream = _JournalStream(handle, numbered(file))
            following: Path | None = None
            while True:
                for chunk in stream.chunks():
                    yield file, chunk
                if following is not None:
                    break
                _check_same(file, handle, stream.read_bytes)
                following = _next_journal(file)
                # Read once more what was written before the next journal appeared; then this one
                # ends.
                if following is None and not wait():
                    return
            stream.finish()
        file = following


def _expand_paths(paths: Sequence[Path]) -> list[Path]:
    """By number; directories are searched, "-" stays. JournalMissingError if there are none."""
    files: list[Path] = []
    for path in paths:
        if path != STDIN and not path.exists():
            raise JournalMissingError("there is no such file or directory", at=(str(path), None))
        journals = journal_files(path) if path != STDIN and path.is_dir() else [path]
        if not journals:
            raise JournalMissingError(
                "the directory holds no journals",
                at=(str(path), None),
                expected="binlog.000001 ...",
            )
        files += journals
    return files


def _is_skipped(file: Path, later: Sequence[Path], selection: Selection) -> bool:
    """Whether `file` cannot match, by its name or the begin of the next journal. A time excludes
    one only on MySQL 8.0 or later, whose commit times no session can set, and with a margin for
    clocks that differ.
    """
    if selection.skips_before(numbered(file)) or selection.skips_after(numbered(file)):
        return True
    following = later[0] if later else STDIN
    if selection.from_us is None or following == STDIN or following.parent != file.parent:
        return False
    try:
        head = read_head(following).journal_format
    except CdcError:
        return False  # reported when its turn comes
    has_commit_times = (
        not head.is_mariadb and _MYSQL_WITH_COMMIT_TIMES.match(head.server_version) is not None
    )
    return has_commit_times and head.created_s + _SAFE_MARGIN_S < selection.from_us // 1_000_000


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb", buffering=0)
    except OSError as error:
        raise JournalMissingError(
            f"the journal cannot be opened: {error.strerror}",
            at=(file.name, None),
            next_step="give this account permission to read the file",
        ) from None


def _read(handle: BinaryIO, file: Path) -> Iterator[FileChunk]:
    stream = _JournalStream(handle, numbered(file))
    for chunk in stream.chunks():
        yield file, chunk
    stream.finish()


class _JournalStream:
    def __init__(self, handle: BinaryIO, name: str) -> None:
        self._handle = handle
        self._name = name
        self._magic = b""
        self._framer = EventFramer(name)
        self._buffer = ByteBuffer(_STREAM_CHUNK_BYTES)

    @property
    def read_bytes(self) -> int:
        return self._framer.offset + len(self._buffer) if self._magic else 0

    def chunks(self) -> Iterator[Chunk]:
        """What there is for now; may be called again. BinlogError comes after all before it."""
        while len(self._magic) < len(MAGIC):
            more = self._handle.read(len(MAGIC) - len(self._magic))
            if not more:
                return
            self._magic += more
        try:
            check_magic(self._magic, self._name)
        except DamagedJournalError as error:
            error.next_step = (
                "give a journal from its first byte on, uncompressed: its magic number comes "
                f"first, then its events (each has a header of {HEADER_BYTES} bytes)"
            )
            raise
        while True:
            # numpy's arrays are buffers; the file's stub does not say so.
            count = self._handle.readinto(self._buffer.room(_STREAM_CHUNK_BYTES))  # type: ignore[attr-defined]
            if not count:
                return
            self._buffer.commit(count)
            yield from framed(self._framer, self._buffer)

    def finish(self) -> None:
        """No more bytes come; TruncatedJournalError: inside of an event, or before the first."""
        if len(self._magic) < len(MAGIC):
            check_magic(self._magic, self._name)
        self._framer.finish(len(self._buffer))


def _next_journal(file: Path) -> Path | None:
    base, _, number = file.name.rpartition(".")
    if not number.isdecimal():
        return None
    later = {}
    for other in file.parent.iterdir():
        other_base, _, other_number = other.name.rpartition(".")
        if other_base == base and other_number.isdecimal() and int(other_number) > int(number):
            later[int(other_number)] = other
    return later[min(later)] if later else None


def _check_same(file: Path, handle: BinaryIO, read_bytes: int) -> None:
    """The file must be the opened one and not shorter; a purged file stays readable."""
    opened = os.fstat(handle.fileno())
    try:
        now = file.stat()
    except FileNotFoundError:
        return
    if (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino) and now.st_size >= read_bytes:
        return
    raise SourceIdentityError(
        "the journal was replaced or truncated while it was being followed",
        at=(file.name, read_bytes),
        expected=f"the file that was opened, of at least {read_bytes} bytes",
        got=f"a file of {now.st_size} bytes",
        next_step="the log was reset (RESET BINARY LOGS AND GTIDS): start again from "
        "its first journal",
    )
