"""Keep the events that a dump has delivered, as the bytes of the server's journals.

Rules:
- Events are taken when framing has verified them, before anything is unpacked or filtered, and up
  to the end of the run: what lies behind it may still be lost with the server.
- What the server makes up for a dump (heartbeats, events of position 0 or marked so) is in no file.
- No holes: what a run does not receive and what is not kept yet is fetched from the server by
  offset: the beginning of its first journal, transactions that a dump by GTID set omits, journals
  that were left open or omitted. What the server has purged is a hole: that journal stays open.
- A journal ends with ROTATE or STOP, or where the server goes on to the next.
- Bytes become durable when there are enough of them, and when a dump ends. A run that is killed
  loses the last ones; the next run fetches them.
- In a dump by GTID set format descriptions are not those of the files: the server takes its own
  start out of them. So they are fetched by offset too.
- Where nothing can be written, the run goes on without, and fails at its end; the next run fetches
  what is missing.
- A format description is kept as it is sent, without the flag of a journal that is in use. A server
  takes that off too when it closes the journal; after a crash MariaDB leaves it in the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, Chunks
from cdc_pipeline.binlog.event_types import CLOSING_TYPES, MAGIC
from cdc_pipeline.binlog.framing.packets_kernel import copy_events
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import JournalMissingError, SinkError, UnsupportedEventError
from cdc_pipeline.position.position import FIRST_OFFSET, Position
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals, place_named

WRITE_BYTES: Final = 16 << 20
_log = logging.getLogger(__name__)

# Receives each chunk with the packets that it came in.
Tee = Callable[[Chunk, NDArray[np.uint8]], None]


class Reader(Protocol):
    """Of the same server, beside the run's own dump."""

    def dumped(self, start: Position, end: Position, tee: Tee) -> Chunks: ...

    def journal_created_s(self, journal: str) -> int: ...


@dataclass(slots=True)
class _Writer:
    """One journal's. `is_left`: sealed already, or with a hole."""

    kept: KeptJournals
    journal: KeptJournal
    buffer: NDArray[np.uint8]
    is_left: bool = False
    is_closed: bool = False
    buffered_bytes: int = 0

    @property
    def stop(self) -> int:
        return max(FIRST_OFFSET, self.journal.size_bytes + self.buffered_bytes)

    def room(self, size_bytes: int) -> NDArray[np.uint8]:
        """For what follows: whoever has filled it counts it in `buffered_bytes`."""
        if not self.journal.size_bytes and not self.buffered_bytes:
            self.buffer[: len(MAGIC)] = np.frombuffer(MAGIC, np.uint8)
            self.buffered_bytes = len(MAGIC)
        if self.buffered_bytes + size_bytes > len(self.buffer):
            self.flush()
            if size_bytes > len(self.buffer):
                self.buffer = np.empty(size_bytes, np.uint8)
        return self.buffer[self.buffered_bytes :][:size_bytes]

    def add(self, offset: int, content: NDArray[np.uint8]) -> None:
        """What is kept of it is compared. Raises SourceIdentityError."""
        again = min(len(content), self.stop - offset)
        if again > 0:
            self.flush()
            self.kept.compare(self.journal, offset, content[:again].tobytes())
            content = content[again:]
        if len(content):
            self.room(len(content))[:] = content
            self.buffered_bytes += len(content)

    def flush(self) -> None:
        if self.buffered_bytes:
            content = memoryview(self.buffer)[: self.buffered_bytes]  # type: ignore[arg-type]
            self.buffered_bytes = 0  # first: what fails is not written twice
            self.journal = self.kept.append(self.journal, content)


