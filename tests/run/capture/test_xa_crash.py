"""Runs that are killed with SIGKILL while XA transactions are open lose nothing and double nothing
(K2, K8).

The fault points: while rows are parked, after the record, before the cursor. After each kill the
lake must show no row of a transaction that is only prepared.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run.capture.test_crash import Project
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.xa_session import XaSession

pytestmark = [pytest.mark.spark, pytest.mark.mysql, pytest.mark.whole]

# What happens at a fault point does not depend on the flavor, and is the same on both sides of a
# file's final name.
POINTS = ["parking", "after_record", "before_cursor"]


class Xas:
    """Opens, commits and rolls back XA transactions, round by round; some outlive several runs."""

    def __init__(self, server: Server, database: str) -> None:
        self._server, self._database = server, database
        self.start = here(server)
        self._open: list[XaSession] = []
        self._number = 0

    def round(self) -> None:
        """Ordinary changes, three more prepared transactions (one is larger than the ring), and
        ends of older ones."""
        self._number += 1
        first = self._number * 1000
        self._run(f"INSERT INTO t VALUES ({first},'plain'),({first + 1},'plain')")
        one = (
            self._begin(f"'r{self._number}','\\''")
            .run(f"INSERT INTO t VALUES ({first + 2},'one')")
            .prepare()
        )
        two = (
            self._begin(f"'s{self._number}'")
            .run(f"UPDATE t SET v = 'two' WHERE id = {first}")
            .prepare()
        )
        big = self._begin(f"'b{self._number}'")
        for number in range(100):
            big.run(f"INSERT INTO u VALUES ({first + number},'big')")
        big.prepare()
        for number, session in enumerate(self._open):
            session.rollback() if number == 1 else session.commit()
        self._run(f"UPDATE t SET v = 'neighbour' WHERE id = {first + 1}")
        two.commit()
        self._open = [one, big]

    def finish(self) -> None:
        for session in self._open:
            session.commit()
        self._open = []

    def _begin(self, xid: str) -> XaSession:
        return XaSession(self._server, self._database, xid)

    def _run(self, statement: str) -> None:
        self._server.execute_all(f"USE `{self._database}`", statement)


@pytest.fixture
def xas(mysql_server: Server, mysql_database: str) -> Iterator[Xas]:
    made = Xas(mysql_server, mysql_database)
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1,'a')",
        "INSERT INTO u VALUES (1,'a')",
    )
    yield made
    made.finish()


def test_k2_k8_killed_at_every_fault_point_with_xa_open(
    mysql_server: Server, mysql_database: str, xas: Xas, spark: Any, tmp_path: Path
) -> None:
    project = Project(tmp_path, live(mysql_server), [f"{mysql_database}.*"], xas.start)
    committed: dict[str, set[int]] = {"t": set(), "u": set()}
    for point in POINTS:
        xas.round()
        for table, ids in committed.items():
            ids |= {row[0] for row in server_rows(mysql_server, mysql_database, table, ["id"])}
        killed = project.run({"merge_rows": 20}, point, "1")
        assert killed.returncode == -signal.SIGKILL, f"{point}: {killed.stdout}\n{killed.stderr}"
        for table, ids in committed.items():
            if (project.lake / mysql_database / table / "_delta_log").is_dir():
                rows = lake_rows(spark, project.lake, mysql_database, table, ["id"])
                assert {row[0] for row in rows} <= ids, (point, table)
    last = project.run_here({"merge_rows": 100_000})
    assert last.returncode == 0, last.stderr
    report = json.loads(last.stdout.splitlines()[-1])
    assert len(report["cursor"]["open_xa"]) == 2
    for table in committed:
        expected = server_rows(mysql_server, mysql_database, table, ["id", "v"])
        assert lake_rows(spark, project.lake, mysql_database, table, ["id", "v"]) == expected, table
    xas.finish()
    done = project.run_here({})
    assert done.returncode == 0, done.stderr
    for table in committed:
        expected = server_rows(mysql_server, mysql_database, table, ["id", "v"])
        assert lake_rows(spark, project.lake, mysql_database, table, ["id", "v"]) == expected, table
    assert json.loads(done.stdout.splitlines()[-1])["cursor"]["open_xa"] == []
    assert not list((project.lake / "_cdc" / "bank" / "xa").glob("*"))
    project.assert_each_batch_once()
    project.assert_intervals_join()
