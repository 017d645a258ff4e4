"""Read the rows of Delta tables in Arrow, without a JVM, file by file.

Rules:
- What this module does not know is an error that names Spark, never fewer or other rows: a version
  of the protocol, a reader feature, a kind of column mapping or of partition, a file elsewhere.
- Rows that a deletion vector marks are no rows. A column, or a field of a struct, that a file lacks
  is NULL there, or the value of the file's partition. A type that was widened later is cast without
  loss.
- A file is left out only if its statistics prove that no row of it passes the filters: bounds of
  columns of integers, whole decimals or text without a NULL in it.

Source: Delta's protocol, "Reader Requirements", "Column Mapping", "Deletion Vectors", "Partition
Value Serialization", "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from numpy.typing import NDArray

from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.errors import SparkNeededError
from cdc_pipeline.lake.parquet import may_pass
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.data_file import read_statistics
from cdc_pipeline.sink.delta.deletion_vectors import is_readable, rows_of_vector
from cdc_pipeline.sink.delta.failures import files_gone
from cdc_pipeline.sink.delta.replay import TableState, file_name, is_elsewhere, readable_state
from cdc_pipeline.sink.modes.mode_columns import END_COLUMN, SEQ_COLUMN

# Of Arrow's tables in memory; Spark's own start costs as much as reading and comparing these.
SMALL_ROWS: Final = 500_000
SMALL_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 16_384
_WHOLE_FILE_BYTES: Final = 8 << 20  # up to it one request of a store reads the file
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

# As `pyarrow.parquet` and `deltalake` have them: (column, operator, value) that all must hold, or
# lists of these of which one must.
Filters: TypeAlias = Sequence[tuple[str, str, Any]] | Sequence[Sequence[tuple[str, str, Any]]]


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one version that pass `filters`. `schema` is of the columns that are read."""

    path: Path
    schema: pa.Schema
    filters: Filters | None
    _table_schema: pa.Schema
    _adds: tuple[dict[str, Any], ...]
    # By the path of a file: the descriptor of the vector whose rows alone are read.
    _marked: Mapping[str, dict[str, Any] | None] | None = None

    def batches(self, batch_rows: int = _BATCH_ROWS) -> Iterator[pa.Table]:
        """Files are opened when rows are wanted. LakeStateError, OSError, ArrowException."""
        expression = None if self.filters is None else pq.filters_to_expression(self.filters)
        names = {*self.schema.names, *_columns_of(self.filters)}
        needed = pa.schema([field for field in self._table_schema if field.name in names])
        for add in self._adds:
            chosen = self._chosen(add)
            if chosen is not None and not len(chosen):
                continue
            for rows in _rows_of(self.path, add, needed, batch_rows, chosen):
                passed = rows if expression is None else rows.filter(expression)
                yield passed.select(self.schema.names)

    def known_size(self) -> tuple[int | None, int]:
        """Rows, if statistics tell, with those that deletion vectors mark; bytes of the files."""
        counts = [read_statistics(add.get("stats")).get("numRecords") for add in self._adds]
        rows = None if None in counts else sum(count for count in counts if count is not None)
        return rows, sum(add["size"] for add in self._adds)

    def with_marked(self) -> TableRows:
        """Those that deletion vectors mark, too: their values are in the files."""
        return replace(self, _adds=tuple({**add, "deletionVector": None} for add in self._adds))

    def only(self, columns: Collection[str]) -> TableRows:
        fields = [field for field in self.schema if field.name in columns]
        return replace(self, schema=pa.schema(fields))

    def besides(self, other: TableState | None, read_as: pa.Schema) -> TableRows:
        """Those that another version of the table lacks, by files and marks: files of both are read
        for the rows alone that only the other marks. The columns are those of `read_as`.
        """
        rows = replace(self, schema=read_as, _table_schema=read_as)
        if other is None:
            return rows
        names = set(other.names)
        return replace(
            rows,
            _adds=tuple(add for add in self._adds if file_name(add) not in names),
            _marked={add["path"]: add.get("deletionVector") for add in other.adds.values()},
        )

    def _chosen(self, add: dict[str, Any]) -> NDArray[np.int64] | None:
        if self._marked is None or add["path"] not in self._marked:
            return None
        theirs = _marks(self.path, self._marked[add["path"]])
        return np.setdiff1d(theirs, _marks(self.path, add.get("deletionVector")))


