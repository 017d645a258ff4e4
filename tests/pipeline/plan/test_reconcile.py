"""Cursor against cut (K3): every line of the decision table."""

import pytest

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.records import Cut, Interval
from cdc_pipeline.pipeline.plan.reconcile import reconcile
from cdc_pipeline.position.cursor import CursorState, TargetState


def _cursor(batch_number: int, offset: int = 500, server_id: int = 1) -> CursorState:
    return CursorState(
        source="shop",
        batch_number=batch_number,
        flavor="mysql",
        server_id=server_id,
        journal="binlog.000001",
        offset=offset,
    )


def _cut(batch_number: int, offset: int = 500) -> Cut:
    interval = Interval(
        start_journal="binlog.000001",
        start_offset=4,
        end_journal="binlog.000001",
        end_offset=offset,
    )
    return Cut(
        source="shop",
        batch_number=batch_number,
        published_at_us=0,
        interval=interval,
        cursor=_cursor(batch_number, offset),
    )


def test_first_run_has_neither() -> None:
    assert reconcile(None, None).cursor is None


def test_k3_lost_cursor_is_rebuilt_from_the_last_cut() -> None:
    found = reconcile(None, _cut(3))
    assert found.cursor == _cut(3).cursor
    assert found.emit


def test_k3_cursor_behind_the_cut_is_moved_to_it() -> None:
    found = reconcile(_cursor(2, 400), _cut(3))
    assert found.cursor == _cut(3).cursor
    assert found.emit


def test_k3_position_may_move_under_the_same_number() -> None:
    found = reconcile(_cursor(3, 900), _cut(3, 500))
    assert found.cursor == _cursor(3, 900)
    assert not found.emit


def test_k3_cursor_of_the_same_number_never_goes_back() -> None:
    assert reconcile(_cursor(3, 100), _cut(3, 500)).cursor == _cut(3, 500).cursor


@pytest.mark.parametrize("cut", [None, _cut(2)])
def test_k3_cursor_ahead_of_the_lake_stops(cut: Cut | None) -> None:
    with pytest.raises(LakeStateError, match="ahead of the lake") as caught:
        reconcile(_cursor(3), cut)
    assert caught.value.next_step


def test_cursor_of_another_server_stops() -> None:
    with pytest.raises(LakeStateError, match="different servers"):
        reconcile(_cursor(3, server_id=2), _cut(3))


def test_k1_a_cursor_that_has_moved_to_another_server_is_of_a_later_epoch() -> None:
    """Under the same number the position alone has moved: into the log of the other server."""
    moved = _cursor(3, 100, server_id=2).model_copy(update={"epoch": 2})
    found = reconcile(moved, _cut(3, 500))
    assert found.cursor == moved
    assert not found.emit


def test_k3_a_cursor_behind_is_moved_into_the_log_of_another_server() -> None:
    cut = _cut(3, 500)
    later = cut.model_copy(
        update={"cursor": _cursor(3, 500, server_id=2).model_copy(update={"epoch": 2})}
    )
    found = reconcile(_cursor(2, 900), later)
    assert found.cursor == later.cursor
    assert found.emit
    # Of the same number, and of an epoch before.
    assert reconcile(_cursor(3, 900), later).cursor == later.cursor


def test_k3_an_epoch_later_than_that_of_a_cut_with_a_higher_number_stops() -> None:
    with pytest.raises(LakeStateError, match="epoch") as caught:
        reconcile(_cursor(2, server_id=2).model_copy(update={"epoch": 2}), _cut(3))
    assert caught.value.next_step


def test_cursor_before_any_batch_is_kept() -> None:
    assert reconcile(_cursor(0), None).cursor == _cursor(0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gtid_set", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"),
        ("journal_created_s", 7),
        (
            "targets",
            {"a.b": TargetState(table="a.b", app_id="x", table_version=1, applied_batch=1)},
        ),
    ],
)
def test_k3_a_cursor_that_contradicts_the_cut_at_its_own_place_gives_way(
    field: str, value: object
) -> None:
    """The reason names what differs; later in the log the same field is the cursor's own."""
    found = reconcile(_cursor(3, 500).model_copy(update={field: value}), _cut(3, 500))
    assert (found.cursor, found.emit) == (_cut(3, 500).cursor, True)
    assert field in found.reason
    later = _cursor(3, 900).model_copy(update={field: value})
    assert reconcile(later, _cut(3, 500)).cursor == later


def test_k3_every_outcome_has_a_reason() -> None:
    cursors = [None, *(_cursor(batch, offset) for batch in (0, 2, 3) for offset in (100, 500, 900))]
    stopped = []
    for cursor in cursors:
        for cut in (None, _cut(3)):
            try:
                found = reconcile(cursor, cut)
            except LakeStateError as error:
                stopped.append(error.next_step)
                continue
            assert found.reason
            assert not found.emit or found.cursor == _cut(3).cursor
    assert len(stopped) == 6  # batches 2 and 3 without a cut
    assert all(stopped)
