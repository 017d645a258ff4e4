"""Captures and changes of the lake as separate Dagster runs, because only a run's event is a valid
cursor (K3).

Rules:
- Each capture is an ordinary run of the source's job; a change is a run like a person's change of
  the cursor.
- Work between them belongs to no run, so it holds no slot of the source's pool.
- The job of a change is built for one execution and is in no definitions, so nobody can start it
  from Dagster's pages by accident. It takes the slot of the source's pool like a capture, and the
  change itself takes the lake's lock.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import dagster as dg

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.orchestration.assets.capture_asset import pool_name
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.dead_runs import PROCESS_TAG, free_dead_runs, this_process
from cdc_pipeline.orchestration.events.failures import unexpected
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.runs.execute import LoadedSource, execute_capture
from cdc_pipeline.orchestration.translator import SOURCE_TAG
from cdc_pipeline.position.cursor import CursorStore, StoredCursor
from cdc_pipeline.run.observer import RunObserver

T = TypeVar("T")
Work = Callable[[DagsterCursorStore, str], object]
ChangeKind = Literal["set", "rebuild", "replay", "discard", "snapshot", "repair", "reset"]


class SourceRuns:
    """Starts runs of one source; `kind`: of its changes. See `operations.runs.Runs`."""

    def __init__(
        self,
        loaded: LoadedSource,
        config: PipelineConfig,
        *,
        instance: dg.DagsterInstance,
        kind: ChangeKind,
        log_level: str = "CRITICAL",
        on_waiting: Callable[[list[str]], None] | None = None,
    ) -> None:
        self._loaded = loaded
        self._config = config
        self._instance = instance
        self._kind: ChangeKind = kind
        self._log_level = log_level
        self._on_waiting = on_waiting

    def capture(self, bound: Bound, observer: RunObserver) -> None:
        """Run the source's job; raise the error it failed with."""
        run = execute_capture(
            self._loaded,
            instance=self._instance,
            bound=bound,
            observer=observer,
            log_level=self._log_level,
            on_waiting=self._on_waiting,
        )
        if run.error is not None:
            raise run.error

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        """In a run of its own."""
        results: list[T] = []
        execute_cursor_change(
            self._loaded,
            self._config,
            kind=self._kind,
            instance=self._instance,
            work=lambda cursors, run_id: results.append(work(cursors, run_id)),
            log_level=self._log_level,
            on_waiting=self._on_waiting,
        )
        return results[0]

    def cursor(self) -> StoredCursor | None:
        return self._loaded.cursors(self._instance).read()


class DagsterAccess:
    """A source whose cursor is in Dagster (see `cli.common.source_access.SourceAccess`)."""

    def __init__(
        self,
        loaded: LoadedSource,
        config: PipelineConfig,
        *,
        instance: dg.DagsterInstance,
        log_level: str = "CRITICAL",
    ) -> None:
        self.loaded = loaded
        self.instance = instance
        self.cursors = loaded.cursors(instance)
        self._config = config
        self._log_level = log_level

    @property
    def skipped(self) -> tuple[str, ...]:
        """The events that the last read of the cursor passed over."""
        return self.cursors.skipped

    def runs(self, kind: ChangeKind, *, on_waiting: Callable[[list[str]], None]) -> SourceRuns:
        return SourceRuns(
            self.loaded,
            self._config,
            instance=self.instance,
            kind=kind,
            log_level=self._log_level,
            on_waiting=on_waiting,
        )


# No postponed annotations: Dagster refuses a step's own as text.


# Makes the change; called with the store to write through and the run's id.
_COMMANDS: Final[dict[ChangeKind, str]] = {
    "set": "cdc-pipeline cursor set",
    "rebuild": "cdc-pipeline cursor rebuild",
    "replay": "cdc-pipeline quarantine replay",
    "discard": "cdc-pipeline quarantine discard",
    "snapshot": "cdc-pipeline snapshot",
    "repair": "cdc-pipeline verify --repair",
    "reset": "cdc-pipeline reset",
}


def execute_cursor_change(
    loaded: LoadedSource,
    config: PipelineConfig,
    *,
    kind: ChangeKind,
    instance: dg.DagsterInstance,
    work: Work,
    log_level: str = "CRITICAL",
    on_waiting: Callable[[list[str]], None] | None = None,
) -> str:
    """As the job ``<source>_cursor_<kind>``; returns the run's id, raises what `work` raises."""
    caught: list[BaseException] = []

    @dg.op(name=f"{kind}_cursor_of_{loaded.source}", pool=pool_name(loaded.source))
    def change(context: dg.OpExecutionContext) -> None:
        recorder = MaterializationRecorder(context, config, translator=loaded.translator)
        store = DagsterCursorStore(
            context.instance,
            asset_key=loaded.cursor_key,
            source=loaded.source,
            writer=recorder.write_cursor,
        )
        try:
            work(store, context.run_id)
        except CdcError as error:
            caught.append(error)
            raise dg.Failure(description=str(error), allow_retries=False) from error
        except Exception as error:
            caught.append(error)
            raise unexpected(error) from None
        except BaseException as error:
            caught.append(error)
            raise

    @dg.job(
        name=f"{loaded.source}_cursor_{kind}",
        description=f"A manual change of the lake or the cursor of {loaded.source}: "
        f"`{_COMMANDS[kind]}`.",
        executor_def=dg.in_process_executor,
        tags={SOURCE_TAG: loaded.source},
    )
    def job() -> None:
        change()

    _, alive = free_dead_runs(instance, pool=pool_name(loaded.source))
    if alive and on_waiting is not None:
        on_waiting(alive)
    result = job.execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
        tags={PROCESS_TAG: this_process()},
    )
    if caught:
        raise caught[0]
    if not result.success:
        raise RuntimeError(
            f"the run {result.run_id} failed before the change began; its page in Dagster shows why"
        )
    return result.run_id


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
