"""What a person finds in the launchpad: an example of every field, each of which works."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster._core.snap.job_snapshot import JobSnap
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap
from dagster_shared.yaml_utils import load_run_config_yaml

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.orchestration.assets.run_config import (
    EXAMPLES,
    CaptureRunConfig,
)
from cdc_pipeline.orchestration.definitions import build_definitions
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
    assert shown["unused_examples"]["until"] == f"{place.journal}:{place.offset}"
    assert job.execute_in_process(instance=instance, run_config=begins).success
    assert (capture.bounds, capture.tables) == ([None], [None]), "examples are not used"


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_works_one_level_higher(name: str) -> None:
    config = CaptureRunConfig(**{name: EXAMPLES[name]})
    assert config.bound() is not None or config.only_tables == ["shop.orders"]


def test_an_end_that_is_not_understood_is_told_by_the_name_of_its_field() -> None:
    with pytest.raises(ConfigError) as caught:
        CaptureRunConfig(until="2026-11-29").bound()  # a time without zone, no GTID of MariaDB
    assert (caught.value.what, caught.value.setting) == ("until cannot be understood", "until")
