"""K26: what a server that lies gets to see of the password, by each kind of connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, TlsConfig
from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    InsecureLoginError,
    ServerUnreachableError,
    SourceError,
)
from cdc_pipeline.source.live import login
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.handover import DumpRequest, ReplicaName, open_dump
from cdc_pipeline.source.live.login import tls_arguments
from cdc_pipeline.source.live.standby import choose_server
from cdc_pipeline.source.rows.table_reader import TableReader
from tests.source.live.login_server import LoginServer, make_certificate

PASSWORD = "Canary-9f2c-password"


def _dump(config: LiveSourceConfig) -> None:
    open_dump(
        config,
        DumpRequest(flavor="mysql", journal="binlog.000001", offset=4, gtid_set=""),
        ReplicaName(server_id=4001, uuid="6f1c1fd2-0a9e-5c2c-8f5e-3a0b7c1d9e42", host="cdc"),
    )


CONNECTIONS: dict[str, Callable[[LiveSourceConfig], object]] = {
    "control": lambda config: ServerConnection(config).query("SELECT 1"),
    "registration": lambda config: ServerConnection(config).may_register_replica(4001, "cdc"),
    "rows": lambda config: TableReader(config).query("SELECT 1"),
    "dump": _dump,
}


def _config(server: LoginServer, **tls: Any) -> LiveSourceConfig:
    return LiveSourceConfig(
        kind="live",
        host="127.0.0.1",
        port=server.port,
        user="cdc",
        password=PASSWORD,
        read_timeout_s=20,
        tls=TlsConfig(**tls) if tls else TlsConfig(mode="preferred"),
    )


def _gives_away(
    server: LoginServer, config: LiveSourceConfig, connect: str = "control"
) -> CdcError | None:
    """Connect; return the error, or None if the server has read the password."""
    with server, pytest.raises(CdcError) as caught:
        CONNECTIONS[connect](config)
    assert PASSWORD not in str(caught.value)
    return None if PASSWORD.encode() in server.received else caught.value


@pytest.mark.parametrize("connect", CONNECTIONS)
@pytest.mark.parametrize("plugin", ["mysql_clear_password", "dialog"])
@pytest.mark.parametrize("mode", ["off", "preferred", "required"])
def test_k26_clear_text_is_never_sent_to_an_unchecked_server(
    plugin: str, mode: str, connect: str, tmp_path: Path
) -> None:
    """F12: the password went to any server that asked for it in clear, with or without TLS."""
    server = LoginServer(plugin, folder=None if mode == "off" else tmp_path)
    error = _gives_away(server, _config(server, mode=mode), connect)
    assert isinstance(error, InsecureLoginError)
    assert error.setting == "source.tls.mode"
    assert error.got == ("no TLS" if mode == "off" else "TLS without verification")


def test_k26_clear_text_is_never_sent_where_tls_is_left_out() -> None:
    """F12: `preferred` goes on without TLS if the server says that it has none."""
    server = LoginServer("mysql_clear_password")
    assert isinstance(_gives_away(server, _config(server)), InsecureLoginError)


@pytest.mark.parametrize("plugin", ["mysql_clear_password", "dialog"])
@pytest.mark.parametrize("mode", ["verify_ca", "verify"])
def test_clear_text_is_sent_to_a_server_whose_certificate_was_checked(
    plugin: str, mode: str, tmp_path: Path
) -> None:
    server = LoginServer(plugin, folder=tmp_path)
    assert _gives_away(server, _config(server, mode=mode, ca_file=tmp_path / "ca.pem")) is None


@pytest.mark.parametrize("plugin", ["mysql_old_password", "mysql_clear_password2", "größe"])
def test_k26_a_plugin_that_is_not_known_is_refused(plugin: str, tmp_path: Path) -> None:
    server = LoginServer(plugin, folder=tmp_path)
    error = _gives_away(server, _config(server, mode="verify", ca_file=tmp_path / "ca.pem"))
    assert isinstance(error, InsecureLoginError)
    assert error.setting == "source.user"


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
@pytest.mark.parametrize("by", ["greeting", "switch"])
def test_k26_no_key_is_taken_from_another_machine_without_tls(
    plugin: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F12: a machine on the way could send a key of its own and read the password."""
    monkeypatch.setattr(login, "_is_local", lambda _connection: False)
    server = LoginServer(plugin) if by == "switch" else LoginServer(greeting=plugin)
    error = _gives_away(server, _config(server))
    assert isinstance(error, InsecureLoginError)
    assert error.got == "no TLS"


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
def test_a_key_is_taken_from_this_machine(plugin: str) -> None:
    server = LoginServer(plugin)
    assert _gives_away(server, _config(server)) is None


