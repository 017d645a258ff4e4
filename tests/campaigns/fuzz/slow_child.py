"""Rows of some seeds as one Arrow IPC file each: ``python -m tests.campaigns.fuzz.slow_child FOLDER
NAME ...``.

Run with NUMBA_DISABLE_JIT=1 the same kernels are plain Python over numpy scalars; a number that
overflows in one of them is an error then.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.chunk import SliceKind
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.transactions.content_hash import ContentHasher
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.source.archive.files import read_journal
from cdc_pipeline.transaction.table_maps import TableMaps
from tests.campaigns.fuzz import journal as wire
from tests.campaigns.fuzz.judge import JOURNAL, slices

# Where 64 bits without a sign are meant to wrap: hashes, 128-bit products, negation.
MODULAR = tuple(
    rf"cdc_pipeline\.binlog\.{name}"
    for name in (
        r"tables\.table_map_resolution",
        r"transactions\.content_hash_kernel",
        r"kernels\.text\.shortest",
        r"kernels\.numbers",
    )
)


def decoded(name: str, folder: Path) -> dict[str, list[pa.RecordBatch]]:
    """What every kernel makes of a seed: rows by table, and the content hashes of its
    transactions."""
    file = folder / JOURNAL
    file.write_bytes(wire.seed(name))
    maps = TableMaps(lambda _database, _table: True)
    found: dict[str, list[pa.RecordBatch]] = {}
    for piece in slices(file):
        if piece.kind is SliceKind.ABANDONED:
            maps.reset()
            continue
        for group in maps.resolve(piece):
            assert group.schema is not None
            rows = decode_rows([RowsSelection(piece.chunk, group.rows)], group.schema, epoch=1)
            seq = pa.RecordBatch.from_arrays(
                [rows.seq, pa.array(rows.op), pa.array(rows.commit_ts_us)], ["s", "o", "t"]
            )
            bits = pa.RecordBatch.from_arrays([pa.array(rows.after_present.ravel())], ["present"])
            invalid = pa.RecordBatch.from_arrays(
                [pa.array([str(value) for value in rows.invalid], pa.string())], ["v"]
            )
            for kind, batch in enumerate((rows.before, rows.after, seq, bits, invalid)):
                found.setdefault(f"{len(found)}.{group.table}.{kind}", []).append(batch)
    hasher, transactions = ContentHasher(), TransactionPass()
    for chunk in read_journal(file):
        bounds = transactions.apply(chunk)
        hashes = hasher.feed(chunk, 0, len(chunk.events), bounds.ends).hashes
        batch = pa.RecordBatch.from_arrays(
            [pa.array(np.ascontiguousarray(hashes).ravel())], ["hash"]
        )
        found.setdefault("hashes", []).append(batch)
    return found


def main() -> None:
    warnings.simplefilter("error", RuntimeWarning)
    for module in MODULAR:
        warnings.filterwarnings(
            "ignore", "overflow encountered in scalar", RuntimeWarning, module=module
        )
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        for key, batches in decoded(name, folder).items():
            file = str(folder / f"{name}.{key}.arrow")
            with pa.OSFile(file, "wb") as out, pa.ipc.new_stream(out, batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)


if __name__ == "__main__":
    main()
