"""One play: a server full of canaries, every command over it, failures of every kind, and the
search afterwards.

Rules:
- Canaries come in through the environment (password, salt), as row values of masked and unmasked
  columns, and as literals of statements. The server's own files are not searched.
- A row's value of an unmasked column may stand in its table's folder, and in files of the batch at
  work or of prepared transactions; it must be found in the table, or the search itself is broken.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.campaigns.secrets.canaries import ROW_VALUES, Canaries
from tests.campaigns.secrets.searching import Finding, ProcessWatch, Search
from tests.servers import Server
from tests.source.live.login_server import LoginServer

ROOT = Path(__file__).resolve().parents[3]
_JOB = """
source:
  kind: live
  host: 127.0.0.1
  port: {port}
  user: cdc_canary
  password: ${{CANARY_PASSWORD}}
  connect_timeout_s: 5
  read_timeout_s: 20
tables:
  include: ["{database}.{tables}"]
snapshot: {{lock_wait_s: 20}}
store: {{kind: {store}, ring_events: 1024, directory: {spill}}}
sink:
  lake_path: {lake}
  spark: {{master: "local[2]", driver_memory: 1g}}
targets:
  - tables: ["{database}.people", "{database}.waiting"]
    mode: {mode}
    name: "{{schema}}.{{table}}"
    columns: {{exclude: [hidden]}}
    masks:
      email: {{hash: {{salt: "${{CANARY_SALT}}"}}}}
      phone: {{truncate: 3}}
      note: {{fixed: "x"}}
      secret: drop
      token: {{hash: {{salt: "${{CANARY_SALT}}"}}}}
"""
_DEFINITIONS = """
from pathlib import Path
from cdc_pipeline.orchestration.definitions import build_definitions

