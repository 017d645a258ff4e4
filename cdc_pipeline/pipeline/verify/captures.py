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
from dataclasses import dataclass
from typing import Final, TypeVar

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.errors import LakeStateError, NothingMatchedError, TargetSuspendedError
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.pipeline.lock_wait import POLL_S, wait_for_lock
from cdc_pipeline.pipeline.observer import RelayObserver, RunObserver
from cdc_pipeline.pipeline.runs import Runs
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


class ChangeLog(RelayObserver):
    """Sees the batches of captures; `on_batch` gets each record while its staged files are there.

    Attributes:
        seen: numbers of the batches.
        not_whole: targets by number of a batch whose changes are not all staged rows.
        touched: targets by number of a batch that does anything to them.
    """

    def __init__(
        self,
        on_batch: Callable[[BatchRecord], None],
        read: Callable[[int], BatchRecord],
        observer: RunObserver,
    ) -> None:
        super().__init__(observer)
        self.seen: set[int] = set()
        self.not_whole: dict[int, set[str]] = {}
        self.touched: dict[int, set[str]] = {}
        self._on_batch = on_batch
        self._read = read

    def published(self, cut: Cut) -> None:
        super().published(cut)
        record = self._read(cut.batch_number)
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
        self._on_batch(record)
        self.seen.add(cut.batch_number)

    def is_whole(self, table: str, *, after: int, upto: int) -> bool:
        """Whether all changes of a target in batches (after, upto] were seen as staged rows."""
        numbers = range(after + 1, upto + 1)
        return self.seen.issuperset(numbers) and not any(table in self.not_whole.get(n, ()) for n in numbers)

    def is_quiet(self, table: str, *, after: int, upto: int) -> bool:
        """Whether no batch in (after, upto] did anything to a target, and all of them were seen."""
        numbers = range(after + 1, upto + 1)
        return self.seen.issuperset(numbers) and not any(table in self.touched[n] for n in numbers)


class Captures:
    """The captures of one verification. Another run that holds the source's lock is waited for."""

    def __init__(self, config: PipelineConfig, runs: Runs, observer: RunObserver) -> None:
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
            _waiting_for_the_lock(lambda: self._runs.capture(bound, self.changes))
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
        return _waiting_for_the_lock(lambda: self._runs.change(work))

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


def _waiting_for_the_lock(work: Callable[[], T]) -> T:
    """What `work` gives, as soon as no other run holds the source.

    Raises:
        LockError: one does for longer than `LOCK_WAIT_S`.
    """
    return wait_for_lock(work, wait_s=LOCK_WAIT_S, poll_max_s=POLL_S)
