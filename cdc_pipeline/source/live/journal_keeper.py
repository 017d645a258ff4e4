"""Keep the events that a dump has delivered, as the bytes of the server's journals.

Rules:
- Events are taken when framing has verified them, before anything is unpacked or filtered, and up
  to the end of the run: what lies behind it may still be lost with the server.
- What the server makes up for a dump (heartbeats, events of position 0 or marked so) is in no file.
- No holes: what a run does not receive and what is not kept yet is fetched from the server by
  offset: the beginning of its first journal, transactions that a dump by GTID set omits, journals
  that were left open or omitted. What the server has purged is a hole: that journal stays open.
- A journal ends with ROTATE or STOP, or where the server goes on to the next.
- Parts become durable when they are large enough, and when a dump ends. A run that is killed loses
  the last one; the next run fetches it.
- In a dump by GTID set format descriptions are not those of the files: the server takes its own
  start out of them. So they are fetched by offset too.
- After a reset of the server's log, what is kept is another log: some of it is not on the server,
  which has older journals, or was created at another time, or after a later one, or has another
  name. What the server has purged since the reset cannot be compared.
- Where nothing can be written, the run goes on without, and fails at its end; the next run fetches
  what is missing.
- A format description is kept as it is sent, without the flag of a journal that is in use. A server
  takes that off too when it closes the journal; after a crash MariaDB leaves it in the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import MAGIC, EventType
from cdc_pipeline.binlog.framing.packets_kernel import copy_events
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import JournalMissingError, SinkError, UnsupportedEventError
from cdc_pipeline.position.position import FIRST_OFFSET, Position
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals, place_named

PART_BYTES: Final = 16 << 20
_CLOSING: Final = (EventType.ROTATE, EventType.STOP)
_log = logging.getLogger(__name__)

# Receives each chunk with the packets that it came in.
Tee = Callable[[Chunk, NDArray[np.uint8]], None]


@dataclass(slots=True)
class _Writer:
    """One journal's. `is_left`: sealed already, or with a hole."""

    kept: KeptJournals
    journal: KeptJournal
    buffer: NDArray[np.uint8]
    is_left: bool = False
    is_closed: bool = False
    size_bytes: int = 0  # of what is in `buffer`

    @property
    def stop(self) -> int:
        return max(FIRST_OFFSET, self.journal.size_bytes + self.size_bytes)

    def add(self, offset: int, content: NDArray[np.uint8]) -> None:
        again = min(len(content), self.stop - offset)
        if again > 0:
            self.flush()
            self.kept.compare(self.journal, offset, content[:again].tobytes())
            content = content[again:]
        if not len(content):
            return
        if not self.journal.size_bytes and not self.size_bytes:
            self._put(np.frombuffer(MAGIC, np.uint8))
        self._put(content)
        if self.size_bytes >= PART_BYTES:
            self.flush()

    def _put(self, content: NDArray[np.uint8]) -> None:
        if self.size_bytes + len(content) > len(self.buffer):
            self.flush()
        if len(content) > len(self.buffer):
            self.journal = self.kept.append(self.journal, memoryview(content))  # type: ignore[arg-type]
            return
        self.buffer[self.size_bytes : self.size_bytes + len(content)] = content
        self.size_bytes += len(content)

    def flush(self) -> None:
        if self.size_bytes:
            content = memoryview(self.buffer)[: self.size_bytes]  # type: ignore[arg-type]
            self.journal = self.kept.append(self.journal, content)
            self.size_bytes = 0


