"""When a vacuum is due: whatever changes when, no file is forgotten, and a table at rest comes to
rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.sink.maintain.maintenance import VacuumState

RETENTION, EVERY = 7, 1


def _state(now: int) -> VacuumState:
    return VacuumState(app_id="a", applied_batch=1, changed_last_us=now)


def _is_due(state: VacuumState, now: int) -> bool:
    return state.is_due(now, retention_us=RETENTION, every_us=EVERY)


@given(st.lists(st.booleans(), max_size=60), st.integers(100, 103))
def test_no_replaced_file_outlives_its_retention_by_more_than_an_interval(
    changes: list[bool], begin: int
) -> None:
    """Twin: when files were replaced. Each day brings a change or none, then a maintenance."""
    state, left = _state(begin), [begin]
    for now, has_change in enumerate([*changes, *([False] * 20)], start=begin):
        if has_change:
            state = state.changed(now)
            left.append(now)
        if _is_due(state, now):
            state = state.vacuumed(now, retention_us=RETENTION, is_full=False)
            left = [moment for moment in left if moment > now - RETENTION]
        assert all(moment + RETENTION + EVERY > now for moment in left), (now, left)
    assert not left
    assert state.changed_first_us is None, "nothing is looked for any more"


def test_the_first_vacuum_is_due_at_once_and_lists_nothing() -> None:
    state = _state(100)
    assert _is_due(state, 100)
    assert not state.is_full_due(100, every_us=0)
    done = state.vacuumed(100, retention_us=RETENTION, is_full=False)
    assert not done.is_full_due(129, every_us=30)
    assert done.is_full_due(130, every_us=30)


def test_a_change_waits_for_its_retention() -> None:
    rest = _state(100).vacuumed(110, retention_us=RETENTION, is_full=False)
    assert rest.changed_first_us is None
    changed = rest.changed(120, applied_batch=7)
    assert changed.applied_batch == 7
    assert [now for now in range(120, 130) if _is_due(changed, now)] == [127, 128, 129]


def test_it_is_not_due_twice_within_the_interval() -> None:
    state = _state(100).vacuumed(100, retention_us=RETENTION, is_full=False)
    assert not state.is_due(101, retention_us=0, every_us=5)
    assert state.is_due(105, retention_us=0, every_us=5)


def test_k15_a_clock_that_was_ahead_puts_off_no_vacuum() -> None:
    """What was noted years ahead is as good as nothing: vacuums go on at their own interval."""
    ahead = _state(4000).changed(4001).vacuumed(4002, retention_us=RETENTION, is_full=True)
    for state in (ahead, ahead.changed(100), _state(4000)):
        assert _is_due(state, 101)
        done = state.vacuumed(101, retention_us=RETENTION, is_full=state.vacuum_us > 0)
        assert not _is_due(done, 101 + EVERY - 1)
    assert ahead.is_full_due(101, every_us=30)