def test_k26_required_is_tls_or_nothing() -> None:
    server = LoginServer("mysql_native_password")
    with pytest.raises(SourceError, match="offers no TLS"), server:
        ServerConnection(_config(server, mode="required")).query("SELECT 1")
    assert b"cdc" not in server.received


def test_k26_with_an_authority_of_its_own_no_other_is_trusted(tmp_path: Path) -> None:
    """The system's authorities sign anybody's certificate: `verify_ca` would take each."""
    make_certificate(tmp_path)
    context = tls_arguments(TlsConfig(mode="verify_ca", ca_file=tmp_path / "ca.pem"))["ssl"]
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(ValidationError, match="verify_ca needs ca_file"):
        TlsConfig(mode="verify_ca")


def _config_with_command(server: LoginServer, *command: str, **settings: Any) -> LiveSourceConfig:
    given = _config(server).model_dump() | {"password": None, "password_command": command}
    return LiveSourceConfig.model_validate(given | settings)


@pytest.mark.parametrize("connect", CONNECTIONS)
def test_the_password_of_a_command_is_asked_for_at_each_connect(
    tmp_path: Path, connect: str
) -> None:
    """A token for a server in a cloud expires, and is sent in clear text: only inside TLS."""
    asked = tmp_path / "asked"
    script = f"echo asked >> {asked}; echo {PASSWORD}; echo {PASSWORD} >&2"
    server = LoginServer("mysql_clear_password", folder=tmp_path)
    tls = {"mode": "verify", "ca_file": tmp_path / "ca.pem"}
    config = _config_with_command(server, "sh", "-c", script, tls=tls)
    assert _gives_away(server, config, connect) is None
    assert asked.read_text() == "asked\n"


@pytest.mark.parametrize(
    ("script", "got"),
    [
        (f"echo {PASSWORD}; echo {PASSWORD} >&2; exit 3", "sh: exit code 3"),
        ("true", "sh: an empty answer"),
        (f"echo {PASSWORD}; exec sleep 600", "sh: no answer within 0.2 s"),
    ],
    ids=["fails", "empty", "hangs"],
)
def test_a_command_without_a_password_fails_the_connect(script: str, got: str) -> None:
    server = LoginServer()
    config = _config_with_command(server, "sh", "-c", script, connect_timeout_s=0.2)
    error = _gives_away(server, config)
    assert isinstance(error, ServerUnreachableError)
    assert (error.setting, error.got) == ("source.password_command", got)


def test_a_command_without_a_password_is_no_reason_for_another_server() -> None:
    config = _config_with_command(LoginServer(), "false", standby={"host": "127.0.0.1"})
    with pytest.raises(ServerUnreachableError) as caught:
        choose_server(config)
    assert caught.value.setting == "source.password_command"


def test_a_command_that_is_not_there_is_a_mistake_of_the_file() -> None:
    server = LoginServer()
    error = _gives_away(server, _config_with_command(server, "no-such-program"))
    assert isinstance(error, ConfigError)
    assert error.setting == "source.password_command"


def test_a_password_and_a_command_are_one_too_many() -> None:
    server = LoginServer()
    for settings in ({"password_command": ()}, {"password": PASSWORD}):
        with pytest.raises(ValidationError, match="one of them"):
            _config_with_command(server, "true", **settings)
