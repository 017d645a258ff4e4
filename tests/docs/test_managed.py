"""The examples of docs/start/managed-servers.md: commands that print passwords, and the tunnel."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import InsecureLoginError
from cdc_pipeline.source.live import login
from cdc_pipeline.source.live.connection import ServerConnection
from tests.docs.pages import DOCS
from tests.source.live.login_server import LoginServer

PAGE = (DOCS / "start" / "managed-servers.md").read_text()
YAML: list[dict[str, Any]] = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
]
COMMANDS = [found["password_command"] for found in YAML if "password_command" in found]


def _config(**settings: Any) -> LiveSourceConfig:
    return LiveSourceConfig.model_validate(
        {"kind": "live", "host": "127.0.0.1", "user": "cdc"} | settings
    )


def test_the_page_has_a_command_of_each_cloud_and_of_a_vault() -> None:
    assert [command[0] for command in COMMANDS] == ["aws", "gcloud", "az", "vault"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_gets_its_arguments_as_they_are_written(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program of that name, which prints them: no cloud is asked."""
    program = tmp_path / command[0]
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$*\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert login.password(_config(password_command=command)) == " ".join(command[1:]).encode()


@pytest.mark.parametrize("mode", ["off", "preferred", "required"])
def test_k26_a_token_is_not_sent_but_inside_checked_tls(mode: str, tmp_path: Path) -> None:
    folder = tmp_path if mode == "required" else None
    server = LoginServer("mysql_clear_password", folder=folder)
    config = _config(
        port=server.port, password_command=["echo", "a-token-of-a-cloud"], tls={"mode": mode}
    )
    with pytest.raises(InsecureLoginError) as caught, server:
        ServerConnection(config).query("SELECT 1")
    assert caught.value.setting == "source.tls.mode"
    assert b"a-token-of-a-cloud" not in server.received


def test_the_tunnel_is_a_unit_that_systemd_takes_and_leads_to_the_pipelines_port(
    tmp_path: Path,
) -> None:
    (text,) = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    unit = tmp_path / "cdc-tunnel.service"
    unit.write_text(text)
    (start,) = re.findall(r"ExecStart=((?:.*\\\n)*.*)", text)
    (tunnel,) = (found for found in YAML if "port" in found)
    config = _config(password="p", **(tunnel | {"tls": {"mode": "off"}}))
    assert f"{config.host}:{config.port}:db.internal:3306" in shlex.split(start)
    if shutil.which("systemd-analyze") and Path("/usr/bin/ssh").exists():
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
