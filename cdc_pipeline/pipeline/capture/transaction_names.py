"""Names of transactions for changelogs: the GTID, or else ``journal:offset``.

The offset is that of the first event. Rules:
- A change's seq names the transaction that makes it effective (K1): for rows of a prepared XA
  transaction that of XA COMMIT.
- GTIDs are read from the present slices, and only if a changelog needs them; that of an open
  transaction is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.binlog.events.gtid import gtid_texts
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.seq_columns import transactions


class TransactionNames:
    """Of the transactions that are being drained."""

    def __init__(self) -> None:
        self._slices: Sequence[EventSlice] = ()
        self._names_known: dict[tuple[int, int], str] | None = None
        self._open: dict[tuple[int, int], str] = {}
        self._journals: dict[int, str] = {}

    def coming(self, slices: Sequence[EventSlice]) -> None:
        """Use these slices for the changes that follow."""
        self._slices, self._names_known = slices, None
        for piece in slices:
            self._journals[journal_number(piece.chunk.journal)] = piece.chunk.journal

    def opened(self, journal: str, tx_offset: int, gtid: str) -> None:
        """Begin a transaction that comes in pieces."""
        self._open = {(journal_number(journal), tx_offset): gtid} if gtid else {}

    def of_rows(self, seq: pa.Array) -> pa.Array:
        """Names of the transactions of n changes: strings (n,)."""
        numbers, offsets = transactions(seq)
        places, which = np.unique(np.stack([numbers, offsets], axis=1), axis=0, return_inverse=True)
        known = self._known()
        names = [
            known.get((number, at)) or f"{self._journals[number]}:{at}"
            for number, at in places.tolist()
        ]
        return pa.array(names, pa.string()).take(pa.array(which.reshape(-1)))

    def _known(self) -> dict[tuple[int, int], str]:
        if self._names_known is None:
            self._names_known = dict(self._open)
            for piece in self._slices:
                number = journal_number(piece.chunk.journal)
                texts = gtid_texts(piece.chunk, piece.first, piece.stop)
                self._names_known.update(((number, offset), text) for offset, text in texts.items())
        return self._names_known
