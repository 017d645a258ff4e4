"""`CdcComponent`: what a folder with a ``defs.yaml`` defines, and what its mistakes break."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from cdc_pipeline import CdcComponent, CdcTranslator
from cdc_pipeline.orchestration.definitions import build_definitions
from tests.orchestration.failures import failure_of
from tests.support.project import Project

# Dagster's own code for components warns of itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning"
)
PIPELINE: dict[str, Any] = {
    "source": {"kind": "archive", "directory": "journals"},
    "tables": {"include": ["shop.orders", "shop.items"]},
    "sink": {"lake_path": "lake"},
}
LIVE = {"kind": "live", "host": "db.invalid", "user": "cdc", "password": "${SHOP_PASSWORD}"}


class Bronze(CdcTranslator):
    def job_name(self, source: str) -> str:
        return f"{source}_bronze"

    def table_key(self, source: str, table: str) -> dg.AssetKey:
        return dg.AssetKey(["bronze", *table.split(".")])


class BronzeComponent(CdcComponent):
    @property
    def translator(self) -> CdcTranslator:
        return Bronze()


@contextmanager
def built(
    attributes: dict[str, Any],
    *,
    folder: str = "shop",
    files: dict[str, str] | None = None,
    component: type[CdcComponent] = CdcComponent,
) -> Iterator[dg.Definitions]:
    with create_defs_folder_sandbox() as sandbox:
        body = {"type": f"{component.__module__}.{component.__name__}", "attributes": attributes}
        path = sandbox.scaffold_component(component, folder, defs_yaml_contents=body)
        for name, text in (files or {}).items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
        with sandbox.load_component_and_build_defs(path) as (_, definitions):
            yield definitions


def _tables(definitions: dg.Definitions) -> set[dg.AssetKey]:
    return {
        spec.key
        for spec in definitions.resolve_all_asset_specs()
        if "dagster/table_name" in spec.metadata
    }


def _keys(*paths: str) -> set[dg.AssetKey]:
    return {dg.AssetKey(path.split("/")) for path in paths}


def test_a_pipeline_in_the_components_own_file() -> None:
    with built({"pipeline": PIPELINE}) as definitions:
        assert _tables(definitions) == _keys("shop/shop/orders", "shop/shop/items")
        assert definitions.resolve_job_def("shop_capture")
    with built({"pipeline": PIPELINE | {"name": "crm"}}) as definitions:
        assert definitions.resolve_job_def("crm_capture")


def test_f93_all_that_a_file_may_say_can_be_in_the_component(project: Project) -> None:
    """As a file of `jobs/`: the same assets, checks, jobs, schedules and sensors."""
    sections = {
        "targets": [{"tables": ["shop.items"], "mode": "changelog"}],
        "schema_changes": "careful",
        "start": {"time": "2026-01-31T08:00:00+00:00"},
        "bound": {"transactions": 7},
        "snapshot": {"lock_wait_s": 7},
        "schedule": {"cron": "*/15 * * * *", "enabled": True},
        "maintenance": {"cron": "0 3 * * *"},
        "dagster": {
            "backfill_from": "2026-01-31",
            "owners": ["team:sales"],
            "sensor": {"enabled": True},
            "checks": {"names": ["lag", "follows"], "cron": "0 * * * *"},
        },
    }
    document = PIPELINE | {"source": LIVE} | sections
    (project.jobs / "shop.yaml").write_text(json.dumps(document))

    def told(definitions: dg.Definitions) -> set[tuple[str, str]]:
        repository = definitions.get_repository_def()
        graph = definitions.resolve_asset_graph()
        assert not any(
            "cannot be loaded" in str(graph.get(key).description)
            for key in graph.get_all_asset_keys()
        )
        return {
            *(("asset", key.to_user_string()) for key in graph.get_all_asset_keys()),
            *(("check", str(key)) for key in graph.asset_check_keys),
            *(("job", name) for name in repository.job_names),
            *(("schedule", one.name) for one in repository.schedule_defs),
            *(("sensor", one.name) for one in repository.sensor_defs),
        }

    with built({"pipeline": document}) as definitions:
        dg.Definitions.validate_loadable(definitions)
        found = told(definitions)
    assert {("job", "shop_backfill"), ("schedule", "shop_maintenance_schedule")} <= found
    assert found == told(build_definitions(project.jobs))


@pytest.mark.parametrize(
    ("folder", "source"), [("my-shop", "my_shop"), ("2024", "source_2024"), ("_x", "source__x")]
)
def test_a_folder_whose_name_is_not_a_sources_still_names_one(folder: str, source: str) -> None:
    with built({"pipeline": PIPELINE}, folder=folder) as definitions:
        assert definitions.resolve_job_def(f"{source}_capture")
        assert definitions.resolve_asset_graph().get(dg.AssetKey([source, "shop", "orders"]))


def test_a_folder_of_pipelines_in_which_one_is_broken() -> None:
    good = "{kind: archive, directory: j}\ntables: {include: [%s.a]}\nsink: {lake_path: lake}\n"
    files = {
        "jobs/crm.yaml": "source: " + good % "crm",
        "jobs/erp.yml": "source: " + good % "erp",
        "jobs/web.yaml": "source: nothing\n",
    }
    with built({"path": "jobs"}, files=files) as definitions:
        dg.Definitions.validate_loadable(definitions)
        assert _tables(definitions) == _keys("crm/crm/a", "erp/erp/a")
        broken = definitions.resolve_asset_graph().get(dg.AssetKey(["web", "cursor"]))
        assert "line 1, column 9" in str(broken.description)


def test_a_mistake_in_the_components_file_has_its_line(
    project: Project, instance: dg.DagsterInstance
) -> None:
    wrong = PIPELINE | {"tables": {"include": "shop.orders"}, "colour": "blue"}
    with built({"pipeline": wrong}) as definitions:
        dg.Definitions.validate_loadable(definitions)
        job = definitions.resolve_job_def("shop_capture")
        failure = failure_of(job.execute_in_process(instance=instance, raise_on_error=False))
    text = str(failure.description)
    assert "2 mistakes in " in text
    # Its file is written in the order of the names.
    assert "line 3, column 5: colour: no such setting" in text
    assert "line 10, column 16: tables.include: got 'shop.orders'; expected a list" in text
    assert "correct the file and run `dg check defs`" in text


@pytest.mark.parametrize("attributes", [{}, {"path": "x.yaml", "pipeline": PIPELINE}])
def test_a_component_without_one_pipeline_says_what_it_takes(attributes: dict[str, Any]) -> None:
    with built(attributes) as definitions:
        broken = definitions.resolve_asset_graph().get(dg.AssetKey(["shop", "cursor"]))
        assert "one of \\`path\\`, a YAML file or a folder of them, and" in str(broken.description)


def test_a_file_that_is_not_there_is_a_source_that_says_so() -> None:
    with built({"path": "nowhere.yaml"}) as definitions:
        broken = definitions.resolve_asset_graph().get(dg.AssetKey(["nowhere", "cursor"]))
        assert "No such file or directory" in str(broken.description)


def test_translation_is_for_delta_tables() -> None:
    translation = {"key": "lake/{{ source }}/{{ schema }}_{{ table }}", "group_name": "sales"}
    with built({"pipeline": PIPELINE, "translation": translation}) as definitions:
        graph = definitions.resolve_asset_graph()
        tables = _keys("lake/shop/shop_orders", "lake/shop/shop_items")
        assert _tables(definitions) == tables
        assert {graph.get(key).group_name for key in tables} == {"sales"}
        cursor = graph.get(dg.AssetKey(["shop", "cursor"]))
        assert cursor.parent_keys == tables
        assert cursor.group_name == "shop"


def test_a_prefix_is_added_once_and_a_translator_of_ones_own_keeps_its_methods() -> None:
    attributes = {"pipeline": PIPELINE, "translation": {"key_prefix": "eu"}}
    with built(attributes, component=BronzeComponent) as definitions:
        assert _tables(definitions) == _keys("eu/bronze/shop/orders", "eu/bronze/shop/items")
        assert definitions.resolve_job_def("shop_bronze")


@pytest.mark.whole
def test_a_run_takes_variables_under_other_names(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The component maps the pipeline's names to the process's; only the run looks them up."""
    attributes = {
        "pipeline": PIPELINE | {"source": LIVE},
        "environment": {"SHOP_PASSWORD": "SALES_DB_PASSWORD"},
    }
    with built(attributes) as definitions:
        job = definitions.resolve_job_def("shop_capture")
        failure = failure_of(job.execute_in_process(instance=instance, raise_on_error=False))
        assert "the environment variable SALES_DB_PASSWORD is not set" in str(failure.description)
        monkeypatch.setenv("SALES_DB_PASSWORD", "not-shown")
        failure = failure_of(job.execute_in_process(instance=instance, raise_on_error=False))
        assert "db.invalid" in str(failure.description)
        assert "not-shown" not in str(failure.description)


@pytest.mark.parametrize("scaffold_format", ["yaml", "python"])
def test_what_the_scaffolder_writes_loads_as_it_is(scaffold_format: Any) -> None:
    with create_defs_folder_sandbox() as sandbox:
        odd = {"host": "db-1", "user": "it's: #1", "tables": 'shop."x"'}
        path = sandbox.scaffold_component(
            CdcComponent, "my-shop", scaffold_params=odd, scaffold_format=scaffold_format
        )
        names = sorted(file.name for file in path.iterdir())
        first = {"yaml": "defs.yaml", "python": "component.py"}[scaffold_format]
        assert names == sorted([first, "my_shop.yaml"])
        with sandbox.load_component_and_build_defs(path) as (_, definitions):
            (cursor,) = [
                spec
                for spec in definitions.resolve_all_asset_specs()
                if spec.key.path == ["my_shop", "cursor"]
            ]
        lake = Path(cursor.metadata["lake"].value)
        assert lake == sandbox.project_root.resolve() / "lake"
