"""A server, a pipeline that reads it, and what can happen to the server between two runs.

Rules:
- The pipeline reads what `place` says: the server; an archive of its journals, to which an archiver
  copies what is new and from which it removes nothing; or, after the primary has died, its standby.
- What happens, happens to the server that is read afterwards: for a standby, to the replica.
- Tables are kept in memory (`tests.support.memory_sink`); everything else is the product's own.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.operations.cursor.cursor_change import apply_set, plan_set
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run import wiring
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Flavor, ReplicaPair, Server, at_rest
from tests.servers.preload import MovedClock
from tests.support.comparison import source_values
from tests.support.memory_sink import MemoryLake, memory_sink

Positions = Literal["mysql by GTID", "mysql by offset", "mariadb"]
Place = Literal["live", "archive", "standby"]
Rows = dict[str, list[tuple[Any, ...]]]

USER: Final = ("cdc", "cdc-Secret-1")
GTIDS_OFF: Final = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
TABLES: Final = {
    "shop.items": "(id INT PRIMARY KEY, v VARCHAR(40))",
    "shop.log": "(id INT PRIMARY KEY, item INT, n INT)",
}


@dataclass(frozen=True)
class Dump:
    """What a dump of a server has. `rows`: of the tables; `executed`: the transactions that they
    come from.
    """

    rows: Rows
    executed: str


class World:
    """One server's history, as one pipeline meets it. A context manager. `server`: the one that is
    read after what happens; `clock`: of `server`; `archive`: the directory of an archive;
    `cursors`: what the pipeline remembers; `chance`: of this cell, by its seed;
    `changes_before`: whether rows are changed right before the last run that goes well;
    `changes_after`: whether rows are changed after what happens; `loads`: whether the last run
    reads the tables and not the log; `lags`: whether the standby may lack what the primary has;
    `copies`: whether the archiver still copies; `bring_back`: undoes what happened to a file.
    """

    def __init__(
        self, positions: Positions, place: Place, folder: Path, chance: random.Random
    ) -> None:
        self.chance = chance
        self.changes_before = True
        self.changes_after = True
        self.loads = False
        self.lags = False
        self.copies = True
        self.bring_back: Callable[[], object] = lambda: None
        self.positions = positions
        self.place = place
        self.flavor: Flavor = "mariadb" if positions == "mariadb" else "mysql"
        self.archive = folder / "archive"
        self.cursors = MemoryCursorStore()
        self._folder = folder
        self._lake = MemoryLake()
        self._copies = 0
        self._missed = ""  # a journal that the archiver does not copy
        self._serial = 0
        self._stack = ExitStack()
        self._pair: ReplicaPair | None = None

    def __enter__(self) -> World:
        self._folder.mkdir(parents=True)
        self.archive.mkdir()
        if self.place == "standby":
            self._pair = ReplicaPair(self.flavor, gtid=self.positions != "mysql by offset")
            self.server = self._pair.replica
        else:
            off = GTIDS_OFF if self.positions == "mysql by offset" else {}
            self.server = Server(self.flavor, off)
        self.clock = MovedClock(self._folder / "clock")
        self.server.environment |= self.clock.environment
        self._stack.enter_context(self._pair or self.server)
        self.writer.create_replication_user(*USER)
        self.writer.execute_all(
            "CREATE DATABASE shop", *(f"CREATE TABLE {name} {of}" for name, of in TABLES.items())
        )
        self.change()
        self.flush()
        self._config = self._pipeline("earliest")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- the server --------------------------------------------------------------------------------

    @property
    def writer(self) -> Server:
        return self.server if self._pair is None else self._pair.primary

    def change(self, transactions: int = 3, *, label: str = "row") -> None:
        """Insert, update and delete rows, in so many transactions.

        Others than those of the old history are committed a minute later: MariaDB's times have
        whole seconds, and a history takes less here.
        """
        if label == "other":
            self.writer.execute(f"SET SESSION timestamp = {int(time.time()) + 60}")
        for _ in range(transactions):
            self._serial += 1
            number = self._serial
            self.writer.execute_all(
                "BEGIN",
                f"INSERT INTO shop.items VALUES ({number}, '{label} {number}')",
                f"INSERT INTO shop.log VALUES ({number}, {number}, 1)",
                f"UPDATE shop.items SET v = CONCAT(v, '!') WHERE id = {number - 2}",
                f"DELETE FROM shop.log WHERE id = {number - 4}",
                "COMMIT",
            )
        if label == "other":
            self.writer.execute("SET SESSION timestamp = DEFAULT")

    def flush(self, journals: int = 1) -> None:
        for _ in range(journals):
            self.writer.flush_journal()

    def settle(self) -> None:
        """Wait until the replica has what the primary wrote, and the log is at rest."""
        if self._pair is not None and self.writer is not self.server and not self.lags:
            self._pair.wait_caught_up()
        if not self.clock.by_s:  # MariaDB writes its checkpoint when its own clock says so
            at_rest(self.server)

    def next_second(self) -> None:
        """Wait until the server's clock shows a later second. Without GTIDs logs are told apart by
        seconds, and a history takes less here."""
        begun = self.server.query("SELECT UNIX_TIMESTAMP()")
        while self.server.query("SELECT UNIX_TIMESTAMP()") == begun:
            pass

    def fail_over(self) -> None:
        """The primary dies, the standby takes over; nothing for other places."""
        if self._pair is not None:
            self._pair.promote()

    def lag(self) -> None:
        """The standby gets no more of what the primary writes."""
        self.settle()
        assert self._pair is not None
        self._pair.stop_replication()
        self.lags = True

    def make_tables(self) -> None:
        """The tables, in an empty server, with rows of its own."""
        self.server.execute_all(
            "CREATE DATABASE shop", *(f"CREATE TABLE {name} {of}" for name, of in TABLES.items())
        )
        self.change(label="other")

    def reset_log(self, *, to: int = 0, keeps_gtids: bool = False) -> None:
        """Remove all journals and begin again, with a number; with what was executed before, or
        without."""
        if self.flavor == "mysql":  # a minute later; MariaDB purges by a clock that stays
            self.clock.move(60)
        self.server.reset_log(to=to, keeps_gtids=keeps_gtids)

    def hide(self, journal: str) -> None:
        """Remove a journal by hand; `bring_back` brings it back."""
        file, aside = self.log_folder / journal, self._folder / journal
        self.archive_copies()
        shutil.move(file, aside)
        self._missed = journal

        def bring_back() -> None:
            shutil.move(aside, file)
            self._missed = ""

        self.bring_back = bring_back

    def power_cut(self, keeps_bytes: int) -> None:
        """The machine loses its power, and the newest journal what comes after so many bytes."""
        self.server.kill()
        with self.server.journals()[-1].open("r+b") as journal:
            journal.truncate(keeps_bytes)
        self.server.start()

    # -- copies ------------------------------------------------------------------------------------

    def cold_copy(self) -> Path:
        self.server.stop()
        copy = self._copied(self.server)
        self.server.start()
        return copy

    def hot_copy(self, server: Server | None = None) -> Path:
        server = server or self.server
        with server.root_connection() as connection, connection.cursor() as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            at_rest(server)
            return self._copied(server)

    def restore(self, copy: Path, *, keeps_uuid: bool = True) -> None:
        _replace_data(self.server, copy)
        if not keeps_uuid:
            (self.server.datadir / "auto.cnf").unlink(missing_ok=True)
        self.server.start()
        self._stop_replicating()

    def restore_at(self, copy: Path, second: int = 0) -> int:
        """Start it on a copy of its data, so that its new journal is created in a second (of its
        own clock; any, by default); that second."""
        late_s = 0  # from the start to the journal
        while True:
            _replace_data(self.server, copy)
            self.clock.move(second - late_s - int(time.time()) if second else 0)
            self.server.start()
            created_s = _created_s(self.server.journals()[-1])
            if second in (0, created_s):
                return created_s
            late_s += created_s - second

    def twin_changes(self, text: str, second: int) -> None:
        """Changes that differ in the rows' values alone, committed in a second of which the text of
        three characters tells nothing."""
        assert len(text) == 3
        self.server.new_session()
        self.server.execute(f"SET SESSION timestamp = {second + 10}")
        for number in range(1001, 1004):
            self.server.execute(f"INSERT INTO shop.items VALUES ({number}, '{text}')")
        self.server.new_session()

    def replica_takes_over_from(self, copy: Path) -> None:
        """The old primary is started on a copy of its data and writes; what it writes now, the
        standby replicates before it takes over again."""
        assert self._pair is not None
        pair = self._pair
        new, old = pair.primary, pair.replica
        _replace_data(old, copy)
        old.start()
        pair.primary, pair.replica = old, new
        pair.replicate_from_newest_journal()
        self.change(9, label="other")
        pair.wait_caught_up()
        pair.promote()

    def copy_of_primary(self) -> Path:
        return self.hot_copy(self.writer)

    def dump(self) -> Dump:
        return Dump(self.server_rows(), self.server.gtid_set())

    def start_empty(self, flavor: Flavor | None = None) -> None:
        """Start a server that was just installed, in the server's place: port and account."""
        old = self.server
        old.kill()
        off = GTIDS_OFF if self.positions == "mysql by offset" else {}
        other = flavor is not None and flavor != self.flavor
        flavor = flavor or self.flavor
        # a dump tells MariaDB what was executed as if it had replicated that
        logs = {"log_slave_updates": True} if flavor == "mariadb" else {}
        self.server = Server(flavor, logs if other else off | logs)
        self.server.port = old.port
        if self._pair is not None:
            self._pair.primary = self.server
        self._stack.enter_context(self.server)
        self.server.execute("SET SESSION sql_log_bin = 0")
        self.server.create_replication_user(*USER)
        self.server.new_session()

    def fill_from(self, dump: Dump) -> None:
        """Fill an empty server, beside its log, and tell it what was executed."""
        server = self.server
        server.execute_all("SET SESSION sql_log_bin = 0", "CREATE DATABASE shop")
        for name, columns in TABLES.items():
            server.execute(f"CREATE TABLE {name} {columns}")
            for row in dump.rows[name]:
                server.execute(f"INSERT INTO {name} VALUES {row}")
        server.new_session()
        if self.positions == "mysql by GTID":
            server.execute(f"SET GLOBAL gtid_purged = '{dump.executed}'")
        elif self.positions == "mariadb":
            server.execute(f"SET GLOBAL gtid_slave_pos = '{dump.executed}'")

    def _copied(self, server: Server) -> Path:
        self._copies += 1
        copy = self._folder / f"copy-{self._copies}"
        hidden = shutil.ignore_patterns("*.sock*", "*.pid", "*.lock")
        shutil.copytree(server.datadir, copy, ignore=hidden)
        return copy

    def _stop_replicating(self) -> None:
        """A copy of a standby would go on to replicate."""
        if self._pair is None or self.writer is not self.server:
            return
        word = "REPLICA" if self.flavor == "mysql" else "SLAVE"
        self.server.execute_all(f"STOP {word}", f"RESET {word} ALL")

    # -- the pipeline ------------------------------------------------------------------------------

    def archive_copies(self) -> None:
        if self.place == "archive" and self.copies:
            for journal in self.server.datadir.glob("*.[0-9][0-9][0-9][0-9][0-9][0-9]"):
                if journal.name != self._missed:
                    shutil.copy2(journal, self.archive / journal.name)

    @property
    def log_folder(self) -> Path:
        return self.archive if self.place == "archive" else self.server.datadir

    @property
    def cursor(self) -> CursorState:
        assert self.cursors.cursor is not None
        return self.cursors.cursor

    def capture(self) -> tuple[str, ...]:
        with self._in_memory():
            return tuple(capture(self._config, cursors=self.cursors).plan.start_reasons)

    def accept(self, journal: str) -> None:
        accept = {"unproved_journal_ends": [journal]}
        self._config = PipelineConfig.model_validate({**self._sections, "accept": accept})

    def forget_lost_journals(self) -> None:
        names = [journal.name for journal in self.server.journals() if journal.exists()]
        self.server.execute(f"PURGE BINARY LOGS TO '{names[0]}'")

    def run(self) -> None:
        """The last run that goes well: it reads the log, or the tables."""
        if not self.loads:
            self.capture()
            return
        self._config = self._pipeline("latest")
        self.cursors = MemoryCursorStore()
        with self._in_memory():
            take_snapshot(self._config, cursors=self.cursors)

    def set_cursor(self) -> None:
        with self._in_memory():
            change = plan_set(self._config, cursors=self.cursors, to="latest", who="a test")
            apply_set(self._config, cursors=self.cursors, change=change)

    def rebuild(self) -> None:
        with self._in_memory():
            rebuild(self._config, tables=list(TABLES), cursors=self.cursors)

    def snapshot_again(self) -> None:
        with self._in_memory():
            take_snapshot(self._config, cursors=self.cursors, restart=True)

    def lake_rows(self) -> Rows:
        paths = LakePaths(self._config.sink.lake_path, self._config.name)
        return {
            name: sorted(map(source_values, self._lake.rows(paths.table(name))))
            if paths.table(name) in self._lake.tables
            else []
            for name in TABLES
        }

    def server_rows(self) -> Rows:
        found: Rows = {}
        for name in TABLES:
            schema, table = name.split(".")
            there = self.server.query(
                "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s "
                "AND table_name = %s",
                (schema, table),
            )
            found[name] = sorted(self.server.query(f"SELECT * FROM {name}")) if there[0][0] else []
        return found

    def read_live(self) -> None:
        sections = {**self._sections, "source": self._live(self.server)}
        self._config = PipelineConfig.model_validate(sections)

    @staticmethod
    def _live(server: Server) -> dict[str, Any]:
        user, password = USER
        account = {"user": user, "password": password, "tls": {"mode": "off"}}
        return {"kind": "live", "host": server.host, "port": server.port, **account}

    def _in_memory(self) -> AbstractContextManager[Any]:
        return mock.patch.object(wiring, "DeltaSink", partial(memory_sink, self._lake))

    def _pipeline(self, start: str) -> PipelineConfig:
        source: dict[str, Any] = {"kind": "archive", "directory": self.archive}
        if self.place != "archive":
            source = self._live(self.writer)
            if self._pair is not None:
                source["standby"] = {"host": self.server.host, "port": self.server.port}
        self._sections: dict[str, Any] = {
            "name": "shop",
            "source": source,
            "tables": {"include": ["shop.*"]},
            "start": start,
            "sink": {"lake_path": self._folder / f"lake-{start}"},
        }
        return PipelineConfig.model_validate(self._sections)


def _replace_data(server: Server, copy: Path) -> None:
    server.kill()
    shutil.rmtree(server.datadir)
    shutil.copytree(copy, server.datadir)


def _created_s(journal: Path) -> int:
    return int.from_bytes(journal.read_bytes()[4:8], "little")
