"""Maintenance of a source's tables as a Dagster job with its own schedule.

Rules:
- It exists if the YAML file has a section ``maintenance``; its schedule, if that section has a
  ``cron``.
- It takes no slot of the source's pool: captures continue meanwhile, and the lake's locks protect
  both.
- The work on each table is an observation of its asset. A failed table fails the run, but only
  after all others are done.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.orchestration.events.failures import failing_step, resolved
from cdc_pipeline.orchestration.jobs.run_retention import delete_old_runs
from cdc_pipeline.orchestration.jobs.schedules import schedule_of
from cdc_pipeline.orchestration.metadata import shown
from cdc_pipeline.orchestration.translator import CdcTranslator, job_of, run_tags

if TYPE_CHECKING:
    from cdc_pipeline.sink.maintain.maintenance import TableMaintenance


def build_maintenance(
    pipeline: PipelineConfig, *, translator: CdcTranslator
) -> tuple[dg.JobDefinition | None, dg.ScheduleDefinition | None]:
    """None for each that the configuration does not request."""
    settings = pipeline.maintenance
    if settings is None:
        return None, None
    name, tags = f"{pipeline.name}_maintenance", run_tags(pipeline.name, "maintenance")
    description = (
        f"Compacts and vacuums the tables of {pipeline.name} when the figures in their logs "
        "show that it pays off, and sets their retention to `sink.cut_retention`. May run "
        "beside a capture."
    )

    @dg.op(name=f"maintain_{pipeline.name}", description=description)
    def maintain_step(context: dg.OpExecutionContext) -> None:
        # Imported late: definitions are loaded often and need none of this.
        from cdc_pipeline.sink.maintain.maintenance import maintain
        from cdc_pipeline.sink.read.cuts import paths_of

        def observed(done: "TableMaintenance") -> None:
            context.log_event(
                dg.AssetObservation(
                    translator.table_key(pipeline.name, done.table), metadata=metadata_of(done)
                )
            )

        sink = resolved(pipeline).sink
        with failing_step(sink.lake_path):
            report = maintain(
                paths_of(sink.lake_path, pipeline.name), sink, settings, on_table=observed
            )
        runs_deleted = delete_old_runs(
            context.instance,
            source=pipeline.name,
            retention=settings.run_retention,
            translator=translator,
        )
        context.add_output_metadata(
            {
                "runs_deleted": runs_deleted,
                "tables": len(report.tables),
                "compacted": sum(done.optimized for done in report.tables),
                "vacuumed": sum(bool(done.vacuum) for done in report.tables),
                "cuts_removed": report.cuts_removed,
                "spark_started": report.spark_started,
            }
        )
        if report.failed:
            listing = "\n".join(
                f"{done.table}: {done.skipped}" for done in report.tables if done.failed
            )
            raise dg.Failure(
                description=f"maintenance failed for {len(report.failed)} tables:\n{listing}"
            )

    job = job_of(maintain_step, name=name, source=pipeline.name, kind="maintenance")
    described = f"Maintains the tables of {pipeline.name}."
    return job, schedule_of(settings, job_name=name, tags=tags, description=described)


def metadata_of(done: "TableMaintenance") -> dict[str, Any]:
    entries = done.model_dump(exclude={"table", "properties"})
    return {name: shown(name, value) for name, value in entries.items() if value != ""} | {
        "properties_set": sorted(done.properties)
    }
