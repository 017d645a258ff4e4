"""One contract over the three cursor stores (SPEC P2, P10, K3)."""

from __future__ import annotations

import pytest

from cdc_pipeline.errors import CursorError
from tests.support.cursor_stores import KINDS, SHARED, Opener, state

every = pytest.mark.parametrize("opener", KINDS, indirect=True)
shared = pytest.mark.parametrize("opener", SHARED, indirect=True)


@every
def test_k3_no_cursor_is_none_and_no_history(opener: Opener) -> None:
    assert opener().read() is None
    assert opener().history(5) == []


@every
def test_p10_a_cursor_comes_back_whole(opener: Opener) -> None:
    written = state(3).model_copy(
        update={"gtid_set": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9", "address": "hôst:1"}
    )
    opener().write(written, {"interval": {"start": {"journal": "b.1", "offset": 4}}, "cut": 3})
    assert opener().read() == written


@every
def test_p2_the_latest_wins_and_history_is_newest_first(opener: Opener) -> None:
    store = opener()
    # A position may move under one number, an epoch may begin at a lower place, a number may rise
    # in one place.
    written = [
        state(1),
        state(1, offset=5000),
        state(1, offset=4, epoch=2),
        state(2, offset=4, epoch=2),
        state(10),
    ]
    for number, value in enumerate(written):
        store.write(value, {"note": f"number {number}"})
    assert opener().read() == written[-1]
    entries = opener().history(100)
    assert [entry.cursor for entry in entries] == written[::-1]
    assert [entry.metadata["note"] for entry in entries] == [f"number {n}" for n in (4, 3, 2, 1, 0)]
    assert [entry.at_us for entry in entries] == sorted(
        (entry.at_us for entry in entries), reverse=True
    )
    assert entries[0].at_us > 1_700_000_000_000_000
    assert all(entry.where for entry in entries)
    assert opener().history(2) == entries[:2]
    assert opener().history(0) == []


@every
def test_k3_another_sources_cursor_is_refused(opener: Opener) -> None:
    opener().write(state(1), {})
    with pytest.raises(CursorError, match="another source"):
        opener().write(state(2, source="crm"), {})
    assert opener().read() == state(1)


@every
def test_k3_only_a_persons_decision_goes_back(opener: Opener) -> None:
    store = opener()
    store.write(state(5), {})
    for earlier in (state(4), state(5, offset=900)):
        with pytest.raises(CursorError, match="would move back"):
            store.write(earlier, {})
    assert opener().read() == state(5)
    store.write(state(4), {}, replace=True)
    assert opener().read() == state(4)
    assert [entry.cursor for entry in opener().history(9)] == [state(4), state(5)]


@every
def test_p1_places_of_two_servers_are_not_compared(opener: Opener) -> None:
    """After a failover the same transaction may end at a lower offset; the batch number and the
    epoch still hold."""
    store = opener()
    store.write(state(5, offset=9000), {})
    moved = state(5, offset=400).model_copy(
        update={"server_uuid": "11111111-71ca-11e1-9e33-c80aa9429562"}
    )
    store.write(moved, {})
    assert opener().read() == moved
    with pytest.raises(CursorError, match="would move back"):
        store.write(state(4), {})


@shared
def test_k3_compare_and_swap_a_second_writer_is_refused(opener: Opener) -> None:
    opener().write(state(1), {})
    one, other = opener(), opener()
    assert one.read() == other.read() == state(1)
    one.write(state(2), {})
    with pytest.raises(CursorError, match="another writer"):
        other.write(state(2, offset=9000), {})
    with pytest.raises(CursorError, match="another writer"):
        other.write(state(3), {}, replace=True)
    assert opener().read() == state(2)
    assert other.read() == state(2)  # who reads again may go on
    other.write(state(3), {})
    assert opener().read() == state(3)


@shared
def test_k3_compare_and_swap_holds_for_the_first_cursor_too(opener: Opener) -> None:
    one, other = opener(), opener()
    assert one.read() is None
    assert other.read() is None
    one.write(state(1), {})
    with pytest.raises(CursorError, match="another writer"):
        other.write(state(2), {})
    assert opener().read() == state(1)
