"""Files of tables are lost or damaged on the disk: in every command that costs those tables alone,
and each names the way out, which works (K22)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.project import Project

pytestmark = [pytest.mark.spark, pytest.mark.whole]

WHOLE = ["a_whole", "z_whole"]
LOST_FILES = ["b_file_gone", "c_file_damaged"]
LOST_LOGS = ["d_log_shorter", "e_log_damaged", "f_folder_gone"]
PAST = LOST_FILES[1]  # a soft delete, of which a snapshot keeps rows
TABLES = [WHOLE[0], *LOST_FILES, *LOST_LOGS, WHOLE[1]]


class Damaged:
    """A lake of seven tables, five of which have lost files."""

    def __init__(self, project: Project, server: Server, database: str) -> None:
        self.server, self.database, self.lake = server, database, project.lake
        start = here(server)
        for table in TABLES:
            server.execute_all(
                f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY, v INT)",
                f"INSERT INTO {database}.{table} VALUES (1, 1), (2, 2)",
            )
        document = {
            "source": live(server),
            "tables": {"include": [f"{database}.*"]},
            "start": start,
            "targets": [{"tables": [f"{database}.{PAST}"], "mode": "soft_delete"}],
            "sink": {"lake_path": str(project.lake), "spark": SPARK},
        }
        (project.jobs / "shop.yaml").write_text(yaml.safe_dump(document))

    def folder(self, table: str) -> Path:
        return self.lake / self.database / table

    def change_all(self) -> None:
        for table in TABLES:
            self.server.execute(f"UPDATE {self.database}.{table} SET v = v + 1 WHERE id = 1")

    def damage(self) -> None:
        for file in self.folder("b_file_gone").glob("*.parquet"):
            file.unlink()
        for file in self.folder("c_file_damaged").glob("*.parquet"):
            file.write_bytes(b"PAR1 no rows PAR1")
        self._newest_commit("d_log_shorter").unlink()
        self._newest_commit("e_log_damaged").write_bytes(b'{"commitInfo": {')
        shutil.rmtree(self.folder("f_folder_gone"))

    def _newest_commit(self, table: str) -> Path:
        return max((self.folder(table) / "_delta_log").glob("*.json"))

    def run(self, *arguments: str, exit_code: int) -> str:
        done = CliRunner().invoke(cli, ["--cursor", "lake", *arguments])
        assert done.exit_code == exit_code, done.output
        return " ".join(re.sub(r"[^\S\n]*\n[^\S\n]*", " ", done.output).split())

    def snapshot_of(self, table: str) -> str:
        return f"cdc-pipeline snapshot shop --table {self.database}.{table}"


def test_k22_f109_f179_a_damaged_table_costs_itself_alone_and_its_way_out_is_named(
    project: Project, mariadb_server: Server, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    shop = Damaged(project, mariadb_server, mariadb_database)
    shop.run("run", "shop", exit_code=0)
    shop.change_all()
    shop.run("run", "shop", exit_code=0)
    shop.damage()
    damaged = [*LOST_FILES, *LOST_LOGS]

    plan = shop.run("plan", "shop", exit_code=0)
    assert f"{mariadb_database}.e_log_damaged will be suspended" in plan
    doctor = shop.run("doctor", "shop", exit_code=2)
    for table in {*damaged} - {"c_file_damaged"}:  # nobody reads the files
        assert shop.snapshot_of(table) in doctor, table

    maintained = shop.run("maintain", "shop", exit_code=1)
    assert "files of the table are gone or damaged" in maintained
    for table in ("d_log_shorter", "f_folder_gone"):
        assert shop.snapshot_of(table) in maintained, table

    verified = shop.run("verify", "shop", exit_code=3)
    for table in WHOLE:
        assert re.search(rf"{table}\b.{{0,20}}equal", verified), verified
    for table in damaged:
        assert shop.snapshot_of(table) in verified, (table, verified)
    assert "files of the table are gone or damaged" in verified

    shop.change_all()
    ran = shop.run("run", "shop", exit_code=1)
    for table in damaged:
        assert shop.snapshot_of(table) in ran, (table, ran)
    assert not any(f"{table} is suspended" in ran for table in WHOLE)
    status = shop.run("status", "shop", exit_code=1)
    for table in damaged:
        assert shop.snapshot_of(table) in status, table

    told = shop.run("snapshot", "shop", exit_code=1)
    assert f"move {shop.folder('e_log_damaged')} away" in told, told
    for text in (doctor, maintained, verified, ran, status, told):
        assert "if it keeps deleted rows" in text, "the snapshot of such a table reads its files"
    for table in ("e_log_damaged", PAST):
        shop.folder(table).rename(shop.lake.parent / table)
    done = shop.run("snapshot", "shop", "--table", f"{mariadb_database}.{PAST}", exit_code=0)
    assert "what else there was before the snapshot is lost" in done
    assert "5 tables" not in shop.run("status", "shop", exit_code=0)
    again = shop.run("verify", "shop", exit_code=0)
    for table in TABLES:
        assert re.search(rf"{table}\b.{{0,20}}equal", again), again
