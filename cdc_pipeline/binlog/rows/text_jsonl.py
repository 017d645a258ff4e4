"""Write decoded rows as JSON lines for people: one object per change, by compiled code.

Rules:
- Keys: schema, table, op (insert, update, delete), before, after, journal, offset (of the rows
  event), gtid, ts (commit time, ISO 8601, UTC; null if unknown). `before` of an insert and `after`
  of a delete are null.
- If statements are given, `statement` comes last, on the changes of rows events that have one.
- `json_values` defines the form of values. An absent column is omitted, NULL is null.
- Text is unchanged UTF-8; only mandatory JSON escapes are used. There are no blanks between keys
  and values.
- Rows are written in blocks, so that scratch memory does not grow with the batch.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DELETE, INSERT, OP_NAMES, UPDATE, DecodedRows, InvalidValue
from cdc_pipeline.binlog.kernels.json import json_lines as kernel
from cdc_pipeline.binlog.kernels.json.json_text import NULL_BYTES
from cdc_pipeline.binlog.rows.json_values import ValueBuffer, write_values
from cdc_pipeline.binlog.rows.partial_rows import DIFFERENCES
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema

BLOCK_CELLS: Final = 1 << 17
BLOCK_BYTES: Final = 4 << 20

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_STARTS: Final = np.zeros((0, 0), np.int64)
_NO_STATEMENTS: Final = (np.zeros(0, np.int64),) * 3
_STATEMENT: Final = Column("statement", Kind.TEXT, 0, 0, True)


class RowGtids(Protocol):
    """GTIDs of rows events for lines: a key and a number per event."""

    @property
    def keys(self) -> Sequence[str]:
        """The parts before the number, with the separator, such as ``0-1-``."""

    @property
    def key(self) -> NDArray[np.int32]:
        """int32 (events,): index into `keys`; -1 for no GTID."""

    @property
    def number(self) -> NDArray[np.int64]:
        """int64 (events,); negative if the key is the whole text."""


@dataclass(frozen=True, slots=True)
class GtidTexts:
    """GTIDs as plain arrays (see `RowGtids`)."""

    keys: Sequence[str]
    key: NDArray[np.int32]
    number: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventTexts:
    """A text for some of the decoded events.

    Attributes:
        texts: large_string: the texts.
        of_event: int64 (events,): index in `texts`; -1 for none.
    """

    texts: pa.LargeStringArray
    of_event: NDArray[np.int64]

    def lengths_bytes(self) -> NDArray[np.int64]:
        """Return int64 (events,): bytes of each event's text; 0 for none."""
        lengths = np.append(pc.binary_length(self.texts).to_numpy(zero_copy_only=False), 0).astype(
            np.int64
        )
        found: NDArray[np.int64] = lengths[self.of_event]  # -1 is the 0 at the end
        return found


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines with their line ends.

    Attributes:
        first: where the lines begin in their `LineBuffer`.
        ends: int64 (lines,): end of each line there.
    """

    first: int
    ends: NDArray[np.int64]

    @property
    def stop(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else self.first


class LineBuffer:
    """Reusable memory for lines: fresh pages for every block would cost as much as writing them.

    Attributes:
        values: memory for the texts of one block's values.
    """

    def __init__(self) -> None:
        self.values = ValueBuffer()
        self._data: NDArray[np.uint8] = np.empty(1 << 16, np.uint8)
        self._ordered: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.used = 0

    def clear(self) -> None:
        """Forget all lines; arrays from `bytes_of` and `in_order` become invalid."""
        self.used = 0

    def room(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return the buffer with room for `size_bytes` after the used part."""
        if self.used + size_bytes > len(self._data):
            larger = np.empty(max(2 * len(self._data), self.used + size_bytes), np.uint8)
            larger[: self.used] = self._data[: self.used]
            self._data = larger
        return self._data

    def append(self, texts: Sequence[bytes]) -> Lines:
        """Append ready lines with their line ends."""
        first = self.used
        ends = first + np.cumsum([len(text) for text in texts], dtype=np.int64)
        raw = np.frombuffer(b"".join(texts), np.uint8)
        self.room(len(raw))[first : first + len(raw)] = raw
        self.used += len(raw)
        return Lines(first, ends)

    def bytes_of(self, lines: Lines) -> NDArray[np.uint8]:
        """Return a view of the bytes of some lines."""
        return self._data[lines.first : lines.stop]

    def in_order(
        self, parts: Sequence[Lines], keys: Sequence[NDArray[np.int64]]
    ) -> NDArray[np.uint8]:
        """Return the bytes of all lines sorted by key; lines of equal key stay in their order.

        Args:
            parts: lines of several tables.
            keys: for each part int64 (lines,).
        """
        if len(parts) == 1:
            return self.bytes_of(parts[0])
        starts = np.concatenate(
            [np.concatenate([[part.first], part.ends])[: len(part.ends)] for part in parts]
        )
        ends = np.concatenate([part.ends for part in parts])
        order = np.argsort(np.concatenate(keys), kind="stable")
        if len(self._ordered) < self.used:
            self._ordered = np.empty(len(self._data), np.uint8)
        return self._ordered[: kernel.order_lines(self._data, starts, ends, order, self._ordered)]


