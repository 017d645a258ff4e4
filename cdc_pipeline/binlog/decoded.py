"""The result of the row decoder: changes of one table at one schema version, column by column.

Rules:
- Row i of every member belongs to the same change. `before` is all null for inserts, `after` for
  deletes.
- A column that the row image lacks is null in the batch and has no bit in the presence bitmap:
  absent is not NULL.
- A value that its Delta type cannot hold is null in the batch and listed in `invalid`, with its
  text. The caller must not drop that list: it stops, or rescues and counts the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.table_schema import TableSchema

INSERT: Final = 1
UPDATE: Final = 2
DELETE: Final = 3
NO_KEY: Final = "NULL in a key, which finds no row"  # the reason of an invalid value
OP_NAMES: Final = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}


class InvalidValue(NamedTuple):
    row: int
    image: str  # "before" or "after"
    column: int
    reason: str  # "zero or partial date", "bytes are not valid latin1" ...
    text: str  # the server's text of it, or hex of the bytes


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """n changes of one table.

    Attributes:
        schema: describes the columns; `before` and `after` have one field per column, in the same
            order and with the same names.
        op: uint8 (n,): INSERT, UPDATE or DELETE.
        seq: decimal128(38, 0) (n,): seq of the before image; the after image's is one higher (K1).
        commit_ts_us: int64 (n,): commit time at the source, microseconds since 1970 UTC.
        event_row: int64 (n,): index of the change's rows event among the decoder's input events.
        before, after: record batches of n rows, typed as `schema.types` says.
        before_present, after_present: uint8 (n, ceil(columns / 8)): bit c % 8 of byte c // 8 is set
            if column c is in the image; all zero if the op has no such image.
        all_present: True if every image that an op has contains every column (the FULL row image).
    """

    schema: TableSchema
    op: NDArray[np.uint8]
    seq: pa.Array
    commit_ts_us: NDArray[np.int64]
    event_row: NDArray[np.int64]
    before: pa.RecordBatch
    after: pa.RecordBatch
    before_present: NDArray[np.uint8]
    after_present: NDArray[np.uint8]
    all_present: bool
    invalid: list[InvalidValue] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.op)

    @property
    def has_before(self) -> NDArray[np.bool_]:
        """Which columns the image before has, (n, columns)."""
        return self._bits(self.before_present)

    @property
    def has_after(self) -> NDArray[np.bool_]:
        return self._bits(self.after_present)

    @property
    def has_value(self) -> NDArray[np.bool_]:
        """Which values are known after the change: an update keeps what it lacks."""
        kept = self.has_before & (self.op == UPDATE)[:, np.newaxis]
        known: NDArray[np.bool_] = self.has_after | kept
        return known

    def _bits(self, bitmap: NDArray[np.uint8]) -> NDArray[np.bool_]:
        count = len(self.schema.columns)
        return np.unpackbits(bitmap, axis=1, bitorder="little", count=count).astype(np.bool_)

    def part(self, first: int, stop: int) -> DecodedRows:
        """The changes [first, stop) without copying."""
        count = stop - first
        invalid = [
            value._replace(row=value.row - first)
            for value in self.invalid
            if first <= value.row < stop
        ]
        return self._selected(
            slice(first, stop), lambda column: column.slice(first, count), invalid
        )

    def where(self, wanted: NDArray[np.bool_]) -> DecodedRows:
        """The changes i with `wanted[i]`."""
        mask, new_row = pa.array(wanted), np.cumsum(wanted) - 1
        invalid = [
            value._replace(row=int(new_row[value.row]))
            for value in self.invalid
            if wanted[value.row]
        ]
        return self._selected(wanted, lambda column: column.filter(mask), invalid)

    def _selected(
        self,
        index: slice | NDArray[np.bool_],
        of_arrow: Callable[[Any], Any],
        invalid: list[InvalidValue],
    ) -> DecodedRows:
        """The changes that `index` selects of a numpy array, and `of_arrow` of an Arrow one."""
        return replace(
            self,
            op=self.op[index],
            seq=of_arrow(self.seq),
            commit_ts_us=self.commit_ts_us[index],
            event_row=self.event_row[index],
            before=of_arrow(self.before),
            after=of_arrow(self.after),
            before_present=self.before_present[index],
            after_present=self.after_present[index],
            invalid=invalid,
        )


def joined(parts: Sequence[DecodedRows]) -> DecodedRows:
    """Concatenate changes of one table at one schema version, in the order of `parts`;
    at least one.
    """
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
    return DecodedRows(
        schema=parts[0].schema,
        op=np.concatenate([part.op for part in parts]),
        seq=pa.concat_arrays([part.seq for part in parts]),
        commit_ts_us=np.concatenate([part.commit_ts_us for part in parts]),
        event_row=np.concatenate([part.event_row for part in parts]),
        before=pa.concat_batches([part.before for part in parts]),
        after=pa.concat_batches([part.after for part in parts]),
        before_present=np.concatenate([part.before_present for part in parts]),
        after_present=np.concatenate([part.after_present for part in parts]),
        all_present=all(part.all_present for part in parts),
        invalid=[
            value._replace(row=value.row + start)
            for part, start in zip(parts, starts, strict=False)
            for value in part.invalid
        ],
    )
