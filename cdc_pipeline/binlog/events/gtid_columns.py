"""GTIDs of transactions as columns: a key and a number each, without one Python object per
transaction.

Rules:
- A key is ``uuid``, ``uuid:tag`` or ``domain-server``, as in `gtid`; keys are few, and numbered as
  they appear.
- Anonymous transactions and those of logs without GTIDs have key -1.
- Chunks come in log order; a transaction that is still open is remembered from the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.events.gtid import gtid_rows

_NO_KEY = -1


@dataclass(frozen=True, slots=True)
class Gtids:
    """GTIDs of n transactions or events.

    Attributes:
        keys: all keys so far, each with the separator before the number.
        key: int32 (n,): index into `keys`, or NO_KEY.
        number: int64 (n,).
    """

    keys: list[str]
    key: NDArray[np.int32]
    number: NDArray[np.int64]

    def text(self, index: int) -> str | None:
        """The GTID at `index`; None without one."""
        key = int(self.key[index])
        return None if key < 0 else f"{self.keys[key]}{int(self.number[index])}"


class GtidColumns:
    def __init__(self) -> None:
        self.keys: list[str] = []
        self._places: dict[str, int] = {}
        self._journal = ""
        self._offset = np.empty(0, np.int64)
        self._key = np.empty(0, np.int32)
        self._number = np.empty(0, np.int64)

    def feed(self, chunk: Chunk) -> None:
        """Read the GTID events of a chunk. Raises the errors of `gtid_rows`."""
        found = gtid_rows(chunk, 0, len(chunk.events))
        separator = "-" if chunk.journal_format.is_mariadb else ":"
        indexes = [self._key_index(key + separator) for key in found.keys]
        key = np.array(indexes, np.int32)[found.key]
        last = slice(-1, None) if chunk.journal == self._journal else slice(0, 0)
        self._journal = chunk.journal
        self._offset = np.concatenate([self._offset[last], chunk.events["offset"][found.rows]])
        self._key = np.concatenate([self._key[last], key])
        self._number = np.concatenate([self._number[last], found.numbers])

    def of_transactions(self, tx_offset: NDArray[np.int64]) -> Gtids:
        """Return the GTIDs of the transactions that begin at the offsets `tx_offset`
        (n,) of the last chunk.
        """
        if not len(self._offset):
            return Gtids(
                self.keys,
                np.full(len(tx_offset), _NO_KEY, np.int32),
                np.zeros(len(tx_offset), np.int64),
            )
        at = np.minimum(np.searchsorted(self._offset, tx_offset), len(self._offset) - 1)
        key = np.where(self._offset[at] == tx_offset, self._key[at], np.int32(_NO_KEY))
        return Gtids(self.keys, key, self._number[at])

    def _key_index(self, key: str) -> int:
        place = self._places.setdefault(key, len(self.keys))
        if place == len(self.keys):
            self.keys.append(key)
        return place
