"""A PostgreSQL server for Dagster's state, of the machine's own programs.

Order of search:
1. the folder of programs that ``CDC_PIPELINE_POSTGRES`` names;
2. the folder of ``postgres`` on the PATH, if ``initdb`` is there too;
3. the newest of Debian's folders, ``/usr/lib/postgresql/*/bin``.

Rules:
- PostgreSQL does not run as root: it then runs as the machine's user `nobody`, in a folder of its
  own.
- It listens on loopback only, and asks for a password.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc_pipeline.errors import RuntimeSetupError
from tests.cluster.daemon import Daemon, free_port

VARIABLE = "CDC_PIPELINE_POSTGRES"
USER, PASSWORD, DATABASE = "dagster", "tests-postgres-0123", "dagster_state"
_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Postgres:
    """A running server with one empty database, `DATABASE`, of `USER`."""

    port: int
    daemon: Daemon


def find_postgres() -> Path:
    """The folder of PostgreSQL's programs. Raises RuntimeSetupError: there is none."""
    named = os.environ.get(VARIABLE)
    on_path = shutil.which("postgres")
    folders = [Path(named)] if named else []
    if not named:
        folders += [Path(on_path).resolve().parent] if on_path else []
        by_version = (one for one in _DEBIAN.glob("*") if one.name.isdecimal())
        folders += [
            one / "bin" for one in sorted(by_version, key=lambda one: int(one.name), reverse=True)
        ]
    for folder in folders:
        if all((folder / name).is_file() for name in ("postgres", "initdb", "createdb")):
            return folder
    raise RuntimeSetupError(
        "there is no PostgreSQL server on this machine",
        expected="postgres, initdb and createdb in one folder",
        got=named or "none on the PATH and in Debian's folders",
        next_step=f"apt-get install postgresql, or name their folder by {VARIABLE}",
    )


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    programs = find_postgres()
    port = free_port()
    user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="cdc-postgres-") as name:
        home = Path(name)
        (home / "password").write_text(PASSWORD, encoding="utf-8")
        if user is not None:
            for path in (home, home / "password"):
                os.chown(path, user, user)
        data = home / "data"
        options = [f"--username={USER}", f"--pwfile={home / 'password'}", "--no-sync"]
        _run(
            [str(programs / "initdb"), *options, "--auth=scram-sha-256", "-E", "UTF8", str(data)],
            user=user,
            folder=home,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": str(home),
            "fsync": "off",
            "shared_buffers": "32MB",
        }
        command = [str(programs / "postgres"), "-D", str(data)]
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        environment = {"PGPASSWORD": PASSWORD}
        client = ["-h", "127.0.0.1", "-p", str(port), "-U", USER]

        def answers() -> bool:
            asked = [str(programs / "pg_isready"), *client, "-d", "postgres", "-q"]
            return subprocess.run(asked, check=False, cwd=home).returncode == 0

        daemon = Daemon(
            "PostgreSQL",
            command,
            log=home / "log",
            is_ready=answers,
            folder=home,
            user=user,
            stop_signal=signal.SIGINT,
        )
        with daemon:
            _run(
                [str(programs / "createdb"), *client, DATABASE],
                environment=environment,
                folder=home,
            )
            yield Postgres(port, daemon)


def _run(
    command: list[str],
    *,
    folder: Path,
    user: int | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    done = subprocess.run(
        command,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        env={**os.environ, **(environment or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeSetupError(
            f"{Path(command[0]).name} failed", got=(done.stdout + done.stderr)[-2000:]
        )
