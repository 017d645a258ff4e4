"""The transaction pass: assign every event to its transaction (SPEC T1).

Rules:
- A transaction begins at its GTID event, or at BEGIN if there is none. A BEGIN after the GTID event
  belongs to the same transaction and has role OTHER. MariaDB writes no BEGIN: its GTID event
  without the standalone flag is one.
- It ends at XID, COMMIT, ROLLBACK or XA PREPARE. A statement in place of a transaction's body
  (after the GTID event without BEGIN, after MariaDB's standalone GTID event, or alone in a log
  without GTIDs) is a transaction by itself and ends it. Any other statement (SAVEPOINT, the CREATE
  TABLE of CREATE ... SELECT, XA START) does not end it.
- A group that ends with XA PREPARE is prepared, not committed: a later XA COMMIT or XA ROLLBACK, a
  transaction by itself and possibly in a later journal, decides (K8: nothing uncommitted is
  applied). XA COMMIT ... ONE PHASE is written as a prepare with a flag: a commit.
- A two-phase ALTER (MariaDB, binlog_alter_two_phase) is two transactions with the same text. Only
  COMMIT ALTER changes the table, so it is the statement. START ALTER and ROLLBACK ALTER change
  nothing and end their transaction like a commit without rows; their text is ignored.
- `commit_ts_us` of all its events is the commit timestamp of the GTID event if it has one (MySQL
  8.0 and later), otherwise the header timestamp of the transaction's first event: MariaDB's GTID
  event, BEGIN, or the statement.
- A transaction that is open when its journal ends (ROTATE, STOP, or the next journal's format
  description) was never committed and its events are dropped (K5). It is counted in `abandoned` and
  marked, so that no drop is silent.
- Rows, XID or COMMIT outside a transaction, or a GTID event or BEGIN inside one, mean that the log
  is incomplete, and the pass stops.

Each pass keeps state between chunks; a second pass over the same chunks writes the same values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, Role
from cdc_pipeline.binlog.event_types import EventType, event_name
from cdc_pipeline.binlog.transactions import grouping_kernel as kernel
from cdc_pipeline.errors import CdcError, DamagedJournalError, TransactionError

_LOST = (
    "events before this one are missing: read the journal from an earlier position, or "
    "check it for damage"
)
_CONTRADICTIONS: Final[dict[int, tuple[str, str, str]]] = {
    kernel.ROWS_OUTSIDE: (
        "a rows event is outside a transaction",
        "a GTID event or BEGIN before it",
        _LOST,
    ),
    kernel.END_OUTSIDE: (
        "a transaction ends without having begun",
        "a GTID event or BEGIN before it",
        _LOST,
    ),
    kernel.GTID_INSIDE: (
        "a transaction begins before the previous one has ended",
        "XID, COMMIT, ROLLBACK or XA PREPARE before the next GTID event",
        "the end of the transaction is missing in the journal: compare it with the "
        "server's own copy",
    ),
    kernel.BEGIN_INSIDE: (
        "BEGIN is inside a transaction",
        "XID, COMMIT, ROLLBACK or XA PREPARE before the next BEGIN",
        "the end of the transaction is missing in the journal: compare it with the "
        "server's own copy",
    ),
    kernel.MARK_INSIDE: (
        "a list of GTIDs is inside a transaction",
        "lists of GTIDs only at the head of a journal",
        "the journal is damaged: compare it with the server's own copy",
    ),
}


@dataclass(frozen=True, slots=True)
class TransactionBounds:
    """Where the transactions of one chunk begin and end.

    Attributes:
        events: the chunk's events that were written.
        marks: uint8 (n,): MARK_... of `grouping_kernel` for each event.
        inside: uint8 (n,): 1 if a transaction is open after the event.
        ends: int64: rows of the last events of ended transactions, including single statements.
        statements: int64: rows with role STATEMENT, inside a transaction or not.
        boundaries: int64: every k for which events[:k] does not end inside a transaction.
        begins_inside: True if a transaction of an earlier chunk is open before the first event.
        error: the contradiction at the event after them, if any: they are all otherwise.
    """

    events: np.ndarray
    marks: NDArray[np.uint8]
    inside: NDArray[np.uint8]
    ends: NDArray[np.int64]
    statements: NDArray[np.int64]
    boundaries: NDArray[np.int64]
    begins_inside: bool
    error: CdcError | None = None

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.flatnonzero((self.events["tx_offset"] >= 0) & (self.events["tx_ordinal"] == 0))


class TransactionPass:
    """Fills role, tx_offset, tx_ordinal and commit_ts_us of the events of consecutive chunks."""

    def __init__(self) -> None:
        self._state: NDArray[np.int64] = np.zeros(kernel.STATE_SIZE, dtype=np.int64)
        self._journal = ""

    @property
    def is_open(self) -> bool:
        return bool(self._state[kernel.OPEN])

    @property
    def open_offset(self) -> int:
        """Offset of the first event of the open transaction; -1 outside one."""
        return int(self._state[kernel.TX_OFFSET]) if self.is_open else -1

    @property
    def is_body_open(self) -> bool:
        """Whether the open transaction needs XID, COMMIT or ROLLBACK to end;
        False if it may be one statement.
        """
        return self.is_open and bool(self._state[kernel.BODY])

    @property
    def transactions(self) -> int:
        """Transactions that ended by XID, COMMIT or as a single statement."""
        return int(self._state[kernel.TRANSACTIONS])

    @property
    def rolled_back(self) -> int:
        """Transactions that ended by ROLLBACK."""
        return int(self._state[kernel.ROLLED_BACK])

    @property
    def prepared(self) -> int:
        """Transactions that ended by XA PREPARE (K8)."""
        return int(self._state[kernel.PREPARED])

    @property
    def abandoned(self) -> int:
        """Transactions whose journal ended before they did (K5)."""
        return int(self._state[kernel.ABANDONED])

    def apply(self, chunk: Chunk) -> TransactionBounds:
        """Write the transaction fields of `chunk.events` in place. Raises TransactionError: an
        event contradicts the protocol; DamagedJournalError: a query, GTID or XA PREPARE event is
        shorter than its own fields. In each case the events before it are written.
        """
        bounds = self.step(chunk)
        if bounds.error is not None:
            raise bounds.error
        return bounds

    def step(self, chunk: Chunk) -> TransactionBounds:
        """As `apply`, with a contradiction instead of an error, so that the events before it can
        be delivered.
        """
        count = len(chunk.events)
        marks = np.zeros(count, dtype=np.uint8)
        inside = np.zeros(count, dtype=np.uint8)
        begins_inside = self.is_open
        if begins_inside and count and chunk.journal != self._journal:
            first_type = int(chunk.events["event_type"][0])
            if first_type != EventType.FORMAT_DESCRIPTION:
                error = TransactionError(
                    "the journal changes inside a transaction",
                    at=(chunk.journal, int(chunk.events["offset"][0])),
                    expected=f"the end of the transaction that began in {self._journal} at offset "
                    f"{self.open_offset}, or a format description event",
                    got=event_name(first_type),
                    next_step=_LOST,
                )
                return _bounds(chunk.events[:0], marks, inside, True, error)
        self._journal = chunk.journal
        rows, code = kernel.group_events(
            chunk.data,
            chunk.events,
            chunk.journal_format.checksum_bytes,
            chunk.journal_format.query_post_header_bytes,
            self._state,
            marks,
            inside,
        )
        failure = None if code == kernel.OK else self._error(chunk, rows, code)
        return _bounds(chunk.events[:rows], marks, inside, begins_inside, failure)

    def _error(self, chunk: Chunk, row: int, code: int) -> CdcError:
        offset = int(chunk.events["offset"][row])
        event_type = int(chunk.events["event_type"][row])
        if code == kernel.SHORT_BODY:
            return DamagedJournalError(
                "an event is shorter than its own fields, or has impossible values",
                at=(chunk.journal, offset),
                got=f"{event_name(event_type)} of {int(chunk.events['event_length'][row])} bytes",
            )
        what, expected, next_step = _CONTRADICTIONS[code]
        got = event_name(event_type)
        if self.is_open:
            got += f" inside the transaction that began at offset {self.open_offset}"
        return TransactionError(
            what,
            at=(chunk.journal, offset),
            expected=expected,
            got=got,
            next_step=next_step,
        )


def _bounds(
    events: np.ndarray,
    marks: NDArray[np.uint8],
    inside: NDArray[np.uint8],
    begins_inside: bool,
    error: CdcError | None,
) -> TransactionBounds:
    marks, inside = marks[: len(events)], inside[: len(events)]
    return TransactionBounds(
        events=events,
        marks=marks,
        inside=inside,
        ends=((marks != kernel.MARK_NONE) & (marks != kernel.MARK_ABANDON)).nonzero()[0],
        statements=(events["role"] == Role.STATEMENT).nonzero()[0],
        boundaries=(inside == 0).nonzero()[0] + 1,
        begins_inside=begins_inside,
        error=error,
    )
