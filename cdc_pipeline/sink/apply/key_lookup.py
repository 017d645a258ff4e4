"""Find the keys of a batch in a plain table's data files by reading only their key columns (K10,
K11).

The answer is that of Spark's join in `upsert`, without a job. It is for tables in which only a few
files can hold the keys.

Rules:
- The answer may include a row that is already marked as deleted: marking it again changes nothing.
- A file is skipped only if its statistics prove that it has none of the keys; only integers and
  text are compared with them.
- If this module cannot decide, the answer is `None` and Spark does the lookup: too many rows, files
  elsewhere, a file without statistics, or a file that may have a row newer than its change.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.replay import LISTED_FILES_MAX, DataFile, data_files, is_elsewhere

_LOOKED_ROWS_MAX: Final = 20_000_000
_LOOKED_FILES_MAX: Final = 500
_REQUESTS_AT_A_TIME: Final = 16  # of an object store, where a file is a few of them
_ROW: Final = "_cdc_row"


def rows_with_keys(
    path: Path, version: int, keys: pa.Table, *, seq_column: str, lowest_seq: int
) -> list[tuple[DataFile, NDArray[np.int64]]] | None:
    """The rows of a version that have one of the keys: row numbers by file. No key is NULL or
    occurs twice; columns are named as in the files; `lowest_seq` is of the batch's changes.
    Raises LakeStateError: a file of the log is damaged.
    """
    files = data_files(path, version, files_max=LISTED_FILES_MAX, is_new=False)
    if files is None:
        return None
    files = [file for file in files if _can_have(file, keys)]
    if len(files) > _LOOKED_FILES_MAX or any(
        file.rows is None or is_elsewhere(file.name) for file in files
    ):
        return None
    if sum(file.rows or 0 for file in files) > _LOOKED_ROWS_MAX:
        return None
    rows_by_file = []
    for file, rows in zip(files, _looked(path, files, keys), strict=True):
        if rows is None:
            return None
        if not len(rows):
            continue
        if not file.is_below(seq_column, lowest_seq):
            return None
        rows_by_file.append((file, rows))
    return rows_by_file


def _looked(path: Path, files: list[DataFile], keys: pa.Table) -> list[NDArray[np.int64] | None]:
    def look_up(file: DataFile) -> NDArray[np.int64] | None:
        return _rows_of(path / file.name, keys)

    if not is_object(path):
        return [look_up(file) for file in files]
    with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as threads:
        return list(threads.map(look_up, files))


def _can_have(file: DataFile, keys: pa.Table) -> bool:
    name = keys.column_names[0]
    kind, (low, high) = keys.column(name).type, file.bounds(name)
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        return True
    key_range = pc.min_max(keys.column(name)).as_py()
    if type(low) is not type(key_range["min"]) or type(high) is not type(key_range["max"]):
        return True
    return bool(low <= key_range["max"] and high >= key_range["min"])


def _rows_of(file: Path, keys: pa.Table) -> NDArray[np.int64] | None:
    row_numbers = [np.zeros(0, np.int64)]
    first = 0
    try:
        with pq.ParquetFile(
            storage_of(file).arrow_source(file), coerce_int96_timestamp_unit="us"
        ) as opened:
            if not set(keys.column_names) <= set(opened.schema_arrow.names):
                return None
            for group in range(opened.num_row_groups):
                there = opened.read_row_group(group, columns=keys.column_names)
                row_numbers.append(
                    first + _matches(there.select(keys.column_names).cast(keys.schema), keys)
                )
                first += len(there)
    except (OSError, pa.ArrowException):
        return None  # Spark reports what is wrong with it
    return np.concatenate(row_numbers)


def _matches(there: pa.Table, keys: pa.Table) -> NDArray[np.int64]:
    if keys.num_columns == 1:
        at = pc.index_in(there.column(0), value_set=keys.column(0).combine_chunks())
        return np.flatnonzero(at.is_valid().to_numpy())
    numbered = there.append_column(_ROW, pa.array(np.arange(len(there))))
    joined = numbered.join(keys, keys.column_names, join_type="left semi")
    return np.sort(joined.column(_ROW).to_numpy())
