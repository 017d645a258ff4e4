"""The event store and the way to it, without decoding rows: figures beside their targets.

    python -m benchmarks.store [--json]

Figures of one core are CPU-seconds of the whole process, all threads; what files take is elapsed
time. The large transaction passes in a process of its own, whose peak resident memory is measured.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import search
from benchmarks.processes import resident_mib, told_by
from benchmarks.report import Figure, report
from benchmarks.store_journal import TRANSACTION_EVENTS, small_transactions
from benchmarks.store_passage import pass_through
from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk, EventSlice, JournalFormat
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.store.ring import RingStore
from cdc_pipeline.store.segments.mixed import FileEventStore, MixedEventStore
from cdc_pipeline.transaction.buffer import TransactionBuffer

RUNS = 12
FILE_RUNS = 5
LIST_EVENTS = 100
LISTS = 20_000
SINGLES = 16_384
FILE_BYTES = 1 << 30
TRANSACTIONS = 200_000
LARGE_BYTES = 2 << 30
LARGE_EVENT_BYTES = 8 << 10
SLICE_EVENTS = 1024


def main() -> int:
    if sys.argv[1:2] == ["large"]:
        return large_transaction(Path(sys.argv[2]))
    figures = [
        *journal_rows(),
        *memory_rows(),
        *file_rows(),
        *large_transaction_row(),
        *search.figures(),
    ]
    return report("store and transactions, rows not decoded", figures)


# -- from a journal to acked batches ---------------------------------------------------------------


def journal_rows() -> list[Figure]:
    folder = small_transactions(TRANSACTIONS)
    figures = []
    for kind in ("mixed", "memory"):
        with tempfile.TemporaryDirectory(prefix="cdc-bench-store-") as spill:
            config = PipelineConfig.model_validate(
                {
                    "name": "bench",
                    "source": {"kind": "archive", "directory": folder},
                    "store": {"kind": kind, "directory": spill},
                    "sink": {"lake_path": Path(spill) / "lake"},
                }
            )
            seconds = _cpu_seconds(lambda config=config: journal_to_acks(config))  # type: ignore[misc]
        name = f"journal to acked batches, {TRANSACTIONS:,} transactions, {kind} store"
        rate = TRANSACTIONS * TRANSACTION_EVENTS / seconds / 1e6
        figures.append(Figure(name, rate, "M events/s", at_least=2.0))
    return figures


def journal_to_acks(config: PipelineConfig) -> None:
    source = build_source(config)
    journal = source.journals()[-1]
    passed = pass_through(
        config, source, source.earliest_position(), Position(journal.journal, journal.size_bytes)
    )
    # The format description and the STOP event are events of the journal, too.
    assert (passed.events, passed.transactions) == (
        TRANSACTIONS * TRANSACTION_EVENTS + 2,
        TRANSACTIONS,
    )


# -- the memory store ------------------------------------------------------------------------------


def memory_rows() -> list[Figure]:
    lists = _lists_of(LIST_EVENTS, LISTS)
    singles = [
        EventSlice(part.chunk, row, row + 1)
        for part in lists
        for row in range(part.first, part.stop)
    ][:SINGLES]

    def through(store: RingStore, size: int) -> None:
        store.start()
        for part in lists:
            store.put((part,))
            batch = store.get(size)
            assert batch.range is not None
            store.ack(batch.range.end)
        store.stop()

    def one_by_one(store: RingStore) -> None:
        store.start()
        for part in singles:
            store.put((part,))
        for _ in singles:
            store.get(1)
        store.stop()

    figures = []
    for mode, size in (("itemsize", LIST_EVENTS), ("memsize", lists[0].event_bytes // 64)):
        seconds = _cpu_seconds(
            lambda mode=mode, size=size: through(  # type: ignore[misc]
                RingStore(batch_mode=mode, memory_unit_bytes=1024 if mode == "itemsize" else 64),
                size,
            )
        )
        name = f"put, get and ack in lists of {LIST_EVENTS} events, {mode}"
        figures.append(
            Figure(name, LISTS * LIST_EVENTS / seconds / 1e6, "M events/s", at_least=5.0)
        )
    seconds = _cpu_seconds(lambda: one_by_one(RingStore(batch_mode="itemsize")))
    figures.append(Figure(f"{SINGLES:,} single puts and gets", seconds * 1000, "ms", 60.0))
    return figures


def _lists_of(events: int, count: int) -> list[EventSlice]:
    """Transactions of `events` events: slices of one chunk, as the buffer would cut it."""
    body = 60
    total = 1000 * events
    rows = np.zeros(total, dtype=EVENT_DTYPE)
    rows["event_length"] = body
    rows["start"] = np.arange(total) * body
    rows["offset"] = rows["start"] + 4
    rows["next_offset"] = rows["offset"] + body
    rows["tx_ordinal"] = np.arange(total) % events
    rows["tx_offset"] = rows["offset"] - rows["tx_ordinal"] * body
    rows["timestamp_s"], rows["server_id"], rows["parent"] = 1_700_000_000, 7, -1
    rows["event_type"], rows["role"] = EventType.WRITE_ROWS_V2, 2
    rows["event_type"][::events], rows["role"][::events] = EventType.GTID, 1
    rows["event_type"][events - 1 :: events], rows["role"][events - 1 :: events] = EventType.XID, 3
    chunk = Chunk(
        "binlog.000001",
        _FORMAT,
        np.zeros(total * body, np.uint8),
        rows,
        int(rows["next_offset"][-1]),
    )
    return [EventSlice(chunk, first, first + events) for first in range(0, total, events)] * (
        count // 1000
    )


_FORMAT = JournalFormat(4, "9.7.4", False, 1_700_000_000, 7, 4, (13,) * 42, False)


# -- files -----------------------------------------------------------------------------------------


def file_rows() -> list[Figure]:
    chunks = [_rows_chunk(4 + number * (4 << 20), 4 << 20, 512) for number in range(4)]
    slices = [
        EventSlice(chunk, first, min(first + SLICE_EVENTS, len(chunk.events)))
        for chunk in chunks
        for first in range(0, len(chunk.events), SLICE_EVENTS)
    ]
    slices *= FILE_BYTES // sum(part.event_bytes for part in slices)
    size_bytes = sum(part.event_bytes for part in slices)
    rates = []
    for _ in range(FILE_RUNS):
        with tempfile.TemporaryDirectory(prefix="cdc-bench-store-") as folder:
            store = FileEventStore(Path(folder) / "store", disk_bytes_max=4 * FILE_BYTES)
            store.start()
            begin = time.perf_counter()
            for part in slices:
                store.put((part,))
            while (batch := store.try_get(16384)).range is not None:
                store.release(batch.last_sequence)
            rates.append(size_bytes / (time.perf_counter() - begin) / 1e6)
            store.stop()
    return [
        Figure("file store: written and read back, elapsed", max(rates), "MB/s", at_least=300.0)
    ]


def _rows_chunk(offset: int, size_bytes: int, event_bytes: int) -> Chunk:
    """A chunk of one transaction's row events, which neither begin nor end it."""
    data = np.zeros((size_bytes // event_bytes, event_bytes), dtype=np.uint8)
    data[:, 24:] = np.arange(event_bytes - 24, dtype=np.uint16).astype(np.uint8)
    return _chunk_of(data, [EventType.WRITE_ROWS_V2] * len(data), offset)


def _chunk_of(data: np.ndarray, types: Sequence[int], offset: int) -> Chunk:
    count, event_bytes = data.shape
    rows = np.zeros(count, dtype=EVENT_DTYPE)
    rows["start"] = np.arange(count) * event_bytes
    rows["offset"] = rows["start"] + offset
    rows["next_offset"] = rows["offset"] + event_bytes
    rows["event_length"], rows["timestamp_s"], rows["server_id"] = event_bytes, 1_700_000_000, 7
    rows["tx_offset"] = rows["commit_ts_us"] = rows["parent"] = -1
    rows["event_type"] = types
    return Chunk("binlog.000001", _FORMAT, data.reshape(-1), rows, int(rows["next_offset"][-1]))


# -- a large transaction ---------------------------------------------------------------------------


def large_transaction_row() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="cdc-bench-store-") as folder:
        found = told_by("benchmarks.store", "large", folder)
    return [
        Figure(
            "a transaction of 2 GiB through the mixed store: peak memory",
            found["peak_mib"] * 1.048576,
            "MB",
            600.0,
        ),
        Figure("... of it spilled to files", found["spilled_bytes"] / 1e9, "GB", at_least=0.5),
        Figure("... elapsed", found["seconds"], "s"),
    ]


def large_transaction(folder: Path) -> int:
    store = MixedEventStore(folder / "store", memory_bytes=64 << 20)
    store.start()
    buffer = TransactionBuffer(store.put, is_isolated=lambda _query: False, source="mysql:7")
    chunk_bytes = 4 << 20
    chunks = LARGE_BYTES // chunk_bytes
    half = threading.Event()
    begin = time.perf_counter()

    def read() -> None:
        event_bytes = LARGE_EVENT_BYTES
        for number in range(chunks):
            data = np.full((chunk_bytes // event_bytes, event_bytes), number % 251, dtype=np.uint8)
            types = [int(EventType.WRITE_ROWS_V2)] * len(data)
            if number == 0:
                types[0], types[1] = int(EventType.MARIADB_GTID), int(EventType.TABLE_MAP)
                data[0, 19:] = 0  # flags of MariaDB's GTID event: a transaction with a body
            if number == chunks - 1:
                types[-1] = int(EventType.XID)
            buffer.feed(_chunk_of(data, types, 4 + number * chunk_bytes))
            if number == chunks // 2:
                half.set()
        buffer.finish()
        store.end_of_input()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    half.wait()
    event_bytes = 0
    acks = []
    while not store.is_drained:
        batch = store.get(16384, timeout_s=1)
        if batch.range is not None:
            event_bytes += batch.event_bytes
            acks.append(batch.range.ack)
            store.release(batch.last_sequence)
    reader.join()
    assert event_bytes == LARGE_BYTES
    # One transaction: nothing before its end may be acked.
    assert [ack is None for ack in acks] == [True] * (len(acks) - 1) + [False]
    spilled = store.spilled_events * LARGE_EVENT_BYTES
    store.stop()
    seconds = time.perf_counter() - begin
    print(json.dumps({"peak_mib": resident_mib(), "spilled_bytes": spilled, "seconds": seconds}))
    return 0


# -- search by time --------------------------------------------------------------------------------


def _cpu_seconds(work: Callable[[], None]) -> float:
    """CPU-seconds of the process for `work`: the best of some runs after one that warms up, since
    what else the machine does can only add to them."""
    work()
    seconds = []
    for _ in range(RUNS):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


if __name__ == "__main__":
    sys.exit(main())
