"""The bytes of a stored slice.

Rules:
- An entry is self-contained: a header of fixed length, then context (JSON: journal, its format,
  source), detail (JSON: statement, database; absent if both are empty), rows of EVENT_DTYPE, and
  the raw bytes of its events in order, including small gaps between them. Rows begin at a multiple
  of 8, as does the next entry.
- One CRC32 covers the header, another the rest. Nothing is used before its checksum is verified.
- `start` and `parent` are rewritten relative to the stored slice. A parent outside of it becomes
  the row itself, because only its existence matters: an event inside a payload has no checksum.
- Numbers are little-endian; nothing is pickled.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk, EventSlice, JournalFormat, SliceKind
from cdc_pipeline.errors import StoreError
from cdc_pipeline.store.entries import MemoryEntry

_FIELDS: Final = struct.Struct("<IHBxIIIIqqq4x")
_HEADER_CRC: Final = struct.Struct("<I")
_MAGIC: Final = 0x31454443
_VERSION: Final = 1
HEADER_BYTES: Final = _FIELDS.size + _HEADER_CRC.size
_ALIGNMENT_BYTES: Final = 8
_RUNS_MAX: Final = 64  # a slice in more runs of bytes than this is copied into one
_GAP_BYTES_MAX: Final = 16  # gaps of live data up to this length are stored (`framing_kernel`)


class EntryError(Exception):
    """The bytes are not an entry. The message says why; the caller adds file and offset."""


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """`sequence`: of the first event; `body_crc`: of everything after the header."""

    sequence: int
    kind: SliceKind
    context_bytes: int
    detail_bytes: int
    row_count: int
    data_bytes: int
    body_crc: int
    end_offset: int

    @property
    def rows_at(self) -> int:
        """Byte offset of the first row from the header's first byte."""
        return _aligned(HEADER_BYTES + self.context_bytes + self.detail_bytes)

    @property
    def data_at(self) -> int:
        return self.rows_at + self.row_count * EVENT_DTYPE.itemsize

    @property
    def entry_bytes(self) -> int:
        """Length of the entry, its padding included."""
        return _aligned(self.data_at + self.data_bytes)


def parse_header(raw: bytes) -> EntryHeader:
    """EntryError: too short, a wrong checksum, or not a header."""
    if len(raw) < HEADER_BYTES:
        raise EntryError(f"{len(raw)} bytes of a header of {HEADER_BYTES}")
    (crc,) = _HEADER_CRC.unpack_from(raw, _FIELDS.size)
    if zlib.crc32(raw[: _FIELDS.size]) != crc:
        raise EntryError("the checksum of the entry's header is wrong")
    magic, version, kind, context, detail, rows, body_crc, data, sequence, end = (
        _FIELDS.unpack_from(raw)
    )
    if (magic, version) != (_MAGIC, _VERSION):
        raise EntryError(
            f"magic number {magic:#x} and version {version} instead of {_MAGIC:#x} and {_VERSION}"
        )
    return EntryHeader(sequence, SliceKind(kind), context, detail, rows, data, body_crc, end)


class EntryEncoder:
    """Remembers the last context, which the next slice nearly always shares."""

    def __init__(self) -> None:
        self._key: tuple[str, str, JournalFormat] | None = None
        self._context = b""

    def encode(self, entry: MemoryEntry) -> list[Any]:
        """Buffers, in order. StoreError: the rows refer to bytes that the chunk does not have."""
        part = entry.part
        context = self._context_of(part)
        detail = b""
        if part.sql or part.database:
            detail = json.dumps({"sql": part.sql, "database": part.database}).encode()
        rows, data = _own_bytes(part)
        gap = bytes(-(HEADER_BYTES + len(context) + len(detail)) % _ALIGNMENT_BYTES)
        data_bytes = sum(map(len, data))
        tail = bytes(-data_bytes % _ALIGNMENT_BYTES)
        front = context + detail + gap + rows.tobytes()
        body_crc = zlib.crc32(front)
        for piece in (*data, tail):
            body_crc = zlib.crc32(piece, body_crc)
        fields = _FIELDS.pack(
            _MAGIC,
            _VERSION,
            part.kind,
            len(context),
            len(detail),
            len(rows),
            body_crc,
            data_bytes,
            entry.first,
            part.chunk.end_offset,
        )
        return [fields + _HEADER_CRC.pack(zlib.crc32(fields)) + front, *data, tail]

    def _context_of(self, part: EventSlice) -> bytes:
        known, chunk = self._key, part.chunk
        if (
            known is None
            or known[:2] != (chunk.journal, part.source)
            or known[2] is not chunk.journal_format
        ):
            self._key = (chunk.journal, part.source, chunk.journal_format)
            plain = {
                "journal": chunk.journal,
                "source": part.source,
                "format": asdict(chunk.journal_format),
            }
            self._context = json.dumps(plain, separators=(",", ":")).encode()
        return self._context


