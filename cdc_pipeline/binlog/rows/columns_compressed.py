"""Unpack MariaDB's COMPRESSED columns to plain bytes with a length, for the usual builders."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.compressed_values import LENGTH_BYTES, plain_bytes, unpack_values
from cdc_pipeline.binlog.native.inflate import new_stream
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.binlog.wire_types import WireType
from cdc_pipeline.errors import BinlogError

RULE: Final = -LENGTH_BYTES  # width rule of the unpacked values
REASON: Final = "not a compressed value of MariaDB"


def size_max(column: Column) -> int:
    """The size of the longest plain value: the metadata of a VARCHAR also counts the first byte."""
    if column.wire_type == WireType.VARCHAR_COMPRESSED:
        return column.wire_meta - 1
    return int((1 << 8 * column.wire_meta) - 1)


def unpacked_bytes(
    column: Column,
    data: NDArray[np.uint8],
    base: NDArray[np.int64],
    relative: NDArray[np.int32],
    *,
    rule: int,
) -> int:
    return int(plain_bytes(data, base, relative, -rule, size_max(column)))


def unpack(
    column: Column,
    data: NDArray[np.uint8],
    base: NDArray[np.int64],
    relative: NDArray[np.int32],
    *,
    rule: int,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
    """Unpack the values. `data`, `base`, `relative`: from the walk. `rule`: as in
    `columns_wire.width_rule`. Returns data, base, relative as before, to be read by RULE; and
    uint8 (rows,), 1 if a value cannot be unpacked. Raises RuntimeSetupError: this machine has no
    shared zlib; BinlogError: zlib is out of memory.
    """
    out = np.empty(max(unpacked_bytes(column, data, base, relative, rule=rule), 1), np.uint8)
    outputs = (
        np.empty(len(base), np.int64),
        np.empty(len(base), np.int32),
        np.empty(len(base), np.uint8),
    )
    code = unpack_values(data, base, relative, -rule, size_max(column), new_stream(), out, *outputs)
    if code != 0:
        raise BinlogError(
            f"zlib cannot decompress column {column.name!r}",
            got=f"zlib error {code}",
            next_step="give the run more memory",
        )
    return out, *outputs
