"""Cursor against cut (K3): every line of the decision table."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cdc_pipeline
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.records import Cut, Interval
from cdc_pipeline.operations.cursor.cursor_change import apply_rebuild, plan_rebuild
from cdc_pipeline.position.cursor import (
    CursorState,
    MemoryCursorStore,
    OpenXa,
    ShortCursor,
    StoredCursor,
    Suspension,
    TargetState,
    parse_cursor,
)
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.short_cursor import short_document
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.reconcile import Reconciled, reconcile
from cdc_pipeline.run.publish import Publisher


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
        start=Position("binlog.000001"),
        end=Position("binlog.000001", offset),
    )
    return Cut(
        source="shop",
        batch_number=batch_number,
        published_at_us=0,
        interval=interval,
        cursor=_cursor(batch_number, offset),
    )


def _in_epoch_2(batch_number: int, offset: int) -> CursorState:
    return _cursor(batch_number, offset, server_id=2).model_copy(update={"epoch": 2})


def _cut_in_epoch_2(batch_number: int, offset: int) -> Cut:
    return _cut(batch_number, offset).model_copy(
        update={"cursor": _in_epoch_2(batch_number, offset)}
    )


@pytest.mark.parametrize(
    ("cursor", "cut", "is_moved"),
    [
        (_cursor(0), None, False),
        (None, _cut(3), True),  # lost
        (_cursor(2, 400), _cut(3), True),
        # The position may move under the same number, but never back.
        (_cursor(3, 900), _cut(3, 500), False),
        (_cursor(3, 100), _cut(3, 500), True),
        # K1: under the same number it has moved into the log of another server.
        (_in_epoch_2(3, 100), _cut(3, 500), False),
        (_cursor(2, 900), _cut_in_epoch_2(3, 500), True),
        (_cursor(3, 900), _cut_in_epoch_2(3, 500), True),
    ],
)
def test_k1_k3_the_cursor_stays_or_is_moved_to_the_cut(
    cursor: CursorState | None, cut: Cut | None, is_moved: bool
) -> None:
    found = reconcile(cursor, cut)
    assert found.emit is is_moved
    assert found.cursor == (cut.cursor if is_moved and cut is not None else cursor)


def test_first_run_has_neither() -> None:
    assert reconcile(None, None).cursor is None


@pytest.mark.parametrize(
    ("cursor", "cut", "why"),
    [
        (_cursor(3), None, "ahead of the lake"),
        (_cursor(3), _cut(2), "ahead of the lake"),
        (_cursor(3, server_id=2), _cut(3), "different servers"),
        (_in_epoch_2(2, 500), _cut(3), "epoch"),
    ],
)
def test_k3_a_cursor_that_cannot_be_of_this_lake_stops(
    cursor: CursorState, cut: Cut | None, why: str
) -> None:
    with pytest.raises(LakeStateError, match=why) as caught:
        reconcile(cursor, cut)
    assert caught.value.next_step
    assert ("`dagster asset wipe shop/cursor`" in caught.value.next_step) == (cut is None)


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


# -- short cursors ---------------------------------------------------------------------------------

_UUIDS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562")
_STATES = {
    name: TargetState(
        table=name,
        app_id=f"app-{name}",
        table_version=version,
        applied_batch=version,
        suspended=Suspension(batch_number=2, error="E", what="ä", journal="binlog.000001", offset=9)
        if version == 3
        else None,
    )
    for name, version in (("a.b", 1), ("a.ü", 2), ("b.c", 3))
}
_XA = OpenXa(xid="X'61'", begin=Position("binlog.000001", 90))


def _stored(cursor: CursorState, cut: Cut | None) -> StoredCursor:
    """The cursor as a store without room reads it again."""
    document = short_document(cursor, None if cut is None else cut.cursor, bytes_max=0)
    return parse_cursor(json.dumps(document), where="a test")


def _outcome(stored: StoredCursor | None, cut: Cut | None) -> Reconciled | str:
    try:
        return reconcile(stored, cut)
    except LakeStateError as error:
        return f"{error.what}: {error.next_step}"


@st.composite
def _states(draw: st.DrawFn, numbers: tuple[int, ...] = (2, 3)) -> CursorState:
    last = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    gtid_set = ",".join(f"{u}:1-{n + 1}" for u, n in zip(_UUIDS, last, strict=True) if n)
    return _cursor(
        draw(st.sampled_from(numbers)), draw(st.sampled_from((100, 500, 900)))
    ).model_copy(
        update={
            "epoch": draw(st.sampled_from((1, 2))),
            "gtid_set": gtid_set,
            "targets": {
                name: _STATES[name] for name in draw(st.sets(st.sampled_from(list(_STATES))))
            },
            "open_xa": draw(st.sampled_from(((), (_XA,)))),
            "shadows": draw(st.sampled_from(({}, {"a._b_gho": "{}"}))),
        }
    )


def _cut_of(cursor: CursorState) -> Cut:
    return _cut(cursor.batch_number, cursor.offset).model_copy(update={"cursor": cursor})


@given(_states(), _states())
def test_k3_a_short_cursor_is_decided_like_the_whole_one(
    cursor: CursorState, at_cut: CursorState
) -> None:
    """Of the cut that it was written after, whatever has changed since under its number."""
    cut = _cut_of(at_cut)
    stored = _stored(cursor, cut)
    assert _outcome(stored, cut) == _outcome(cursor, cut)
    assert stored.sort_key == cursor.sort_key
    assert stored.identity == cursor.identity


@given(_states((3,)), _states((3,)), _states())
def test_k3_a_short_cursor_never_takes_its_parts_from_another_cut(
    cursor: CursorState, at_cut: CursorState, of_now: CursorState
) -> None:
    """The lake was restored: the cursor as it was written, the lake's own, or a stop."""
    now = _cut_of(of_now)
    found = _outcome(_stored(cursor, _cut_of(at_cut)), now)
    if not isinstance(found, str):
        assert found.cursor in (cursor, now.cursor)
        assert found.emit == (found.cursor == now.cursor != cursor) or found.cursor == cursor
    if isinstance(_outcome(cursor, now), str):
        assert found == _outcome(cursor, now)


