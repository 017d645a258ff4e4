"""``cdc-pipeline verify`` on a real MySQL server, through Dagster: types, shards, filters, masks,
exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from cdc_pipeline.cli.verify import DIFFERENT
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.operations.verify import checks
from cdc_pipeline.run.wiring import build_sink
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.project import Project

SALT = "a salt of the tests, long enough"
TYPED = (
    "code VARCHAR(10) CHARACTER SET latin1 NOT NULL, at DATETIME(3) NOT NULL, f FLOAT, d DOUBLE, n "
    "DECIMAL(10,2), b BIT(5), e ENUM('x','y'), t TIME(3), ts TIMESTAMP(6) NULL, j JSON, day DATE, "
    "raw VARBINARY(5), PRIMARY KEY (code, at)"
)


def write_job(project: Project, server: Server, database: str, start: dict[str, Any]) -> Path:
    rules = [
        {
            "tables": [f"{database}.order_*"],
            "name": "{schema}.orders",
            "shard_column": "shard",
            "filter": "amount >= 0",
            "computed": {"twice": {"type": "int", "expression": "amount * 2"}},
        },
        {
            "tables": [f"{database}.people"],
            "masks": {"email": {"hash": {"salt": SALT}}, "note": "drop"},
        },
        {"tables": [f"{database}.typed"]},
    ]
    document = {
        "source": live(server),
        "start": start,
        "tables": {"include": [f"{database}.*"]},
        "targets": rules,
        "sink": {"lake_path": str(project.lake), "spark": SPARK},
    }
    file = project.jobs / "shop.yaml"
    file.write_text(json.dumps(document))
    return file


def verified(project: Project, *arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(
        cli, ["--jobs", str(project.jobs), "verify", "shop", "--json", *arguments]
    )
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert found["exit_code"] == code
    return found


def unlogged(server: Server, database: str, *statements: str) -> None:
    connection = server.root_connection(database=database, autocommit=True)
    with connection.cursor() as run:
        run.execute("SET SESSION sql_log_bin = 0")
        for statement in statements:
            run.execute(statement)
    connection.close()


@pytest.mark.spark
@pytest.mark.whole
def test_k17_k14_mysql_types_shards_filters_and_masks_are_compared_and_repaired(
    mysql_server: Server, mysql_database: str, project: Project, spark: Any
) -> None:
    database, start = mysql_database, here(mysql_server)
    file = write_job(project, mysql_server, database, start)
    mysql_server.execute_all(
        f"USE `{database}`",
        f"CREATE TABLE typed ({TYPED})",
        "CREATE TABLE order_1 (id INT PRIMARY KEY, amount INT)",
        "CREATE TABLE order_2 (id INT PRIMARY KEY, amount INT)",
        "CREATE TABLE people (email VARCHAR(30) PRIMARY KEY, note TEXT, age INT UNSIGNED)",
        "SET SESSION sql_mode = ''",
        "INSERT INTO typed VALUES ('a','2020-01-01 "
        "00:00:00.123',1.1,-0.0,1.10,5,'x','-01:02:03.5','2020-01-01 00:00:01','{\"k\": [1, "
        "2.50]}','2020-02-30',x'00FF'),('\u00e9','1999-12-31 "
        "23:59:59.999',3.4e38,1e-300,NULL,NULL,'','838:59:59',NULL,NULL,'2020-01-01',NULL)",
        "INSERT INTO order_1 VALUES (1,10),(2,-1),(3,30)",
        "INSERT INTO order_2 VALUES (1,11),(2,5)",
        "INSERT INTO people VALUES ('a@x','secret',1),('b@x','secret',2),('c@x','secret',3)",
    )
    sampled = verified(project, "--sample", "50", "--table", f"{database}.orders")["tables"][
        f"{database}.orders"
    ]
    assert (sampled["status"], sampled["sampled"]) == ("equal", True)
    assert (sampled["rows_source"], sampled["rows_lake"], sampled["strays"]) == (4, 4, 0)

    unlogged(
        mysql_server, database,
        "UPDATE typed SET f = 2.5, j = '{\"k\": 1}' WHERE code = 'A'",
        "DELETE FROM typed WHERE code = '\u00e9'",
        "UPDATE order_1 SET amount = 7 WHERE id = 2", "UPDATE order_2 SET amount = -7 WHERE id = 1",
        "UPDATE people SET age = 9 WHERE email = 'b@x'",
        "DELETE FROM people WHERE email = 'a@x'",
    )  # fmt: skip
    found = verified(project, code=DIFFERENT)
    typed, people = found["tables"][f"{database}.typed"], found["tables"][f"{database}.people"]
    assert [(one["kind"], one["key"]["code"], one["columns"]) for one in typed["differences"]] == [
        ("different", "a", ["f", "j"]), ("extra", "\u00e9", []),
    ]  # fmt: skip
    orders = found["tables"][f"{database}.orders"]["differences"]
    assert [(one["kind"], *one["key"].values()) for one in orders] == [
        ("missing", "2", f"{database}.order_1"), ("extra", "1", f"{database}.order_2"),
    ]  # fmt: skip
    assert people["counts"] == {"extra": 1, "different": 1}
    shown = json.dumps(people)
    assert "@x" not in shown
    assert "secret" not in shown
    assert len(people["differences"][0]["key"]["email"]) == 64

    chosen = ("--table", f"{database}.order_1", "--table", f"{database}.typed")
    found = verified(project, "--repair", "--yes", *chosen)
    assert found["tables"].keys() == {f"{database}.typed", f"{database}.orders"}
    assert found["tables"][f"{database}.typed"]["repaired"] == {"updated": 1, "deleted": 1}
    assert found["tables"][f"{database}.orders"]["repaired"] == {"inserted": 1, "deleted": 1}
    config = load_config(file)
    paths = LakePaths(config.sink.lake_path, "shop")
    rows = (
        spark.read.format("delta")
        .load(str(paths.table(f"{database}.orders")))
        .select("id", "amount", "twice", "shard")
    )
    assert sorted(map(tuple, rows.collect())) == [
        (1, 10, 20, f"{database}.order_1"), (2, 5, 10, f"{database}.order_2"),
        (2, 7, 14, f"{database}.order_1"),
        (3, 30, 60, f"{database}.order_1"),
    ]  # fmt: skip
    arguments = [
        "snapshot",
        "shop",
        "--json",
        "--table",
        f"{database}.people",
        "--where",
        "age = 9",
    ]
    result = CliRunner().invoke(cli, ["--jobs", str(project.jobs), *arguments])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["rows_written"], told["rows_left"], told["rounds"]) == (
        1,
        0,
        1,
    )
    rows = (
        spark.read.format("delta")
        .load(str(paths.table(f"{database}.people")))
        .select("age")
        .collect()
    )
    assert sorted(age for (age,) in rows) == [1, 3, 9]
    cut = last_cut(paths)
    assert cut is not None
    assert cut.kind == "repair"
    assert told["batches"] == [cut.batch_number]
    sink = build_sink(config)
    lag, kept = (
        checks.check_lag(config, sink, cut.cursor),
        checks.check_retention(config, cut.cursor),
    )
    assert (lag.passed, kept.passed) == (True, True)
    assert kept.values["headroom_s"] > 24 * 3600  # type: ignore[operator]
    assert not sink.spark_started
    assert checks.check_key_uniqueness(sink, f"{database}.typed").passed


def test_a_repair_is_confirmed(project: Project) -> None:
    (project.jobs / "shop.yaml").write_text(
        "source: {kind: archive, directory: .}\nsink: {lake_path: ../lake}\n"
    )
    for arguments in (["--repair"], ["--sample", "0"], ["--sample", "101"]):
        result = CliRunner().invoke(
            cli, ["--jobs", str(project.jobs), "verify", "shop", *arguments]
        )
        assert result.exit_code == 2, result.output


@pytest.mark.whole
def test_what_cannot_be_verified_is_a_failure_or_wrong_usage(project: Project) -> None:
    archive = "source: {kind: archive, directory: .}\nsink: {lake_path: ../lake}\n"
    nobody = (
        "source: {kind: live, host: 127.0.0.1, port: 1, user: u, password: p}\nsink: "
        "{lake_path: ../lake}\n"
    )
    for document, code, error in (
        (archive, 2, "ConfigError"),
        (nobody, 1, "ServerUnreachableError"),
    ):
        (project.jobs / "shop.yaml").write_text(document)
        result = CliRunner().invoke(cli, ["--jobs", str(project.jobs), "verify", "shop", "--json"])
        assert result.exit_code == code, result.output
        told = json.loads(result.stdout)
        assert told["error"] == error
        assert told["what"]
