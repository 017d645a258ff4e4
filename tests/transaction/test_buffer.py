"""The transaction buffer: nothing torn, nothing lost, whatever the chunk borders (SPEC T1-T4, K5,
K9)."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, Role, SliceKind
from cdc_pipeline.binlog.event_types import EventType as T
from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import RingSizeError, StoreError, TransactionError, UnsupportedDdlError
from cdc_pipeline.position.position import Position
from cdc_pipeline.transaction import buffer
from cdc_pipeline.transaction.buffer import SHORT_BYTES_MAX, SHORT_EVENTS_MAX, TransactionBuffer
from tests.support.event_builder import MARIADB, JournalBuilder, cut

KINDS = {kind: kind.name for kind in SliceKind}


class Collector:
    """A sink that keeps the lists it is given, and may refuse."""

    def __init__(self, **options) -> None:
        self.lists: list[list[EventSlice]] = []
        self.positions: list[Position] = []
        self.accepts = True
        options.setdefault(
            "is_isolated", lambda query: query.database == "shop" and query.sql.startswith("ALTER")
        )
        short_events_max = options.pop("short_events_max", SHORT_EVENTS_MAX)
        with patch.object(buffer, "SHORT_EVENTS_MAX", short_events_max):
            self.buffer = TransactionBuffer(
                self._put, source="mysql:1", on_position=self.positions.append, **options
            )

    def _put(self, slices) -> bool:
        if self.accepts:
            self.lists.append(list(slices))
        return self.accepts

    @property
    def slices(self) -> list[EventSlice]:
        return [part for group in self.lists for part in group]

    @property
    def shape(self) -> list[tuple[str, int]]:
        return [(KINDS[part.kind], part.event_count) for part in self.slices]

    def offsets(self) -> list[int]:
        return [offset for part in self.slices for offset in part.events["offset"].tolist()]


def fed(*chunks: Chunk, **options) -> Collector:
    collector = Collector(**options)
    for chunk in chunks:
        collector.buffer.feed(chunk)
    return collector


def test_t1_size_that_is_not_a_power_of_two_is_refused() -> None:
    with pytest.raises(RingSizeError, match="power of two"):
        Collector(slice_events_max=1000)


def test_t1_t2_what_a_chunk_brings_leaves_as_one_list_in_order() -> None:
    builder = JournalBuilder().fde().transaction(1).add(T.HEARTBEAT, b"x")
    chunk = builder.transaction(2).add(T.HEARTBEAT, b"x").chunk()
    collector = fed(chunk)
    assert [[part.event_count for part in group] for group in collector.lists] == [[14]]
    assert collector.offsets() == chunk.events["offset"].tolist()


def test_t1_full_flushes_and_goes_on() -> None:
    chunk = JournalBuilder().transaction(15).chunk()
    assert fed(chunk, slice_events_max=8).shape == [
        ("OPEN_PIECE", 8),
        ("OPEN_PIECE", 8),
        ("LAST_PIECE", 3),
    ]


def test_whole_transactions_are_coalesced_up_to_the_limit() -> None:
    builder = JournalBuilder()
    for _ in range(5):
        builder.transaction(1)
    assert fed(builder.chunk(), slice_events_max=16).shape == [
        ("TRANSACTIONS", 15),
        ("TRANSACTIONS", 10),
    ]


def test_t3_refusal_is_an_error_and_the_position_stays() -> None:
    builder = JournalBuilder()
    collector = fed(builder.transaction(1).chunk())
    stored = list(collector.positions)
    collector.accepts = False
    refused = builder.transaction(1).chunk()
    with pytest.raises(StoreError, match="refused") as caught:
        collector.buffer.feed(refused)
    assert caught.value.offset == int(refused.events["offset"][0])
    assert collector.positions == stored


def test_t3_position_is_that_after_the_last_transaction_end_of_each_list_and_none_without_one() -> (
    None
):
    chunk = JournalBuilder().transaction(15).transaction(1).fde().chunk()
    collector = fed(chunk, slice_events_max=8)
    assert [(k, n) for k, n in collector.shape] == [
        ("OPEN_PIECE", 8), ("OPEN_PIECE", 8), ("LAST_PIECE", 3), ("TRANSACTIONS", 6),
    ]  # fmt: skip
    ends = chunk.events[chunk.events["role"] == Role.TRANSACTIONEND]
    assert [(p.journal, p.offset, p.timestamp_s, p.server_id) for p in collector.positions] == [
        ("binlog.000001", int(e["next_offset"]), int(e["timestamp_s"]), 1) for e in ends
    ]


def test_t4_a_transaction_over_three_chunks_leaves_in_pieces_of_one_transaction() -> None:
    whole = JournalBuilder().transaction(1).transaction(10).transaction(1).chunk()
    collector = fed(*cut(whole, [8, 5]), short_events_max=13)
    assert collector.shape == [
        ("TRANSACTIONS", 5),
        ("OPEN_PIECE", 3),
        ("OPEN_PIECE", 5),
        ("LAST_PIECE", 6),
        ("TRANSACTIONS", 5),
    ]
    assert collector.offsets() == whole.events["offset"].tolist()


def test_a_short_transaction_in_several_chunks_leaves_whole() -> None:
    whole = JournalBuilder().transaction(1).transaction(10).transaction(1).chunk()
    collector = fed(*cut(whole, [8, 5]), short_events_max=14)
    assert collector.shape == [("TRANSACTIONS", 5), ("TRANSACTIONS", 14), ("TRANSACTIONS", 5)]
    assert collector.offsets() == whole.events["offset"].tolist()
    held = collector.slices[1]
    bodies = [held.chunk.body(row).tobytes() for row in range(held.first, held.stop)]
    assert bodies == [whole.body(row).tobytes() for row in range(5, 19)]
    assert [place.offset for place in collector.positions] == [
        int(whole.events["next_offset"][row]) for row in (4, 23)
    ]


def test_a_transaction_of_many_bytes_is_not_held_back() -> None:
    large = bytes(SHORT_BYTES_MAX)
    whole = JournalBuilder().gtid().query("BEGIN").add(T.INTVAR, large).xid().chunk()
    assert fed(*cut(whole, [3])).shape == [("OPEN_PIECE", 3), ("LAST_PIECE", 1)]


def test_isolated_statement_is_alone_and_foreign_ones_are_no_boundary() -> None:
    chunk = (
        JournalBuilder().transaction(1).ddl("CREATE INDEX i ON t (a)").ddl("ALTER TABLE t ADD c INT")  # noqa: E501
        .ddl("ALTER TABLE t ADD c INT", "other").transaction(1).chunk()
    )  # fmt: skip
    collector = fed(chunk)
    assert collector.shape == [("TRANSACTIONS", 7), ("STATEMENT", 2), ("TRANSACTIONS", 7)]
    statement = collector.slices[1]
    assert (statement.sql, statement.database, statement.source) == (
        "ALTER TABLE t ADD c INT",
        "shop",
        "mysql:1",
    )
    assert statement.events["role"].tolist() == [Role.TRANSACTIONBEGIN, Role.STATEMENT]
    assert len(collector.positions) == 3


@pytest.mark.parametrize("sizes", [[6], [6, 1], [5, 1, 1]])
def test_statement_whose_gtid_event_ends_a_chunk_still_leaves_as_one_slice(
    sizes: list[int],
) -> None:
    builder = (
        JournalBuilder()
        .transaction(1)
        .gtid()
        .add(T.INTVAR, b"x" * 9)
        .query("ALTER TABLE t ADD c INT")
        .transaction(1)
    )
    whole = builder.chunk()
    collector = fed(*cut(whole, sizes))
    assert collector.shape == [("TRANSACTIONS", 5), ("STATEMENT", 3), ("TRANSACTIONS", 5)]
    assert collector.offsets() == whole.events["offset"].tolist()
    part = collector.slices[1]
    for row in range(3):
        assert bytes(part.chunk.body(part.first + row)) == bytes(whole.body(5 + row))
    assert collector.positions[1].offset == int(whole.events["next_offset"][7])


def test_what_stands_before_a_refused_statement_is_delivered_first() -> None:
    def refuse(_query: Query) -> bool:
        raise UnsupportedDdlError("no")

    chunk = JournalBuilder().transaction(1).transaction(1).ddl("DROP TABLE t", "").chunk()
    collector = Collector(is_isolated=refuse)
    with pytest.raises(UnsupportedDdlError):
        collector.buffer.feed(chunk)
    assert collector.shape == [("TRANSACTIONS", 10)]
    assert collector.positions[-1].offset == int(chunk.events["next_offset"][9])


def test_what_stands_before_a_contradiction_is_delivered_first() -> None:
    collector = Collector()
    with pytest.raises(TransactionError, match="outside a transaction"):
        collector.buffer.feed(JournalBuilder().transaction(1).rows(1).chunk())
    assert collector.shape == [("TRANSACTIONS", 5)]


def test_finish_names_the_transaction_that_is_left_open() -> None:
    builder = JournalBuilder().transaction(1)
    collector = fed(builder.chunk())
    collector.buffer.finish()
    tail = builder.gtid().query("BEGIN").rows(1).chunk()
    collector.buffer.feed(tail)
    with pytest.raises(TransactionError, match="inside a transaction") as caught:
        collector.buffer.finish()
    assert caught.value.offset == int(tail.events["offset"][0])


def test_k5_an_unfinished_transaction_of_which_nothing_left_is_dropped_and_counted() -> None:
    first = JournalBuilder().transaction(1).gtid().chunk()
    second = JournalBuilder(journal="binlog.000002").fde().transaction(1).chunk()
    collector = fed(first, second)
    assert collector.shape == [("TRANSACTIONS", 5), ("TRANSACTIONS", 6)]
    assert collector.buffer.transactions.abandoned == 1


def test_k5_pieces_that_left_before_are_followed_by_an_abandoned_mark() -> None:
    first = JournalBuilder().transaction(1).gtid().query("BEGIN").rows(2).chunk()
    second = JournalBuilder(journal="binlog.000002").fde().transaction(1).chunk()
    collector = fed(first, second, short_events_max=4)
    assert collector.shape == [
        ("TRANSACTIONS", 5),
        ("OPEN_PIECE", 5),
        ("ABANDONED", 1),
        ("TRANSACTIONS", 5),
    ]
    assert collector.buffer.transactions.abandoned == 1


def test_k5_within_one_chunk_the_unfinished_transaction_never_leaves() -> None:
    chunk = JournalBuilder().transaction(1).gtid().query("BEGIN").rows(2).add(T.STOP).chunk()
    collector = fed(chunk)
    assert collector.shape == [("TRANSACTIONS", 5), ("TRANSACTIONS", 1)]
    assert collector.buffer.transactions.abandoned == 1


PIECES = st.sampled_from(
    [
        ("transaction", 1), ("transaction", 3), ("transaction", 20),
        ("ddl", "ALTER TABLE t ADD c INT"),
        ("ddl", "CREATE TABLE u (a INT)"), ("mariadb_gtid", 0), ("rows", 2), ("xid",),
        ("query", "SAVEPOINT s"),
        ("query", "ALTER TABLE t ADD d INT"), ("query", "ROLLBACK"), ("fde",), ("gtid",),
        ("add", T.INTVAR, b"x"),
    ]
)  # fmt: skip


@settings(max_examples=200)
@given(
    pieces=st.lists(PIECES, max_size=25),
    sizes=st.lists(st.integers(1, 12), max_size=12),
    slice_events_max=st.sampled_from([2, 4, 16, 1024]),
    short_events_max=st.sampled_from([0, 3, SHORT_EVENTS_MAX]),
)
def test_t2_t4_every_event_leaves_once_in_order_and_no_transaction_is_torn(
    pieces, sizes, slice_events_max, short_events_max
) -> None:
    builder = JournalBuilder(journal_format=MARIADB)
    for name, *arguments in pieces:
        getattr(builder, name)(*arguments)
    whole = builder.chunk()
    reference = TransactionPass().step(whole)
    collector = Collector(slice_events_max=slice_events_max, short_events_max=short_events_max)
    failed = False
    for chunk in cut(whole, sizes):
        try:
            collector.buffer.feed(chunk)
        except TransactionError:
            failed = True
            break
    assert failed == (reference.error is not None)
    events = whole.events[: len(reference.events)]
    state: int | None = None  # tx_offset of the open transaction whose pieces are leaving
    committed: list[int] = []
    delivered: list[int] = []
    for part in collector.slices:
        rows = part.events
        assert part.kind is SliceKind.STATEMENT or part.event_count <= slice_events_max
        delivered += rows["offset"].tolist()
        members = rows["tx_offset"][rows["tx_offset"] >= 0]
        if part.kind is SliceKind.OPEN_PIECE:
            assert set(members.tolist()) == {members[0]}
            assert state in (None, members[0])
            state = int(members[0])
        elif part.kind is SliceKind.LAST_PIECE:
            assert set(members.tolist()) == {state}
            committed.append(state)
            state = None
        elif part.kind is SliceKind.ABANDONED:
            assert state is not None
            assert rows["role"].tolist() == [Role.JOURNAL]
            state = None
        else:
            assert state is None
            begun = dict.fromkeys(members.tolist())
            committed += begun
            for offset in begun:
                assert (rows["tx_offset"] == offset).sum() == (events["tx_offset"] == offset).sum()
            if part.kind is SliceKind.STATEMENT:
                assert len(begun) == 1
                assert part.sql.startswith("ALTER")
                assert len(members) == part.event_count
    ended = events["offset"][:0].tolist()
    if len(reference.ends):
        ended = events["tx_offset"][reference.ends].tolist()
    assert committed == ended
    outside = events["offset"][events["tx_offset"] < 0].tolist()
    assert delivered == sorted(delivered)
    assert [offset for offset in delivered if offset in set(outside)] == outside
    assert collector.buffer.transactions.abandoned == reference.marks.tolist().count(4)
    last_end = events["next_offset"][reference.ends[-1]] if len(reference.ends) else None
    assert (collector.positions[-1].offset if collector.positions else None) == last_end
