"""Read the rows of small Delta tables in Arrow, without a JVM.

Rules:
- None instead of rows means that Spark must read them. A version of the protocol, a reader feature,
  a kind of column mapping or a partition that this module does not know is Spark's; so are a large
  table, a version whose log does not reach back, and files that cannot be read: Spark says why.
- Rows that a deletion vector marks are no rows. A column that a file lacks is NULL there. A type
  that was widened later is cast without loss.

Source: Delta's protocol, "Reader Requirements", "Column Mapping", "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.data_file import read_statistics
from cdc_pipeline.sink.delta.deletion_vectors import is_readable, rows_of_vector
from cdc_pipeline.sink.delta.replay import TableState, table_state

# Of Arrow's tables in memory; Spark's own start costs as much as reading and comparing these.
SMALL_ROWS: Final = 500_000
SMALL_BYTES: Final = 64 << 20
# A dictionary's few bytes can stand for many, so that they are counted as they are decoded.
_DECODED_BYTES_MAX: Final = 4 * SMALL_BYTES
_BATCH_ROWS: Final = 1024
_FILES_MAX: Final = 100
_READER_VERSION_MAX: Final = 3
_FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_PHYSICAL: Final = b"delta.columnMapping.physicalName"


def small_rows(
    path: Path, version: int, *, columns: Collection[str] | None = None
) -> pa.Table | None:
    """The rows of a version with all its columns, or those of `columns` that it has. Raises
    LakeStateError: a file of the log, or of deletion vectors, is damaged.
    """
    state = table_state(path, version, files_max=_FILES_MAX)
    schema = None if state is None else _known_schema(state)
    if state is None or schema is None:
        return None
    if columns is not None:
        schema = pa.schema([field for field in schema if field.name in columns])
    adds = list(state.adds.values())
    counts = [read_statistics(add.get("stats")).get("numRecords", SMALL_ROWS + 1) for add in adds]
    if (
        sum(counts) > SMALL_ROWS
        or sum(add["size"] for add in adds) > SMALL_BYTES
        or any(":/" in add["path"] or add["path"].startswith("/") for add in adds)
        or not all(is_readable(add.get("deletionVector")) for add in adds)
    ):
        return None
    parts, room_bytes = [], _DECODED_BYTES_MAX
    try:
        for add in adds:
            part = _rows_of(path, add, schema, room_bytes)
            if part is None:
                return None
            parts.append(part)
            room_bytes -= part.nbytes
    except (OSError, pa.ArrowException):
        return None
    return pa.concat_tables([schema.empty_table(), *parts])


def _known_schema(state: TableState) -> pa.Schema | None:
    from deltalake import Schema

    metadata, protocol = state.metadata, state.protocol
    if (
        not metadata
        or protocol.get("minReaderVersion", _READER_VERSION_MAX + 1) > _READER_VERSION_MAX
        or not _FEATURES.issuperset(protocol.get("readerFeatures") or ())
        or metadata.get("partitionColumns")
        or metadata["configuration"].get("delta.columnMapping.mode", "none") not in ("none", "name")
    ):
        return None
    schema = pa.schema(Schema.from_json(metadata["schemaString"]).to_arrow())
    # The fields of a mapped struct have physical names too.
    nested = (child for field in schema for child in _children(field.type))
    return None if any(_PHYSICAL in (child.metadata or {}) for child in nested) else schema


def _children(kind: pa.DataType) -> list[pa.Field]:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return [*fields, *(child for field in fields for child in _children(field.type))]


def _rows_of(
    path: Path, add: dict[str, Any], schema: pa.Schema, room_bytes: int
) -> pa.Table | None:
    file = path / unquote(add["path"])
    stored_names = [
        (field.metadata or {}).get(_PHYSICAL, field.name.encode()).decode() for field in schema
    ]
    content = pa.BufferReader(storage_of(file).read(file))  # small: one request of a store
    with pq.ParquetFile(content, coerce_int96_timestamp_unit="us") as opened:
        count, batches = opened.metadata.num_rows, []
        for batch in opened.iter_batches(_BATCH_ROWS, columns=stored_names):
            room_bytes -= batch.nbytes
            if room_bytes < 0:
                return None
            batches.append(batch)
    stored = pa.Table.from_batches(batches) if batches else pa.table({})
    arrays = [
        stored.column(name).cast(field.type)
        if name in stored.column_names
        else pa.nulls(count, field.type)
        for name, field in zip(stored_names, schema, strict=True)
    ]
    rows = pa.table(arrays, schema=schema)
    vector = add.get("deletionVector")
    if vector is None:
        return rows
    kept = np.ones(count, np.bool_)
    kept[rows_of_vector(path, vector)] = False
    return rows.filter(pa.array(kept))