class JournalKeeper:
    """`on_server`: the journals that the server has."""

    def __init__(
        self,
        kept: KeptJournals,
        *,
        on_server: Callable[[], Sequence[JournalInfo]],
        beside: Callable[[], AbstractContextManager[Reader]],
    ) -> None:
        self._kept = kept
        self._on_server = on_server
        self._beside = beside
        self.failure: SinkError | None = None  # why nothing more of the run is kept
        self._writer: _Writer | None = None
        # Memory that is used again is in the cache, and needs no new pages.
        self._buffer = np.empty(WRITE_BYTES, np.uint8)

    def take(self, chunk: Chunk, packets: NDArray[np.uint8], *, by_gtid: bool) -> None:
        """Keep the events of a chunk. Raises SourceIdentityError: other bytes are kept;
        UnsupportedEventError: MariaDB encrypts its journals; and as `fetch`.
        """
        if self.failure is not None:
            return
        with self._failing_later():
            writer, omit_format = self._writer, False
            if writer is None or writer.journal.name != chunk.journal:
                omit_format = by_gtid or writer is None
                writer = self._turn_to(chunk)
            self._add(writer, chunk, packets, omit_format=omit_format)

    def flush(self) -> None:
        with self._failing_later():
            if self._writer is not None:
                self._writer.flush()

    @contextmanager
    def _failing_later(self) -> Iterator[None]:
        try:
            with place_named(self._kept.folder):
                yield
        except SinkError as error:
            self.failure, self._writer = error, None
            _log.warning("kept journals: nothing more of this run is kept: %s", error.what)

    def complete_before(self, name: str) -> None:
        """By GTID set, a dump does not begin if only the journal has changed."""
        if self.failure is not None or (
            self._writer is not None and self._writer.journal.name == name
        ):
            return
        with self._failing_later():
            if self._writer is not None:
                self._writer.flush()
                self._writer = None
            else:
                self._begin(name)
            self._complete(self._kept.journals(), name)

    def _add(
        self,
        writer: _Writer,
        chunk: Chunk,
        packets: NDArray[np.uint8],
        *,
        omit_format: bool = False,
    ) -> None:
        if writer.is_left:
            return
        is_own = chunk.events["parent"] < 0
        events = chunk.events if is_own.all() else chunk.events[is_own]
        offsets, ends = events["offset"], events["next_offset"]
        size_bytes, first = int((ends - offsets).sum()), int(offsets[0])
        is_first_format = omit_format and first == FIRST_OFFSET
        if first == writer.stop and first + size_bytes == ends[-1] and not is_first_format:
            _copy(packets, writer.room(size_bytes), chunk.journal)
            writer.buffered_bytes += size_bytes
        else:
            data = np.empty(size_bytes, np.uint8)
            _copy(packets, data, chunk.journal)
            at = 0
            if is_first_format:
                at = int(ends[0]) - first
                offsets, ends = offsets[1:], ends[1:]
            breaks = (np.flatnonzero(offsets[1:] != ends[:-1]) + 1).tolist()
            for begin, stop in zip([0, *breaks], [*breaks, len(offsets)], strict=True):
                if begin == stop:
                    return
                offset, size = int(offsets[begin]), int(ends[stop - 1] - offsets[begin])
                if offset > writer.stop and not self._fill(writer, Position(chunk.journal, offset)):
                    return
                if offset > writer.stop:
                    raise _encrypted(chunk.journal, writer.stop)
                writer.add(offset, data[at : at + size])
                at += size
        if writer.buffered_bytes >= WRITE_BYTES:
            writer.flush()
        writer.is_closed = int(events["event_type"][-1]) in CLOSING_TYPES

    def _turn_to(self, chunk: Chunk) -> _Writer:
        created_s, name = chunk.journal_format.created_s, chunk.journal
        if self._writer is None:
            self._begin(name, created_s)
        else:
            self._finish(self._writer, name)
        kept = self._kept.journals()
        self._complete(kept, name)
        journal = KeptJournal(name, 0, False, (), created_s)
        for other in kept:
            if other.name == name and (other.is_sealed or other.created_s == created_s):
                journal = other
        self._writer = _Writer(self._kept, journal, self._buffer, is_left=journal.is_sealed)
        return self._writer

    def _begin(self, name: str, created_s: int | None = None) -> None:
        """Turn to another folder if the log was reset. `created_s` of journal `name`."""
        self._kept.tidy()

        def created_s_of(journal: str) -> int:
            if journal == name and created_s is not None:
                return created_s
            with self._beside() as reader:
                return reader.journal_created_s(journal)

        on_server = [info.journal for info in self._on_server()]
        if not self._kept.is_of(on_server, name, created_s=created_s_of):
            self._kept = self._kept.after_reset()

    def _complete(self, listed: Sequence[KeptJournal], name: str) -> None:
        """Whatever is missing between the oldest kept journal and this one."""
        number, base = journal_number(name), name.rpartition(".")[0]
        kept = {journal.number: journal for journal in listed}
        missing = [
            other
            for other in range(min(kept, default=number), number)
            if other not in kept or not kept[other].is_sealed
        ]
        if not missing:
            return
        there = {info.number for info in self._on_server()}
        if gone := [other for other in missing if other not in there]:
            _log.warning(
                "kept journals: %s has a hole, what is missing of %s is no longer on the server",
                self._kept.folder,
                ", ".join(f"{base}.{other:06d}" for other in gone),
            )
        for other in missing:
            if other in there:
                journal = kept.get(other) or KeptJournal(f"{base}.{other:06d}", 0, False, ())
                writer = _Writer(self._kept, journal, self._buffer)
                self._finish(writer, f"{base}.{other + 1:06d}")

    def _finish(self, writer: _Writer, following: str) -> None:
        if writer.is_left or not (writer.is_closed or self._fill(writer, Position(following))):
            return
        writer.flush()
        self._kept.seal(writer.journal)

    def _fill(self, writer: _Writer, end: Position) -> bool:
        """Fetch what is missing up to `end`; False if the server has purged it."""

        def add(chunk: Chunk, packets: NDArray[np.uint8]) -> None:
            if chunk.journal == writer.journal.name:
                if not writer.journal.created_s:
                    created_s = chunk.journal_format.created_s
                    writer.journal = KeptJournal(writer.journal.name, 0, False, (), created_s)
                self._add(writer, chunk, packets)

        name, created_s = writer.journal.name, writer.journal.created_s
        start = Position(name, writer.stop, journal_created_s=created_s)
        try:
            with self._beside() as reader:
                for _ in reader.dumped(start, end, add):
                    pass
        except JournalMissingError:
            writer.flush()
            writer.is_left = True
            _log.warning("kept journals: %s has a hole at %s", self._kept.folder, start)
        return not writer.is_left


def _copy(packets: NDArray[np.uint8], room: NDArray[np.uint8], journal: str) -> None:
    copied = copy_events(packets, room)
    assert copied == len(room), f"{copied} bytes of {len(room)} in {journal}"


def _encrypted(journal: str, offset: int) -> UnsupportedEventError:
    return UnsupportedEventError(
        "the server does not send a part of its journal, so that it cannot be kept",
        at=(journal, offset),
        setting="source.keep_journals",
        expected="every event of the journal",
        got="none at this offset, as from a MariaDB that encrypts its journals",
        next_step="remove source.keep_journals, or turn encrypt_binlog off at the server",
    )
