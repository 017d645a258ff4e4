"""Interpret statements and prepare events for the rows around them: savepoints, XA (K8).

Rules:
- There is one way to read a transaction (K34). A whole one opens and ends in the same slices; a
  piece is the open one with a part of it, whose savepoints are carried from piece to piece.
- ROLLBACK TO undoes rows of its own transaction; `transaction/savepoints.py` finds which.
- XA COMMIT and XA ROLLBACK are transactions by themselves: an event or two, and no rows.
- Rows wait apart if their transaction ends with XA PREPARE. One of which only a part has come waits
  if it may end so, which it announces before its first row: MySQL by XA START, MariaDB by a flag of
  its GTID event. Its end shows whether it is prepared, or commits in one phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, Role, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events.gtid import FLAG_PREPARED_XA, gtid_texts
from cdc_pipeline.binlog.events.xa import parse_prepare
from cdc_pipeline.errors import TransactionError
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.evolution.statement_context import Decision
from cdc_pipeline.transaction.savepoints import Savepoints

TransactionKey = tuple[str, int]  # journal, and offset of the transaction's first event
Undone = dict[TransactionKey, NDArray[np.int64]]

_SAVEPOINTS = frozenset(
    {StatementKind.SAVEPOINT, StatementKind.ROLLBACK_TO_SAVEPOINT, StatementKind.RELEASE_SAVEPOINT}
)
_XA_ENDS = frozenset({StatementKind.XA_COMMIT, StatementKind.XA_ROLLBACK})
# A GTID event and a query: with more events, XA COMMIT is not a transaction by itself.
_XA_END_ORDINAL_MAX = 1
_NOTHING_UNDONE = np.empty((0, 2), np.int64)


class Ending(Enum):
    COMMITTED = auto()
    PREPARED = auto()  # its rows wait for XA COMMIT
    ROLLED_BACK = auto()
    ABANDONED = auto()  # a journal's proved end cut it off (K5)


_ENDINGS = {Role.ROLLBACK: Ending.ROLLED_BACK, Role.XA_PREPARE: Ending.PREPARED}


@dataclass(frozen=True, slots=True)
class DecidedStatement:
    piece: EventSlice
    row: int  # in the chunk
    decision: Decision

    @property
    def transaction(self) -> TransactionKey:
        return self.piece.chunk.journal, int(self.piece.chunk.events["tx_offset"][self.row])


@dataclass(frozen=True, slots=True)
class XaEnd:
    """XA COMMIT or XA ROLLBACK; its rows count from `tx_offset`, where it begins."""

    xid: str
    is_commit: bool
    journal: str
    tx_offset: int
    offset: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class XaPart:
    """A transaction of XA, or a part of one, whose rows wait. `tx_offset`, `offset`: its first
    event, and its last one here; `ending`: None if it goes on; `xid`: "" if it is not prepared;
    `undone`: ranges of its event ordinals that do not count.
    """

    journal: str
    tx_offset: int
    offset: int
    gtid: str
    ending: Ending | None
    xid: str
    commit_ts_us: int
    undone: NDArray[np.int64]

    @property
    def key(self) -> TransactionKey:
        return self.journal, self.tx_offset


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that comes in pieces; `is_xa`: it may end with XA PREPARE."""

    journal: str
    tx_offset: int
    gtid: str
    is_xa: bool = False
    savepoints: Savepoints = field(default_factory=Savepoints)

    @property
    def key(self) -> TransactionKey:
        return self.journal, self.tx_offset


@dataclass(frozen=True, slots=True)
class TransactionControl:
    """`undone`: ranges of event ordinals that do not count, by transaction (`Savepoints.undone`);
    `waiting`: transactions whose rows wait; `open`: of which the slices are a piece.
    """

    undone: Undone
    waiting: tuple[XaPart, ...]
    xa_ends: tuple[XaEnd, ...]
    open: OpenTransaction | None = None
    ending: Ending | None = None

    @property
    def open_undone(self) -> NDArray[np.int64]:
        opened = self.open
        return self.undone.get(opened.key, _NOTHING_UNDONE) if opened else _NOTHING_UNDONE


