"""The event store in files (SPEC S15): the ring's contract, with its entries in segments on disk.

Rules:
- Sequences, batches and waiting are the ring's. Its size is no bound here unless one is given: `disk_bytes_max` is.
- After a crash `recover` gives back what was put and not acked, up to the last whole entry; `start` removes it instead
  (K14). `stop` removes everything.
- Recovery is contiguous with the ack unless released segments had to be given up for room.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_pipeline.binlog.chunk import SliceKind
from cdc_pipeline.errors import StoreError
from cdc_pipeline.position.position import Position
from cdc_pipeline.store import positions
from cdc_pipeline.store.entries import Entry, HeldEntry
from cdc_pipeline.store.ring import DEFAULT_MEMORY_UNIT_BYTES, BatchMode, RingStore
from cdc_pipeline.store.segments import manifest as segments_manifest
from cdc_pipeline.store.segments.recovery import TornTail, drop_open_tail, scan
from cdc_pipeline.store.segments.segments import (
    DEFAULT_DISK_BYTES_MAX,
    DEFAULT_SEGMENT_BYTES,
    FsyncPolicy,
    SegmentLog,
    StoredEntry,
)

UNBOUNDED_EVENTS: Final = 1 << 40


class FileKeeper:
    """Keeps every entry in the segments of `log`."""

    def __init__(self, log: SegmentLog) -> None:
        self.log = log
        self.is_recovered = False  # the next `open` goes on with what recovery has taken

    def open(self) -> None:
        if not self.is_recovered:
            self.log.open()
        self.is_recovered = False

    def close(self) -> None:
        self.log.close()

    def clean(self) -> None:
        self.log.clean()

    def has_room(self, _events: int, _event_bytes: int) -> bool:
        return self.log.has_room

    def keep(self, entries: list[HeldEntry]) -> list[StoredEntry]:
        return self.log.append(entries)

    def forget(self, _entry: Entry) -> None:
        return

    def released(self, sequence: int) -> None:
        self.log.released(sequence)

    def acked(self, sequence: int, position: Position) -> None:
        self.log.acked(sequence, position)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a crash left.

    Attributes:
        store: started; holds the recovered events, none of them got.
        events: how many they are.
        acked: position of the last ack before the crash; None where there was none.
        is_contiguous: whether the first of them is the one after the ack; False where released events had been given
            up for room (those must be read again, and all that follows with them).
        torn: what was cut off; None where the files ended well.
        dropped_open_events: events of a transaction without its end that were dropped (with `keep_open` they stay).
        resume: where reading of the source goes on after the last recovered event; None where there is none.
    """

    store: FileEventStore
    events: int
    acked: Position | None
    is_contiguous: bool
    torn: TornTail | None
    dropped_open_events: int
    resume: Position | None


class FileEventStore(RingStore):
    """An `EventStore` whose events live in files.

    Args:
        directory: a local directory for this store alone, made private (0700) at the start.
        segment_bytes: length at which a file is finished and the next one begins; at most a quarter of the bound.
        disk_bytes_max: puts wait while the files with events that are not released reach this length; the list that
            reaches it is still stored.
        fsync: wait for the disk never (a crash of the process loses nothing, one of the machine may), when a segment is
            finished, or on every put.
        ring_events: most events held, a power of two; by default no bound.
        batch_mode, memory_unit_bytes, ddl_isolation: see `RingStore`; in MEMSIZE the bytes held are bounded by
            `ring_events` units.

    Raises:
        RingSizeError: `ring_events` is not a power of two (S1).
        StoreError: from `start`, the directory cannot be used; from a put, the disk refuses (nothing was stored).
        LockError: from `start`, another store uses the directory.
        StoreDamagedError: from a get, what is read back is not what was written; nothing has changed.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        disk_bytes_max: int = DEFAULT_DISK_BYTES_MAX,
        fsync: FsyncPolicy = "never",
        ring_events: int = UNBOUNDED_EVENTS,
        batch_mode: BatchMode = "memsize",
        memory_unit_bytes: int = DEFAULT_MEMORY_UNIT_BYTES,
        ddl_isolation: bool = True,
    ) -> None:
        self._log = SegmentLog(
            Path(directory),
            store="file",
            segment_bytes=segment_bytes,
            disk_bytes_max=disk_bytes_max,
            fsync=fsync,
        )
        self._file_keeper = FileKeeper(self._log)
        super().__init__(
            self._file_keeper,
            ring_events=ring_events,
            batch_mode=batch_mode,
            memory_unit_bytes=memory_unit_bytes,
            ddl_isolation=ddl_isolation,
        )

    @property
    def disk_bytes(self) -> int:
        """Length of the store's files."""
        with self._lock:
            return self._log.disk_bytes

    def recover(self, *, keep_open: bool = False) -> Recovery:
        """Start this store, which was not started, with what a dead process left in its directory.

        `keep_open` keeps the pieces of a transaction at the end whose last piece is not there; otherwise the store ends
        with its last whole transaction (K9).

        Raises:
            StoreDamagedError: bytes that were written whole have changed; the message names file and offset.
            StoreError: the store runs, or the directory cannot be used.
            LockError: the process that used the directory lives.
        """
        with self._lock:
            if self._is_running:
                raise StoreError("a store that runs cannot be recovered", next_step="recover in place of start")
        self._log.folder.take()
        try:
            manifest = segments_manifest.read(self._log.folder.path)
            if manifest is None:
                self.start()
                return Recovery(self, 0, None, True, None, 0, None)
            found = scan(self._log, manifest)
            dropped = 0 if keep_open else drop_open_tail(found)
            for segment in found.segments:
                os.truncate(segment.path, segment.size_bytes)
            ack = manifest.ack_sequence
            released = max(ack, found.entries[0].first - 1) if found.entries else ack
            last = found.entries[-1].last if found.entries else ack
            self._log.adopt(found.segments, manifest, put_sequence=last, released=released)
        except BaseException:
            self._log.folder.give_back()
            raise
        self._file_keeper.is_recovered = True
        self.start()
        with self._lock:
            self._ack_sequence = ack
            self._released_sequence = self._get_sequence = self._put_sequence = released
            self._last_freed = manifest.ack_position
            self._oldest = self._get_entry = released + 1
            resume = self._take_back(found.entries)
        return Recovery(self, last - released, manifest.ack_position, released == ack, found.torn, dropped, resume)

    def _take_back(self, entries: list[StoredEntry]) -> Position | None:
        """Make recovered entries the ring's; where reading goes on after them."""
        if not entries:
            return None
        first, last = entries[0], entries[-1]
        # What was released comes back as well, perhaps more than the ring's size: then there is no room for a while,
        # and the slots must not overlap.
        while self._mask < last.last - first.first:
            self._mask = 2 * self._mask + 1
        self._insert(entries)
        if (
            first.first <= self._released_sequence
        ):  # acked in its middle: what is left has the slot of its own first event
            del self._slots[first.first & self._mask]
            self._slots[self._oldest & self._mask] = first
            self._released_bytes = self._get_bytes = first.bytes_until(self._released_sequence)
        if last.kind is SliceKind.OPEN_PIECE:
            self._open_gtid = last.open_gtid
        part = last.load()
        return positions.resume_position(part, part.event_count - 1, open_gtid=last.open_gtid)
