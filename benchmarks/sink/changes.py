"""Changes of the measured tables, as the decoder would give them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.sink.tables import schema_of
from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows
from tests.support.seqs import seq_array

JOURNAL = 7


class Changes:
    """Batches of changes of one table that holds the ids 0 to `rows` - 1: eight of ten are updates,
    one is an insert of a new id, one a delete; every key once. `recent`: updates and deletes are
    of the newest fiftieth of a million ids and not of all.
    """

    def __init__(self, table: str, rows: int, *, recent: bool = False, seed: int = 1) -> None:
        self._schema = schema_of(table)
        self._alive = rows
        self._recent = recent
        self._rng = np.random.default_rng(seed)
        self._offset = 4

    def batch(self, count: int) -> DecodedRows:
        inserts, deletes = count // 10, count // 10
        lowest = max(0, self._alive - 20_000) if self._recent else 0
        existing = lowest + self._rng.choice(
            self._alive - lowest, min(count - inserts, self._alive - lowest), replace=False
        )
        new = np.arange(self._alive, self._alive + count - len(existing))
        self._alive += len(new)
        op = np.full(count, UPDATE, np.uint8)
        op[: len(new)] = INSERT
        op[count - deletes :] = DELETE
        ids = np.concatenate([new, existing])
        order = self._rng.permutation(count)
        return self._decoded(ids[order], op[order])

    def inserts(self, count: int) -> DecodedRows:
        ids = np.arange(self._alive, self._alive + count)
        self._alive += count
        return self._decoded(ids, np.full(count, INSERT, np.uint8))

    def _decoded(self, ids: NDArray[np.int64], op: NDArray[np.uint8]) -> DecodedRows:
        count = len(ids)
        schema = arrow_schema(self._schema)
        digits = self._rng.integers(0, 1 << 30, count)
        arrays = [
            pa.array(ids, pa.int64()),
            pa.array(digits.astype(np.int32)),
            pa.array((digits % 7).astype(np.int32)),
            pa.array([f"changed {number}" for number in digits.tolist()]),
            pa.array(digits % 1_000_000).cast(pa.decimal128(38, 0)).cast(pa.decimal128(12, 2)),
            pa.array(digits / 1000),
        ]
        image = pa.record_batch(
            [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)],
            schema=schema,
        )
        self._offset += 1000
        rows = np.arange(count)
        present = np.full((count, 1), 63, np.uint8)
        seq = seq_array(1, JOURNAL, np.full(count, self._offset), rows >> 10, rows & 1023, 0)
        return DecodedRows(
            schema=self._schema,
            op=op,
            seq=seq,
            commit_ts_us=np.full(count, 1_800_000_000_000_000 + self._offset),
            event_row=rows,
            before=image,
            after=image,
            before_present=present,
            after_present=present,
            all_present=True,
        )
