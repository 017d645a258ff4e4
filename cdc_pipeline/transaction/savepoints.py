"""Savepoints of one transaction: which of its events were undone by ROLLBACK TO.

Rules:
- MariaDB logs SAVEPOINT and ROLLBACK TO inside a transaction that touched a non-transactional
  table. Otherwise it cuts the undone rows out, as MySQL in ROW format always does (it logs the
  SAVEPOINT, never the ROLLBACK TO).
- Everything between a savepoint and the ROLLBACK TO it is undone. In ROW format there are no
  changes of non-transactional tables in between: both servers write these at once, as a separate
  group before the transaction, and that group stays (verified on MariaDB 10.11 and MySQL 9.7,
  including multi-table updates, triggers, failed statements and XA). So all rows in between count
  as undone, whatever their tables' engines.
- Names are compared by utf8mb3_general_ci, as on the servers: case and accents are ignored. A name
  that is set again replaces its older savepoint. ROLLBACK TO keeps its savepoint and removes all
  later ones.
- For a savepoint that was set before the transaction's first change, MariaDB logs a plain ROLLBACK,
  which ends the group; the savepoint itself was never logged.
"""

from __future__ import annotations

import unicodedata

import numpy as np
from numpy.typing import NDArray


class Savepoints:
    """The savepoints of one transaction, and the events undone so far, by their `tx_ordinal`."""

    def __init__(self) -> None:
        self._set: list[tuple[str, int]] = []  # folded name, ordinal of its SAVEPOINT; oldest first
        self._undone: list[tuple[int, int]] = []  # [first, stop), ascending, disjoint

    def set(self, name: str, ordinal: int) -> None:
        folded = fold(name)
        self._set = [known for known in self._set if known[0] != folded]
        self._set.append((folded, ordinal))

    def rollback_to(self, name: str, ordinal: int) -> bool:
        """False, unchanged, if there is no such savepoint."""
        at = self._find(name)
        if at < 0:
            return False
        first = self._set[at][1] + 1
        del self._set[at + 1 :]
        while self._undone and self._undone[-1][0] >= first:
            self._undone.pop()
        if first < ordinal:
            self._undone.append((first, ordinal))
        return True

    def release(self, name: str) -> None:
        """Apply RELEASE SAVEPOINT `name`: remove it and all later ones; nothing is undone."""
        at = self._find(name)
        if at >= 0:
            del self._set[at:]

    @property
    def undone(self) -> NDArray[np.int64]:
        """The undone ranges of ordinals: int64 (n, 2), [first, stop), ascending and disjoint."""
        return np.array(self._undone, dtype=np.int64).reshape(-1, 2)

    def _find(self, name: str) -> int:
        folded = fold(name)
        return next((at for at, known in enumerate(self._set) if known[0] == folded), -1)


def is_undone(ordinals: NDArray[np.int64], undone: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of n ordinals are in the ranges of `Savepoints.undone`: bool (n,)."""
    if not len(undone):
        return np.zeros(len(ordinals), dtype=np.bool_)
    at = np.searchsorted(undone[:, 0], ordinals, side="right") - 1
    found: NDArray[np.bool_] = (at >= 0) & (ordinals < undone[at, 1])
    return found


def fold(name: str) -> str:
    """A savepoint's name in the form that is compared."""
    letters = unicodedata.normalize("NFD", name)
    return (
        "".join(c for c in letters if not unicodedata.combining(c))
        .replace("ß", "s")
        .replace("ẞ", "s")
        .lower()
    )
