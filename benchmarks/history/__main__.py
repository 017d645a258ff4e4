"""What a run and the commands cost after 10,000 runs and batches, beside 100.

    python -m benchmarks.history [--json]        (RUNS= for fewer)

A project with 100 runs, batches and cuts is copied and grows to 10,000. Then every command runs in
both, in turn; a figure is the ratio of the medians of their CPU-seconds, with all processes that
they start, a JVM that outlives the command included.

Runs are copies of one that really ran, since executing 10,000 would take an hour: its row and tags,
its events in the index of all runs, and the file of its own events (a hard link).
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from benchmarks.decode.workloads import cache_folder
from benchmarks.history.growth import GrowingLake, folder_bytes
from benchmarks.processes import spent
from benchmarks.report import Figure, report
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.sink.read.cuts import find_cut, list_cuts, paths_of
from tests.servers import Server

TABLE = "bench.t"
_TRANSACTIONS_PER_JOURNAL = 1_000


def archive(transactions: int) -> Path:
    """Return a folder of journals with the CREATE TABLE of `bench.t` and so many inserts of one
    row, a transaction each; recorded if missing."""
    folder = cache_folder() / f"history-1-{transactions}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    with Server("mysql", {"sync_binlog": 0, "innodb_flush_log_at_trx_commit": 0}) as server:
        server.execute("CREATE DATABASE bench")
        server.flush_journal()
        first = server.journals()[-1].name
        with (
            server.root_connection(database="bench", autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, text VARCHAR(100))")
            for number in range(transactions):
                if number and number % _TRANSACTIONS_PER_JOURNAL == 0:
                    server.flush_journal()
                cursor.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', 40))")
        server.copy_journals(partial)
        for journal in server.journals():
            if journal.name < first:
                (partial / journal.name).unlink()
    partial.rename(folder)
    return folder


def copy_run(home: Path, run_id: str, count: int) -> None:
    """Add `count` copies of a run, older than it."""
    new_ids = [str(uuid4()) for _ in range(count)]
    for database, tables in (
        (home / "history" / "runs.db", ("runs", "run_tags")),
        (home / "history" / "runs" / "index.db", ("event_logs",)),
    ):
        with closing(sqlite3.connect(database)) as connection, connection:
            for table in tables:
                _copy_rows(connection, table, run_id, new_ids)
    file = home / "history" / "runs" / f"{run_id}.db"
    for new_id in new_ids:
        os.link(file, file.with_name(f"{new_id}.db"))


def _copy_rows(connection: sqlite3.Connection, table: str, run_id: str, new_ids: list[str]) -> None:
    """Copy the rows of a run, and give the run itself the newest rows."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    columns.remove("id")
    names = ", ".join(columns)
    texts = {"run_id", "run_body", "event"}
    values = ", ".join(
        f"replace({name}, :old, :new)" if name in texts else name for name in columns
    )
    last = connection.execute(f"SELECT max(id) FROM {table}").fetchone()[0]
    copy = f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} WHERE run_id = :old"
    connection.executemany(
        f"{copy} AND id <= {last} ORDER BY id", [{"old": run_id, "new": new} for new in new_ids]
    )


ROOT = Path(__file__).resolve().parents[2]
SOURCE = "bench"
FEW, MANY = 100, int(os.environ.get("RUNS", "10000"))
ROUNDS = 3
SPARE_TRANSACTIONS = 50
MEASURED_RUNS = 40
LOOKUPS = 20
RATIO_MAX = 1.2


@dataclass(frozen=True)
class Project:
    root: Path

    def cli(self, *arguments: str) -> tuple[float, Any]:
        done = spent(
            [sys.executable, "-m", "cdc_pipeline.cli", *arguments, "--json"],
            env={
                **os.environ,
                "DAGSTER_HOME": str(self.root / "home"),
                "CDC_PIPELINE_JOBS": str(self.root / "jobs"),
            },
            cwd=self.root,
        )
        return done.cpu_s, json.loads(done.output)

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    def grow(self, runs: int) -> float:
        """Add runs, and as many to Dagster; return the CPU-seconds of a run near the end."""
        growing = GrowingLake(load_config(self.root / "jobs" / f"{SOURCE}.yaml"))
        growing.grow(runs - MEASURED_RUNS)
        cpu_s = growing.grow(MEASURED_RUNS)
        files = (self.root / "home" / "history" / "runs").glob("*-*.db")
        copy_run(self.root / "home", next(files).stem, runs)
        return cpu_s


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cdc-bench-history-") as folder:
        figures = _figures(Path(folder))
    return report(f"run {MANY:,} beside run {FEW}: ratios of CPU-seconds", figures)


