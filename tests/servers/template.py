"""An initialised data directory per server version, made once and kept in the cache; each test
server runs on a copy.

The template's accounts: ``root`` from this machine, without a password (the servers listen on
loopback only); no anonymous account, no test database. It has no journals and no server identity of
its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers.installation import Installation, cache_folder, fill_once

_FORMAT = 1
"""Raised when the contents of a template change, so that old ones are left aside."""

SIZE_OPTIONS: dict[str, dict[str, str]] = {
    "mysql": {
        "innodb_redo_log_capacity": "16M",
        "innodb_buffer_pool_size": "64M",
        "innodb_log_buffer_size": "4M",
    },
    "mariadb": {
        "innodb_log_file_size": "16M",
        "innodb_buffer_pool_size": "64M",
        "innodb_log_buffer_size": "4M",
    },
}
"""Small files and buffers. The template and its copies must agree on the log size, or a start first resizes the log."""  # noqa: E501

_MYSQL_ACCOUNTS = """
CREATE USER root@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
GRANT PROXY ON ``@`` TO root@'127.0.0.1' WITH GRANT OPTION;
"""

_MARIADB_ACCOUNTS = """
DELETE FROM mysql.global_priv WHERE User = '';
DELETE FROM mysql.db;
"""


def run_as() -> list[str]:
    """The servers refuse to run as root unless told to."""
    return ["--user=root"] if os.geteuid() == 0 else []


def data_template(installation: Installation, names: str = "0") -> Path:
    """`names` is lower_case_table_names, which MySQL takes only when it makes the directory.
    Raises RuntimeSetupError, with the last lines of the log.
    """
    name = f"data-{installation.flavor}-{installation.version_text}-{_FORMAT}"
    if names != "0" and installation.flavor == "mysql":
        name += f"-names-{names}"

    def fill(unfinished: Path) -> dict[str, object]:
        data = unfinished / "data"
        if installation.flavor == "mysql":
            _fill_mysql(installation, data, names)
        else:
            _fill_mariadb(installation, data)
        for own in (data / "auto.cnf", *data.glob("*.err")):
            own.unlink(missing_ok=True)
        return {"version": installation.version_text, "origin": installation.origin}

    return fill_once(cache_folder() / name, fill) / "data"


def size_options(flavor: str) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in SIZE_OPTIONS[flavor].items()]


def _fill_mysql(installation: Installation, data: Path, names: str) -> None:
    accounts = data.with_name("accounts.sql")
    accounts.write_text(_MYSQL_ACCOUNTS, encoding="utf-8")
    options = [
        "--initialize-insecure",
        f"--init-file={accounts}",
        f"--datadir={data}",
        "--secure-file-priv=NULL",
        "--skip-log-bin",
        f"--lower-case-table-names={names}",
        *size_options("mysql"),
    ]
    _run(installation, options, script=None)
    accounts.unlink()


def _fill_mariadb(installation: Installation, data: Path) -> None:
    share = _mariadb_share(installation)
    data.mkdir()
    (data / "mysql").mkdir()
    parts = [
        "SET @auth_root_socket = NULL, @skip_auth_anonymous = 1, sql_log_bin = 0;",
        "USE mysql;",
    ]
    for name in ("system_tables", "performance_tables", "system_tables_data"):
        (script,) = share.glob(f"m*_{name}.sql")  # mysql_, since 11.0 mariadb_
        parts.append(script.read_text(encoding="utf-8"))
    parts.append(_MARIADB_ACCOUNTS)
    options = [
        "--bootstrap",
        f"--datadir={data}",
        "--skip-log-bin",
        "--skip-grant-tables",
        *size_options("mariadb"),
    ]
    _run(installation, options, script="\n".join(parts))
    shutil.rmtree(data / "test", ignore_errors=True)


def _mariadb_share(installation: Installation) -> Path:
    if installation.share is not None:
        return installation.share
    prefix = Path(installation.command[0]).resolve().parent.parent
    for folder in (
        prefix / "share/mysql",
        prefix / "share/mariadb",
        prefix / "share",
        Path("/usr/share/mysql"),
    ):
        if any(folder.glob("m*_system_tables.sql")):
            return folder
    raise RuntimeSetupError(
        "the SQL scripts of this MariaDB server are not beside it",
        expected="mysql_system_tables.sql in its share folder",
        got=installation.origin,
        next_step="unset CDC_PIPELINE_MARIADBD to let the tests fetch a server",
    )


def _run(installation: Installation, options: list[str], *, script: str | None) -> None:
    command = [
        *installation.command,
        "--no-defaults",
        *installation.location_options(),
        *run_as(),
        *options,
    ]
    done = subprocess.run(command, input=script or "", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeSetupError(
            f"{installation.flavor} {installation.version_text} could not initialise "
            "a data directory",
            got="\n".join((done.stdout + done.stderr).strip().splitlines()[-8:]),
            next_step=f"check the free space under {cache_folder()}",
        )