class EntryDecoder:
    """Decode bytes to slices; slices of one journal share one `JournalFormat`."""

    def __init__(self) -> None:
        self._raw_context = b""
        self._context: tuple[str, str, JournalFormat] = (
            "",
            "",
            JournalFormat(0, "", False, 0, 0, 0, (), False),
        )

    def decode(self, header: EntryHeader, raw: NDArray[np.uint8]) -> EventSlice:
        """Views of `raw`, a whole entry with its header. EntryError: the checksum is wrong."""
        if len(raw) != header.entry_bytes:
            raise EntryError(f"{len(raw)} bytes of an entry of {header.entry_bytes}")
        if zlib.crc32(memoryview(raw)[HEADER_BYTES:]) != header.body_crc:  # type: ignore[arg-type]
            raise EntryError("the checksum of the entry's body is wrong")
        detail_at = HEADER_BYTES + header.context_bytes
        journal, source, journal_format = self._context_of(raw[HEADER_BYTES:detail_at].tobytes())
        detail = {"sql": "", "database": ""}
        if header.detail_bytes:
            detail = json.loads(raw[detail_at : detail_at + header.detail_bytes].tobytes())
        rows = raw[header.rows_at : header.data_at].view(EVENT_DTYPE)
        data = raw[header.data_at : header.data_at + header.data_bytes]
        chunk = Chunk(journal, journal_format, data, rows, header.end_offset)
        return EventSlice(
            chunk=chunk,
            first=0,
            stop=header.row_count,
            kind=header.kind,
            sql=detail["sql"],
            database=detail["database"],
            source=source,
            event_bytes=int(rows["event_length"].sum(dtype=np.int64)),
        )

    def _context_of(self, raw: bytes) -> tuple[str, str, JournalFormat]:
        if raw != self._raw_context:
            plain = json.loads(raw)
            values = plain["format"]
            values["post_header_lengths"] = tuple(values["post_header_lengths"])
            self._context = (plain["journal"], plain["source"], JournalFormat(**values))
            self._raw_context = raw
        return self._context


def _own_bytes(part: EventSlice) -> tuple[np.ndarray, list[Any]]:
    """Relative to the slice's first byte and row, with the runs of bytes that they refer to."""
    rows = part.events.copy()
    starts = rows["start"].astype(np.int64)
    lengths = rows["event_length"].astype(np.int64)
    stops = starts + lengths
    if int(starts.min()) < 0 or int(stops.max()) > len(part.chunk.data):
        raise StoreError(
            "events refer to bytes that their chunk does not have",
            at=(part.chunk.journal, int(rows["offset"][0])),
            expected=f"bytes up to {len(part.chunk.data)}",
            got=f"bytes {int(starts.min())} to {int(stops.max())}",
            next_step="please report this: the framing of this journal is wrong",
        )
    between = starts[1:] - stops[:-1]
    breaks = np.flatnonzero((between < 0) | (between > _GAP_BYTES_MAX)) + 1
    firsts, lasts = np.append(0, breaks), np.append(breaks - 1, len(stops) - 1)
    begins, ends = starts[firsts], stops[lasts]
    runs = [
        part.chunk.data[begin:end]
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    if len(runs) > _RUNS_MAX:
        runs = [np.concatenate(runs)]
    moved = begins - (np.cumsum(ends - begins) - (ends - begins))
    rows["start"] = starts - np.repeat(moved, lasts - firsts + 1)
    parents = rows["parent"]
    inside = np.flatnonzero(parents >= 0)
    if len(inside):
        own = parents[inside] - part.first
        rows["parent"][inside] = np.where(own >= 0, own, inside)
    return rows, runs


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