def jsonl_lines(
    rows: DecodedRows,
    *,
    journal: str,
    offsets: NDArray[np.int64] | Sequence[int],
    gtids: Sequence[str | None],
) -> Iterator[str]:
    """Return one JSON text without line end per change, in order.

    Args:
        rows: the changes.
        offsets, gtids: one for each decoded event, by `rows.event_row`.
    """
    keys = sorted({gtid for gtid in gtids if gtid is not None})
    place = {key: index for index, key in enumerate(keys)}
    texts = GtidTexts(
        keys,
        np.array([-1 if gtid is None else place[gtid] for gtid in gtids], np.int32),
        np.full(len(gtids), -1, np.int64),
    )
    buffer = LineBuffer()
    for lines in jsonl_blocks(
        rows, journal=journal, offsets=np.asarray(offsets, np.int64), gtids=texts, buffer=buffer
    ):
        yield from bytes(buffer.bytes_of(lines)).decode().split("\n")[:-1]


def jsonl_blocks(
    rows: DecodedRows,
    *,
    journal: str,
    offsets: NDArray[np.int64],
    gtids: RowGtids,
    buffer: LineBuffer,
    statements: EventTexts | None = None,
) -> Iterator[Lines]:
    """Yield all changes as lines, in blocks.

    Args:
        journal: journal name for the lines.
        offsets: int64 (events,): offsets of the decoded events, by `rows.event_row`.
        gtids: likewise.
        buffer: receives the lines.
        statements: statements of the events, likewise; None to omit them.
    """
    writer = _BlockWriter(rows, journal, offsets, gtids, buffer, statements)
    columns = max(len(rows.schema.columns), 1)
    bytes_per_row = max((rows.before.nbytes + rows.after.nbytes) // max(len(rows), 1), 1)
    step = max(1, min(BLOCK_CELLS // columns, BLOCK_BYTES // bytes_per_row))
    cuts = np.arange(0, len(rows), step)
    if statements is not None:
        spent = np.cumsum(statements.lengths_bytes()[rows.event_row]) // BLOCK_BYTES
        cuts = np.union1d(cuts, np.flatnonzero(np.diff(spent)) + 1)
    for first, stop in pairwise([*cuts.tolist(), len(rows)]):
        yield writer.write(first, stop)


def iso_time(since_1970_us: int) -> str:
    """Return ISO 8601 text in UTC with six digits, such as ``2024-01-31T23:59:59.000000Z``."""
    moment = _EPOCH + timedelta(microseconds=since_1970_us)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _joined(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the concatenated bytes of texts, and their offsets (n + 1,)."""
    raw = [text.encode() for text in texts]
    offsets = np.zeros(len(raw) + 1, np.int64)
    np.cumsum([len(text) for text in raw], out=offsets[1:])
    return np.frombuffer(b"".join(raw) or b"\0", np.uint8), offsets


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@lru_cache(maxsize=256)
def _parts(schema: TableSchema, journal: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the constant parts of a line of this table, by the indexes of `kernels.json_lines`."""
    texts = [""] * kernel.PARTS
    for op, image in (
        (INSERT, '"before":null,"after":'),
        (UPDATE, '"before":'),
        (DELETE, '"before":'),
    ):
        names = f'"schema":{_quoted(schema.database)},"table":{_quoted(schema.table)}'
        texts[kernel.HEAD + op] = f'{{{names},"op":"{OP_NAMES[op]}",{image}'
    texts[kernel.BETWEEN] = ',"after":'
    texts[kernel.AFTER_DELETE] = ',"after":null'
    texts[kernel.JOURNAL] = f',"journal":{_quoted(journal)},"offset":'
    texts[kernel.GTID] = ',"gtid":'
    texts[kernel.TIME] = ',"ts":'
    texts[kernel.NULL] = "null"
    texts[kernel.END] = "}\n"
    texts[kernel.STATEMENT] = ',"statement":'
    return _joined(texts)


@lru_cache(maxsize=256)
def _names(schema: TableSchema) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return _joined([f",{_quoted(name)}:" for name in schema.column_names])


def _bytes_of_rows(
    of_row: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> int:
    """Return the total size of the rows' statements, counted once per row."""
    return int((ends - starts)[of_row[of_row >= 0]].sum())


def _json_of(value: InvalidValue, column: Column) -> str:
    """Return the JSON for an invalid value: the server's text, or an object with a document's
    differences or with the bytes in hex.

    Values of all columns are strings, numbers or lists, so an object is unambiguous.
    """
    if value.reason in DIFFERENCES and value.text.startswith("["):
        return f'{{"differences": {value.text}}}'
    text = json.dumps(value.text, ensure_ascii=False)
    return text if column.type.not_held_text == "moment" else f'{{"hex": {text}}}'


class _BlockWriter:
    """Writes ranges of one DecodedRows."""

    def __init__(
        self,
        rows: DecodedRows,
        journal: str,
        offsets: NDArray[np.int64],
        gtids: RowGtids,
        buffer: LineBuffer,
        statements: EventTexts | None,
    ) -> None:
        self._rows = rows
        self._statements = statements
        self._offsets = offsets
        self._gtids = gtids
        self._parts = _parts(rows.schema, journal)
        self._names = _names(rows.schema)
        self._keys = _joined(list(gtids.keys))
        self._lines = buffer
        self._buffer = buffer.values
        self._has = {
            "before": bool((rows.op != INSERT).any()),
            "after": bool((rows.op != DELETE).any()),
        }
        # By image and column, in the order of the rows.
        self._invalid: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
        for value in rows.invalid:
            self._invalid[value.image, value.column].append(
                (value.row, _json_of(value, rows.schema.columns[value.column]))
            )

    def write(self, first: int, stop: int) -> Lines:
        """Write the lines of the changes [first, stop)."""
        rows, count = self._rows, stop - first
        self._buffer.clear()
        before = self._image("before", rows.before, first, count)
        after = self._image("after", rows.after, first, count)
        statements = self._statement_texts(rows.event_row[first:stop])
        parts, part_offsets = self._parts
        names, name_offsets = self._names
        keys, key_offsets = self._keys
        # The texts, and the one that all NULLs share.
        texts = self._buffer.used + NULL_BYTES * (before[0].size + after[0].size)
        texts += _bytes_of_rows(*statements)
        key_bytes = int(np.diff(key_offsets).max(initial=0))
        fixed = (
            2 * int(name_offsets[-1]) + int(part_offsets[-1]) + key_bytes + kernel.NUMBERS_BYTES_MAX
        )
        # Two braces for each image.
        out = self._lines.room(texts + count * (fixed + 4))
        start = self._lines.used
        ends = np.empty(count, np.int64)
        events = rows.event_row[first:stop]
        end = kernel.put_lines(
            rows.op[first:stop],
            self._offsets[events],
            self._gtids.key[events],
            self._gtids.number[events],
            rows.commit_ts_us[first:stop],
            parts,
            part_offsets,
            keys,
            key_offsets,
            names,
            name_offsets,
            self._buffer.data,
            *before,
            *after,
            rows.before_present[first:stop],
            rows.after_present[first:stop],
            rows.all_present,
            *statements,
            out,
            start,
            ends,
        )
        self._lines.used = int(end)
        return Lines(start, ends)

    def _statement_texts(
        self, events: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the statement of each row, and where the statements are among the values."""
        if self._statements is None:
            return _NO_STATEMENTS
        distinct, of_row = np.unique(self._statements.of_event[events], return_inverse=True)
        without = int(len(distinct) > 0 and distinct[0] < 0)
        texts = self._statements.texts.take(pa.array(distinct[without:])).cast(pa.string())
        starts, ends = (np.empty(len(texts), np.int64) for _ in range(2))
        write_values(_STATEMENT, texts, self._buffer, starts, ends)
        return of_row.reshape(-1) - without, starts, ends

    def _image(
        self, image: str, batch: pa.RecordBatch, first: int, count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not self._has[image]:
            return _NO_STARTS, _NO_STARTS
        columns = self._rows.schema.columns
        starts, ends = (np.empty((len(columns), count), np.int64) for _ in range(2))
        for index, column in enumerate(columns):
            invalid = self._invalid.get((image, index), [])
            low, high = (bisect_left(invalid, (row, "")) for row in (first, first + count))
            here = [(row - first, text) for row, text in invalid[low:high]]
            values = batch.column(index).slice(first, count)
            write_values(column, values, self._buffer, starts[index], ends[index], here)
        return starts, ends