def _with_targets(cut: Cut, *names: str) -> Cut:
    targets = {name: _STATES[name] for name in names}
    cursor = cut.cursor.model_copy(update={"targets": targets})
    return cut.model_copy(update={"cursor": cursor})


def _short(offset: int = 500) -> ShortCursor:
    """Of batch 3, with two targets, written after the cut at 500."""
    cut = _with_targets(_cut(3), "a.b", "b.c")
    stored = _stored(cut.cursor.model_copy(update={"offset": offset}), cut)
    assert isinstance(stored, ShortCursor)
    assert stored.targets is None
    return stored


def test_k3_a_short_cursor_has_its_targets_from_its_cut() -> None:
    cut = _with_targets(_cut(3), "a.b", "b.c")
    for offset in (500, 900):
        found = reconcile(_short(offset), cut)
        assert found.cursor == cut.cursor.model_copy(update={"offset": offset})
        assert not found.emit


def test_k3_a_short_cursor_later_than_another_cut_of_its_number_stops() -> None:
    with pytest.raises(LakeStateError, match="after another cut of its number") as caught:
        reconcile(_short(900), _with_targets(_cut(3), "a.b"))
    assert "cursor rebuild shop --yes" in caught.value.next_step


def test_k3_a_short_cursor_at_another_cut_of_its_place_gives_way() -> None:
    cut = _with_targets(_cut(3), "a.b")
    found = reconcile(_short(), cut)
    assert (found.cursor, found.emit) == (cut.cursor, True)
    assert "targets" in found.reason


@pytest.mark.parametrize("cut", [None, _cut(2)])
def test_k3_a_short_cursor_ahead_of_the_lake_stops(cut: Cut | None) -> None:
    with pytest.raises(LakeStateError, match="ahead of the lake"):
        reconcile(_short(), cut)


def test_k3_a_short_cursor_behind_is_moved_to_the_cut() -> None:
    cut = _with_targets(_cut(4, 900), "a.b")
    assert reconcile(_short(), cut).cursor == cut.cursor
    assert reconcile(_short(), _with_targets(_cut(3, 900), "a.b")).emit


# -- cursors of other lakes ------------------------------------------------------------------------


def test_k3_f172_a_cursor_later_than_another_cut_of_its_number_stops(tmp_path: Path) -> None:
    """A lake of the same source with as many cuts, whose runs wrote the same cursor."""

    def lake(name: str) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "archive", "directory": SHOP_DIRECTORY / "journals"},
                "tables": {"include": ["shop.orders"]},
                "sink": {"lake_path": tmp_path / name},
            }
        )

    def rows(name: str) -> int:
        found: int = cdc_pipeline.read(tmp_path / name, "shop.orders").read_all().num_rows
        return found

    capture(lake("one"), cursors=MemoryCursorStore(), bound=cdc_pipeline.bound_of(transactions=40))
    cursors = MemoryCursorStore(source="shop")
    capture(lake("other"), cursors=cursors, bound=cdc_pipeline.bound_of(transactions=80))
    assert rows("one") < rows("other")
    with pytest.raises(LakeStateError, match="after another cut of its number") as caught:
        capture(lake("one"), cursors=cursors)
    assert "cursor rebuild shop --yes" in caught.value.next_step
    change = plan_rebuild(lake("one"), cursors=cursors, who="a person")
    apply_rebuild(lake("one"), cursors=cursors, change=change)
    capture(lake("one"), cursors=cursors)
    capture(lake("other"), cursors=MemoryCursorStore())
    assert rows("one") == rows("other")


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize(("written_us", "stops"), [(0, False), (7, False), (8, True)])
def test_k3_f172_a_later_cursor_is_of_the_cut_that_it_was_written_after(
    is_short: bool, written_us: int, stops: bool
) -> None:
    cut = _with_targets(_cut(3), "a.b").model_copy(update={"published_at_us": 7})
    update = {"offset": 900, "cut_published_at_us": written_us}
    later = cut.cursor.model_copy(update=update)
    stored = _stored(later, cut) if is_short else later
    if stops:
        with pytest.raises(LakeStateError, match="after another cut of its number"):
            reconcile(stored, cut)
    else:
        assert reconcile(stored, cut).cursor == later


def test_k3_f172_a_cursor_that_moves_alone_names_the_cut_that_is_there() -> None:
    cut, cursors = _cut(3).model_copy(update={"published_at_us": 7}), MemoryCursorStore()
    sink: Any = SimpleNamespace(last_cut=lambda: cut)
    Publisher(sink, cursors).move(_cursor(3, 900), cut.interval)
    assert cursors.cursor is not None
    assert cursors.cursor.cut_published_at_us == 7
