"""The plan of the next capture as a job: its result is Markdown on the run's page.

Rules:
- It writes nothing and takes no slot of the source's pool.
- What a server or a file says is escaped: it is data, whatever it contains (K20).
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
from collections.abc import Iterator
from itertools import islice

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.plan_text import plan_rows, target_rows
from cdc_pipeline.orchestration.cursor_store import cursors_of
from cdc_pipeline.orchestration.events.failures import failing_step, resolved
from cdc_pipeline.orchestration.names import markdown
from cdc_pipeline.orchestration.translator import CdcTranslator, job_of
from cdc_pipeline.run.report import CapturePlan

_TABLES_NAMED_MAX = 200


def build_plan_job(pipeline: PipelineConfig, *, translator: CdcTranslator) -> dg.JobDefinition:
    description = (
        f"What the next capture of {pipeline.name} would read, from where and why. It changes "
        "nothing; the plan is metadata of its step."
    )

    @dg.op(name=f"plan_{pipeline.name}", description=description)
    def plan_step(context: dg.OpExecutionContext) -> None:
        from cdc_pipeline.run.plan.planning import plan

        config = resolved(pipeline)
        cursors = cursors_of(context.instance, config, translator)
        with failing_step(config.sink.lake_path):
            made = plan(config, cursors=cursors)
        context.add_output_metadata(
            {
                "plan": dg.MarkdownMetadataValue(
                    plan_text(made, is_live=config.source.kind == "live")
                ),
                "unread_bytes": dg.MetadataValue.int(made.bytes_between),
            }
        )

    return job_of(plan_step, name=f"{pipeline.name}_plan", source=pipeline.name, kind="plan")


def plan_text(plan: CapturePlan, *, is_live: bool = True) -> str:
    return "\n".join(_lines(plan, is_live=is_live))


def _lines(plan: CapturePlan, *, is_live: bool) -> Iterator[str]:
    yield f"### The next capture of {markdown(plan.source)}\n"
    yield "| | |\n|---|---|"
    for label, text in plan_rows(plan, is_live=is_live):
        yield f"| {label} | {_cell(text)} |"
    if plan.targets:
        yield "\n| table | mode | key | |\n|---|---|---|---|"
    for cells in islice(target_rows(plan), _TABLES_NAMED_MAX):
        yield f"| {' | '.join(map(_cell, cells))} |"
    if len(plan.targets) > _TABLES_NAMED_MAX:
        yield f"\n… and {len(plan.targets) - _TABLES_NAMED_MAX:,} more tables"


def _cell(text: str) -> str:
    return markdown(text.replace("\n", " "))