def open_rows(
    path: Path,
    state: TableState,
    *,
    columns: Collection[str] | None = None,
    filters: Filters | None = None,
) -> TableRows:
    """With the `columns` that it has; no data file is read. Raises SparkNeededError: see the rules;
    KeyError, ValueError or ArrowException: `filters` do not fit.
    """
    if refusal := _unknown_protocol(state):
        raise SparkNeededError(f"{path} has {refusal}, which only Spark reads here")
    schema = schema_of(state)
    if refusal := _unknown_columns(state, schema) or _unknown_files(state, schema):
        raise SparkNeededError(f"{path} has {refusal}, which only Spark reads here")
    for name in _columns_of(filters):
        schema.field(name)
    wanted = [field for field in schema if columns is None or field.name in columns]
    adds = _kept(tuple(state.adds.values()), schema, filters)
    return TableRows(path, pa.schema(wanted), filters, schema, adds)


def seqs_within(path: Path, low: int, high: int) -> tuple[int, int | None]:
    """How many rows were written, or ended, at a seq of [low, high], and the highest of these."""
    least, most = (pa.scalar(Decimal(seq), SEQ_TYPE) for seq in (low, high))
    state, count, highest = readable_state(path), 0, None
    names = [name for name in (SEQ_COLUMN, END_COLUMN) if name in schema_of(state).names]
    filters = [[(name, ">=", least), (name, "<=", most)] for name in names]
    for rows in open_rows(path, state, columns=names, filters=filters).batches():
        count += len(rows)
        for seqs in rows.columns:
            within = pc.and_(pc.greater_equal(seqs, least), pc.less_equal(seqs, most))
            last = pc.max(seqs.filter(within)).as_py()
            highest = highest if last is None else max(int(last), highest or 0)
    return count, highest


