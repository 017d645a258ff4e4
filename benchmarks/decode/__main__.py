"""Run with ``python -m benchmarks.decode [--json]``: figure, target, verdict per workload; exit code 1 when short."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.decode.peer import peer_seconds
from benchmarks.decode.workloads import Workload, journals
from cdc_pipeline.binlog.byte_buffer import ByteBuffer
from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.binlog.event_types import MAGIC
from cdc_pipeline.binlog.framing import EventFramer
from cdc_pipeline.binlog.grouping import TransactionPass
from cdc_pipeline.binlog.rows import RowsSelection, decode_rows
from cdc_pipeline.transaction.table_maps import TableMaps

BLOCK_BYTES = 16 << 20
PEER_ROWS = 10_000
RUNS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; seconds are CPU-seconds per million row changes."""

    workload: str
    changes: int
    journal_bytes: int
    ours_s: float
    peer_s: float
    ratio: float
    target_s: float | None
    met: bool


def decode_file(path: Path) -> int:
    """Frame (CRC verified), group and decode a whole journal block by block; returns the count of changes."""
    framer, transactions, tables = EventFramer(path.name), TransactionPass(), TableMaps(lambda *_: True)
    changes = 0
    buffer = ByteBuffer(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        file.seek(len(MAGIC))
        while count := file.readinto(buffer.room(BLOCK_BYTES)):  # type: ignore[arg-type]
            buffer.commit(count)
            consumed = -1
            while consumed and len(buffer):
                chunk, consumed = framer.feed(buffer.filled)
                buffer.consume(consumed)
                if chunk is not None:
                    transactions.apply(chunk)
                    changes += decode_slice(EventSlice(chunk, 0, len(chunk.events)), tables)
    framer.finish(len(buffer))
    return changes


def decode_slice(piece: EventSlice, tables: TableMaps) -> int:
    """Decode all rows events, table by table."""
    changes = 0
    for group in tables.resolve(piece):
        assert group.schema is not None
        decoded = decode_rows([RowsSelection(piece.chunk, group.rows)], group.schema, epoch=0)
        assert not decoded.invalid
        changes += len(decoded)
    return changes


def measure(workload: Workload, path: Path) -> Figure:
    assert decode_file(path) == workload.changes, "the journal does not hold what the workload says"  # warms up, too
    seconds = []
    for _ in range(RUNS):
        begin = time.process_time()
        decode_file(path)
        seconds.append((time.process_time() - begin) * 1e6 / workload.changes)
    ours = statistics.median(seconds)
    peer = peer_seconds(path, PEER_ROWS)
    return Figure(
        workload=workload.name,
        changes=workload.changes,
        journal_bytes=path.stat().st_size,
        ours_s=round(ours, 3),
        peer_s=round(peer, 1),
        ratio=round(peer / ours, 1),
        target_s=workload.target_s,
        met=workload.target_s is None or ours <= workload.target_s,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    figures = [measure(workload, path) for workload, path in journals()]
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        table = Table(title="journal to Arrow, one core: CPU-seconds per million row changes (median)")
        for header in ("workload", "changes", "MB", "ours", "pymysqlreplication", "ratio", "target", "verdict"):
            table.add_column(header, justify="left" if header in ("workload", "verdict") else "right")
        for figure in figures:
            table.add_row(
                figure.workload, f"{figure.changes:,}", f"{figure.journal_bytes / 1e6:.0f}", f"{figure.ours_s:.3f}",
                f"{figure.peer_s:.1f}", f"{figure.ratio:.0f}x",
                "-" if figure.target_s is None else f"<= {figure.target_s:g}",
                "reported" if figure.target_s is None else ("met" if figure.met else "SHORT"),
            )  # fmt: skip
        Console().print(table)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
