"""K4 with SIGKILL: a catch-up that is killed goes on from its record, chosen on the command line as
in Dagster."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from tests.run.capture.test_crash import Project
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.workload import COLUMNS, Workload, create_tables

pytestmark = [pytest.mark.spark, pytest.mark.mysql, pytest.mark.whole]


def _run_tables(project: Project, *tables: str) -> Result:
    """The command line, in this process: its Spark session is warm."""
    names = [option for table in tables for option in ("--table", table)]
    return CliRunner().invoke(
        cli, ["--jobs", str(project.jobs), "run", "bank", *names, "--json"], env=project.environment
    )


def test_k4_killed_in_the_middle_of_a_catch_up(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    start = here(mysql_server)
    create_tables(mysql_server, mysql_database)
    names = [f"{mysql_database}.{table}" for table in COLUMNS]
    project = Project(tmp_path, live(mysql_server), names, start)
    workload = Workload(mysql_server, mysql_database, seed=11)
    workload.run(3)
    assert project.run_here({}).returncode == 0
    account = project.lake / mysql_database / "account"
    shutil.move(account, tmp_path / "away")
    workload.run(12)
    workload.close()
    failed = project.run_here({})
    assert failed.returncode == 1
    assert f"{names[0]} is suspended at" in failed.stderr
    assert "is gone" in failed.stderr
    position = project.cuts()[-1].cursor.position
    shutil.move(tmp_path / "away", account)

    # Nothing new at the source: all fault points are those of the catch-up.
    small = {"merge_rows": 5, "get_bytes": 1024}
    killed = project.run(small, "between_merges", "2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert project.cuts()[-1].cursor.suspended.keys() == {names[0]}
    done = _run_tables(project, names[0], names[1])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["recovered_batch"] == project.cuts()[-1].batch_number - report["batches"] + 1
    assert report["suspended"] == {}
    cut = project.cuts()[-1]
    assert cut.kind == "catch_up"
    assert cut.cursor.position == position, "the main cursor stands still"
    for table, columns in COLUMNS.items():
        expected = server_rows(mysql_server, mysql_database, table, columns)
        assert lake_rows(spark, project.lake, mysql_database, table, columns) == expected, table
    project.assert_each_batch_once()
    project.assert_intervals_join()
    unknown = _run_tables(project, "nowhere.t")
    assert unknown.exit_code == 2
    assert names[0] in unknown.stdout
