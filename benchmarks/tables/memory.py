"""Resident memory of one process over many batches: what a long run keeps of its past (K25)."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import told_by
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.sink_values import applied, column, insert, table_schema

TABLES = 500
WARM_BATCHES = 10
_COLUMNS = 7
_CHANGED = 3


def growth_mib(batches: int) -> float:
    """Return by how much the memory of a process is larger after `batches` batches than after the
    first ten; each changes three of 500 tables, and publishes a cut of all."""
    first_mib, last_mib = told_by("benchmarks.tables.memory", batches)
    return float(last_mib - first_mib)


def _measure(batches: int) -> tuple[float, float]:
    schemas = [
        table_schema(
            f"many.t{at}",
            [column("id", Kind.INT32), *(column(f"c{n}", Kind.INT64) for n in range(_COLUMNS))],
            "id",
        )
        for at in range(TABLES)
    ]
    first_mib = 0.0
    with tempfile.TemporaryDirectory(prefix="cdc-bench-tables-") as folder:
        sink = DeltaSink(source="many", config=SinkConfig(lake_path=Path(folder)))
        with sink.lock():
            applied(sink, 1, *((schema, [insert(**_row(1))], 10) for schema in schemas))
            for number in range(2, batches + 1):
                changed = [schemas[(_CHANGED * number + at) % TABLES] for at in range(_CHANGED)]
                pieces = ((schema, [insert(**_row(number))], 10 * number) for schema in changed)
                sink.cleanup(applied(sink, number, *pieces))
                if number == WARM_BATCHES:
                    first_mib = _resident_mib()
        assert not sink.spark_started
        return first_mib, _resident_mib()


def _row(number: int) -> dict[str, int]:
    return {"id": number, **{f"c{n}": number for n in range(_COLUMNS)}}


def _resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))
