"""Alerts: a function of the project is called for each run that failed, and for each asset check
that failed in a run that succeeded.

Rules:
- Each alert is sent once: Dagster's daemon calls a sensor once for each run.
- An alert holds names, places and the texts of errors, and no row value (K26).
"""

# No postponed annotations in this module: Dagster looks at the annotations of a sensor's function.
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import dagster as dg

from cdc_pipeline.orchestration.translator import SOURCE_TAG


@dataclass(frozen=True)
class Alert:
    """What happened.

    Attributes:
        source: the pipeline's name; "" for a run of another one of the project's jobs.
        headline: one line, such as ``shop: follows of shop.orders failed``.
        text: the error, or what the check found.
    """

    source: str
    headline: str
    text: str
    run_id: str


def build_alerts(send: Callable[[Alert], object], *, name: str = "cdc_alerts") -> dg.Definitions:
    """Sensors that call `send` for each alert; merge them with the pipelines' definitions.

    What `send` raises is shown at the sensor's tick; the sensors' names begin with `name`.
    """

    @dg.run_failure_sensor(
        name=f"{name}_runs",
        description="Tells of each run that failed.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def failed_runs(context: dg.RunFailureSensorContext) -> None:
        send(_of_run(context))

    @dg.run_status_sensor(
        name=f"{name}_checks",
        run_status=dg.DagsterRunStatus.SUCCESS,
        description="Tells of each asset check that failed in a run that succeeded, such as `lag`.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def failed_checks(context: dg.RunStatusSensorContext) -> None:
        for alert in _of_checks(context):
            send(alert)

    return dg.Definitions(sensors=[failed_runs, failed_checks])


def _of_run(context: dg.RunFailureSensorContext) -> Alert:
    run = context.dagster_run
    texts = []
    for event in context.get_step_failure_events():
        failure = event.step_failure_data
        described = failure.user_failure_data.description if failure.user_failure_data else None
        texts.append(described or failure.error_display_string)
    return Alert(
        source=run.tags.get(SOURCE_TAG, ""),
        headline=f"{run.job_name}: the run failed",
        text="\n".join(texts) or context.failure_event.message or "",
        run_id=run.run_id,
    )


def _of_checks(context: dg.RunStatusSensorContext) -> Iterator[Alert]:
    run = context.dagster_run
    source = run.tags.get(SOURCE_TAG, "")
    entries = context.instance.all_logs(
        run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    )
    for entry in entries:
        evaluation = entry.get_dagster_event().event_specific_data
        if not isinstance(evaluation, dg.AssetCheckEvaluation) or evaluation.passed:
            continue
        if evaluation.severity is not dg.AssetCheckSeverity.ERROR:
            continue
        asset = ".".join(evaluation.asset_key.path[1:])
        shown = [f"{name}: {value.value}" for name, value in evaluation.metadata.items()]
        yield Alert(
            source=source,
            headline=f"{source}: {evaluation.check_name} of {asset} failed",
            text="\n".join([evaluation.description or "", *shown]),
            run_id=run.run_id,
        )
