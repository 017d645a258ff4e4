"""The asset of a source: one step that captures it, with all tables and the cursor as its outputs.

Rules:
- A capture is the whole source, whichever of its assets are selected: its tables and its cursor
  move together. The run setting `only_tables` catches suspended tables up instead (K4: one table's
  trouble stays its own), and the cursor does not move.
- The command line and the schedule select the cursor alone: Dagster writes an event for each
  selected asset when a run begins, and looks up each of their inputs, so that a source of a
  thousand tables would pay for all of them when nothing is new. A table's materialization is logged
  when the table changes, selected or not; the command line's definitions do not even have them.
- Every output is optional: the run logs what it published, and an output that another step waits
  for logs nothing, so no event appears twice (`recorder.py`).
- A run that leaves tables suspended has done everything else, and then fails, as the command line
  does (K35): the assets that follow have a materialization of it, and are green. With
  `dagster: {fail_on_suspended: false}` it succeeds, unless it was to catch them up. Either way the
  checks `follows` of these tables fail.
- Only errors that an unchanged retry can overcome (`CdcError.retryable`) are retried, at most
  `_RETRIES_MAX` times.
- If another process holds the source's lock (captures of a snapshot or a verification), the run
  waits up to `snapshot.lock_wait_s`: the pool separates only runs of this job.
- A body is one line, `yield from cdc.run(context)` (`definitions.py`, `resource.py`), as that of
  the default is: while it runs, `current_step` tells what it captures.
- A caller in the same process listens for one job execution (`listening`); the asset's body finds
  it through a context variable, so that a project's own definitions need not know about it.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError, LockError, TargetSuspendedError
from cdc_pipeline.lake.storage.lock import wait_for_lock
from cdc_pipeline.orchestration.assets.run_config import CaptureRunConfig, launchpad_fields
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.dead_runs import tag_run
from cdc_pipeline.orchestration.events.failures import failure_of, unexpected
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder, RowCounter
from cdc_pipeline.orchestration.names import port_name
from cdc_pipeline.orchestration.translator import CdcTranslator, pool_name
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.short_cursor import whole_cursor
from cdc_pipeline.run.bounds import bound_text
from cdc_pipeline.run.observer import RelayObserver, RunObserver
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.targets.known_tables import Known, newest_cut

_RETRIES_MAX = 2
_SKIPPED_NAMED_MAX = 100


# As `cdc_pipeline.run.capture.capture.capture`.
Capture = Callable[..., CaptureReport]
ObserverFactory = Callable[[PipelineConfig], RunObserver]


def step_name(source: str) -> str:
    return f"capture_{source}"


def _step_description(config: PipelineConfig) -> str:
    return (
        f"Captures {config.name} up to its bound and merges it into the lake.\n\n"
        f"Without configuration it stops {bound_text(config.bound)}. To set another bound, "
        "give one of:\n\n"
        "- `until`: at an event boundary in a journal, after the transaction with a GTID, before "
        "the first transaction committed after a time, or at end_of_log\n"
        "- `until_transactions`, `until_bytes`, `until_seconds`: at the end of the "
        "transaction that reaches this amount\n\n"
        "`only_tables` catches suspended tables up and does nothing else. `unused_examples` shows "
        "how each field is written, and is ignored."
    )


@dataclass(frozen=True)
class CaptureStep:
    """What the step of a source captures, and how its assets are called; fixed at loading."""

    pipeline: PipelineConfig
    translator: CdcTranslator
    capture: Capture | None
    observer_factory: ObserverFactory | None
    row_counter: RowCounter | None
    retry_wait_s: float

    def run(
        self, context: dg.AssetExecutionContext, environment: Mapping[str, str]
    ) -> Iterator[dg.Output[Any]]:
        """`environment` comes before the variables of the pipeline and of the process."""
        listener = _current_listener()
        listener.report = listener.error = None
        try:
            config = self.pipeline.resolved(environment)
        except CdcError as error:
            listener.error = error
            raise failure_of(error, allow_retries=False) from error
        recorder = MaterializationRecorder(
            context, config, translator=self.translator, row_counter=self.row_counter
        )
        observers: list[RunObserver] = [recorder, listener.observer]
        if self.observer_factory is not None:
            observers.append(self.observer_factory(config))
        run_config = CaptureRunConfig(**context.op_execution_context.op_config)
        cursors, tables = recorder.cursors(), run_config.only_tables or None
        tag_run(context.op_execution_context, config.name, "capture")

        def waits(holder: str) -> None:
            context.log.info(f"waiting for the source's lock: {holder}")
            listener.waits(holder)

        try:
            capture = self.capture
            if capture is None:
                from cdc_pipeline.operations.verify.proved_run import capture_and_prove

                capture = capture_and_prove
            if tables is not None:
                context.log.info(
                    f"this run catches up only {', '.join(tables)}: the cursor does not move"
                )
            report = wait_for_lock(
                lambda: capture(
                    config,
                    cursors=cursors,
                    bound=run_config.bound(),
                    observer=RelayObserver(*observers),
                    run_id=context.run.run_id,
                    tables=tables,
                ),
                wait_s=config.snapshot.lock_wait_s,
                on_waiting=waits,
            )
        except CdcError as error:
            listener.error = error
            failure = self._failure(error, context.op_execution_context.retry_number)
            if not isinstance(error, TargetSuspendedError) or isinstance(
                failure, dg.RetryRequested
            ):
                raise failure from error
            fails = config.dagster.fail_on_suspended or tables is not None
            cursor = _cursor_now(config, cursors)
            if cursor is not None:
                recorder.record_observations(cursor, run_fails=fails)
            if fails:
                raise failure from error
            context.log.error(str(error))
            report = None
        except Exception as error:
            listener.error = error
            raise unexpected(error) from None
        except BaseException as error:
            listener.error = error
            raise
        finally:
            _tell_skipped(context, cursors)
        if report is not None:
            listener.report = report
            if report.cursor is not None:
                decoded_by = str(report.parallel or "")
                recorder.record_observations(report.cursor, decoded_by=decoded_by)
            context.log.info(f"{report.outcome}: {report.reason}")
        yield from recorder.outputs()

    def _failure(self, error: CdcError, retry_number: int) -> Exception:
        waited = isinstance(error, LockError)  # for as long as was asked for
        if error.retryable and not waited and retry_number < _RETRIES_MAX:
            return dg.RetryRequested(max_retries=_RETRIES_MAX, seconds_to_wait=self.retry_wait_s)
        return failure_of(error, allow_retries=False)


Body = Callable[..., Iterator[Any] | None]
_current_step: ContextVar[CaptureStep | None] = ContextVar("cdc_capture_step", default=None)


def current_step() -> CaptureStep | None:
    """None outside of a step's body."""
    return _current_step.get()


