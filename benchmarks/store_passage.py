"""A source's events through the transaction buffer and the store, as a capture moves them, with
nothing behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.wiring import build_store, get_size
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.transaction.buffer import TransactionBuffer


@dataclass(frozen=True, slots=True)
class Passed:
    events: int
    event_bytes: int
    transactions: int


def pass_through(config: PipelineConfig, source: Source, start: Position, end: Position) -> Passed:
    """Source -> framing -> transaction buffer -> store, in the reader's thread; get, release and
    ack here."""
    store = build_store(config)
    store.start()
    buffer = TransactionBuffer(store.put, is_isolated=lambda _query: False, source="bench")

    def read() -> None:
        try:
            for chunk in source.chunks(start, end):
                buffer.feed(chunk)
            buffer.finish()
        finally:
            store.end_of_input()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    events = event_bytes = 0
    while not store.is_drained:
        batch = store.get(get_size(config), timeout_s=1)
        if batch.range is not None:
            events += batch.event_count
            event_bytes += batch.event_bytes
            store.release(batch.last_sequence)
            store.ack(batch.range.end)
        del batch  # as a drain does it: its events are not held during the next wait
    reader.join()
    store.stop()
    return Passed(events, event_bytes, buffer.transactions.transactions)
