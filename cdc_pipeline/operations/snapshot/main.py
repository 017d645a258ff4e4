"""The main lake as a long operation sees it: its captures, and the moments when it is locked.

Rules:
- If another run holds the source's lock, the snapshot waits up to `snapshot.lock_wait_s`, and holds
  nothing meanwhile.
- A target whose snapshot is taken again may be what stops the source's runs: it is suspended first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TypeVar

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    NothingMatchedError,
    SnapshotError,
    TargetSuspendedError,
)
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.storage.lock import wait_for_lock
from cdc_pipeline.lake.suspensions import suspended_at
from cdc_pipeline.position.cursor import CursorState, CursorStore, Suspension
from cdc_pipeline.run.admin_batch import AdminBatch, admin_batch
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.publish import Publisher
from cdc_pipeline.run.recovery import recover
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.targets.routes import Routes

T = TypeVar("T")


@dataclass
class MainLake:
    config: PipelineConfig
    cursors: CursorStore
    observer: RunObserver
    run_id: str = ""
    lock_wait_s: float | None = None  # None: of the configuration
    spark_started: bool = False  # by `locked`

    def state(self) -> tuple[CursorState | None, Cut | None]:
        cursor = self.cursors.read()  # before the cut: a run that is under way writes it after
        cut = build_sink(self.config).last_cut()
        return reconcile(cursor, cut).cursor, cut

    def pending(self) -> BatchRecord | None:
        return build_sink(self.config).pending_record()

    def capture(self, *, snapshot_of: Collection[str] = ()) -> CursorState:
        """A target of `snapshot_of` that stops it is suspended, which is no error."""
        self.observer.step("capturing the source")
        while True:
            try:
                self.capture_once()
                break
            except CdcError as error:
                if error.retryable or not self._set_aside(error, snapshot_of):  # each target once
                    raise
        return self.cursor()

    def cursor(self) -> CursorState:
        """Raises SnapshotError: nothing was captured yet."""
        cursor, _ = self.state()
        if cursor is None:
            raise SnapshotError(
                "the source has no cursor", next_step=f"run `cdc-pipeline run {self.config.name}`"
            )
        return cursor

    def capture_once(
        self, bound: Bound = "end_of_log", observer: RunObserver | None = None
    ) -> None:
        # Suspended tables are read now, or are not this operation's concern: the source goes on
        # without them (K4). So it does without tables that a pattern does not find.
        with suppress(TargetSuspendedError, NothingMatchedError):
            self.wait_for_lock(
                lambda: capture(
                    self.config,
                    cursors=self.cursors,
                    bound=bound,
                    observer=observer or self.observer,
                    run_id=self.run_id,
                )
            )

    def wait_for_lock(self, act: Callable[[], T]) -> T:
        """Once the source's lock is free; LockError after `lock_wait_s`."""
        return wait_for_lock(act, wait_s=self._wait_s, on_waiting=self.waiting)

    @property
    def _wait_s(self) -> float:
        return self.config.snapshot.lock_wait_s if self.lock_wait_s is None else self.lock_wait_s

    def _set_aside(self, error: CdcError, snapshot_of: Collection[str]) -> bool:
        """Suspend the target that `error` names, if it gets a snapshot; return whether."""
        cursor, cut = self.state()
        if cut is None or cursor is None or error.table is None or isinstance(error, ConfigError):
            return False  # a configuration error stays, whether the target is suspended or not
        routes = Routes(self.config)
        led_to = (
            {route.target for route in routes.of_table(error.table)}
            if "." in error.table
            else set()
        )
        states = cut.cursor.targets
        mine = {
            name
            for name in snapshot_of
            if name in states
            and states[name].suspended is None
            and (name in {error.table, *led_to} or error.table in states[name].source_names)
        }
        if not mine:
            return False
        self.observer.step(f"setting {', '.join(sorted(mine))} aside: {error.what}")
        self._suspend(mine, error)
        return True

    def _suspend(self, names: set[str], error: CdcError) -> None:
        sink = build_sink(self.config)
        with ExitStack() as stack:
            self.wait_for_lock(lambda: stack.enter_context(sink.lock()))
            publisher = Publisher(sink, self.cursors, self.observer, self.run_id)
            recovered = recover(publisher, leaves=lambda state: state.table in names)
            cut, cursor = recovered.cut, recovered.cursor
            assert cut is not None
            assert cursor is not None
            states = cut.cursor.targets
            suspensions: dict[str, Suspension | None] = {
                name: suspended_at(
                    cursor,
                    recovered.failing.get(name, error),
                    batch_number=cursor.batch_number + 1,
                    needs_snapshot=True,
                )
                for name in names
                if states[name].suspended is None
            }
            AdminBatch(publisher, cut=cut, cursor=cursor).suspend(suspensions)

    def locked(self, work: Callable[[AdminBatch], T]) -> T:
        """Raises UnfinishedBatchError if there is a recorded batch to finish first."""
        with admin_batch(
            build_sink(self.config),
            cursors=self.cursors,
            doing="run this command again",
            observer=self.observer,
            run_id=self.run_id,
            wait_s=self._wait_s,
            on_waiting=self.waiting,
        ) as batch:
            try:
                return work(batch)
            finally:
                self.spark_started |= batch.sink.spark_started

    def waiting(self, holder: str) -> None:
        self.observer.step(f"waiting for another run of this source ({holder})")
