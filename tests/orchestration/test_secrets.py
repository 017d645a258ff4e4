"""Secrets are resolved when a run begins: what is unset fails its own run, and what is set is
nowhere in Dagster (K20, K26)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

from cdc_pipeline import CdcResource
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig, read_document
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.runs.execute import execute_capture, load_source
from tests.orchestration.failures import failure_of
from tests.support.dagster_runs import stored_run
from tests.support.fake_capture import FakeCapture, cut, write_config
from tests.support.project import Project

SECRET = "pa55-word/of'the shop"
CUTS = [cut(batch=1, tables={"shop.orders": 1})]
CURSOR = dg.AssetKey(["shop", "cursor"])


def live(jobs: Path, name: str = "shop", *, extra: str = "", **source: str) -> Path:
    settings = {"kind": "live", "host": "db.invalid", "user": "cdc", "password": "${DB_PASSWORD}"}
    file = jobs / f"{name}.yaml"
    file.write_text(
        f"source: {json.dumps(settings | source)}\n"
        f"tables: {{include: [shop.orders]}}\nsink: {{lake_path: ../lake}}\n{extra}"
    )
    return file


class Given(FakeCapture):
    def __init__(self) -> None:
        super().__init__(CUTS)
        self.passwords: list[str] = []

    def __call__(self, config: PipelineConfig, **given: Any) -> Any:
        assert isinstance(config.source, LiveSourceConfig)
        self.passwords.append(config.source.password.get_secret_value())
        return super().__call__(config, **given)


@pytest.mark.parametrize(
    "where",
    [
        "start: {gtid_set: '${NOT_SET}'}\n",
        "bound: {seconds: '${NOT_SET}'}\n",
        "store: {kind: '${NOT_SET}', directory: '${NOT_SET}/x'}\n",
        "batch: {merge_rows: '${NOT_SET}'}\n",
        "accept: {unknown_xa: ['${NOT_SET}']}\n",
        "targets: [{tables: ['*.*'], masks: {note: {hash: {salt: '${NOT_SET}'}}}}]\n",
        "schedule: {cron: '${NOT_SET}'}\n",
        "maintenance: {cron: '${NOT_SET}'}\n",
        "dagster: {owners: ['${NOT_SET}']}\n",
    ],
)
def test_k20_an_unset_variable_fails_the_run_of_its_own_source(
    project: Project, instance: dg.DagsterInstance, where: str
) -> None:
    """K20: the definitions load with the source's own assets; its run names the variable."""
    file = write_config(project.jobs, "shop", extra=where)
    definitions = build_definitions(project.jobs, capture=FakeCapture(CUTS))
    dg.Definitions.validate_loadable(definitions)
    assert dg.AssetKey(["shop", "shop", "orders"]) in {
        spec.key for spec in definitions.resolve_all_asset_specs()
    }
    job = definitions.resolve_job_def("shop_capture")
    failure = failure_of(job.execute_in_process(instance=instance, raise_on_error=False))
    text = str(failure.description)
    assert f" in {file}" in text
    assert "line 9, column " in text
    assert "the environment variable NOT_SET is not set: export it first" in text
    assert "next      export NOT_SET where the program starts" in text
    run = execute_capture(load_source(project.jobs, "shop"), instance=instance)
    assert isinstance(run.error, CdcError)
    assert str(run.error) == text


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("source.directory", "${NOT_SET}/journals"),
        ("source.kind", "${NOT_SET}"),
        ("tables.include", "${NOT_SET}.orders"),
        ("sink.lake_path", "${NOT_SET}"),
        ("sink.lake_path", "s3://${NOT_SET}/lake"),
        ("sink.mode", "${NOT_SET}"),
    ],
)
def test_k20_any_setting_may_be_a_variable_that_is_unset(
    project: Project, instance: dg.DagsterInstance, setting: str, value: str
) -> None:
    content: dict[str, Any] = {
        "source": {"kind": "archive", "directory": "journals"},
        "tables": {"include": ["shop.orders"]},
        "sink": {"lake_path": "../lake"},
    }
    section, name = setting.split(".")
    content[section][name] = [value, "shop.items"] if name == "include" else value
    (project.jobs / "shop.yaml").write_text(json.dumps(content))
    write_config(project.jobs, "crm", include=("crm.people",))
    definitions = build_definitions(project.jobs, capture=FakeCapture(CUTS))
    dg.Definitions.validate_loadable(definitions)
    keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
    assert {"shop/cursor", "crm/crm/people"} <= keys
    assert not [key for key in keys if "NOT_SET" in key], "no asset is named by a reference"
    job = definitions.resolve_job_def("shop_capture")
    failure = failure_of(job.execute_in_process(instance=instance, raise_on_error=False))
    assert "the environment variable NOT_SET is not set" in str(failure.description)


