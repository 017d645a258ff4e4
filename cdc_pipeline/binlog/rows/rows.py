"""Decode rows events of one table to Arrow, column by column.

Rules:
- Nothing here loops over rows or events in Python: `kernels.walk` locates every value, then each
  column is gathered.
- Every value is proved to be inside its event before it is read. Otherwise decoding stops with an
  error that names journal, offset, table and column, and the call returns nothing.
- The schema decides; of the event only the column count is used, which must agree.
- What is returned are the table's own columns, and of a system-versioned table the changes of its
  current rows (`current_rows`); `schema.logged` describes the images themselves.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows, InvalidValue
from cdc_pipeline.binlog.event_types import ROWS_TYPES, EventType, event_name
from cdc_pipeline.binlog.kernels import partial_rows, row_events, walk
from cdc_pipeline.binlog.rows.cells import Block
from cdc_pipeline.binlog.rows.columns import build_columns
from cdc_pipeline.binlog.rows.current_rows import own_changes
from cdc_pipeline.binlog.rows.partial_rows import plain_bodies
from cdc_pipeline.binlog.seq import check_ranges, epoch_and_journal, journal_number
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.tables.columns_wire import width_rules
from cdc_pipeline.binlog.wire_types import type_name
from cdc_pipeline.errors import (
    BinlogError,
    CdcError,
    DamagedJournalError,
    SchemaError,
    UnsupportedEventError,
)

BLOCK_ROWS_MAX: Final = 1 << 17
_BLOCK_CELLS_MAX: Final = 1 << 20

_OPS: Final = np.zeros(256, np.uint8)
_OPS[[EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS_V2]] = INSERT
_OPS[[EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS_V2, EventType.PARTIAL_UPDATE_ROWS]] = UPDATE
_OPS[[EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS_V2]] = DELETE
_KEPT_BYTES_MAX: Final = 32 << 20
_ALIGN: Final = 64


@dataclass(frozen=True, slots=True)
class RowsSelection:
    """Rows events of one table in one chunk.

    Attributes:
        chunk: the chunk.
        rows: int64 (n,): indexes into `chunk.events`, ascending, all of a type in ROWS_TYPES.
    """

    chunk: Chunk
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Bodies:
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    types: NDArray[np.uint8]
    ops: NDArray[np.uint8]
    id_bytes: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Walked:
    blocks: list[Block]
    ops: NDArray[np.uint8]
    before_bits: NDArray[np.uint8]
    after_bits: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums per column over all selections: bytes of variable-width values, and NULLs."""

    before_bytes: NDArray[np.int64]
    after_bytes: NDArray[np.int64]
    before_nulls: NDArray[np.int64]
    after_nulls: NDArray[np.int64]