class ControlReader:
    """`open`: the transaction whose next piece comes; set back, the same slices may come again."""

    def __init__(self) -> None:
        self.open: OpenTransaction | None = None

    def read(
        self, unit: Sequence[EventSlice], stated: Sequence[DecidedStatement]
    ) -> TransactionControl:
        """Raises TransactionError: ROLLBACK TO a savepoint that was not set, XA COMMIT among other
        events, an XA transaction in pieces that did not announce itself; DamagedJournalError: a
        short prepare event.
        """
        opened = self._opened(unit[0])
        savepoints = {} if opened is None else {opened.key: deepcopy(opened.savepoints)}
        ends = []
        for one in stated:
            kind = one.decision.statement.kind
            if kind in _SAVEPOINTS:
                _apply(savepoints.setdefault(one.transaction, Savepoints()), one)
            elif kind in _XA_ENDS:
                ends.append(_xa_end(one))
            elif kind is StatementKind.XA_START and opened is not None:
                opened = replace(opened, is_xa=True)
        if opened is not None:
            opened = replace(opened, savepoints=savepoints[opened.key])
        ranges = {transaction: of.undone for transaction, of in savepoints.items()}
        undone = {key: of for key, of in ranges.items() if len(of)}
        ending = _ending(unit[0])
        self.open = opened if ending is None else None
        return TransactionControl(
            undone, _waiting(unit, undone, opened, ending), tuple(ends), opened, ending
        )

    def _opened(self, piece: EventSlice) -> OpenTransaction | None:
        if piece.kind is SliceKind.ABANDONED:
            return self.open
        if piece.kind not in (SliceKind.OPEN_PIECE, SliceKind.LAST_PIECE):
            return None
        first = piece.events[0]
        if self.open is not None and first["tx_ordinal"]:
            return self.open
        at = int(first["tx_offset"])
        gtid = gtid_texts(piece.chunk, piece.first, piece.first + 1).get(at, "")
        return OpenTransaction(piece.chunk.journal, at, gtid, is_xa=_is_prepared_by_flag(piece))


def _ending(piece: EventSlice) -> Ending | None:
    if piece.kind is SliceKind.ABANDONED:
        return Ending.ABANDONED
    if piece.kind is not SliceKind.LAST_PIECE:
        return None
    return _ENDINGS.get(Role(piece.events[-1]["role"]), Ending.COMMITTED)


def _waiting(
    unit: Sequence[EventSlice],
    undone: Undone,
    opened: OpenTransaction | None,
    ending: Ending | None,
) -> tuple[XaPart, ...]:
    if opened is not None:
        if ending is Ending.PREPARED and not opened.is_xa:
            raise _unannounced(opened, unit[0])
        if not opened.is_xa or ending in (Ending.ROLLED_BACK, Ending.ABANDONED):
            return ()
        return (_part(unit[0], unit[0].stop - 1, opened.key, opened.gtid, ending, undone),)
    parts = []
    for piece in unit:
        rows = np.flatnonzero(piece.events["role"] == Role.XA_PREPARE) + piece.first
        gtids = gtid_texts(piece.chunk, piece.first, piece.stop) if len(rows) else {}
        for row in rows.tolist():
            at = int(piece.chunk.events["tx_offset"][row])
            key, gtid = (piece.chunk.journal, at), gtids.get(at, "")
            parts.append(_part(piece, row, key, gtid, Ending.PREPARED, undone))
    return tuple(parts)


def _part(
    piece: EventSlice,
    row: int,
    key: TransactionKey,
    gtid: str,
    ending: Ending | None,
    undone: Undone,
) -> XaPart:
    event = piece.chunk.events[row]
    return XaPart(
        *key,
        offset=int(event["offset"]),
        gtid=gtid,
        ending=ending,
        xid=parse_prepare(piece.chunk, row).xid if ending is Ending.PREPARED else "",
        commit_ts_us=int(event["commit_ts_us"]),
        undone=undone.get(key, _NOTHING_UNDONE),
    )


def _unannounced(opened: OpenTransaction, piece: EventSlice) -> TransactionError:
    return TransactionError(
        "a transaction is prepared that did not announce it before its first row",
        at=(opened.journal, int(piece.events["offset"][-1])),
        expected="XA START, or MariaDB's GTID event with a flag, at its begin",
        got=f"neither, in the transaction at offset {opened.tx_offset}",
        next_step="compare the journal with the server's copy; or start the capture after this "
        "transaction, and take a snapshot of the tables that it changes",
    )


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
            at=(one.piece.chunk.journal, int(event["offset"])),
            expected="a SAVEPOINT of that name before it",
            got=one.decision.ddl.sql,
            next_step="start the capture after this transaction, and take a snapshot of the "
            "tables that it changes",
        )


def _xa_end(one: DecidedStatement) -> XaEnd:
    statement = one.decision.statement
    event = one.piece.chunk.events[one.row]
    journal, tx_offset = one.transaction
    if event["tx_ordinal"] > _XA_END_ORDINAL_MAX:
        raise TransactionError(
            f"{statement.verb} is inside a transaction",
            at=(journal, int(event["offset"])),
            expected=f"{statement.verb} as a separate transaction",
            got=one.decision.ddl.sql,
            next_step="start the capture after this transaction, and take a snapshot of the "
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
    """Whether the piece begins with a MariaDB GTID event that announces XA PREPARE."""
    first = piece.events[0]
    if first["event_type"] != EventType.MARIADB_GTID:
        return False
    return bool(piece.chunk.body(piece.first)[12] & FLAG_PREPARED_XA)
