"""Decoded rows of one table as an Arrow stream, in memory until it is spilled to a file (K8).

Columns: ``op`` uint8, ``seq`` decimal(38,0), ``full`` boolean, ``bp`` and ``ap`` the presence
bitmaps, ``b0 ... bN`` the before and ``a0 ... aN`` the after image, ``invalid`` the values that no
Arrow type holds, as JSON. The stream's metadata holds the `TableSchema` as JSON.

Rules:
- It keeps decoded values, never the journal's bytes: what masks hide at decode is hidden here too
  (K14).
- Rows are copied into the stream, so that nothing keeps a chunk or a decoded batch alive.
- It is written and read batch by batch: memory holds one batch, and what has not been spilled.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import DecodedRows, InvalidValue
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE, event_ordinals
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.lake.staged_file import HashedStream
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.transaction.savepoints import is_undone

_INVALID: Final = "invalid"
_SCHEMA_KEY: Final = b"cdc_pipeline.table_schema"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class Spool:
    """An open stream of one table; `close` ends it, `spill` moves it into a file."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.rows = 0
        self._ended = False
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(
            pa.PythonFile(self._sink, mode="w"), _stream_schema(schema), options=_OPTIONS
        )

    @property
    def memory_bytes(self) -> int:
        return self._sink.memory_bytes

    @property
    def size_bytes(self) -> int:
        return self._sink.size_bytes

    @property
    def path(self) -> Path | None:
        return self._sink.path

    def add(self, rows: DecodedRows) -> None:
        self._write(_encoded(rows))

    def keep_done(self, undone: NDArray[np.int64]) -> Spool:
        """A new stream without rows whose event ordinals are `undone` (see `savepoints`)."""
        self.close()
        kept = Spool(self.schema)
        for batch in self._batches():
            mask = ~is_undone(event_ordinals(batch.column("seq")), undone)
            if mask.any():
                kept._write(batch.filter(pa.array(mask)))
        return kept

    def spill(self, path: Path) -> None:
        """Continue in a new file at `path`, unless that was done before."""
        self._sink.spill(path)

    def close(self) -> None:
        if not self._ended:  # Arrow writes more bytes at each end
            self._ended = True
            self._writer.close()

    def finish(self) -> str:
        """Close it and make the file durable; return the content's sha256. Only after `spill`."""
        self.close()
        return self._sink.finish()

    def discard(self) -> None:
        self.close()
        self._sink.discard()

    def read(self) -> Iterator[DecodedRows]:
        """Yield the rows in their original batches, without their commit time (-1)."""
        self.close()
        return (_decoded(batch, self.schema) for batch in self._batches())

    def _write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(self._sink.reader()) as reader:
            yield from reader


def read_schema(path: Path) -> TableSchema:
    """The schema of the rows in a file.

    Raises OSError, ValueError or KeyError if `Spool` did not write it.
    """
    with _opened(path) as file, pa.ipc.open_stream(file) as reader:
        return TableSchema.from_json((reader.schema.metadata or {})[_SCHEMA_KEY])


def read_file(path: Path) -> Iterator[DecodedRows]:
    """Yield the rows of a file, batch by batch, as `Spool.read`."""
    with _opened(path) as file, pa.ipc.open_stream(file) as reader:
        schema = TableSchema.from_json((reader.schema.metadata or {})[_SCHEMA_KEY])
        for batch in reader:
            yield _decoded(batch, schema)


def encode_stream(rows: DecodedRows) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _stream_schema(rows.schema), options=_OPTIONS) as writer:
        writer.write_batch(_encoded(rows))
    return bytes(sink.getvalue().to_pybytes())


def decode_stream(data: bytes, *, commit_ts_us: int) -> DecodedRows:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        schema = TableSchema.from_json((reader.schema.metadata or {})[_SCHEMA_KEY])
        rows = _decoded(reader.read_next_batch(), schema)
    return replace(rows, commit_ts_us=np.full(len(rows), commit_ts_us, np.int64))


def _opened(path: Path) -> Any:
    source = storage_of(path).arrow_source(path)
    return pa.OSFile(str(path)) if source is path else pa.PythonFile(source, mode="r")


