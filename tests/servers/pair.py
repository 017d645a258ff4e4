"""A primary and a replica that replicates from it, for tests of failover.

Rules:
- The replica writes what it replicates into its own journals, with the GTIDs and server ids of the
  primary. It stands one journal further from the start on, so that a position of one server means
  nothing on the other.
- Both start empty, and all that the primary ever writes is replicated, accounts included.
- Nothing waits by sleeping a fixed time: positions are polled before a deadline, and an error of
  the replica's threads ends the wait at once.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from pymysql.cursors import DictCursor

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers.installation import Flavor, Installation
from tests.servers.server import OptionValue, Server

CATCH_UP_DEADLINE_S = 300.0
REPLICATION_USER = "replicator"
_PASSWORD = "replicator-Secret-1"


class ReplicaPair:
    """Two servers of one flavor, the second a replica of the first. A context manager.

    Args:
        gtid: replicate by GTID (MySQL: gtid_mode ON and auto position; MariaDB: slave_pos), else by
            file and offset. MySQL then runs with gtid_mode OFF; MariaDB's events have GTIDs all the
            same.

    After `promote` `primary` is the replica, and `replica` the old primary, which is down unless
    it was let live.
    """

    def __init__(
        self,
        flavor: Flavor,
        *,
        gtid: bool = True,
        options: dict[str, OptionValue] | None = None,
        installation: Installation | None = None,
    ) -> None:
        self.flavor: Flavor = flavor
        self.gtid = gtid
        log_updates = "log_replica_updates" if flavor == "mysql" else "log_slave_updates"
        common: dict[str, OptionValue] = {
            log_updates: True,
            "relay_log": "relay",
            **(options or {}),
        }
        if flavor == "mysql" and not gtid:
            common |= {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
        self.primary = Server(flavor, common, installation=installation)
        self.replica = Server(flavor, common, installation=installation)

    def __enter__(self) -> ReplicaPair:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start both, and replication."""
        for server in self.servers:
            server.start()
        self.replica.flush_journal()
        first_journal = self.primary.journals()[0].name
        self.primary.create_replication_user(
            REPLICATION_USER, _PASSWORD, grants=("REPLICATION SLAVE",)
        )
        self.replica.execute(self._change_source(first_journal))
        self.start_replication()
        read_only = "super_read_only" if self.flavor == "mysql" else "read_only"
        self.replica.execute(f"SET GLOBAL {read_only} = ON")
        self.wait_caught_up()

    def close(self) -> None:
        for server in self.servers:
            server.close()

    @property
    def servers(self) -> tuple[Server, Server]:
        return self.primary, self.replica

    def start_replication(self) -> None:
        self.replica.execute("START REPLICA" if self.flavor == "mysql" else "START SLAVE")

    def stop_replication(self) -> None:
        self.replica.execute("STOP REPLICA" if self.flavor == "mysql" else "STOP SLAVE")

    def replicate_from_newest_journal(self) -> None:
        """From the head of the primary's newest journal on (by GTID: what the replica lacks)."""
        self.replica.execute(self._change_source(self.primary.end_position()[0]))
        self.start_replication()

    def wait_caught_up(self, deadline_s: float = CATCH_UP_DEADLINE_S) -> None:
        """Raises RuntimeSetupError: not in time, or the replication stopped."""
        deadline = time.monotonic() + deadline_s
        pause = threading.Event()
        target = (
            self.primary.gtid_set()
            if self.gtid
            else ":".join(map(str, self.primary.end_position()))
        )
        while True:
            status = self.status()
            if self._reached(status):
                return
            error = str(status.get("Last_SQL_Error") or status.get("Last_Error") or "")
            if error or time.monotonic() > deadline:
                raise RuntimeSetupError(
                    "the replica did not catch up with its primary",
                    expected=target,
                    got=error or f"after {deadline_s:g} s: {status}",
                    next_step="read the replica's error log: " + self.replica.log_report(5),
                )
            pause.wait(0.02)

    def status(self) -> dict[str, Any]:
        statement = "SHOW REPLICA STATUS" if self.flavor == "mysql" else "SHOW SLAVE STATUS"
        with (
            self.replica.root_connection(cursorclass=DictCursor) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return dict(cursor.fetchone() or {})

    def promote(self, *, kill: bool = True, stop: bool = False) -> Server:
        """Make the replica the primary: it replicates no more and takes writes.

        `kill` (SIGKILL) or `stop` the old primary first. With neither it lives on, and the logs
        part.
        """
        if stop:
            self.primary.stop()
        elif kill:
            self.primary.kill()
        self.stop_replication()
        new = self.replica
        if self.flavor == "mysql":
            new.execute_all(
                "RESET REPLICA ALL",
                "SET GLOBAL super_read_only = OFF",
                "SET GLOBAL read_only = OFF",
            )
        else:
            new.execute_all("RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
        self.primary, self.replica = new, self.primary
        return new

    def rejoin(self) -> None:
        """Start the old primary again, as the new one's replica. By GTIDs only; it must have
        nothing that the new primary lacks.
        """
        self.replica.start()
        if self.flavor == "mariadb":
            self.replica.execute("SET GLOBAL gtid_slave_pos = %s", (self.replica.gtid_set(),))
        self.replica.execute(self._change_source(""))
        self.start_replication()
        read_only = "super_read_only" if self.flavor == "mysql" else "read_only"
        self.replica.execute(f"SET GLOBAL {read_only} = ON")

    def _reached(self, status: dict[str, Any]) -> bool:
        if self.gtid:
            if self.flavor == "mysql":
                asked = "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)"
                return bool(self.replica.query(asked, (self.primary.gtid_set(),))[0][0])
            return self.replica.variable("gtid_slave_pos") == self.primary.gtid_set()
        word = "Source" if self.flavor == "mysql" else "Master"
        journal = str(status.get(f"Relay_{word}_Log_File") or "")
        return (
            journal,
            int(status.get(f"Exec_{word}_Log_Pos") or 0),
        ) >= self.primary.end_position()

    def _change_source(self, first_journal: str) -> str:
        word = "SOURCE" if self.flavor == "mysql" else "MASTER"
        settings = {
            f"{word}_HOST": f"'{self.primary.host}'",
            f"{word}_PORT": str(self.primary.port),
            f"{word}_USER": f"'{REPLICATION_USER}'",
            f"{word}_PASSWORD": f"'{_PASSWORD}'",
            f"{word}_CONNECT_RETRY": "1",
        }
        if self.flavor == "mysql":
            settings["GET_SOURCE_PUBLIC_KEY"] = "1"
        if self.gtid:
            settings |= (
                {"SOURCE_AUTO_POSITION": "1"}
                if self.flavor == "mysql"
                else {"MASTER_USE_GTID": "slave_pos"}
            )
        else:
            settings |= {f"{word}_LOG_FILE": f"'{first_journal}'", f"{word}_LOG_POS": "4"}
            if self.flavor == "mariadb":
                settings["MASTER_USE_GTID"] = "no"
        verb = "CHANGE REPLICATION SOURCE TO " if self.flavor == "mysql" else "CHANGE MASTER TO "
        return verb + ", ".join(f"{name} = {value}" for name, value in settings.items())
