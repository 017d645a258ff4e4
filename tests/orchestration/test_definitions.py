"""What Dagster is told of the pipelines: keys, lineage, metadata, jobs, schedules, and mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from cdc_pipeline.config.pipeline_config import ConfigMistakes, PipelineConfig, load_config
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.assets import capture_asset, check_assets
from cdc_pipeline.orchestration.definitions import build_definitions, only_source
from cdc_pipeline.orchestration.translator import SOURCE_TAG, CdcTranslator
from cdc_pipeline.targets import known_tables
from cdc_pipeline.targets.known_tables import newest_cut
from cdc_pipeline.version import __version__
from tests.support.dagster_runs import killed_run, stored_run
from tests.support.fake_capture import cut, write_config, write_cut
from tests.support.project import ROOT, Project

BACKFILL = "dagster: {backfill_from: 2026-01-01}\n"
_REPOSITORY = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("jobs"), "__repository__")
SCHEDULE = "schedule: {cron: '5 * * * *', timezone: Europe/Berlin, enabled: true}\n"


def _keys(definitions: dg.Definitions) -> set[tuple[str, ...]]:
    return {tuple(spec.key.path) for spec in definitions.resolve_all_asset_specs()}


def test_each_source_has_upstream_tables_delta_tables_and_a_cursor(project: Project) -> None:
    write_config(project.jobs, "shop", include=("shop.orders", "shop.items"))
    write_config(project.jobs, "crm", include=("crm.people",))
    assert _keys(build_definitions(project.jobs)) == {
        ("shop", "source", "shop", "orders"),
        ("shop", "source", "shop", "items"),
        ("shop", "shop", "orders"),
        ("shop", "shop", "items"),
        ("shop", "cursor"),
        ("crm", "source", "crm", "people"),
        ("crm", "crm", "people"),
        ("crm", "cursor"),
    }


def test_lineage_goes_from_upstream_table_to_delta_table_to_cursor(project: Project) -> None:
    write_config(project.jobs, "shop", include=("shop.orders", "shop.items"))
    graph = build_definitions(project.jobs).resolve_asset_graph()
    orders, items, cursor = (
        dg.AssetKey(["shop", *rest]) for rest in (["shop", "orders"], ["shop", "items"], ["cursor"])
    )
    assert graph.get(orders).parent_keys == {dg.AssetKey(["shop", "source", "shop", "orders"])}
    assert graph.get(cursor).parent_keys == {orders, items}
    assert graph.get(orders).kinds == {"deltalake", "spark"}
    assert graph.get(orders).group_name == "shop"
    upstream = graph.get(dg.AssetKey(["shop", "source", "shop", "orders"]))
    assert not upstream.is_materializable
    assert upstream.kinds == {"mysql"}
    assert upstream.group_name == "shop_source"


def test_tables_of_patterns_are_known_from_the_newest_cut(project: Project) -> None:
    write_config(project.jobs, "shop", include=("shop.*",))
    assert _keys(build_definitions(project.jobs)) == {("shop", "cursor")}
    write_cut(project.lake, cut(batch=9, tables={"shop.orders": 9}))
    write_cut(
        project.lake, cut(batch=10, tables={"shop.orders": 10, "shop.items": 10, "other.table": 10})
    )
    definitions = build_definitions(project.jobs)
    assert ("shop", "shop", "items") in _keys(definitions)
    assert ("shop", "other", "table") not in _keys(definitions), "no longer captured"
    spec = definitions.resolve_asset_graph().get(dg.AssetKey(["shop", "shop", "orders"]))
    columns = spec.metadata["dagster/column_schema"].columns
    assert [(column.name, column.type) for column in columns] == [
        ("id", "bigint"),
        ("note", "string"),
        ("_cdc_op", "string"),
        ("_cdc_seq", "decimal(38,0)"),
        ("_cdc_ts", "timestamp"),
    ]
    assert spec.metadata["dagster/uri"].value == (project.lake / "shop" / "orders").as_uri()


def test_a_damaged_cut_leaves_the_definitions_to_the_one_before(project: Project) -> None:
    write_config(project.jobs, "shop", include=("shop.*",))
    write_cut(project.lake, cut(batch=9, tables={"shop.orders": 9}))
    (project.lake / "_cdc" / "shop" / "cuts" / f"{10:020d}.json").write_text("{")
    assert ("shop", "shop", "orders") in _keys(build_definitions(project.jobs))


def test_names_with_any_character_keep_apart(project: Project) -> None:
    names = ("shop.a-b", "shop.a_b", "shop.x$y", "shop.été", "shop.b__c", "shop__b.c")
    write_config(project.jobs, "shop", include=names)
    definitions = build_definitions(project.jobs)
    keys = _keys(definitions)
    for name in names:
        assert ("shop", *name.split(".")) in keys
    assert definitions.resolve_job_def("shop_capture")


def test_a_job_and_a_schedule_for_each_source(
    project: Project, disk_instance: dg.DagsterInstance
) -> None:
    write_config(project.jobs, "shop", extra=SCHEDULE)
    write_config(project.jobs, "crm", extra="schedule: {cron: '@daily'}\n")
    definitions = build_definitions(project.jobs)
    shop = definitions.resolve_schedule_def("shop_capture_schedule")
    assert (shop.cron_schedule, shop.execution_timezone) == ("5 * * * *", "Europe/Berlin")
    assert shop.default_status is dg.DefaultScheduleStatus.RUNNING
    crm = definitions.resolve_schedule_def("crm_capture_schedule")
    assert crm.default_status is dg.DefaultScheduleStatus.STOPPED
    context = dg.build_schedule_context(
        instance=disk_instance, repository_def=definitions.get_repository_def()
    )
    killed = killed_run(disk_instance, definitions.resolve_job_def("shop_capture"))
    (request,) = shop.evaluate_tick(context).run_requests or ()
    ended = stored_run(disk_instance, killed.run_id)
    assert ended.status is dg.DagsterRunStatus.FAILURE, "or runs would queue behind it (F196)"
    assert request.asset_selection == [dg.AssetKey(["shop", "cursor"])]
    assert request.tags[SOURCE_TAG] == "shop"
    (op,) = definitions.resolve_job_def("shop_capture").all_node_defs
    assert isinstance(op, dg.OpDefinition)
    assert op.pool == "cdc_shop"


def test_k25_f245_ticks_during_a_long_capture_ask_for_one_run_after_it(
    project: Project, disk_instance: dg.DagsterInstance
) -> None:
    """Whether it waits in Dagster's queue or for the slot; one that died waiting holds up none."""
    maintenance = "maintenance: {cron: '@daily'}\n"
    write_config(project.jobs, "shop", extra=SCHEDULE + maintenance)
    definitions = build_definitions(project.jobs)
    context = dg.build_schedule_context(
        instance=disk_instance, repository_def=definitions.get_repository_def()
    )

    def skips(job: str = "shop_capture") -> str | None:
        tick = definitions.resolve_schedule_def(f"{job}_schedule").evaluate_tick(context)
        assert len(tick.run_requests or ()) == (tick.skip_message is None)
        return tick.skip_message

    def queued_run(job: str) -> dg.DagsterRun:
        run = disk_instance.get_runs(limit=1)[0]  # Dagster makes none without its code location
        run_id, status = dg.DagsterRun(job_name=job).run_id, dg.DagsterRunStatus.QUEUED
        origin = RemoteJobOrigin(_REPOSITORY, job)
        return disk_instance.add_run(
            run._replace(run_id=run_id, job_name=job, status=status, remote_job_origin=origin)
        )

    job, started = definitions.resolve_job_def("shop_capture"), dg.DagsterRunStatus.STARTED
    at_work, waiting = (disk_instance.create_run_for_job(job, status=started) for _ in range(2))
    storage = disk_instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("cdc_shop")
    assert storage.claim_concurrency_slot("cdc_shop", at_work.run_id, "capture_shop").is_claimed
    assert skips() is None, "what was committed since its plan is for the next run"
    assert not storage.claim_concurrency_slot("cdc_shop", waiting.run_id, "capture_shop").is_claimed
    assert skips() == f"run {waiting.run_id} of shop_capture waits, and will do the same"
    storage.free_concurrency_slots_for_run(at_work.run_id)
    assert skips() is None, "a run that waits for a free slot is dead, or begins"
    queued = queued_run("shop_capture")
    assert skips() == f"run {queued.run_id} of shop_capture waits, and will do the same"
    assert skips("shop_maintenance") is None
    queued_run("shop_maintenance")
    assert "shop_maintenance waits" in str(skips("shop_maintenance"))