class _Sink(HashedStream):
    """File as the stream's writer sees it: memory first, then the file."""

    def __init__(self) -> None:
        super().__init__()
        self._memory: io.BytesIO | None = io.BytesIO()
        self._file: IO[bytes] | None = None
        self.path: Path | None = None

    @property
    def memory_bytes(self) -> int:
        return self.size_bytes if self._memory is not None else 0

    def spill(self, path: Path) -> None:
        if self._memory is None:
            return
        self._file = storage_of(path).create(path)
        self.path = path
        self._file.write(self._memory.getbuffer())
        self._memory = None

    def finish(self) -> str:
        assert self._file is not None
        assert self.path is not None
        storage_of(self.path).finish(self._file)
        return self._hash.hexdigest()

    def discard(self) -> None:
        self._memory = None
        if self._file is not None and self.path is not None:
            self._file.close()
            self.path.unlink()

    def reader(self) -> Any:
        if self._memory is not None:
            return pa.BufferReader(pa.py_buffer(self._memory.getvalue()))
        path = self.path
        assert self._file is not None
        assert path is not None
        storage_of(path).make_readable(self._file)
        return _opened(path)

    def _put(self, data: Any) -> None:
        (self._memory or self._file).write(data)  # type: ignore[union-attr]


def _stream_schema(schema: TableSchema) -> pa.Schema:
    bitmap = pa.binary((len(schema.columns) + 7) // 8)
    fields = [
        ("op", pa.uint8()),
        ("seq", SEQ_TYPE),
        ("full", pa.bool_()),
        ("bp", bitmap),
        ("ap", bitmap),
    ]
    types = arrow_schema(schema).types
    for image in "ba":
        fields += [(f"{image}{index}", type_) for index, type_ in enumerate(types)]
    fields.append((_INVALID, pa.string()))
    return pa.schema(fields, metadata={_SCHEMA_KEY: schema.to_json().encode()})


def _encoded(rows: DecodedRows) -> pa.RecordBatch:
    count = len(rows)
    arrays = [
        pa.array(rows.op),
        rows.seq,
        pa.array(np.full(count, rows.all_present)),
        _bitmaps(rows.before_present),
        _bitmaps(rows.after_present),
        *rows.before.columns,
        *rows.after.columns,
        _invalid_texts(rows),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_stream_schema(rows.schema))


def _bitmaps(bits: NDArray[np.uint8]) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(bits))
    return pa.Array.from_buffers(pa.binary(bits.shape[1]), len(bits), [None, buffer])


def _decoded(batch: pa.RecordBatch, schema: TableSchema) -> DecodedRows:
    count, columns = batch.num_rows, len(schema.columns)
    images = arrow_schema(schema)
    return DecodedRows(
        schema=schema,
        op=batch.column("op").to_numpy(),
        seq=batch.column("seq"),
        commit_ts_us=np.full(count, -1, np.int64),
        event_row=np.zeros(count, np.int64),
        before=pa.RecordBatch.from_arrays(batch.columns[5 : 5 + columns], schema=images),
        after=pa.RecordBatch.from_arrays(
            batch.columns[5 + columns : 5 + 2 * columns], schema=images
        ),
        before_present=_bits(batch.column("bp"), (columns + 7) // 8),
        after_present=_bits(batch.column("ap"), (columns + 7) // 8),
        all_present=bool(batch.column("full").to_numpy(zero_copy_only=False).all()),
        invalid=_invalid_values(batch),
    )


def _invalid_texts(rows: DecodedRows) -> pa.Array:
    """Per row the JSON list of its invalid values; null for none."""
    if not rows.invalid:
        return pa.nulls(len(rows), pa.string())
    found: dict[int, list[InvalidValue]] = {}
    for value in rows.invalid:
        found.setdefault(value.row, []).append(value)
    places = np.full(len(rows), -1, np.int64)
    places[list(found)] = np.arange(len(found))
    texts = pa.array(
        [json.dumps([value[1:] for value in values]) for values in found.values()], pa.string()
    )
    return texts.take(pa.array(places, mask=places < 0))


def _invalid_values(batch: pa.RecordBatch) -> list[InvalidValue]:
    texts = batch.column(_INVALID)
    rows = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
    return [
        InvalidValue(row, *value)
        for row, text in zip(rows, texts.drop_null().to_pylist(), strict=True)
        for value in json.loads(text)
    ]


def _bits(array: pa.Array, width: int) -> NDArray[np.uint8]:
    bits: NDArray[np.uint8] = np.frombuffer(array.buffers()[1], np.uint8)
    return bits[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)
