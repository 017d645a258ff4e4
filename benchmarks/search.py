"""A search by time over an archive of 1,000 journals (SPEC P8): seconds until the place is known.

    python -m benchmarks.search [--json]

The journals are made by hand, a second apart; the one that holds the place has 64 MiB, and the
place is near its end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Figure, report
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.position.start.lookup import search_by_time
from cdc_pipeline.source.archive.archive import ArchiveSource
from tests.support.event_builder import gtid_body, query_body
from tests.support.journal_builder import JournalBuilder

JOURNALS = 1_000
HOLDING = 700
TRANSACTIONS = 20
HOLDING_BYTES = 64 << 20
ROW_EVENT_BYTES = 8 << 10
FIRST_S = 1_700_000_000
JOURNAL_S = 100
SECONDS_MAX = 2.0


def figures(*, journals: int = JOURNALS, holding_bytes: int = HOLDING_BYTES) -> list[Figure]:
    """Measured figures with their targets."""
    holding = journals * HOLDING // JOURNALS
    with tempfile.TemporaryDirectory(prefix="cdc-bench-search-") as name:
        folder = Path(name)
        wanted = None
        for number in range(1, journals + 1):
            size_bytes = holding_bytes if number == holding else 0
            t_us, offset = _write(folder, number, size_bytes=size_bytes)
            if number == holding:
                wanted = (f"binlog.{number:06}", offset, t_us)
        assert wanted is not None
        warm = ArchiveSource(folder)
        search_by_time(warm, t_us=wanted[2])  # compiles, where the cache is empty
        source = ArchiveSource(folder)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        found = search_by_time(source, t_us=wanted[2])
        took_s, took_cpu_s = time.perf_counter() - begun, time.process_time() - begun_cpu
    if found is None or (found.journal, found.offset) != wanted[:2]:
        raise SystemExit(f"found {found}, not {wanted}")
    return [
        Figure(f"search by time over {journals:,} journals", took_s, "s", SECONDS_MAX),
        Figure("  CPU", took_cpu_s, "s"),
    ]


def _write(folder: Path, number: int, *, size_bytes: int) -> tuple[int, int]:
    """Write journal `number`; commit time and offset of its last transaction but one."""
    created_s = FIRST_S + JOURNAL_S * number
    builder = JournalBuilder(timestamp_s=created_s)
    builder.format_description()
    builder.event(EventType.PREVIOUS_GTIDS, bytes(8))
    row = bytes(ROW_EVENT_BYTES)
    count = max(TRANSACTIONS, size_bytes // (ROW_EVENT_BYTES + 200))
    places = []
    for transaction in range(count):
        t_us = created_s * 1_000_000 + transaction * (JOURNAL_S - 2) * 1_000_000 // count
        places.append((t_us, builder.offset))
        builder.event(EventType.GTID, gtid_body(transaction + 1, t_us))
        builder.event(EventType.QUERY, query_body("BEGIN"))
        builder.rows(1, row if size_bytes else row[:64])
        builder.event(EventType.XID, bytes(8))
    builder.event(EventType.ROTATE, (4).to_bytes(8, "little") + f"binlog.{number + 1:06}".encode())
    (folder / f"binlog.{number:06}").write_bytes(builder.data)
    return places[-2]


def main() -> int:
    return report("search by time", figures())


if __name__ == "__main__":
    sys.exit(main())
