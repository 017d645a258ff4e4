"""A sink that keeps its state in the lake's own records and cuts, for any kind of tables (K2, K3,
K4, K16, K22).

It keeps the promises of `protocol`; its `Tables` know how a table is changed.

Rules:
- A failure that may pass suspends only when the recorded batch is resumed: so every recorded batch
  can be finished. The target must fail, not the machine: nothing is suspended while lake, tables or
  catalog fail a probe.
- Only the holder of the lock writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import CdcError, LakeStateError, LockError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake import state
from cdc_pipeline.lake.cut_retention import prune_cuts
from cdc_pipeline.lake.paths import LakePaths, list_numbers, remove_tree
from cdc_pipeline.lake.prepared import XaParking, remove_unreferenced
from cdc_pipeline.lake.quarantine import damaged_files, lost_note, publish_quarantine
from cdc_pipeline.lake.records import BatchRecord, Cut, Note, QuarantineFile
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import refused, storage_of
from cdc_pipeline.lake.suspensions import UNREGISTERED_NOTE, cause_of
from cdc_pipeline.lake.table_facts import put_cut
from cdc_pipeline.position.cursor import CursorState, OpenXa
from cdc_pipeline.sink.delta.failures import is_of_the_machine
from cdc_pipeline.sink.next_cut import next_cut
from cdc_pipeline.sink.protocol import OnMerged, Tables
from cdc_pipeline.sink.staging.staging import StagedBatch

_RECORDS_KEPT: Final = 1000


class Sink:
    """Applies batches of one source to its targets, each exactly once."""

    def __init__(self, paths: LakePaths, *, tables: Tables, cut_retention: timedelta) -> None:
        self.paths: Final = paths
        self.tables: Final = tables
        self._cut_retention = cut_retention
        self._lock_check: Callable[[], None] | None = None
        self._known: state.Numbers | None = None  # while the lock is held
        self._has_begun = False  # a batch, or has finished one
        self._is_open = False  # a batch has begun: there may be a record of it
        self.unpublished: CdcError | None = None  # why readers by SQL lack the last cut

    @property
    def spark_started(self) -> bool:
        return self.tables.spark_started

    @contextmanager
    def lock(self) -> Iterator[None]:
        """LockError: another process holds it; SinkError: the lake's disk refuses a file."""
        with writer_lock(self.paths.lock, on_lost=self.tables.cancel) as check:
            self._lock_check = check
            try:
                self.tables.recover()
                yield
            except OSError as error:
                if not str(error.filename or "").startswith(str(self.paths.lake)):
                    raise
                raise refused(error, Path(error.filename)) from error
            finally:
                self._lock_check = None
                self._known = None
                self._has_begun = self._is_open = False

    # -- state -------------------------------------------------------------------------------------

    def last_cut(self) -> Cut | None:
        """None in a new lake. Raises LakeStateError: it is damaged."""
        return state.last_cut(self.paths, self._numbers())

    def cuts(self) -> list[int]:
        return list(self._numbers().cuts)

    def read_cut(self, number: int) -> Cut:
        """Raises LakeStateError if it is absent or damaged."""
        return state.read_cut(self.paths, number)

    def pending_record(self) -> BatchRecord | None:
        """Has no cut yet. Raises LakeStateError: records and cuts contradict each other."""
        return state.pending_record(self.paths, self._numbers())

    def check_target(self, cut: Cut, table: str) -> None:
        self.tables.check(cut, table, self.pending_record())

    def roll_back_uncut(self, cut: Cut, table: str) -> int | None:
        """Prepare a suspended target to read its part of the log again, as `apply.roll_back_uncut`.
        Raises LockError: the sink is not locked; LakeStateError: the table is another's, or its log
        is damaged.
        """
        self._check_locked()
        return self.tables.roll_back_uncut(cut, table)

    def failing_targets(self, cut: Cut) -> dict[str, LakeStateError]:
        is_locked = self._lock_check is not None
        return self.tables.failing(cut, self.pending_record(), is_locked=is_locked)

    def discard_unrecorded(self) -> int:
        """What no pending record needs, and remains of interrupted writes; how many."""
        self._check_locked()
        pending = self.pending_record()
        keep = None if pending is None else self.paths.staging(pending.batch_number)
        removed = 0
        for folder in self._staged():
            if folder != keep:
                removed += remove_tree(folder, check=self._check_locked)
        remains = self._numbers().remains
        for left in remains:
            left.unlink(missing_ok=True)
        removed += len(remains)
        remains.clear()
        return removed

    def discard_parked(self, *cursors: CursorState | None) -> int:
        """Rows of XA transactions that no cursor refers to (K8); return how many files."""
        self._check_locked()
        return remove_unreferenced(self.paths, cursors, check=self._check_locked)

    # -- writing -----------------------------------------------------------------------------------

    def parking(self, *, epoch: int, open_xa: Sequence[OpenXa] = ()) -> XaParking:
        self._check_locked()
        return XaParking(self.paths, epoch=epoch, open_xa=open_xa, check_lock=self._check_locked)

    def begin(self, number: int) -> StagedBatch:
        """Raises LockError: not locked; LakeStateError: not the next batch, or already recorded."""
        self._check_locked()
        self._has_begun = True
        following = self._numbers().last_cut + 1
        if number != following or self.pending_record() is not None:
            raise LakeStateError(
                f"batch {number} cannot begin",
                expected=f"batch {following}, not recorded yet",
                got=f"batch {number}" if number != following else "a record of it",
                next_step="start the run again: it continues from the lake's own state",
            )
        self._is_open = True
        return StagedBatch(number, paths=self.paths, check_lock=self._check_locked)

    def finish(
        self,
        record: BatchRecord,
        *,
        recovered: bool = False,
        given_up: Mapping[str, CdcError] | None = None,
        on_merged: OnMerged = lambda _tables, _of: None,
    ) -> Cut:
        """Apply a recorded batch and publish its cut; completed steps are not repeated. A target
        that fails is suspended in the cut (K4). `recovered`: a failure that may pass suspends too;
        `given_up`: targets that are suspended without a try, each with its cause; `on_merged`:
        called after each table with the number of merged ones, and of all.

        Raises SinkError: a target failed and is not suspended, because the failure may pass or is
        the machine's; after all other targets ended; RuntimeSetupError: Spark cannot start.
        """
        self._check_locked()
        self._has_begun = True
        number = record.batch_number
        numbers = self._numbers()
        if number in numbers.cuts:
            return self.read_cut(number)
        is_next = number == numbers.last_cut + 1
        previous = state.last_cut(self.paths, numbers) if is_next else self.read_cut(number - 1)
        failing = dict(given_up or {})
        applied = self.tables.apply(
            record, previous, without=failing, check_lock=self._check_locked, on_merged=on_merged
        )
        failures = applied.failures | self.tables.make_durable(record, previous, applied.there)
        reach("before_cut")
        self._check_locked()
        unregistered = self.tables.register(record, applied.there)
        damaged = damaged_files(self.paths, record)
        failures |= unregistered | _fed_by(damaged, record, previous)
        if failures:
            # A table that is caught up is already suspended.
            again = recovered or record.kind == "catch_up"
            self._check_suspendable(failures, is_proved=applied.is_proved, recovered=again)
        notes = [
            lost_note(file, error)
            for file, error in damaged
            if file.table not in _sources_of(record, previous)
        ]
        for name, error in failures.items():
            if name in unregistered and _is_of_snapshot(record, name):
                # What a snapshot has put in place can no longer be given up.
                notes.append(Note(kind=UNREGISTERED_NOTE, text=cause_of(error), table=name))
            else:
                failing[name] = error
        waiting = publish_quarantine(
            self.paths,
            record,
            previous,
            failing=failing,
            without={file.path for file, _ in damaged},
        )
        new_cut = next_cut(record, previous, applied.there, failing)
        new_cut = new_cut.model_copy(
            update={"quarantine": waiting, "notes": (*new_cut.notes, *notes)}
        )
        cut = put_cut(self.paths, self.tables.over_maintenance(new_cut), previous)
        self._is_open = False
        self._numbers().finished(number, cut)
        if cut is None:
            return self.read_cut(number)
        self.tables.published(previous, applied.there)
        for target in record.targets:
            if target.is_of_snapshot and target.table in failing:
                with suppress(CdcError, OSError):  # a vacuum removes the rest
                    self.tables.forget(target)
        return cut

    def cleanup(self, cut: Cut) -> None:
        """Publish a cut, remove what batches up to it have left, records older than the newest
        1000, and cuts whose retention is over (K15). Raises LockError: the sink is not locked.
        """
        self._check_locked()
        self.unpublished = self.tables.publish(cut, self._check_locked)
        if not self._has_begun and is_object(self.paths.lake):
            return  # these are requests, and the next batch makes them
        for folder in self._staged():
            if folder.name.isdecimal() and int(folder.name) <= cut.batch_number:
                remove_tree(folder)
        numbers = self._numbers()
        while numbers.batches and numbers.batches[0] <= cut.batch_number - _RECORDS_KEPT:
            self.paths.batch(numbers.batches.pop(0)).unlink(missing_ok=True)
        prune_cuts(self.paths, retention=self._cut_retention, numbers=numbers)

    def _staged(self) -> list[Path]:
        root = self.paths.staging_root
        return [root / name for name in storage_of(root).names(root)]

    def _check_suspendable(
        self, failures: Mapping[str, CdcError], *, is_proved: bool, recovered: bool
    ) -> None:
        """Raises one of the failures, if it may pass by the next try or is the machine's."""
        errors = list(failures.values())
        for failure in errors:
            if is_of_the_machine(failure) or (failure.retryable and not recovered):
                raise failure
        try:
            self.tables.check_machine(errors, is_proved=is_proved)
        except Exception as broken:
            raise errors[0] from (broken if isinstance(broken, CdcError) else None)

    def _numbers(self) -> state.Numbers:
        """Under the lock they are listed once, and records while a batch is open."""
        if self._lock_check is None:
            return state.Numbers.listed(self.paths)
        if self._known is None:
            self._known = state.Numbers.listed(self.paths)
        elif self._is_open:
            self._known.batches[:] = list_numbers(self.paths.batches)
        return self._known

    def _check_locked(self) -> None:
        if self._lock_check is None:
            raise LockError(
                "the sink writes without its lock", expected="within `with sink.lock()`"
            )
        self._lock_check()


def _is_of_snapshot(record: BatchRecord, name: str) -> bool:
    return any(target.table == name and target.content is not None for target in record.targets)


def _sources_of(record: BatchRecord, previous: Cut | None) -> dict[str, set[str]]:
    """The targets of each source table, in the batch and in the previous cut."""
    targets_by_source: dict[str, set[str]] = {}
    for target in record.targets:
        for source in target.spec.sources or (target.table,):
            targets_by_source.setdefault(source, set()).add(target.table)
    for name, before in (previous.cursor.targets if previous is not None else {}).items():
        for source in before.source_names:
            targets_by_source.setdefault(source, set()).add(name)
    return targets_by_source


def _fed_by(
    damaged: Sequence[tuple[QuarantineFile, CdcError]], record: BatchRecord, previous: Cut | None
) -> dict[str, CdcError]:
    """Targets whose rows for the quarantine cannot be read any more: they read the log again."""
    sources = _sources_of(record, previous)
    return {name: error for file, error in damaged for name in sorted(sources.get(file.table, ()))}
