"""`cdc_assets` and `CdcResource`: a pipeline's assets whose body is one line."""

# No postponed annotations in this module: Dagster refuses those of a body as text.
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline import CdcResource, CdcTranslator, cdc_assets
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.orchestration.resource import CdcResource as Resource
from cdc_pipeline.orchestration.runs.execute import execute_capture, load_source
from tests.orchestration.failures import failure_of
from tests.support.fake_capture import write_config
from tests.support.project import ROOT, Project

JOURNALS = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
CURSOR = dg.AssetKey(["shop", "cursor"])
DEFINITIONS = """\
import dagster as dg
from cdc_pipeline import CdcResource, cdc_assets


@cdc_assets(config={config!r})
def shop(context, cdc: CdcResource):
    yield from cdc.run(context)


defs = dg.Definitions(assets=[shop], resources={{"cdc": CdcResource()}})
"""


def archive(jobs: Path) -> Path:
    """The recorded shop, without a change of a captured table: no JVM is needed."""
    file = jobs / "shop.yaml"
    file.write_text(
        "source: {kind: archive, directory: '${JOURNALS}'}\n"
        "tables: {include: [shop.not_there], allow_empty: true}\n"
        "sink: {lake_path: ../lake}\n"
    )
    return file


def assets_of(config: Any, **given: Any) -> dg.AssetsDefinition:
    @cdc_assets(config=config, **given)
    def shop(context: dg.AssetExecutionContext, cdc: Resource) -> Iterator[Any]:
        yield from cdc.run(context)

    return shop


def materialize(
    assets: dg.AssetsDefinition, cdc: CdcResource, instance: dg.DagsterInstance
) -> dg.ExecuteInProcessResult:
    return dg.materialize([assets], resources={"cdc": cdc}, instance=instance, raise_on_error=False)


def test_the_body_captures_with_the_resources_variables(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = assets_of(archive(project.jobs))
    cdc = CdcResource(environment={"JOURNALS": dg.EnvVar("SHOP_JOURNALS")})
    monkeypatch.setenv("SHOP_JOURNALS", str(JOURNALS))
    assert materialize(assets, cdc, instance).success
    assert instance.get_latest_materialization_event(CURSOR) is not None


def test_the_pipeline_may_be_loaded_already(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNALS", str(JOURNALS))
    assets = assets_of(load_config(archive(project.jobs)), name="follow", op_tags={"pool": "x"})
    assert (assets.op.name, assets.op.tags["pool"]) == ("follow", "x")
    assert materialize(assets, CdcResource(), instance).success


def test_a_broken_file_is_an_asset_that_shows_its_mistake(
    project: Project, instance: dg.DagsterInstance
) -> None:
    class Ours(CdcTranslator):
        def cursor_key(self, source: str) -> dg.AssetKey:
            return dg.AssetKey(["ours", source])

    assets = assets_of(
        write_config(project.jobs, "shop", extra="colour: blue\n"), translator=Ours()
    )
    (spec,) = assets.specs
    assert spec.key == dg.AssetKey(["ours", "shop"])
    assert "no such setting" in str(spec.description)
    failure = failure_of(materialize(assets, CdcResource(), instance))
    assert "line 9, column 1: colour: no such setting" in str(failure.description)


def test_the_command_line_runs_what_the_decorator_defines(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNALS", str(JOURNALS))
    text = DEFINITIONS.format(config=str(archive(project.jobs)))
    (project.jobs / "definitions.py").write_text(text)
    run = execute_capture(load_source(project.jobs, "shop"), instance=instance)
    assert run.succeeded, run.error
    assert instance.get_latest_materialization_event(CURSOR) is not None


def test_run_outside_of_a_body_says_where_it_belongs(instance: dg.DagsterInstance) -> None:
    with pytest.raises(ConfigError, match="outside the assets of a pipeline"):
        list(CdcResource().run(dg.build_asset_context(instance=instance)))