def _figures(folder: Path) -> list[Figure]:
    few, many = Project(folder / "few"), Project(folder / "many")
    _make(few.root)
    few.cli("run", SOURCE)
    in_process = [few.grow(FEW)]
    shutil.copytree(few.root, many.root)
    in_process.append(many.grow(MANY - FEW))
    for project in (few, many):
        project.cli("run", SOURCE)  # brings the cursor to the newest cut
    # Without the process around it: what lists 10,000 names is a large part of so little.
    figures = [
        _ratio("a capture into tables that only count, in process", in_process, at_most=None)
    ]
    for name, prepare in COMMANDS.items():
        commands = [prepare(project) for project in (few, many)]
        measured: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for project, command, found in zip((few, many), commands, measured, strict=True):
                found.append(project.cli(*command)[0])
        figures.append(_ratio(name, [median(found) for found in measured]))
    for name, look_up in LOOKUPS_IN_PROCESS.items():
        pair = [_cpu_of(look_up, project) for project in (few, many)]
        figures.append(_ratio(f"{name}, in process", pair, at_most=None))
    for name, path in (
        ("cuts", f"lake/_cdc/{SOURCE}/cuts"),
        ("Dagster's home, each file of a run counted", "home"),
        ("the table's Delta log", "lake/bench/t/_delta_log"),
    ):
        grown = folder_bytes(many.root / path) - folder_bytes(few.root / path)
        figures.append(Figure(f"{name}: bytes a run", grown / (MANY - FEW), "B"))
    return figures


def _ratio(name: str, pair: list[float], *, at_most: float | None = RATIO_MAX) -> Figure:
    few_s, many_s = pair
    print(f"{name}: {few_s:.4f} s, {many_s:.4f} s", file=sys.stderr)
    return Figure(name, many_s / few_s, "times", at_most)


def _cpu_of(look_up: Callable[[Project], object], project: Project) -> float:
    look_up(project)
    begun_s = time.process_time()
    for _ in range(LOOKUPS):
        look_up(project)
    return (time.process_time() - begun_s) / LOOKUPS


def _idle(project: Project) -> tuple[str, ...]:
    """Return a run whose end is where the cursor is."""
    place = project.cli("cursor", "show", SOURCE)[1]["cursor"]
    end = ("--until", f"{place['journal']}:{place['offset']}")
    return ("run", SOURCE, *end)


def _middle(project: Project) -> Any:
    """Return the cut in the middle of those that are kept."""
    found = list_cuts(project.lake, SOURCE)
    return found[len(found) // 2]


def _as_of_time(project: Project) -> tuple[str, ...]:
    return ("cuts", "show", SOURCE, _middle(project).source_time.isoformat())


def _as_of_gtid(project: Project) -> tuple[str, ...]:
    return ("cuts", "show", SOURCE, _middle(project).gtid_set)


def _found_at(command: Callable[[Project], tuple[str, ...]]) -> Callable[[Project], object]:
    texts: dict[Path, str] = {}

    def look_up(project: Project) -> object:
        if project.root not in texts:
            texts[project.root] = command(project)[-1]
        return find_cut(paths_of(project.lake, SOURCE), texts[project.root])

    return look_up


COMMANDS: dict[str, Callable[[Project], tuple[str, ...]]] = {
    "a run that finds nothing new": _idle,
    "a run of one batch, with Spark": lambda _: ("run", SOURCE),
    "status": lambda _: ("status", SOURCE),
    "cuts list": lambda _: ("cuts", "list", SOURCE),
    "cuts show, as of a time": _as_of_time,
    "cuts show, as of a GTID set": _as_of_gtid,
    "cursor history": lambda _: ("cursor", "history", SOURCE),
}
LOOKUPS_IN_PROCESS: dict[str, Callable[[Project], object]] = {
    "as of a time": _found_at(_as_of_time),
    "as of a GTID set": _found_at(_as_of_gtid),
    "the newest 20 cuts": lambda project: list_cuts(project.lake, SOURCE, limit=20),
}


def _make(root: Path) -> None:
    (root / "jobs").mkdir(parents=True)
    (root / "home").mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", root / "home")
    (root / "jobs" / f"{SOURCE}.yaml").write_text(
        f"source:\n  kind: archive\n  directory: {archive(MANY + SPARE_TRANSACTIONS)}\n"
        "tables:\n  include: ['bench.*']\nbound:\n  transactions: 3\n"
        "sink:\n  lake_path: ../lake\n"
    )


if __name__ == "__main__":
    sys.exit(main())
