"""Reads whole Parquet files of a lake.

Arrow's datasets, which `pyarrow.parquet.read_table` and deltalake's `to_pyarrow_table` use, hand
files to worker threads. Such a thread may be the last to let go of a file or filesystem that is a
Python object, after the rows have been returned. If the interpreter is ending by then, that kills
the process ("terminate called without an active exception"). Here the caller's thread opens and
closes the file.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_pipeline.lake.storage.storage import storage_of


def read_parquet(file: Path, *, columns: list[str] | None = None) -> pa.Table:
    """The rows of a file on a disk or in an object store.

    Args:
        columns: only these.

    Raises:
        OSError: it cannot be read.
        pyarrow.ArrowException: it is damaged.
    """
    with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
        return opened.read(columns=columns)
