"""Read the SQL text of rows events: ROWS_QUERY (MySQL), ANNOTATE_ROWS (MariaDB).

Rules:
- An annotation precedes the table maps of its statement. It holds for the rows events behind it in
  the same transaction, up to the one that ends the statement (flag 0x1): those of its triggers and
  cascades, too. A later statement that was logged without its text has none.
- The text is what the session sent, in its character set, which the event does not name: bytes that
  are not UTF-8 appear as U+FFFD.
- Both servers write them only if configured: binlog_rows_query_log_events=ON,
  binlog_annotate_row_events=ON (MariaDB's default). MariaDB sends them in a dump that requests
  them, as ours does; a file always has them.

Source: MySQL "Rows_query_event" (a byte of length that is to be ignored, then the text), MariaDB
"ANNOTATE_ROWS_EVENT" (the text).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import HEADER_BYTES, ROWS_TYPES, EventType

_ROWS: Final = np.zeros(256, dtype=bool)
_ROWS[[*ROWS_TYPES]] = True
_STATEMENT_END: Final = 0x01
_NO_STATEMENT: Final = ("", -2, "")


class StatementReader:
    """Reader of consecutive events, after the transaction pass; a statement may span chunks."""

    def __init__(self) -> None:
        self._open = _NO_STATEMENT  # journal, offset of the transaction, text

    def read(self, chunk: Chunk, first: int = 0, stop: int | None = None) -> pa.DictionaryArray:
        """large_string, of rows [first, stop); null where no statement, or no rows event, is."""
        events = chunk.events[first:stop]
        types, transactions = events["event_type"], events["tx_offset"]
        notes = np.flatnonzero(
            (types == EventType.ROWS_QUERY) | (types == EventType.MARIADB_ANNOTATE_ROWS)
        )
        rows = np.flatnonzero(_ROWS[types])
        flags_at = events["start"][rows] + HEADER_BYTES + chunk.journal_format.table_id_bytes
        ends = np.zeros(len(events) + 1, np.int64)  # of statements, before each event
        ends[rows + 1] = chunk.data[flags_at] & _STATEMENT_END
        ends = np.cumsum(ends)
        # The statement that is open from the previous run is placed just before this one.
        is_same = self._open[0] == chunk.journal
        _, open_tx, open_text = self._open if is_same else _NO_STATEMENT
        texts = pa.array([open_text, *_texts(chunk, events[notes])], pa.large_string())
        note_tx = np.append(open_tx, transactions[notes])
        note_ends = np.append(0, ends[notes])
        latest = np.searchsorted(notes, rows)
        holds = (note_tx[latest] == transactions[rows]) & (note_ends[latest] == ends[rows])
        is_open = note_ends[-1] == ends[-1] and note_tx[-1] >= 0
        if is_open and note_tx[-1] in transactions[-1:]:
            self._open = chunk.journal, int(note_tx[-1]), texts[-1].as_py()
        else:
            self._open = _NO_STATEMENT
        of_event = np.full(len(events), -1)
        of_event[rows[holds]] = latest[holds]
        return pa.DictionaryArray.from_arrays(pa.array(of_event, mask=of_event < 0), texts)


def lengths_bytes(statements: pa.DictionaryArray) -> NDArray[np.int64]:
    """Of the text of each event, none of which is copied for it; 0 if there is none."""
    lengths = pc.binary_length(statements.dictionary)
    return pc.fill_null(lengths.take(statements.indices), 0).to_numpy()  # type: ignore[no-any-return]


def _texts(chunk: Chunk, notes: np.ndarray) -> list[str]:
    tail = np.where(notes["parent"] < 0, chunk.journal_format.checksum_bytes, 0)
    starts = notes["start"] + HEADER_BYTES + (notes["event_type"] == EventType.ROWS_QUERY)
    stops = notes["start"] + notes["event_length"] - tail
    data = chunk.data.data
    return [
        str(data[start:stop], "utf-8", "replace")
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