def test_mistakes_of_one_file_keep_their_paths_where_one_source_is_loaded(project: Project) -> None:
    write_config(project.jobs, "shop", extra="schedule: {cron: 'now and then'}\n")
    with only_source("shop"), pytest.raises(ConfigMistakes) as caught:
        build_definitions(project.jobs)
    assert [mistake.path for mistake in caught.value.mistakes] == ["schedule.cron"]


def test_a_missing_jobs_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the jobs directory"):
        build_definitions(tmp_path / "nowhere")


def test_a_translator_changes_keys_and_groups(project: Project) -> None:
    class Ours(CdcTranslator):
        def table_key(self, source: str, table: str) -> dg.AssetKey:
            return dg.AssetKey(["bronze", *table.split(".", 1)])

        def group_name(self, source: str) -> str:
            return "bronze"

    write_config(project.jobs, "shop")
    graph = build_definitions(project.jobs, translator=Ours()).resolve_asset_graph()
    table = dg.AssetKey(["bronze", "shop", "orders"])
    assert graph.get(table).group_name == "bronze"
    assert graph.get(dg.AssetKey(["shop", "cursor"])).parent_keys == {table}


def test_the_flavor_of_a_live_source_decides_the_kind(project: Project) -> None:
    file = write_config(project.jobs, "shop")
    live = "source: {kind: live, host: nowhere.invalid, user: u, password: p, flavor: mariadb}\n"
    file.write_text(live + "tables: {include: [shop.orders]}\nsink: {lake_path: ../lake}\n")
    graph = build_definitions(project.jobs).resolve_asset_graph()
    assert graph.get(dg.AssetKey(["shop", "source", "shop", "orders"])).kinds == {"mariadb"}


