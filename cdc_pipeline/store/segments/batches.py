"""Acking by batch id (SPEC P9).

Rules:
- Acking a batch acks all batches before it as well: a merge batch is made of many gets and is acked by its last id.
- The cursor is told before the store is acked, of the latest ack position among those batches, if there is one.
- An id that was never given, was acked already, or was undone by a rollback is an error; nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc_pipeline.errors import BatchIdError
from cdc_pipeline.position.position import Position
from cdc_pipeline.store.contract import Batch, EventStore, PositionRange


class BatchLedger:
    """The batches that one consumer got from `store` and has not acked."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._open: dict[int, PositionRange] = {}
        self._last_sequences: dict[int, int] = {}
        self._released_sequence = -1

    def get(self, size: int, *, timeout_s: float | None = None) -> Batch:
        """As the store's `get`; a batch that is not empty is open until it is acked."""
        batch = self._store.get(size, timeout_s=timeout_s)
        if batch.range is not None:
            self._open[batch.batch_id] = batch.range
            self._last_sequences[batch.batch_id] = batch.last_sequence
        return batch

    def release(self, batch: Batch) -> None:
        """Free the room of a batch that is durably staged (K9); it stays open until it is acked."""
        self._store.release(batch.last_sequence)
        self._released_sequence = max(self._released_sequence, batch.last_sequence)

    @property
    def open_batch_ids(self) -> tuple[int, ...]:
        """Ids that were got and not acked, oldest first."""
        return tuple(self._open)

    def ack_batch(self, batch_id: int, *, on_cursor: Callable[[Position], None] | None = None) -> Position | None:
        """Ack batch `batch_id` and all before it; the position that the cursor got, None where no batch had one.

        Raises:
            BatchIdError: an unknown or repeated id.
        """
        if batch_id not in self._open:
            expected = ", ".join(map(str, self._open)) or "no batch: none is open"
            raise BatchIdError(
                "a batch id is unknown or was acked before",
                expected=expected,
                got=batch_id,
                next_step="ack each batch once, by the id that get gave",
            )
        acked = [number for number in self._open if number <= batch_id]
        resumes = [self._open[number].resume for number in acked if self._open[number].resume is not None]
        cursor = resumes[-1] if resumes else None
        if cursor is not None and on_cursor is not None:
            on_cursor(cursor)
        self._store.ack(self._open[batch_id].end)
        for number in acked:
            self._forget(number)
        return cursor

    def rollback(self) -> None:
        """Roll the store back: what was not released comes again, under new ids; the old ids become unknown."""
        self._store.rollback()
        for number in [n for n, last in self._last_sequences.items() if last > self._released_sequence]:
            self._forget(number)

    def _forget(self, batch_id: int) -> None:
        del self._open[batch_id]
        del self._last_sequences[batch_id]
