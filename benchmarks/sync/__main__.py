"""Whole syncs beside Debezium: figures, targets, verdicts; exit code 1 when one is missed.

    python -m benchmarks.sync [--json] [--ours] [--only w2-oltp]

Ours reads a journal of an archive, every table of it into an empty lake, and ends with the cut and
the cursor. Debezium's embedded engine reads the same journal from a server, and hands each change
to a consumer that counts it. The server's tables have the columns of the journal's; their CREATE is
in no journal. Its next journal has one change of another table, which ends the reading.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from benchmarks.decode.peers.build import java_command
from benchmarks.decode.result import NotRunError
from benchmarks.decode.workloads import Workload, journals
from benchmarks.processes import spent
from benchmarks.report import Figure, report
from benchmarks.sync.ours import demo, sync
from tests.servers import Server

VERSION: Final = "3.6.1"
_SOURCES: Final = Path(__file__).parent / "debezium"
JOURNAL: Final = "binlog.000001"

Form = Literal["json", "objects"]


@contextmanager
def serving(workload: Workload, journal: Path) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server with the workload's journal and tables, and its account for a replica: `user` and
    `password`.
    """
    server = Server("mysql", {"max_binlog_size": 1 << 30})
    try:
        server.prepare()
        shutil.copyfile(journal, server.datadir / JOURNAL)
        (server.datadir / "binlog.index").write_text(f"./{JOURNAL}\n", encoding="utf-8")
        server.start()
        user, password = server.create_replication_user()
        with server.root_connection() as connection, connection.cursor() as cursor:
            for statement in ("SET sql_log_bin = 0", "CREATE DATABASE bench", "USE bench"):
                cursor.execute(statement)
            workload.prepare(cursor)
            cursor.execute("CREATE TABLE last_change (id INT NOT NULL PRIMARY KEY)")
            cursor.execute("SET sql_log_bin = 1")
            cursor.execute("INSERT INTO last_change VALUES (1)")
            connection.commit()
        yield server, {"user": user, "password": password}
    finally:
        server.close()


def read(
    workload: Workload, journal: Path, forms: tuple[Form, ...]
) -> dict[Form, tuple[int, float]]:
    """For each form in which changes reach the consumer: how many did, and the CPU-seconds of the
    engine's process. Raises NotRunError: Maven or Java is missing, or a registry does not
    answer.
    """
    command = java_command(_SOURCES)
    found: dict[Form, tuple[int, float]] = {}
    with serving(workload, journal) as (server, account):
        for form in forms:
            arguments = [form, str(server.port), *account.values(), JOURNAL, "bench.last_change"]
            used = spent([*command, *arguments])
            found[form] = json.loads(used.output.splitlines()[-1])["changes"], used.cpu_s
    return found


RATIO_MAX = 0.2
COLLECTOR_PERCENT_MAX = 1.0
DURABLE_PERCENT_MAX = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sync", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--ours", action="store_true", help="without Debezium")
    parser.add_argument("--only", default="", help="only workloads whose name holds this text")
    options = parser.parse_args()
    figures = []
    for workload, journal in journals():
        if options.only in workload.name:
            figures += workload_figures(workload, journal, with_peer=not options.ours)
    run = demo()
    figures.append(
        Figure(
            "demo: the waits for the disk before cuts",
            100 * run.measures.durable_s / run.measures.wall_s,
            "percent of its time",
            at_most=DURABLE_PERCENT_MAX,
        )
    )
    return report("a journal into Delta tables", figures, as_json=options.json)


def workload_figures(workload: Workload, journal: Path, *, with_peer: bool) -> list[Figure]:
    """The figures of one journal. Raises SystemExit: the two sides counted different changes, or
    not the journal's.
    """
    name = workload.name
    run = sync(journal)
    _check(workload, "ours", run.changes)
    figures = [
        Figure(f"{name}: ours", run.cpu_s, "CPU-s"),
        Figure("... without the JVM", run.own_cpu_s, "CPU-s"),
        Figure(
            "... cyclic collector, of that",
            100 * run.measures.collector_cpu_s / run.own_cpu_s,
            "percent",
            at_most=COLLECTOR_PERCENT_MAX,
        ),
    ]
    if not with_peer:
        return figures
    try:
        peers = read(workload, journal, ("json", "objects"))
    except NotRunError as error:
        print(f"Debezium was not run: {error}", file=sys.stderr)
        return figures
    for form, (changes, cpu_s) in peers.items():
        _check(workload, f"Debezium, {form}", changes)
        figures.append(Figure(f"... Debezium {VERSION}, {form}", cpu_s, "CPU-s"))
        figures.append(
            Figure(
                "... ours beside it",
                run.cpu_s / cpu_s,
                "times",
                at_most=RATIO_MAX if form == "json" else None,
            )
        )
    return figures


def _check(workload: Workload, side: str, changes: int) -> None:
    if changes != workload.changes:
        raise SystemExit(
            f"{workload.name}: {side} counted {changes:,} changes of {workload.changes:,}"
        )


if __name__ == "__main__":
    sys.exit(main())