defs = build_definitions(Path(__file__).parent, retry_wait_s=0)
"""


@dataclass
class Outcome:
    """What a play found. `findings`: canaries where none may be; empty if the rule holds. `codes`:
    exit code of each command by its name; `files`, `bytes`: how much was searched; `arguments`:
    how many different argument lists of processes were.
    """

    findings: list[Finding] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    arguments: int = 0


class Play:
    def __init__(
        self,
        server: Server,
        database: str,
        folder: Path,
        seed: int,
        *,
        mode: str = "mirror",
        store: str = "file",
        tables: str = "*",
    ) -> None:
        self.canaries = Canaries.of(seed)
        self.outcome = Outcome()
        self._server = server
        self._database = database
        self._mode = mode
        self._tables = tables
        self._store = store
        self._folder = folder
        self._printed = folder / "printed"
        self._lake = folder / "lake"
        self._search = Search(self.canaries)
        self._number = 0
        for name in ("jobs", "dagster_home", "printed", "tmp", "spill"):
            (folder / name).mkdir()
        os.chmod(folder / "spill", 0o700)
        shutil.copy(ROOT / "dagster_home" / "dagster.yaml", folder / "dagster_home")
        (folder / "jobs" / "definitions.py").write_text(_DEFINITIONS)
        self.job("shop", port=server.port)

    def job(self, name: str, *, port: int, lake: str = "lake") -> None:
        text = _JOB.format(
            port=port,
            database=self._database,
            tables=self._tables,
            lake=self._folder / lake,
            mode=self._mode,
            store=self._store,
            spill=self._folder / "spill",
        )
        (self._folder / "jobs" / f"{name}.yaml").write_text(text)

    # -- what is played ----------------------------------------------------------------------------

    def account(self) -> None:
        self._server.create_replication_user("cdc_canary", self.canaries["password"])

    def fill(self) -> None:
        c = self.canaries
        columns = (
            "id INT PRIMARY KEY, name VARCHAR(80), email VARCHAR(80), phone VARCHAR(80), "
            "note VARCHAR(80)"
        )
        hidden = "secret VARCHAR(80), hidden VARCHAR(80), token VARCHAR(80)"
        self._server.execute_all(
            f"USE `{self._database}`",
            f"CREATE TABLE people ({columns}, {hidden}) COMMENT '{c['table_comment']}'",
            "CREATE TABLE waiting (id INT PRIMARY KEY, email VARCHAR(80))",
            "CREATE TABLE linked (id INT PRIMARY KEY) "
            f"CONNECTION='mysql://u:{c['connection']}@h/d/t'",
            "CREATE TABLE parts (id INT, c VARCHAR(40), PRIMARY KEY (id, c)) PARTITION BY LIST "
            f"COLUMNS (c) (PARTITION p VALUES IN ('{c['partition']}'), PARTITION q "
            "VALUES IN ('q'))",
            *(self._row(number) for number in range(1, 20)),
            f"UPDATE people SET email = '{c['hashed']}-new', hidden = "
            f"'{c['excluded']}-new' WHERE id = 3",
            "DELETE FROM people WHERE id = 4",
            f"INSERT INTO waiting VALUES (1, '{c['hashed']}')",
            # Dagster's pages show the comments of columns.
            "ALTER TABLE people ADD COLUMN level INT DEFAULT 5 COMMENT 'a comment'",
            f"ALTER TABLE parts ADD PARTITION (PARTITION r VALUES IN ('{c['partition']}r'))",
            f"CREATE USER canary_a IDENTIFIED BY '{c['user_password']}'",
            f"ALTER USER canary_a IDENTIFIED BY '{c['grant_password']}'",
            "CREATE SERVER canary_s FOREIGN DATA WRAPPER mysql "
            f"OPTIONS (HOST 'h', DATABASE 'd', USER 'u', PASSWORD '{c['server_password']}')",
            "DROP USER canary_a",
            "DROP SERVER canary_s",
        )

    def _row(self, number: int) -> str:
        c = self.canaries
        values = [
            c["row_name"],
            c["hashed"],
            c["truncated"],
            c["fixed"],
            c["dropped"],
            c["excluded"],
        ]
        listed = ", ".join(f"'{value}{number}'" for value in values)
        return (
            "INSERT INTO people (id, name, email, phone, note, secret, hidden) VALUES "
            f"({number}, {listed})"
        )

    def suspend_by_default(self) -> None:
        """A masked column comes with a default that old rows would get: its target stops."""
        default = self.canaries["masked_default"]
        self._server.execute(f"USE `{self._database}`")
        self._server.execute(
            f"ALTER TABLE waiting ADD COLUMN token VARCHAR(80) NOT NULL DEFAULT '{default}'"
        )

    def refuse_rows(self) -> None:
        """Play a run whose batch Spark refuses: a constraint on the table forbids one of its
        rows."""
        c = self.canaries
        self.constrain("people", "id <> 500")
        self._server.execute(
            f"INSERT INTO `{self._database}`.people (id, name, email) "
            f"VALUES (500, '{c['row_refused']}', '{c['hashed']}')"
        )
        assert self.command("run", "shop") == 1
        assert "[DELTA_VIOLATE_CONSTRAINT" in self.printed("err"), "the batch did not fail in Spark"

    def log_a_statement(self) -> None:
        c = self.canaries
        with (
            self._server.root_connection(autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
            cursor.execute(
                f"UPDATE `{self._database}`.people SET email = "
                f"'{c['statement_value']}' WHERE id = 1"
            )
        assert self.command("run", "shop") == 1

    def prepare(self, *, commit: bool) -> None:
        """Rows of a prepared XA transaction, which are parked until it ends."""
        with (
            self._server.root_connection(autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            if commit:
                cursor.execute("XA COMMIT 'canary'")
                return
            cursor.execute("XA START 'canary'")
            cursor.execute(
                f"INSERT INTO `{self._database}`.people (id, name, email) "
                f"VALUES (700, 'n', '{self.canaries['prepared']}')"
            )
            cursor.execute("XA END 'canary'")
            cursor.execute("XA PREPARE 'canary'")

    # -- running -----------------------------------------------------------------------------------

    def __enter__(self) -> Play:
        self._watch = ProcessWatch(self._search).__enter__()
        answers, own = os.pipe()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.secrets.child", str(self._printed), str(own)],
            stdin=subprocess.PIPE,
            env=self._environment(),
            cwd=self._folder,
            pass_fds=[own],
            text=True,
        )
        os.close(own)
        self._answers = os.fdopen(answers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        if kind is not None:
            self._child.kill()
        self._child.wait()
        self._answers.close()
        self._watch.__exit__(kind, error, trace)
        self.outcome.findings += sorted(self._watch.found)
        self.outcome.arguments += len(self._watch.seen)

    def command(self, *arguments: str, **environment: str) -> int:
        """Play a command; return its exit code. What it prints is searched at the end."""
        return self._play({"arguments": arguments}, arguments[0], environment)

    def printed(self, kind: str) -> str:
        return next(self._printed.glob(f"{self._number:02d}-*.{kind}")).read_text()

    def constrain(self, table: str, condition: str) -> None:
        step = {"constrain": str(self._lake / self._database / table), "check": condition}
        assert self._play(step, "constrain", {}) == 0

    def _play(self, step: dict[str, Any], what: str, environment: dict[str, str]) -> int:
        self._number += 1
        name = f"{self._number:02d}-{what}"
        assert self._child.stdin is not None
        self._child.stdin.write(
            json.dumps({"name": name, "environment": environment, **step}) + "\n"
        )
        self._child.stdin.flush()
        code = int(self._answers.readline())
        self.outcome.codes[name] = code
        return code

    def killed_run(self, source: str, at: str) -> None:
        child = subprocess.Popen(
            [sys.executable, "-m", "cdc_pipeline.cli", "run", source],
            env=self._environment(),
            cwd=self._folder,
            stdout=(self._printed / "killed.out").open("ab"),
            stderr=(self._printed / "killed.err").open("ab"),
            start_new_session=True,
        )
        folder = self._folder / at
        while child.poll() is None and not any(path.is_file() for path in folder.rglob("*")):
            try:
                child.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def lying_server(self, source: str, plugin: str) -> None:
        """Play commands against a server that asks for the password by `plugin`, without TLS and
        with it."""
        for tls in (None, self._folder / "tmp"):
            with LoginServer(plugin, folder=tls) as server:
                self.job(source, port=server.port, lake=f"lake-{source}")
                for command in ("plan", "run", "doctor"):
                    self.command(command, source)
            self.outcome.findings += sorted(
                self._search.in_bytes(server.received, plugin, "sent to a server that lies")
            )

    def unreachable(self, source: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            port = reserved.getsockname()[1]
        self.job(source, port=port, lake=f"lake-{source}")
        for command in ("plan", "run"):
            self.command(command, source)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CANARY_PASSWORD": self.canaries["password"],
            "CANARY_SALT": self.canaries["salt"],
            "DAGSTER_HOME": str(self._folder / "dagster_home"),
            "TMPDIR": str(self._folder / "tmp"),
            "PYTHONPATH": str(ROOT),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
        }

    # -- judging -----------------------------------------------------------------------------------

    def judge(self, *, values_in: Iterable[str] = ("people",)) -> Outcome:
        """Search everything that the play has left. `values_in`: tables whose folders hold the
        values of unmasked columns.
        """
        tables = [self._lake / self._database / name for name in values_in]
        raw = [self._folder / "jobs"]
        found = self._search.in_folder(self._folder, leave_out=[*tables, *raw])
        of_tables: set[Finding] = set()
        for table in tables:
            of_tables |= self._search.in_folder(table)
        seen = {finding.canary for finding in of_tables}
        assert "row_name" in seen, "the search does not find what is there"
        found |= {finding for finding in of_tables if finding.canary not in ROW_VALUES}
        # A comment is what the Delta table says too, and records of the lake keep it.
        found = {
            finding
            for finding in found
            if finding.canary != "table_comment" or str(self._lake) not in finding.place
        }
        self.outcome.findings += sorted(found)
        self.outcome.files, self.outcome.bytes = self._search.files, self._search.bytes
        return self.outcome
