"""An operation of the command line as one Dagster run, because only a run's event is a valid cursor
(K3).

Rules:
- All that an operation captures and changes is in its run, as in one that a page of Dagster starts.
- Its job is built for one execution and has a name that no definitions have, so nobody can start it
  again from Dagster's pages by accident. A long one holds no slot of the source's pool: captures
  continue meanwhile, and the lake's lock protects both (K16: one writer at a time).
"""

# No postponed annotations: Dagster refuses a step's own as text.

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

import dagster as dg

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.orchestration.assets.snapshot_asset import SnapshotRecorder
from cdc_pipeline.orchestration.events.failures import failure_of, unexpected
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.runs.execute import LoadedSource, execute, execute_capture
from cdc_pipeline.orchestration.translator import SOURCE_TAG, RunKind, job_of, pool_name
from cdc_pipeline.run.observer import OperationRun, RelayObserver, RunObserver
from cdc_pipeline.run.report import CaptureReport

T = TypeVar("T")
# Changes of a moment wait for their turn in the source's pool, as a capture does.
_IN_POOL: Final[frozenset[RunKind]] = frozenset(
    {"cursor_set", "cursor_rebuild", "quarantine_replay", "quarantine_discard", "reset", "erase"}
)


@dataclass
class DagsterAccess:
    """A source whose cursor is in Dagster; `cli.common.source_access.LakeAccess` is alike."""

    loaded: LoadedSource
    config: PipelineConfig
    instance: dg.DagsterInstance
    log_level: str = "CRITICAL"
    run_id: str = ""  # of the last capture

    def __post_init__(self) -> None:
        self.cursors = self.loaded.cursors(self.instance)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The events that the last read of the cursor passed over."""
        return self.cursors.skipped

    def capture(
        self,
        *,
        bound: Bound | None,
        tables: tuple[str, ...],
        observer: RunObserver,
        on_waiting: Callable[[list[str]], None],
    ) -> CaptureReport:
        """As a run of the source's job; raises what ended it."""
        done = execute_capture(
            self.loaded,
            instance=self.instance,
            bound=bound,
            tables=tables,
            observer=observer,
            log_level=self.log_level,
            on_waiting=on_waiting,
        )
        self.run_id = done.run_id
        if done.report is None:
            raise done.error or RuntimeError("the run ended without a report")
        return done.report

    def operate(
        self,
        kind: RunKind,
        work: Callable[[OperationRun], T],
        *,
        observer: RunObserver | None = None,
        on_waiting: Callable[[list[str]], None] | None = None,
    ) -> T:
        """In one run of the job ``<source>_<kind>_command``; raises what `work` does."""
        loaded, config, name = self.loaded, self.config, self.loaded.source
        pool = pool_name(name) if kind in _IN_POOL else None
        results: list[T] = []
        caught: list[BaseException] = []

        @dg.op(name=f"{kind}_{name}", pool=pool)
        def operation(context: dg.OpExecutionContext) -> None:
            recorder = MaterializationRecorder(context, config, translator=loaded.translator)
            told: RunObserver = recorder
            if kind == "snapshot":
                snapshot_key = loaded.translator.snapshot_key(name)
                told = SnapshotRecorder(context, recorder, asset_key=snapshot_key)
            run = OperationRun(
                cursors=recorder.cursors(),
                observer=RelayObserver(*filter(None, (observer, told))),
                run_id=context.run_id,
            )
            try:
                results.append(work(run))
            except CdcError as error:
                caught.append(error)
                raise failure_of(error, allow_retries=False) from error
            except Exception as error:
                caught.append(error)
                raise unexpected(error) from None
            except BaseException as error:
                caught.append(error)
                raise

        described = f"The command {kind.replace('_', ' ')} of {name}, from a terminal."
        result = execute(
            job_of(
                operation,
                name=f"{name}_{kind}_command",
                source=name,
                kind=kind,
                description=described,
            ),
            name,
            instance=self.instance,
            log_level=self.log_level,
            on_waiting=None if pool is None else on_waiting,
        )
        if caught and isinstance(caught[0], dg.DagsterExecutionInterruptedError):
            raise KeyboardInterrupt from caught[0]
        if caught:
            raise caught[0]
        if not result.success:
            raise RuntimeError(
                f"the run {result.run_id} failed before it began its work; its page in Dagster "
                "shows why"
            )
        return results[0]


class PastRun(FrozenModel):
    """One Dagster run of a source: a capture, a snapshot, a change by hand, maintenance.

    Attributes:
        status: as Dagster names it, in lower case: ``success``, ``failure``, ``started`` ...
        started_at, seconds: None for a run that has not begun; `seconds` to the end, or to now.
    """

    run_id: str
    job: str
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None


def past_runs(instance: dg.DagsterInstance, *, source: str, limit: int) -> list[PastRun]:
    """Newest first."""
    records = instance.get_run_records(dg.RunsFilter(tags={SOURCE_TAG: source}), limit=limit)
    return [_past(record) for record in records]


def _past(record: dg.RunRecord) -> PastRun:
    started, ended = _moment(record.start_time), _moment(record.end_time)
    until = ended or datetime.now(UTC)
    return PastRun(
        run_id=record.dagster_run.run_id,
        job=record.dagster_run.job_name,
        status=record.dagster_run.status.value.lower(),
        created_at=record.create_timestamp,
        started_at=started,
        ended_at=ended,
        seconds=None if started is None else (until - started).total_seconds(),
    )


def _moment(at_s: float | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
