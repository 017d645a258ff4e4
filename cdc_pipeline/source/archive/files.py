"""Find journals as files, read them in blocks, and read their heads.

Rules:
- A journal is a file ``<base>.<six or more digits>``; index files and everything else in the
  directory are ignored.
- Nothing is trusted before the magic number and the format description are checked.
- A file is read in blocks and never mapped: a file that shrinks while it is read is an error, not a
  dead process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, JournalFormat
from cdc_pipeline.binlog.event_types import (
    ENCRYPTED_MAGIC,
    HEADER_BYTES,
    MAGIC,
    SET_TYPES,
    EventType,
    event_name,
)
from cdc_pipeline.binlog.events import format_description, gtid
from cdc_pipeline.binlog.framing.compressed import EVENT_UNPACKED_BYTES_MAX
from cdc_pipeline.binlog.framing.framing import (
    EventFramer,
    EventHeader,
    encrypted_journal,
    parse_header,
)
from cdc_pipeline.binlog.framing.framing_kernel import EVENT_BYTES_MAX, walk_lengths
from cdc_pipeline.binlog.native.byte_buffer import DEFAULT_CHUNK_BYTES, ByteBuffer
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import (
    BinlogError,
    DamagedJournalError,
    JournalMissingError,
    PositionError,
    SourceError,
    TruncatedJournalError,
    UnsupportedEventError,
)

_NAME: Final = re.compile(r"(?P<base>.+)\.\d{6,}")
# As MariaDB 12.3 names the files of `binlog_storage_engine=innodb`.
_INNODB_NAME: Final = re.compile(r".+-\d{6,}\.ibb")
_FIRST_BYTES: Final = 64 << 10
_HEAD_TYPES: Final = (
    *SET_TYPES,
    EventType.MARIADB_START_ENCRYPTION,
    EventType.MARIADB_BINLOG_CHECKPOINT,
)


@dataclass(frozen=True, slots=True)
class JournalHead:
    """A journal's first events; `previous_set` is the text of the GTID set that precedes it."""

    journal_format: JournalFormat
    previous_set: str | None


def journal_files(directory: Path) -> list[Path]:
    return [directory / name for name in journal_names(directory)]


def journal_names(directory: Path) -> list[str]:
    """Return the names of the journals in a directory, by number. Raises SourceError: not a
    readable directory, or it holds journals of more than one log; UnsupportedEventError: it
    holds a log that MariaDB 12.3 or later keeps inside InnoDB.
    """
    try:
        with os.scandir(directory) as entries:  # says what a file is without asking for each
            journals = [entry.name for entry in entries if entry.is_file()]
    except OSError as error:
        raise SourceError(
            "the archive directory cannot be read",
            setting="source.directory",
            expected="a directory of journals",
            got=f"{directory}: {error.strerror}",
            next_step="set source.directory to the directory that holds the journals; a relative "
            "path begins at the folder of the YAML file",
        ) from None
    for name in sorted(journals):
        _check_name(name)
    names = list(filter(is_journal, journals))
    bases = sorted({name.rpartition(".")[0] for name in names})
    if len(bases) > 1:
        raise SourceError(
            "the directory holds journals of more than one log",
            setting="source.directory",
            expected="one base name, such as binlog in binlog.000001",
            got=", ".join(bases),
            next_step="keep the journals of each log in a directory of their own",
        )
    return sorted(names, key=journal_number)


def _check_name(name: str) -> None:
    if _INNODB_NAME.fullmatch(name):
        raise UnsupportedEventError(
            "the log is kept inside InnoDB (binlog_storage_engine), in files that are no journals",
            at=(name, None),
            expected="journals, such as binlog.000001",
            got=name,
            next_step="let MariaDB write journals again: remove binlog_storage_engine from its "
            "configuration, restart it, and take new snapshots; older journals can be read from a "
            "directory of their own",
        )


