"""Store rows events as Arrow rows, to decode them elsewhere than where they were read: one row per
event, with its bytes and what the decoder needs to know of it.

Rules:
- Each row is self-contained: it holds the journal and its format, so that events may be read in any
  portions.
- It holds only the bytes of the selected events, never those between them: other tables may be
  masked (K14).
- Decoding it yields the same changes, with the same seq (K1), as the original chunks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk, JournalFormat
from cdc_pipeline.binlog.rows.rows import CountedRows, RowsSelection
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.lake.records import RawFile
from cdc_pipeline.lake.staged_file import StagedFileWriter

# Fields of EVENT_DTYPE that the decoder reads, except `start` and `event_length`, which follow from
# the bytes.
_FIELDS: Final[dict[str, pa.DataType]] = {
    "offset": pa.int64(),
    "next_offset": pa.int64(),
    "tx_offset": pa.int64(),
    "commit_ts_us": pa.int64(),
    "tx_ordinal": pa.int32(),
    "parent": pa.int32(),
    "event_type": pa.int16(),
}
SCHEMA: Final = pa.schema(
    [
        ("journal", pa.string()),
        ("format", pa.string()),
        *_FIELDS.items(),
        ("event", pa.large_binary()),
    ]
)
# The same for Spark.
READ_SCHEMA: Final = (
    "journal string, format string, offset bigint, next_offset bigint, tx_offset bigint, "
    "commit_ts_us bigint, tx_ordinal int, parent int, event_type smallint, event binary"
)
_TAIL_BYTES: Final = 64  # zeros after the last event


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows events of one table at one schema version.

    Attributes:
        events: rows of SCHEMA.
        counts: their changes; every image is whole.
        epoch: numbering epoch of the source (K1).
    """

    schema: TableSchema
    events: pa.Table
    counts: CountedRows
    epoch: int

    def __len__(self) -> int:
        return self.counts.inserted + self.counts.updated + self.counts.deleted


@dataclass
class RawParts:
    """Raw files of one target in a batch under way, one per schema version and epoch; `rows` counts
    their changes."""

    closed: list[RawFile] = field(default_factory=list)
    rows: int = 0
    _writers: dict[tuple[TableSchema, int], StagedFileWriter] = field(default_factory=dict)

    @property
    def staged_bytes(self) -> int:
        written = sum(writer.staged_bytes for writer in self._writers.values())
        return written + sum(file.size_bytes for file in self.closed)

    def write(self, rows: RawRows, new_file: Callable[[], StagedFileWriter]) -> None:
        version = rows.schema, rows.epoch
        if version not in self._writers:
            self._writers[version] = new_file()
        self._writers[version].write(rows.events)
        self.rows += len(rows)

    def close(self, *, lake: Path) -> None:
        """Finish the files and make them durable."""
        for (schema, epoch), writer in self._writers.items():
            file = writer.close(lake=lake)
            self.closed.append(
                RawFile(**file.model_dump(), source_schema=schema.to_json(), epoch=epoch)
            )
        self._writers.clear()


def raw_events(pieces: list[RowsSelection]) -> pa.Table:
    """Return the events of some selections as rows of SCHEMA, in their order."""
    return (
        pa.concat_tables([_of_piece(piece) for piece in pieces]) if pieces else SCHEMA.empty_table()
    )


def _of_piece(piece: RowsSelection) -> pa.Table:
    chunk = piece.chunk
    events = chunk.events[piece.rows]
    count = len(events)
    # Events and the gaps between them are one array without copying; taking the events copies only
    # theirs.
    order = np.argsort(events["start"], kind="stable")
    bounds = np.empty(2 * count, np.int64)
    bounds[0::2] = events["start"][order]
    bounds[1::2] = bounds[0::2] + events["event_length"][order]
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    spans = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        max(2 * count - 1, 0),
        [None, pa.py_buffer(bounds), pa.py_buffer(chunk.data)],
    )
    journal, text = pa.scalar(chunk.journal), pa.scalar(json.dumps(asdict(chunk.journal_format)))
    columns = [pa.repeat(journal, count), pa.repeat(text, count)]
    for name, kind in _FIELDS.items():
        columns.append(pa.array(np.ascontiguousarray(events[name]).astype(kind.to_pandas_dtype())))
    columns.append(spans.take(pa.array(2 * place)))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def selections(events: pa.Table) -> Iterator[RowsSelection]:
    """Yield the events of some rows of SCHEMA (the event as any binary type), as the row decoder
    takes them."""
    events = events.combine_chunks()
    journals, formats = (
        events.column(name).combine_chunks().dictionary_encode() for name in ("journal", "format")
    )
    codes = np.stack([part.indices.to_numpy() for part in (journals, formats)])
    cuts = np.flatnonzero((codes[:, 1:] != codes[:, :-1]).any(axis=0)) + 1
    for first, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(events)], strict=True):
        if stop > first:
            chunk = _chunk(
                events.slice(first, stop - first),
                journal=journals.dictionary[int(codes[0, first])].as_py(),
                journal_format=_format(formats.dictionary[int(codes[1, first])].as_py()),
            )
            yield RowsSelection(chunk, np.arange(stop - first))


def _chunk(events: pa.Table, *, journal: str, journal_format: JournalFormat) -> Chunk:
    array = events.column("event").cast(pa.large_binary()).combine_chunks()
    bounds = np.frombuffer(array.buffers()[1], np.int64)[
        array.offset : array.offset + len(array) + 1
    ]
    size_bytes = int(bounds[-1] - bounds[0])
    data = np.zeros(size_bytes + _TAIL_BYTES, np.uint8)
    data[:size_bytes] = np.frombuffer(array.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
    rows = np.zeros(len(array), EVENT_DTYPE)
    rows["start"] = bounds[:-1] - bounds[0]
    rows["event_length"] = np.diff(bounds)
    for name in _FIELDS:
        rows[name] = events.column(name).to_numpy()
    return Chunk(journal, journal_format, data, rows, end_offset=int(rows["next_offset"].max()))


@lru_cache(maxsize=64)
def _format(text: str) -> JournalFormat:
    plain = json.loads(text)
    return JournalFormat(**{**plain, "post_header_lengths": tuple(plain["post_header_lengths"])})
