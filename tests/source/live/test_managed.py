"""Managed services, by what their documentation says that their servers answer: a real server with
the tables of one, or a recorded conversation. No real service was asked.

Sources: Amazon RDS, "Setting and showing binary log configuration"; Cloud SQL for MySQL, "Use
point-in-time recovery"; Azure Database for MySQL - Flexible Server, "Server parameters".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import ServerSettingError, SourceError
from cdc_pipeline.operations.verify import checks
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.source.live import managed, retention
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.source.live.managed import (
    AURORA,
    AZURE,
    CLOUD_SQL,
    RDS,
    ManagedService,
    managed_service,
)
from cdc_pipeline.source.live.retention import (
    JournalRetention,
    RetainedLog,
    journal_retention,
    read_retention,
)
from tests.campaigns.liar import wire
from tests.campaigns.liar.lies import STEPS_OF_LIES, recording
from tests.campaigns.liar.lying_server import Answer, LyingServer
from tests.campaigns.liar.recording import GREETING
from tests.operations.doctor.helpers import cursor_at, diagnosis, live, only, pipeline
from tests.servers import Server
from tests.support.live_source import live_config

DAY_S = 86_400.0
PITR = "days of logs for point-in-time recovery = 1 or more"
LIKE_RDS = """CREATE TABLE mysql.rds_configuration
  (name VARCHAR(100) PRIMARY KEY, value VARCHAR(100), description VARCHAR(300))"""
LIKE_RDS_SHOWS = """CREATE PROCEDURE mysql.rds_show_configuration() READS SQL DATA
  SELECT name, value, description FROM mysql.rds_configuration"""


@pytest.mark.parametrize(
    ("variables", "host", "service"),
    [
        ({"aurora_version": "3.08.0", "basedir": "/rdsdbbin/oscar/"}, "db", AURORA),
        ({"basedir": "/rdsdbbin/mysql-8.0.41.R2/", "version": "8.0.41"}, "10.0.0.1", RDS),
        ({"version_comment": "managed by https://aws.amazon.com/rds/"}, "127.0.0.1", RDS),
        ({}, "shop.c0.eu-west-1.rds.amazonaws.com", RDS),
        ({"version": "8.0.41-google", "version_comment": "(Google)"}, "10.0.0.1", CLOUD_SQL),
        ({"cloudsql_iam_authentication": "ON"}, "127.0.0.1", CLOUD_SQL),
        ({"aad_auth_only": "OFF"}, "127.0.0.1", AZURE),
        ({"version": "8.0.40-azure"}, "Shop.mysql.database.azure.com.", AZURE),
        ({"version": "9.7.0", "basedir": "/usr/", "version_comment": "MySQL"}, "db", None),
    ],
)  # fmt: skip
def test_a_service_is_known_by_what_its_server_says(
    variables: dict[str, str], host: str, service: ManagedService | None
) -> None:
    assert managed_service(variables, host) is service


def test_no_server_of_ours_is_taken_for_a_service(server: Server) -> None:
    with closing(ServerConnection(live_config(server))) as connection:
        assert connection.service is None


@pytest.mark.parametrize(
    ("variables", "service", "expire_s", "setting"),
    [
        ({"binlog_expire_logs_seconds": "0"}, None, None, "binlog_expire_logs_seconds = 0"),
        ({"binlog_expire_logs_seconds": "0"}, AZURE, 0.0, "binlog_expire_logs_seconds = 0"),
        ({"binlog_expire_logs_seconds": "60"}, AZURE, 60.0, "binlog_expire_logs_seconds = 60"),
        ({"binlog_expire_logs_seconds": "604800"}, CLOUD_SQL, DAY_S,
         f"binlog_expire_logs_seconds = 604800, {PITR}"),
        ({"binlog_expire_logs_seconds": "3600"}, CLOUD_SQL, 3600.0,
         f"binlog_expire_logs_seconds = 3600, {PITR}"),
    ],
)  # fmt: skip
def test_f89_only_what_is_sure_counts_as_kept(
    variables: dict[str, str], service: ManagedService | None, expire_s: float | None, setting: str
) -> None:
    keeps = journal_retention(variables, service)
    assert (keeps.expire_s, keeps.setting) == (expire_s, setting)


def test_what_to_set_at_cloud_sql_are_its_own_days() -> None:
    keeps = journal_retention({"binlog_expire_logs_seconds": "604800"}, CLOUD_SQL)
    step = CLOUD_SQL.step(keeps.variable, keeps.value_for(30 * DAY_S))
    assert step.startswith("gcloud sql instances patch NAME --retained-transaction-log-days=7; ")


class _LogOf:
    """A source with journals of 1,000 bytes that were begun at these seconds."""

    def __init__(self, *created_s: int) -> None:
        self._created_s = {f"b.{number:06d}": at for number, at in enumerate(created_s, 1)}
        self.server = self

    def journals(self) -> list[JournalInfo]:
        return [JournalInfo(name, 1000) for name in self._created_s]

    def journal_created_s(self, journal: str) -> int:
        return self._created_s[journal]


def _log(monkeypatch: pytest.MonkeyPatch, keeps: JournalRetention, *created_s: int) -> RetainedLog:
    monkeypatch.setattr(retention, "read_retention", lambda _server: keeps)
    monkeypatch.setattr(retention, "clock_s", lambda _server: 10.0 * DAY_S)
    return RetainedLog(cast("LiveSource", _LogOf(*created_s)))


@pytest.mark.parametrize(
    ("variable_days", "days", "kept_days"),
    [
        (7, (0, 1, 5, 9), 7),
        (2, (0, 1, 5, 9), 2),
        (0, (0, 1, 5, 9), 8),  # never
        (7, (0, 3, 9), 6),
        (7, (0, 9, 9), 1),
        (7, (0, 9), 1),
    ],
)
def test_the_warning_of_cloud_sql_ends_when_its_log_is_old_enough(
    monkeypatch: pytest.MonkeyPatch, variable_days: int, days: tuple[int, ...], kept_days: int
) -> None:
    """The setting cannot be seen: what the last rotation left was kept. A variable lowered since
    then lets the next rotation purge more."""
    seconds = str(int(variable_days * DAY_S))
    keeps = journal_retention({"binlog_expire_logs_seconds": seconds}, CLOUD_SQL)
    log = _log(monkeypatch, keeps, *(int(day * DAY_S) for day in days))
    assert log.keeps.expire_s == kept_days * DAY_S
    assert log.left_s("b.000001") == max(0, kept_days + days[1] - 10) * DAY_S


def test_a_journal_that_is_gone_needs_no_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    keeps = journal_retention({"binlog_expire_logs_seconds": "604800"}, CLOUD_SQL)
    log = _log(monkeypatch, keeps, 0, 1, 2)
    monkeypatch.setattr(log, "_created_s", None)
    assert log.left_s("b.000009") == 0.0


def test_without_the_grant_a_limit_is_the_most_that_may_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody may take it for what is left: the hours may be fewer."""
    told = journal_retention({"expire_logs_days": "0", "max_binlog_total_size": "3000"})
    keeps = replace(told, needed_grant="GRANT ...")
    log = _log(monkeypatch, keeps, int(8 * DAY_S), int(9 * DAY_S))  # 1,000 bytes a day
    assert log.left_s("b.000001") is None
    assert log.left_s("b.000001", enough_s=2 * DAY_S) is None
    assert log.left_s("b.000001", enough_s=2 * DAY_S + 1) == 2 * DAY_S


