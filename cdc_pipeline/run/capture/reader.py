"""The reading half of a capture: source -> transaction buffer -> store, in a thread of its own.

Rules:
- The reader stops at the end that the plan fixed, or between two transactions at the plan's limit.
- An error is neither lost nor early: what was read before it is put into the store, then the
  store's input ends. The drain applies that and raises the error.
- The end of every journal is proved (K5) before anything of the next one is put. An acceptance that
  is used is noted before the next journal is in the store, so that the drain takes it at its place
  in the log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import StoreClosedError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.records import Note
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.decode.statements import StatementRules
from cdc_pipeline.run.plan.resolved_run import LogRange
from cdc_pipeline.run.wiring import slice_events_max
from cdc_pipeline.source.journal_ends import AcceptedEnd, JournalEndProof
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.store.ring import RingStore
from cdc_pipeline.transaction.buffer import TransactionBuffer


class _LimitReached(Exception):
    """Everything up to the run's limit is in the store."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """`dropped`: transactions that a journal's proved end cut off: never committed (K5)."""

    dropped: int = 0
    limit_reached: bool = False


class Reader(threading.Thread):
    """Reader of one run's part of the log into the store; `error`: what ended it early."""

    def __init__(
        self,
        config: PipelineConfig,
        run: LogRange,
        source: Source,
        *,
        store: RingStore,
        rules: StatementRules,
        on_position: Callable[[Position], None] | None = None,
    ) -> None:
        """`on_position` receives, in this thread, how far the log was read and stored (SPEC T3)."""
        super().__init__(name=f"cdc-reader-{config.name}", daemon=True)
        self.error: BaseException | None = None
        self.reached_end = False
        self._notes: deque[Note] = deque()
        self._run = run
        self._source = source
        self._store = store
        self.limit_reached = False
        self._bytes_put = 0
        self._buffer = TransactionBuffer(
            self._put,
            is_isolated=rules.is_isolated,
            slice_events_max=slice_events_max(config),
            source=str(source.identity),
            on_position=on_position,
        )
        self._proof = JournalEndProof(
            run.start,
            open_offset=lambda: self._buffer.transactions.open_offset,
            ends_closed=source.ends_closed,
            accepted=config.accept.unproved_journal_ends,
            on_accepted=self._accepted,
            pipeline_name=config.name,
        )

    def result(self) -> ReadResult:
        """After it has ended."""
        return ReadResult(self._buffer.transactions.abandoned, self.limit_reached)

    @property
    def bytes_expected(self) -> int:
        """An estimate; a limit that is not in bytes is scaled by what was read so far."""
        most = self._run.bytes_expected
        if self._run.limit is None:
            return most
        if self.limit_reached:
            return self._bytes_put
        share = self._run.limit.share
        return min(most, int(self._bytes_put / share)) if share else most

    def take_notes(self, up_to: Position) -> list[Note]:
        """Each once, in the order of the log; written before the reader puts what follows."""
        taken = []
        while (
            self._notes
            and Position(self._notes[0].journal, self._notes[0].offset).order <= up_to.order
        ):
            taken.append(self._notes.popleft())
        return taken

    def run(self) -> None:
        """The thread's body. Never raises: see `error`."""
        limit = self._run.limit
        try:
            if limit is not None:
                limit.begin()
            for chunk in self._proof.over(self._source.chunks(self._run.read_from, self._run.end)):
                self._buffer.feed(chunk)
            if not self._run.ends_anywhere:
                self._buffer.finish()
                self.reached_end = True
            if limit is not None:
                self.error = limit.unmet()
        except _LimitReached:
            self.limit_reached = True
        except StoreClosedError:
            pass  # the drain has given up and says why
        except BaseException as error:
            self.error = error
        finally:
            self._store.end_of_input()

    def _accepted(self, end: AcceptedEnd) -> None:
        self._notes.append(
            Note(
                kind="accepted_unproved_end", text=end.text, journal=end.journal, offset=end.offset
            )
        )

    def _put(self, slices: Sequence[EventSlice]) -> bool:
        if self._run.limit is None:
            return self._store_list(slices)
        for piece in slices:
            rows = self._run.limit.rows_within(piece)
            within = piece if rows is None else piece.part(0, rows)
            if within.event_count:
                if not self._store_list([within]):
                    return False
                self._bytes_put += within.journal_bytes
            if rows is not None:
                raise _LimitReached
        return True

    def _store_list(self, slices: Sequence[EventSlice]) -> bool:
        stored = self._store.put(slices)
        if stored:
            reach("put")
        return stored
