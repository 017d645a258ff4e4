"""Read the SQL text of rows events: ROWS_QUERY (MySQL), ANNOTATE_ROWS (MariaDB).

Rules:
- Nothing is read unless requested. The texts of a whole run of events are read at once, without a
  step of Python per event.
- An annotation precedes the table maps of its statement. It holds for the rows events behind it in
  the same transaction, up to and including the one that ends the statement (flag 0x1). Rows of
  triggers and cascades belong to the statement that caused them; rows of a later statement that was
  logged without its text have none.
- The text is what the session sent, in its character set, which the event does not name: bytes that
  are not UTF-8 appear as U+FFFD.
- Both servers write them only if configured: binlog_rows_query_log_events=ON,
  binlog_annotate_row_events=ON (MariaDB's default). MariaDB sends them in a dump that requests
  them, as ours does; a file always has them.

Source: MySQL "Rows_query_event" (a byte of length that is to be ignored, then the text), MariaDB
"ANNOTATE_ROWS_EVENT" (the text).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import HEADER_BYTES, ROWS_TYPES, EventType
from cdc_pipeline.binlog.events.format_description import table_id_bytes

_ROWS: Final = np.zeros(256, dtype=bool)
_ROWS[[*ROWS_TYPES]] = True
_STATEMENT_END: Final = 0x01


@dataclass(frozen=True, slots=True)
class Statements:
    """Texts of a run of events.

    Attributes:
        first: row of the chunk that `of_event` begins with.
        texts: large_string (n,): the statements, in the order of the log.
        of_event: int64 (events,): index in `texts` for each rows event of the run; -1 for all other
            events, and for rows whose statement is not in the log.
    """

    first: int
    texts: pa.LargeStringArray
    of_event: NDArray[np.int64]

    def for_rows(self, rows: NDArray[np.int64]) -> pa.LargeStringArray:
        """Of some events (rows of the chunk); null if there is none."""
        index = self.of_event[np.asarray(rows, dtype=np.int64) - self.first]
        return self.texts.take(pa.array(index, mask=index < 0))

    def lengths_bytes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the texts of some events, none of which is copied for it; 0 if there is none."""
        lengths = np.append(pc.binary_length(self.texts).to_numpy(), 0)
        return lengths[self.of_event[np.asarray(rows, dtype=np.int64) - self.first]]


class StatementReader:
    """Reader of consecutive runs of events, after the transaction pass; a statement may span
    chunks.
    """

    def __init__(self) -> None:
        self._open_text: str | None = None
        self._open_tx = ("", -1)

    def read(self, chunk: Chunk, first: int = 0, stop: int | None = None) -> Statements:
        """Of the events in rows [first, stop) of `chunk`, by default all."""
        stop = len(chunk.events) if stop is None else stop
        events = chunk.events[first:stop]
        types = events["event_type"]
        notes = np.flatnonzero(
            (types == EventType.ROWS_QUERY) | (types == EventType.MARIADB_ANNOTATE_ROWS)
        )
        is_rows = _ROWS[types]
        if not len(notes) and self._open_text is None:
            return Statements(
                first, pa.array([], pa.large_string()), np.full(len(events), -1, dtype=np.int64)
            )
        ends = np.concatenate(([0], np.cumsum(_ends_statement(chunk, events, is_rows))))
        # A statement open from the previous run is placed just before this one, as text number 0.
        note_rows, texts = notes, _texts(chunk, events, notes)
        note_tx, note_ends = events["tx_offset"][notes], ends[notes]
        if self._open_text is not None:
            open_tx = self._open_tx[1] if self._open_tx[0] == chunk.journal else -2
            note_rows = np.concatenate(([-1], note_rows))
            note_tx = np.concatenate(([open_tx], note_tx))
            note_ends = np.concatenate(([0], note_ends))
            texts = pa.concat_arrays([pa.array([self._open_text], pa.large_string()), texts])
        at = np.flatnonzero(is_rows)
        latest = np.searchsorted(note_rows, at) - 1
        holds = (
            (latest >= 0)
            & (note_tx[latest] == events["tx_offset"][at])
            & (note_ends[latest] == ends[at])
        )
        of_event = np.full(len(events), -1, dtype=np.int64)
        of_event[at[holds]] = latest[holds]
        self._keep_open(chunk, events, texts, note_tx, still_open=bool(note_ends[-1] == ends[-1]))
        return Statements(first, texts, of_event)

    def _keep_open(
        self,
        chunk: Chunk,
        events: np.ndarray,
        texts: pa.LargeStringArray,
        note_tx: NDArray[np.int64],
        still_open: bool,
    ) -> None:
        tx = int(note_tx[-1])
        self._open_text = None
        if still_open and len(events) and tx >= 0 and tx == int(events["tx_offset"][-1]):
            self._open_text, self._open_tx = texts[-1].as_py(), (chunk.journal, tx)


def _ends_statement(
    chunk: Chunk, events: np.ndarray, is_rows: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    ends = np.zeros(len(events), dtype=bool)
    flags_at = events["start"][is_rows] + HEADER_BYTES + table_id_bytes(chunk.journal_format)
    ends[is_rows] = chunk.data[flags_at] & _STATEMENT_END != 0
    return ends


def _texts(chunk: Chunk, events: np.ndarray, notes: NDArray[np.int64]) -> pa.LargeStringArray:
    """The texts are every second one of the values between their bounds in the chunk."""
    if not len(notes):
        return pa.array([], pa.large_string())
    annotations = events[notes]
    tail = np.where(annotations["parent"] < 0, chunk.journal_format.checksum_bytes, 0)
    stops = annotations["start"] + annotations["event_length"] - tail
    starts = (
        annotations["start"] + HEADER_BYTES + (annotations["event_type"] == EventType.ROWS_QUERY)
    )
    bounds = np.empty(2 * len(notes), dtype=np.int64)
    bounds[0::2], bounds[1::2] = np.minimum(starts, stops), stops
    between = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(chunk.data)]
    )
    raw = between.take(pa.array(np.arange(0, len(bounds), 2)))
    try:
        return pc.cast(raw, pa.large_string())
    except pa.ArrowInvalid:
        return pa.array(
            [text.decode("utf-8", "replace") for text in raw.to_pylist()], pa.large_string()
        )
