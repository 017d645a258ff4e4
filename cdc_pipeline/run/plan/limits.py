"""Stop a run before the end of the log that its plan fixed.

Rules:
- A limit sees every slice, in the order of the log, before the slice is stored, and returns how
  many of the slice's rows still belong to the run. What is stored ends at a transaction's end, so
  that the next run resumes exactly there: a limit that is reached inside a large transaction waits
  for its last piece.
- A rolled-back transaction counts as one, an abandoned one (K5) never. A limit counts only what
  this run read.
- The fixed end remains the outer bound: a quiet log ends by position, never by idling.
- Numpy over the rows of a slice; no loop over events.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.clock import microseconds_of
from cdc_pipeline.config.pipeline_config import (
    Bound,
    BytesBoundConfig,
    GtidBoundConfig,
    SecondsBoundConfig,
    TimeBoundConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.errors import CdcError, PositionError
from cdc_pipeline.position.gtid.sets import SingleGtid, parse_single_gtid
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.run.bounds import bound_text


class Limit(ABC):
    """One limit of one run, with state from slice to slice; `text` follows "the run ended"."""

    text: str

    def begin(self) -> None:
        return

    @abstractmethod
    def rows_within(self, piece: EventSlice) -> int | None:
        """How many rows of `piece` belong to the run if it stops there; None if not."""

    @property
    def share(self) -> float | None:
        """How much of the run is read, 0 to 1, by the limit's own measure; None if unknown."""
        return None

    def unmet(self) -> CdcError | None:
        """What is wrong if the log's end came first; None if that is a proper end."""
        return None


class _TransactionsLimit(Limit):
    def __init__(self, transactions: int) -> None:
        self._wanted = self._left = transactions

    def rows_within(self, piece: EventSlice) -> int | None:
        ends = transaction_end_rows(piece)
        if len(ends) < self._left:
            self._left -= len(ends)
            return None
        return int(ends[self._left - 1]) + 1

    @property
    def share(self) -> float | None:
        return (self._wanted - self._left) / self._wanted


class _BytesLimit(Limit):
    def __init__(self, size_bytes: int) -> None:
        self._wanted = size_bytes
        self._read = 0

    def rows_within(self, piece: EventSlice) -> int | None:
        events = piece.events
        # Events inside a payload count with the payload event.
        own = np.where(events["parent"] < 0, events["next_offset"] - events["offset"], 0)
        read = self._read + np.cumsum(own)
        self._read = int(read[-1])
        if self._read < self._wanted:
            return None
        ends = transaction_end_rows(piece)
        ends = ends[read[ends] >= self._wanted]
        return int(ends[0]) + 1 if len(ends) else None

    @property
    def share(self) -> float | None:
        return min(1.0, self._read / self._wanted)


class _SecondsLimit(Limit):
    """At the first transaction end that is read `seconds` after reading began."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began_s = time.monotonic()

    def begin(self) -> None:
        self._began_s = time.monotonic()

    def rows_within(self, piece: EventSlice) -> int | None:
        if time.monotonic() - self._began_s < self._seconds:
            return None
        ends = transaction_end_rows(piece)
        return int(ends[0]) + 1 if len(ends) else None

    @property
    def share(self) -> float | None:
        return min(1.0, (time.monotonic() - self._began_s) / self._seconds)


class _TimeLimit(Limit):
    """Before the first commit after `moment`: to the second where the log has no microseconds."""

    def __init__(self, moment: datetime) -> None:
        self._moment_us = microseconds_of(moment)

    def rows_within(self, piece: EventSlice) -> int | None:
        # All events of a transaction carry its commit time, so that the first row beyond is its
        # first event.
        beyond = piece.events["commit_ts_us"] > self._moment_us
        return int(beyond.argmax()) if beyond.any() else None


class _GtidLimit(Limit):
    def __init__(self, wanted: SingleGtid) -> None:
        self._wanted = wanted
        self._is_open = False  # its begin was read, its end is in a later slice

    def rows_within(self, piece: EventSlice) -> int | None:
        if not self._is_open:
            begin = self._begin_row(piece)
            if begin < 0:
                return None
            self._is_open = True
        else:
            begin = 0
        if piece.kind is SliceKind.ABANDONED:
            self._is_open = False  # never committed: a later transaction may have the GTID
            return None
        ends = transaction_end_rows(piece)
        ends = ends[ends >= begin]
        return int(ends[0]) + 1 if len(ends) else None

    def unmet(self) -> CdcError | None:
        return PositionError(
            "the log was read to its end, but the transaction at which the run should "
            "stop was not in it",
            setting="bound.gtid",
            expected=self._wanted.text,
            got="only other transactions, which are applied",
            next_step="take the GTID from the log itself: the server counts it as executed, but "
            "the part of the log after the start does not hold it",
        )

    def _begin_row(self, piece: EventSlice) -> int:
        """Row of the transaction's GTID event, from the slice's first; -1 if absent."""
        chunk, wanted = piece.chunk, self._wanted
        numbers = gtid.executed(chunk, piece.first, piece.stop).get(wanted.key)
        if numbers is None or wanted.number not in numbers:
            return -1
        texts = gtid.gtid_texts(chunk, piece.first, piece.stop)
        offset = next(offset for offset, text in texts.items() if text == wanted.text)
        return int(np.searchsorted(piece.events["offset"], offset))


def make_limit(bound: Bound, flavor: Flavor) -> Limit | None:
    """None if the bound's end is a known position; PositionError: no GTID of this flavor."""
    limit: Limit
    match bound:
        case TransactionsBoundConfig():
            limit = _TransactionsLimit(bound.transactions)
        case BytesBoundConfig():
            limit = _BytesLimit(bound.bytes)
        case SecondsBoundConfig():
            limit = _SecondsLimit(bound.seconds)
        case TimeBoundConfig():
            limit = _TimeLimit(bound.time)
        case GtidBoundConfig():
            limit = _GtidLimit(parse_single_gtid(bound.gtid, flavor))
        case _:
            return None
    limit.text = bound_text(bound)
    return limit


def executed_before(
    bound: GtidBoundConfig, *, start: Position, log_end: Position, flavor: Flavor
) -> bool:
    """Whether nothing is to be read. PositionError: not one transaction, or not in the log yet."""
    wanted = parse_single_gtid(bound.gtid, flavor)
    if not log_end.gtid_set:
        raise PositionError(
            "the bound is a GTID, but the log's GTIDs are unknown",
            setting="bound.gtid",
            got=wanted.text,
            next_step="enable GTIDs (gtid_mode = ON), fix the archive, or give a journal and an "
            "offset, or a time",
        )
    if wanted.is_in(start.gtid_set):
        return True
    if not wanted.is_in(log_end.gtid_set):
        raise PositionError(
            "the transaction at which the run should stop is not in the log yet",
            at=log_end,
            setting="bound.gtid",
            expected=f"one of {log_end.gtid_set}",
            got=wanted.text,
            next_step="run again when the server has executed it; a run never waits "
            "for a transaction",
        )
    return False


def transaction_end_rows(piece: EventSlice) -> NDArray[np.int64]:
    """Rows of the slice, from its first, that are the last event of a transaction."""
    transaction = piece.events["tx_offset"]
    following = np.append(transaction[1:], -1)
    ends = np.flatnonzero((transaction >= 0) & (transaction != following))
    if piece.kind is SliceKind.OPEN_PIECE and len(ends) and ends[-1] == piece.event_count - 1:
        ends = ends[:-1]
    return ends
