"""Debezium's embedded engine, reading the same journal from a server that has it as its log.

The server's tables have the columns of the journal's; their CREATE is in no journal. Its next
journal has one change of another table, which ends the reading.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final, Literal

from benchmarks.decode.peers.build import java_command
from benchmarks.decode.workloads import Workload
from benchmarks.sync.spent import spent
from tests.servers import Server

VERSION: Final = "3.4.0"
_SOURCES: Final = Path(__file__).parent / "debezium"
_JOURNAL: Final = "binlog.000001"

Form = Literal["json", "objects"]


def read(
    workload: Workload, journal: Path, forms: tuple[Form, ...]
) -> dict[Form, tuple[int, float]]:
    """For each form in which changes reach the consumer: how many did, and the CPU-seconds of the
    engine's process.

    Raises:
        NotRunError: Maven or Java is missing, or a registry does not answer.
    """
    command = java_command(_SOURCES)
    server = Server("mysql", {"max_binlog_size": 1 << 30})
    found: dict[Form, tuple[int, float]] = {}
    try:
        server.prepare()
        shutil.copyfile(journal, server.datadir / _JOURNAL)
        (server.datadir / "binlog.index").write_text(f"./{_JOURNAL}\n", encoding="utf-8")
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
        for form in forms:
            arguments = [form, str(server.port), user, password, _JOURNAL, "bench.last_change"]
            used = spent([*command, *arguments])
            found[form] = json.loads(used.output.splitlines()[-1])["changes"], used.cpu_s
    finally:
        server.close()
    return found
