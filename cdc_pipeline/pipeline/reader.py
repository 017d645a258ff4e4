"""The reading half of a capture: source -> transaction buffer -> store, in a thread of its own.

Rules:
- The reader stops at the end that the plan fixed, or after the planned number of transactions, which is a transaction's
  end.
- An error is not lost and not early: what was read before it is in the store first, then the store's input ends, and
  the drain raises the error when it has applied what came before.
- After each list that is in the store, `on_joint` is told ``put``, in the reader's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.errors import StoreClosedError
from cdc_pipeline.pipeline.planning import ResolvedRun
from cdc_pipeline.pipeline.statements import StatementRules
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.store.contract import EventStore
from cdc_pipeline.transaction.buffer import DroppedTransaction, TransactionBuffer


class _EnoughTransactions(Exception):
    """The bound's number of transactions is in the store."""


class Reader(threading.Thread):
    """Reads one run's part of the log into the store.

    Attributes:
        error: what ended the reading early; None while it runs and after a full read.
        reached_end: everything up to the planned end was read and put.
    """

    def __init__(
        self,
        *,
        run: ResolvedRun,
        source: Source,
        store: EventStore,
        rules: StatementRules,
        slice_events_max: int,
        on_joint: Callable[[str], None] = lambda _joint: None,
    ) -> None:
        super().__init__(name=f"cdc-reader-{run.plan.source}", daemon=True)
        self.error: BaseException | None = None
        self.reached_end = False
        self._run = run
        self._source = source
        self._store = store
        self._on_joint = on_joint
        self._transactions_left = run.transactions_max
        self._buffer = TransactionBuffer(
            self._put,
            is_isolated=rules.is_isolated,
            slice_events_max=slice_events_max,
            source=run.plan.identity,
        )

    @property
    def dropped(self) -> list[DroppedTransaction]:
        """Transactions that a journal's proved end cut off: never committed, never applied (K5)."""
        return self._buffer.dropped

    def run(self) -> None:
        """Thread body. Never raises: see `error`."""
        try:
            for chunk in self._source.chunks(self._run.start, self._run.end):
                self._buffer.feed(chunk)
            if not self._run.ends_anywhere:
                self._buffer.finish()
                self.reached_end = True
        except _EnoughTransactions:
            pass
        except StoreClosedError:
            pass  # the drain has given up and says why
        except BaseException as error:
            self.error = error
        finally:
            self._store.end_of_input()

    def _put(self, slices: Sequence[EventSlice]) -> bool:
        if self._transactions_left is None:
            return self._store_list(slices)
        for piece in slices:
            ends = _transaction_end_rows(piece)
            if len(ends) < self._transactions_left:
                self._transactions_left -= len(ends)
                self._store_list([piece])
                continue
            self._store_list([piece.part(0, int(ends[self._transactions_left - 1]) + 1)])
            raise _EnoughTransactions
        return True

    def _store_list(self, slices: Sequence[EventSlice]) -> bool:
        stored = self._store.put(slices)
        if stored:
            self._on_joint("put")
        return stored


def _transaction_end_rows(piece: EventSlice) -> NDArray[np.int64]:
    """Rows of the slice, counted from its first, that are the last event of their transaction."""
    transaction = piece.events["tx_offset"]
    following = np.append(transaction[1:], -1)
    ends = np.flatnonzero((transaction >= 0) & (transaction != following))
    if piece.kind is SliceKind.OPEN_PIECE and len(ends) and ends[-1] == piece.event_count - 1:
        ends = ends[:-1]
    return ends
