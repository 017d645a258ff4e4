"""Mistakes that only a server shows, and what a newcomer is told (tests/golden/mistakes/README.md).

Each is made on a real server. Where the next step is a statement, it is executed as it is printed.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.servers import Server
from tests.support.project import Project
from tests.support.told import Told

NEXT = re.compile(r"^ +next +(.*)$", re.MULTILINE)


class Pipeline:
    def __init__(self, told: Told, project: Project, server: Server, database: str) -> None:
        self.told, self.server, self.database = told, server, database
        self._file = project.jobs / "shop.yaml"
        self.user = f"cdc_{database}"
        server.execute(f"CREATE USER '{self.user}'@'%' IDENTIFIED BY 'right'")
        server.execute(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, note TEXT)")
        for value, name in (
            (f"127.0.0.1:{server.port}", "SERVER"),
            (server.port, "PORT"),
            (self.user, "USER"),
            (database, "DATABASE"),
            (server.server_id, "SERVER_ID"),
        ):
            told.name(value, name)

    def write(self, *, more: str = "", include: str = "", **source: object) -> None:
        settings: dict[str, object] = {
            "kind": "live",
            "host": "127.0.0.1",
            "port": self.server.port,
            "user": self.user,
            "password": "right",
            "connect_timeout_s": 5,
            **source,
        }
        lines = "".join(f"  {name}: {value}\n" for name, value in settings.items())
        self._file.write_text(
            f"source:\n{lines}tables: {{include: ['{include or self.database + '.*'}']}}\n"
            f"sink: {{lake_path: ../lake}}\n{more}"
        )

    def attempt(self) -> str | None:
        result = CliRunner().invoke(cli, ["plan", "shop"])
        return self.told.run("plan", "shop", exit_code=1) if result.exit_code else None

    def grant_all(self) -> None:
        status = "BINLOG MONITOR" if self.server.flavor == "mariadb" else "REPLICATION CLIENT"
        self.server.execute(f"GRANT REPLICATION SLAVE, {status} ON *.* TO '{self.user}'@'%'")
        self.server.execute(f"GRANT SELECT ON {self.database}.* TO '{self.user}'@'%'")
        if self.server.flavor == "mysql":
            self.server.execute(f"GRANT SELECT ON performance_schema.* TO '{self.user}'@'%'")


@pytest.fixture
def pipeline(
    told: Told, project: Project, mysql_server: Server, mysql_database: str
) -> Iterator[Pipeline]:
    made = Pipeline(told, project, mysql_server, mysql_database)
    yield made
    mysql_server.execute(f"DROP USER '{made.user}'@'%'")


@pytest.fixture
def on_mariadb(
    told: Told, project: Project, mariadb_server: Server, mariadb_database: str
) -> Iterator[Pipeline]:
    made = Pipeline(told, project, mariadb_server, mariadb_database)
    yield made
    mariadb_server.execute(f"DROP USER '{made.user}'@'%'")


@pytest.mark.mysql
def test_a_mistake_in_the_password(pipeline: Pipeline) -> None:
    pipeline.grant_all()
    pipeline.write(password="wrong")
    for command in ("plan", "run"):
        pipeline.told.run(command, "shop", exit_code=1)
    pipeline.told.then("correct the password")
    pipeline.write()
    pipeline.told.works("plan", "shop")
    pipeline.told.check("server-password")


@pytest.mark.mysql
def test_a_mistake_in_the_address(pipeline: Pipeline) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = taken.getsockname()[1]
        pipeline.told.name(closed, "CLOSED_PORT")
        pipeline.write(port=closed)
        pipeline.told.run("plan", "shop", exit_code=1)
    pipeline.write(host="nowhere.invalid")
    pipeline.told.run("plan", "shop", exit_code=1)
    pipeline.told.check("server-address")


def _granted(pipeline: Pipeline) -> None:
    pipeline.write(more="start: latest\n")
    while (refused := pipeline.attempt()) is not None:
        statement = NEXT.search(refused)[1]  # type: ignore[index]
        pipeline.told.then(statement)
        pipeline.server.execute(statement)
    pipeline.told.works("plan", "shop")


@pytest.mark.mysql
def test_a_mistake_in_the_grants(pipeline: Pipeline) -> None:
    _granted(pipeline)
    pipeline.told.check("server-grants-mysql")


@pytest.mark.mariadb
def test_a_mistake_in_the_grants_on_mariadb(on_mariadb: Pipeline) -> None:
    _granted(on_mariadb)
    on_mariadb.told.check("server-grants-mariadb")


@pytest.mark.mysql
def test_a_mistake_in_a_pattern(pipeline: Pipeline) -> None:
    pipeline.grant_all()
    pipeline.write(include=f"{pipeline.database}.order", more="start: latest\n")
    pipeline.told.run("run", "shop", exit_code=2)
    pipeline.told.then("correct the pattern")
    pipeline.write(include=f"{pipeline.database}.orders", more="start: latest\n")
    pipeline.told.works("run", "shop")
    pipeline.told.check("table-pattern")


@pytest.mark.mysql
def test_a_mistake_in_a_masks_column(pipeline: Pipeline) -> None:
    """A mask of a column that is misspelt would leave its values readable: plan asks the server."""
    pipeline.grant_all()
    rule = f"{{tables: [{pipeline.database}.orders], masks: {{%s: {{truncate: 3}}}}}}"
    pipeline.write(more=f"start: latest\ntargets:\n- {rule % 'noet'}\n")
    pipeline.told.run("plan", "shop", exit_code=2)
    pipeline.told.then("correct the column's name")
    pipeline.write(more=f"start: latest\ntargets:\n- {rule % 'note'}\n")
    pipeline.told.works("plan", "shop")
    pipeline.told.check("table-mask")


@pytest.mark.mysql
def test_a_mistake_about_tls(pipeline: Pipeline) -> None:
    pipeline.grant_all()
    for tls in ("{mode: verify}", "{mode: verify, ca_file: absent.pem}", "{mode: verify_ca}"):
        pipeline.write(tls=tls)
        pipeline.told.run("plan", "shop", exit_code=1 if tls == "{mode: verify}" else 2)
    pipeline.told.check("server-tls")


@pytest.mark.mysql
def test_a_mistake_in_the_start(pipeline: Pipeline) -> None:
    pipeline.grant_all()
    for start in (
        "{journal: binlog.999999}",
        "{journal: mysql-bin.000001, offset: 4}",
        "{gtid_set: 0-1-42}",
        "{gtid_set: '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5'}",
    ):
        pipeline.write(more=f"start: {start}\n")
        pipeline.told.run("plan", "shop", exit_code=1)
    pipeline.told.check("start")


@pytest.mark.mysql
def test_a_mistake_in_the_replica_id(pipeline: Pipeline) -> None:
    pipeline.grant_all()
    pipeline.write(replica_server_id=pipeline.server.server_id, more="start: latest\n")
    pipeline.told.run("run", "shop", exit_code=1)
    pipeline.told.then("remove the line")
    pipeline.write(more="start: latest\n")
    pipeline.told.works("run", "shop")
    pipeline.told.check("server-replica-id")


@pytest.mark.mysql
def test_a_mistake_in_the_servers_settings(
    told: Told, project: Project, start_server: Callable[..., Server]
) -> None:
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute("CREATE DATABASE sales")
    pipeline = Pipeline(told, project, server, "sales")
    pipeline.grant_all()
    pipeline.write(more="start: {gtid_set: '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5'}\n")
    told.run("plan", "shop", exit_code=1)
    told.then("start: latest")
    pipeline.write(more="start: latest\n")
    server.execute("SET GLOBAL binlog_format = 'STATEMENT'")
    output = told.run("plan", "shop", exit_code=1)
    statement = NEXT.search(output)[1].split(";")[0]  # type: ignore[index]
    told.then(statement)
    server.execute(statement)
    told.works("plan", "shop")
    told.check("server-settings")


@pytest.mark.mysql
def test_a_mistake_about_the_servers_log(
    told: Told, project: Project, start_server: Callable[..., Server]
) -> None:
    server = start_server("mysql", skip_log_bin=None, gtid_mode="OFF")
    (project.jobs / "shop.yaml").write_text(
        f"source: {{kind: live, host: 127.0.0.1, port: {server.port}, user: root, password: ''}}\n"
        "sink: {lake_path: ../lake}\n"
    )
    told.name(server.port, "PORT")
    told.run("plan", "shop", exit_code=1)
    told.check("server-without-log")
