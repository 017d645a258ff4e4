"""The servers that all other tests stand on: found, started, restarted, killed, and never left
behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers import FLAVORS, Flavor, Server, find_installation
from tests.servers import server as server_module
from tests.servers.apt_source import parse_deb822, parse_one_line, stanzas_for
from tests.servers.installation import fill_once
from tests.support.waits import wait_until

# The servers of all other tests: they would show a defect too.
pytestmark = pytest.mark.whole

both = pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)


@both
def test_a_server_whose_port_another_took_gets_another_port(
    flavor: Flavor, start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one answers there, with the same account."""
    first = start_server(flavor)
    free_port = server_module._free_port
    ports = iter([first.port])
    monkeypatch.setattr(server_module, "_free_port", lambda: next(ports, None) or free_port())
    second = start_server(flavor)
    assert second.port != first.port
    assert second.variable("server_id") == str(second.server_id) != first.variable("server_id")


@both
def test_temporary_tables_outlive_the_start_of_another_server(
    flavor: Flavor, start_server: Callable[..., Server]
) -> None:
    """A server that starts removes left-overs in its folder for temporary files."""
    one = start_server(flavor)
    engine = "MyISAM" if flavor == "mysql" else "Aria"
    one.execute(f"CREATE TEMPORARY TABLE mysql.t (a INT) ENGINE={engine}")
    one.execute("INSERT INTO mysql.t VALUES (1)")
    two = start_server(flavor)
    one.execute_all("FLUSH TABLES", "INSERT INTO mysql.t VALUES (2)")
    assert one.query("SELECT a FROM mysql.t") == [(1,), (2,)]
    assert one.execute("DROP TEMPORARY TABLE mysql.t") == 0
    assert one.variable("tmpdir") != two.variable("tmpdir")


@both
def test_a_server_dies_with_the_process_that_started_it(flavor: Flavor) -> None:
    start = f"s = Server({flavor!r}).start(); print(s.pid, s._home, flush=True); input()"
    code = f"from tests.servers import Server; {start}"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    pid_text, home = child.stdout.readline().split()
    pid = int(pid_text)
    os.kill(pid, 0)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    wait_until(lambda: not _alive(pid), f"{flavor} server {pid} outlived its test process")
    # The next server removes the files that it could not remove; a server of another process may be
    # at it just now.
    Server(flavor).close()
    wait_until(lambda: not Path(home).exists(), f"the files of {flavor} server {pid} outlived it")


@pytest.mark.parametrize("flavor", FLAVORS)
def test_without_server_and_apt_the_way_out_is_told(
    flavor: Flavor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("CDC_PIPELINE_MYSQLD", "CDC_PIPELINE_MARIADBD"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CDC_PIPELINE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(RuntimeSetupError, match="apt-get is not on this machine") as caught:
        find_installation.__wrapped__(flavor)
    assert "CDC_PIPELINE_MYSQLD" in str(caught.value.next_step)
    assert not list((tmp_path / "cache").rglob("complete.json"))


def test_an_interrupted_fill_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> dict[str, object]:
        (folder / "half").touch()
        raise KeyboardInterrupt

    def whole(folder: Path) -> dict[str, object]:
        (folder / "all").touch()
        return {"fills": 1}

    def never(folder: Path) -> dict[str, object]:
        raise AssertionError(f"{folder} was filled twice")

    with pytest.raises(KeyboardInterrupt):
        fill_once(tmp_path / "x", interrupted)
    assert not (tmp_path / "x").exists()
    for fill in (whole, never):
        folder = fill_once(tmp_path / "x", fill)
        assert sorted(path.name for path in folder.iterdir()) == ["all", "complete.json"]


MODERN = """
# a comment
Types: deb deb-src
URIs: file:/mirror/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /keys/archive.gpg

Enabled: no
Types: deb
URIs: file:/mirror/off
Suites: sid
Components: main

Types: deb
URIs: file:/mirror/other
Suites: nodistro
Components: main
"""


def test_sources_come_from_the_machine_with_the_suite_replaced() -> None:
    stanzas = parse_deb822(MODERN)
    assert [s["Uris"] for s in stanzas] == ["file:/mirror/debian", "file:/mirror/other"]
    assert stanzas_for("bookworm", stanzas) == stanzas[:1]
    (sid,) = stanzas_for("sid", stanzas)
    assert (sid["Types"], sid["Uris"], sid["Suites"]) == ("deb", "file:/mirror/debian", "sid")
    assert sid["Signed-By"] == "/keys/archive.gpg"


def test_one_line_sources_are_understood() -> None:
    text = (
        "# deb file:/no stable main\ndeb [signed-by=/k.gpg arch=amd64,arm64] file:/m trixie main "
        "contrib # note\n"
    )
    (stanza,) = parse_one_line(text)
    assert stanza["Architectures"] == "amd64 arm64"
    (sid,) = stanzas_for("sid", [stanza])
    assert (sid["Uris"], sid["Suites"], sid["Components"], sid["Signed-By"]) == (
        "file:/m",
        "sid",
        "main",
        "/k.gpg",
    )


def test_no_debian_source_is_an_error_that_names_the_way_out() -> None:
    with pytest.raises(RuntimeSetupError, match="suite sid"):
        stanzas_for("sid", parse_one_line("deb file:/m noble main universe"))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
