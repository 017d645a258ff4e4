"""Unpack the compressed events of a framed chunk, before any other step sees them.

Rules:
- The chunk gets a new buffer without the packed bytes, so that the events' lengths add up to the
  memory in use. Offsets stay those of the journal.
- A payload event (MySQL) keeps its header and fields. The events inside it follow as rows with
  `parent` set to its row; all have its `offset` and `next_offset`, and no checksum.
- A compressed event of MariaDB becomes a plain event, with a new length and checksum.
- A payload is unpacked as a whole, which briefly takes twice its size. A payload that announces
  more than the limit is refused before memory is allocated (K25: no input may exhaust memory). Of
  several, only as many are unpacked at a time as fit UNPACKED_BYTES_MAX together.
- Everything before a bad event is kept: the chunk ends there, and the error is returned with it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk
from cdc_pipeline.binlog.event_types import (
    HEADER_BYTES,
    PACKED_TYPES,
    STOP_REASONS,
    EventType,
    event_name,
)
from cdc_pipeline.binlog.framing import compressed_kernel as kernel
from cdc_pipeline.binlog.framing.compressed_kernel import STORED, ZLIB, PackedStatus
from cdc_pipeline.binlog.framing.framing_kernel import EVENT_CLASSES, EventClass, Status
from cdc_pipeline.binlog.framing.payload_kernel import CHILD_CLASSES, count_children, frame_children
from cdc_pipeline.errors import (
    BinlogError,
    CdcError,
    DamagedJournalError,
    SizeLimitError,
    UnknownEventError,
    UnsupportedEventError,
)

_WRONG: Final = {
    PackedStatus.SHORT: ("its fields end before the compressed bytes begin", "complete fields"),
    PackedStatus.ALGORITHM: ("an unknown algorithm", "zstd, zlib or none"),
    PackedStatus.PACKED_SIZE: (
        "the size of its compressed bytes contradicts its length",
        "the bytes that follow",
    ),
    PackedStatus.UNPACKED_SIZE: (
        "its uncompressed size is impossible",
        "a size that the compressed bytes can produce",
    ),
}
_HEAD, _AT, _PACKED, _UNPACKED, _ALGORITHM, _IS_SIZED = range(6)
_CODEC: Final = pa.Codec("zstd")
UNPACKED_BYTES_MAX: Final = 64 << 20  # of one chunk, if it has more than one compressed event
EVENT_UNPACKED_BYTES_MAX: Final = 4 << 30  # of one event, by default
_SMALL_BYTES: Final = 64 << 10  # payloads up to this size are unpacked together


def _rewritten_types() -> NDArray[np.uint8]:
    types = np.arange(256, dtype=np.uint8)
    for packed, plain in PACKED_TYPES.items():
        types[packed] = plain
    return types


_TYPES: Final = _rewritten_types()


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The result of unpacking a chunk.

    Attributes:
        chunk: the events up to the first bad one.
        events_done: events of the given chunk up to the first bad one, or up to where it became too
            large.
        ignored: types of the unknown but ignorable events inside payloads.
        error: None if nothing is wrong.
    """

    chunk: Chunk
    events_done: int
    ignored: list[int]
    error: CdcError | None


def unpack(
    chunk: Chunk, *, whole: bool = False, event_unpacked_bytes_max: int = EVENT_UNPACKED_BYTES_MAX
) -> Unpacked:
    """Return `chunk` with its compressed events unpacked, cut before it exceeds UNPACKED_BYTES_MAX
    unless `whole`. No event may unpack to more than `event_unpacked_bytes_max`.

    The error of the result is a DamagedJournalError, a SizeLimitError, a BinlogError if memory runs
    out, or for an event inside a payload an UnknownEventError or UnsupportedEventError.
    """
    events, checksum_bytes = chunk.events, chunk.journal_format.checksum_bytes
    rows = np.flatnonzero(EVENT_CLASSES[events["event_type"]] >= EventClass.PACKED)
    found = np.zeros((len(rows), 6), dtype=np.int64)
    id_bytes = chunk.journal_format.table_id_bytes
    done, status = kernel.find_packed(
        chunk.data, events, rows, checksum_bytes, id_bytes,
        chunk.journal_format.query_post_header_bytes, found
    )  # fmt: skip
    error: CdcError | None = None
    if status != PackedStatus.OK:
        what, expected = _WRONG[PackedStatus(status)]
        row = int(rows[done])
        error = _damaged(chunk, row, what, expected, f"{events['event_length'][row]} bytes")
    large = np.flatnonzero(found[:done, _UNPACKED] > event_unpacked_bytes_max)
    if len(large):
        done = int(large[0])
        error = _over_limit(
            chunk, int(rows[done]), int(found[done, _UNPACKED]), event_unpacked_bytes_max
        )
    together = int(
        np.searchsorted(np.cumsum(found[:done, _UNPACKED]), UNPACKED_BYTES_MAX, side="right")
    )
    if max(together, 1) < done and not whole:
        done, error = max(together, 1), None
    pieces, failure = _unpacked_bytes(chunk, rows[:done], found[:done])
    error = failure or error
    count = len(events) if len(pieces) == len(rows) else int(rows[len(pieces)])
    rows, found = rows[: len(pieces)], found[: len(pieces)]
    try:
        return _assemble(chunk, count, rows, found, pieces, id_bytes, error)
    except MemoryError:
        failure = _too_large(chunk, int(rows[0]), int(found[:, _UNPACKED].sum()))
        return Unpacked(_cut(chunk, int(rows[0])), int(rows[0]), [], failure)


