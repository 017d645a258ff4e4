"""The contracts of a sink, which applies batches for a run, and of the tables behind it.

Theory of operation. A batch goes through a sink in four steps, each of which leaves something that
the next run finds if this one is killed:

    begin   files without a record are garbage: nothing has happened
    record  `StagedBatch.record` puts the record of batch n, once: now batch n will be finished
    finish  every target gets what the record says; then the cut of batch n is put, once
    cleanup readers by SQL are shown the cut; what the batch no longer needs is removed

Between `finish` and `cleanup` the caller writes its cursor: a cursor never names a batch without a
cut.

What each call promises:
- *Order.* `lock` -> `last_cut`, `pending_record`, `discard_unrecorded`, `failing_targets` ->
  `finish` what is pending -> `begin`, stage, `record`, `finish` -> (cursor, ack) -> `cleanup`.
  Whatever writes raises LockError outside of `lock`.
- *Repeats.* `finish` may be called again with the same record, in the same process or another,
  after it returned or was killed at any point: steps that a target already has are not repeated,
  and an existing cut is returned. `discard_...`, `cleanup` and the reading calls may be repeated at
  will. `begin` refuses a number that is already recorded or not the next one.
- *Cuts.* Cut n names for each target a version of its table. Versions of one table never decrease,
  and one changes only by its batches or by maintenance. A cut and a record are never
  changed once they are put.
- *Failures.* A failure of one target, in any step, suspends that target in the cut, and the others
  continue. An error that may pass is raised before the cut, and suspends only when the batch is
  resumed (`recovered`). An error of the machine (a full disk, a lost lock) is always raised; the
  record waits.
- *Errors* are `CdcError`s: LockError (not locked, or lost), LakeStateError (state that contradicts
  itself or the tables), StagingError (rows that do not fit), SinkError and its kinds (a target or
  the lake refuses), RuntimeSetupError (what the sink runs on cannot start).

`lake_sink.Sink` keeps these promises for any `Tables`: Delta's (`delta_sink.py`), or tables in
memory for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from cdc_pipeline.errors import CdcError, LakeStateError
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedContent, RecordedTarget
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.data_file import DataLayout

# Called with the number of merged tables, and of all that a batch changes.
OnMerged = Callable[[int, int], None]


class RowsWithin(NamedTuple):
    """Rows of a table within a range of the order of all changes, and their highest seq."""

    rows: int
    highest: int | None


class TableVersion(Protocol):
    """The transaction id is -1 if none; the engine "" if a batch was not just applied."""

    @property
    def version(self) -> int: ...

    @property
    def transaction_version(self) -> int: ...

    @property
    def engine(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Applied:
    """`failures`: why others lack the batch; `is_proved`: one got it just now: applying works."""

    there: Mapping[str, TableVersion]
    failures: dict[str, CdcError] = field(default_factory=dict)
    is_proved: bool = False


class Tables(Protocol):
    """The tables of one source. Only the holder of its lock calls these methods, except those that
    only read: `check`, `failing`, `content_of`, `rows_within`, `executor_refusal`.
    """

    @property
    def spark_started(self) -> bool: ...

    def executor_refusal(self) -> str:
        """Why all work must be done in this process; "" if executors share it from then on."""

    def run_tasks(self, tasks: Sequence[str], work: Callable[[str], str]) -> list[str]:
        """By executors, which import `work`. RuntimeSetupError: an executor failed."""

    def recover(self) -> None:
        """Undo what a power cut may have torn (K21); called as soon as the lock is held."""

    def cancel(self) -> None:
        """Stop running work, because the lock is lost. Called in another thread."""

    def check(self, cut: Cut, table: str, pending: BatchRecord | None) -> None:
        """Raises LakeStateError."""

    def roll_back_uncut(self, cut: Cut, table: str) -> int | None:
        """Remove a table that no cut names, or return the version to restore one to."""

    def failing(
        self, cut: Cut, pending: BatchRecord | None, *, is_locked: bool
    ) -> dict[str, LakeStateError]:
        """Those that differ from a cut. The holder of the lock may remember what it compared."""

    def apply(
        self,
        record: BatchRecord,
        previous: Cut | None,
        *,
        without: Mapping[str, CdcError],
        check_lock: Callable[[], None],
        on_merged: OnMerged = lambda _tables, _of: None,
    ) -> Applied:
        """Bring the targets of a batch, except some, to the state after it; never do a step twice.
        One that another program has changed since the `previous` cut fails. `check_lock` is called
        where a step follows that acts (K16), `on_merged` after each target.
        """

    def data_layout(self, table: str, spec: TargetSpec) -> DataLayout | None:
        """How the rows of a batch can be staged as data files of the table; None if they cannot."""

    def make_durable(
        self, record: BatchRecord, previous: Cut | None, there: Mapping[str, TableVersion]
    ) -> dict[str, CdcError]:
        """Until what the batch's cut will name survives a power cut; failures by target."""

    def register(
        self, record: BatchRecord, there: Mapping[str, TableVersion]
    ) -> dict[str, CdcError]:
        """Register new tables in the catalog, if there is one; return its refusals by target."""

    def check_machine(self, failures: Sequence[CdcError], *, is_proved: bool) -> None:
        """Raise if the machine, the lake or the catalog failed, and not the targets themselves."""

    def over_maintenance(self, cut: Cut) -> Cut:
        """Each table at its newest version, if only maintenance lies between (K15)."""

    def published(self, previous: Cut | None, there: Mapping[str, TableVersion]) -> None:
        """Remove what only earlier states need, now that a cut names the present one."""

    def publish(self, cut: Cut, check_lock: Callable[[], None]) -> CdcError | None:
        """Show a cut to readers by SQL, if they are not shown it yet; return why that failed."""

    def content_of(
        self, cut: Cut, table: str, *, lake: Path, seq: int, ts_us: int
    ) -> RecordedContent:
        """What a batch of `lake`, which contains this one, records to get a table at a cut (K17),
        whose rows were read at `seq` (K1) and `ts_us`, -1 if unknown. Raises LakeStateError.
        """

    def rows_within(self, table: str, *, low: int, high: int) -> RowsWithin:
        """The rows of a target whose seq (K1) is within [low, high]."""

    def forget(self, target: RecordedTarget) -> None:
        """Remove what an abandoned replacement left in the target's place."""