def build_assets(
    pipeline: PipelineConfig,
    known: Known,
    *,
    body: Body,
    translator: CdcTranslator,
    name: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    capture: Capture | None = None,
    observer_factory: ObserverFactory | None = None,
    row_counter: RowCounter | None = None,
    retry_wait_s: float = 5,
    with_snapshot: bool = False,
) -> tuple[dg.AssetsDefinition, list[dg.AssetSpec]]:
    """The asset whose `body` captures `pipeline`, and the specs of its upstream tables.

    The asset captures the whole source, even if its definition has no table. With `with_snapshot`
    the tables of a live server come from its snapshot asset too (`snapshot_asset.py`).
    """
    cut, tables = known
    sources = [translator.source_table_spec(pipeline, table, cut) for table in known.sources]
    specs = [
        translator.table_spec(pipeline, table, cut, sources=of_it)
        for table, of_it in tables.items()
    ]
    specs.append(translator.cursor_spec(pipeline, list(tables)))
    upstream = [spec.key for spec in sources]
    if with_snapshot and tables and isinstance(pipeline.source, LiveSourceConfig):
        snapshot_key = translator.snapshot_key(pipeline.name)
        upstream.append(snapshot_key)
        *of_tables, of_cursor = specs
        specs = [*(_after_snapshot(spec, snapshot_key) for spec in of_tables), of_cursor]
    inputs = {port_name("table", *key.path): key for key in upstream}
    outputs = {port_name("asset", *spec.key.path): spec.key for spec in specs}
    step = CaptureStep(
        pipeline=pipeline,
        translator=translator,
        capture=capture,
        observer_factory=observer_factory,
        row_counter=row_counter,
        retry_wait_s=retry_wait_s,
    )

    @dg.op(
        name=name or step_name(pipeline.name),
        description=_step_description(pipeline),
        ins=dict.fromkeys(inputs, dg.In(dg.Nothing)),
        out=dict.fromkeys(outputs, dg.Out(dg.Nothing, is_required=False)),
        config_schema=launchpad_fields(list(tables), cut),
        pool=pool_name(pipeline.name),
        tags=op_tags,
    )
    @functools.wraps(body)
    def capture_step(*args: Any, **resources: Any) -> Iterator[Any]:
        token = _current_step.set(step)
        try:
            yield from body(*args, **resources) or ()
        finally:
            _current_step.reset(token)

    assets = dg.AssetsDefinition(
        node_def=capture_step,
        keys_by_input_name=inputs,
        keys_by_output_name=outputs,
        specs=specs,
        can_subset=True,
    )
    return assets, sources


def _after_snapshot(spec: dg.AssetSpec, snapshot_key: dg.AssetKey) -> dg.AssetSpec:
    """A capture needs no partition of the snapshot, so it maps to none: otherwise Dagster would
    call each table out of date as soon as another one has a new snapshot. (One step has one mapping
    for all tables.)
    """
    mapping = dg.SpecificPartitionsPartitionMapping([])
    return spec.merge_attributes(deps=[dg.AssetDep(snapshot_key, partition_mapping=mapping)])


def _cursor_now(config: PipelineConfig, cursors: DagsterCursorStore) -> CursorState | None:
    """As a run has left it; None if it is not that of the newest cut."""
    stored, cut = cursors.read(), newest_cut(config)
    return None if stored is None or cut is None else whole_cursor(stored, cut.cursor)


def _tell_skipped(context: dg.AssetExecutionContext, cursors: DagsterCursorStore) -> None:
    """In the run's log and in an observation of the cursor asset (K3)."""
    if not cursors.skipped:
        return
    for note in cursors.skipped:
        context.log.warning(f"ignored the cursor asset's {note}")
    context.log_event(
        dg.AssetObservation(
            cursors.asset_key,
            description=f"{len(cursors.skipped)} events that are not valid cursors were ignored",
            metadata={"events_passed_over": list(cursors.skipped[:_SKIPPED_NAMED_MAX])},
        )
    )


@dataclass
class Listener:
    """The caller's callbacks, and report or error; `waits` gets who holds the source's lock."""

    observer: RunObserver = field(default_factory=RunObserver)
    waits: Callable[[str], None] = lambda _: None
    report: CaptureReport | None = None
    error: BaseException | None = None


_listener: ContextVar[Listener | None] = ContextVar("cdc_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """Pass captures that run inside this block to `listener`."""
    token = _listener.set(listener)
    try:
        yield listener
    finally:
        _listener.reset(token)


def _current_listener() -> Listener:
    """A no-op one outside `listening`."""
    return _listener.get() or Listener()