def test_the_size_of_the_log_by_the_name_of_either_server() -> None:
    for name in ("max_binlog_total_size", "binlog_space_limit"):
        keeps = journal_retention({"binlog_expire_logs_seconds": "60", name: "4096"})
        assert (keeps.total_bytes, keeps.size_variable) == (4096, name)


@pytest.fixture
def like_rds(mysql_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A real server with the table and the procedure of Amazon RDS, known as one."""
    monkeypatch.setattr(managed, "managed_service", lambda _variables, _host: RDS)
    before = mysql_server.variable("binlog_expire_logs_seconds")
    mysql_server.execute_all(
        "SET GLOBAL binlog_expire_logs_seconds = 2592000", LIKE_RDS, LIKE_RDS_SHOWS,
        "INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', NULL, ''), "
        "('source delay', '0', '')",
    )  # fmt: skip
    yield mysql_server
    mysql_server.execute_all(
        "DROP TABLE mysql.rds_configuration", "DROP PROCEDURE mysql.rds_show_configuration",
        f"SET GLOBAL binlog_expire_logs_seconds = {before}",
    )  # fmt: skip


def test_f89_the_smaller_of_hours_and_variable_is_what_is_to_be_set(like_rds: Server) -> None:
    like_rds.execute_all(
        "UPDATE mysql.rds_configuration SET value = 24 WHERE name = 'binlog retention hours'"
    )
    with closing(ServerConnection(live_config(like_rds))) as server:
        assert read_retention(server).variable == "binlog retention hours"
        like_rds.execute_all("SET GLOBAL binlog_expire_logs_seconds = 3600")
        keeps = read_retention(server)
    assert (keeps.variable, keeps.value_for(DAY_S)) == ("binlog_expire_logs_seconds", "86400")


@pytest.mark.parametrize("grant", ["", "SELECT ON", "EXECUTE ON PROCEDURE"])
def test_f89_the_hours_of_rds_decide_and_what_cannot_be_seen_is_unknown(
    like_rds: Server, tmp_path: Path, grant: str
) -> None:
    password = "cdc-Secret-1"
    like_rds.execute_all(
        "DROP USER IF EXISTS hours@'%'",
        f"CREATE USER hours@'%' IDENTIFIED BY '{password}'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO hours@'%'",
    )
    if grant:
        what = "rds_configuration" if "SELECT" in grant else "rds_show_configuration"
        like_rds.execute(f"GRANT {grant} mysql.{what} TO hours@'%'")
    source = live(like_rds, user="hours", password=password)
    config = pipeline(source, tmp_path)
    cursor = cursor_at(like_rds, like_rds.journals()[-1].name)

    def told() -> tuple[str, str, str, bool | None]:
        found = diagnosis(config, cursor=cursor, areas=("retention",), every_s=3600.0)
        (needed,) = (one for one in found.findings if one.check == "needed")
        (expiry,) = (one for one in found.findings if one.check == "expiry")
        passed = checks.check_retention(config, cursor).passed
        return expiry.severity, needed.severity, expiry.next_step, passed

    if not grant:
        step = "GRANT SELECT ON mysql.rds_configuration TO 'hours'@'%';"
        assert told() == ("warning", "warning", step, None)
        like_rds.execute("SET GLOBAL binlog_expire_logs_seconds = 60")
        assert told() == ("warning", "error", step, False)
        return
    step = "CALL mysql.rds_set_configuration('binlog retention hours', 168);"
    assert told() == ("error", "error", step, False)
    like_rds.execute("UPDATE mysql.rds_configuration SET value = '72' WHERE name LIKE 'binlog%'")
    assert told() == ("ok", "ok", "", True)
    # The variable says 30 days.
    with closing(ServerConnection(LiveSourceConfig.model_validate(source))) as connection:
        assert read_retention(connection).expire_s == 72 * 3600


def test_at_a_service_no_statement_is_told_that_only_an_owner_may_run(
    mysql_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "managed_service", lambda _variables, _host: CLOUD_SQL)
    before = mysql_server.variable("binlog_row_metadata")
    mysql_server.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        found = diagnosis(pipeline(live(mysql_server), tmp_path), areas=("server",))
    finally:
        mysql_server.execute(f"SET GLOBAL binlog_row_metadata = '{before}'")
    assert only(found, "row metadata").next_step == (
        "set binlog_row_metadata = FULL in the database flags of the instance"
    )
    assert not [one for one in found.findings if "SET PERSIST" in one.next_step]
    (known,) = (one for one in found.findings if one.check == "managed service")
    assert known.what.startswith("this is Google Cloud SQL")


def _config_of(server: LyingServer) -> LiveSourceConfig:
    return LiveSourceConfig.model_validate(
        {"kind": "live", "host": "127.0.0.1", "port": server.port, "user": "u",
         "password": "p", "tls": {"mode": "off"}}
    )  # fmt: skip


@pytest.mark.parametrize("version", ["8.0.40-Vitess", "8.0.34-PlanetScale"])
def test_k31_vitess_is_refused_by_run_and_doctor_alike(tmp_path: Path, version: str) -> None:
    exchanges = recording("mysql").exchanges["examine"]

    def greets(index: int, answer: Answer) -> Answer:
        if exchanges[index].key == GREETING:
            STEPS_OF_LIES["greet"](answer, version, None, 7)
        return answer

    with LyingServer(exchanges, greets) as server:
        config = _config_of(server)
        with (
            closing(LiveSource(config, pipeline_name="shop")) as source,
            pytest.raises(ServerSettingError, match="hands on no binary log") as caught,
        ):
            source.check()
        found = diagnosis(pipeline(config.model_dump(), tmp_path), areas=("server",))
    reachable = only(found, "reachable")
    assert (reachable.severity, reachable.got) == ("error", version)
    assert caught.value.what in reachable.what


def test_a_proxy_that_registers_no_readers_is_named() -> None:
    exchanges = recording("mysql").exchanges["doctor"]

    def unknown(index: int, answer: Answer) -> Answer:
        if exchanges[index].key[0] == wire.REGISTER:
            answer.packets = [wire.error(1047, "Unknown command")]
        return answer

    with LyingServer(exchanges, unknown) as server:
        config = _config_of(server)
        with (
            closing(ServerConnection(config)) as connection,
            pytest.raises(SourceError, match="registers no readers") as caught,
        ):
            connection.may_register_replica(7, "host")
    assert "RDS Proxy" in str(caught.value.next_step)