def test_what_dagster_does_not_act_by_is_on_the_cursors_page(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a schedule no run would ever say that its variable is unset."""
    write_config(project.jobs, "shop", extra="schedule: {cron: '${SHOP_CRON}', enabled: true}\n")
    with caplog.at_level(logging.ERROR):
        definitions = build_definitions(project.jobs)
    assert not definitions.schedules
    said = "schedule.cron: the environment variable SHOP_CRON is not set: export it first"
    assert said in caplog.text
    assert definitions.resolve_asset_graph().get(CURSOR).metadata["left_out"].value == said


def test_k26_definitions_hold_references_in_place_of_secrets(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K26: what Dagster keeps in memory and may show is the name of the variable."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    document = read_document(live(project.jobs))
    outlined, resolved = document.outline(), document.outline().resolved()
    for config, password in ((outlined, "${DB_PASSWORD}"), (resolved, SECRET)):
        assert isinstance(config.source, LiveSourceConfig)
        assert config.source.password.get_secret_value() == password
        assert SECRET not in repr(config)


def test_a_variable_that_is_set_later_is_seen_by_the_next_run(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(project.jobs)
    capture = Given()
    job = build_definitions(project.jobs, capture=capture).resolve_job_def("shop_capture")
    assert not job.execute_in_process(instance=instance, raise_on_error=False).success
    for password in ("first", "rotated"):
        monkeypatch.setenv("DB_PASSWORD", password)
        assert job.execute_in_process(instance=instance).success
    assert capture.passwords == ["first", "rotated"]


def test_a_resources_variables_are_for_captures_snapshots_and_checks(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(project.jobs, extra="maintenance: {}\n")
    passwords: list[str] = []

    def take_snapshot(config: PipelineConfig, **_given: Any) -> Any:
        assert isinstance(config.source, LiveSourceConfig)
        passwords.append(config.source.password.get_secret_value())
        raise CdcError("that is enough")

    capture = Given()
    definitions = build_definitions(
        project.jobs,
        resource=CdcResource(environment={"DB_PASSWORD": dg.EnvVar("SALES_PASSWORD")}),
        capture=capture,
        take_snapshot=take_snapshot,
    )

    def failure(job: dg.JobDefinition, **given: Any) -> str:
        result = job.execute_in_process(instance=instance, raise_on_error=False, **given)
        return str(failure_of(result).description)

    checks = dg.Definitions(
        assets=definitions.assets,
        asset_checks=definitions.asset_checks,
        jobs=[
            dg.define_asset_job(
                f"check_{name}",
                selection=dg.AssetSelection.checks(dg.AssetCheckKey(key, name)),
                executor_def=dg.in_process_executor,
            )
            for key, name in ((CURSOR, "lag"), (dg.AssetKey(["shop", "shop", "orders"]), "count"))
        ],
    )
    jobs = {
        "shop_capture": {},
        "shop_snapshot": {"partition_key": "shop.orders"},
        "shop_maintenance": {},
    }
    unset = "the environment variable SALES_PASSWORD is not set: export it first"
    for job, given in jobs.items():
        assert unset in failure(definitions.resolve_job_def(job), **given)
    for job in ("check_lag", "check_count"):
        assert unset in failure(checks.resolve_job_def(job))
    monkeypatch.setenv("SALES_PASSWORD", SECRET)
    assert definitions.resolve_job_def("shop_capture").execute_in_process(instance=instance).success
    assert "that is enough" in failure(
        definitions.resolve_job_def("shop_snapshot"), partition_key="shop.orders"
    )
    for job in ("check_lag", "check_count"):
        assert "db.invalid" in failure(checks.resolve_job_def(job))
    assert (capture.passwords, passwords) == ([SECRET], [SECRET])


@pytest.mark.parametrize("resource", ["process", "EnvVar"])
def test_k26_no_secret_is_in_a_page_an_event_a_run_or_a_repr(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    """K26: what Dagster's pages are made of, and all that an instance keeps of runs."""
    live(project.jobs, host="${DB_HOST}")
    monkeypatch.setenv("DB_HOST", "db.invalid")
    monkeypatch.setenv({"process": "DB_PASSWORD", "EnvVar": "SALES_PASSWORD"}[resource], SECRET)
    given = {"DB_PASSWORD": dg.EnvVar("SALES_PASSWORD")} if resource == "EnvVar" else {}
    cdc = CdcResource(environment=given)
    capture = Given()
    definitions = build_definitions(project.jobs, resource=cdc, capture=capture)
    (shop,) = [one for one in definitions.assets or () if isinstance(one, dg.AssetsDefinition)][:1]
    pages = serialize_value(RepositorySnap.from_def(definitions.get_repository_def()))
    failing = build_definitions(project.jobs, resource=cdc, capture=_fails)
    jobs = [one.resolve_job_def("shop_capture") for one in (definitions, failing)]
    results = [job.execute_in_process(instance=instance, raise_on_error=False) for job in jobs]
    assert [result.success for result in results] == [True, False]
    assert capture.passwords == [SECRET]
    kept = [pages, repr(cdc), str(cdc), repr(cdc.variables()), repr(shop)]
    for result in results:
        run = stored_run(instance, result.run_id)
        kept += [serialize_value(run), repr(run.run_config)]
        kept += [serialize_value(entry) for entry in instance.all_logs(result.run_id)]
        kept.append(serialize_value(instance.get_job_snapshot(str(run.job_snapshot_id))))
    for text in kept:
        assert SECRET not in text
        assert json.dumps(SECRET)[1:-1] not in text
        assert repr(SECRET)[1:-1] not in text


def _fails(config: PipelineConfig, **_given: Any) -> Any:
    raise CdcError(f"the server refuses {config!r}")


def test_k26_dagster_shows_the_names_of_a_resources_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K26: what the launchpad begins with, and what a page of the resource shows."""
    monkeypatch.setenv("REAL", SECRET)
    cdc = CdcResource(environment={"A": dg.EnvVar("REAL"), "B": "${OTHER}"})
    (shown,) = (
        RepositorySnap.from_def(
            dg.Definitions(resources={"cdc": cdc}).get_repository_def()
        ).resources
        or ()
    )
    assert json.loads(str(shown.configured_values["environment"])) == {
        "A": "${REAL}",
        "B": "${OTHER}",
    }
    assert (cdc.variables()["A"], "B" in cdc.variables()) == (SECRET, False)


@pytest.mark.parametrize("value", [SECRET, "", "$NAME", 7, "a ${NAME}"])
def test_k26_a_resource_takes_no_value(value: Any) -> None:
    """K26: Dagster would store it, and show it on the resource's page."""
    with pytest.raises(ConfigError, match=r'write environment={"A": EnvVar\("NAME"\)}') as caught:
        CdcResource(environment={"A": value})
    assert str(value) == "" or str(value) not in str(caught.value)
