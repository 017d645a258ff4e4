"""What every event store must do (SPEC S1-S14, K9), as a class of tests that each store's tests
inherit.

A subclass gives `make`. Threads are waited for with deadlines; nothing sleeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import EventSlice, Role, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import (
    AckPositionError,
    EventListTooLargeError,
    RingSizeError,
    StoreClosedError,
    StoreError,
)
from cdc_pipeline.position.position import Position
from tests.support.event_builder import JournalBuilder, cut

DEADLINE_S = 20


class Feed:
    """Slices of one journal, each from a chunk of its own, in order."""

    def __init__(self) -> None:
        self.builder = JournalBuilder()
        self.grouping = TransactionPass()

    def _slice(self, kind: SliceKind = SliceKind.TRANSACTIONS, sql: str = "") -> EventSlice:
        chunk = self.builder.chunk()
        self.grouping.apply(chunk)
        return EventSlice(chunk, 0, len(chunk.events), kind, sql=sql, source="mysql:1")

    def transaction(self, events: int = 5) -> EventSlice:
        """One transaction of `events` events, at least five."""
        self.builder.transaction(events - 4)
        return self._slice()

    def transactions(self, *events: int) -> EventSlice:
        for count in events:
            self.builder.transaction(count - 4)
        return self._slice()

    def marks(self, count: int) -> EventSlice:
        for _ in range(count):
            self.builder.add(EventType.IGNORABLE, b"x" * 10)
        return self._slice()

    def ddl(self) -> EventSlice:
        self.builder.ddl("ALTER TABLE t ADD c INT")
        return self._slice(SliceKind.STATEMENT, "ALTER TABLE t ADD c INT")

    def pieces(self, *sizes: int) -> list[EventSlice]:
        """One transaction in several slices, each from a chunk of its own."""
        self.builder.transaction(sum(sizes) - 4)
        chunk = self.builder.chunk()
        self.grouping.apply(chunk)
        parts = cut(chunk, list(sizes[:-1]))
        kinds = [SliceKind.OPEN_PIECE] * (len(parts) - 1) + [SliceKind.LAST_PIECE]
        return [
            EventSlice(c, 0, len(c.events), kind, source="mysql:1")
            for c, kind in zip(parts, kinds, strict=True)
        ]


def offsets(slices) -> list[int]:
    return [offset for part in slices for offset in part.events["offset"].tolist()]


def content(slices) -> list[tuple[Any, ...]]:
    """All that a slice says, and the bytes of each of its events; where they stand in memory is
    left out."""
    found: list[tuple[Any, ...]] = []
    for part in slices:
        chunk = part.chunk
        rows = part.events.copy()
        spans = zip(rows["start"].tolist(), rows["event_length"].tolist(), strict=True)
        events = [chunk.data[first : first + length].tobytes() for first, length in spans]
        rows["start"], rows["parent"] = 0, rows["parent"] >= 0
        about = (
            chunk.journal,
            chunk.journal_format,
            part.kind,
            part.sql,
            part.database,
            part.source,
            part.event_bytes,
        )
        found.append((*about, chunk.end_offset, rows.tobytes(), events))
    return found


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start `work`; the returned function waits for it and gives its value or raises its error."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> Any:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "still waiting at the deadline"
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]

    return join


class StoreContract:
    """Inherit, and give `make`."""

    def make(
        self,
        ring_events: int = 16,
        *,
        batch_mode: str = "itemsize",
        memory_unit_bytes: int = 1024,
        ddl_isolation: bool = True,
    ) -> Any:
        raise AssertionError(
            f"no store of {ring_events} {batch_mode} {memory_unit_bytes} {ddl_isolation}"
        )

    def started(self, *arguments: Any, **options: Any) -> Any:
        store = self.make(*arguments, **options)
        store.start()
        return store

    # -- S15 ---------------------------------------------------------------------------------------

    def test_s15_what_is_got_is_what_was_put_to_the_last_byte(self) -> None:
        store, feed = self.started(256), Feed()
        parts = [
            feed.transaction(9),
            feed.ddl(),
            *feed.pieces(4, 4, 4),
            feed.marks(3),
            feed.transactions(5, 6),
        ]
        for number in range(len(parts)):
            store.put([parts[number]])
        got = [part for _ in range(3) for part in store.try_get(256).slices]
        assert content(got) == content(parts)

    def test_s15_entries_of_one_list_keep_their_order(self) -> None:
        store, feed = self.started(64), Feed()
        parts = [
            feed.transaction(5),
            feed.transaction(20),
            feed.transaction(5),
            feed.transaction(9),
        ]
        store.put(parts)
        assert content(store.try_get(64).slices) == content(parts)

    # -- S1, S2 ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 3, 100, 16383, -16])
    def test_s1_a_size_that_is_not_a_power_of_two_is_refused(self, size: int) -> None:
        with pytest.raises(RingSizeError, match="power of two") as caught:
            self.make(size)
        assert caught.value.got == size

    def test_s1_sequences_start_at_minus_one_and_count_events(self) -> None:
        store, feed = self.started(), Feed()
        assert store.sequences == (-1, -1, -1, -1)
        store.put([feed.transaction(6), feed.transaction(5)])
        assert store.sequences == (-1, -1, -1, 10)
        batch = store.get(4)
        assert (store.sequences, batch.last_sequence) == ((-1, -1, 3, 10), 3)
        store.ack(batch.range.end)
        assert store.sequences == (3, 3, 3, 10)

    def test_s1_the_ring_goes_round_many_times(self) -> None:
        store, feed = self.started(8), Feed()
        for _ in range(50):
            part = feed.transaction(5)
            assert store.try_put([part])
            batch = store.try_get(8)
            assert offsets(batch.slices) == offsets([part])
            store.ack(batch.range.end)
        assert store.sequences == (249, 249, 249, 249)

    def test_s2_waiting_and_held_and_full_by_one(self) -> None:
        store, feed = self.started(16), Feed()
        assert store.try_put([feed.transaction(11)])
        batch = store.get(3)
        assert (store.waiting_events, store.retained_events) == (8, 11)
        assert not store.try_put([feed.transaction(6)])
        assert store.try_put([feed.transaction(5)])
        assert (store.waiting_events, store.retained_events) == (13, 16)
        store.ack(batch.range.end)
        assert store.retained_events == 13

    # -- S3 ----------------------------------------------------------------------------------------

    def test_s3_itemsize_ignores_bytes(self) -> None:
        store, feed = self.started(16, batch_mode="itemsize", memory_unit_bytes=1), Feed()
        assert store.try_put([feed.transaction(8)])
        assert store.try_put([feed.transaction(8)])

    def test_s3_memsize_admits_below_the_limit_whatever_the_size_then_waits(self) -> None:
        feed = Feed()
        part = feed.transaction(5)
        store = self.started(16, batch_mode="memsize", memory_unit_bytes=part.event_bytes // 16)
        assert part.event_bytes >= 16 * (part.event_bytes // 16)
        # the empty ring is below its limit, though this one list reaches it
        assert store.try_put([part])
        assert not store.try_put([feed.transaction(5)])
        batch = store.try_get(1000)
        assert store.retained_bytes == part.event_bytes
        store.ack(batch.range.end)
        assert store.retained_bytes == 0
        assert store.try_put([feed.transaction(5)])

    def test_s3_memsize_still_counts_slots(self) -> None:
        store, feed = self.started(8, batch_mode="memsize", memory_unit_bytes=1 << 40), Feed()
        assert store.try_put([feed.transaction(8)])
        assert not store.try_put([feed.marks(1)])

    def test_s3_arithmetic_holds_beyond_32_bits(self) -> None:
        store, feed = self.started(16, batch_mode="memsize", memory_unit_bytes=1 << 40), Feed()
        part = feed.marks(4)
        part.chunk.events["event_length"] = 2**32 - 1
        huge = EventSlice(part.chunk, 0, 4)
        assert store.try_put([huge])
        assert store.retained_bytes == 4 * (2**32 - 1)
        store.ack(store.try_get(1).range.end)
        assert store.retained_bytes == 0

    # -- S4 ----------------------------------------------------------------------------------------

    def test_s4_one_event_and_an_empty_list(self) -> None:
        store, feed = self.started(), Feed()
        assert store.put([])
        assert store.try_put([])
        assert store.try_put(feed.marks(1))
        assert store.sequences[3] == 0

    def test_s4_a_list_is_stored_whole_or_not_at_all(self) -> None:
        store, feed = self.started(16), Feed()
        store.put([feed.transaction(10)])
        before = store.sequences
        assert not store.try_put([feed.transaction(5), feed.transaction(5)])
        assert not store.put([feed.transaction(5), feed.transaction(5)], timeout_s=0.01)
        assert store.sequences == before

    def test_s4_a_list_longer_than_the_ring_is_an_error_at_once(self) -> None:
        store, feed = self.started(16), Feed()
        for put in (store.put, store.try_put):
            with pytest.raises(EventListTooLargeError, match="larger than the ring"):
                put([feed.transaction(9), feed.transaction(8)])
        assert store.sequences == (-1, -1, -1, -1)

    def test_s4_a_blocking_put_goes_on_when_room_is_made(self) -> None:
        store, feed = self.started(8), Feed()
        store.put([feed.transaction(8)])
        batch = store.get(8)
        join = in_thread(lambda: store.put([feed.transaction(8)], timeout_s=DEADLINE_S))
        store.ack(batch.range.end)
        assert join()

    # -- S5, S6 ------------------------------------------------------------------------------------

    def test_s5_try_and_timeout_return_what_there_is(self) -> None:
        store, feed = self.started(), Feed()
        empty = store.try_get(4)
        assert (empty.slices, empty.range) == ((), None)
        assert store.get(4, timeout_s=0.01).slices == ()
        part = feed.transaction(5)
        store.put([part])
        assert offsets(store.get(100, timeout_s=0.01).slices) == offsets([part])

    def test_s5_blocking_get_waits_for_a_full_batch(self) -> None:
        store, feed = self.started(), Feed()
        first, second = feed.transaction(5), feed.transaction(5)
        store.put([first])
        join = in_thread(lambda: store.get(10))
        store.put([second])
        assert offsets(join().slices) == offsets([first, second])

    def test_s5_in_memsize_a_batch_counts_units(self) -> None:
        store, feed = self.started(64, batch_mode="memsize", memory_unit_bytes=100), Feed()
        part = feed.transactions(5, 5, 5)
        store.put([part])
        batch = store.get(3)
        lengths = part.events["event_length"].astype(np.int64).cumsum()
        expected = int(np.searchsorted(lengths, 300)) + 1
        assert batch.event_count == expected
        assert (
            batch.event_bytes
            >= 300
            > batch.event_bytes - int(part.events["event_length"][expected - 1])
        )

    def test_s6_included_begins_at_the_get_position_itself_otherwise_one_after(self) -> None:
        store, feed = self.started(), Feed()
        part = feed.transaction(8)
        store.put([part])
        first = store.get(3)
        assert offsets(store.get(2, start=first.range.end).slices) == offsets([part])[3:5]
        again = Position("", 0, included=True)
        assert offsets(store.get(2, start=again).slices) == offsets([part])[4:6]
        assert offsets(store.get(2).slices) == offsets([part])[6:8]

    # -- S7 ----------------------------------------------------------------------------------------

    def test_s7_ddl_is_alone_and_what_stands_before_it_comes_first(self) -> None:
        store, feed = self.started(64), Feed()
        parts = [feed.transaction(5), feed.ddl(), feed.ddl(), feed.transaction(5)]
        store.put(parts)
        batches = [store.try_get(64) for _ in range(4)]
        assert [offsets(batch.slices) for batch in batches] == [offsets([part]) for part in parts]
        assert [batch.slices[0].is_isolated for batch in batches] == [False, True, True, False]

    def test_s7_a_batch_that_a_ddl_bounds_does_not_wait(self) -> None:
        store, feed = self.started(64), Feed()
        parts = [feed.transaction(5), feed.ddl()]
        store.put(parts)
        join = in_thread(lambda: [store.get(64), store.get(64)])
        assert [offsets(batch.slices) for batch in join()] == [offsets([part]) for part in parts]

    def test_s7_a_statement_is_never_split(self) -> None:
        store, feed = self.started(64), Feed()
        store.put([feed.ddl()])
        assert store.try_get(1).event_count == 2

    def test_s7_without_the_setting_ddl_travels_with_the_rest(self) -> None:
        store, feed = self.started(64, ddl_isolation=False), Feed()
        parts = [feed.transaction(5), feed.ddl(), feed.transaction(5)]
        store.put(parts)
        assert offsets(store.try_get(64).slices) == offsets(parts)

    # -- S8, S14 -----------------------------------------------------------------------------------

    def test_s8_s14_range_is_first_last_and_the_last_transaction_end(self) -> None:
        store, feed = self.started(64), Feed()
        part = feed.transactions(5, 8)
        store.put([part])
        batch = store.get(10)
        events = part.events
        assert (batch.range.start.offset, batch.range.end.offset) == (
            int(events["offset"][0]),
            int(events["offset"][9]),
        )
        ack = batch.range.ack
        assert (ack.journal, ack.offset, ack.timestamp_s, ack.server_id) == (
            "binlog.000001", int(events["offset"][4]), int(events["timestamp_s"][4]), 1,
        )  # fmt: skip
        assert ack.gtid_set == "00010203-0405-0607-0809-0a0b0c0d0e0f:1"
        assert batch.range.resume.offset == int(events["next_offset"][4])

    def test_s8_with_gtids_the_begin_is_not_ackable(self) -> None:
        store, feed = self.started(64), Feed()
        store.put([feed.transaction(8)])
        assert store.get(3).range.ack is None

    def test_s8_without_gtids_the_begin_is_ackable_and_reading_resumes_at_it(self) -> None:
        store, feed = self.started(64), Feed()
        feed.builder.query("BEGIN").rows(5).xid()
        part = feed._slice()
        store.put([part])
        span = store.get(3).range
        assert span.ack.offset == span.resume.offset == int(part.events["offset"][0])

    def test_s8_a_ddl_is_ackable_and_a_statement_inside_a_transaction_is_not(self) -> None:
        store, feed = self.started(64), Feed()
        store.put([feed.ddl()])
        assert store.try_get(64).range.ack is not None
        feed.builder.gtid().query("BEGIN").query("SAVEPOINT s").rows(3).xid()
        store.put([feed._slice()])
        assert store.try_get(3).range.ack is None

    def test_s8_the_gtid_of_a_transaction_whose_begin_was_in_an_earlier_slice(self) -> None:
        store, feed = self.started(64), Feed()
        for part in feed.pieces(4, 4, 4):
            store.put([part])
        store.get(8)
        span = store.get(4).range
        assert span.ack.gtid_set.endswith(":1")
        assert span.ack == span.end

    def test_k9_split_slices_keep_true_kinds(self) -> None:
        store, feed = self.started(64), Feed()
        part = feed.transactions(5, 9, 5)
        store.put([part])
        kinds = [[(p.kind.name, p.event_count) for p in store.get(n).slices] for n in (7, 4, 8)]
        assert kinds == [
            [("TRANSACTIONS", 5), ("OPEN_PIECE", 2)],
            [("OPEN_PIECE", 4)],
            [("LAST_PIECE", 3), ("TRANSACTIONS", 5)],
        ]
        pieces = feed.pieces(6, 6)
        store.put(pieces)
        kinds = [[(p.kind.name, p.event_count) for p in store.get(n).slices] for n in (4, 5, 3)]
        assert kinds == [
            [("OPEN_PIECE", 4)],
            [("OPEN_PIECE", 2), ("OPEN_PIECE", 3)],
            [("LAST_PIECE", 3)],
        ]

    # -- S9, S10 -----------------------------------------------------------------------------------

    def test_s9_ack_frees_up_to_the_position(self) -> None:
        store, feed = self.started(16), Feed()
        part = feed.transactions(5, 5, 5)
        store.put([part])
        batch = store.get(12)
        store.ack(batch.range.ack)
        assert store.sequences == (9, 9, 11, 14)
        assert store.retained_events == 5

    def test_s9_journal_and_offset_count_only_where_given(self) -> None:
        store, feed = self.started(16), Feed()
        part = feed.transaction(8)
        store.put([part])
        store.get(8)
        store.ack(Position("", 0, timestamp_s=int(part.events["timestamp_s"][2])))
        assert store.sequences[0] == 2

    @pytest.mark.parametrize("wrong", ["timestamp", "journal", "offset", "not got", "acked"])
    def test_s9_p9_no_match_is_an_error_that_names_the_position_and_changes_nothing(
        self, wrong: str
    ) -> None:
        store, feed = self.started(16), Feed()
        part = feed.transaction(10)
        store.put([part])
        store.ack(store.get(2).range.end)
        store.get(4)
        before = store.sequences
        row = {"not got": 8, "acked": 1}.get(wrong, 3)
        event = part.events[row]
        position = Position(
            "binlog.000009" if wrong == "journal" else "binlog.000001",
            int(event["offset"]) + (wrong == "offset"),
            timestamp_s=int(event["timestamp_s"]) + (wrong == "timestamp"),
        )
        with pytest.raises(AckPositionError) as caught:
            store.ack(position)
        assert str(position) in str(caught.value)
        assert store.sequences == before
        assert offsets(store.get(4).slices) == offsets([part])[6:10]

    def test_s9_the_slots_of_a_partly_acked_slice_are_used_again(self) -> None:
        store, feed = self.started(16), Feed()
        first = feed.transaction(16)
        store.put([first])
        store.ack(store.get(5).range.end)
        second = feed.transaction(5)  # begins in the slot where the first slice began
        assert store.try_put([second])
        assert offsets(store.get(16).slices) == offsets([first])[5:] + offsets([second])
        store.rollback()
        last = store.get(16).range.end
        store.ack(last)
        assert store.sequences == (20, 20, 20, 20)

    def test_s9_references_are_dropped(self) -> None:
        import gc
        import weakref

        store, feed = self.started(16), Feed()
        part = feed.transaction(5)
        gone = weakref.ref(part.chunk.events)
        store.put([part])
        del part
        batch = store.get(5)
        store.ack(batch.range.end)
        del batch
        gc.collect()
        assert gone() is None

    def test_s10_rollback_gives_the_same_events_again(self) -> None:
        store, feed = self.started(64), Feed()
        parts = [feed.transaction(5), feed.ddl(), feed.transaction(5)]
        store.put(parts)
        first = store.try_get(64)
        store.ack(first.range.end)
        seen = [offsets(store.try_get(3).slices), offsets(store.try_get(3).slices), store.sequences]
        store.rollback()
        assert store.sequences == (4, 4, 4, 11)
        assert [
            offsets(store.try_get(3).slices),
            offsets(store.try_get(3).slices),
            store.sequences,
        ] == seen

    def test_s10_rollback_in_memsize_returns_memory_too(self) -> None:
        store, feed = self.started(64, batch_mode="memsize", memory_unit_bytes=64), Feed()
        store.put([feed.transactions(5, 5)])
        seen = offsets(store.get(4).slices)
        store.rollback()
        assert offsets(store.get(4).slices) == seen

    # -- S11, S12 ----------------------------------------------------------------------------------

    def test_s11_first_and_latest_position(self) -> None:
        store, feed = self.started(16), Feed()
        assert (store.first_position(), store.latest_position()) == (None, None)
        part = feed.transaction(5)
        store.put([part])
        places = offsets([part])

        def first() -> tuple[int, bool]:
            return store.first_position().offset, store.first_position().included

        assert first() == (places[0], False)
        batch = store.get(2)
        assert first() == (places[0], False)
        store.ack(batch.range.end)
        assert first() == (places[2], True)
        assert store.latest_position().offset == places[4]
        store.ack(store.get(3).range.end)
        assert first() == (places[4], False)
        assert store.latest_position().offset == places[4]

    def test_s12_stop_and_clean_all_reset_everything(self) -> None:
        store, feed = self.started(16), Feed()
        store.put([feed.transaction(5)])
        store.get(2)
        store.clean_all()
        assert store.sequences == (-1, -1, -1, -1)
        assert store.first_position() is None
        assert store.try_put([feed.transaction(16)])
        store.stop()
        with pytest.raises(StoreClosedError):
            store.try_put([feed.transaction(5)])
        store.start()
        assert store.sequences == (-1, -1, -1, -1)
        assert store.try_get(5).slices == ()

    def test_s12_clean_until_is_what_ack_calls(self) -> None:
        store, feed = self.started(16), Feed()
        store.put([feed.transaction(5)])
        store.clean_until(store.get(3).range.end)
        assert store.sequences == (2, 2, 2, 4)

    def test_s12_stop_wakes_waiters_with_an_error(self) -> None:
        store, feed = self.started(8), Feed()
        store.put([feed.transaction(8)])
        joins = [in_thread(lambda: store.put([feed.transaction(5)]))]
        store.stop()
        for join in joins:
            with pytest.raises(StoreClosedError):
                join()
        with pytest.raises(StoreClosedError):
            store.try_get(1)

    # -- S13 ---------------------------------------------------------------------------------------

    def test_s13_a_put_and_a_get_that_wait_for_each_other_do_not_deadlock(self) -> None:
        store, feed = self.started(16), Feed()
        held = feed.transaction(10)
        store.put([held])
        late = feed.transaction(9)
        getting = in_thread(lambda: store.get(12))
        putting = in_thread(lambda: store.put([late], timeout_s=DEADLINE_S))
        batch = getting()  # 12 will never be there: the put needs room first
        assert offsets(batch.slices) == offsets([held])
        store.ack(batch.range.end)
        assert putting()
        assert offsets(store.try_get(16).slices) == offsets([late])

    def test_s13_the_put_may_come_first(self) -> None:
        store, feed = self.started(16), Feed()
        held = feed.transaction(10)
        store.put([held])
        putting = in_thread(lambda: store.put([feed.transaction(9)], timeout_s=DEADLINE_S))
        batch = in_thread(lambda: store.get(12))()
        assert batch.event_count == 10
        store.ack(batch.range.end)
        assert putting()

    def test_s13_a_put_that_waits_for_an_ack_does_not_hold_an_empty_get(self) -> None:
        store, feed = self.started(8), Feed()
        store.put([feed.transaction(8)])
        batch = store.get(8)
        putting = in_thread(lambda: store.put([feed.transaction(5)], timeout_s=DEADLINE_S))
        assert in_thread(lambda: store.get(1))().slices == ()
        store.ack(batch.range.end)
        assert putting()

    def test_s13_every_put_and_get_that_together_are_longer_than_the_ring_passes(self) -> None:
        """n + m > size at every step: whoever comes first, the get takes what there is and the ack
        makes room."""
        store, feed = self.started(16), Feed()
        parts = [feed.transaction(9 + number % 8) for number in range(200)]

        def put_all() -> None:
            for part in parts:
                assert store.put([part], timeout_s=DEADLINE_S)
            store.end_of_input()

        join = in_thread(put_all)
        seen: list[int] = []
        while not store.is_drained:
            batch = store.get(12, timeout_s=DEADLINE_S)
            if batch.range is not None:
                seen.extend(offsets(batch.slices))
                store.ack(batch.range.end)
        join()
        assert seen == offsets(parts)

    @pytest.mark.parametrize("batch_mode", ["itemsize", "memsize"])
    def test_s13_threads_that_put_and_get_at_once_lose_and_double_nothing(
        self, batch_mode: str
    ) -> None:
        store, feed = self.started(32, batch_mode=batch_mode, memory_unit_bytes=32), Feed()
        random = np.random.default_rng(7)
        parts = [
            feed.ddl() if n % 9 == 8 else feed.transaction(int(random.integers(5, 30)))
            for n in range(300)
        ]

        def put_all() -> None:
            for part in parts:
                assert store.put([part], timeout_s=DEADLINE_S)
            store.end_of_input()

        join = in_thread(put_all)
        seen: list[int] = []

        def get_all() -> None:
            step = 0
            while not store.is_drained:
                batch = store.get(1 + step % 20)
                step += 1
                if batch.range is None:
                    continue
                if step % 7 == 0:
                    store.rollback()
                    continue
                seen.extend(offsets(batch.slices))
                assert all(part.is_isolated for part in batch.slices) or not any(
                    p.is_isolated for p in batch.slices
                )
                store.ack(batch.range.end)

        in_thread(get_all)()
        join()
        assert seen == offsets(parts)

    # -- end of input, failure ---------------------------------------------------------------------

    def test_end_of_input_lets_a_waiting_get_take_what_there_is(self) -> None:
        store, feed = self.started(), Feed()
        part = feed.transaction(5)
        store.put([part])
        assert not store.is_drained
        join = in_thread(lambda: store.get(10))
        store.end_of_input()
        assert offsets(join().slices) == offsets([part])
        assert store.is_drained
        assert store.get(10).slices == ()
        store.rollback()
        assert not store.is_drained

    def test_nothing_is_put_after_the_end_of_input(self) -> None:
        store, feed = self.started(), Feed()
        store.end_of_input()
        with pytest.raises(StoreError, match="end of the input"):
            store.try_put([feed.transaction(5)])

    def test_a_readers_failure_comes_after_what_it_had_put(self) -> None:
        store, feed = self.started(), Feed()
        part = feed.transaction(5)
        store.put([part])
        store.fail(ConnectionError("gone"))
        assert offsets(store.get(10).slices) == offsets([part])
        assert not store.is_drained
        with pytest.raises(ConnectionError, match="gone"):
            store.get(10)

    def test_a_stopped_store_takes_the_readers_end_quietly(self) -> None:
        store = self.started()
        store.stop()
        store.end_of_input()
        store.fail(ConnectionError("gone"))
        store.start()
        assert not store.is_drained
        assert store.try_get(1).slices == ()

    def test_a_readers_failure_wakes_a_waiting_get(self) -> None:
        store = self.started()
        join = in_thread(lambda: store.get(1))
        store.fail(ConnectionError("gone"))
        with pytest.raises(ConnectionError):
            join()

    # -- K9 ----------------------------------------------------------------------------------------

    def test_k9_release_makes_room_and_a_transaction_larger_than_the_ring_passes(self) -> None:
        store, feed = self.started(16), Feed()
        pieces = feed.pieces(16, 16, 16, 12)
        seen = []
        ranges = []
        for part in pieces:
            assert store.try_put([part])
            batch = store.try_get(16)
            seen += offsets(batch.slices)
            ranges.append(batch.range)
            store.release(batch.last_sequence)
        assert seen == offsets(pieces)
        assert [span.ack is None for span in ranges] == [True, True, True, False]
        assert store.sequences == (-1, 59, 59, 59)
        store.ack(ranges[-1].ack)
        assert store.sequences == (59, 59, 59, 59)

    def test_k9_rollback_returns_to_what_was_released(self) -> None:
        store, feed = self.started(16), Feed()
        part = feed.transactions(5, 5)
        store.put([part])
        released = store.get(4)
        store.release(released.last_sequence)
        again = offsets(store.get(6).slices)
        store.rollback()
        assert store.sequences == (-1, 3, 3, 9)
        assert offsets(store.get(6).slices) == again

    def test_k9_ack_matches_the_ranges_of_released_batches(self) -> None:
        store, feed = self.started(16), Feed()
        store.put([feed.transactions(5, 5, 5)])
        first, second = store.get(7), store.get(8)
        store.release(second.last_sequence)
        store.rollback()
        store.ack(first.range.ack)
        assert store.sequences == (4, 14, 14, 14)
        with pytest.raises(AckPositionError):
            store.ack(first.range.start)
        store.ack(second.range.end)
        assert store.sequences == (14, 14, 14, 14)

    def test_k9_a_range_outlives_the_release_of_its_events_and_holds_none_of_them(self) -> None:
        import gc
        import weakref

        store, feed = self.started(16), Feed()
        part = feed.transactions(5, 5)
        gone = weakref.ref(part.chunk.events)
        places = offsets([part])
        store.put([part])
        del part
        spans = []
        for size in (3, 7):  # the first ends inside the entry, which the second frees
            batch = store.get(size)
            spans.append(batch.range)
            store.release(batch.last_sequence)
            del batch
        gc.collect()
        assert gone() is None
        assert [(span.start.offset, span.end.offset) for span in spans] == [
            (places[0], places[2]),
            (places[3], places[9]),
        ]
        assert [span.ack and span.ack.offset for span in spans] == [None, places[9]]
        store.ack(spans[1].ack)
        assert store.sequences == (9, 9, 9, 9)

    def test_k9_what_was_not_got_cannot_be_released(self) -> None:
        store, feed = self.started(16), Feed()
        store.put([feed.transaction(5)])
        with pytest.raises(StoreError, match="not got"):
            store.release(0)

    def test_roles_of_the_feed_are_what_the_suite_assumes(self) -> None:
        assert Feed().transaction(5).events["role"].tolist() == [
            Role.TRANSACTIONBEGIN, Role.OTHER, Role.ROWDATA, Role.ROWDATA, Role.TRANSACTIONEND,
        ]  # fmt: skip
