"""The alignment of two logs by content (K7), as a pure function against its rule."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.position.overlap import OverlapMatch, Transactions, match_overlap


def made(values: list[int], times: list[int] | None = None) -> Transactions:
    hashes = np.array([[value, value * 3 + 1] for value in values], dtype=np.uint64).reshape(-1, 2)
    commit_us = np.array(times if times is not None else [0] * len(values), dtype=np.int64)
    return Transactions(hashes, commit_us)


def test_k7_what_is_in_both_is_skipped() -> None:
    history = made([1, 2, 3, 4])
    assert match_overlap(history, made([1, 2, 3, 4, 5])) == OverlapMatch(4, is_whole=True)
    assert match_overlap(history, made([3, 4, 5])) == OverlapMatch(2, is_whole=True)
    assert match_overlap(history, made([3, 4])) == OverlapMatch(2, is_whole=True)
    # The replica had not got the last ones.
    assert match_overlap(history, made([2, 3, 9])) == OverlapMatch(2, is_whole=False)
    assert match_overlap(history, made([2, 3])) == OverlapMatch(2, is_whole=False)


def test_k7_nothing_is_skipped_from_the_first_difference_on() -> None:
    history = made([1, 2, 3, 4])
    assert match_overlap(history, made([1, 9, 3, 4, 5])) == OverlapMatch(1, is_whole=False)
    assert match_overlap(history, made([9, 2, 3, 4])) == OverlapMatch(0, is_whole=False)
    # Older than the history, which is there as a whole.
    assert match_overlap(history, made([8, 9, 1, 2, 3, 4, 5])) == OverlapMatch(6, is_whole=True)
    assert match_overlap(history, made([8, 9, 1, 2, 3])) == OverlapMatch(0, is_whole=False)
    assert match_overlap(history, made([])) == OverlapMatch(0, is_whole=False)
    assert match_overlap(made([]), made([1])) == OverlapMatch(0, is_whole=False)


def test_k7_of_equal_alignments_the_times_decide_and_then_the_shortest() -> None:
    history = made([7, 7, 7], [10, 20, 30])
    assert match_overlap(history, made([7, 7, 7, 7], [20, 30, 40, 50])) == OverlapMatch(
        2, is_whole=True
    )
    assert match_overlap(history, made([7, 7, 7, 7], [10, 20, 30, 40])) == OverlapMatch(
        3, is_whole=True
    )
    # Times that say nothing: least is skipped.
    assert match_overlap(history, made([7, 7, 7, 7], [61, 62, 63, 64])) == OverlapMatch(
        1, is_whole=True
    )


def test_k7_two_transactions_are_the_same_by_both_halves_of_their_hash() -> None:
    for half in (0, 1):
        history, stream = made([1, 2, 3]), made([1, 2, 3])
        stream.hashes[1, half] += 1
        assert match_overlap(history, stream) == OverlapMatch(1, is_whole=False)


@given(
    st.lists(st.integers(1, 1 << 40), min_size=1, max_size=30, unique=True),
    st.data(),
)
def test_k7_no_transaction_that_is_new_is_ever_skipped(
    values: list[int], data: st.DataObject
) -> None:
    """Distinct transactions: what is skipped is in the history, or older than all of it."""
    history = made(values)
    first = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(first, len(values)))
    news = data.draw(st.lists(st.integers((1 << 40) + 1, 1 << 41), max_size=5))
    stream = values[first:stop] + news
    match = match_overlap(history, made(stream))
    assert match.skipped == stop - first
    assert match.is_whole == (stop == len(values) and stop > first)
