"""A reader that polls cuts while money moves between two tables never sees a sum that is off by one
cent."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, TransactionsBoundConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import SPARK, live
from tests.support.delta_reader import read_delta

pytestmark = [pytest.mark.spark]

ACCOUNTS = 6
SUM = Decimal("1200.00")
DEADLINE_S = 120
TABLES = ("checking", "savings")
CUTS = 2  # after the first, which has the accounts


class Writer(threading.Thread):
    """Moves random amounts, one transaction each, until it is told to end."""

    def __init__(self, server: Server, database: str, *, at_least: int) -> None:
        super().__init__(name="transfers", daemon=True)
        self._connection = server.root_connection(database=database, autocommit=False)
        self._choose = random.Random(database)
        self._at_least = at_least
        self.enough = threading.Event()
        self.end = threading.Event()

    def run(self) -> None:
        moved = 0
        with self._connection.cursor() as cursor:
            while not self.end.is_set():
                amount = f"{self._choose.randrange(1, 9999) / 100:.2f}"
                giving, taking = (self._choose.choice(TABLES) for _ in range(2))
                for table, sign in ((giving, "-"), (taking, "+")):
                    account = self._choose.randrange(ACCOUNTS)
                    cursor.execute(
                        f"UPDATE {table} SET balance = balance {sign} {amount} WHERE id = {account}"
                    )
                self._connection.commit()
                moved += 1
                if moved == self._at_least:
                    self.enough.set()
                self.end.wait(0 if moved < self._at_least else 0.05)
        self._connection.close()


class Reader(threading.Thread):
    """Polls the newest cut, and adds up both tables at the cut's versions."""

    def __init__(self, lake: Path) -> None:
        super().__init__(name="reader", daemon=True)
        self._paths = LakePaths(lake, "bank")
        self._asked = threading.Condition()
        self._wanted = self._done = 0
        self._ends = False
        self.sums: dict[int, set[Decimal]] = {}
        self.failure: BaseException | None = None

    def look(self) -> None:
        """Wait until the reader has looked once from now on."""
        with self._asked:
            self._wanted += 1
            wanted = self._wanted
            self._asked.notify_all()
            assert self._asked.wait_for(
                lambda: self._done >= wanted or self.failure is not None, DEADLINE_S
            )

    def end(self) -> None:
        with self._asked:
            self._ends = True
            self._asked.notify_all()
        self.join(DEADLINE_S)

    def run(self) -> None:
        while True:
            with self._asked:
                self._asked.wait(0.2)  # polls by itself, and at once when asked
                wanted, ends = self._wanted, self._ends
            if ends:
                return
            try:
                self._read()
            except BaseException as failure:
                self.failure = failure
            with self._asked:
                self._done = wanted
                self._asked.notify_all()
            if self.failure is not None:
                return

    def _read(self) -> None:
        numbers = list_numbers(self._paths.cuts)
        if not numbers:
            return
        cut = read_cut(self._paths, numbers[-1])
        total = sum(
            (
                balance_of(self._paths.table(name), table.table_version)
                for name, table in cut.tables.items()
            ),
            Decimal(0),
        )
        self.sums.setdefault(cut.batch_number, set()).add(total)


def balance_of(folder: Path, version: int) -> Decimal:
    return sum((row["balance"] for row in read_delta(folder, version).rows), Decimal(0))


class Watcher:
    """Lets the reader look in the middle of each batch: one of the two tables is merged, the cut is
    not yet out."""

    def __init__(self, reader: Reader, lake: Path, database: str) -> None:
        self._reader = reader
        self._folders = [lake / database / table for table in TABLES]
        self.without_cut: set[Decimal] = set()

    def reached(self, point: str) -> None:
        if point == "between_merges":
            newest = [
                len(list((folder / "_delta_log").glob("*.json"))) - 1 for folder in self._folders
            ]
            if min(newest) > 0:
                pairs = zip(self._folders, newest, strict=True)
                self.without_cut.add(sum((balance_of(*pair) for pair in pairs), Decimal(0)))
        if point in ("between_merges", "before_cut", "before_cursor"):
            self._reader.look()


@pytest.mark.whole
def test_k3_cuts_hold_the_sum(
    server: Server,
    fresh_database: str,
    make_config: Callable[..., PipelineConfig],
    tmp_path: Path,
    spark: Any,
) -> None:
    """Every look at the newest cut gives the same sum, also while the next one is being merged."""
    journal, offset = server.end_position()
    server.execute(f"USE `{fresh_database}`")
    for table in TABLES:
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, balance DECIMAL(12,2) NOT NULL)")
    rows = ", ".join(f"({number}, 100.00)" for number in range(ACCOUNTS))
    server.execute_all(
        "BEGIN", *(f"INSERT INTO {table} VALUES {rows}" for table in TABLES), "COMMIT"
    )
    config = make_config(
        live(server),
        include=[f"{fresh_database}.{table}" for table in TABLES],
        start={"journal": journal, "offset": offset},
        batch={"merge_rows": 8},
        # one thread, so that a batch stands half merged for certain
        sink={"lake_path": tmp_path / "lake", "spark": SPARK, "merge_threads": 1},
    )
    reader = Reader(tmp_path / "lake")
    watcher = Watcher(reader, tmp_path / "lake", fresh_database)
    writer = Writer(server, fresh_database, at_least=8 * CUTS)
    cursors = MemoryCursorStore()
    threads: list[threading.Thread] = [reader, writer]
    for thread in threads:
        thread.start()
    try:
        assert writer.enough.wait(DEADLINE_S)
        while not reader.sums or max(reader.sums) <= CUTS:
            with listening(watcher.reached):
                capture(config, cursors=cursors, bound=TransactionsBoundConfig(transactions=12))
            reader.look()
            assert reader.failure is None
    finally:
        writer.end.set()
        writer.join(DEADLINE_S)
        reader.end()
    assert len(reader.sums) > CUTS
    assert set.union(*reader.sums.values()) == {SUM}
    assert watcher.without_cut - {SUM}, (
        "without cuts no sum would have been wrong: this test shows nothing"
    )
