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

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from cdc_pipeline.config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.errors import LakeStateError, TargetSuspendedError
from cdc_pipeline.pipeline.capture import capture
from cdc_pipeline.pipeline.parts import build_sink
from cdc_pipeline.pipeline.report import CaptureObserver, CapturePlan
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.sink.manifest import BatchRecord, Cut
from cdc_pipeline.sink.schema_steps import has_steps
from cdc_pipeline.sink.state import read_record


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
    """

    on_batch: Callable[[BatchRecord], None]
    read: Callable[[int], BatchRecord]
    inner: CaptureObserver
    seen: set[int] = field(default_factory=set)
    not_whole: dict[int, set[str]] = field(default_factory=dict)

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
        self.on_batch(record)
        self.seen.add(cut.batch_number)

    def is_whole(self, table: str, *, after: int, upto: int) -> bool:
        """Whether all changes of a target in batches (after, upto] were seen as staged rows."""
        numbers = range(after + 1, upto + 1)
        return self.seen.issuperset(numbers) and not any(table in self.not_whole.get(n, ()) for n in numbers)


class Captures:
    """Runs captures of one source."""

    def __init__(self, config: PipelineConfig, *, cursors: CursorStore, observer: CaptureObserver, run_id: str) -> None:
        self._config = config
        self._cursors = cursors
        self._run_id = run_id
        self._sink = build_sink(config)
        self._taking: Callable[[BatchRecord], None] | None = None
        self.changes = ChangeLog(self._take, lambda number: read_record(self._sink.paths, number), observer)

    def keep(self, take: Callable[[BatchRecord], None] | None) -> None:
        """From now on `take` gets the records of batches."""
        self._taking = take

    def run(self, upto: Position | None = None) -> Standing:
        """Capture to the end of the log, or to a place; where the source stands then.

        Raises:
            CdcError: as `capture`; but not where tables stand still.
            LakeStateError: nothing was captured yet.
        """
        bound: Bound = "end_of_log"
        if upto is not None:
            bound = PositionConfig(journal=upto.journal, offset=upto.offset)
        with suppress(TargetSuspendedError):  # each table says so itself
            capture(self._config, cursors=self._cursors, bound=bound, observer=self.changes, run_id=self._run_id)
        return self.standing()

    def standing(self) -> Standing:
        """Where the source stands now.

        Raises:
            LakeStateError: nothing was captured yet.
        """
        cut, cursor = self._sink.last_cut(), self._cursors.read()
        if cut is None or cursor is None:
            raise LakeStateError(
                "nothing was captured yet: there is no table to verify",
                next_step=f"run `cdc-pipeline run {self._config.name}` first",
            )
        return Standing(cut, cursor)

    def _take(self, record: BatchRecord) -> None:
        if self._taking is not None:
            self._taking(record)
