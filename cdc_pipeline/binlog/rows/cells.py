"""Where the values of rows are: what the builders of columns read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels import numbers
from cdc_pipeline.binlog.kernels.numbers import VALID
from cdc_pipeline.binlog.rows.partial_rows import PartialRows
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.binlog.tables import columns_wire as wire


@dataclass(frozen=True, slots=True)
class Block:
    """Rows whose values the walk has located.

    Attributes:
        data: the chunk's bytes.
        base: int64 (rows,): index into `data` of each row.
        events: int64 (rows,): index of the row's event in its selection.
        ordinals: int64 (rows,): ordinal of the row in its event.
        before, after: int32 (columns, >= rows): offset of each value from `base`; -1 for none.
        first_row: row number in the result of the block's first row.
        rows: count of rows.
        partial: which JSON values of the after images are differences; None if there are none.
    """

    data: NDArray[np.uint8]
    base: NDArray[np.int64]
    events: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    before: NDArray[np.int32]
    after: NDArray[np.int32]
    first_row: int
    rows: int
    partial: PartialRows | None = None


@dataclass(slots=True)
class Cells:
    """The values of one column of one image, in all blocks; `state` has one of each row; `is_key`:
    of the primary key.
    """

    column: Column
    index: int
    image: str
    blocks: Sequence[Block]
    rows: int
    value_bytes: int
    rule: int
    is_mariadb: bool
    is_key: bool
    state: NDArray[np.uint8]
    packed: NDArray[np.int64] | None = None
    unpacked: list[tuple[Block, NDArray[np.int32], slice]] | None = None

    def parts(self) -> list[tuple[Block, NDArray[np.int32], slice]]:
        """For each block: the block, its offsets of this column, and its rows in the result."""
        if self.unpacked is not None:
            return self.unpacked
        found = []
        for block in self.blocks:
            matrix = block.before if self.image == "before" else block.after
            rows = slice(block.first_row, block.first_row + block.rows)
            found.append((block, matrix[self.index, : block.rows], rows))
        return found

    def raw(self, row: int) -> bytes:
        """The bytes of one value without its length bytes."""
        for block, relative, rows in self.parts():
            if rows.start <= row < rows.stop:
                at = int(block.base[row - rows.start]) + int(relative[row - rows.start])
                if self.rule >= 0:
                    return block.data[at : at + self.rule].tobytes()
                length = int.from_bytes(block.data[at : at - self.rule].tobytes(), "little")
                return block.data[at - self.rule : at - self.rule + length].tobytes()
        raise AssertionError(f"row {row} is in no block")

    def integers(self, *, signed: bool) -> NDArray[np.int64]:
        """All values as int64 bit patterns, kept for the texts of invalid ones."""
        out = np.empty(self.rows, np.int64)
        big_endian = wire.is_big_endian(self.column)
        for block, relative, rows in self.parts():
            numbers.gather_integers(
                block.data,
                block.base,
                relative,
                self.rule,
                big_endian,
                signed,
                out[rows],
                self.state[rows],
            )
        self.packed = out
        return out

    def lost_in(self, array: pa.Array) -> NDArray[np.int64]:
        """The rows that have a value here and none in `array`."""
        lost = array.is_null().to_numpy(zero_copy_only=False)
        for _, relative, rows in self.parts():
            lost[rows] &= relative >= 0
        return np.flatnonzero(lost)

    def array(
        self, kind: pa.DataType, buffers: list[pa.Buffer], children: list[pa.Array] | None = None
    ) -> pa.Array:
        valid = self.state == VALID
        nulls = self.rows - int(np.count_nonzero(valid))
        validity = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(kind, self.rows, [validity, *buffers], nulls, 0, children)
