"""Which transactions of another server's log were applied already, by their content (K7).

Rules:
- Pure: two lists of content hashes in the order of their logs, the *history* of what was applied and the *stream* of
  what the new server has from the found position on.
- The stream's first transaction must be in the history, or the whole history in the stream; else nothing is skipped.
- From there both must agree, one by one: what agrees is skipped; from the first difference on nothing is.
- Where more than one alignment does (the same change again and again), the one that reaches the history's end wins,
  then the one whose commit times agree most often, then the one that skips least: a transaction that is applied twice
  is made good by what follows it, one that is skipped is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Transactions:
    """Consecutive transactions of a log; n of them.

    Attributes:
        hashes: uint64 (n, 2), content hashes.
        commit_us: int64 (n,), commit times in microseconds since 1970 UTC.
    """

    hashes: NDArray[np.uint64]
    commit_us: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class OverlapMatch:
    """The best alignment.

    Attributes:
        skipped: transactions at the stream's begin that were applied already.
        is_whole: whether they reach the end of the history.
    """

    skipped: int
    is_whole: bool


def match_overlap(history: Transactions, stream: Transactions) -> OverlapMatch:
    """Align `stream` with `history`."""
    best, best_rank = OverlapMatch(0, is_whole=False), (False, -1, 0)
    if not len(history) or not len(stream):
        return best
    for first in _places(history.hashes, stream.hashes[0]):
        length = min(len(history) - first, len(stream))
        same = _agreeing(history.hashes[first : first + length], stream.hashes[:length])
        is_whole = first + same == len(history)
        times = int(np.count_nonzero(history.commit_us[first : first + same] == stream.commit_us[:same]))
        rank = (is_whole, times, -same)
        if rank > best_rank:
            best, best_rank = OverlapMatch(same, is_whole), rank
    for first in _places(stream.hashes, history.hashes[0]):
        if not first or len(stream) - first < len(history):
            continue
        same = _agreeing(history.hashes, stream.hashes[first : first + len(history)])
        if same < len(history):
            continue
        times = int(np.count_nonzero(history.commit_us == stream.commit_us[first : first + same]))
        rank = (True, times, -(first + same))
        if rank > best_rank:
            best, best_rank = OverlapMatch(first + same, is_whole=True), rank
    return best


def _places(hashes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> list[int]:
    places: list[int] = np.flatnonzero((hashes[:, 0] == wanted[0]) & (hashes[:, 1] == wanted[1])).tolist()
    return places


def _agreeing(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> int:
    """How many transactions agree before the first that differs."""
    differs = np.flatnonzero((one != other).any(axis=1))
    return int(differs[0]) if len(differs) else len(one)
