"""Write changes of journals as Parquet files, for each table and schema version.

Rules:
- A file's columns: _cdc_op, _cdc_seq (K1, epoch 1), _cdc_ts, _cdc_journal, _cdc_offset, _cdc_gtid;
  `before`, `after`: structs with the table's columns, null if the change has no such image;
  _cdc_absent, the columns that the row image does not hold (``after.name``; null if it holds all);
  _cdc_rescued, the server's text of values that the column's type cannot hold, by ``after.name``.
  Every NULL that stands for a missing value is marked in one of these two.
- Rows of a table keep the order of the log. Statements are not in the files.
- Memory: rows wait until a row group is worth writing, all tables together at most
  `_WAITING_BYTES_MAX`; few files are open at a time. A file is rolled at `file_bytes_max`.
- A file has its name only when it is whole: until then it ends with ``.partial``. A directory that
  already holds Parquet files is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import DELETE, INSERT, OP_NAMES, DecodedRows
from cdc_pipeline.binlog.events.gtid_columns import Gtids
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.operations.inspect.change_log import Changes, LogPiece
from cdc_pipeline.operations.inspect.inputs import shown_name

GROUP_BYTES: Final = 32 << 20
_WAITING_BYTES_MAX: Final = 256 << 20
_FILE_BYTES_MAX: Final = 1 << 30
_OPEN_FILES_MAX: Final = 64

_NAME_BYTES_MAX: Final = 180
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_$-]")
_OPS: Final = pa.array(["", *(OP_NAMES[op] for op in sorted(OP_NAMES))])


def file_stem(schema: TableSchema) -> str:
    """Bytes other than letters, digits, _, $, - become %XX; long names end in a hash."""
    parts = [
        _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], name.encode())
        for name in (schema.database, schema.table)
    ]
    stem = b".".join(parts).decode("ascii")
    if len(stem) <= _NAME_BYTES_MAX:
        return stem
    digest = hashlib.blake2b(schema.full_name.encode(), digest_size=8).hexdigest()
    return f"{stem[:_NAME_BYTES_MAX]}~{digest}"


def _file_schema(schema: TableSchema) -> pa.Schema:
    image = pa.struct(list(arrow_schema(schema)))
    return pa.schema(
        [
            pa.field("_cdc_op", pa.string(), nullable=False),
            pa.field("_cdc_seq", SEQ_TYPE, nullable=False),
            ("_cdc_ts", pa.timestamp("us", "UTC")),
            pa.field("_cdc_journal", pa.string(), nullable=False),
            pa.field("_cdc_offset", pa.int64(), nullable=False),
            ("_cdc_gtid", pa.string()),
            ("before", image),
            ("after", image),
            ("_cdc_absent", pa.list_(pa.string())),
            ("_cdc_rescued", pa.map_(pa.string(), pa.string())),
        ]
    )


def change_table(
    rows: DecodedRows, *, journal: str, offsets: NDArray[np.int64], gtids: Gtids
) -> pa.Table:
    """`offsets` and `gtids` are of the decoded events, by `rows.event_row`."""
    count = len(rows)
    known = rows.commit_ts_us >= 0
    journals = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int32)), pa.array([journal])
    )
    columns = [
        _OPS.take(pa.array(rows.op)),
        rows.seq,
        pa.array(rows.commit_ts_us, pa.timestamp("us", "UTC"), mask=~known),
        journals.cast(pa.string()),
        pa.array(offsets[rows.event_row]),
        _gtid_texts(gtids).take(pa.array(rows.event_row)),
        _image(rows.before, rows.op != INSERT),
        _image(rows.after, rows.op != DELETE),
        _absent(rows),
        _rescued(rows),
    ]
    return pa.Table.from_arrays(columns, schema=_file_schema(rows.schema))


@dataclass(slots=True)
class _Waiting:
    schema: TableSchema
    name: str
    tables: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    parts: int = 0
    writer: pq.ParquetWriter | None = None
    path: Path = Path()
    written_rows: int = 0


class ChangeFiles:
    """Writes waiting rows at its end, even after an error; `files`: whole ones."""

    def __init__(self, directory: Path, *, file_bytes_max: int = _FILE_BYTES_MAX) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.glob("*.parquet")) or any(directory.glob("*.parquet.partial")):
            raise ConfigError(
                f"the directory {directory} already holds Parquet files",
                expected="an empty directory, or one that does not exist yet",
                next_step="name another directory with --output, or remove its files",
            )
        self._directory = directory
        self._file_bytes_max = file_bytes_max
        self._waiting: dict[TableSchema, _Waiting] = {}  # the one written last is at the end
        self._versions: dict[str, int] = defaultdict(int)
        self.files: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for table in list(self._waiting.values()):
            self._write(table)
            self._close(table)

    def add(self, piece: LogPiece, changes: Changes) -> None:
        for table_rows, rows in changes:
            table = self._table(rows.schema)
            waiting = change_table(
                rows,
                journal=shown_name(piece.chunk.journal),
                offsets=piece.chunk.events["offset"][table_rows],
                gtids=piece.gtids_of(table_rows),
            )
            table.tables.append(waiting)
            table.waiting_bytes += waiting.nbytes
            if table.waiting_bytes >= GROUP_BYTES:
                self._write(table)
        while sum(table.waiting_bytes for table in self._waiting.values()) > _WAITING_BYTES_MAX:
            self._write(max(self._waiting.values(), key=lambda table: table.waiting_bytes))

    def _table(self, schema: TableSchema) -> _Waiting:
        table = self._waiting.get(schema)
        if table is None:
            stem = file_stem(schema)
            self._versions[stem] += 1
            table = self._waiting[schema] = _Waiting(schema, f"{stem}.v{self._versions[stem]}")
        return table

    def _write(self, table: _Waiting) -> None:
        if not table.tables:
            return
        rows = pa.concat_tables(table.tables)
        table.tables, table.waiting_bytes = [], 0
        if table.writer is None:
            table.writer = self._open(table)
        table.writer.write_table(rows, row_group_size=max(len(rows), 1))
        table.written_rows += len(rows)
        self._waiting[table.schema] = self._waiting.pop(table.schema)
        if table.path.stat().st_size >= self._file_bytes_max:
            self._close(table)

    def _open(self, table: _Waiting) -> pq.ParquetWriter:
        open_now = [other for other in self._waiting.values() if other.writer is not None]
        if len(open_now) >= _OPEN_FILES_MAX:
            self._close(open_now[0])
        table.parts += 1
        table.path = self._directory / f"{table.name}-{table.parts:05d}.parquet.partial"
        return pq.ParquetWriter(table.path, _file_schema(table.schema), compression="zstd")

    def _close(self, table: _Waiting) -> None:
        if table.writer is None:
            return
        table.writer.close()
        whole = table.path.with_suffix("")
        table.path.rename(whole)
        self.files[whole.name], table.written_rows, table.writer = table.written_rows, 0, None


def _gtid_texts(gtids: Gtids) -> pa.Array:
    keys = pa.array(gtids.keys, pa.string()).take(pa.array(gtids.key, mask=gtids.key < 0))
    numbers: Any = pa.array(gtids.number).cast(pa.string())
    return pc.binary_join_element_wise(keys, numbers, "")


def _image(batch: pa.RecordBatch, there: NDArray[np.bool_]) -> pa.Array:
    return pa.StructArray.from_arrays(
        batch.columns, fields=list(batch.schema), mask=pa.array(~there)
    )


def _absent(rows: DecodedRows) -> pa.Array:
    """None for a change whose images hold all. By pattern, because there are few."""
    kind = pa.list_(pa.string())
    if rows.all_present:
        return pa.nulls(len(rows), kind)
    patterns, which = np.unique(
        np.hstack([rows.op[:, None], rows.before_present, rows.after_present]),
        axis=0,
        return_inverse=True,
    )
    width = rows.before_present.shape[1]
    names = rows.schema.column_names
    lists: list[list[str] | None] = []
    for pattern in patterns:
        missing = []
        for image, without, bits in (
            ("before", INSERT, pattern[1 : 1 + width]), ("after", DELETE, pattern[1 + width :])
        ):  # fmt: skip
            if int(pattern[0]) != without:
                is_present = np.unpackbits(bits, bitorder="little", count=len(names))
                missing += [
                    f"{image}.{names[column]}"
                    for column in np.flatnonzero(is_present == 0).tolist()
                ]
        lists.append(missing or None)
    return pa.array(lists, kind).take(pa.array(which.reshape(-1)))


def _rescued(rows: DecodedRows) -> pa.Array:
    kind = pa.map_(pa.string(), pa.string())
    if not rows.invalid:
        return pa.nulls(len(rows), kind)
    names = rows.schema.column_names
    texts: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for value in rows.invalid:
        texts[value.row].append((f"{value.image}.{names[value.column]}", value.text))
    return pa.array([texts.get(row) for row in range(len(rows))], kind)