def reader_of(table: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> pa.RecordBatchReader:
    """Of the rows of a table. Reading raises LakeStateError: a data file is damaged."""

    def batches() -> Iterator[pa.RecordBatch]:
        with read_errors(table):
            for part in parts:
                yield from part.to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


@contextmanager
def read_errors(table: str) -> Iterator[None]:
    """Raises LakeStateError: a data file is damaged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise files_gone(error, table=table) from None


def values_within(values: tuple[str, pa.Array] | None) -> Filters | None:
    """What leaves files out by their bounds."""
    if values is None or not len(values[1]) or values[1].null_count:
        return None
    name, bounds = values[0], pc.min_max(values[1])
    return [(name, ">=", bounds["min"]), (name, "<=", bounds["max"])]


# -- what is read here ----------------------------------------------------------------------------


def _unknown_protocol(state: TableState) -> str:
    """What this module cannot read; empty if it knows all."""
    metadata, protocol = state.metadata, state.protocol
    if not metadata or protocol.get("minReaderVersion", _READER_VERSION_MAX + 1) > (
        _READER_VERSION_MAX
    ):
        return f"the reader version {protocol.get('minReaderVersion')}"
    if unknown := sorted(set(protocol.get("readerFeatures") or ()) - _FEATURES):
        return f"the features {', '.join(unknown)}"
    mapping = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    if mapping not in ("none", "name"):
        return f"column mapping by {mapping}"
    return ""


def _unknown_columns(state: TableState, schema: pa.Schema) -> str:
    if any(_PHYSICAL in (one.metadata or {}) for field in schema for one in _listed(field.type)):
        return "lists of structs with mapped names"
    for name in state.metadata.get("partitionColumns") or ():
        if pt.is_binary(schema.field(name).type):
            return "partitions of type binary"
    return ""


def _unknown_files(state: TableState, schema: pa.Schema) -> str:
    fields = map(schema.field, state.metadata.get("partitionColumns") or ())
    moments = [physical(of) for of in fields if pt.is_timestamp(of.type) and of.type.tz is not None]
    for add in state.adds.values():
        if not all((add["partitionValues"].get(name) or "Z").endswith("Z") for name in moments):
            return "partitions of times in an unknown zone"
        if is_elsewhere(add["path"]):
            return "files outside of its folder"
        if not is_readable(add.get("deletionVector")):
            return "deletion vectors outside of its folder"
    return ""


def schema_of(state: TableState) -> pa.Schema:
    """Fields have the names that files use, if they are others, in their metadata."""
    from deltalake import Schema

    return pa.schema(Schema.from_json(state.metadata["schemaString"]).to_arrow())


def _listed(kind: pa.DataType, *, is_listed: bool = False) -> list[pa.Field]:
    """The fields within lists and maps, at any depth."""
    fields = [kind.field(at) for at in range(kind.num_fields)]
    is_listed = is_listed or not pt.is_struct(kind)
    within = [one for field in fields for one in _listed(field.type, is_listed=is_listed)]
    return [*fields, *within] if is_listed else within


def physical(field: pa.Field) -> str:
    name: bytes = (field.metadata or {}).get(_PHYSICAL, field.name.encode())
    return name.decode()


def placed_as(field: pa.Field, other: pa.Field | None, *, within: bool) -> pa.Field:
    """Read where `other` is in files, or nowhere; `within`: so are its fields, by their names."""
    name = "" if other is None else physical(other)
    if within and other is not None and pt.is_struct(field.type) and pt.is_struct(other.type):
        others = {one.name: one for one in other.type}
        fields = [placed_as(one, others.get(one.name), within=True) for one in field.type]
        field = field.with_type(pa.struct(fields))
    return field.with_metadata({_PHYSICAL: name.encode()})


# -- filters --------------------------------------------------------------------------------------


def _columns_of(filters: Filters | None) -> list[str]:
    parts: list[Any] = [*filters] if filters else []
    is_flat = bool(parts) and isinstance(parts[0][0], str)
    terms = parts if is_flat else [term for part in parts for term in part]
    return [column for column, _, _ in terms]


def _kept(
    adds: tuple[dict[str, Any], ...], schema: pa.Schema, filters: Filters | None
) -> tuple[dict[str, Any], ...]:
    """Without the files that Arrow proves to have no row that passes, from their bounds."""
    if filters is None:
        return adds
    fields = [schema.field(name) for name in dict.fromkeys(_columns_of(filters))]
    bounds = [_bounds(add, fields) for add in adds]
    kept = may_pass(bounds, schema, pq.filters_to_expression(filters))
    return tuple(adds[at] for at in kept)


def _bounds(add: dict[str, Any], fields: Sequence[pa.Field]) -> pc.Expression:
    """What statistics and partition say of every row of a file."""
    statistics, known = read_statistics(add.get("stats")), [pc.scalar(True)]
    for field in fields:
        name = physical(field)
        is_whole = pt.is_decimal(field.type) and field.type.scale == 0
        if not (is_whole or pt.is_integer(field.type) or pt.is_string(field.type)):
            continue
        if name in add["partitionValues"]:
            value = _partition_value(add["partitionValues"][name], field.type)
            if value.is_valid:
                known.append(pc.field(field.name) == value)
        elif statistics.get("nullCount", {}).get(name) == 0:
            least, most = (statistics.get(of, {}).get(name) for of in ("minValues", "maxValues"))
            if type(least) is type(most) is (str if pt.is_string(field.type) else int):
                column = pc.field(field.name)
                known += [
                    column >= pa.scalar(least, field.type),
                    column <= pa.scalar(most, field.type),
                ]
    return reduce(and_, known)


# -- a file ---------------------------------------------------------------------------------------


def _rows_of(
    path: Path,
    add: dict[str, Any],
    schema: pa.Schema,
    batch_rows: int,
    chosen: NDArray[np.int64] | None,
) -> Iterator[pa.Table]:
    """The rows of a file that its vector does not mark, or those `chosen`."""
    file = path / unquote(add["path"])
    content = (
        pa.BufferReader(file.read_bytes())
        if add["size"] <= _WHOLE_FILE_BYTES
        else storage_of(file).arrow_source(file)
    )
    listed_rows = _marks(path, add.get("deletionVector")) if chosen is None else chosen
    partition, begin = add["partitionValues"], 0
    with pq.ParquetFile(content, coerce_int96_timestamp_unit="us") as opened:
        stored_names = [physical(field) for field in schema]
        present = opened.schema_arrow.names
        listed = [name for name in stored_names if name in present]
        # One at least, which tells how many rows there are.
        for batch in opened.iter_batches(batch_rows, columns=listed or present[:1]):
            count = batch.num_rows
            arrays = [
                _of_type(batch.column(name), field.type)
                if name in listed
                else _repeated(partition.get(name), field.type, count)
                for name, field in zip(stored_names, schema, strict=True)
            ]
            rows = pa.table(arrays, schema=schema)
            if chosen is not None or len(listed_rows):
                low, high = np.searchsorted(listed_rows, [begin, begin + count])
                kept = np.full(count, chosen is None)
                kept[listed_rows[low:high] - begin] = chosen is not None
                rows = rows.filter(pa.array(kept))
            begin += count
            yield rows


def _of_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pt.is_struct(kind):
        return values.cast(kind)
    stored = {field.name: values.field(at) for at, field in enumerate(values.type)}
    fields = [
        _of_type(stored[name], field.type)
        if (name := physical(field)) in stored
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())


def _marks(path: Path, vector: Mapping[str, Any] | None) -> NDArray[np.int64]:
    return np.zeros(0, np.int64) if vector is None else rows_of_vector(path, vector)


def _repeated(text: str | None, kind: pa.DataType, count: int) -> pa.Array:
    """A map, for one, has no cast from a text, not even from NULL."""
    return pa.repeat(_partition_value(text, kind), count) if text else pa.nulls(count, kind)


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The protocol writes NULL as none or as an empty text."""
    return pa.scalar(text or None, pa.string()).cast(kind)