class _Scratch(threading.local):
    """Reusable memory of a thread, because fresh pages cost more than writing to them.

    An array from `empty` is valid until the thread's next `reset` and must not outlive the call
    that took it. At most _KEPT_BYTES_MAX are kept; larger requests are allocated as usual.
    """

    def __init__(self) -> None:
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0

    def reset(self) -> None:
        """Allow everything allocated before to be overwritten."""
        if len(self._memory) < min(self._used, _KEPT_BYTES_MAX):
            self._memory = np.empty(min(self._used, _KEPT_BYTES_MAX), np.uint8)
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        first = self._used
        self._used += -(-size // _ALIGN) * _ALIGN
        if first + size > len(self._memory):
            return np.empty(shape, kind)
        return self._memory[first : first + size].view(kind).reshape(shape)


_scratch = _Scratch()


def decode_rows(
    pieces: Sequence[RowsSelection],
    schema: TableSchema,
    *,
    epoch: int,
    found_by: Collection[str] = (),
) -> DecodedRows:
    """Decode the changes in rows events of one table. Returns one row per change of a row that the
    table has now. `event_row` counts through all pieces.

    Args:
        pieces: the events, in order, possibly of several chunks and journals.
        schema: the table's columns as they were when the events were written.
        epoch: numbering epoch of the source (K1: order spans servers).
        found_by: columns that count as those of the key do.

    Raises:
        SchemaError: an event's column count differs from the schema's.
        DamagedJournalError: values exceed an event's end.
        UnknownColumnTypeError: a column's type is unknown or cannot be decoded.
        UnsupportedEventError: an event of another type.
        BinlogError: an event is outside a transaction, or a column has more than 2 GiB.
        All with table, journal and offset, which is that of the first event if no single event is
        meant.
    """
    try:
        return own_changes(_decode(pieces, schema.logged, epoch, found_by), schema)
    except CdcError as error:
        if error.offset is None and any(len(piece.rows) for piece in pieces):
            first = next(piece for piece in pieces if len(piece.rows))
            error.journal = first.chunk.journal
            error.offset = int(first.chunk.events["offset"][first.rows[0]])
        raise


def _decode(
    pieces: Sequence[RowsSelection], schema: TableSchema, epoch: int, found_by: Collection[str]
) -> DecodedRows:
    _scratch.reset()
    rules = width_rules(schema)
    pieces = _joined_pieces(pieces)
    columns = len(rules)
    sums = _Sums(*(np.zeros(columns, np.int64) for _ in range(4)))
    located = [_locate(piece, schema) for piece in pieces]
    has_before = any(bool((one.ops != INSERT).any()) for one in located)
    has_after = any(bool((one.ops != DELETE).any()) for one in located)
    walked: list[_Walked] = []
    rows = 0
    for piece, bodies in zip(pieces, located, strict=True):
        result = _walk(
            piece,
            bodies,
            schema,
            rules,
            sums,
            has_before=has_before,
            has_after=has_after,
            first_row=rows,
        )
        walked.append(result)
        rows += sum(block.rows for block in result.blocks)

    op = np.empty(rows, np.uint8)
    commit_ts_us = np.empty(rows, np.int64)
    event_row = np.empty(rows, np.int64)
    words = np.empty((rows, 2), np.uint64)
    event_base = 0
    for piece, one in zip(pieces, walked, strict=True):
        high = np.uint64(epoch_and_journal(epoch, journal_number(piece.chunk.journal)))
        for block in one.blocks:
            part = slice(block.first_row, block.first_row + block.rows)
            largest = row_events.fill_rows(
                piece.chunk.events,
                piece.rows,
                one.ops,
                block.events,
                block.ordinals,
                event_base,
                high,
                op[part],
                commit_ts_us[part],
                event_row[part],
                words[part],
            )
            check_ranges(*largest)
        event_base += len(piece.rows)

    ops = _joined([one.ops for one in walked], (0,))
    before_bits = _joined([one.before_bits for one in walked], (0, (columns + 7) // 8))
    after_bits = _joined([one.after_bits for one in walked], (0, (columns + 7) // 8))
    blocks = [block for one in walked for block in one.blocks]
    is_mariadb = bool(pieces) and pieces[0].chunk.journal_format.is_mariadb
    invalid: list[InvalidValue] = []
    images = []
    before_present, after_present = (_of_rows(of, event_row) for of in (before_bits, after_bits))
    for image, present, bitmap, value_bytes, nulls in (
        ("before", has_before, before_present, sums.before_bytes, sums.before_nulls),
        ("after", has_after, after_present, sums.after_bytes, sums.after_nulls),
    ):
        arrays = build_columns(
            schema.found_by(found_by),
            blocks,
            image=image,
            rows=rows,
            present=present,
            bitmap=bitmap,
            value_bytes=value_bytes,
            nulls=nulls,
            rules=rules,
            is_mariadb=is_mariadb,
            invalid=invalid,
        )
        images.append(pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema)))
    all_present = _is_full(before_bits[ops != INSERT], columns) and _is_full(
        after_bits[ops != DELETE], columns
    )
    for block in blocks:
        if block.partial is not None:
            block.partial.clear_unchanged(after_present)
    return DecodedRows(
        schema=schema,
        op=op,
        seq=pa.Array.from_buffers(SEQ_TYPE, rows, [None, pa.py_buffer(words)]),
        commit_ts_us=commit_ts_us,
        event_row=event_row,
        before=images[0],
        after=images[1],
        before_present=before_present,
        after_present=after_present,
        all_present=all_present,
        invalid=invalid,
    )


def _joined_pieces(pieces: Sequence[RowsSelection]) -> list[RowsSelection]:
    """Merge adjacent selections of the same chunk."""
    joined: list[RowsSelection] = []
    for _, group in itertools.groupby(pieces, key=lambda piece: id(piece.chunk)):
        parts = list(group)
        rows = np.concatenate([part.rows for part in parts]) if len(parts) > 1 else parts[0].rows
        if len(rows):
            joined.append(RowsSelection(parts[0].chunk, rows))
    return joined


def _joined(parts: list[NDArray[np.uint8]], empty_shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.concatenate(parts) if parts else np.zeros(empty_shape, np.uint8)


def _of_rows(bits: NDArray[np.uint8], event_row: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the bitmap of each row's event.
    Every event has a row, so equal counts mean one row per event.
    """
    return bits if len(bits) == len(event_row) else bits.take(event_row, axis=0)


def _is_full(bits: NDArray[np.uint8], columns: int) -> bool:
    full = np.packbits(np.ones(columns, np.uint8), bitorder="little")
    return bool((bits == full).all())


def _locate(piece: RowsSelection, schema: TableSchema) -> _Bodies:
    """Check types, transactions and bounds of the selected events; the walk relies on all three."""
    chunk, count = piece.chunk, len(piece.rows)
    lengths = np.zeros(256, np.uint8)
    post_headers = chunk.journal_format.post_header_lengths[:255]
    lengths[1 : len(post_headers) + 1] = post_headers
    first, last = (np.empty(count, np.int64) for _ in range(2))
    types, ops, id_bytes = (np.empty(count, np.uint8) for _ in range(3))
    bodies = _Bodies(first, last, types, ops, id_bytes)
    bad = row_events.locate_events(
        chunk.data, chunk.events, piece.rows, chunk.journal_format.checksum_bytes, _OPS,
        np.where(lengths == 6, 4, 6).astype(np.uint8), first, last, types, ops, id_bytes,
    )  # fmt: skip
    if bad >= 0:
        _raise_bad_event(chunk, chunk.events[piece.rows[bad]], schema)
    return bodies


def _walk(
    piece: RowsSelection,
    located: _Bodies,
    schema: TableSchema,
    rules: NDArray[np.int32],
    sums: _Sums,
    *,
    has_before: bool,
    has_after: bool,
    first_row: int,
) -> _Walked:
    chunk, events = piece.chunk, piece.rows
    types, ops, id_bytes = located.types, located.ops, located.id_bytes
    version = np.where(types >= EventType.WRITE_ROWS_V2, 2, 1).astype(np.uint8)

    columns = len(rules)
    state = np.zeros(walk.STATE_WORDS, np.int64)
    bodies = plain_bodies(
        chunk.data, located.first, located.last, types, id_bytes, rules, schema, state
    )
    if bodies.status != walk.DONE:
        raise _walk_error(bodies.status, state, piece, schema)
    data, first, last = bodies.data, bodies.first, bodies.last
    before_bits = np.zeros((len(events), (columns + 7) // 8), np.uint8)
    after_bits = np.zeros_like(before_bits)
    scratch = np.empty((2, columns), np.int32)
    row_bytes_min = max(int(np.abs(rules).sum()) + (columns + 7) // 8, 1)
    left_bytes = int((last - first).sum())
    blocks: list[Block] = []
    status = walk.FULL
    while status == walk.FULL:
        # An estimate: rows of NULLs are shorter, and then the walk needs another block.
        capacity = max(
            min(
                left_bytes // row_bytes_min + len(events),
                BLOCK_ROWS_MAX,
                _BLOCK_CELLS_MAX // columns,
            ),
            16,
        )
        base, event, ordinal = (_scratch.empty((capacity,), np.int64) for _ in range(3))
        before = _scratch.empty((columns, capacity if has_before else 0), np.int32)
        after = _scratch.empty((columns, capacity if has_after else 0), np.int32)
        status = walk.walk_rows(
            data,
            first,
            last,
            ops,
            id_bytes,
            version,
            rules,
            state,
            base,
            event,
            ordinal,
            before,
            after,
            sums.before_bytes,
            sums.after_bytes,
            sums.before_nulls,
            sums.after_nulls,
            before_bits,
            after_bits,
            scratch,
        )
        if status not in (walk.DONE, walk.FULL):
            raise _walk_error(status, state, piece, schema)
        count = int(state[walk.S_ROWS])
        if count:
            places = base[:count], event[:count], ordinal[:count]
            blocks.append(Block(data, *places, before, after, first_row, count, bodies.partial))
            first_row += count
    return _Walked(blocks, ops, before_bits, after_bits)


def _raise_bad_event(chunk: Chunk, event: np.void, schema: TableSchema) -> NoReturn:
    offset = int(event["offset"])
    if event["event_type"] not in ROWS_TYPES:
        raise UnsupportedEventError(
            "an input event of the row decoder is not a rows event",
            at=(chunk.journal, offset),
            table=schema.full_name,
            expected=", ".join(event_name(kind) for kind in sorted(ROWS_TYPES)),
            got=event_name(int(event["event_type"])),
            next_step="select only rows events",
        )
    if event["tx_offset"] < 0 or event["tx_ordinal"] < 0:
        raise BinlogError(
            "a rows event is outside a transaction",
            at=(chunk.journal, offset),
            table=schema.full_name,
            expected="a GTID event or BEGIN before it",
            next_step="start at the beginning of a transaction",
        )
    raise DamagedJournalError(
        "a rows event exceeds its chunk",
        at=(chunk.journal, offset),
        table=schema.full_name,
        expected=f"{row_events.EVENT_BYTES_MIN} to {len(chunk.data)} bytes",
        got=int(event["event_length"]),
    )


def _walk_error(
    status: int, state: NDArray[np.int64], piece: RowsSelection, schema: TableSchema
) -> DamagedJournalError | SchemaError:
    event = piece.chunk.events[piece.rows[int(state[walk.S_EVENT])]]
    journal, offset = piece.chunk.journal, int(event["offset"])
    if status == walk.COLUMN_COUNT:
        return SchemaError(
            "a rows event does not have as many columns as its table",
            at=(journal, offset),
            table=schema.full_name,
            expected=f"{len(schema.columns)} columns",
            got=f"{int(state[walk.S_COUNT])} columns",
            next_step="the schema belongs to another version of the table: take a new snapshot of "
            "the table",
        )
    if status == partial_rows.UNKNOWN_OPTIONS:
        return DamagedJournalError(
            "a rows event has options that no known server writes",
            at=(journal, offset),
            table=schema.full_name,
            expected="option 1 (JSON differences) or none",
            got=f"options {int(state[walk.S_COUNT]):#x}",
            next_step="the journal is damaged, or the server is newer: SET GLOBAL "
            "binlog_row_value_options = ''",
        )
    index = int(state[walk.S_COLUMN])
    if index == walk.NO_ROWS:
        where = "its header, so it has no row"
    elif index < 0:
        where = "its bitmaps"
    else:
        column = schema.columns[index]
        where = f"column {column.name!r}, {type_name(column.wire_type)}"
    return DamagedJournalError(
        f"a rows event ends inside {where}",
        at=(journal, offset),
        table=schema.full_name,
        expected="values that fill the event exactly",
        got=f"an event of {int(event['event_length'])} bytes that is too short for them",
        next_step="the journal is damaged, or the schema belongs to another version of the table",
    )
