"""Our decoder in a process of its own: prints one JSON object.

python -m benchmarks.decode.ours decode JOURNAL         # counted once, which warms up; then measured
python -m benchmarks.decode.ours start JOURNAL...       # CPU seconds to the first decoded rows
python -m benchmarks.decode.ours memory JOURNAL BYTES   # resident memory of its first BYTES
"""  # noqa: E501

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import resident_mib
from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.binlog.decoded import DELETE, INSERT, DecodedRows
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.source.archive.files import read_journal
from cdc_pipeline.transaction.table_maps import TableMaps

BLOCK_BYTES = 16 << 20
_FIRST_BYTES = 256 << 10


def decode_file(path: Path, bytes_max: int | None = None) -> Iterator[DecodedRows]:
    """Frame (CRC verified), group and decode a journal block by block; every value is in Arrow.

    With `bytes_max`, the blocks that hold its first bytes.
    """
    transactions, tables = TransactionPass(), TableMaps(lambda *_: True)
    for chunk in read_journal(path, chunk_bytes=min(BLOCK_BYTES, bytes_max or BLOCK_BYTES)):
        transactions.apply(chunk)
        yield from decode_slice(EventSlice(chunk, 0, len(chunk.events)), tables)
        if bytes_max is not None and chunk.end_offset >= bytes_max:
            break


def decode_slice(piece: EventSlice, tables: TableMaps) -> Iterator[DecodedRows]:
    """Decode all rows events, table by table."""
    for group in tables.resolve(piece):
        assert group.schema is not None
        decoded = decode_rows([RowsSelection(piece.chunk, group.rows)], group.schema, epoch=0)
        assert not decoded.invalid
        yield decoded


def count(path: Path) -> dict[str, int]:
    """Changes, images, cells and NULLs of a whole journal with full row images."""
    found = dict.fromkeys(("changes", "images", "cells", "nulls"), 0)
    for rows in decode_file(path):
        assert rows.all_present
        found["changes"] += len(rows)
        for image, other_op in ((rows.before, INSERT), (rows.after, DELETE)):
            absent = int((rows.op == other_op).sum())
            images = len(rows) - absent
            found["images"] += images
            found["cells"] += images * image.num_columns
            found["nulls"] += (
                sum(column.null_count for column in image.columns) - absent * image.num_columns
            )
    return found


def _decode(path: Path) -> dict[str, float]:
    found = count(path)
    begin = time.process_time()
    changes = sum(len(rows) for rows in decode_file(path))
    cpu_s = time.process_time() - begin
    assert changes == found["changes"]
    return {**found, "cpu_s": cpu_s}


def _start(paths: list[Path]) -> dict[str, float]:
    changes = sum(len(rows) for path in paths for rows in decode_file(path, _FIRST_BYTES))
    return {"changes": changes, "cpu_s": time.process_time()}


def _memory(path: Path, bytes_max: int) -> dict[str, float]:
    """Idle: after the first rows, when all code is loaded."""
    for _ in decode_file(path, _FIRST_BYTES):
        pass
    idle_mib = resident_mib("VmRSS")
    for _ in decode_file(path, bytes_max):
        pass
    return {"idle_mib": idle_mib, "peak_mib": resident_mib()}


def main(arguments: list[str]) -> None:
    what, paths = arguments[0], [Path(argument) for argument in arguments[1:]]
    if what == "decode":
        found = _decode(paths[0])
    elif what == "start":
        found = _start(paths)
    else:
        found = _memory(paths[0], int(arguments[2]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
