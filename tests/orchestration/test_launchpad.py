"""What a person finds in the launchpad: an example of every field, each of which works."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster._core.snap.job_snapshot import JobSnap
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap
from dagster_shared.yaml_utils import load_run_config_yaml

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.orchestration import build_definitions
from cdc_pipeline.orchestration.assets.run_config import (
    EXAMPLES,
    CaptureRunConfig,
    launchpad_fields,
)
from tests.support.fake_capture import FakeCapture, cut, write_config, write_cut
from tests.support.project import Project


def _begins_with(job: dg.JobDefinition) -> dict[str, Any]:
    snap = JobSnap.from_job_def(job)
    schema = snap.config_schema_snapshot
    root = schema.get_config_snap(snap.mode_def_snaps[0].root_config_key or "")
    found: dict[str, Any] = load_run_config_yaml(default_values_yaml_from_type_snap(schema, root))
    return found


def test_the_launchpad_begins_with_an_example_of_every_field(
    project: Project, instance: dg.DagsterInstance
) -> None:
    config = write_config(project.jobs, "shop", include=("crm.people", "crm.firms"))
    write_cut(load_config(config).sink.lake_path, cut(batch=1, tables={"crm.people": 1}))
    capture = FakeCapture([cut(batch=1, tables={"shop.orders": 1})])
    job = build_definitions(project.jobs, capture=capture).resolve_job_def("shop_capture")
    begins = _begins_with(job)
    shown = begins["ops"]["capture_shop"]["config"]
    assert set(shown["unused_examples"]) == set(CaptureRunConfig.model_fields) - {"unused_examples"}
    assert shown["unused_examples"]["only_tables"] == ["crm.firms", "crm.people"], "its own"
    place = cut(batch=1, tables={}).cursor.position
    assert shown["unused_examples"]["bound_journal"] == place.journal
    assert shown["unused_examples"]["bound_offset"] == place.offset
    assert job.execute_in_process(instance=instance, run_config=begins).success
    assert (capture.bounds, capture.tables) == ([None], [None]), "examples are not used"


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "bound_offset"])
def test_each_example_works_one_level_higher(name: str) -> None:
    given = {name: EXAMPLES[name]}
    if name == "bound_journal":
        given["bound_offset"] = EXAMPLES["bound_offset"]
    config = CaptureRunConfig(**given)
    assert config.bound() is not None or config.only_tables == ["shop.orders"]


@pytest.mark.parametrize(
    ("executed", "last"),
    [
        ("0-1-100,1-2-7", "0-1-100"),
        (
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7-9,4e11fa47-71ca-11e1-9e33-c80aa9429562:1",
            "9",
        ),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:3", "3"),
    ],
)
def test_the_example_of_a_gtid_is_one_of_the_source(executed: str, last: str) -> None:
    newest = cut(batch=1, tables={})
    cursor = newest.cursor.model_copy(update={"gtid_set": executed})
    fields = launchpad_fields((), newest.model_copy(update={"cursor": cursor}))
    shown = fields["unused_examples"].default_value["bound_gtid"]
    assert shown == (last if "-1-" in last else f"{executed[:36]}:{last}")
