"""What `verify` costs: of a large table beside hashes of its rows; of many small ones in a bucket.

    python -m benchmarks.verify [--json]          ROWS=5000000 TABLES=200 by default

Large: a table of a server and its copy in a lake, all rows equal. The peer computes the sum of the
CRC32 of every row, by one statement on the server and one of Spark. CPU-seconds are those of the
client's process tree, JVM included, and of the server, while it works for it.

Small: tables of three rows on a server, captured into a bucket; requests are counted at a proxy.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import cpu_s, told_by, tree_cpu_s
from benchmarks.report import Figure, report
from benchmarks.snapshot.table import DATABASE, TABLE, served
from benchmarks.snapshot.ways import COLUMNS, PASSWORD, USER
from cdc_pipeline.config.pipeline_config import PipelineConfig
from tests.servers import Server

ROWS: Final = int(os.environ.get("ROWS", "5000000"))
TABLES: Final = int(os.environ.get("TABLES", "200"))
REQUESTS_MAX: Final = 8
TIMES_MAX: Final = 1.0
_ALL: Final = f"CONCAT_WS('|', {', '.join(COLUMNS)})"


def _config(port: int, tables: str, sink: dict[str, Any]) -> PipelineConfig:
    account = {"host": "127.0.0.1", "port": port, "user": USER, "password": PASSWORD}
    return PipelineConfig.model_validate(
        {
            "name": "bench",
            "source": {"kind": "live", **account},
            "tables": {"include": [tables]},
            "sink": sink,
        }
    )


# -- a large table ---------------------------------------------------------------------------------


def load(port: int, lake: Path) -> int:
    from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
    from cdc_pipeline.run.wiring import build_lake_cursors

    config = _config(port, f"{DATABASE}.*", {"lake_path": lake})
    name = f"{DATABASE}.{TABLE}"
    taken = take_snapshot(config, cursors=build_lake_cursors(config), tables=[name])
    return taken.targets[name].rows


def ours(port: int, lake: Path) -> int:
    from cdc_pipeline.operations.verify.verify import verify
    from cdc_pipeline.run.wiring import build_lake_cursors

    config = _config(port, f"{DATABASE}.*", {"lake_path": lake})
    found = verify(config, cursors=build_lake_cursors(config))
    assert found.status == "equal", found
    return found.tables[f"{DATABASE}.{TABLE}"].rows_equal


def hashes(port: int, lake: Path) -> int:
    """Row hashes as `pt-table-checksum` computes them, but in one piece."""
    import pymysql

    from cdc_pipeline.config.pipeline_config import SparkConfig
    from cdc_pipeline.sink.spark.session import SparkProvider

    server = pymysql.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD)
    with server, server.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*), SUM(CRC32({_ALL})) FROM {DATABASE}.{TABLE}")
        at_source = tuple(map(int, cursor.fetchone() or ()))
    session: Any = SparkProvider(SparkConfig(master="local[2]", driver_memory="2g")).session()
    path = lake / DATABASE / TABLE
    statement = f"SELECT COUNT(*), SUM(CRC32({_ALL})) FROM delta.`{path}`"
    in_lake = tuple(map(int, session.sql(statement).collect()[0]))
    assert in_lake == at_source, (in_lake, at_source)
    return at_source[0]


_WAYS: Final = {way.__name__: way for way in (load, ours, hashes)}


def large() -> list[Figure]:
    with served(ROWS) as server, tempfile.TemporaryDirectory(prefix="cdc-bench-verify-") as folder:
        server.create_replication_user()
        spent_s = {name: _spent_s(server, name, Path(folder) / "lake") for name in _WAYS}
    return [
        Figure(f"verify of {ROWS:,} equal rows", spent_s["ours"], "CPU-s"),
        Figure("... a CRC32 of each row, by one SQL on each side", spent_s["hashes"], "CPU-s"),
        Figure("... ours beside it", spent_s["ours"] / spent_s["hashes"], "times", TIMES_MAX),
    ]


def _spent_s(server: Server, way: str, lake: Path) -> float:
    assert server._process is not None
    before_s = cpu_s(server._process.pid)
    rows, client_s = told_by("benchmarks.verify", "way", way, server.port, lake)
    server_s = cpu_s(server._process.pid) - before_s
    told = f"{way}: {rows:,} rows, {client_s:.2f} CPU-s and {server_s:.2f} of the server"
    print(told, file=sys.stderr, flush=True)
    return float(client_s + server_s)


# -- many small ones -------------------------------------------------------------------------------


def small() -> list[Figure]:
    from cdc_pipeline.lake.storage.object_storage import storage_for
    from cdc_pipeline.operations.verify.verify import verify
    from cdc_pipeline.run.capture.capture import capture
    from cdc_pipeline.run.wiring import build_lake_cursors
    from cdc_pipeline.sink.delta import log_copy
    from tests.campaigns.objects.faulty_store import FaultyStore
    from tests.cluster.gateway import running_gateway

    with (
        tempfile.TemporaryDirectory(prefix="cdc-bench-verify-") as folder,
        running_gateway(Path(folder)) as gateway,
        FaultyStore(gateway.store.endpoint) as store,
        Server("mysql") as server,
    ):
        server.create_replication_user()
        server.execute(f"CREATE DATABASE {DATABASE}")
        for table in range(TABLES):
            server.execute(f"CREATE TABLE {DATABASE}.t{table:04d} (id INT PRIMARY KEY, v INT)")
            server.execute(f"INSERT INTO {DATABASE}.t{table:04d} VALUES (1, 1), (2, 2), (3, 3)")
        settings = gateway.store.settings().model_copy(update={"endpoint": store.endpoint})
        sink = {"lake_path": gateway.store.lake(), "storage": settings}
        config = _config(server.port, f"{DATABASE}.*", sink)
        capture(config, cursors=build_lake_cursors(config))
        storage_for.cache_clear()  # a verification is a process of its own
        log_copy._tails.clear()
        before = len(store.requests)
        found = verify(config, cursors=build_lake_cursors(config))
        requests = len(store.requests) - before
    assert found.status == "equal", found
    assert len(found.tables) == TABLES
    return [
        Figure(
            f"verify of {TABLES} small tables", requests / TABLES, "requests each", REQUESTS_MAX
        ),
        Figure("... JVMs started", float("pyspark" in sys.modules), "", 0.0),
    ]


def main() -> int:
    if sys.argv[1:2] == ["way"]:
        rows = _WAYS[sys.argv[2]](int(sys.argv[3]), Path(sys.argv[4]))
        print(json.dumps([rows, tree_cpu_s()]), flush=True)
        return 0
    return report("proving that tables equal their source", [*large(), *small()])


if __name__ == "__main__":
    sys.exit(main())
