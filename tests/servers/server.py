"""A throwaway MySQL or MariaDB server for one test or one session.

Rules:
- A server listens on loopback only, on a free port and a socket, in a temporary directory of its
  own.
- It never outlives the test process: the kernel kills it when the thread that started it ends, and
  that thread lives as long as the process (`_SPAWNER`); a normal exit also stops it and removes its
  directory.
- Its temporary tables are in that directory too. A server that starts removes those of all servers
  from its folder for them; in a shared one MariaDB crashes (signal 11, in free_tmp_table) when its
  own are gone.
- Nothing waits by sleeping a fixed time: readiness is a successful login before a deadline.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pymysql
from pymysql.connections import Connection

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers.installation import Flavor, Installation, find_installation
from tests.servers.template import SIZE_OPTIONS, data_template, run_as

START_DEADLINE_S = STOP_DEADLINE_S = 300.0

OptionValue = str | int | bool | Path | None
Options = Mapping[str, OptionValue] | Sequence[str]

_COMMON: dict[str, OptionValue] = {
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "bind_address": "127.0.0.1",
    "skip_name_resolve": None,
    "character_set_server": "utf8mb4",
    # 2, not 0: written at commit but not synced, so that a killed server still has what it has
    # committed
    "innodb_flush_log_at_trx_commit": 2,
    "innodb_doublewrite": 0,
    "innodb_flush_method": "nosync",
    "sync_binlog": 0,
    "max_connections": 60,
    "max_allowed_packet": "64M",
    "performance_schema": False,
}
_BY_FLAVOR: dict[str, dict[str, OptionValue]] = {
    "mysql": {
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "secure_file_priv": "NULL",
        "mysqlx": False,
        "collation_server": "utf8mb4_0900_ai_ci",
        "table_open_cache": 400,
        "temptable_max_ram": "16M",
    },
    "mariadb": {
        "gtid_strict_mode": "ON",
        "collation_server": "utf8mb4_general_ci",
        "aria_pagecache_buffer_size": "8M",
    },
}

_CRASH_LINES = 60
_CRASH = re.compile(r"got signal \d|\bAssertion\b|Failing assertion")
_ERROR = re.compile(r"\[(ERROR|FATAL)\]")
_SET_GLOBAL = re.compile(r"\s*SET\s+(?:GLOBAL\s+|@@GLOBAL\.)(\w+)", re.IGNORECASE)

_HOME_PREFIX = "cdc-server-"
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-spawner")
_server_ids = itertools.count(os.getpid() % 100_000 * 10_000 + 1)
_open_servers: set[Server] = set()


class Server:
    """A server process. Also a context manager: started on entry, gone with its files on exit.

    `options` (``{"binlog_row_image": "MINIMAL", "skip_log_bin": None}`` or ``["--binlog-row-
    image=MINIMAL"]``) replace defaults of the same name; in a mapping True and False mean ON and
    OFF, None an option without a value. The port is the same after `restart`; `server_id` is
    unique among the servers of this machine.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        flavor: Flavor,
        options: Options = (),
        *,
        installation: Installation | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.flavor: Flavor = flavor
        self.installation = installation or find_installation(flavor)
        self.version = self.installation.version
        self.server_id = next(_server_ids)
        self._options = _normalised(options)
        self.environment = dict(environment or {})
        self._home, self._home_lock = _new_home()
        self.datadir = self._home / "data"
        self.socket = self._home / "s.sock"
        self.error_log = self._home / "error.log"
        self._output_log = self._home / "output.log"
        self._tmpdir = self._home / "tmp"
        self._tmpdir.mkdir()
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: Connection[Any] | None = None
        # variable -> the last statement that set it since the start
        self._globals: dict[str, str] = {}
        self._lock = threading.RLock()
        _open_servers.add(self)

    # -- life --------------------------------------------------------------------------------------

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self) -> None:
        """`start` does so too. In between, a test may change files."""
        if not self.datadir.exists():
            names = str(self._options.get("lower_case_table_names", 0))
            shutil.copytree(data_template(self.installation, names), self.datadir)

    def start(self) -> Server:
        """Does nothing when it already runs. Raises RuntimeSetupError, with the end of its log:
        it ended or did not answer in time.
        """
        if self.running:
            return self
        self.prepare()
        attempts = 3 if self.port == 0 else 1
        for attempt in range(attempts):
            if self.port == 0 or attempt:
                self.port = _free_port()
            for log in (self.error_log, self._output_log):
                log.unlink(missing_ok=True)
            self._globals.clear()
            self._process = _SPAWNER.submit(self._spawn).result()
            try:
                self._wait_ready()
            except RuntimeSetupError as error:
                self.kill()
                if "already in use" not in str(error) or attempt == attempts - 1:
                    raise
            else:
                break
        return self

    def restart(self, options: Options = ()) -> None:
        self.stop()
        self._options |= _normalised(options)
        self.start()

    def start_again(self) -> None:
        """One that has `died`: the same data, port, options and global variables as its tests
        have set. Raises as `start`.
        """
        self._drop_admin()
        remembered = list(self._globals.values())
        self._process = None
        self.start()
        self.execute_all(*remembered)

    def stop(self) -> None:
        self._drop_admin()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise self._failure(f"did not stop within {STOP_DEADLINE_S:.0f} s") from None
            self._process = None

    def kill(self) -> None:
        """SIGKILL. The files stay; `start` recovers on them."""
        self._drop_admin()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(STOP_DEADLINE_S)
            self._process = None

    def close(self) -> None:
        _open_servers.discard(self)
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)
        self._home_lock.close()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def died(self) -> bool:
        """Whether the process has ended though nobody has called `stop` or `kill`."""
        return self._process is not None and self._process.poll() is not None

    @property
    def died_by_signal(self) -> bool:
        """One that a server has caught and told of may end it with a plain exit code."""
        if self._process is None or not self.died:
            return False
        return self._process.returncode < 0 or any(map(_CRASH.search, self._log_lines()))

    @property
    def pid(self) -> int | None:
        """Process id while started."""
        return None if self._process is None else self._process.pid

    def log_report(self, lines: int = 15) -> str:
        """The 60 lines from the first of a crash on; without one the last 60 from the first
        error on, or the last `lines` of a log that has neither.
        """
        said = self._log_lines()
        first = next((number for number, line in enumerate(said) if _CRASH.search(line)), None)
        if first is None:
            error = next(
                (number for number, line in enumerate(said) if _ERROR.search(line)),
                len(said) - lines,
            )
            first = max(0, error, len(said) - _CRASH_LINES)
        else:
            while first and _ERROR.search(said[first - 1]):
                first -= 1
        return "\n".join(said[first : first + _CRASH_LINES])

    def _log_lines(self) -> list[str]:
        """Error log and then the process's own output, of the last start."""
        logs = [log for log in (self.error_log, self._output_log) if log.exists()]
        return [
            line
            for log in logs
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        ]

    # -- SQL ---------------------------------------------------------------------------------------

    def root_connection(self, **kwargs: Any) -> Connection[Any]:
        """Autocommit on, session time zone +00:00."""
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": "root",
            "password": "",
            "charset": "utf8mb4",
            "autocommit": True,
            "init_command": "SET time_zone = '+00:00'",
            "connect_timeout": 10,
            "ssl_disabled": True,
        }
        return pymysql.connect(**(settings | kwargs))

    def execute(self, sql: str, args: object = None) -> int:
        if found := _SET_GLOBAL.match(sql):
            # also when there is no server any more: what a test sets back then holds for the next
            # start
            self._globals[found[1].lower()] = sql
        with self._lock, self._connection().cursor() as cursor:
            return int(cursor.execute(sql, args))

    def execute_all(self, *statements: str) -> None:
        for statement in statements:
            self.execute(statement)

    def new_session(self) -> None:
        """Forget what statements have set in the session of the server's own root connection."""
        with self._lock:
            self._drop_admin()

    def query(self, sql: str, args: object = None) -> list[tuple[Any, ...]]:
        with self._lock, self._connection().cursor() as cursor:
            cursor.execute(sql, args)
            return [tuple(row) for row in cursor.fetchall()]

    def variable(self, name: str) -> str:
        return str(self.query(f"SELECT @@GLOBAL.{name}")[0][0])

    def create_replication_user(
        self, name: str = "cdc", password: str = "cdc-Secret-1", grants: Sequence[str] | None = None
    ) -> tuple[str, str]:
        """An account that may capture, or has other `grants`, such as ``SELECT`` on all tables."""
        if grants is None:
            client = "REPLICATION CLIENT" if self.flavor == "mysql" else "BINLOG MONITOR"
            grants = ("SELECT", "REPLICATION SLAVE", client)
        self.execute(f"DROP USER IF EXISTS `{name}`@'%'")
        self.execute(f"CREATE USER `{name}`@'%' IDENTIFIED BY '{password}'")
        if grants:
            self.execute(f"GRANT {', '.join(grants)} ON *.* TO `{name}`@'%'")
        return name, password

    # -- binlog ------------------------------------------------------------------------------------

    def journals(self) -> list[Path]:
        index = self.datadir / "binlog.index"
        return [
            self.datadir / Path(line).name for line in index.read_text(encoding="utf-8").split()
        ]

    def copy_journals(self, to_dir: Path) -> list[Path]:
        to_dir.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(journal, to_dir / journal.name)) for journal in self.journals()]

    def purge_to(self, oldest: str) -> None:
        """However long it takes: MariaDB keeps for a while what its crash recovery may still
        need, and what a dump reads that ended without its notice.
        """
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            self.execute(f"PURGE BINARY LOGS TO '{oldest}'")
            if self.journals()[0].name >= oldest:
                return
            assert time.monotonic() < deadline, f"{self.journals()[0].name} is not purged"
            time.sleep(0.1)

    def flush_journal(self) -> None:
        self.execute("FLUSH BINARY LOGS")

    def reset_log(self, *, to: int = 0, keeps_gtids: bool = False) -> None:
        """Remove all journals and begin again, with a number; with what was executed before, or
        without.
        """
        executed, is_mysql = self.gtid_set(), self.flavor == "mysql"
        statement = "RESET BINARY LOGS AND GTIDS" if is_mysql else "RESET MASTER"
        self.execute(statement + (f" TO {to}" if to else ""))
        if keeps_gtids:
            name = "gtid_purged" if is_mysql else "gtid_binlog_state"
            self.execute(f"SET GLOBAL {name} = '{executed}'")

    def end_position(self) -> tuple[str, int]:
        statement = "SHOW BINARY LOG STATUS" if self.flavor == "mysql" else "SHOW MASTER STATUS"
        journal, offset = self.query(statement)[0][:2]
        return str(journal), int(offset)

    def gtid_set(self) -> str:
        """All executed so far: ``gtid_executed``, or MariaDB's ``gtid_binlog_pos``."""
        name = "gtid_executed" if self.flavor == "mysql" else "gtid_binlog_pos"
        return self.variable(name).replace("\n", "")

    # -- inner -------------------------------------------------------------------------------------

    def _arguments(self) -> list[str]:
        chosen: dict[str, OptionValue] = (
            _COMMON
            | SIZE_OPTIONS[self.flavor]
            | _BY_FLAVOR[self.flavor]
            | {"server_id": self.server_id}
        )
        own: dict[str, OptionValue] = {
            "datadir": self.datadir,
            "socket": self.socket,
            "port": self.port,
            "log_error": self.error_log,
            "tmpdir": self._tmpdir,
        }
        if "skip_log_bin" in self._options:
            chosen.pop("log_bin")
        chosen |= {"pid_file": self._home / "pid"} | own | self._options
        installation = self.installation
        return [
            *installation.command,
            "--no-defaults",
            *installation.location_options(),
            *run_as(),
            *itertools.starmap(_argument, chosen.items()),
        ]

    def _spawn(self) -> subprocess.Popen[bytes]:
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with self._output_log.open("ab") as output:
            return subprocess.Popen(
                [*prefix, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._home,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        pause = threading.Event()
        while True:
            if not self.running:
                raise self._failure("ended while starting")
            try:
                self._admin = self.root_connection(connect_timeout=2)
                ((answers,),) = self.query("SELECT @@datadir")
                if Path(answers).resolve() == self.datadir.resolve():
                    return
                answer = f"the server of {answers} has port {self.port}"
            except pymysql.err.OperationalError as error:
                answer = str(error.args)
            self._drop_admin()  # another's server has the port: this one will end
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {START_DEADLINE_S:.0f} s: {answer}")
            pause.wait(0.05)

    def _connection(self) -> Connection[Any]:
        if not self.running:
            raise self._failure("is not running")
        if self._admin is None:
            self._admin = self.root_connection()
        return self._admin

    def _drop_admin(self) -> None:
        if self._admin is not None:
            with contextlib.suppress(Exception):
                self._admin.close()
            self._admin = None

    def _failure(self, what: str) -> RuntimeSetupError:
        return RuntimeSetupError(
            f"the {self.flavor} {self.installation.version_text} server {what}",
            got=self.log_report(),
            next_step="read the server's own words above; an option may be wrong",
        )


def _new_home() -> tuple[Path, IO[str]]:
    """Its lock is held while this process lives; those of killed processes are removed."""
    for lock_file in Path(tempfile.gettempdir()).glob(f"{_HOME_PREFIX}*/lock"):
        with contextlib.suppress(OSError), lock_file.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock_file.parent, ignore_errors=True)
    home = Path(tempfile.mkdtemp(prefix=_HOME_PREFIX))
    unlocked = home / "unlocked"
    lock = unlocked.open("w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    # only now under the name that others look for
    unlocked.rename(home / "lock")
    return home, lock


def _normalised(options: Options) -> dict[str, OptionValue]:
    if isinstance(options, Mapping):
        return {name.replace("-", "_"): value for name, value in options.items()}
    pairs = (option.removeprefix("--").partition("=") for option in options)
    return {name.replace("-", "_"): value if equals else None for name, equals, value in pairs}


def _argument(name: str, value: OptionValue) -> str:
    option = "--" + name.replace("_", "-")
    if value is None:
        return option
    if isinstance(value, bool):
        return f"{option}={'ON' if value else 'OFF'}"
    return f"{option}={value}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@atexit.register
def _close_all() -> None:
    for server in list(_open_servers):
        server.close()
