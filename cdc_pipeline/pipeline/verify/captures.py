"""The main captures that bracket a verification's views, and what changed between two of them.

Rules:
- A capture here is the ordinary one, to the end of the log or to a place; the lock is held while it runs and not
  between. Others may capture meanwhile: their batches are seen by their numbers.
- The keys of every change that a batch stages are kept from the moment of its cut, before its files go (`ChangeLog`).
  So a key that came and went between two cuts is known too. Where a batch was another process's, or has changes that
  are no rows (DDL) or that executors decode, the list is not whole, and says so.
- Another table that stands still (K4) does not end a verification.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.errors import LakeStateError, NothingMatchedError, TargetSuspendedError
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.pipeline.capture.capture import capture
from cdc_pipeline.pipeline.lock_wait import POLL_S, wait_for_lock
from cdc_pipeline.pipeline.report import CaptureObserver, CapturePlan
from cdc_pipeline.pipeline.wiring import build_sink
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.sink.apply.schema_steps import has_steps

LOCK_WAIT_S: Final = 900.0
_RECENT_S: Final = 60.0

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    """Where the source stands in the lake: the last cut, and the cursor, which may be later in the log."""

    cut: Cut
    cursor: CursorState

    @property
    def position(self) -> Position:
        return self.cursor.position


@dataclass
class ChangeLog(CaptureObserver):
    """Sees the batches of captures; `on_batch` gets each record while its staged files are there.

    Attributes:
        seen: numbers of the batches.
        not_whole: targets by number of a batch whose changes are not all staged rows.
        touched: targets by number of a batch that does anything to them.
    """

    on_batch: Callable[[BatchRecord], None]
    read: Callable[[int], BatchRecord]
    inner: CaptureObserver
    seen: set[int] = field(default_factory=set)
    not_whole: dict[int, set[str]] = field(default_factory=dict)
    touched: dict[int, set[str]] = field(default_factory=dict)

    def planned(self, plan: CapturePlan) -> None:
        self.inner.planned(plan)

    def progressed(self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int) -> None:
        self.inner.progressed(bytes_done=bytes_done, bytes_total=bytes_total, transactions=transactions, rows=rows)

    def reached(self, joint: str) -> None:
        self.inner.reached(joint)

    def published(self, cut: Cut) -> None:
        self.inner.published(cut)
        record = self.read(cut.batch_number)
        odd = {
            target.table
            for target in record.targets
            if target.raw_files
            or has_steps(target)
            or target.create
            or target.replaces
            or getattr(target, "content", None) is not None
        }
        if odd:
            self.not_whole[cut.batch_number] = odd
        self.touched[cut.batch_number] = {target.table for target in record.targets}
        self.on_batch(record)
        self.seen.add(cut.batch_number)

    def is_whole(self, table: str, *, after: int, upto: int) -> bool:
        """Whether all changes of a target in batches (after, upto] were seen as staged rows."""
        numbers = range(after + 1, upto + 1)
        return self.seen.issuperset(numbers) and not any(table in self.not_whole.get(n, ()) for n in numbers)

    def is_quiet(self, table: str, *, after: int, upto: int) -> bool:
        """Whether no batch in (after, upto] did anything to a target, and all of them were seen."""
        numbers = range(after + 1, upto + 1)
        return self.seen.issuperset(numbers) and not any(table in self.touched[n] for n in numbers)


class Runs(Protocol):
    """How captures and changes of the lake are run: by themselves (`OwnRuns`), or as Dagster runs."""

    def capture(self, bound: Bound, observer: CaptureObserver) -> None:
        """An ordinary capture to a bound.

        Raises:
            CdcError: as `capture`; also TargetSuspendedError.
        """

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        """Run `work` with the store that the cursor may be written through, and the run's id."""

    def cursor(self) -> CursorState | None:
        """The cursor now."""


class OwnRuns:
    """Captures in the caller's own process, without an orchestrator."""

    def __init__(self, config: PipelineConfig, cursors: CursorStore, *, run_id: str = "") -> None:
        self._config = config
        self._cursors = cursors
        self._run_id = run_id

    def capture(self, bound: Bound, observer: CaptureObserver) -> None:
        capture(self._config, cursors=self._cursors, bound=bound, observer=observer, run_id=self._run_id)

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        return work(self._cursors, self._run_id)

    def cursor(self) -> CursorState | None:
        return self._cursors.read()


class Captures:
    """The captures of one verification. Another run that holds the source's lock is waited for."""

    def __init__(self, config: PipelineConfig, runs: Runs, observer: CaptureObserver) -> None:
        self._config = config
        self._runs = runs
        self._sink = build_sink(config)
        self._taking: Callable[[BatchRecord], None] | None = None
        self._captured_s: float | None = None
        self.changes = ChangeLog(self._take, lambda number: read_record(self._sink.paths, number), observer)

    def keep(self, take: Callable[[BatchRecord], None] | None) -> None:
        """From now on `take` gets the records of batches."""
        self._taking = take

    def run(self, upto: Position | None = None) -> Standing:
        """Capture to the end of the log, or to a place; where the source stands then.

        Raises:
            CdcError: as `capture`; but not where tables stand still.
            LockError: another run holds the source for longer than `LOCK_WAIT_S`.
            LakeStateError: nothing was captured yet.
        """
        bound: Bound = "end_of_log"
        if upto is not None:
            bound = PositionConfig(journal=upto.journal, offset=upto.offset)
        with suppress(TargetSuspendedError, NothingMatchedError):  # each table says so itself
            waiting_for_the_lock(lambda: self._runs.capture(bound, self.changes))
        self._captured_s = time.monotonic()
        return self.standing()

    def recent(self) -> Standing:
        """Where the source stands, after a capture of the last minute: an earlier C0 is as good, only more keys may
        have changed since."""
        if self._captured_s is None or time.monotonic() - self._captured_s > _RECENT_S:
            return self.run()
        return self.standing()

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        """A change of the lake, as `Runs.change`."""
        return waiting_for_the_lock(lambda: self._runs.change(work))

    def standing(self) -> Standing:
        """Where the source stands now.

        Raises:
            LakeStateError: nothing was captured yet.
        """
        cut, cursor = self._sink.last_cut(), self._runs.cursor()
        if cut is None or cursor is None:
            raise LakeStateError(
                "nothing was captured yet: there is no table to verify",
                next_step=f"run `cdc-pipeline run {self._config.name}` first",
            )
        return Standing(cut, cursor)

    def _take(self, record: BatchRecord) -> None:
        if self._taking is not None:
            self._taking(record)


def waiting_for_the_lock(work: Callable[[], T]) -> T:
    """What `work` gives, as soon as no other run holds the source.

    Raises:
        LockError: one does for longer than `LOCK_WAIT_S`.
    """
    return wait_for_lock(work, wait_s=LOCK_WAIT_S, poll_max_s=POLL_S)
