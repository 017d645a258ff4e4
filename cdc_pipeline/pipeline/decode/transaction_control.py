"""Interpret statements and prepare events for the rows around them: savepoints, XA (K8).

Rules:
- ROLLBACK TO undoes rows of its own transaction; `transaction/savepoints.py` finds which. A
  transaction in pieces carries its savepoints from piece to piece.
- XA COMMIT and XA ROLLBACK are transactions by themselves: an event or two, and no rows.
- A transaction that may end with XA PREPARE announces that before its first row: MySQL by XA START,
  MariaDB by a flag of its GTID event. Its end shows whether it is prepared, or commits in one
  phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events.gtid import FLAG_PREPARED_XA
from cdc_pipeline.errors import TransactionError
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.evolution.changes import Decision
from cdc_pipeline.transaction.savepoints import Savepoints

Undone = dict[tuple[str, int], NDArray[np.int64]]

_SAVEPOINTS = frozenset(
    {StatementKind.SAVEPOINT, StatementKind.ROLLBACK_TO_SAVEPOINT, StatementKind.RELEASE_SAVEPOINT}
)
_XA_ENDS = frozenset({StatementKind.XA_COMMIT, StatementKind.XA_ROLLBACK})
# A GTID event and a query: with more events, XA COMMIT is not a transaction by itself.
_XA_END_ORDINAL_MAX = 1


@dataclass(frozen=True, slots=True)
class DecidedStatement:
    """A statement of the log, its place, and the decision on it."""

    piece: EventSlice
    row: int  # in the chunk
    decision: Decision

    @property
    def transaction(self) -> tuple[str, int]:
        """Return the journal, and the offset of the transaction's first event."""
        return self.piece.chunk.journal, int(self.piece.chunk.events["tx_offset"][self.row])


@dataclass(frozen=True, slots=True)
class XaEnd:
    """XA COMMIT or XA ROLLBACK.

    Attributes:
        tx_offset: its first event: the place of the rows that it makes effective.
        offset: of the statement.
    """

    xid: str
    is_commit: bool
    journal: str
    tx_offset: int
    offset: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class TransactionControl:
    """Effects of the statements in a run of slices on its rows.

    Attributes:
        undone: ranges of event ordinals that do not count, by transaction (see
            `Savepoints.undone`).
        xa_ends: in the order of the log.
    """

    undone: Undone
    xa_ends: tuple[XaEnd, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that comes in pieces.

    Attributes:
        tx_offset: its first event.
        gtid: "" without GTIDs.
        is_applied: it has rows of a captured table so far.
    """

    journal: str
    tx_offset: int
    gtid: str
    is_applied: bool = False


class ControlReader:
    """Reader of transaction control in consecutive slices."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Return to the state in which no transaction is open."""
        self._open = Savepoints()
        self._open_is_xa = False

    def mark(self) -> tuple[Savepoints, bool]:
        """Return a mark for `rewind`."""
        return deepcopy(self._open), self._open_is_xa

    def rewind(self, mark: tuple[Savepoints, bool]) -> None:
        """Forget what was read since `mark`: the same piece comes again."""
        self._open, self._open_is_xa = mark

    def read(self, stated: Sequence[DecidedStatement]) -> TransactionControl:
        """Read the control statements of whole transactions.

        Raises:
            TransactionError: ROLLBACK TO a savepoint that was not set, XA COMMIT among other
                events.
        """
        savepoints: dict[tuple[str, int], Savepoints] = {}
        ends = []
        for one in stated:
            kind = one.decision.statement.kind
            if kind in _SAVEPOINTS:
                _apply(savepoints.setdefault(one.transaction, Savepoints()), one)
            elif kind in _XA_ENDS:
                ends.append(_xa_end(one))
        undone = {transaction: of.undone for transaction, of in savepoints.items()}
        return TransactionControl(
            {key: ranges for key, ranges in undone.items() if len(ranges)}, tuple(ends)
        )

    def read_piece(self, piece: EventSlice, stated: Sequence[DecidedStatement]) -> bool:
        """Read a piece of the open transaction; return whether it is an XA transaction.

        Raises:
            TransactionError: see `read`.
        """
        if piece.kind in (SliceKind.OPEN_PIECE, SliceKind.LAST_PIECE) and _is_prepared_by_flag(
            piece
        ):
            self._open_is_xa = True
        for one in stated:
            kind = one.decision.statement.kind
            if kind in _SAVEPOINTS:
                _apply(self._open, one)
            elif kind in _XA_ENDS:
                _xa_end(one)
            elif kind is StatementKind.XA_START:
                self._open_is_xa = True
        return self._open_is_xa

    @property
    def open_undone(self) -> NDArray[np.int64]:
        """Return what was undone so far of the transaction in pieces (see `Savepoints.undone`)."""
        return self._open.undone


def _apply(savepoints: Savepoints, one: DecidedStatement) -> None:
    statement = one.decision.statement
    event = one.piece.chunk.events[one.row]
    ordinal = int(event["tx_ordinal"])
    if statement.kind is StatementKind.SAVEPOINT:
        savepoints.set(statement.name, ordinal)
    elif statement.kind is StatementKind.RELEASE_SAVEPOINT:
        savepoints.release(statement.name)
    elif not savepoints.rollback_to(statement.name, ordinal):
        raise TransactionError(
            f"ROLLBACK TO names a savepoint that its transaction has not set: {statement.name}",
            journal=one.piece.chunk.journal,
            offset=int(event["offset"]),
            expected="a SAVEPOINT of that name before it",
            got=one.decision.ddl.sql,
            next_step="start the capture after this transaction, and load the "
            "tables that it changes",
        )


def _xa_end(one: DecidedStatement) -> XaEnd:
    statement = one.decision.statement
    event = one.piece.chunk.events[one.row]
    journal, tx_offset = one.transaction
    if event["tx_ordinal"] > _XA_END_ORDINAL_MAX:
        raise TransactionError(
            f"{statement.verb} is inside a transaction",
            journal=journal,
            offset=int(event["offset"]),
            expected=f"{statement.verb} as a separate transaction",
            got=one.decision.ddl.sql,
            next_step="start the capture after this transaction, and load the "
            "tables that it changes",
        )
    return XaEnd(
        xid=statement.name,
        is_commit=statement.kind is StatementKind.XA_COMMIT,
        journal=journal,
        tx_offset=tx_offset,
        offset=int(event["offset"]),
        commit_ts_us=int(event["commit_ts_us"]),
    )


def _is_prepared_by_flag(piece: EventSlice) -> bool:
    """Return whether the piece begins with a MariaDB GTID event that announces XA PREPARE."""
    first = piece.events[0]
    if first["event_type"] != EventType.MARIADB_GTID:
        return False
    return bool(piece.chunk.body(piece.first)[12] & FLAG_PREPARED_XA)