def _assemble(
    chunk: Chunk,
    count: int,
    rows: NDArray[np.int64],
    found: NDArray[np.int64],
    pieces: list[Any],
    id_bytes: int,
    error: CdcError | None,
) -> Unpacked:
    """Copy `count` events to a new buffer, with the unpacked `pieces` of those at `rows`."""
    events, checksum_bytes = chunk.events[:count], chunk.journal_format.checksum_bytes
    plain_bytes = int(
        events["event_length"].sum(dtype=np.int64)
        - events["event_length"][rows].sum(dtype=np.int64)
    )
    head_bytes = int(found[:, _HEAD].sum()) + checksum_bytes * len(rows)
    data = np.empty(plain_bytes + head_bytes + int(found[:, _UNPACKED].sum()), dtype=np.uint8)
    starts, new_lengths = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    gaps = np.empty(len(rows), dtype=np.int64)
    kernel.copy_events(
        chunk.data,
        events,
        count,
        rows,
        found,
        _TYPES,
        checksum_bytes,
        data,
        starts,
        new_lengths,
        gaps,
    )
    stops = gaps + found[:, _UNPACKED]
    pieces.reverse()
    for first, stop in zip(gaps.tolist(), stops.tolist(), strict=True):
        data[first:stop] = np.frombuffer(pieces.pop(), dtype=np.uint8)
    if checksum_bytes:
        kernel.seal_events(data, rows, starts, new_lengths)

    is_payload = events["event_type"][rows] == EventType.TRANSACTION_PAYLOAD
    payload_rows, firsts, stops = rows[is_payload], gaps[is_payload], stops[is_payload]
    counts = np.empty(len(payload_rows), dtype=np.int64)
    count_children(data, firsts, stops, counts)
    children = np.zeros(count + 1, dtype=np.int64)
    children[payload_rows + 1] = counts
    new_rows = np.arange(count, dtype=np.int64) + np.cumsum(children[:-1])
    table = np.empty(count + int(children.sum()), dtype=EVENT_DTYPE)
    table[new_rows] = events
    table["start"][new_rows] = starts
    table["event_length"][new_rows] = new_lengths
    table["event_type"][new_rows] = _TYPES[events["event_type"]]
    result = replace(chunk, data=data, events=table)
    if count < len(chunk.events):
        result = replace(result, end_offset=int(chunk.events["offset"][count]))
    parents = new_rows[payload_rows]
    done, status, at = frame_children(data, firsts, stops, parents, table, id_bytes, CHILD_CLASSES)
    if status != Status.DONE:
        parent, count = int(parents[done]), int(payload_rows[done])
        error = _wrong_child(
            result, parent, Status(status), at, int(firsts[done]), int(stops[done])
        )
        result = _cut(result, parent)
    inside = result.events["event_type"][result.events["parent"] >= 0]
    return Unpacked(
        result, count, inside[EVENT_CLASSES[inside] == EventClass.UNKNOWN].tolist(), error
    )


def _unpacked_bytes(
    chunk: Chunk, rows: NDArray[np.int64], found: NDArray[np.int64]
) -> tuple[list[Any], CdcError | None]:
    """Buffers with the unpacked bytes of each event, up to the first that cannot be unpacked."""
    data = memoryview(chunk.data)  # type: ignore[arg-type]
    together, starts = _unpacked_together(chunk, found)
    pieces: list[Any] = []
    columns = (found[:, field].tolist() for field in (_AT, _PACKED, _UNPACKED, _ALGORITHM))
    for row, start, at, packed_bytes, unpacked_bytes, algorithm in zip(
        rows.tolist(), starts, *columns, strict=True
    ):
        if start >= 0:
            pieces.append(together[start : start + unpacked_bytes])
            continue
        packed = data[at : at + packed_bytes]
        try:
            if algorithm == ZLIB:
                piece: Any = _inflated(packed, unpacked_bytes)
            else:
                piece = packed if algorithm == STORED else _CODEC.decompress(packed, unpacked_bytes)
        except MemoryError:
            return pieces, _too_large(chunk, row, unpacked_bytes)
        except (zlib.error, OSError, pa.ArrowException) as error:
            what = "its compressed bytes cannot be decompressed"
            return pieces, _damaged(chunk, row, what, f"{unpacked_bytes} bytes", error)
        if len(piece) != unpacked_bytes:
            what = "its decompressed size is not the one that it announces"
            expected, got = f"{unpacked_bytes} bytes", f"{len(piece)} bytes"
            return pieces, _damaged(chunk, row, what, expected, got)
        pieces.append(piece)
    return pieces, None