def is_journal(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _open_journal(file: Path) -> BinaryIO:
    """Return the journal, open behind its magic number. Raises JournalMissingError: not there,
    or not readable; DamagedJournalError, TruncatedJournalError: it does not begin like a
    journal; UnsupportedEventError: MariaDB keeps its log inside InnoDB.
    """
    _check_name(file.name)
    try:
        handle = file.open("rb", buffering=0)
    except OSError as error:
        raise JournalMissingError(
            f"the journal cannot be opened: {error.strerror}",
            at=(file.name, None),
            next_step="copy it into the archive directory again, readable for this account",
        ) from None
    try:
        check_magic(handle.read(len(MAGIC)), file.name)
    except BinlogError:
        handle.close()
        raise
    return handle


def check_magic(magic: bytes, journal: str) -> None:
    """Check that a journal may begin with `magic`. Raises BinlogError: an encrypted journal;
    DamagedJournalError, TruncatedJournalError: no journal.
    """
    if magic == MAGIC:
        return
    if magic == ENCRYPTED_MAGIC:
        raise encrypted_journal(journal, 0, expected=f"magic number {MAGIC.hex()}", got=magic.hex())
    kind = TruncatedJournalError if len(magic) < len(MAGIC) else DamagedJournalError
    raise kind(
        "the file is not a journal",
        at=(journal, 0),
        expected=f"magic number {MAGIC.hex()}",
        got=magic.hex() or "an empty file",
        next_step="copy the journal again from its server",
    )


def read_journal(
    file: Path,
    *,
    offset: int = 4,
    journal_format: JournalFormat | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    stop_offset: int | None = None,
    unpacked_bytes_max: int = EVENT_UNPACKED_BYTES_MAX,
) -> Iterator[Chunk]:
    """Yield the chunks of a journal from `offset`, an event boundary; above 4 `journal_format` is
    needed. None as `stop_offset` reads to the end of the file. Raises BinlogError: after everything
    before it was delivered; PositionError: `stop_offset` lies inside an event, or past the end.
    """
    framer = EventFramer(
        file.name,
        offset=offset,
        journal_format=journal_format,
        unpacked_bytes_max=unpacked_bytes_max,
    )
    buffer = ByteBuffer(chunk_bytes)
    with _open_journal(file) as handle:
        handle.seek(offset)
        left = None if stop_offset is None else stop_offset - offset
        room_bytes = _FIRST_BYTES  # whoever needs a journal's head reads no more
        while left is None or left > 0:
            wanted = min(room_bytes, chunk_bytes if left is None else min(chunk_bytes, left))
            room_bytes = chunk_bytes
            # numpy's arrays are buffers; the file's stub does not say so.
            count = handle.readinto(buffer.room(wanted))  # type: ignore[attr-defined]
            if not count:
                break
            buffer.commit(count)
            left = None if left is None else left - count
            yield from framed(framer, buffer)
        is_at_end = stop_offset is None or handle.read(1) == b""
    if is_at_end and (stop_offset is None or len(buffer)):
        framer.finish(len(buffer))
    if stop_offset is not None and framer.offset < stop_offset:
        framer.finish(0)
        raise misplaced((file.name, stop_offset), framer.offset, is_past_end=is_at_end)


def framed(framer: EventFramer, buffer: ByteBuffer) -> Iterator[Chunk]:
    """`buffer` keeps the beginning of the next. A BinlogError comes after all before it was
    delivered.
    """
    consumed = -1
    while consumed:
        chunk, consumed = framer.feed(buffer.filled)
        buffer.consume(consumed)
        if chunk is not None:
            yield chunk


def read_head(file: Path) -> JournalHead:
    """Raises BinlogError, JournalMissingError: the journal does not begin as it must."""
    with _open_journal(file) as handle:
        _, event = _read_event(handle, file.name, 4)
        journal_format = format_description.parse(event, journal=file.name)
        offset = 4 + len(event)
        previous_set: str | None = None
        while previous_set is None:
            start = handle.read(HEADER_BYTES)
            if len(start) < HEADER_BYTES or start[4] not in _HEAD_TYPES:
                break
            handle.seek(offset)
            header, event = _read_event(handle, file.name, offset)
            if header.event_type == EventType.MARIADB_START_ENCRYPTION:
                raise encrypted_journal(
                    file.name, offset, expected="events in plain", got=event_name(start[4])
                )
            if header.event_type in SET_TYPES:
                body = event[HEADER_BYTES : len(event) - journal_format.checksum_bytes]
                previous_set = gtid.previous_set(
                    body, header.event_type, journal=file.name, offset=offset
                )
            offset += len(event)
    return JournalHead(journal_format, previous_set)


def _read_event(handle: BinaryIO, journal: str, offset: int) -> tuple[EventHeader, bytes]:
    start = handle.read(HEADER_BYTES)
    header = parse_header(start) if len(start) == HEADER_BYTES else None
    if header is not None and not HEADER_BYTES <= header.event_length <= EVENT_BYTES_MAX:
        raise DamagedJournalError(
            "an event's length is impossible",
            at=(journal, offset),
            expected=f"{HEADER_BYTES} to {EVENT_BYTES_MAX} bytes",
            got=f"{header.event_length} bytes",
        )
    event = start
    if header is not None:  # a damaged length must not allocate memory that the file cannot fill
        left_bytes = os.fstat(handle.fileno()).st_size - handle.tell()
        event += handle.read(max(0, min(header.event_length - HEADER_BYTES, left_bytes)))
    if header is None or len(event) < header.event_length:
        raise TruncatedJournalError(
            "the journal ends in the middle of an event",
            at=(journal, offset),
            expected="a complete event",
            got=f"{len(event)} bytes",
        )
    return header, event


def boundary_at_or_after(file: Path, target: int) -> int:
    """By the events' lengths alone. Raises DamagedJournalError: an impossible length."""
    offset = 4
    with _open_journal(file) as handle:
        while offset < target:
            handle.seek(offset)
            block = np.frombuffer(handle.read(DEFAULT_CHUNK_BYTES), dtype=np.uint8)
            reached = offset + walk_lengths(block, target - offset)
            if reached == offset:
                if len(block) < HEADER_BYTES:
                    return offset + max(1, len(block))  # a torn header: no boundary in it
                raise DamagedJournalError("an event's length is impossible", at=(file.name, offset))
            offset = reached
    return offset


def misplaced(at: tuple[str, int], known: int, *, is_past_end: bool) -> PositionError:
    """`known`: an event boundary, or the journal's end."""
    if is_past_end:
        return PositionError(
            "the position lies beyond the end of the journal",
            at=at,
            expected=f"at most {known}",
            next_step="copy the complete journal into the archive directory",
        )
    return PositionError(
        "the position lies inside an event",
        at=at,
        expected=f"an event boundary; one is at offset {known}",
        next_step="take the position from the server's own list of events",
    )
