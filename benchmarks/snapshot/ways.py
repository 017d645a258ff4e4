"""The ways from a table of a server to files: each in a process of its own, measured by itself.

A way gives its CPU-seconds, JVM included, server excluded; what stands for all rows where it read a
slice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.decode.workloads import cache_folder
from benchmarks.processes import resident_mib, tree_cpu_s
from benchmarks.snapshot.table import DATABASE, TABLE
from tests.servers.installation import fill_once

VERSION = "0.4.6"


def connectorx_folder() -> Path:
    def fill(unfinished: Path) -> dict[str, object]:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*command, str(unfinished), f"connectorx=={VERSION}"], check=True)
        return {"version": VERSION}

    return fill_once(cache_folder() / "peers" / f"connectorx-{VERSION}", fill)


RANGE_ROWS = 250_000
SLICE_ROWS = 250_000
USER, PASSWORD = "cdc", "cdc-Secret-1"
COLUMNS = ("id", "k", "c", "pad")
CONNECTOR = "com.mysql:mysql-connector-j:9.4.0"
_SPARK = {"master": "local[2]", "driver_memory": "2g"}


@dataclass(frozen=True, slots=True)
class Work:
    """What a way is given: the server's port, a folder of its own, and the rows of the table."""

    port: int
    folder: Path
    rows: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What a way took: rows that it read, CPU-seconds (of all rows of the table), largest resident
    memory."""

    rows: int
    cpu_s: float
    peak_mib: float

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def _source(work: Work) -> dict[str, Any]:
    return {
        "kind": "live",
        "host": "127.0.0.1",
        "port": work.port,
        "user": USER,
        "password": PASSWORD,
    }


LOOP_BATCH_ROWS = 50_000


def _row_loop(
    work: Work, write: Callable[[list[tuple[Any, ...]]], object], before_s: float
) -> Spent:
    """A plain script: pymysql's streaming cursor, row by row, written batch by batch. A slice,
    scaled up. `before_s`: CPU-seconds so far, which are spent once however many rows there are.
    """
    import pymysql
    from pymysql.cursors import SSCursor

    slice_rows = min(work.rows, SLICE_ROWS)
    connection = pymysql.connect(
        host="127.0.0.1", port=work.port, user=USER, password=PASSWORD, database=DATABASE,
        ssl_disabled=True,
        cursorclass=SSCursor,
    )  # fmt: skip
    read = 0
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(COLUMNS)} FROM {TABLE} WHERE id <= {slice_rows} ORDER BY id"
        )
        rows: list[tuple[Any, ...]] = []
        for row in cursor:
            rows.append(row)
            if len(rows) == LOOP_BATCH_ROWS:
                write(rows)
                read += len(rows)
                rows = []
        if rows:
            write(rows)
            read += len(rows)
    return Spent(
        read, before_s + (tree_cpu_s() - before_s) * work.rows / slice_rows, resident_mib()
    )


def row_loop(work: Work) -> Spent:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = pa.schema(
        [("id", pa.int32()), ("k", pa.int32()), ("c", pa.string()), ("pad", pa.string())]
    )
    with pq.ParquetWriter(work.folder / "rows.parquet", kinds, compression="zstd") as file:

        def write(rows: list[tuple[Any, ...]]) -> None:
            columns = [
                pa.array(values, kind.type)
                for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)
            ]
            file.write_table(pa.Table.from_arrays(columns, schema=kinds))

        return _row_loop(work, write, tree_cpu_s())


def row_loop_delta(work: Work) -> Spent:
    from cdc_pipeline.config.pipeline_config import SparkConfig
    from cdc_pipeline.sink.spark.session import SparkProvider

    spark = SparkProvider(SparkConfig(**_SPARK)).session()
    path = str(work.folder / "loop")

    def write(rows: list[tuple[Any, ...]]) -> None:
        frame = spark.createDataFrame(rows, "id int, k int, c string, pad string")
        frame.write.format("delta").mode("append").save(path)

    write([(0, 0, "", "")])  # what the first write costs is spent once
    return _row_loop(work, write, tree_cpu_s())


def _ranges(work: Work) -> list[str]:
    from cdc_pipeline.config.pipeline_config import LiveSourceConfig
    from cdc_pipeline.source.rows.key_ranges import plan_ranges
    from cdc_pipeline.source.rows.table_reader import TableReader

    with TableReader(LiveSourceConfig(**_source(work))) as reader:
        plan = plan_ranges(reader, _schema(work), RANGE_ROWS)
        return [one.condition(("id",)) or "1 = 1" for one in plan]


def _schema(work: Work) -> Any:
    from cdc_pipeline.config.pipeline_config import LiveSourceConfig
    from cdc_pipeline.source.live.catalog import read_catalog
    from cdc_pipeline.source.live.connection import ServerConnection

    with closing(ServerConnection(LiveSourceConfig(**_source(work)))) as server:
        return read_catalog(server, lambda *name: name == (DATABASE, TABLE)).tables[
            DATABASE, TABLE
        ][0]


def spark_jdbc(work: Work) -> Spent:
    """`spark.read.jdbc` over the same ranges into a Delta table."""
    from cdc_pipeline.config.pipeline_config import SparkConfig
    from cdc_pipeline.sink.spark.session import SparkProvider

    os.environ["SPARK_DIST_CLASSPATH"] = str(connector())  # behind Spark's own jars
    spark = SparkProvider(SparkConfig(**_SPARK)).session()
    url = f"jdbc:mysql://127.0.0.1:{work.port}/{DATABASE}?sslMode=DISABLED&allowPublicKeyRetrieval=true"
    properties = {"user": USER, "password": PASSWORD, "driver": "com.mysql.cj.jdbc.Driver"}
    frame = spark.read.jdbc(url, TABLE, predicates=_ranges(work), properties=properties)
    path = str(work.folder / "jdbc")
    frame.write.format("delta").save(path)
    rows = int(spark.read.format("delta").load(path).count())
    return Spent(rows, tree_cpu_s(), resident_mib())


def connector() -> Path:
    """The JDBC driver's jar, fetched as Spark's other jars are, into the cache folder."""
    from cdc_pipeline.sink.spark.jars import JarSet, resolve

    folder = cache_folder() / CONNECTOR.replace(":", "-")
    if not any(folder.glob("jars/*mysql-connector*.jar")):
        resolve(folder, JarSet("the JDBC driver of MySQL", CONNECTOR, ""))
    return next(folder.glob("jars/*mysql-connector*.jar"))


def reading(work: Work) -> Spent:
    """Ours, the reading alone: rows to Arrow to Parquet, range by range."""
    import pyarrow.parquet as pq

    from cdc_pipeline.binlog.arrow_types import arrow_schema
    from cdc_pipeline.config.pipeline_config import LiveSourceConfig
    from cdc_pipeline.source.rows.key_ranges import plan_ranges
    from cdc_pipeline.source.rows.table_reader import TableReader

    schema, read = _schema(work), 0
    with (
        TableReader(LiveSourceConfig(**_source(work))) as reader,
        pq.ParquetWriter(
            work.folder / "ours.parquet", arrow_schema(schema), compression="zstd"
        ) as file,
    ):
        for bounds in plan_ranges(reader, schema, RANGE_ROWS):
            for batch in reader.select(schema, bounds=bounds, where=f"id <= {work.rows}"):
                file.write_batch(batch.rows)
                read += len(batch)
    return Spent(read, tree_cpu_s(), resident_mib())


def arrow(work: Work) -> Spent:
    """Ours, rows to Arrow, and nothing made of them."""
    from cdc_pipeline.config.pipeline_config import LiveSourceConfig
    from cdc_pipeline.source.rows.table_reader import TableReader

    schema, read = _schema(work), 0
    with TableReader(LiveSourceConfig(**_source(work))) as reader:
        for batch in reader.select(schema):
            read += len(batch)
    return Spent(read, tree_cpu_s(), resident_mib())


def connectorx(work: Work) -> Spent:
    return Spent(len(_connectorx_rows(work)), tree_cpu_s(), resident_mib())


def connectorx_delta(work: Work) -> Spent:
    """connectorx to Arrow, all rows at once, and delta-rs from there to a Delta table."""
    from deltalake import write_deltalake

    rows = _connectorx_rows(work)
    write_deltalake(str(work.folder / "connectorx"), rows)
    return Spent(len(rows), tree_cpu_s(), resident_mib())


def _connectorx_rows(work: Work) -> Any:
    sys.path.insert(0, str(connectorx_folder()))
    import connectorx as cx

    return cx.read_sql(
        f"mysql://{USER}:{PASSWORD}@127.0.0.1:{work.port}/{DATABASE}",
        f"SELECT {', '.join(COLUMNS)} FROM {TABLE}",
        return_type="arrow",
        partition_on="id",
        partition_num=4,
    )


def whole(work: Work) -> Spent:
    """Ours, the whole way: marks, chunks, a side lake, its Delta table swapped into the lake."""
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
    from cdc_pipeline.position.cursor import MemoryCursorStore

    config = PipelineConfig.model_validate(
        {
            "name": "bench",
            "source": _source(work),
            "start": "latest",
            "tables": {"include": (f"{DATABASE}.*",)},
            "sink": {"lake_path": work.folder / "lake", "spark": _SPARK},
        }
    )
    report = take_snapshot(config, cursors=MemoryCursorStore(), tables=[f"{DATABASE}.{TABLE}"])
    return Spent(report.targets[f"{DATABASE}.{TABLE}"].rows, tree_cpu_s(), resident_mib())


WAYS: dict[str, Callable[[Work], Spent]] = {
    way.__name__: way
    for way in (
        row_loop,
        row_loop_delta,
        spark_jdbc,
        connectorx_delta,
        arrow,
        connectorx,
        reading,
        whole,
    )
}
