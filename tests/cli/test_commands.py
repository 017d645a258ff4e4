"""Commands through click's runner: exit codes, JSON on standard output alone, errors without
tracebacks."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from cdc_pipeline.cli.app import COMMANDS, cli
from cdc_pipeline.cli.common.progress import ProgressObserver
from cdc_pipeline.cli.common.report import ddl_table
from cdc_pipeline.config.pipeline_config import PipelineConfig, load_config
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.errors import ConfigError, LakeStateError, PositionError
from cdc_pipeline.operations.doctor import examine
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.run.report import CapturePlan
from cdc_pipeline.schema.evolution.steps import DdlDecision
from tests.support.fake_capture import cut, write_config, write_cut
from tests.support.project import Project


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def _json(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(name: str) -> None:
    result = _run(name, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout


def test_an_unknown_command_is_wrong_usage() -> None:
    assert _run("capture").exit_code == 2


def test_dagster_home_is_the_folder_beside_unless_set(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path / "jobs", "shop")
    (tmp_path / "dagster_home").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", "/set/by/hand")
    assert _run("validate").exit_code == 0
    assert os.environ["DAGSTER_HOME"] == "/set/by/hand"
    monkeypatch.delenv("DAGSTER_HOME")
    assert _run("validate").exit_code == 0
    assert os.environ["DAGSTER_HOME"] == str(tmp_path / "dagster_home")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("DAGSTER_HOME")
    assert _run("--jobs", "../jobs", "validate").exit_code == 0
    assert os.environ["DAGSTER_HOME"] == str(tmp_path / "dagster_home")


# -- validate --------------------------------------------------------------------------------------


def test_validate_says_that_all_is_well(project: Project) -> None:
    write_config(project.jobs, "shop")
    result = _run("--jobs", project.jobs, "validate")
    assert result.exit_code == 0
    assert "shop.yaml" in result.stdout


def test_validate_shows_all_mistakes_of_all_files_with_their_paths(project: Project) -> None:
    write_config(project.jobs, "shop", extra="colour: blue\nstore: {ring_events: 1000}\n")
    write_config(
        project.jobs, "crm", extra="schedule: {cron: 'now and then', timezone: Mars/Olympus}\n"
    )
    write_config(project.jobs, "good", include=("shop.items",))
    result = _run("--jobs", project.jobs, "validate")
    assert result.exit_code == 2
    for part in ("colour", "store.ring_events", "schedule.cron", "schedule.timezone"):
        assert part in result.stdout
    document = _json(_run("--jobs", project.jobs, "validate", "--json"))
    assert {mistake["path"] for mistake in document["shop"]["mistakes"]} == {
        "colour",
        "store.ring_events",
    }
    assert document["good"] == {
        "file": str(project.jobs / "good.yaml"),
        "valid": True,
        "mistakes": [],
    }


def test_k16_validate_names_a_target_that_two_sources_keep(project: Project) -> None:
    """K16, F7: of one lake; also where one file alone is asked for, and what the newest cut
    knows."""
    write_config(project.jobs, "shop", include=("shop.orders",))
    other = write_config(project.jobs, "again", include=("shop.*",))
    other.write_text(other.read_text().replace("directory: journals", "directory: elsewhere"))
    assert _run("--jobs", project.jobs, "validate").exit_code == 0, (
        "nobody knows what the pattern finds at another server"
    )
    write_cut(project.lake, cut("again", batch=1, tables={"shop.orders": 1}))
    for arguments in ((), ("shop",)):
        result = _run("--jobs", project.jobs, "validate", *arguments)
        assert result.exit_code == 2
        assert "shop.orders" in result.stdout
        assert "target of again" in result.stdout


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        ("shop.orders", "shop.*", "shop.orders in"),
        ("shop.*", "shop.*", "what shop.* matches in"),
        ("shop.o*", "sh?p.*", "what shop.o* matches in"),
    ],
)
def test_k31_f87_validate_names_two_sources_that_capture_one_server_into_one_lake(
    project: Project, one: str, other: str, named: str
) -> None:
    """Before any of them has run: the second one's run would be refused."""
    write_config(project.jobs, "again", include=(other,))
    write_config(project.jobs, "shop", include=(one,))
    result = _run("--jobs", project.jobs, "validate")
    assert result.exit_code == 2
    assert named in result.stdout
    assert "is also a target of again" in result.stdout
    shop = with_journals(project.jobs / "shop.yaml")
    _refused(shop, "is also a target of again")
    rule = f"targets:\n  - {{tables: ['{one}'], name: 'mine.{{table}}'}}\n"
    write_config(project.jobs, "shop", include=(one,), extra=rule)
    assert _run("--jobs", project.jobs, "validate").exit_code == 0
    plan(with_journals(project.jobs / "shop.yaml"), cursors=MemoryCursorStore())


