"""Bounds of a run: where each stops, that no transaction is torn, and that bounded runs join."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import SliceKind
from cdc_pipeline.config.pipeline_config import (
    Bound,
    BytesBoundConfig,
    GtidBoundConfig,
    PositionConfig,
    SecondsBoundConfig,
    TimeBoundConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.errors import PositionError
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.plan import limits
from cdc_pipeline.run.plan.limits import executed_before, make_limit
from tests.run.plan.bounded import FIRST_US, NEVER, SOURCE_UUID, Log, Told, build_log, run_once
from tests.support.memory_shop import MemoryShop, memory_shop

KINDS = st.sampled_from(["commit", "commit", "commit", "rollback", "ddl", "mark"])
TRANSACTION = st.tuples(KINDS, st.sampled_from([1, 1, 2, 15]), st.integers(0, 3))
JOURNAL = st.one_of(
    st.lists(TRANSACTION, max_size=3), st.lists(TRANSACTION, min_size=6, max_size=12)
)
ABANDONED = st.tuples(st.just("abandoned"), st.integers(1, 15), st.integers(0, 3))
JOURNALS = st.lists(JOURNAL, min_size=1, max_size=3)
TORN_JOURNALS = st.lists(
    st.builds(lambda a, b: [*a, *b], JOURNAL, st.lists(ABANDONED, max_size=1)),
    min_size=1,
    max_size=3,
)
# events of a chunk, of a slice
SIZES = st.sampled_from([(1, 1), (3, 2), (7, 4), (40, 16), (100, 64), (100, 8)])


def moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def ahead(log: Log, start: Position) -> list[Told]:
    """Transactions that begin at or after `start`."""
    return [told for told in log.told if Position(*told.begin).order >= start.order]


def log_bytes(log: Log, start: Position, end: tuple[str, int]) -> int:
    """Bytes of all events from `start` to `end`."""
    return sum(
        int(event["next_offset"] - event["offset"])
        for chunk in log.journals
        for event in chunk.events
        if start.order <= Position(chunk.journal, int(event["offset"])).order < Position(*end).order
    )


def twin(log: Log, bound: Bound, start: Position) -> int | None:
    """Number of the last transaction that belongs to the run, by hand: 0 for none, None where the
    limit is not met."""
    rest = ahead(log, start)
    first = rest[0].number if rest else 0
    if isinstance(bound, TransactionsBoundConfig):
        return rest[bound.transactions - 1].number if len(rest) >= bound.transactions else None
    if isinstance(bound, GtidBoundConfig):
        number = int(bound.gtid.rpartition(":")[2])
        return number if any(told.number == number for told in rest) else None
    if isinstance(bound, TimeBoundConfig):
        beyond = [told.number for told in rest if moment(told.commit_us) > bound.time]
        return None if not beyond else 0 if beyond[0] == first else beyond[0] - 1
    assert isinstance(bound, BytesBoundConfig)
    reached = [told.number for told in rest if log_bytes(log, start, told.end) >= bound.bytes]
    return reached[0] if reached else None


def bounds(log: Log) -> st.SearchStrategy[Bound]:
    number = st.integers(1, max(1, len(log.told)))
    return st.one_of(
        number.map(lambda n: TransactionsBoundConfig(transactions=n)),
        number.map(lambda n: GtidBoundConfig(gtid=f"{SOURCE_UUID}:{n}")),
        st.integers(0, 3_000).map(lambda n: BytesBoundConfig(bytes=n + 1)),
        st.integers(-1, 3 * len(log.told)).map(
            lambda s: TimeBoundConfig(time=moment(FIRST_US + s * 1_000_000))
        ),
    )


@settings(max_examples=100)
@given(JOURNALS, SIZES, st.data())
def test_every_limit_stops_where_a_twin_by_hand_says(
    shape: list[list[tuple[str, int, int]]], sizes: tuple[int, int], data: st.DataObject
) -> None:
    log = build_log(shape, chunk_events=sizes[0])
    bound = data.draw(bounds(log))
    run = run_once(log, bound, start=log.start, end=log.end, slice_events_max=sizes[1])
    expected = twin(log, bound, log.start)
    assert run.reader.limit_reached == (expected is not None)
    if expected is None:
        assert run.next_start.order == log.end.order
        assert (run.reader.error is not None) == isinstance(bound, GtidBoundConfig)
        return
    assert run.reader.error is None
    assert run.next_start.gtid_set == {0: "", 1: f"{SOURCE_UUID}:1"}.get(
        expected, f"{SOURCE_UUID}:1-{expected}"
    )
    if isinstance(bound, TimeBoundConfig):
        # Marks between the last transaction and the first one beyond may be read or not.
        assert Position(*log.told[expected].begin).order >= run.next_start.order
    else:
        assert (run.next_start.journal, run.next_start.offset) == log.told[expected - 1].end


@settings(max_examples=60)
@given(TORN_JOURNALS, SIZES, st.data())
def test_bounded_runs_deliver_what_one_run_delivers(
    shape: list[list[tuple[str, int, int]]], sizes: tuple[int, int], data: st.DataObject
) -> None:
    """Abandoned transactions (K5) included, in pieces and whole, offsets inside transactions
    too."""
    log = build_log(shape, chunk_events=sizes[0])
    whole = run_once(log, "end_of_log", start=log.start, end=log.end, slice_events_max=sizes[1])
    assert whole.reader.error is None
    offsets = [
        (chunk.journal, int(at)) for chunk in log.journals for at in chunk.events["next_offset"]
    ]
    start, delivered, runs = log.start, [], 0
    while start.order < log.end.order:
        runs += 1
        assert runs < 1_000
        before = start
        if data.draw(st.integers(0, 4)) == 0:
            end = Position(
                *data.draw(
                    st.sampled_from([at for at in offsets if Position(*at).order > start.order])
                )
            )
            run = run_once(
                log,
                "end_of_log",
                start=start,
                end=end,
                slice_events_max=sizes[1],
                ends_anywhere=True,
            )
        else:
            run = run_once(
                log, data.draw(bounds(log)), start=start, end=log.end, slice_events_max=sizes[1]
            )
        delivered += run.delivered
        start = run.next_start
        if start.order == before.order and not run.reader.limit_reached:
            run = run_once(log, TransactionsBoundConfig(transactions=1), start=start, end=log.end)
            delivered += run.delivered
            start = run.next_start
        elif start.order == before.order:
            # A time that has passed: the next transaction is beyond it.
            run = run_once(log, SecondsBoundConfig(seconds=1e-9), start=start, end=log.end)
            delivered += run.delivered
            start = run.next_start
        assert start.order > before.order
    assert delivered == whole.delivered
    assert start.gtid_set == whole.next_start.gtid_set


LARGE = [[("commit", 2, 0), ("commit", 40, 1), ("commit", 2, 1)]]


@pytest.mark.parametrize(
    "bound",
    [
        TransactionsBoundConfig(transactions=2),
        GtidBoundConfig(gtid=f"{SOURCE_UUID.upper()}:2"),
        BytesBoundConfig(bytes=800),
        TimeBoundConfig(time=moment(FIRST_US + 1_000_000)),
    ],
    ids=["transactions", "gtid", "bytes", "time"],
)
def test_t4_a_limit_inside_a_large_transaction_stops_at_its_end(bound: Bound) -> None:
    log = build_log(LARGE, chunk_events=9)
    run = run_once(log, bound, start=log.start, end=log.end)
    assert run.slices[-1].kind is SliceKind.LAST_PIECE
    assert (run.next_start.journal, run.next_start.offset) == log.told[1].end
    assert run.reader.bytes_expected == sum(piece.journal_bytes for piece in run.slices)


def test_k5_the_gtid_of_an_abandoned_transaction_is_not_the_one() -> None:
    """It was never committed, so that it neither ends the run nor makes the next transaction do
    so."""
    log = build_log(
        [[("commit", 1, 0), ("abandoned", 30, 1)], [("commit", 3, 1), ("commit", 1, 1)]],
        chunk_events=5,
    )
    run = run_once(
        log, GtidBoundConfig(gtid=f"{SOURCE_UUID}:{NEVER}"), start=log.start, end=log.end
    )
    assert [piece.kind for piece in run.slices].count(SliceKind.ABANDONED) == 1
    assert isinstance(run.reader.error, PositionError)
    assert run.next_start.order == log.end.order


def test_seconds_stop_at_the_first_end_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    log = build_log([[("commit", 1, 0)] * 6])
    now_s = iter(range(100, 200))
    # One slice a second: reading begins at 100, the third slice is read at 103.
    monkeypatch.setattr(limits.time, "monotonic", lambda: next(now_s))
    run = run_once(
        log, SecondsBoundConfig(seconds=5), start=log.start, end=log.end, slice_events_max=1
    )
    monkeypatch.undo()
    assert run.reader.limit_reached
    assert len(run.slices) > 4
    assert (run.next_start.journal, run.next_start.offset) in [told.end for told in log.told[:2]]


def test_seconds_read_at_least_one_transaction_and_may_never_be_met() -> None:
    log = build_log([[("commit", 3, 0)] * 4])
    run = run_once(log, SecondsBoundConfig(seconds=1e-9), start=log.start, end=log.end)
    assert (run.next_start.journal, run.next_start.offset) == log.told[0].end
    run = run_once(log, SecondsBoundConfig(seconds=3600), start=log.start, end=log.end)
    assert not run.reader.limit_reached
    assert run.next_start.order == log.end.order


def test_progress_is_told_by_the_limits_own_measure() -> None:
    log = build_log([[("commit", 3, 1)] * 8])
    for bound in (TransactionsBoundConfig(transactions=4), BytesBoundConfig(bytes=900)):
        limit = make_limit(bound, "mysql")
        assert limit is not None
        assert limit.share == 0
        run = run_once(log, bound, start=log.start, end=log.end)
        assert run.limit is not None
        assert run.limit.share is not None
        assert 0.7 < run.limit.share <= 1
    for bound in (TimeBoundConfig(time=moment(FIRST_US)), GtidBoundConfig(gtid=f"{SOURCE_UUID}:3")):
        limit = make_limit(bound, "mysql")
        assert limit is not None
        assert limit.share is None


# -- a GTID at planning time -----------------------------------------------------------------------


def at(gtid_set: str) -> Position:
    return Position("binlog.000001", 4, gtid_set=gtid_set)


@pytest.mark.parametrize(
    ("gtid", "start", "end", "is_before"),
    [
        (f"{SOURCE_UUID}:7", f"{SOURCE_UUID}:1-5", f"{SOURCE_UUID}:1-9", False),
        (f"{SOURCE_UUID}:5", f"{SOURCE_UUID}:1-5", f"{SOURCE_UUID}:1-9", True),
        (f"{SOURCE_UUID}:TAG:7", f"{SOURCE_UUID}:1-9", f"{SOURCE_UUID}:1-9:tag:1-7", False),
        (f"{SOURCE_UUID}:tag:7", f"{SOURCE_UUID}:1-9:tag:7", f"{SOURCE_UUID}:1-9:tag:1-7", True),
        ("0-1-7", "0-1-5", "0-1-9,1-1-3", False),
        ("0-1-5", "0-2-6,1-1-3", "0-2-9,1-1-3", True),
        ("1-1-3", "0-1-9", "0-1-9,1-1-3", False),
    ],
)
def test_a_gtid_before_the_start_leaves_nothing_to_do(
    gtid: str, start: str, end: str, is_before: bool
) -> None:
    flavor = "mysql" if SOURCE_UUID in gtid else "mariadb"
    bound = GtidBoundConfig(gtid=gtid)
    assert executed_before(bound, start=at(start), log_end=at(end), flavor=flavor) == is_before


@pytest.mark.parametrize(
    ("gtid", "end", "flavor", "text"),
    [
        (f"{SOURCE_UUID}:10", f"{SOURCE_UUID}:1-9", "mysql", "not in the log yet"),
        (f"{SOURCE_UUID}:tag:1", f"{SOURCE_UUID}:1-9", "mysql", "not in the log yet"),
        ("0-1-10", "0-1-9", "mariadb", "not in the log yet"),
        ("3-1-1", "0-1-9", "mariadb", "not in the log yet"),
        (f"{SOURCE_UUID}:1-2", f"{SOURCE_UUID}:1-9", "mysql", "not the GTID of one transaction"),
        ("", f"{SOURCE_UUID}:1-9", "mysql", "not the GTID of one transaction"),
        ("0-1-2,1-1-2", "0-1-9,1-1-9", "mariadb", "not the GTID of one transaction"),
        ("0-1-2", f"{SOURCE_UUID}:1-9", "mysql", "not the uuid of a server"),
        (f"{SOURCE_UUID}:2", "0-1-9", "mariadb", "is not a GTID"),
        (f"{SOURCE_UUID}:2", "", "mysql", "the log's GTIDs are unknown"),
    ],
)
def test_a_gtid_that_cannot_end_a_run_is_refused_when_it_is_planned(
    gtid: str, end: str, flavor: str, text: str
) -> None:
    bound = GtidBoundConfig.model_construct(gtid=gtid)
    with pytest.raises(PositionError, match=text) as caught:
        executed_before(bound, start=at(""), log_end=at(end), flavor=flavor)  # type: ignore[arg-type]
    assert caught.value.next_step
    assert caught.value.expected or "unknown" in text


def test_a_gtid_that_the_log_does_not_hold_fails_after_what_was_read() -> None:
    """MariaDB's position counts every server's numbers of a domain: only reading tells that this
    one never was."""
    log = build_log([[("commit", 1, 0)] * 3])
    run = run_once(log, GtidBoundConfig(gtid=f"{SOURCE_UUID}:77"), start=log.start, end=log.end)
    assert isinstance(run.reader.error, PositionError)
    assert run.reader.reached_end
    assert run.next_start.order == log.end.order


def test_a_fixed_end_has_no_limit() -> None:
    assert make_limit("end_of_log", "mysql") is None
    assert make_limit(PositionConfig(journal="binlog.000001", offset=4), "mysql") is None


def test_a_bound_inside_a_transaction_ends_before_it_and_the_next_run_reads_it_whole(
    tmp_path: Path,
) -> None:
    def shop(name: str) -> MemoryShop:
        rules = [{"tables": ["shop.*"], "mode": "changelog"}]
        return memory_shop(tmp_path / name, include=["shop.pair", "shop.plain"], targets=rules)

    whole, bounded = shop("whole"), shop("bounded")
    whole.run()
    inside = PositionConfig(journal="binlog.000001", offset=7024)  # the third of its four inserts
    report = bounded.run(bound=inside)
    assert (report.plan.end.offset, bounded.last_cut().cursor.offset) == (7024, 6559)
    assert set(map(len, bounded.all_changes().values())) == {0}
    assert bounded.run(bound=inside).outcome == "nothing_new"
    bounded.run()
    assert bounded.all_changes() == whole.all_changes()
