"""``cdc-pipeline cuts`` and ``maintain``, and maintenance as a Dagster job: what needs no JVM."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import ConfigMistakes
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.definitions import build_definitions, only_source
from cdc_pipeline.orchestration.jobs.maintenance_job import metadata_of
from cdc_pipeline.sink.maintain.maintenance import TableMaintenance
from tests.sink.read.conftest import suspension
from tests.support.fake_capture import cut, write_config, write_cut
from tests.support.project import Project


def _run(project: Project, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--jobs", str(project.jobs), *map(str, arguments)])


def _suspended(made: Cut, table: str) -> Cut:
    target = made.cursor.targets[table].model_copy(update={"suspended": suspension()})
    targets = made.cursor.targets | {table: target}
    return made.model_copy(update={"cursor": made.cursor.model_copy(update={"targets": targets})})


@pytest.fixture
def shop(project: Project) -> Project:
    """Three cuts; items is suspended in the last one."""
    write_config(project.jobs, "shop", include=("shop.*",))
    write_cut(project.lake, cut(batch=1, tables={"shop.orders": 1}))
    write_cut(project.lake, cut(batch=2, tables={"shop.orders": 1, "shop.items": 2}))
    last = _suspended(cut(batch=3, tables={"shop.orders": 3, "shop.items": 2}), "shop.items")
    write_cut(project.lake, last)
    return project


def _json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_list_shows_the_newest_first(shop: Project) -> None:
    found = _json(_run(shop, "cuts", "list", "shop", "--limit", 2, "--json"))
    assert [entry["number"] for entry in found] == [3, 2]
    assert found[0]["suspended"] == {"shop.items": "binlog.000001:777"}
    text = _run(shop, "cuts", "list", "shop", "--limit", 1)
    assert "shop.items" in text.stdout
    assert "2 older cuts not shown" in text.stderr


def test_k4_show_says_where_a_suspended_table_stands(shop: Project) -> None:
    assert "suspended at binlog.000001:777" in _run(shop, "cuts", "show", "shop").stdout
    assert "suspended" not in _run(shop, "cuts", "show", "shop", "2").stdout
    assert _json(_run(shop, "cuts", "show", "shop", "1", "--json"))["tables"].keys() == {
        "shop.orders"
    }


def test_sql_prints_a_view_of_each_table_at_its_version(shop: Project) -> None:
    lines = _run(shop, "cuts", "sql", "shop", "--as-of", "2").stdout.splitlines()
    lake = shop.lake
    assert lines[2:] == [
        f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS "
        f"SELECT * FROM delta.`{lake}/shop/{name}` VERSION AS OF {version};"
        for name, version in (("orders", 11), ("items", 12))
    ]
    held = _json(_run(shop, "cuts", "sql", "shop", "--json"))
    assert (held["cut"], held["suspended"]) == (3, ["shop.items"])
    assert not any("items" in statement for statement in held["statements"])


def test_a_cut_that_is_not_there_is_exit_code_1_with_the_range(shop: Project) -> None:
    result = _run(shop, "cuts", "show", "shop", "9", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["expected"] == "1 to 3"
    assert _run(shop, "cuts", "sql", "crm").exit_code == 2


def test_duckdb_reads_the_same_versions(shop: Project) -> None:
    spark, duckdb = (
        _json(_run(shop, "cuts", "sql", "shop", "--schema", "x", "--dialect", of, "--json"))
        for of in ("spark", "duckdb")
    )
    assert len(spark["statements"]) == len(duckdb["statements"]) + 1, "Spark's SET"
    version = spark["statements"][-1].rpartition(" VERSION AS OF ")[2]
    place = f"file://{shop.lake}/shop/orders"
    assert duckdb["statements"][-1] == (
        'CREATE OR REPLACE VIEW "x"."orders" AS SELECT * FROM '
        f"delta_scan('{place}', version => {version})"
    )


def test_dbt_gets_the_views_with_the_keys_of_their_assets(shop: Project) -> None:
    assert _run(shop, "cuts", "dbt", "shop").exit_code == 2
    (source,) = _json(_run(shop, "cuts", "dbt", "shop", "--schema", "live", "--json"))["sources"]
    assert (source["name"], source["schema"]) == ("shop", "live")
    (table,) = source["tables"]  # items is suspended
    assert table["name"] == "orders"
    assert table["config"]["meta"]["dagster"]["asset_key"] == ["shop", "shop", "orders"]


def test_maintain_finds_a_table_that_is_gone_and_leaves_a_suspended_one(shop: Project) -> None:
    result = _run(shop, "maintain", "shop", "--json")
    assert result.exit_code == 1
    done = {entry["table"]: entry for entry in json.loads(result.stdout)["tables"]}
    assert done["shop.items"]["skipped"].startswith("suspended")
    assert not done["shop.items"]["failed"]
    assert "is gone" in done["shop.orders"]["skipped"]
    assert done["shop.orders"]["failed"]
    unknown = _run(shop, "maintain", "shop", "--table", "shop.nothing")
    assert unknown.exit_code == 2
    assert "shop.orders" in unknown.stderr


def test_maintain_before_the_first_cut_does_nothing(project: Project) -> None:
    write_config(project.jobs, "shop")
    assert _json(_run(project, "maintain", "shop", "--json")) == {
        "source": "shop", "tables": [], "cuts_removed": 0, "spark_started": False,
        "runs_deleted": 0,
    }  # fmt: skip


# -- Dagster ---------------------------------------------------------------------------------------


def test_a_maintenance_job_is_there_where_the_file_asks_for_it(project: Project) -> None:
    write_config(
        project.jobs,
        "shop",
        extra="maintenance: {cron: '0 3 * * *', timezone: Europe/Berlin, enabled: true}\n",
    )
    write_config(project.jobs, "crm", extra="maintenance: {}\n")
    write_config(project.jobs, "hr")
    definitions = build_definitions(project.jobs)
    schedule = definitions.resolve_schedule_def("shop_maintenance_schedule")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 3 * * *", "Europe/Berlin")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    (op,) = definitions.resolve_job_def("crm_maintenance").all_node_defs
    assert isinstance(op, dg.OpDefinition)
    assert op.pool is None, "captures go on beside it"
    with pytest.raises(dg.DagsterInvariantViolationError):
        definitions.resolve_job_def("hr_maintenance")


def test_a_wrong_cron_of_maintenance_keeps_its_path(project: Project) -> None:
    write_config(project.jobs, "shop", extra="maintenance: {cron: 'at night'}\n")
    with only_source("shop"), pytest.raises(ConfigMistakes) as caught:
        build_definitions(project.jobs)
    assert [mistake.path for mistake in caught.value.mistakes] == ["maintenance.cron"]


def test_the_job_observes_every_table_and_fails_with_those_that_failed(shop: Project) -> None:
    write_config(shop.jobs, "shop", include=("shop.*",), extra="maintenance: {}\n")
    job = build_definitions(shop.jobs).resolve_job_def("shop_maintenance")
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not result.success
        (failure,) = [event for event in result.all_events if event.is_step_failure]
        assert failure.step_failure_data.user_failure_data is not None
        assert "shop.orders: a table of the last cut is gone" in str(
            failure.step_failure_data.user_failure_data.description
        )
        observed = {
            table
            for table in ("orders", "items")
            if instance.fetch_observations(dg.AssetKey(["shop", "shop", table]), limit=1).records
        }
    assert observed == {"orders", "items"}


def test_metadata_leaves_out_what_did_not_happen() -> None:
    done = TableMaintenance(
        table="shop.orders", files=3, vacuum="lite", properties={"b": "1", "a": "2"}
    )
    found = metadata_of(done)
    assert found["properties_set"] == ["a", "b"]
    assert found["vacuum"] == dg.MetadataValue.text("lite")
    assert "skipped" not in found
