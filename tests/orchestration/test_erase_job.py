"""Erasures and new masks from the launchpad: no key is in what Dagster keeps."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from cdc_pipeline.lake.erasures import Certificate, Held
from cdc_pipeline.lake.remasks import RemaskCertificate
from cdc_pipeline.operations.erase import erase, remask
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.position.position import Position
from tests.support.fake_capture import write_config
from tests.support.project import Project

MASKED = 'targets:\n  - {tables: ["shop.*"], masks: {note: drop}}\n'


def test_an_erasure_reads_its_keys_from_a_file_and_keeps_none(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",))
    asked: list[Any] = []

    def done(_config: Any, request: Any, **_run: Any) -> Certificate:
        asked.append(request)
        return Certificate(erasure_id="e", source="shop", table="shop.person", keys=1,
                           until=Position("binlog.000001", 4), removed={}, held=(
                               Held(what="log", where="x", why="y"),))  # fmt: skip

    monkeypatch.setattr(erase, "erase", done)
    keys = project.root / "keys.jsonl"
    keys.write_text('{"id": "secret-7"}\n')
    job = build_definitions(project.jobs).resolve_job_def("shop_erase")
    given = {"table": "shop.person", "keys_file": str(keys), "reason": "asked for"}
    config = {"ops": {"erase_shop": {"config": given}}}
    result = job.execute_in_process(instance=instance, run_config=config)
    assert result.success
    assert asked[0].keys == ({"id": "secret-7"},)
    assert (asked[0].why, asked[0].who) == ("asked for", f"Dagster run {result.run_id}")
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert (run.tags["cdc/source"], run.tags["cdc/kind"]) == ("shop", "erase")
    kept = [str(run.run_config), *(str(entry) for entry in instance.all_logs(result.run_id))]
    assert not [text for text in kept if "secret-7" in text]
    keys.write_text("[]\n")
    wrong = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    assert "line 1 is no JSON object" in str(wrong.all_events)


def test_new_masks_are_a_job_where_a_rule_has_masks(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",), extra=MASKED)
    write_config(project.jobs, "crm", include=("crm.*",))
    asked: list[Any] = []

    def done(_config: Any, request: Any, **_run: Any) -> RemaskCertificate:
        asked.append(request)
        return RemaskCertificate(remask_id="r", source="shop", table="shop.person", masks={})

    monkeypatch.setattr(remask, "remask", done)
    definitions = build_definitions(project.jobs)
    jobs = {job.name for job in definitions.get_repository_def().get_all_jobs()}
    assert {"shop_remask", "shop_erase", "crm_erase"} <= jobs
    assert "crm_remask" not in jobs
    config = {"ops": {"remask_shop": {"config": {"table": "shop.person", "rebuild": True}}}}
    job = definitions.resolve_job_def("shop_remask")
    result = job.execute_in_process(instance=instance, run_config=config)
    assert (asked[0].from_log, asked[0].without_past) == (True, False)
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags["cdc/kind"] == "remask"
