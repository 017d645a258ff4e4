"""What `check` and the connection refuse, by name and with the statement that fixes it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import (
    ConfigError,
    LoginError,
    MissingGrantError,
    ServerSettingError,
    ServerUnreachableError,
    SourceError,
)
from cdc_pipeline.source.live.live import LiveSource
from tests.servers import Flavor, Server
from tests.support.live_source import live_source

SECRET = "s3cret-Never-Shown"


@contextmanager
def global_settings(server: Server, **values: str) -> Iterator[None]:
    before = {name: server.variable(name) for name in values}
    try:
        for name, value in values.items():
            server.execute(f"SET GLOBAL {name} = '{value}'")
        yield
    finally:
        for name, value in before.items():
            server.execute(f"SET GLOBAL {name} = '{value}'")


def test_a_good_server_passes(server: Server, fresh_database: str) -> None:
    server.execute(f"CREATE TABLE {fresh_database}.t (a INT PRIMARY KEY)")
    server.execute(f"CREATE VIEW {fresh_database}.v AS SELECT 1 AS a")
    source = live_source(server)
    source.check()
    assert source.identity.flavor == server.flavor
    assert source.identity.server_id == server.server_id
    assert bool(source.identity.server_uuid) == (server.flavor == "mysql")
    assert source.identity.address == f"127.0.0.1:{server.port}"
    tables = source.tables()
    assert tables is not None
    assert f"{fresh_database}.t" in tables
    assert f"{fresh_database}.v" not in tables
    assert not [
        name for name in tables if name.startswith(("mysql.", "sys.", "information_schema."))
    ]


SETTINGS = [
    ("mysql", "binlog_format", "STATEMENT", "SET GLOBAL binlog_format = 'ROW'"),
    ("mysql", "binlog_format", "MIXED", "SET GLOBAL binlog_format = 'ROW'"),
    ("mariadb", "binlog_format", "MIXED", "SET GLOBAL binlog_format = 'ROW'"),
]


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize(("flavor", "setting", "value", "statement"), SETTINGS)
def test_a_setting_is_named_with_the_statement_that_mends_it(
    request: pytest.FixtureRequest, flavor: Flavor, setting: str, value: str, statement: str
) -> None:
    server: Server = request.getfixturevalue(f"{flavor}_server")
    source = live_source(server)
    with global_settings(server, **{setting: value}):
        with pytest.raises(ServerSettingError) as caught:
            source.check()
        assert caught.value.setting == setting
        assert str(caught.value.got) == value
        assert statement in str(caught.value.next_step)
        # The statement that the error gives is the whole cure.
        server.execute(statement)
        source.check()


def test_json_differences_are_no_obstacle_where_rows_hold_their_documents(
    mysql_server: Server,
) -> None:
    source = live_source(mysql_server)
    with global_settings(mysql_server, binlog_row_value_options="PARTIAL_JSON"):
        source.check()
        with global_settings(mysql_server, binlog_row_image="MINIMAL"):
            with pytest.raises(ServerSettingError, match="MINIMAL row images") as caught:
                source.check()
            assert caught.value.setting == "binlog_row_value_options"
            assert "SET GLOBAL binlog_row_value_options = ''" in str(caught.value.next_step)
            mysql_server.execute("SET GLOBAL binlog_row_value_options = ''")
            source.check()


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize(("flavor", "level"), [("mysql", "MINIMAL"), ("mariadb", "NO_LOG")])
def test_less_row_metadata_is_a_warning(
    request: pytest.FixtureRequest, flavor: Flavor, level: str
) -> None:
    server: Server = request.getfixturevalue(f"{flavor}_server")
    source = live_source(server)
    assert source.warnings([]) == ()
    with global_settings(server, binlog_row_metadata=level):
        source.check()
        (note,) = source.warnings([])
        assert level in note
        assert "SET GLOBAL binlog_row_metadata = 'FULL'" in note


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_server_without_a_log_is_named(
    start_server: Callable[..., Server], flavor: Flavor
) -> None:
    server = start_server(flavor, skip_log_bin=None, binlog_row_metadata="MINIMAL")
    source = live_source(server)
    with pytest.raises(ServerSettingError, match="no binary log") as caught:
        source.check()
    assert caught.value.setting == "log_bin"
    with pytest.raises(ServerSettingError, match="no binary log"):
        source.end_position()


GRANTS = [
    ("mysql", ("SELECT", "REPLICATION CLIENT"), ["REPLICATION SLAVE"]),
    ("mysql", ("SELECT", "REPLICATION SLAVE"), ["REPLICATION CLIENT"]),
    ("mysql", ("SELECT",), ["REPLICATION SLAVE", "REPLICATION CLIENT"]),
    ("mariadb", ("SELECT", "BINLOG MONITOR"), ["REPLICATION SLAVE"]),
    ("mariadb", ("SELECT", "REPLICATION SLAVE"), ["BINLOG MONITOR"]),
    ("mariadb", (), ["REPLICATION SLAVE", "BINLOG MONITOR"]),
]


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize(("flavor", "grants", "missing"), GRANTS)
def test_missing_grants_are_named_with_their_statement(
    request: pytest.FixtureRequest, flavor: Flavor, grants: tuple[str, ...], missing: list[str]
) -> None:
    server: Server = request.getfixturevalue(f"{flavor}_server")
    user, password = server.create_replication_user("some'one", grants=grants)
    source = live_source(server, user=user, password=password)
    with pytest.raises(MissingGrantError) as caught:
        source.check()
    statement = f"GRANT {', '.join(missing)} ON *.* TO 'some''one'@'%';"
    assert caught.value.next_step == statement
    server.execute(statement)
    # Servers read an account's privileges when it logs in.
    live_source(server, user=user, password=password).check()


def test_all_findings_come_at_once(mysql_server: Server) -> None:
    user, password = mysql_server.create_replication_user("poor", grants=("SELECT",))
    with (
        global_settings(mysql_server, binlog_format="MIXED"),
        pytest.raises(ServerSettingError) as caught,
    ):
        live_source(mysql_server, user=user, password=password).check()
    text = str(caught.value)
    for part in ("for 3 reasons", "binlog_format", "GRANT REPLICATION SLAVE, REPLICATION CLIENT"):
        assert part in text


def test_a_wrong_password_is_told_without_it(server: Server) -> None:
    server.create_replication_user("known", password="right-Secret-1")
    for user in ("known", "unknown"):
        with pytest.raises(LoginError, match="refuses the account") as caught:
            live_source(server, user=user, password=SECRET).check()
        assert not caught.value.retryable
        assert SECRET not in str(caught.value) + repr(caught.value) + str(caught.value.as_dict())
        assert caught.value.__cause__ is None
        assert "1045" in str(caught.value.got)


def test_passwords_are_sent_as_utf8(server: Server) -> None:
    user, password = server.create_replication_user("umlaut", password="pä€-Secret-1")
    live_source(server, user=user, password=password).check()


def test_an_unreachable_server_is_retryable() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        config = LiveSourceConfig(
            kind="live", host="127.0.0.1", port=port, user="cdc", password=SECRET
        )
        with pytest.raises(ServerUnreachableError, match=str(port)) as caught:
            LiveSource(config, pipeline_name="shop").check()
    assert caught.value.retryable
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("wrong", ["mysql", "mariadb"])
def test_a_wrong_flavor_is_a_config_error(server: Server, wrong: str) -> None:
    source = live_source(server, flavor=wrong)
    if wrong == server.flavor:
        source.check()
    else:
        with pytest.raises(ConfigError) as caught:
            source.check()
        assert caught.value.setting == "source.flavor"


TLS: list[tuple[dict[str, Any], str]] = [
    ({"mode": "verify"}, "cannot establish a TLS connection"),
    ({"mode": "verify", "ca_file": "ca.pem"}, "cannot establish a TLS connection"),
]


@pytest.mark.parametrize(("tls", "text"), TLS)
def test_a_certificate_that_does_not_fit_is_told(
    mysql_server: Server, tls: dict[str, Any], text: str
) -> None:
    if "ca_file" in tls:
        tls = tls | {"ca_file": mysql_server.datadir / tls["ca_file"]}
    with pytest.raises(SourceError, match=text) as caught:
        live_source(mysql_server, tls=tls).check()
    assert caught.value.setting == "source.tls"
    assert not caught.value.retryable


def test_an_account_that_requires_tls_without_it(mysql_server: Server) -> None:
    user, password = mysql_server.create_replication_user("tls_only")
    mysql_server.execute(f"ALTER USER {user} REQUIRE SSL")
    with pytest.raises(SourceError, match="refuses the account") as caught:
        live_source(mysql_server, user=user, password=password, tls={"mode": "off"}).check()
    assert "source.tls.mode" in str(caught.value.next_step)


def test_a_server_without_tls_where_it_is_asked_for(mariadb_server: Server) -> None:
    with pytest.raises(SourceError, match="offers no TLS") as caught:
        live_source(mariadb_server, tls={"mode": "verify"}).check()
    assert "source.tls.mode" in str(caught.value.setting)


def test_a_tls_file_that_is_missing_is_named(tmp_path: Path, mysql_server: Server) -> None:
    for name, setting in (
        ("ca_file", "source.tls.ca_file"),
        ("certificate_file", "source.tls.certificate_file"),
    ):
        with pytest.raises(ConfigError) as caught:
            live_source(mysql_server, tls={"mode": "verify", name: tmp_path / "absent.pem"}).check()
        assert caught.value.setting == setting
        assert "absent.pem" in str(caught.value.got)


def test_a_lost_control_connection_is_opened_again(mysql_server: Server) -> None:
    source = live_source(mysql_server)
    source.check()
    connection = source.server.value("SELECT CONNECTION_ID()")
    mysql_server.execute(f"KILL {connection}")
    assert source.end_position().gtid_set == mysql_server.gtid_set()
    source.close()
    with pytest.raises(SourceError, match="closed"):
        source.end_position()