def _inflated(packed: memoryview, unpacked_bytes: int) -> bytes:
    """Unpack at most one byte more than announced, so that a zip bomb cannot explode."""
    decoder = zlib.decompressobj()
    piece = decoder.decompress(packed, unpacked_bytes + 1)
    if not decoder.eof and len(piece) <= unpacked_bytes:
        raise zlib.error("incomplete data")
    return piece


def _unpacked_together(chunk: Chunk, found: NDArray[np.int64]) -> tuple[memoryview, list[int]]:
    """Return the unpacked bytes of all small payloads, and for each event its index in them, or -1.

    One call for thousands of payloads costs a tenth of thousands of calls. Only frames that contain
    their own size take part, so that none can spill into its neighbour. If the call fails, each is
    unpacked alone, which finds the bad one.
    """
    starts = np.full(len(found), -1, dtype=np.int64)
    small = np.flatnonzero((found[:, _IS_SIZED] == 1) & (found[:, _UNPACKED] <= _SMALL_BYTES))
    if len(small) < 2:
        return memoryview(b""), starts.tolist()
    sizes = found[small, _UNPACKED]
    packed = np.empty(int(found[small, _PACKED].sum()), dtype=np.uint8)
    kernel.gather_packed(chunk.data, found, small, packed)
    try:
        together = memoryview(_CODEC.decompress(packed, int(sizes.sum())))
    except (OSError, MemoryError, pa.ArrowException):
        return memoryview(b""), starts.tolist()
    starts[small] = np.cumsum(sizes) - sizes
    return together, starts.tolist()


def _cut(chunk: Chunk, row: int) -> Chunk:
    if row == len(chunk.events):
        return chunk
    return replace(chunk, events=chunk.events[:row], end_offset=int(chunk.events["offset"][row]))


def _subject(chunk: Chunk, row: int) -> str:
    return f"a {event_name(int(chunk.events['event_type'][row]))} event"


def _place(chunk: Chunk, row: int) -> tuple[str, int]:
    return chunk.journal, int(chunk.events["offset"][row])


def _damaged(chunk: Chunk, row: int, what: str, expected: str, got: object) -> DamagedJournalError:
    return DamagedJournalError(
        f"{_subject(chunk, row)} is damaged: {what}",
        at=_place(chunk, row),
        expected=expected,
        got=got,
    )


def _too_large(chunk: Chunk, row: int, unpacked_bytes: int) -> BinlogError:
    return BinlogError(
        f"{_subject(chunk, row)} does not fit into memory when decompressed",
        at=_place(chunk, row),
        got=f"{unpacked_bytes} bytes",
        next_step="give the run more memory; if the size is implausible, fetch the journal "
        "again from its server",
    )


def _over_limit(chunk: Chunk, row: int, unpacked_bytes: int, limit_bytes: int) -> SizeLimitError:
    return SizeLimitError(
        f"{_subject(chunk, row)} announces more decompressed bytes than this pipeline accepts",
        at=_place(chunk, row),
        setting="source.unpacked_bytes_max",
        expected=f"at most {limit_bytes} bytes",
        got=f"{unpacked_bytes} bytes",
        next_step="if a transaction of this size is plausible, raise the setting, give the run "
        "twice as much memory and run again; if it is not, fetch the journal again from its server",
    )


def _wrong_child(
    chunk: Chunk, parent: int, status: Status, at: int, first: int, stop: int
) -> CdcError:
    place = _place(chunk, parent)
    where = f"at byte {at - first} of {stop - first} inside the payload"
    if stop - at < HEADER_BYTES:
        name, length = "an event", stop - at
    else:
        event_type = int(chunk.data[at + 4])
        name = event_name(event_type)
        length = int.from_bytes(chunk.data[at + 9 : at + 13].tobytes(), "little")
    got = f"{name}, {length} bytes, {where}"
    if status is Status.UNKNOWN_TYPE:
        return UnknownEventError(
            "an unknown event type inside a payload",
            at=place,
            expected="a known type, or one flagged as ignorable",
            got=got,
            next_step="start after this payload if it cannot change a captured table, and "
            "please report the type",
        )
    if status is Status.STOP_TYPE:
        return UnsupportedEventError(
            f"a {name} event cannot be applied",
            at=place,
            got=got,
            next_step=STOP_REASONS[EventType(event_type)],
        )
    is_mark = status is Status.MARK
    return DamagedJournalError(
        "an event that cannot be inside a payload"
        if is_mark
        else "an impossible length of an event inside a payload",
        at=place,
        expected="events of one transaction" if is_mark else "events that fill the payload exactly",
        got=got,
    )
