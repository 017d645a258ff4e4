"""Our side: batches through the sink, as a run merges them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.decode.workloads import W1, cache_folder
from benchmarks.processes import cpu_s, jvm_pid, spent_s
from benchmarks.sink.changes import Changes
from benchmarks.sink.tables import TABLE, base_table, link_table, target_of
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.config.pipeline_config import PipelineConfig, SinkConfig, SparkConfig
from cdc_pipeline.lake.records import BatchRecord, Interval
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider

CHANGES = 10_000
SMALL_CHANGES = 500
TABLES = 20
WARM_MERGES = 20
SPARK = SparkConfig(master="local[2]", driver_memory="2g")


class Ours:
    """Sinks on lakes in `folder`, all in one warm session. Figures are CPU-seconds of the JVM and
    of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spark = SparkProvider(SPARK)
        self.session: Any = self._spark.session()
        self.pid = jvm_pid(self.session)
        self._lakes = 0

    def warm(self, merges: int) -> list[float]:
        """Merges of 100 changes into one tiny table."""
        with self._sink() as sink:
            changes = Changes("bench.tiny", 0, seed=3)
            sink.apply({"bench.tiny": changes.inserts(1000)})
            return [sink.apply({"bench.tiny": changes.batch(100)}) for _ in range(merges)]

    def onto(self, rows: int, *, recent: bool, repeats: int, count: int = CHANGES) -> list[float]:
        """`count` changes onto a table of `rows` rows, one batch after the other; one more before
        them to warm up."""
        with self._sink() as sink:
            link_table(base_table(self.session, rows), sink.paths.table(TABLE))
            sink.apply({TABLE: None})
            changes = Changes(TABLE, rows, recent=recent, seed=rows + recent)
            found = [sink.apply({TABLE: changes.batch(count)}) for _ in range(repeats + 1)]
            return found[1:]

    def twenty(self, repeats: int) -> list[float]:
        """20 tables of 1,000 rows, 500 changes each, in one batch."""
        with self._sink() as sink:
            each = {f"bench.t{at}": Changes(f"bench.t{at}", 0, seed=at) for at in range(TABLES)}
            sink.apply({name: changes.inserts(1000) for name, changes in each.items()})
            return [
                sink.apply({name: changes.batch(SMALL_CHANGES) for name, changes in each.items()})
                for _ in range(repeats + 1)
            ][1:]

    def bulk(self) -> dict[str, float]:
        """W1 from its journal to its table: CPU-seconds of the JVM, and of this process."""
        journals = self._new_folder() / "journals"
        journals.mkdir(parents=True)
        (journals / "binlog.000001").symlink_to(cache_folder() / f"{W1.name}.000001")
        config = PipelineConfig.model_validate(
            {
                "name": "bulk",
                "source": {"kind": "archive", "directory": journals},
                "sink": {"lake_path": journals.parent / "lake", "spark": SPARK.model_dump()},
            }
        )
        before_s, own_before_s = cpu_s(self.pid), time.process_time()
        report = capture(config, cursors=MemoryCursorStore())
        found = {"jvm": cpu_s(self.pid) - before_s, "python": time.process_time() - own_before_s}
        rows = sum(table.rows_inserted for table in report.tables.values())
        assert rows == W1.changes, f"{rows} rows"
        shutil.rmtree(journals.parent)
        return found

    def _new_folder(self) -> Path:
        self._lakes += 1
        return self._folder / f"ours-{self._lakes}"

    @contextmanager
    def _sink(self) -> Iterator[_Batches]:
        folder = self._new_folder()
        sink = DeltaSink(
            source="bench", config=SinkConfig(lake_path=folder, spark=SPARK), spark=self._spark
        )
        with sink.lock():
            yield _Batches(sink, self.pid)
        shutil.rmtree(folder)


class _Batches:
    """Batches of one source; tables that were not there are created by their first."""

    def __init__(self, sink: DeltaSink, pid: int) -> None:
        self.paths = sink.paths
        self._sink = sink
        self._pid = pid
        self._number = 0
        self._known: set[str] = set()

    def apply(self, changes: dict[str, DecodedRows | None]) -> float:
        """CPU-seconds for finishing the batch."""
        record = self._record(changes)
        spent = spent_s(self._pid, lambda: self._sink.finish(record))
        self._sink.cleanup(self._sink.read_cut(self._number))
        return spent

    def _record(self, changes: dict[str, DecodedRows | None]) -> BatchRecord:
        self._number += 1
        batch = self._sink.begin(self._number)
        for table, rows in changes.items():
            target = target_of(table)
            if table not in self._known:
                batch.create(target)
                self._known.add(table)
            if rows is not None:
                batch.add(rows, target)
        start = 1000 * self._number
        interval = Interval(
            start=Position("b.000007", start),
            end=Position("b.000007", start + 1000),
        )
        cursor = CursorState(
            source="bench",
            batch_number=self._number,
            flavor="mysql",
            server_id=1,
            journal="b.000007",
            offset=start + 1000,
        )
        head = BatchRecord(
            source=cursor.source,
            batch_number=self._number,
            start=interval.start,
            interval=interval,
            cursor_after=cursor,
        )
        return batch.record(head)
