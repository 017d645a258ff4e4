"""A live server in Dagster: comments and types of its columns, what it keeps, and loads that were
started on the command line."""

from __future__ import annotations

import socket

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.errors import MergeError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.long_operations import operations_of
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.runs.execute import execute_capture, load_source
from cdc_pipeline.orchestration.runs.source_runs import DagsterAccess
from cdc_pipeline.orchestration.translator import run_tags
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.wiring import build_lake_cursors
from tests.orchestration.failures import failure_of
from tests.servers.server import Server
from tests.support.captures import memory as memory
from tests.support.dagster_runs import killed_run, last_event, stored_run
from tests.support.kills import AtPoint
from tests.support.project import Project, follow_server


def _run(project: Project, *arguments: str) -> None:
    done = CliRunner().invoke(cli, ["--jobs", str(project.jobs), *arguments])
    assert done.exit_code == 0, done.output


def test_a_table_shows_the_servers_types_and_comments_and_how_long_the_log_is_kept(
    project: Project, disk_instance: dg.DagsterInstance, mysql_server: Server, mysql_database: str
) -> None:
    follow_server(project, mysql_server, f"{mysql_database}.orders")
    _run(project, "run", "shop")
    mysql_server.execute(
        f"CREATE TABLE `{mysql_database}`.orders (id INT UNSIGNED PRIMARY KEY, note VARCHAR(40) "
        "COMMENT 'what the customer said')"
    )
    mysql_server.execute(f"INSERT INTO `{mysql_database}`.orders VALUES (1, 'soon')")
    _run(project, "run", "shop")
    event = last_event(disk_instance, dg.AssetKey(["shop", mysql_database, "orders"]))
    schema = event.metadata["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    key, note = schema.columns[:2]
    assert key.constraints.nullable, "as it is in Delta"
    assert key.constraints.other == ["key", "at the source int unsigned"]
    assert (note.description, note.constraints.other) == (
        "what the customer said",
        ["at the source varchar(40)"],
    )
    _run(project, "run", "shop")
    (seen,) = disk_instance.fetch_observations(
        dg.AssetKey(["shop", "source", mysql_database, "orders"]), limit=1
    ).records
    assert seen.asset_observation is not None
    metadata = {name: value.value for name, value in seen.asset_observation.metadata.items()}
    kept_s = int(mysql_server.query("SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0])
    assert 0 < metadata["retention_headroom_seconds"] <= kept_s
    assert metadata["lag_seconds"] >= 0


@pytest.mark.usefixtures("memory")
def test_f94_a_saved_pattern_has_its_tables_and_a_first_snapshot_before_any_run(
    project: Project,
    disk_instance: dg.DagsterInstance,
    mysql_server: Server,
    mysql_database: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Definitions ask no server: none can be reached while they load. A damaged file leaves them to
    the rest, and the command that is then named writes it again (K22)."""
    names = [f"{mysql_database}.{table}" for table in ("lines", "orders")]
    for name in names:
        mysql_server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        mysql_server.execute(f"INSERT INTO {name} VALUES (1), (2)")
    follow_server(project, mysql_server, f"{mysql_database}.*")
    key = dg.AssetKey(["shop", "snapshot"])
    (project.jobs / "shop.tables.json").write_text('["shop.orders"')
    assert key not in build_definitions(project.jobs).resolve_asset_graph().get_all_asset_keys()
    assert "`cdc-pipeline discover shop --save` writes it again" in caplog.text
    _run(project, "discover", "shop", "--save")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", None)
        definitions = build_definitions(project.jobs)
        graph = definitions.resolve_asset_graph()
    assert {dg.AssetKey(["shop", *name.split(".")]) for name in names} <= (
        graph.get_all_asset_keys()
    )
    done = definitions.resolve_job_def("shop_snapshot").execute_in_process(
        instance=disk_instance,
        tags={
            "dagster/asset_partition_range_start": names[0],
            "dagster/asset_partition_range_end": names[1],
        },
    )
    assert done.success
    assert disk_instance.get_materialized_partitions(key) == set(names)
    lacking = definitions.resolve_job_def("shop_snapshot").execute_in_process(
        instance=disk_instance, raise_on_error=False
    )
    assert "a snapshot needs partitions" in str(failure_of(lacking).description)


@pytest.mark.usefixtures("memory")
def test_k17_f246_a_snapshot_that_is_executed_again_goes_on_also_if_it_was_to_restart(
    project: Project, disk_instance: dg.DagsterInstance, mysql_server: Server, mysql_database: str
) -> None:
    """By a person, and by Dagster's retries of a run that died: the configuration is the same."""
    name = f"{mysql_database}.orders"
    mysql_server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    mysql_server.execute(f"INSERT INTO {name} VALUES (1), (2)")
    follow_server(project, mysql_server, name)
    config = load_config(project.jobs / "shop.yaml")
    job = build_definitions(project.jobs).resolve_job_def("shop_snapshot")

    def run_after(parent: dg.DagsterRun | None) -> dg.DagsterRun:
        run = disk_instance.create_run_for_job(
            job,
            run_config={"ops": {"snapshot_shop": {"config": {"restart": True}}}},
            tags={**(parent.tags if parent is not None else {}), "dagster/partition": name},
            root_run_id=None if parent is None else parent.run_id,
            parent_run_id=None if parent is None else parent.run_id,
        )
        execute_run(InMemoryJob(job), run, disk_instance)
        return stored_run(disk_instance, run.run_id)

    def stop() -> None:
        raise MergeError("stopped")

    def unfinished() -> list[str]:
        return [operation.operation_id for operation in operations_of(config, None)]

    with listening(AtPoint("snapshot_read", stop)):
        first = run_after(None)
    (begun,) = unfinished()
    with listening(AtPoint("snapshot_read", stop)):
        again = run_after(first)
    assert unfinished() == [begun]
    with listening(AtPoint("snapshot_read", stop)):
        run_after(None)
    (begun_anew,) = unfinished()
    assert begun_anew != begun
    assert run_after(again).status is dg.DagsterRunStatus.SUCCESS, "which gives that up"
    assert not unfinished()


@pytest.mark.usefixtures("memory")
def test_f93_an_operation_is_one_run_that_names_its_source_and_kind(
    project: Project, disk_instance: dg.DagsterInstance, mysql_server: Server, mysql_database: str
) -> None:
    """Its captures are in it. *Materialize*, checks of a page and a killed command's run too."""
    name = f"{mysql_database}.orders"
    mysql_server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    mysql_server.execute(f"INSERT INTO {name} VALUES (1), (2)")
    follow_server(project, mysql_server, name)
    loaded, config = load_source(project.jobs, "shop"), load_config(project.jobs / "shop.yaml")
    access = DagsterAccess(loaded, config, disk_instance)
    access.operate("snapshot", lambda run: take_snapshot(config, **run))
    access.operate("verify", lambda run: capture(config, bound="end_of_log", **run))
    definitions = build_definitions(project.jobs)
    assets = definitions.resolve_implicit_global_asset_job_def()
    snapshot_key, cursor_key = dg.AssetKey(["shop", "snapshot"]), dg.AssetKey(["shop", "cursor"])
    assets.execute_in_process(
        instance=disk_instance, asset_selection=[snapshot_key], partition_key=name
    )
    assets.execute_in_process(instance=disk_instance, asset_selection=[cursor_key])
    checks = dg.AssetSelection.checks(dg.AssetCheckKey(cursor_key, "lag"))
    own = dg.asset_check(asset=cursor_key, name="own")(lambda: dg.AssetCheckResult(passed=True))
    both = checks | dg.AssetSelection.checks(dg.AssetCheckKey(cursor_key, "own"))
    jobs = [dg.define_asset_job("theirs", checks), dg.define_asset_job("with_own_check", both)]
    merged = dg.Definitions.merge(definitions, dg.Definitions(jobs=jobs, asset_checks=[own]))
    for job in ("theirs", "with_own_check"):
        merged.resolve_job_def(job).execute_in_process(instance=disk_instance)
    runs = [
        (run.job_name.strip("_"), run.tags.get("cdc/source"), run.tags.get("cdc/kind"))
        for run in reversed(disk_instance.get_runs())
    ]
    assert runs == [
        ("shop_snapshot_command", "shop", "snapshot"),
        ("shop_verify_command", "shop", "verify"),
        ("ASSET_JOB", "shop", "snapshot"),
        ("ASSET_JOB", "shop", "capture"),
        ("theirs", "shop", "verify"),
        ("with_own_check", None, None),
    ]
    killed = killed_run(disk_instance, loaded.job)
    disk_instance.add_run_tags(killed.run_id, run_tags("shop", "snapshot"))
    assert execute_capture(loaded, instance=disk_instance).succeeded
    ended = stored_run(disk_instance, killed.run_id)
    assert ended.status is dg.DagsterRunStatus.FAILURE


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("has_other", [False, True])
def test_k3_f174_f193_whatever_comes_first_in_dagster_goes_on_from_the_cursor_in_the_lake(
    project: Project,
    disk_instance: dg.DagsterInstance,
    mysql_server: Server,
    mysql_database: str,
    has_other: bool,
) -> None:
    """Runs without Dagster, or with another instance of it, have seen no change yet: there is no
    cut to rebuild a cursor from."""
    first, second = f"{mysql_database}.first", f"{mysql_database}.second"
    mysql_server.execute(f"CREATE TABLE {first} (id INT PRIMARY KEY)")
    follow_server(project, mysql_server, f"{mysql_database}.*")
    loaded, config = load_source(project.jobs, "shop"), load_config(project.jobs / "shop.yaml")
    if has_other:
        with dg.DagsterInstance.ephemeral() as other:
            assert execute_capture(loaded, instance=other).succeeded
    else:
        capture(config, cursors=build_lake_cursors(config))
    mysql_server.execute(f"CREATE TABLE {second} (id INT PRIMARY KEY)")
    mysql_server.execute(f"INSERT INTO {second} VALUES (1), (2)")
    access = DagsterAccess(loaded, config, disk_instance)
    found = access.cursors.read()
    access.operate("snapshot", lambda run: take_snapshot(config, tables=[first], **run))
    assert execute_capture(loaded, instance=disk_instance).succeeded
    cursor = access.cursors.read()
    assert isinstance(cursor, CursorState)
    assert sorted(cursor.targets) == [first, second], "it was created in the log that was read"
    assert not cursor.targets[second].partial
    assert found == build_lake_cursors(config).read()


@pytest.mark.whole
@pytest.mark.spark
def test_a_load_of_the_command_line_counts_for_the_snapshots_partitions(
    project: Project, disk_instance: dg.DagsterInstance, mysql_server: Server, mysql_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE `{mysql_database}`.orders (id INT PRIMARY KEY)")
    mysql_server.execute(f"INSERT INTO `{mysql_database}`.orders VALUES (1), (2)")
    follow_server(project, mysql_server, f"{mysql_database}.orders")
    _run(project, "snapshot", "shop")
    name = f"{mysql_database}.orders"
    assert disk_instance.get_materialized_partitions(dg.AssetKey(["shop", "snapshot"])) == {name}
    record = disk_instance.fetch_materializations(
        dg.AssetKey(["shop", "snapshot"]), limit=1
    ).records[0]
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["rows"].value == 2
    assert record.run_id, "of a run of its own"
