"""The other side: a plain MERGE of the same changes, one row a key, from a Parquet file of the
table's own columns.

Delta's defaults but for two partitions of shuffles and snapshots (200 and 50 would cost more than
the work), and Java as Spark starts it. `tuned` merges with every setting that ours has, to know the
floor of a MERGE.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.decode.workloads import W1, cache_folder
from benchmarks.processes import jvm_pid, spent_s
from benchmarks.sink.changes import Changes
from benchmarks.sink.ours import CHANGES, SMALL_CHANGES, TABLES
from benchmarks.sink.tables import TABLE, base_table, create_as_ours, link_table
from cdc_pipeline.binlog.decoded import DELETE, DecodedRows
from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.session import SparkProvider

DEFAULTS = {
    "spark.driver.extraJavaOptions": "",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.writeChecksumFile.enabled": "true",
    "spark.databricks.delta.allFilesInCrc.enabled": "true",
    "spark.databricks.delta.merge.materializeSource": "auto",
}
TUNED = {
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.databricks.delta.merge.materializeSource": "none",
}


class Plain:
    def __init__(self, folder: Path, *, tuned: bool = False) -> None:
        self._folder = folder
        settings = {} if tuned else DEFAULTS
        self._spark = SparkProvider(
            SparkConfig(master="local[2]", driver_memory="2g", settings=settings)
        )
        self.session: Any = self._spark.session()
        self.pid = jvm_pid(self.session)
        self._tuned = tuned
        self._files = 0

    def warm(self, merges: int) -> list[float]:
        path = self._empty("bench.tiny")
        changes = Changes("bench.tiny", 0, seed=3)
        self._merge(path, changes.inserts(1000))
        found = [self._merge(path, changes.batch(100)) for _ in range(merges)]
        shutil.rmtree(path)
        return found

    def onto(
        self,
        rows: int,
        *,
        recent: bool,
        repeats: int,
        deletion_vectors: bool = True,
        count: int = CHANGES,
        delta_rs: bool = False,
    ) -> list[float]:
        """`delta_rs`: its merge, which needs no Spark, but a table without deletion vectors."""
        path = self._folder / "onto"
        link_table(base_table(self.session, rows, deletion_vectors=deletion_vectors), path)
        changes = Changes(TABLE, rows, recent=recent, seed=rows + recent)
        merge = _merge_by_delta_rs if delta_rs else self._merge
        found = [merge(path, changes.batch(count)) for _ in range(repeats + 1)]
        shutil.rmtree(path)
        return found[1:]

    def twenty(self, repeats: int) -> list[float]:
        each = [
            (self._empty(f"bench.t{at}"), Changes(f"bench.t{at}", 0, seed=at))
            for at in range(TABLES)
        ]
        for path, changes in each:
            self._merge(path, changes.inserts(1000))
        found = [
            sum(self._merge(path, changes.batch(SMALL_CHANGES)) for path, changes in each)
            for _ in range(repeats + 1)
        ]
        for path, _ in each:
            shutil.rmtree(path)
        return found[1:]

    def bulk(self) -> dict[str, float]:
        """The MERGE alone, of rows like W1's, into an empty table."""
        path, source = self._folder / "bulk", str(self._folder / "bulk-source")
        digits = "concat_ws('-', {})".format(
            ", ".join(["lpad(CAST(abs(xxhash64(id, {0})) AS STRING), 11, '0')"] * 5)
        )
        self.session.range(0, W1.changes, 1, 2).selectExpr(
            "CAST(id AS INT) AS id",
            "CAST(id % 1000000 AS INT) AS k",
            digits.format(1),
            f"{digits.format(2)}",
        ).toDF("id", "k", "c", "pad").write.parquet(source)
        self.session.sql(
            f"CREATE TABLE delta.`{path}` (id INT, k INT, c STRING, pad STRING) USING delta"
        )
        self.session.read.parquet(source).createOrReplaceTempView("bulk")
        statement = (
            f"MERGE INTO delta.`{path}` t USING bulk s ON t.id = s.id WHEN MATCHED THEN UPDATE SET "
            "* WHEN NOT MATCHED THEN INSERT *"
        )
        found = spent_s(self.pid, lambda: self.session.sql(statement).collect())
        shutil.rmtree(path)
        shutil.rmtree(source)
        return {"jvm": found, "python": 0.0}

    def _empty(self, table: str) -> Path:
        path = self._folder / table
        create_as_ours(self.session.newSession(), path, table)
        return path

    def _merge(self, path: Path, rows: DecodedRows) -> float:
        self._files += 1
        file = self._folder / f"changes-{self._files}.parquet"
        pq.write_table(_arrow_of(rows), file)
        statement = (
            f"MERGE INTO delta.`{path}` t USING changed s ON t.id = s.id WHEN MATCHED AND "
            "s._cdc_op = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND "
            "s._cdc_op != 'delete' THEN INSERT *"
        )

        def work() -> None:
            session = self.session.newSession()
            if self._tuned:
                for name, value in TUNED.items():
                    session.conf.set(name, value)
                settings = MergeSettings(session, {})
                settings.lookup()
            session.read.parquet(str(file)).createOrReplaceTempView("changed")
            session.sql(statement).collect()

        found = spent_s(self.pid, work)
        file.unlink()
        return found


def _arrow_of(rows: DecodedRows) -> pa.Table:
    table = pa.Table.from_batches([rows.after])
    stamp = pa.array(rows.commit_ts_us).cast(pa.timestamp("us", "UTC"))
    table = table.append_column(
        "_cdc_op", pa.array(["delete" if op == DELETE else "update" for op in rows.op])
    )
    return table.append_column("_cdc_seq", rows.seq).append_column("_cdc_ts", stamp)


def _merge_by_delta_rs(path: Path, rows: DecodedRows) -> float:
    from deltalake import DeltaTable

    source, before_s = _arrow_of(rows), time.process_time()
    merge = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge = merge.when_matched_delete("s._cdc_op = 'delete'").when_matched_update_all()
    merge.when_not_matched_insert_all("s._cdc_op <> 'delete'").execute()
    return time.process_time() - before_s


def journal_of_bulk() -> Path:
    return cache_folder() / f"{W1.name}.000001"
