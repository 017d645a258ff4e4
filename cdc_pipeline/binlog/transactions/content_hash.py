"""The content of a transaction as 128 bits: equal on a server and its replica (K7: overlap
detection).

Rules:
- The hash covers rows with their table maps and bitmaps, texts of statements with their default
  database, and XA names. It does not cover ids, times, offsets, flags, extra data, status
  variables, XID, GTID and rows-query events, and LOAD DATA in statement format (its text names
  another file on each server).
- The same rows have the same hash however they are split into events. Row image and row metadata
  must be the same on both servers.
- A transaction that was rolled back has no hash, because a replica may lack it.
- Each chunk takes one compiled pass; the state of an open transaction is kept between chunks.

Source: TABLE_MAP_EVENT, ROWS_EVENT and QUERY_EVENT of the MySQL binlog format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import event_name
from cdc_pipeline.binlog.transactions import content_hash_kernel as kernel
from cdc_pipeline.errors import DamagedJournalError, TransactionError

_MAPS_FIRST: Final = 64


@dataclass(frozen=True, slots=True)
class HashedTransactions:
    """Transactions that ended in a chunk, in order; n of them.

    Attributes:
        rows: int64 (n,): row of the last event of each.
        hashes: uint64 (n, 2).
    """

    rows: NDArray[np.int64]
    hashes: NDArray[np.uint64]


class ContentHasher:
    def __init__(self) -> None:
        self._state: NDArray[np.uint64] = np.zeros(kernel.STATE_SIZE, dtype=np.uint64)
        self._map_ids: NDArray[np.int64] = np.zeros(_MAPS_FIRST, dtype=np.int64)
        self._map_hashes: NDArray[np.uint64] = np.zeros((_MAPS_FIRST, 2), dtype=np.uint64)
        self.reset()

    def reset(self) -> None:
        """Forget the open transaction, which never ended."""
        kernel.reset(self._state)

    def feed(
        self, chunk: Chunk, first: int, stop: int, ends: NDArray[np.int64]
    ) -> HashedTransactions:
        """Hash the events [first, stop) of a chunk after the transaction pass. `ends`: rows of the
        last events of the transactions that end in this range, counted from the chunk's first
        row. Raises DamagedJournalError: an event is shorter than its own fields;
        TransactionError: rows without a table map.
        """
        events = chunk.events[first:stop]
        count = len(events)
        marks = np.zeros(count, dtype=np.uint8)
        marks[ends - first] = 1
        hashes = np.empty((count, 2), dtype=np.uint64)
        rows = np.empty(count, dtype=np.int64)
        done = found = 0
        while done < count:
            done, code, more = kernel.hash_events(
                chunk.data,
                events,
                marks,
                chunk.journal_format.checksum_bytes,
                chunk.journal_format.query_post_header_bytes,
                done,
                self._state,
                self._map_ids,
                self._map_hashes,
                hashes[found:],
                rows[found:],
            )
            found += more
            if code == kernel.MAPS_FULL:
                self._map_ids = np.concatenate([self._map_ids, np.zeros_like(self._map_ids)])
                self._map_hashes = np.concatenate(
                    [self._map_hashes, np.zeros_like(self._map_hashes)]
                )
            elif code != kernel.OK:
                raise _refused(chunk, first + done, code)
        return HashedTransactions(rows[:found] + first, hashes[:found])


def _refused(chunk: Chunk, row: int, code: int) -> DamagedJournalError | TransactionError:
    name = event_name(int(chunk.events["event_type"][row]))
    offset = int(chunk.events["offset"][row])
    if code == kernel.MAP_MISSING:
        return TransactionError(
            "rows have no table map in their transaction",
            at=(chunk.journal, offset),
            expected=f"a table map with id {int(chunk.events['table_id'][row])} before them",
            got=name,
            next_step="read the transaction from its beginning",
        )
    return DamagedJournalError(
        "an event is shorter than its own fields",
        at=(chunk.journal, offset),
        got=f"{name} of {int(chunk.events['event_length'][row])} bytes",
    )
