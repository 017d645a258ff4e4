"""Values that changed and are in no image of the log: the rows are told, never applied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.column_types import Column, Kind
from cdc_pipeline.binlog.decoded import INSERT, UPDATE, DecodedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.wire_types import WireType
from cdc_pipeline.run.decode.decoding import lacks_values

# id (the key), plain, computed, and a BLOB
COLUMNS = ("id", "plain", "computed", "blob")


def rows(op: int, before: str, after: str, *, key: tuple[int, ...] = (0,)) -> DecodedRows:
    """One change; the images as a digit for each column, 1 where it is there."""
    columns = tuple(
        Column(name, Kind.INT32, WireType.BLOB if name == "blob" else WireType.LONG, 0, True)
        for name in COLUMNS
    )
    image = pa.RecordBatch.from_arrays([pa.nulls(1, pa.int32())] * len(COLUMNS), names=COLUMNS)

    def bits(text: str) -> Any:
        return np.packbits([[int(bit) for bit in text]], axis=1, bitorder="little")

    return DecodedRows(
        TableSchema("shop", "t", columns, key),
        np.array([op], np.uint8),
        pa.nulls(1, pa.decimal128(38, 0)),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        image,
        image,
        bits(before),
        bits(after),
        all_present=False,
    )


@pytest.mark.parametrize(
    ("op", "before", "after", "lacks"),
    [
        (UPDATE, "1111", "1111", False),  # FULL
        (UPDATE, "1110", "1110", False),  # NOBLOB
        (UPDATE, "1000", "0100", False),  # MINIMAL
        (UPDATE, "1000", "1000", False),  # MINIMAL, of the key
        (UPDATE, "1111", "0100", False),  # FULL_NODUP
        (UPDATE, "1101", "1101", True),  # FULL without the computed one
        (UPDATE, "1100", "1100", True),  # NOBLOB without it
        (UPDATE, "1101", "0100", True),  # FULL_NODUP without it
        (INSERT, "0000", "1011", True),
        (INSERT, "0000", "1111", False),
    ],
)
def test_k23_f120_a_column_that_no_image_has_is_not_taken_for_unchanged(
    op: int, before: str, after: str, lacks: bool
) -> None:
    """MariaDB 11.8 leaves generated columns out of updates, with every row image."""
    assert lacks_values(rows(op, before, after), lambda _name: True) == lacks


def test_a_column_that_no_target_has_may_lack() -> None:
    assert not lacks_values(rows(UPDATE, "1101", "1101"), lambda name: name != "computed")
    # Without a primary key the image before may be of a unique key alone.
    assert not lacks_values(rows(UPDATE, "1101", "1101", key=()), lambda _name: True)
