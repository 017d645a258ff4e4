"""Entries in append-only files.

Rules:
- Entries are only ever appended to a segment. When it has reached its length, it is sealed and the
  next one begins. A list of entries never spans two segments.
- A list is written as a whole or not at all: the remains of a failed write are cut off.
- `disk_bytes_max` bounds the live bytes: those of segments with an unreleased event. A list of any
  size is admitted while they are below it, as in MEMSIZE (S3).
- A segment is removed when its events are released. No file outlives its store: a run after a crash
  reads again from the cursor, so files need no fsync, and leftovers of a dead process are removed.
- Memory holds one `StoredEntry` per entry, and the entry that was loaded last.
- Reading copies once, from the page cache; rows and bytes of a loaded slice are views of that copy.
  Files are not mapped: mapped pages count as resident as long as a slice lives, and access to a
  truncated file would kill the process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.errors import StoreDamagedError, StoreError
from cdc_pipeline.position.position import Position
from cdc_pipeline.store.entries import Entry, MemoryEntry
from cdc_pipeline.store.segments.codec import (
    HEADER_BYTES,
    EntryDecoder,
    EntryEncoder,
    EntryError,
    parse_header,
)
from cdc_pipeline.store.segments.folder import SegmentsFolder

DEFAULT_SEGMENT_BYTES: Final = 64 << 20
DEFAULT_DISK_BYTES_MAX: Final = 16 << 30
_WRITE_BUFFERS_MAX: Final = 512
_WORTH_REMOVING_BYTES: Final = 1 << 20  # from this length on, the open segment is removed early


@dataclass(slots=True)
class Segment:
    """`size_bytes`: of complete entries; `last`: sequence, -1 if none; a sealed one takes
    no more.
    """

    path: Path
    size_bytes: int
    last: int
    is_sealed: bool


@dataclass(slots=True, eq=False)
class StoredEntry(Entry):
    """`offset` and `length` in bytes; `timestamps_s`, `offsets`: lowest and highest of its
    events.
    """

    log: SegmentLog
    segment: Segment
    offset: int
    length: int
    journal: str
    timestamps_s: tuple[int, int]
    offsets: tuple[int, int]

    def load(self) -> EventSlice:
        return self.log.load(self)

    def may_hold(self, wanted: Position) -> bool:
        return (
            wanted.journal in ("", self.journal)
            and self.timestamps_s[0] <= wanted.timestamp_s <= self.timestamps_s[1]
            and (not wanted.offset or self.offsets[0] <= wanted.offset <= self.offsets[1])
        )


def _stored_entry(
    entry: MemoryEntry, log: SegmentLog, segment: Segment, offset: int, length: int
) -> StoredEntry:
    rows = entry.part.events
    times, offsets = rows["timestamp_s"], rows["offset"]
    return StoredEntry(
        entry.first, entry.last, entry.event_bytes, entry.kind, entry.bytes_before, entry.open_gtid,
        log, segment, offset, length, entry.part.chunk.journal,
        (int(times.min()), int(times.max())), (int(offsets.min()), int(offsets.max())),
    )  # fmt: skip


class SegmentLog:
    """Of one store. `directory` is made private (K26: others must not read rows)."""

    def __init__(self, directory: Path, *, segment_bytes: int, disk_bytes_max: int) -> None:
        self.folder = SegmentsFolder(directory)
        # Keep segments much shorter than the bound: otherwise one retained event would occupy most
        # of the room.
        self._segment_bytes = max(1, min(segment_bytes, disk_bytes_max // 4))
        self._disk_bytes_max = disk_bytes_max
        self._writer: int | None = None  # descriptor of the last segment unless it is sealed
        self._reader: tuple[Segment, int] | None = None
        self._reset()

    def _reset(self) -> None:
        for descriptor in (self._writer, self._reader[1] if self._reader else None):
            if descriptor is not None:
                os.close(descriptor)
        self._writer = self._reader = None
        self.segments: deque[Segment] = deque()
        self.live_bytes = 0
        self._next_number = 1
        self._released_sequence = -1
        self._loaded: tuple[StoredEntry, EventSlice] | None = None
        self._encoder = EntryEncoder()
        self._decoder = EntryDecoder()

    # -- life --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the folder and remove leftovers of an earlier run (K14)."""
        self.folder.take()
        self.clean()

    def close(self) -> None:
        """Remove the files and release the folder."""
        self._reset()
        self.folder.remove_segments()
        self.folder.give_back()

    def clean(self) -> None:
        self._reset()
        self.folder.remove_segments()

    # -- writing -----------------------------------------------------------------------------------

    def append(self, entries: Sequence[MemoryEntry]) -> list[StoredEntry]:
        """All or none. StoreError: the system refuses the write."""
        encoded = [self._encoder.encode(entry) for entry in entries]
        lengths = [sum(map(len, buffers)) for buffers in encoded]
        try:
            self._make_room(sum(lengths))
            segment, writer = self._open_segment()
            try:
                _write_all(
                    writer, [buffer for buffers in encoded for buffer in buffers if len(buffer)]
                )
            except OSError:
                os.ftruncate(writer, segment.size_bytes)
                raise
        except OSError as error:
            raise StoreError(
                "events cannot be written to the store's directory",
                setting="store.directory",
                expected=f"room for {sum(lengths)} bytes in {self.folder.path}",
                got=error.strerror,
                next_step="free space there or lower store.disk_bytes_max; the events stored "
                "before are intact",
            ) from error
        if segment.last <= self._released_sequence:
            self.live_bytes += segment.size_bytes
        stored = []
        for entry, length in zip(entries, lengths, strict=True):
            stored.append(_stored_entry(entry, self, segment, segment.size_bytes, length))
            segment.size_bytes += length
        self.live_bytes += sum(lengths)
        segment.last = entries[-1].last
        return stored

    @property
    def has_room(self) -> bool:
        return self.live_bytes < self._disk_bytes_max

    @property
    def disk_bytes(self) -> int:
        """The length of all files, including released ones."""
        return sum(segment.size_bytes for segment in self.segments)

    def _make_room(self, count_bytes: int) -> None:
        """Remove released segments, oldest first, if the new bytes would exceed the bound."""
        gone = []
        over = self.disk_bytes + count_bytes - self._disk_bytes_max
        while over > 0 and self.segments and self.segments[0].last <= self._released_sequence:
            over -= self.segments[0].size_bytes
            gone.append(self._take_oldest())
        self._remove(gone)

    def _open_segment(self) -> tuple[Segment, int]:
        last = self.segments[-1] if self.segments else None
        if last is not None and self._writer is not None:
            if last.size_bytes < self._segment_bytes:
                return last, self._writer
            self._seal()
        path = self.folder.segment_path(self._next_number)
        writer = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        segment = Segment(path, 0, -1, False)
        self._writer = writer
        self.segments.append(segment)
        self._next_number += 1
        return segment, writer

    def _seal(self) -> None:
        if self._writer is None:
            return
        os.close(self._writer)
        self._writer = None
        self.segments[-1].is_sealed = True

    # -- reading -----------------------------------------------------------------------------------

    def load(self, entry: StoredEntry) -> EventSlice:
        """Raises StoreDamagedError: its bytes are not those that were written."""
        if self._loaded is not None and self._loaded[0] is entry:
            return self._loaded[1]
        try:
            raw = _read_at(self._descriptor(entry.segment), entry.offset, entry.length)
            header = parse_header(raw[:HEADER_BYTES].tobytes())
            if header.sequence != entry.first:
                raise EntryError(f"sequence {header.sequence} instead of {entry.first}")
            part = self._decoder.decode(header, raw)
        except (EntryError, OSError) as error:
            raise damaged(entry.segment.path, entry.offset, str(error)) from error
        self._loaded = (entry, part)
        return part

    def _descriptor(self, segment: Segment) -> int:
        if self._reader is None or self._reader[0] is not segment:
            if self._reader is not None:
                os.close(self._reader[1])
                self._reader = None
            self._reader = (segment, os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC))
        return self._reader[1]

    # -- freeing -----------------------------------------------------------------------------------

    def released(self, sequence: int) -> None:
        if sequence <= self._released_sequence:
            return
        self._released_sequence = sequence
        if self._loaded is not None and self._loaded[0].last <= sequence:
            self._loaded = None
        if self.live_bytes:
            live = (one for one in self.segments if one.last > sequence)
            self.live_bytes = sum(one.size_bytes for one in live)
        self._remove(self._take_until(sequence))

    def _take_until(self, sequence: int) -> list[Segment]:
        """Take out the segments that end by `sequence`; the open one only if it is long enough."""
        gone = []
        while self.segments and self.segments[0].last <= sequence:
            oldest = self.segments[0]
            if not oldest.is_sealed and oldest.size_bytes < min(
                self._segment_bytes, _WORTH_REMOVING_BYTES
            ):
                break
            gone.append(self._take_oldest())
        return gone

    def _take_oldest(self) -> Segment:
        if not self.segments[0].is_sealed:
            self._seal()
        return self.segments.popleft()

    def _remove(self, gone: list[Segment]) -> None:
        for segment in gone:
            if self._reader is not None and self._reader[0] is segment:
                os.close(self._reader[1])
                self._reader = None
            segment.path.unlink(missing_ok=True)


def _read_at(descriptor: int, offset: int, length: int) -> NDArray[np.uint8]:
    """Fewer bytes if the file ends."""
    raw = np.empty(length, dtype=np.uint8)
    done = 0
    while done < length:
        count = os.preadv(descriptor, [raw[done:]], offset + done)  # type: ignore[list-item]
        if count == 0:
            break
        done += count
    return raw[:done]


def damaged(path: Path, offset: int, reason: str) -> StoreDamagedError:
    """An error that names the file and the offset in it."""
    return StoreDamagedError(
        f"the store's file {path.name} is damaged",
        at=(None, offset),
        expected=f"the entry that was written there, in {path}",
        got=reason,
        next_step="run again: the store starts empty, and the run reads again from the cursor",
    )


def _write_all(descriptor: int, buffers: list[Any]) -> None:
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    first = 0
    while first < len(views):
        count = os.writev(descriptor, views[first : first + _WRITE_BUFFERS_MAX])
        while first < len(views) and count >= len(views[first]):
            count -= len(views[first])
            first += 1
        if first < len(views) and count:
            views[first] = views[first][count:]
