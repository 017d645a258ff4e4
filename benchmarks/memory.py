"""Memory of a capture against its budget: the ring, one staging piece, and nothing that grows with
the backlog.

    python -m benchmarks.memory [--json]

A backlog of two sizes (one of them a single transaction) is decoded and staged, without a merge, in
a process each; the peak resident memory may exceed that of an idle process by the ring's budget and
four times what one get takes (raw, decoded before and after, and the Parquet writer's row group),
whatever the backlog.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.decode.workloads import cache_folder
from benchmarks.processes import resident_mib, told_by
from benchmarks.report import Figure, report
from tests.servers import Server

_ROW_BYTES = 920
_STATEMENT_ROWS = 2000


def journal_folder(size_mib: int, *, one_transaction: bool) -> Path:
    """A folder with the journals of one table `bench.t` that hold about `size_mib` MiB; recorded
    where missing."""
    folder = cache_folder() / f"memory-1-{'one' if one_transaction else 'many'}-{size_mib}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    rows = size_mib * 2**20 // _ROW_BYTES
    with Server("mysql", {"max_binlog_size": 1 << 30}) as server:
        server.execute("CREATE DATABASE bench")
        with (
            server.root_connection(database="bench", autocommit=False) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(
                "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, text VARCHAR(1000) NOT NULL)"
            )
            cursor.execute(f"SET cte_max_recursion_depth = {_STATEMENT_ROWS}")
            for first in range(0, rows, _STATEMENT_ROWS):
                cursor.execute(
                    f"INSERT INTO t WITH RECURSIVE numbers AS (SELECT {first} AS n UNION ALL "
                    f"SELECT n + 1 FROM numbers WHERE n + 1 < {first + _STATEMENT_ROWS}) SELECT n, "
                    "REPEAT(SHA2(n, 256), 14) FROM numbers"
                )
                if not one_transaction:
                    connection.commit()
            connection.commit()
        server.flush_journal()
        server.copy_journals(partial)
    partial.rename(folder)
    return folder


RING_EVENTS = 16384
MEMORY_UNIT_BYTES = 1024
GET_BYTES = 8 << 20
# 64 MiB: Arrow's and numpy's arenas
BUDGET_MIB = (RING_EVENTS * MEMORY_UNIT_BYTES + 4 * GET_BYTES) / 2**20 + 64
SIZES_MIB = (64, 512)


def main() -> int:
    if len(sys.argv) > 2 and sys.argv[1] == "child":
        return _child(int(sys.argv[2]), sys.argv[3] == "one")
    figures = []
    peaks = {}
    for shape in ("many", "one"):
        for size_mib in SIZES_MIB:
            found = told_by("benchmarks.memory", "child", size_mib, shape)
            peaks[shape, size_mib] = found["peak_mib"] - found["idle_mib"]
            name = (
                f"{size_mib} MiB in {'one transaction' if shape == 'one' else 'many transactions'}"
            )
            figures.append(Figure(f"{name}: above idle", peaks[shape, size_mib], "MiB", BUDGET_MIB))
        growth = peaks[shape, SIZES_MIB[1]] - peaks[shape, SIZES_MIB[0]]
        figures.append(Figure(f"growth with the backlog, {shape}", growth, "MiB", 32.0))
    return report("memory of a capture", figures)


def _child(size_mib: int, one_transaction: bool) -> int:
    """Read and stage an archive; the merge is left out, since Spark is another process."""
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.fault_points import listening
    from cdc_pipeline.position.cursor import MemoryCursorStore
    from cdc_pipeline.run.capture.capture import capture

    class Enough(Exception):
        """Staged: what follows is Spark's."""

    def stop_before_record(point: str) -> None:
        if point == "before_record":
            raise Enough

    def run(folder: Path, mib: int) -> None:
        journals = journal_folder(mib, one_transaction=one_transaction)
        config = PipelineConfig.model_validate(
            {
                "name": "memory",
                "source": {"kind": "archive", "directory": journals},
                "store": {"ring_events": RING_EVENTS, "memory_unit_bytes": MEMORY_UNIT_BYTES},
                "batch": {
                    "get_bytes": GET_BYTES,
                    "merge_staged_bytes": 1 << 40,
                    "merge_rows": 1 << 40,
                },
                "sink": {"lake_path": folder / "lake"},
            }
        )
        try:
            with listening(stop_before_record):
                capture(config, cursors=MemoryCursorStore())
        except Enough:
            return
        raise SystemExit("nothing was staged")

    with tempfile.TemporaryDirectory(prefix="cdc-bench-memory-") as folder:
        run(Path(folder) / "warm", 1)  # compiles the kernels, which takes memory of its own
        idle_mib = resident_mib()
        run(Path(folder) / "full", size_mib)
    print(json.dumps({"idle_mib": idle_mib, "peak_mib": resident_mib()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
