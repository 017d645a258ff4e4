"""The event store in memory that spills to files (SPEC S15).

Rules:
- An entry is kept in memory if it fits the rest of the memory budget, otherwise in a file. The
  budget counts the bytes of events and of their rows. One ring orders all entries, wherever they
  are kept.
- After an entry has gone to a file, memory is used again only when at most half of the budget is in
  use. A slice keeps its whole chunk in memory: if single slices took each byte as it became free,
  they would hold many times the budget.
- Puts never wait for memory, only for `disk_bytes_max`: a list waits if the files have reached it
  and the whole list does not fit in memory. With `waits_for_memory` a list that does not fit waits
  until it does, or until memory is empty: a source that can wait as long as it must, because it
  lies on a disk itself, is not written to a disk again.
- Nothing is recovered: memory is lost with the process, and the files alone have gaps. Files are
  removed when their events are released, at `stop`, and at the next `start` (K14: raw rows do not
  outlive a run).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from cdc_pipeline.binlog.chunk import EVENT_DTYPE
from cdc_pipeline.fault_points import reach
from cdc_pipeline.store.entries import Entry, Keeper, MemoryEntry
from cdc_pipeline.store.ring import (
    DEFAULT_MEMORY_UNIT_BYTES,
    DEFAULT_RING_EVENTS,
    UNBOUNDED_EVENTS,
    BatchMode,
    RingStore,
)
from cdc_pipeline.store.segments.segments import (
    DEFAULT_DISK_BYTES_MAX,
    DEFAULT_SEGMENT_BYTES,
    SegmentLog,
)

DEFAULT_MEMORY_BYTES: Final = DEFAULT_RING_EVENTS * DEFAULT_MEMORY_UNIT_BYTES
_ROW_BYTES: Final = EVENT_DTYPE.itemsize


class _MixedKeeper(Keeper):
    def __init__(
        self, log: SegmentLog, *, memory_events: int, memory_bytes: int, waits_for_memory: bool
    ) -> None:
        self.log = log
        self._waits_for_memory = waits_for_memory
        self._events_max = memory_events
        self._bytes_max = memory_bytes
        self._forget_all()

    def _forget_all(self) -> None:
        self.events = 0  # in memory
        self.event_bytes = 0
        self.spilled_events = 0  # written to files since the start
        self._is_spilling = False

    def open(self) -> None:
        self._forget_all()
        self.log.open()

    def close(self) -> None:
        self._forget_all()
        self.log.close()

    def clean(self) -> None:
        self._forget_all()
        self.log.clean()

    def _fits(self, events: int, event_bytes: int) -> bool:
        events += self.events
        return (
            events <= self._events_max
            and self.event_bytes + event_bytes + events * _ROW_BYTES <= self._bytes_max
        )

    def _takes_memory(self) -> bool:
        """Whether memory may be used now; if the disk is full, there is no other room."""
        if self._is_spilling and self.log.has_room:
            used_bytes = self.event_bytes + self.events * _ROW_BYTES
            self._is_spilling = (
                2 * self.events > self._events_max or 2 * used_bytes > self._bytes_max
            )
            return not self._is_spilling
        return True

    def has_room(self, events: int, event_bytes: int) -> bool:
        may_spill = self.log.has_room and not (self._waits_for_memory and self.events)
        return may_spill or self._fits(events, event_bytes)

    def keep(self, entries: list[MemoryEntry]) -> list[Entry]:
        events = event_bytes = 0
        spilled: list[MemoryEntry] = []
        takes_memory = self._takes_memory()
        for entry in entries:
            if takes_memory and self._fits(
                events + entry.event_count, event_bytes + entry.event_bytes
            ):
                events += entry.event_count
                event_bytes += entry.event_bytes
            else:
                spilled.append(entry)
        kept: list[Entry] = [*entries]
        if spilled:
            self._is_spilling = True
            stored = {entry.first: entry for entry in self.log.append(spilled)}
            reach("spill")  # written, and not counted yet
            kept = [stored.get(entry.first, entry) for entry in entries]
            self.spilled_events += sum(entry.event_count for entry in spilled)
        self.events += events
        self.event_bytes += event_bytes
        return kept

    def forget(self, entry: Entry) -> None:
        if isinstance(entry, MemoryEntry):
            self.events -= entry.event_count
            self.event_bytes -= entry.event_bytes

    def released(self, sequence: int) -> None:
        self.log.released(sequence)


class MixedEventStore(RingStore):
    """A store that keeps events in memory up to a budget and in files beyond it.

    Args:
        directory: a local directory for this store alone, made private (0700) at the start.
        memory_events, memory_bytes: memory budget; an entry that does not fit goes to a file. The
            bytes are those of the events and of their rows; by default only they are bounded.
        segment_bytes: length at which a file is sealed; at most a quarter of `disk_bytes_max`.
        disk_bytes_max: puts wait while the files with unreleased events have this length or more;
            the list that reaches it is still stored.
        waits_for_memory: only a list that is larger than all of it goes to a file.
        ring_events: most retained events, a power of two; by default unbounded.

    Raises:
        RingSizeError: `ring_events` is not a power of two (S1).
        StoreError: from `start` if the directory cannot be used; from a put if the disk refuses
            (nothing is stored).
        LockError: from `start` if another store uses the directory.
        StoreDamagedError: from a get if the bytes read are not those that were written; nothing
            changes.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        memory_events: int = UNBOUNDED_EVENTS,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        disk_bytes_max: int = DEFAULT_DISK_BYTES_MAX,
        waits_for_memory: bool = False,
        ring_events: int = UNBOUNDED_EVENTS,
        batch_mode: BatchMode = "memsize",
        memory_unit_bytes: int = DEFAULT_MEMORY_UNIT_BYTES,
        ddl_isolation: bool = True,
    ) -> None:
        log = SegmentLog(
            Path(directory), segment_bytes=segment_bytes, disk_bytes_max=disk_bytes_max
        )
        self._mixed_keeper = _MixedKeeper(
            log,
            memory_events=memory_events,
            memory_bytes=memory_bytes,
            waits_for_memory=waits_for_memory,
        )
        super().__init__(
            ring_events,
            keeper=self._mixed_keeper,
            batch_mode=batch_mode,
            memory_unit_bytes=memory_unit_bytes,
            ddl_isolation=ddl_isolation,
        )

    @property
    def memory_event_bytes(self) -> int:
        with self._lock:
            return self._mixed_keeper.event_bytes

    @property
    def spilled_events(self) -> int:
        with self._lock:
            return self._mixed_keeper.spilled_events

    @property
    def disk_bytes(self) -> int:
        with self._lock:
            return self._mixed_keeper.log.disk_bytes


class FileEventStore(MixedEventStore):
    """A store that keeps nothing in memory (SPEC S15). Arguments: see `MixedEventStore`."""

    def __init__(self, directory: Path | str, **options: Any) -> None:
        super().__init__(directory, memory_events=0, **options)
