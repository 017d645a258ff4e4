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

# No postponed annotations: Dagster refuses a step's own as text.

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import dagster as dg

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.orchestration.assets.capture_asset import pool_name
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.events.failures import failure_of, unexpected
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.runs.execute import LoadedSource, execute, execute_capture, stopped
from cdc_pipeline.orchestration.translator import SOURCE_TAG
from cdc_pipeline.position.cursor import CursorStore, StoredCursor
from cdc_pipeline.run.observer import RunObserver

T = TypeVar("T")
ChangeKind = Literal["set", "rebuild", "replay", "discard", "snapshot", "repair", "reset"]
_COMMANDS: Final[dict[ChangeKind, str]] = {
    "set": "cdc-pipeline cursor set",
    "rebuild": "cdc-pipeline cursor rebuild",
    "replay": "cdc-pipeline quarantine replay",
    "discard": "cdc-pipeline quarantine discard",
    "snapshot": "cdc-pipeline snapshot",
    "repair": "cdc-pipeline verify --repair",
    "reset": "cdc-pipeline reset",
}


@dataclass
class DagsterAccess:
    """A source whose cursor is in Dagster (see `cli.common.source_access.SourceAccess`)."""

    loaded: LoadedSource
    config: PipelineConfig
    instance: dg.DagsterInstance
    log_level: str = "CRITICAL"

    def __post_init__(self) -> None:
        self.cursors = self.loaded.cursors(self.instance)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The events that the last read of the cursor passed over."""
        return self.cursors.skipped

    def runs(
        self, kind: ChangeKind, *, on_waiting: Callable[[list[str]], None] | None = None
    ) -> "SourceRuns":
        return SourceRuns(self, kind, on_waiting)


@dataclass(frozen=True)
class SourceRuns:
    """Starts runs of one source; `kind`: of its changes. See `operations.runs.Runs`."""

    access: DagsterAccess
    kind: ChangeKind
    on_waiting: Callable[[list[str]], None] | None = None

    def capture(self, bound: Bound, observer: RunObserver) -> None:
        """Run the source's job; raise the error it failed with."""
        run = execute_capture(
            self.access.loaded,
            instance=self.access.instance,
            bound=bound,
            observer=observer,
            log_level=self.access.log_level,
            on_waiting=self.on_waiting,
        )
        if run.error is not None:
            raise run.error

    def cursor(self) -> StoredCursor | None:
        return self.access.cursors.read()

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        """In a run of its own, the job ``<source>_cursor_<kind>``."""
        loaded, config = self.access.loaded, self.access.config
        results: list[T] = []
        caught: list[BaseException] = []

        @dg.op(name=f"{self.kind}_cursor_of_{loaded.source}", pool=pool_name(loaded.source))
        def change(context: dg.OpExecutionContext) -> None:
            recorder = MaterializationRecorder(context, config, translator=loaded.translator)
            store = DagsterCursorStore(
                context.instance,
                asset_key=loaded.cursor_key,
                source=loaded.source,
                writer=recorder.write_cursor,
            )
            try:
                results.append(work(store, context.run_id))
            except CdcError as error:
                caught.append(error)
                raise failure_of(error, allow_retries=False) from error
            except Exception as error:
                caught.append(error)
                raise unexpected(error) from None
            except BaseException as error:
                caught.append(error)
                raise

        @dg.job(
            name=f"{loaded.source}_cursor_{self.kind}",
            description=f"A manual change of the lake or the cursor of {loaded.source}: "
            f"`{_COMMANDS[self.kind]}`.",
            executor_def=dg.in_process_executor,
            tags={SOURCE_TAG: loaded.source},
        )
        def job() -> None:
            change()

        result = execute(
            job,
            loaded.source,
            instance=self.access.instance,
            log_level=self.access.log_level,
            on_waiting=self.on_waiting,
        )
        if caught and isinstance(caught[0], dg.DagsterExecutionInterruptedError):
            raise stopped()
        if caught:
            raise caught[0]
        if not result.success:
            raise RuntimeError(
                f"the run {result.run_id} failed before the change began; its page in Dagster "
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
