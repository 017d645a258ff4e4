"""Decode the raw rows events of a recorded batch into its staged rows, on Spark's executors.

Rules:
- An event is processed as in the driver: `decode_rows`, `fitted`, `SinkMode.stage`.
- The staged rows are written once, as Parquet beside the raw files, before anything reads them: a
  MERGE reads its rows more than once. Files of an earlier try are overwritten; a batch can always
  be finished from its raw files (K2).
- A value that its Delta type cannot hold fails the target with name, journal and offset: how to
  handle it depends on policies that need the record. Such tables are decoded in the driver while
  they catch up (K4).
- Errors keep their class on the way back from the executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_pipeline import errors
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.rows.rows import decode_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import CdcError, UnrepresentableValueError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, RawFile, RecordedTarget, StagedFile
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.staging.fitting import fitted
from cdc_pipeline.sink.staging.raw_files import READ_SCHEMA, selections

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARK: Final = "cdc_pipeline error on an executor: "
_BATCH: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
}


def with_decoded(
    session: SparkSession, record: BatchRecord, target: RecordedTarget, *, paths: LakePaths
) -> RecordedTarget:
    """Return the target with its raw files decoded; all of its rows are then in `files`.

    Raises:
        StagingError: a raw file is not as recorded.
        CdcError: what an executor found, such as damage or a value that cannot be held.
    """
    if not target.raw_files:
        return target
    versions: dict[tuple[str, int], list[RawFile]] = {}
    for file in target.raw_files:
        verify(file, lake=paths.lake, table=target.table)
        versions.setdefault((file.source_schema, file.epoch), []).append(file)
    files = list(target.files)
    for schema, epoch in versions:
        name = sha256(f"{target.table}\n{schema}\n{epoch}".encode()).hexdigest()[:32]
        folder = paths.staging(record.batch_number) / f"decoded-{name}"
        raw = [str(paths.lake / file.path) for file in versions[schema, epoch]]
        _decode(session, target, raw, folder, schema=schema, epoch=epoch)
        files += [_staged(path, lake=paths.lake) for path in sorted(folder.glob("*.parquet"))]
    return target.model_copy(update={"files": tuple(files)})


def _decode(
    session: SparkSession,
    target: RecordedTarget,
    raw: list[str],
    folder: Path,
    *,
    schema: str,
    epoch: int,
) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    session = new_session(session)  # these settings are not for the target
    for name, value in _BATCH.items():
        session.conf.set(name, value)
    # Images are whole: no presence columns.
    layout = Layout(target.model_copy(update={"all_present": True})).read_schema()
    staged_as: Any = session.createDataFrame([], layout).schema
    decoder = partial(
        _decoded_batches,
        target=target.model_copy(update={"files": (), "raw_files": ()}).model_dump_json(),
        source_schema=schema,
        epoch=epoch,
        staged_schema=to_arrow_schema(staged_as, timezone="UTC").serialize().to_pybytes(),
    )
    frame: Any = session.read.schema(READ_SCHEMA).parquet(*raw)
    try:
        frame.mapInArrow(decoder, staged_as).write.mode("overwrite").parquet(str(folder))
    except Exception as error:
        reported = executor_error(error)
        if reported is None:
            raise
        raise reported from None


def _decoded_batches(
    batches: Iterator[pa.RecordBatch],
    *,
    target: str,
    source_schema: str,
    epoch: int,
    staged_schema: bytes,
) -> Iterator[pa.RecordBatch]:
    """Yield the staged rows of raw events, on an executor."""
    recorded = RecordedTarget.model_validate_json(target)
    table_schema = TableSchema.from_json(source_schema)
    wanted = pa.ipc.read_schema(pa.py_buffer(staged_schema))
    for batch in batches:
        try:
            staged = staged_of(pa.table(batch), recorded, table_schema, epoch=epoch)
        except CdcError as error:
            raise RuntimeError(_marked_text(error)) from None
        if staged is not None:
            arrays = [
                staged.column(field.name).cast(field.type)
                if field.name in staged.column_names
                else pa.nulls(len(staged), field.type)
                for field in wanted
            ]
            yield from pa.Table.from_arrays(arrays, schema=wanted).combine_chunks().to_batches()


def staged_of(
    events: pa.Table, target: RecordedTarget, table_schema: TableSchema, *, epoch: int
) -> pa.Table | None:
    """Return the staged rows of raw events (rows of `raw_files.SCHEMA`); None if there are no
    events.

    Raises:
        UnrepresentableValueError: a value cannot be held.
        BinlogError, StagingError: see `decode_rows` and `expand`.
    """
    if not len(events):
        return None
    rows = decode_rows(list(selections(events)), table_schema, epoch=epoch)
    if rows.invalid:
        raise _unrepresentable(rows, events)
    spec = target.spec
    source = spec.sources.get(table_schema.full_name)
    if source is not None:
        rows = fitted(rows, spec.columns, source.names)
    return SINK_MODES[spec.mode].stage(rows, spec, None).table


def _unrepresentable(rows: DecodedRows, events: pa.Table) -> UnrepresentableValueError:
    value = min(rows.invalid, key=lambda value: value.row)
    at = int(rows.event_row[value.row])
    column = rows.schema.columns[value.column]
    return UnrepresentableValueError(
        f"column {column.name} holds a value that its Delta type cannot hold: {value.reason}",
        journal=events.column("journal")[at].as_py(),
        offset=int(np.int64(events.column("offset")[at].as_py())),
        table=rows.schema.full_name,
        setting="batch.decode",
        expected=f"a value of {column.kind}",
        got=f"another value in the {value.image} image, on an executor",
        next_step="let the table catch up: it is then decoded in the driver, where "
        "on_invalid_value and on_bad_row decide about such values; and set "
        "batch.decode: driver while there are such values",
    )


def _marked_text(error: CdcError) -> str:
    """Return an error as one line of text, as an executor reports it."""
    return _MARK + json.dumps(error.as_dict())


def executor_error(error: BaseException) -> CdcError | None:
    """Return the error that an executor's decoder raised, from Spark's text of it; None if it is
    another failure."""
    texts = [str(error)]
    cause: Any = getattr(error, "_origin", None)
    while cause is not None and len(texts) < 10:
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    for text in texts:
        _, mark, told_text = text.partition(_MARK)
        if mark:
            parts: dict[str, Any] = json.JSONDecoder().raw_decode(told_text)[0]
            kind = getattr(errors, parts.pop("error"), CdcError)
            parts.pop("retryable", None)
            try:
                reported: CdcError = kind(parts.pop("what"), **parts)
            except TypeError:  # a class with its own parameters
                return None
            return reported
    return None


def _staged(path: Path, *, lake: Path) -> StagedFile:
    """Return a decoded file in the form in which the driver's staged files are recorded. Its
    checksum is never compared."""
    metadata = pq.read_metadata(storage_of(path).arrow_source(path))
    size_bytes = sum(
        metadata.row_group(group).column(column).total_compressed_size
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    return StagedFile(
        path=path.relative_to(lake).as_posix(),
        size_bytes=size_bytes,
        rows=metadata.num_rows,
        sha256="",
    )
