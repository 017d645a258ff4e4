"""Reads whole Parquet files of a lake.

Arrow's datasets, which `pyarrow.parquet.read_table` and deltalake's `to_pyarrow_table` use, hand
files to worker threads. Such a thread may be the last to let go of a file or filesystem that is a
Python object, after the rows have been returned. If the interpreter is ending by then, that kills
the process ("terminate called without an active exception"). Here the caller's thread opens and
closes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cdc_pipeline.lake.storage.storage import storage_of


def read_parquet(file: Path, *, columns: list[str] | None = None) -> pa.Table:
    """Raises OSError: the file cannot be read; pyarrow.ArrowException: it is damaged."""
    with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
        return opened.read(columns=columns)


def may_pass(
    guarantees: Sequence[pc.Expression], schema: pa.Schema, condition: pc.Expression
) -> list[int]:
    """Which of `guarantees`, each of all rows of one file, do not exclude `condition`, ascending.

    Arrow's own reasoning about fragments of a dataset, whose files do not exist: none is opened.
    """
    import pyarrow.dataset as ds

    kind, disk = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [
        kind.make_fragment(str(at), disk, guarantee) for at, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, kind, disk)
    return sorted(int(fragment.path) for fragment in dataset.get_fragments(filter=condition))
