"""Prove the end of every journal that a run passes (K5: a lost end would be lost silently), over
the chunks of any source.

Rules:
- A journal that ends with ROTATE or STOP is whole. Any other is whole only if the GTID set at the
  head of the next one names the same transactions: none that was not read (or executed before the
  start), and each that was read and has ended. An unfinished transaction at a proved end was never
  committed.
- Without GTIDs nothing can be proved: such an end stops the run, unless the configuration accepts
  the journal by name; the use of an acceptance is reported.
- A journal whose number is left out was removed by hand, or its line from the server's index, also
  if the journal before it ends with ROTATE. Only GTIDs prove that nothing was in it.
- An end that GTIDs disprove is a known loss; it cannot be accepted.
- Nothing of the next journal is delivered before the end of the one before it is proved.
- A dump by GTID set leaves out the transactions of the start, and may begin in any journal: what
  was executed before the start need not be in the next journal's set.

One journal's GTIDs are kept as a set; nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import CLOSING_TYPES, GTID_TYPES, EventType
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import DamagedJournalError, JournalMissingError
from cdc_pipeline.position.gtid.sets import GtidSet, MariadbGtidSet, executed_set, parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.position.start.same_log import begin_again

_HEAD: Final = (
    EventType.FORMAT_DESCRIPTION,
    EventType.MARIADB_START_ENCRYPTION,
    EventType.MARIADB_BINLOG_CHECKPOINT,
)
_FOLD_NUMBERS: Final = 1 << 16  # transaction numbers that are kept before they are added to the set


@dataclass(frozen=True, slots=True)
class AcceptedEnd:
    """An unproved end that the configuration accepts: where the journal ends, or where the
    transaction that it leaves unfinished begins.
    """

    journal: str
    offset: int
    following: str

    @property
    def text(self) -> str:
        return (
            f"{self.journal} ends at {self.offset} without ROTATE or STOP and without GTIDs "
            "that could prove it; accepted by the configuration; reading continues with "
            f"{self.following}"
        )


class JournalEndProof:
    """Watches the chunks of one capture.

    Args:
        open_offset: after a chunk was delivered, the offset of the transaction that is open after
            it; -1 if none is.
        ends_closed: whether the event before a position, the end of a journal of which nothing is
            read, is ROTATE or STOP; called only if there are no GTIDs.
        on_accepted: called before the next journal is delivered.
    """

    def __init__(
        self,
        start: Position,
        *,
        open_offset: Callable[[], int],
        ends_closed: Callable[[Position], bool],
        accepted: Collection[str] = (),
        on_accepted: Callable[[AcceptedEnd], None] = lambda _end: None,
        pipeline_name: str = "",
    ) -> None:
        self._start = start
        self._open_offset = open_offset
        self._ends_closed = ends_closed
        self._accepted = accepted
        self._on_accepted = on_accepted
        self._pipeline_name = pipeline_name
        self._journal = start.journal
        self._offset = start.offset
        self._last_type = -1  # nothing of the journal was read
        self._is_anonymous = False
        self._executed = _Executed(start.gtid_set)

    def over(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield the same chunks. Raises DamagedJournalError: a journal's end is not proved;
        JournalMissingError: one was left out; everything before the next journal was delivered.
        """
        waiting: list[Chunk] = []
        for chunk in chunks:
            if waiting and chunk.journal != waiting[0].journal:  # it ended within its head
                self._prove(waiting[0], None)
                yield from self._deliver(waiting)
                waiting = []
            if waiting or (
                self._begins_journal(chunk)
                and (self._last_type not in CLOSING_TYPES or self._missing_before(chunk))
            ):
                waiting.append(chunk)
                is_known, text = _head_set(chunk)
                if is_known:
                    self._prove(waiting[0], text)
                    yield from self._deliver(waiting)
                    waiting = []
            else:
                yield from self._deliver([chunk])
        if waiting:
            self._prove(waiting[0], None)
            yield from self._deliver(waiting)

    def _begins_journal(self, chunk: Chunk) -> bool:
        # A start by GTID set may lie in the middle of a journal that the position does not name.
        first = int(chunk.events["event_type"][0]) if len(chunk.events) else -1
        return chunk.journal != self._journal and (
            self._last_type >= 0 or first == EventType.FORMAT_DESCRIPTION
        )

    def _missing_before(self, chunk: Chunk) -> str:
        base, _, digits = self._journal.rpartition(".")
        number = journal_number(self._journal) + 1
        if chunk.journal.rpartition(".")[0] != base or journal_number(chunk.journal) <= number:
            return ""
        return f"{base}.{number:0{len(digits)}d}"

    def _deliver(self, chunks: list[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            yield chunk
            self._passed(chunk)

    def _passed(self, chunk: Chunk) -> None:
        """Called after `chunk` was delivered, hence valid."""
        events = chunk.events
        if not len(events):
            return
        if chunk.journal != self._journal:
            self._journal = chunk.journal
            self._is_anonymous = False
            self._executed.next_journal(is_mariadb=chunk.journal_format.is_mariadb)
        types = events["event_type"]
        self._executed.add(chunk)
        self._is_anonymous = self._is_anonymous or bool(np.any(types == EventType.ANONYMOUS_GTID))
        self._last_type = int(types[-1])
        self._offset = int(events["next_offset"][-1])

    def _prove(self, following: Chunk, next_set: str | None) -> None:
        open_offset = self._open_offset()
        offset = open_offset if open_offset >= 0 else self._offset
        missing = unknown = ""
        is_known = next_set is not None and not self._is_anonymous
        if next_set is not None and is_known:
            missing, unknown, is_known = self._executed.compare(
                next_set,
                is_mariadb=following.journal_format.is_mariadb,
                last_is_open=open_offset >= 0,
            )
            if is_known and not missing and not unknown:
                return
        if left_out := self._missing_before(following):
            raise JournalMissingError(
                f"a journal is left out: {following.journal} follows {self._journal}",
                at=(left_out, None),
                expected=f"{left_out} after {self._journal}, or GTIDs that prove that nothing "
                "was in it",
                got=f"transactions before {following.journal} that were not read: {missing}"
                if missing
                else "no GTIDs",
                next_step="put the journal back, and its name into the server's index file "
                "(restart the server then); if it is lost, the lake cannot follow this log: "
                f"{begin_again(self._pipeline_name)}",
            )
        if self._last_type < 0 and self._ends_closed(self._start):
            return
        if next_set is not None and is_known:
            raise self._disproved(
                following.journal, offset, missing=missing, unknown=unknown, next_set=next_set
            )
        if self._journal in self._accepted:
            self._on_accepted(AcceptedEnd(self._journal, offset, following.journal))
            return
        raise DamagedJournalError(
            "the journal ends without ROTATE or STOP, and has no GTIDs that could prove "
            "that this is its end",
            at=(self._journal, offset),
            expected="ROTATE or STOP at its end",
            got=f"{following.journal} follows",
            setting="accept.unproved_journal_ends",
            next_step="compare the last transactions with the server's tables; if none is "
            f"missing, name {self._journal} in accept.unproved_journal_ends; "
            "otherwise take new snapshots of the tables after it",
        )

    def _disproved(
        self, following: str, offset: int, *, missing: str, unknown: str, next_set: str
    ) -> DamagedJournalError:
        got = (
            next_set
            + (f"; not read: {missing}" if missing else "")
            + (f"; unknown to it: {unknown}" if unknown else "")
        )
        return DamagedJournalError(
            f"the journal ends without ROTATE or STOP, and {following} does not "
            "continue where it ends",
            at=(self._journal, offset),
            expected=f"{following} to begin after the transactions that were read",
            got=got,
            next_step="fetch the complete journal from its server again; if the server lost "
            "its end, take new snapshots of the tables after it",
        )


class _Executed:
    """The transactions executed before the journal that is read, and those read in it.

    MariaDB's are kept by server: numbers of one domain grow, but a list of GTIDs names the last
    of each server.
    """

    def __init__(self, before: str) -> None:
        self._before = before
        self._read: list[dict[str, NDArray[np.int64]]] = []
        self._count = 0
        self._latest: dict[str, NDArray[np.int64]] = {}
        # Set of the journal's transactions except those in `_read` and `_latest`.
        self._folded: GtidSet | None = None
        self._base: GtidSet | None = None
        self._is_mariadb = False

    @property
    def _flavor(self) -> Flavor:
        return "mariadb" if self._is_mariadb else "mysql"

    def add(self, chunk: Chunk) -> None:
        self._is_mariadb = chunk.journal_format.is_mariadb
        is_known, text = _head_set(chunk)
        if is_known and text:
            self._base = self._based().union(self._state(text))
        rows = np.flatnonzero(np.isin(chunk.events["event_type"], GTID_TYPES))
        if not len(rows):
            return
        numbers = gtid.executed(chunk, 0, int(rows[-1]) + 1)
        latest = gtid.executed(chunk, int(rows[-1]), int(rows[-1]) + 1)
        for key in latest:
            numbers[key] = numbers[key][:-1]
        self._read += self._latest, numbers
        self._count += len(rows)
        self._latest = latest
        if self._count > _FOLD_NUMBERS:
            self._fold()

    def next_journal(self, *, is_mariadb: bool) -> None:
        self._is_mariadb = is_mariadb
        self._fold()
        self._base = self._based().union(self._with(self._latest))
        self._folded = None
        self._latest = {}

    def compare(
        self, next_set: str, *, is_mariadb: bool, last_is_open: bool
    ) -> tuple[str, str, bool]:
        """Returns (transactions that the next journal's head names and that were not read, those
        read that it does not know, whether there are GTIDs at all).
        """
        self._is_mariadb = is_mariadb
        self._fold()
        read = self._with() if last_is_open else self._with(self._latest)
        theirs = self._state(next_set)
        base = self._based()
        if isinstance(base, MariadbGtidSet):
            # As a position: a number of a domain covers all before it, of any server.
            base = base.highest()
        missing = theirs.subtract(read).subtract(base)
        unknown = read.subtract(theirs)
        is_known = is_mariadb or bool(theirs) or bool(read) or bool(base)
        return str(missing), str(unknown), is_known

    def _based(self) -> GtidSet:
        if self._base is None:
            self._base = self._state(self._before)
        return self._base

    def _state(self, text: str) -> GtidSet:
        parsed = parse_gtid_set(text, self._flavor)
        return parsed.by_server() if isinstance(parsed, MariadbGtidSet) else parsed

    def _fold(self) -> None:
        self._folded = self._with(*self._read)
        self._read, self._count = [], 0

    def _with(self, *numbers: dict[str, NDArray[np.int64]]) -> GtidSet:
        folded = self._state("") if self._folded is None else self._folded
        return executed_set(*numbers, flavor=self._flavor, after=folded)


def _head_set(chunk: Chunk) -> tuple[bool, str | None]:
    """(whether the head of the chunk's journal is known, its set)."""
    text = gtid.listed_set(chunk)
    has_more = ~np.isin(chunk.events["event_type"], _HEAD)
    return text is not None or bool(np.any(has_more)), text