def test_k31_f87_a_source_with_a_cut_goes_on_beside_a_new_file_for_its_tables(
    project: Project,
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",))
    write_cut(project.lake, cut("shop", batch=1, tables={"shop.orders": 1}))
    write_config(project.jobs, "again", include=("shop.*",))
    assert _run("--jobs", project.jobs, "validate", "shop").exit_code == 0
    assert _run("--jobs", project.jobs, "validate", "again").exit_code == 2
    _refused(with_journals(project.jobs / "again.yaml"), "is also a target of shop")


@pytest.mark.parametrize(
    ("setting", "place", "text"),
    [
        ("start: {time: '2999-01-01T00:00:00Z'}", "start.time", "the start is in the future"),
        ("start: {gtid_set: abc}", "start.gtid_set", "the start is not a GTID set"),
        ("bound: {gtid: '0-1-5,1-1-2'}", "bound.gtid", "not the GTID of one transaction"),
    ],
)
def test_k31_f87_a_start_or_bound_that_no_source_can_have_has_one_answer(
    project: Project, setting: str, place: str, text: str
) -> None:
    """A run began at the log's end, saved that as its cursor, and exited with 0."""
    file = write_config(project.jobs, "shop", extra=f"{setting}\n")
    result = _run("--jobs", project.jobs, "validate")
    assert result.exit_code == 2
    assert f"{place}: " in result.stdout
    assert text in result.stdout.replace("\n", " ")
    _refused(with_journals(file), text)


def with_journals(file: Path) -> PipelineConfig:
    """Let all files of its folder read the recorded shop; return the pipeline in one."""
    for one in file.parent.glob("*.yaml"):
        journals = f"directory: {SHOP_DIRECTORY / 'journals'}"
        one.write_text(one.read_text().replace("directory: journals", journals))
    return load_config(file)


def _refused(config: PipelineConfig, text: str) -> None:
    for refuse in (plan, capture):
        with pytest.raises((ConfigError, PositionError), match=text):
            refuse(config, cursors=MemoryCursorStore())
    found = examine(config, cursors=MemoryCursorStore(), areas=["state"])
    assert any(text in finding.what for finding in found.findings if finding.severity == "error")


def test_k31_f87_a_start_that_is_changed_after_the_first_run_is_told(project: Project) -> None:
    """It was ignored without a word: the cursor wins."""

    def configured(start: Any) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "archive", "directory": SHOP_DIRECTORY / "journals"},
                "tables": {"include": ["none.t"], "allow_empty": True},
                "sink": {"lake_path": project.lake},
                "start": start,
            }
        )

    cursors, other = MemoryCursorStore(), {"journal": "binlog.000001", "offset": 4}
    capture(configured("earliest"), cursors=cursors)
    assert plan(configured("earliest"), cursors=cursors).warnings == ()
    (warning,) = plan(configured(other), cursors=cursors).warnings
    assert warning.startswith("start was changed after the first run")
    assert "`cdc-pipeline cursor set shop --from binlog.000001:4` moves it there" in warning
    moment = {"time": "2026-01-31T08:00:00+00:00"}
    assert "--from 2026-01-31T08:00:00+00:00" in str(plan(configured(moment), cursors=cursors))
    in_journal = configured({**moment, "journal": "binlog.000001"})
    (told,) = plan(in_journal, cursors=cursors).warnings  # no command can say this one
    assert "cursor set" not in told
    assert told.endswith("set `start` back as it was")
    shown = StringIO()
    with ProgressObserver(shown) as progress:
        capture(configured(other), cursors=cursors, observer=progress)
    assert f"note: {warning}" in shown.getvalue()
    seen = TellingObserver()
    capture(configured(other), cursors=cursors, observer=seen)
    assert seen.warnings == [warning]
    assert plan(configured("earliest"), cursors=cursors).warnings == ()