class JournalKeeper:
    """Args:
    fetch: read from one position to another by a dump of its own, into a `Tee`.
    listed: the journals that the server has.
    created_s: when the server created a journal.
    reset: the folder of the server's next log, after a reset.
    """

    def __init__(
        self,
        kept: KeptJournals,
        *,
        fetch: Callable[[Position, Position, Tee], None],
        listed: Callable[[], Sequence[JournalInfo]],
        created_s: Callable[[str], int],
        reset: Callable[[], KeptJournals],
    ) -> None:
        self._kept = kept
        self._fetch = fetch
        self._listed = listed
        self._created_s = created_s
        self.failure: SinkError | None = None  # why nothing more of the run is kept
        self._reset = reset
        self._writer: _Writer | None = None
        # Memory that is used again is in the cache, and needs no new pages.
        self._buffer = np.empty(PART_BYTES, np.uint8)
        self._events = np.empty(1 << 20, np.uint8)

    def take(self, chunk: Chunk, packets: NDArray[np.uint8]) -> None:
        """Keep the events of a chunk. Raises SourceIdentityError: other bytes are kept;
        UnsupportedEventError: MariaDB encrypts its journals; and as `fetch`.
        """
        with self._failing_later():
            self._take(chunk, packets)

    def _take(self, chunk: Chunk, packets: NDArray[np.uint8]) -> None:
        if self.failure is not None:
            return
        writer, is_head = self._writer, False
        if writer is None or writer.journal.name != chunk.journal:
            writer, is_head = self._turn_to(chunk), True
        self._add(writer, chunk, packets, omit_format=is_head)

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
                kept = self._kept.journals()
            else:
                kept = self._kept_of_log(name)
            self._complete(kept, name)

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
        events = chunk.events[chunk.events["parent"] < 0]
        size_bytes = int((events["next_offset"] - events["offset"]).sum())
        # Taken out, because what is missing may be fetched meanwhile.
        memory, self._events = self._events, np.empty(0, np.uint8)
        if size_bytes > len(memory):
            memory = np.empty(size_bytes, np.uint8)
        data = memory[:size_bytes]
        copied = copy_events(packets, data)
        assert copied == len(data), f"{copied} bytes of {len(data)} in {chunk.journal}"
        at = 0
        if omit_format and events["offset"][0] == FIRST_OFFSET:
            at = int(events["next_offset"][0]) - FIRST_OFFSET
            events = events[1:]
        offsets, ends = events["offset"], events["next_offset"]
        firsts = [0, *(np.flatnonzero(offsets[1:] != ends[:-1]) + 1).tolist()]
        if not len(events):
            return
        for first, last in zip(firsts, [*firsts[1:], len(events)], strict=True):
            offset = int(offsets[first])
            if offset > writer.stop:
                if not self._fill(writer, Position(chunk.journal, offset)):
                    return
                if offset > writer.stop:
                    raise _encrypted(chunk.journal, writer.stop)
            size = int(ends[last - 1]) - offset
            writer.add(offset, data[at : at + size])
            at += size
        self._events = memory
        writer.is_closed = int(events["event_type"][-1]) in _CLOSING

    def _turn_to(self, chunk: Chunk) -> _Writer:
        created_s, name = chunk.journal_format.created_s, chunk.journal
        if self._writer is None:
            listed = self._kept_of_log(name, created_s)
        else:
            self._finish(self._writer, name)
            listed = self._kept.journals()
        self._complete(listed, name)
        same = [
            journal
            for journal in listed
            if journal.name == name and (journal.is_sealed or journal.created_s == created_s)
        ]
        journal = same[0] if same else KeptJournal(name, 0, False, (), created_s)
        self._writer = _Writer(self._kept, journal, self._buffer, is_left=journal.is_sealed)
        return self._writer

    def _kept_of_log(self, name: str, created_s: int = 0) -> list[KeptJournal]:
        """What is kept when a run begins to read journal `name`."""
        self._kept.tidy()
        kept = self._kept.journals()
        if kept and self._was_reset(kept, name, created_s):
            self._kept, kept = self._reset(), []
        return kept

    def _was_reset(self, kept: list[KeptJournal], name: str, created_s: int) -> bool:
        listed = [info.journal for info in self._listed()]
        oldest, base = journal_number(listed[0]), name.rpartition(".")[0]
        if any(
            journal.name.rpartition(".")[0] != base
            or (journal.number > oldest and journal.name not in listed)
            for journal in kept
        ):
            return True
        created_s = created_s or self._created_s(name)
        if common := [journal for journal in kept if journal.name in listed]:
            newest = common[-1]
            theirs_s = created_s if newest.name == name else self._created_s(newest.name)
            # A journal has the time at which the statement that filled the one before began: of one
            # log, too, it may be before the creation of an older journal.
            return self._kept.created_s_of(newest) != theirs_s
        before = [journal for journal in kept if journal.number < journal_number(name)]
        return bool(before) and self._kept.created_s_of(before[-1]) > created_s

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
        there = {journal_number(info.journal) for info in self._listed()}
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
            self._fetch(start, end, add)
        except JournalMissingError:
            writer.is_left = True
            _log.warning("kept journals: %s has a hole at %s", self._kept.folder, start)
        return not writer.is_left


def _encrypted(journal: str, offset: int) -> UnsupportedEventError:
    return UnsupportedEventError(
        "the server does not send a part of its journal, so that it cannot be kept",
        journal=journal,
        offset=offset,
        setting="source.keep_journals",
        expected="every event of the journal",
        got="none at this offset, as from a MariaDB that encrypts its journals",
        next_step="remove source.keep_journals, or turn encrypt_binlog off at the server",
    )
