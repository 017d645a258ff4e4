"""Definitions of pipelines beside those of others: nothing of ours decides for a whole code
location."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from cdc_pipeline import CdcResource, build_definitions, cdc_assets
from cdc_pipeline.orchestration.translator import SOURCE_TAG
from tests.support.dagster_runs import stored_run
from tests.support.fake_capture import FakeCapture, cut, write_config
from tests.support.project import Project

MAINTAINED = "maintenance: {cron: '@daily'}\nschedule: {cron: '@hourly'}\n"


class Database(dg.ConfigurableResource[Any]):
    url: str


@dg.asset(deps=[dg.AssetKey(["shop", "shop", "orders"])])
def report(cdc: Database) -> str:
    return cdc.url


@dg.executor(name="theirs", requirements=[])
def their_executor(init_context: dg.InitExecutorContext) -> Any:
    return dg.in_process_executor.executor_creation_fn(init_context)  # type: ignore[misc]


def _theirs() -> dg.Definitions:
    return dg.Definitions(
        assets=[report],
        jobs=[dg.define_asset_job("reports", selection=[report])],
        resources={"cdc": Database(url="their://database"), "io_manager": dg.mem_io_manager},
        executor=their_executor,
        loggers={"console": dg.colored_console_logger},
    )


def test_ours_bring_neither_executor_nor_resources_nor_loggers(project: Project) -> None:
    write_config(project.jobs, "shop", extra=MAINTAINED)
    write_config(project.jobs, "crm", extra="colour: blue\n")
    ours = build_definitions(project.jobs)
    assert ours.executor is None
    assert not ours.resources
    assert not ours.loggers


def test_ours_and_theirs_run_in_one_code_location(
    project: Project, instance: dg.DagsterInstance
) -> None:
    write_config(project.jobs, "shop", extra=MAINTAINED)
    ours = build_definitions(
        project.jobs,
        capture=FakeCapture([cut(batch=1, tables={"shop.orders": 1})]),
        row_counter=lambda *_: 7,
    )
    merged = dg.Definitions.merge(ours, _theirs())
    dg.Definitions.validate_loadable(merged)
    executors = {
        job.name: job.executor_def.name
        for job in merged.get_repository_def().get_all_jobs()
        if not job.name.startswith("__")
    }
    assert executors == {
        "shop_capture": "in_process",
        "shop_checks": "in_process",
        "shop_erase": "in_process",
        "shop_maintenance": "in_process",
        "shop_plan": "in_process",
        "reports": "theirs",
    }
    for job in ("shop_capture", "reports"):
        assert merged.resolve_job_def(job).execute_in_process(instance=instance).success
    both = merged.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey(["shop", "cursor"]), report.key]
    )
    run = stored_run(instance, both.run_id)
    assert SOURCE_TAG not in run.tags, "a run of theirs is not ours to delete"
    parents = merged.resolve_asset_graph().get(report.key).parent_keys
    assert parents == {dg.AssetKey(["shop", "shop", "orders"])}


def test_two_folders_of_pipelines_and_a_decorated_one_are_merged(project: Project) -> None:
    for folder, source in (("east", "shop"), ("west", "crm")):
        write_config(project.root / folder, source, include=(f"{source}.a",))
    file = write_config(project.root / "own", "erp", include=("erp.a",))

    @cdc_assets(config=file)
    def erp(context: dg.AssetExecutionContext, capturing: CdcResource) -> Iterator[Any]:
        yield from capturing.run(context)

    merged = dg.Definitions.merge(
        build_definitions(project.root / "east"),
        build_definitions(project.root / "west"),
        dg.Definitions(assets=[erp], resources={"capturing": CdcResource()}),
        _theirs(),
    )
    dg.Definitions.validate_loadable(merged)
    keys = {spec.key.to_user_string() for spec in merged.resolve_all_asset_specs()}
    assert {"shop/shop/a", "crm/crm/a", "erp/erp/a", "report"} <= keys