class TellingObserver(RunObserver):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def planned(self, plan: CapturePlan) -> None:
        self.warnings += plan.warnings


def test_validate_names_a_file_of_metrics_that_two_sources_write(project: Project) -> None:
    for source, file in (("shop", "m.prom"), ("crm", "../jobs/m.prom"), ("fine", "own.prom")):
        write_config(project.jobs, source, include=(f"{source}.t",), extra=f"metrics: {file}\n")
    result = _run("--jobs", project.jobs, "validate")
    assert result.exit_code == 2
    assert result.stdout.count("give each source a file of its own") == 2
    assert "m.prom is also written by crm" in result.stdout
    assert _run("--jobs", project.jobs, "validate", "fine").exit_code == 0


def test_validate_names_views_that_two_sources_publish(project: Project) -> None:
    for source, file in (("shop", "live.sql"), ("crm", "live.sql"), ("fine", "own.sql")):
        path = write_config(project.jobs, source, include=(f"{source}.t",))
        publish = f"\n  publish: {{database: live, duckdb: {project.jobs / file}}}\n"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("sink:\n", f"sink:{publish}"), encoding="utf-8")
    result = _run("--jobs", project.jobs, "validate")
    assert result.exit_code == 2
    assert "live.sql are also published by crm" in result.stdout
    assert result.stdout.count("are also published by") == 2
    assert _run("--jobs", project.jobs, "validate", "fine").exit_code == 0


def test_validate_of_one_source_leaves_the_others_alone(project: Project) -> None:
    write_config(project.jobs, "shop", extra="colour: blue\n")
    write_config(project.jobs, "good")
    assert _run("--jobs", project.jobs, "validate", "good").exit_code == 0
    assert _run("--jobs", project.jobs, "validate", "shop").exit_code == 2


def test_an_unknown_source_is_named_with_those_that_are_there(project: Project) -> None:
    write_config(project.jobs, "shop")
    for command in ("validate", "run", "plan", "status"):
        result = _run("--jobs", project.jobs, command, "nope")
        assert result.exit_code == 2
        assert "'nope'" in result.stderr
        assert "one of: shop" in result.stderr
        assert result.stdout == ""


def test_a_missing_jobs_directory_is_a_mistake_of_usage(tmp_path: Path) -> None:
    result = _run("--jobs", tmp_path / "nowhere", "validate", "--json")
    assert result.exit_code == 2
    assert _json(result)["error"] == "ConfigError"


# -- run -------------------------------------------------------------------------------------------


def test_run_is_a_run_of_dagster_and_shows_its_report(
    fake_project: Project, instance: dg.DagsterInstance
) -> None:
    result = _run("run", "shop")
    assert result.exit_code == 0, result.output
    (run,) = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert run.job_name == "shop_capture"
    for part in ("applied", "binlog.000003:2000", run.run_id):
        assert part in result.stdout
    assert "batch 2: 3 transactions" in result.stderr


def test_run_json_is_one_document_and_nothing_else(fake_project: Project) -> None:
    first, second = _run("run", "shop", "--json"), _run("run", "shop", "--json")
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert _json(first)["outcome"] == "applied"
    assert _json(second)["outcome"] == "nothing_new"
    assert _json(first)["run_id"] != _json(second)["run_id"]


