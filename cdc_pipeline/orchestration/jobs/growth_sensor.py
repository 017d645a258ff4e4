"""A sensor that starts a capture when the source's log has grown, or is about to be purged.

Rules:
- It asks the server for a plan, as `cdc-pipeline plan` does, and writes nothing.
- It starts nothing while a capture is queued or running, unless its process is gone: also where it
  has named none, but the slot that it waited for is free.
- Nor does it if nothing is unread: little headroom with nothing to read means that a suspended
  table is behind, which a run alone does not change.
- A batch that a killed run has recorded is a reason, too: the log need not grow again.
- A server that does not answer is a skipped tick with the error. What a retry does not cure starts
  a run, which fails where people look, unless the newest one has failed already.
"""

from __future__ import annotations

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.orchestration.cursor_store import cursors_of
from cdc_pipeline.orchestration.dead_runs import free_dead_runs, pool_of
from cdc_pipeline.orchestration.translator import CdcTranslator, run_tags


def sensor_name(source: str) -> str:
    return f"{source}_log_growth"


def build_growth_sensor(
    pipeline: PipelineConfig, *, translator: CdcTranslator
) -> dg.SensorDefinition | None:
    """None for an archive, whose files have no server that purges them."""
    if not isinstance(pipeline.source, LiveSourceConfig):
        return None
    settings, tags = pipeline.dagster.sensor, run_tags(pipeline.name, "capture")
    job_name = translator.job_name(pipeline.name)
    cursor_key = translator.cursor_key(pipeline.name)

    def evaluate(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        free_dead_runs(context.instance, source=pipeline.name)
        pool, statuses = pool_of(context.instance, pipeline.name), {*NOT_FINISHED_STATUSES}
        if pool.limit is not None and not pool.claimed_slots:
            statuses.remove(dg.DagsterRunStatus.STARTED)  # dead, or it takes the slot at once
        if context.instance.get_runs_count(dg.RunsFilter(job_name=job_name, statuses=[*statuses])):
            return dg.SkipReason(f"{job_name} is queued or running")
        try:
            config = pipeline.resolved()
            with files_failing(config.sink.lake_path):
                starts, reason = _reason_to_run(config, context.instance, translator)
        except CdcError as error:
            newest = context.instance.get_runs(dg.RunsFilter(job_name=job_name), limit=1)
            has_told = any(run.status is dg.DagsterRunStatus.FAILURE for run in newest)
            starts, reason = not (error.retryable or has_told), str(error)
        if starts:
            context.log.info(reason)
            return dg.RunRequest(asset_selection=[cursor_key], tags=tags)
        return dg.SkipReason(reason)

    return dg.SensorDefinition(
        name=sensor_name(pipeline.name),
        evaluation_fn=evaluate,
        job_name=job_name,
        minimum_interval_seconds=max(1, round(settings.interval_s)),
        default_status=dg.DefaultSensorStatus.RUNNING
        if settings.enabled
        else dg.DefaultSensorStatus.STOPPED,
        description=(
            f"Starts a capture of {pipeline.name} when {settings.unread_bytes:,} bytes of its log "
            f"are unread, or when the server may purge what is needed within "
            f"{settings.headroom.total_seconds() / 3600:g} hours."
        ),
        tags=tags,
    )


def _reason_to_run(
    config: PipelineConfig, instance: dg.DagsterInstance, translator: CdcTranslator
) -> tuple[bool, str]:
    """Whether the log and the cursor are a reason to start a run, and which; raises CdcError if no
    plan can be made."""
    # Imported late: definitions are loaded often and need none of this.
    from cdc_pipeline.operations.verify.checks import check_retention
    from cdc_pipeline.run.plan.planning import plan
    from cdc_pipeline.run.plan.reconcile import reconcile
    from cdc_pipeline.run.wiring import build_sink

    settings = config.dagster.sensor
    cursors = cursors_of(instance, config, translator)
    capture_plan = plan(config, cursors=cursors, bound="end_of_log")
    if capture_plan.unfinished_batch is not None:
        return True, f"batch {capture_plan.unfinished_batch} is recorded but unfinished"
    unread = f"{capture_plan.bytes_between:,} bytes are unread"
    if capture_plan.bytes_between >= settings.unread_bytes:
        return True, unread
    if capture_plan.bytes_between == 0:
        return False, "nothing is unread"
    cursor = reconcile(cursors.read(), build_sink(config).last_cut()).cursor
    retention = check_retention(config, cursor)
    headroom_s = retention.values.get("headroom_s")
    starts = headroom_s is not None and headroom_s < settings.headroom.total_seconds()
    return starts, f"{unread}; {retention.text}"
