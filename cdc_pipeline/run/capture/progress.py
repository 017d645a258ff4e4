"""Progress of the drain: its position, GTID set and counts after the last whole transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, Role, SliceKind
from cdc_pipeline.binlog.event_types import event_name
from cdc_pipeline.binlog.events.gtid import executed
from cdc_pipeline.binlog.framing.framing import unknown_types
from cdc_pipeline.lake.records import Interval
from cdc_pipeline.position.gtid.sets import executed_set, parse_gtid_set
from cdc_pipeline.position.position import Flavor, LoggedEvent, LoggedTransaction, Position
from cdc_pipeline.position.start.lookup import place_of
from cdc_pipeline.position.start.same_log import last_gtid, last_logged_event


class Progress:
    """Between transactions. `position` has no GTID set (`full_position`), `batch_start` has."""

    def __init__(self, start: Position, flavor: Flavor, *, keeps_gtids: bool = True) -> None:
        self.position = start
        self.source_time_us = -1
        self._ack_position: Position | None = None
        self._keeps_gtids = keeps_gtids
        self._flavor = flavor
        self._gtids = parse_gtid_set(start.gtid_set, flavor)
        self._open_gtids: list[dict[str, NDArray[np.int64]]] = []
        self.batch_start = start
        self._last_event: tuple[str, LoggedEvent | None] = (start.journal, start.last_event)
        self._last_transaction = start.last_transaction
        self._last_gtid = ""
        self._counts: dict[str, int] = {}
        self._ignorable: Counter[str] = Counter()

    def full_position(self) -> Position:
        """With all GTIDs: a dump by a partial set sends applied transactions again."""
        return replace(self.position, gtid_set=str(self._gtids) if self._keeps_gtids else "")

    def count(self, name: str, number: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + number

    def advance(self, slices: Sequence[EventSlice]) -> None:
        """Pieces of an open transaction only count."""
        for piece in slices:
            events = piece.events
            self.count("events_seen", piece.event_count)
            self.count("bytes_seen", piece.journal_bytes)
            for event_type, number in unknown_types(events["event_type"]).items():
                self._ignorable[event_name(event_type)] += number
            self._last_gtid = last_gtid(piece) or self._last_gtid
            self._open_gtids.append(executed(piece.chunk, piece.first, piece.stop))
            if piece.kind is SliceKind.OPEN_PIECE:
                continue
            self._gtids = executed_set(*self._open_gtids, flavor=self._flavor, after=self._gtids)
            self._open_gtids.clear()
            inside = events["tx_offset"] >= 0
            self.count("transactions_seen", len(np.unique(events["tx_offset"][inside])))
            self.count(
                "transactions_rolled_back", int(np.count_nonzero(events["role"] == Role.ROLLBACK))
            )
            rows = np.flatnonzero(inside)
            if len(rows):
                self.source_time_us = int(events["commit_ts_us"][rows[-1]])
                self._ack_position = place_of(piece.chunk, piece.first + int(rows[-1]))
                if self._last_gtid:
                    self._last_transaction = LoggedTransaction(self._last_gtid, self.source_time_us)
            at = place_of(piece.chunk, piece.stop - 1, "next_offset")
            # A dump by GTID set begins with marks of a journal from before the start, which are no
            # step back.
            if len(rows) or at.order > self.position.order:
                self.position = at
        self._remember_event(slices)

    def reach(self, end: Position) -> None:
        """To the end of the read: a GTID dump leaves out what the start's set already holds."""
        if self.position.order < end.order:
            before, self.position = self.position, end
            # what the server left out does not change the state before it
            if before.journal == end.journal:
                created_s = end.journal_created_s or before.journal_created_s
                self.position = replace(
                    end, journal_created_s=created_s, last_event=before.last_event
                )
            self.position = replace(self.position, last_transaction=before.last_transaction)

    def _remember_event(self, slices: Sequence[EventSlice]) -> None:
        journal, offset = self.position.journal, self.position.offset
        if journal != self._last_event[0]:
            self._last_event = (journal, None)
        for piece in reversed(slices):
            if piece.chunk.journal == journal and int(piece.events["next_offset"][-1]) <= offset:
                event = last_logged_event(piece)
                if event is not None:
                    self._last_event = (journal, event)
                    break
        self.position = replace(
            self.position, last_event=self._last_event[1], last_transaction=self._last_transaction
        )

    def drop_open(self) -> None:
        """Forget the GTID of a transaction that never ended."""
        self._open_gtids.clear()
        self._last_gtid = ""

    def take_ack_position(self) -> Position | None:
        """Of the last transaction since the last call: by it the store is acked (SPEC S9)."""
        position, self._ack_position = self._ack_position, None
        return position

    def take_interval(self) -> Interval:
        """The interval since the last call; begins a new one."""
        interval = Interval(
            start=self.batch_start,
            end=self.position,
            ignorable_events=dict(self._ignorable),
            **self._counts,
        )
        self.batch_start = self.full_position()
        self._counts = {}
        self._ignorable = Counter()
        return interval
