"""What a dead process left in its segments.

Rules:
- Only what the manifest names counts. Sealed segments are whole; the last one, where it was being written to, ends at
  the last entry whose checksums are right. What follows is a torn tail: cut off, and said.
- A wrong byte with a whole entry after it is no torn tail but damage: an error that names file and offset.
- One entry at a time is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cdc_pipeline.binlog.chunk import SliceKind
from cdc_pipeline.store.entries import HeldEntry
from cdc_pipeline.store.segments.codec import (
    ALIGNMENT_BYTES,
    HEADER_BYTES,
    EntryDecoder,
    EntryError,
    next_header_at,
    parse_header,
)
from cdc_pipeline.store.segments.manifest import Manifest
from cdc_pipeline.store.segments.segments import (
    SEGMENT_HEADER,
    Segment,
    SegmentLog,
    StoredEntry,
    damaged,
    read_at,
    stored_entry,
)

_SEARCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TornTail:
    """Bytes that were being written when the process died.

    Attributes:
        segment: name of the file.
        offset: where they began; the file now ends there.
        cut_bytes: how many there were.
        reason: why they are no entry.
    """

    segment: str
    offset: int
    cut_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.cut_bytes} bytes cut off at {self.segment}:{self.offset}: {self.reason}"


@dataclass(slots=True)
class Found:
    """What a scan found: whole segments, the entries after the ack, and the torn tail."""

    segments: list[Segment]
    entries: list[StoredEntry]
    torn: TornTail | None = None


def scan(log: SegmentLog, manifest: Manifest) -> Found:
    """Check every byte that the manifest names; entries that end at its ack sequence or before are left out.

    Raises:
        StoreDamagedError: a file that is missing or damaged.
    """
    found = Found([], [])
    decoder = EntryDecoder()
    bytes_before = 0
    expected = -1  # sequence that must follow; -1 while any may
    for record in manifest.segments:
        path = log.folder.segment_path(record.number)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise damaged(path, 0, str(error.strerror)) from error
        try:
            size_bytes = os.fstat(descriptor).st_size
            is_sealed = record.sealed_bytes is not None
            if record.sealed_bytes is not None:
                if record.sealed_bytes > size_bytes:
                    raise damaged(path, size_bytes, f"the file ends; it was sealed with {record.sealed_bytes} bytes")
                size_bytes = record.sealed_bytes
            if not is_sealed and size_bytes < len(SEGMENT_HEADER):
                found.torn = TornTail(path.name, 0, size_bytes, "the file ends in its own header")
                break
            if read_at(descriptor, 0, len(SEGMENT_HEADER)).tobytes() != SEGMENT_HEADER:
                raise damaged(path, 0, "no segment of this version's layout")
            segment = Segment(record.number, path, len(SEGMENT_HEADER), -1, True)
            found.segments.append(segment)
            try:
                for length, entry in _entries(descriptor, size_bytes, decoder):
                    if expected not in (-1, entry.first):
                        raise damaged(path, segment.size_bytes, f"sequence {entry.first} instead of {expected}")
                    expected = entry.last + 1
                    if entry.last > manifest.ack_sequence:
                        placed = replace(entry, bytes_before=bytes_before)
                        bytes_before += entry.event_bytes
                        found.entries.append(stored_entry(placed, log, segment, segment.size_bytes, length))
                    segment.size_bytes += length
                    segment.last = entry.last
            except EntryError as error:
                at = segment.size_bytes
                if is_sealed or _goes_on(descriptor, at, size_bytes, expected):
                    raise damaged(path, at, str(error)) from error
                found.torn = TornTail(path.name, at, size_bytes - at, str(error))
        finally:
            os.close(descriptor)
    return found


def _entries(descriptor: int, size_bytes: int, decoder: EntryDecoder) -> Iterator[tuple[int, HeldEntry]]:
    """Length and entry, one after the other, up to `size_bytes`. Raises EntryError at the first that is none."""
    at = len(SEGMENT_HEADER)
    while at < size_bytes:
        header = parse_header(read_at(descriptor, at, min(HEADER_BYTES, size_bytes - at)).tobytes())
        if at + header.entry_bytes > size_bytes:
            raise EntryError(f"{size_bytes - at} bytes of an entry of {header.entry_bytes}")
        part, open_gtid = decoder.decode(header, read_at(descriptor, at, header.entry_bytes))
        last = header.sequence + header.row_count - 1
        yield header.entry_bytes, HeldEntry(header.sequence, last, part.event_bytes, part.kind, 0, open_gtid, part)
        at += header.entry_bytes


def _goes_on(descriptor: int, at: int, size_bytes: int, expected: int) -> bool:
    """True where a whole header of a later entry stands after the bad one at `at`."""
    try:
        at += parse_header(read_at(descriptor, at, HEADER_BYTES).tobytes()).entry_bytes
    except EntryError:
        at += ALIGNMENT_BYTES
    while at + HEADER_BYTES <= size_bytes:
        raw = read_at(descriptor, at, min(_SEARCH_BYTES, size_bytes - at)).tobytes()
        if next_header_at(raw, expected) >= 0:
            return True
        at += _SEARCH_BYTES - HEADER_BYTES  # a header may stand across the end of what was searched
    return False


def drop_open_tail(found: Found) -> int:
    """Take out the pieces of a transaction that does not end; how many events they had (K9)."""
    dropped = 0
    while found.entries and found.entries[-1].kind is SliceKind.OPEN_PIECE:
        entry = found.entries.pop()
        dropped += entry.event_count
        while found.segments[-1] is not entry.segment:
            found.segments.pop()
        entry.segment.size_bytes = entry.offset
        entry.segment.last = entry.first - 1 if entry.offset > len(SEGMENT_HEADER) else -1
    return dropped
