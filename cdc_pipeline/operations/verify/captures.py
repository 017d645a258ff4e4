"""Main captures that bracket views of the source, and the changes between two of them.

Rules:
- A capture here is an ordinary one, to the end of the log or to a given place. It holds the lock
  only while it runs. Other runs may capture in between: gaps in the batch numbers reveal their
  batches.
- `ChangeLog` keeps the keys of every staged change from the moment of the cut, before the staged
  files are removed. So a key that appeared and disappeared between two cuts is known too. The list
  is incomplete if another process made a batch, or if a batch has changes that are not rows (DDL)
  or that executors decode; it then says so.
- A suspended table does not stop what is done with the others (K4: a suspended table does not stop
  the source).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.errors import LakeStateError, NothingMatchedError, TargetSuspendedError
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.lake.storage.lock import POLL_S, wait_for_lock
from cdc_pipeline.operations.runs import Runs
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.observer import RelayObserver, RunObserver
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.apply.schema_steps import has_steps

_LOCK_WAIT_S: Final = 900.0
_RECENT_S: Final = 60.0

T = TypeVar("T")


@dataclass(frozen=True)
class SourceState:
    """The last cut, and the cursor, which may be later in the log."""

    cut: Cut
    cursor: CursorState

    @property
    def position(self) -> Position:
        return self.cursor.position


class ChangeLog(RelayObserver):
    """Observer of batches; `take` receives each record while its staged files exist.

    By batch number, `touched` targets, and those whose changes are `not_whole`: not all staged
    rows.
    """

    def __init__(self, read: Callable[[int], BatchRecord], observer: RunObserver) -> None:
        super().__init__(observer)
        self.take: Callable[[BatchRecord], None] | None = None
        self.seen: set[int] = set()
        self.not_whole: dict[int, set[str]] = {}
        self.touched: dict[int, set[str]] = {}
        self._read = read

    def published(self, cut: Cut) -> None:
        super().published(cut)
        record = self._read(cut.batch_number)
        odd = {
            target.table
            for target in record.targets
            if has_steps(target)
            or target.create
            or target.replaces
            or getattr(target, "content", None) is not None
        }
        if odd:
            self.not_whole[cut.batch_number] = odd
        self.touched[cut.batch_number] = {target.table for target in record.targets}
        if self.take is not None:
            self.take(record)
        self.seen.add(cut.batch_number)

    def is_whole(self, table: str, *, after: int, upto: int) -> bool:
        """Whether every change of a target in batches (after, upto] was seen as staged rows."""
        numbers = range(after + 1, upto + 1)
        return self.seen.issuperset(numbers) and not any(
            table in self.not_whole.get(n, ()) for n in numbers
        )

    def is_quiet(self, table: str, *, after: int, upto: int) -> bool:
        """Whether all batches in (after, upto] were seen and none of them changed a target."""
        numbers = range(after + 1, upto + 1)
        return self.seen.issuperset(numbers) and not any(table in self.touched[n] for n in numbers)


class Captures:
    """Captures of one verification or repair; `on_waiting` gets who holds the lock."""

    def __init__(
        self,
        config: PipelineConfig,
        runs: Runs,
        observer: RunObserver,
        *,
        lock_wait_s: float = _LOCK_WAIT_S,
        on_waiting: Callable[[str], None] = lambda _holder: None,
    ) -> None:
        self._config = config
        self._runs = runs
        self._lock_wait_s = lock_wait_s
        self._on_waiting = on_waiting
        self._sink = build_sink(config)
        self._captured_s: float | None = None
        self.changes = ChangeLog(partial(read_record, self._sink.paths), observer)

    @contextmanager
    def keeping(self, take: Callable[[BatchRecord], None]) -> Iterator[None]:
        """Pass the records of batches to `take`, while their staged files exist."""
        self.changes.take = take
        try:
            yield
        finally:
            self.changes.take = None

    def run(self, upto: Position | None = None) -> SourceState:
        """To the end of the log or a place, as `capture`; suspended tables are no error.

        Raises LockError after `lock_wait_s`, and LakeStateError if nothing was captured yet.
        """
        bound: Bound = "end_of_log"
        if upto is not None:
            bound = PositionConfig(journal=upto.journal, offset=upto.offset)
        # each suspended table reports this itself
        with suppress(TargetSuspendedError, NothingMatchedError):
            self._wait_for_lock(lambda: self._runs.capture(bound, self.changes))
        self._captured_s = time.monotonic()
        return self.source_state()

    def recent(self) -> SourceState:
        """After a capture of the last minute: an earlier C0 is as good, with more changed keys."""
        if self._captured_s is None or time.monotonic() - self._captured_s > _RECENT_S:
            return self.run()
        return self.source_state()

    def run_behind(self, before: SourceState) -> SourceState:
        """After a capture, unless the log still ends where the one before has ended."""
        with SnapshotSource(self._config, role="verify") as source:
            is_same = source.live.identity.same_server(before.cursor.identity)
            if is_same and source.live.end_position().order == before.position.order:
                return before
        return self.run()

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        return self._wait_for_lock(lambda: self._runs.change(work))

    def source_state(self) -> SourceState:
        """LakeStateError: nothing was captured yet, or cursor and lake contradict each other."""
        stored = self._runs.cursor()  # before the cut: a run that is under way writes it after
        cut = self._sink.last_cut()
        cursor = reconcile(stored, cut).cursor
        if cut is None or stored is None or cursor is None:
            raise LakeStateError(
                "nothing has been captured yet, so there is no table to verify",
                next_step=f"run `cdc-pipeline run {self._config.name}` first",
            )
        return SourceState(cut, cursor)

    def _wait_for_lock(self, work: Callable[[], T]) -> T:
        return wait_for_lock(
            work, wait_s=self._lock_wait_s, on_waiting=self._on_waiting, poll_max_s=POLL_S
        )