def test_mistakes_of_another_file_do_not_keep_a_source_from_running(fake_project: Project) -> None:
    write_config(fake_project.jobs, "crm", extra="colour: blue\n")
    assert _run("run", "shop", "--json").exit_code == 0
    assert _run("run", "crm", "--json").exit_code == 2


def test_a_bound_reaches_the_run(fake_project: Project, instance: dg.DagsterInstance) -> None:
    assert _run("run", "shop", "--until", "binlog.000003:1000").exit_code == 0
    assert _run("run", "shop", "--until-transactions", "7").exit_code == 0
    assert _run("run", "shop", "--until", "2026-01-31T08:00:00Z").exit_code == 0
    assert _run("run", "shop", "--until-seconds", "1.5").exit_code == 0
    configs = [run.run_config["ops"]["capture_shop"]["config"] for run in instance.get_runs()]
    assert configs == [
        {"until_seconds": 1.5},
        {"until": "2026-01-31T08:00:00+00:00"},
        {"until_transactions": 7},
        {"until": "binlog.000003:1000"},
    ]


@pytest.mark.parametrize(
    "options",
    [
        ["--until-transactions", "0"],
        ["--until", "0-1-7", "--until-seconds", "3"],
        ["--until", ""],
        ["--until", "binlog.000003:3"],
        ["--until", "2026-01-31T08:00:00"],
        ["--until", "soon"],
        ["--until", "end_of_log", "--until-transactions", "3"],
        ["--until-bytes", "5", "--until-transactions", "5"],
        ["--until-bytes", "0"],
        ["--until-seconds", "0"],
    ],
)
def test_a_bound_that_cannot_be_is_wrong_usage(fake_project: Project, options: list[str]) -> None:
    assert _run("run", "shop", *options).exit_code == 2


FAILING = """
from pathlib import Path
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.orchestration.definitions import build_definitions

def capture(config, **_):
    raise LakeStateError("the lake was restored", table="shop.orders", got="no cut", next_step="restore it")

defs = build_definitions(Path(__file__).parent, capture=capture)
"""  # noqa: E501


def test_a_failed_run_shows_what_where_and_the_next_step(fake_project: Project) -> None:
    (fake_project.jobs / "definitions.py").write_text(FAILING)
    result = _run("run", "shop")
    assert result.exit_code == 1
    for part in (
        "Error: the lake was restored",
        "where     table shop.orders",
        "next      restore it",
    ):
        assert part in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_a_failed_run_as_json(fake_project: Project) -> None:
    (fake_project.jobs / "definitions.py").write_text(FAILING)
    result = _run("run", "shop", "--json")
    assert result.exit_code == 1
    document = _json(result)
    assert document.pop("run_id")
    expected = LakeStateError(
        "the lake was restored", table="shop.orders", got="no cut", next_step="restore it"
    )
    assert document == expected.as_dict()


def test_debug_shows_where_an_error_arose(fake_project: Project) -> None:
    (fake_project.jobs / "definitions.py").write_text(FAILING)
    result = _run("--debug", "run", "shop")
    assert isinstance(result.exception, LakeStateError)


def test_without_dagster_home_the_way_out_is_shown(
    fake_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(fake_project.root / "nowhere"))
    result = _run("run", "shop")
    assert result.exit_code == 2
    assert "export DAGSTER_HOME" in result.stderr


def test_the_ddl_of_a_report_is_readable_in_80_columns() -> None:
    decision = DdlDecision(
        journal="binlog.000002",
        offset=361_774,
        sql="CREATE INDEX ...",
        kind="create_index",
        tables=("shop.stock_movements", "shop.order_items"),
        decision="recorded",
        reason="indexes do not exist in the lake",
    )
    shown = StringIO()
    Console(file=shown, width=80).print(ddl_table([decision]))
    words = shown.getvalue().split()
    for whole in ("binlog.000002:361774", *decision.tables, *decision.reason.split()):
        assert whole in words
    assert max(map(len, shown.getvalue().splitlines())) <= 80
