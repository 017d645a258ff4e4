"""Read journals as streams: a file, standard input, or a log that is still written.

Rules:
- One pass from front to back, in blocks, without seeking, so that a pipe serves as well as a file.
- A followed stream has no end: it waits until an event is whole. The next journal is begun when it
  exists and the one before is read to its end.
- A name without a number (a copy, standard input) gets one inside (`numbered`), because the decoder
  counts journals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import HEADER_BYTES, MAGIC
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.native.byte_buffer import ByteBuffer
from cdc_pipeline.binlog.seq import JOURNAL_BITS
from cdc_pipeline.errors import (
    DamagedJournalError,
    JournalMissingError,
    SourceIdentityError,
    TruncatedJournalError,
)
from cdc_pipeline.source.archive.files import check_magic, framed, journal_files

_STREAM_CHUNK_BYTES: Final = 8 << 20

_NUMBER: Final = re.compile(r"\.(\d+)$")


def numbered(name: str) -> str:
    """The name if it ends with a journal's number, else the name with the number 0."""
    match = _NUMBER.search(name)
    return name if match is not None and int(match[1]) < 1 << JOURNAL_BITS else f"{name}.000000"


class JournalStream:
    """One journal, from its magic number on; unbuffered: a pipe is read as it fills."""

    def __init__(
        self, handle: BinaryIO, name: str, *, chunk_bytes: int = _STREAM_CHUNK_BYTES
    ) -> None:
        self._handle = handle
        self._name = name
        self._chunk_bytes = chunk_bytes
        self._magic = b""
        self._framer = EventFramer(name)
        self._buffer = ByteBuffer(chunk_bytes)

    @property
    def read_bytes(self) -> int:
        """Bytes of the journal that were read, whole events or not."""
        return self._framer.offset + len(self._buffer) if self._magic else 0

    def chunks(self) -> Iterator[Chunk]:
        """What there is for now; may be called again. BinlogError comes after all before it."""
        while len(self._magic) < len(MAGIC):
            more = self._handle.read(len(MAGIC) - len(self._magic))
            if not more:
                return
            self._magic += more
            if len(self._magic) == len(MAGIC):
                self._check_magic()
        while True:
            # numpy's arrays are buffers; the file's stub does not say so.
            count = self._handle.readinto(self._buffer.room(self._chunk_bytes))  # type: ignore[attr-defined]
            if not count:
                return
            self._buffer.commit(count)
            yield from framed(self._framer, self._buffer)

    def finish(self) -> None:
        """No more bytes come; TruncatedJournalError: inside of an event, or before the first."""
        if len(self._magic) < len(MAGIC):
            check_magic(self._magic, self._name)
        self._framer.finish(len(self._buffer))

    def _check_magic(self) -> None:
        try:
            check_magic(self._magic, self._name)
        except TruncatedJournalError:
            raise
        except DamagedJournalError as error:
            error.next_step = (
                "give a journal from its first byte on, uncompressed: its magic number comes "
                f"first, then its events (each has a header of {HEADER_BYTES} bytes)"
            )
            raise


def open_stream(path: Path) -> BinaryIO:
    """Raises JournalMissingError if the file does not exist, or is not readable."""
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise JournalMissingError(
            f"the journal cannot be opened: {error.strerror}",
            journal=path.name,
            next_step="give this account permission to read the file",
        ) from None


def follow(
    path: Path, *, wait: Callable[[], bool], skips: Callable[[str], bool] = lambda _name: False
) -> Iterator[tuple[Path, Chunk]]:
    """Chunks of a log that is being written, with their files, while `wait` allows.

    Args:
        path: a directory of journals, or one journal: those with higher numbers beside it follow.
        wait: called when there is nothing new; False ends.
        skips: decides by name which journals at a directory's begin are not wanted.

    Raises:
        BinlogError: as `JournalStream`; an event that is cut where the next journal has begun.
        SourceIdentityError: a journal became shorter or was replaced while it was read.
    """
    directory = path if path.is_dir() else path.parent
    file = None if path.is_dir() else path
    while file is None:
        files = journal_files(directory)
        file = next((one for one in files if not skips(one.name)), None)
        if file is None and not wait():
            return
    while True:
        with open_stream(file) as handle:
            stream = JournalStream(handle, numbered(file.name))
            following: Path | None = None
            while True:
                for chunk in stream.chunks():
                    yield file, chunk
                if following is not None:
                    break
                _check_same(file, handle, stream.read_bytes)
                following = _next_journal(directory, file)
                # Read once more what was written before the next journal appeared; then this one
                # ends.
                if following is None and not wait():
                    return
            stream.finish()
        file = following


def _next_journal(directory: Path, file: Path) -> Path | None:
    base, _, number = file.name.rpartition(".")
    if not number.isdigit():
        return None
    later = [
        other
        for other in directory.glob(f"{_escaped(base)}.*")
        if _NUMBER.search(other.name) and other.name.rpartition(".")[0] == base
        if int(other.name.rpartition(".")[2]) > int(number)
    ]
    return min(later, key=lambda other: int(other.name.rpartition(".")[2]), default=None)


def _escaped(base: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", base)


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
        journal=file.name,
        offset=read_bytes,
        expected=f"the file that was opened, of at least {read_bytes} bytes",
        got=f"a file of {now.st_size} bytes",
        next_step="the log was reset (RESET BINARY LOGS AND GTIDS): start again from "
        "its first journal",
    )
