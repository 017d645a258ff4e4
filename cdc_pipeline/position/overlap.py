"""Find the transactions of another server's log that were already applied, by content (K7: apply
none twice).

Rules:
- Input are two lists of content hashes in log order: the *history* of applied transactions, and the
  *stream* of the new server's transactions from the found position on.
- The stream's first transaction must be in the history, or the whole history in the stream;
  otherwise nothing is skipped.
- From there on, transactions that are equal in both are skipped, up to the first difference.
- If several alignments match (the same change repeated), the one that reaches the history's end
  wins, then the one with the most equal commit times, then the one that skips least: later changes
  correct a transaction that is applied twice, but one that is skipped is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Transactions:
    """Consecutive ones: content `hashes` uint64 (n, 2), `commit_us` int64 (n,) since 1970 UTC."""

    hashes: NDArray[np.uint64]
    commit_us: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.hashes)

    def since(self, time_us: int) -> Transactions:
        is_later = self.commit_us >= time_us
        return Transactions(self.hashes[is_later], self.commit_us[is_later])


@dataclass(frozen=True, slots=True)
class OverlapMatch:
    """`skipped`: at the stream's begin; `is_whole`: these reach the end of the history."""

    skipped: int
    is_whole: bool


def match_overlap(history: Transactions, stream: Transactions) -> OverlapMatch:
    best, best_rank = OverlapMatch(0, is_whole=False), (False, -1, 0)
    if not len(history) or not len(stream):
        return best
    begins = [(begin, 0) for begin in _matches(history.hashes, stream.hashes[0])]
    begins += [(0, begin) for begin in _matches(stream.hashes, history.hashes[0])]
    for begin, before in begins:  # where the alignment begins in the history, and in the stream
        length = min(len(history) - begin, len(stream) - before)
        own, other = slice(begin, begin + length), slice(before, before + length)
        same = _agreeing(history.hashes[own], stream.hashes[other])
        is_whole = begin + same == len(history)
        if before and not is_whole:
            continue
        same_times = history.commit_us[own][:same] == stream.commit_us[other][:same]
        skipped = before + same
        rank = (is_whole, int(np.count_nonzero(same_times)), -skipped)
        if rank > best_rank:
            best, best_rank = OverlapMatch(skipped, is_whole), rank
    return best


def _matches(hashes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> list[int]:
    matches: list[int] = np.flatnonzero(
        (hashes[:, 0] == wanted[0]) & (hashes[:, 1] == wanted[1])
    ).tolist()
    return matches


def _agreeing(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> int:
    """How many transactions are equal before the first that differs."""
    differs = np.flatnonzero((first != second).any(axis=1))
    return int(differs[0]) if len(differs) else len(first)