@pytest.mark.parametrize("kind", ["archive", "live"])
def test_descriptions_say_whose_table_it_is_and_where_it_is_defined(
    project: Project, kind: str
) -> None:
    file = write_config(project.jobs, "shop")
    if kind == "live":
        live = "source: {kind: live, host: db.invalid, port: 3307, user: u, password: p}\n"
        file.write_text(live + "tables: {include: [shop.orders]}\nsink: {lake_path: ../lake}\n")
    graph = build_definitions(project.jobs).resolve_asset_graph()
    table = graph.get(dg.AssetKey(["shop", "shop", "orders"]))
    upstream = graph.get(dg.AssetKey(["shop", "source", "shop", "orders"]))
    origin = {"archive": "archived journals", "live": "db.invalid\\:3307"}[kind]
    assert table.description == f"shop.orders from {origin}, kept as a mirror."
    assert upstream.description == f"shop.orders in {origin}."
    for node in (table, upstream):
        if kind == "live":
            assert node.metadata["server"].value == "db.invalid:3307"
        else:
            assert node.metadata["journals"].value == str(project.jobs / "journals")
        (place,) = node.metadata["dagster/code_references"].code_references
        assert (place.file_path, place.label) == (str(file), "shop.yaml")
    assert table.code_version.startswith(f"{__version__}-")
    file.write_text(file.read_text() + "schema_changes: careful\n")
    again = build_definitions(project.jobs).resolve_asset_graph()
    assert again.get(table.key).code_version != table.code_version
    # One storage for Dagster is what has one name: the Delta table is not the database's table.
    assert table.metadata["dagster/table_name"] == "shop.orders"
    assert "dagster/table_name" not in upstream.metadata


@pytest.mark.parametrize(
    ("yaml", "stops"),
    [
        ("", "at the end of the log when the run is planned"),
        ("bound: {journal: binlog.000007, offset: 400}\n", "at binlog.000007:400"),
        ("bound: {transactions: 2000}\n", "after 2,000 transactions"),
        ("bound: {gtid: 0-1-7}\n", "after the transaction 0-1-7"),
        (
            "bound: {time: '2026-01-31T08:00:00Z'}\n",
            "before the first transaction committed after 2026-01-31T08:00:00+00:00",
        ),
        ("bound: {bytes: 2000}\n", "at the first transaction end after 2,000 bytes of the log"),
        ("bound: {seconds: 90}\n", "at the first transaction end after 90 s"),
    ],
)
def test_the_job_and_its_step_tell_where_a_run_stops_and_how_to_say_otherwise(
    project: Project, yaml: str, stops: str
) -> None:
    write_config(project.jobs, "shop", extra=yaml)
    job = build_definitions(project.jobs).resolve_job_def("shop_capture")
    (op,) = job.all_node_defs
    assert isinstance(op, dg.OpDefinition)
    fields = op.config_schema.config_type.fields  # type: ignore[union-attr]
    for description in (job.description, op.description):
        assert description is not None
        assert stops in description
        assert all(name in description for name in fields)
    assert all(field.description for field in fields.values())


def test_loading_definitions_loads_neither_spark_nor_numba_nor_arrow_nor_a_driver() -> None:
    """Dagster loads the definitions often: the shipped ones must stay light."""
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from jobs.definitions import defs\n"
        "defs.resolve_all_asset_specs()\n"
        "import json; print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"pyspark", "numba", "pymysql", "pymysqlreplication", "deltalake", "delta", "py4j"}
    heavy |= {"numpy", "pyarrow"}
    assert heavy.isdisjoint(json.loads(done.stdout.splitlines()[-1]))


def test_loading_definitions_reads_the_newest_cut_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",), extra=BACKFILL)
    write_cut(project.lake, cut(batch=9, tables={"shop.orders": 9}))
    reads: list[PipelineConfig] = []

    def counted(config: PipelineConfig) -> Cut | None:
        reads.append(config)
        return newest_cut(config)

    for module in (known_tables, capture_asset, check_assets):
        monkeypatch.setattr(module, "newest_cut", counted)
    build_definitions(project.jobs).get_repository_def().load_all_definitions()
    assert len(reads) == 1


def test_dagster_validates_the_shipped_workspace(project: Project) -> None:
    command = [
        str(Path(sys.executable).with_name("dagster")),
        "definitions",
        "validate",
        "-w",
        "workspace.yaml",
    ]
    environment = os.environ | {"DAGSTER_HOME": str(project.home)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_shipped_pipeline_names_the_five_tables_of_the_recording() -> None:
    recording = json.loads((ROOT / "cdc_pipeline" / "demo" / "shop" / "recording.json").read_text())
    config = load_config(ROOT / "jobs" / "shop.yaml")
    assert set(config.tables.include) == {f"shop.{table}" for table in recording["tables"]}
    assert config.source.kind == "archive"
    assert config.source.directory.is_dir()
    assert config.sink.lake_path == ROOT / "lake"
