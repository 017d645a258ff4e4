"""Any store against a plain list: every verb of the contract, in any order (SPEC S1-S12, K9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cdc_pipeline.errors import AckPositionError, StoreError
from cdc_pipeline.position.position import Position
from tests.store.contract_suite import Feed, offsets

AGAIN = Position("", 0, included=True)


@dataclass(frozen=True)
class Got:
    """A batch, and what the list says of it: counts before and after it, and up to its ack position
    (0 for none)."""

    first: int
    stop: int
    acked: int
    batch: Any
    places: tuple[int, int, int | None]


class StoreMachine(RuleBasedStateMachine):
    """A list of offsets is the model; a subclass gives `make`."""

    def make(self, size: int, *, batch_mode: str, memory_unit_bytes: int) -> Any:
        raise AssertionError(f"no store of {size} {batch_mode} {memory_unit_bytes}")

    @initialize(
        size=st.sampled_from([8, 16, 64]),
        in_bytes=st.booleans(),
        unit=st.sampled_from([8, 64, 512]),
    )
    def begin(self, size: int, in_bytes: bool, unit: int) -> None:
        self.size, self.in_bytes, self.unit = size, in_bytes, unit
        self.store = self.make(
            size, batch_mode="memsize" if in_bytes else "itemsize", memory_unit_bytes=unit
        )
        self.store.start()
        self.feed = Feed()
        self.empty()

    def empty(self) -> None:
        self.log: list[int] = []  # offset of every event put
        self.lengths: list[int] = []
        self.ends: list[bool] = []  # whether a cursor may stand on the event
        # sequence of each event of a statement -> count after its last
        self.isolated: dict[int, int] = {}
        self.ack = self.released = self.got = 0  # counts: one more than the sequences
        self.batches: list[Got] = []  # that were got and not acked
        self.seen: list[Got] = []  # all that were ever got
        self.has_ended = False

    # -- put, end of input -------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(5, 12), min_size=1, max_size=3), ddl=st.booleans())
    def put(self, sizes: list[int], ddl: bool) -> None:
        self.put_parts(
            [(self.feed.ddl(), [2])] if ddl else [(self.feed.transactions(*sizes), sizes)]
        )

    @rule(size=st.integers(5, 9))
    def put_a_list(self, size: int) -> None:
        self.put_parts(
            [
                (self.feed.transaction(size), [size]),
                (self.feed.ddl(), [2]),
                (self.feed.marks(1), []),
            ]
        )

    @rule(sizes=st.lists(st.integers(2, 6), min_size=2, max_size=3))
    def put_pieces(self, sizes: list[int]) -> None:
        total = max(5, sum(sizes))
        sizes[-1] += total - sum(sizes)
        pieces = self.feed.pieces(*sizes)
        self.put_parts([(piece, []) for piece in pieces[:-1]] + [(pieces[-1], [sizes[-1]])])

    def put_parts(self, parts: list[tuple[Any, list[int]]]) -> None:
        """Put one list; beside each slice the lengths of the stretches that end where a cursor may
        stand."""
        slices = [part for part, _ in parts]
        count = sum(part.event_count for part in slices)
        if count > self.size:
            return
        retained_bytes = sum(self.lengths[self.released :])
        has_room = len(self.log) - self.released + count <= self.size
        has_room = has_room and (not self.in_bytes or retained_bytes < self.size * self.unit)
        if self.has_ended and has_room:
            with pytest.raises(StoreError):
                self.store.try_put(slices)
            return
        assert self.store.try_put(slices) == has_room
        if not has_room:
            return
        for part, stretches in parts:
            if part.is_isolated:
                stop = len(self.log) + part.event_count
                self.isolated.update(dict.fromkeys(range(len(self.log), stop), stop))
            self.log += offsets([part])
            self.lengths += part.events["event_length"].tolist()
            ends = [False] * part.event_count
            at = 0
            for stretch in stretches:
                at += stretch
                ends[at - 1] = True
            self.ends += ends

    @rule()
    def end_of_input(self) -> None:
        if len(self.log) > 3 * self.size:  # only now and then: nothing is put afterwards
            self.store.end_of_input()
            self.has_ended = True

    @rule()
    def clean_all(self) -> None:
        if len(self.log) > 4 * self.size:
            self.store.clean_all()
            self.empty()

    # -- get ---------------------------------------------------------------------------------------

    @rule(size=st.integers(1, 20), again=st.booleans())
    def get(self, size: int, again: bool) -> None:
        batch = self.store.try_get(size, start=AGAIN if again else None)
        first = self.got - 1 if again and self.got > self.released else self.got  # S6
        stop = first
        if stop in self.isolated:
            stop = self.isolated[stop]
        else:
            taken = 0
            while (
                stop < len(self.log)
                and stop not in self.isolated
                and taken < size * (self.unit if self.in_bytes else 1)
            ):
                taken += self.lengths[stop] if self.in_bytes else 1
                stop += 1
        assert offsets(batch.slices) == self.log[first:stop]
        if stop > first:
            assert batch.last_sequence == stop - 1
            acked = max((at + 1 for at in range(first, stop) if self.ends[at]), default=0)
            places = (self.log[first], self.log[stop - 1], self.log[acked - 1] if acked else None)
            found = Got(first, stop, acked, batch, places)
            self.batches.append(found)
            self.seen = [*self.seen[-5:], found]
        self.got = stop

    @rule(which=st.integers(0, 5))
    def read_a_range(self, which: int) -> None:
        """A range may be read at any time: at once, after the release, after the ack, after a
        rollback."""
        if self.seen:
            found = self.seen[which % len(self.seen)]
            span = found.batch.range
            ack = None if span.ack is None else span.ack.offset
            assert (span.start.offset, span.end.offset, ack) == found.places
            assert (span.resume is None) == (span.ack is None)

    # -- release, ack, rollback --------------------------------------------------------------------

    @rule(which=st.integers(0, 5))
    def release(self, which: int) -> None:
        if self.batches:
            stop = self.batches[which % len(self.batches)].stop
            if stop > self.got:  # a rollback has taken the end of this batch back
                with pytest.raises(StoreError, match="not got"):
                    self.store.release(stop - 1)
                return
            self.store.release(stop - 1)
            self.released = max(self.released, stop)

    @rule(
        which=st.integers(0, 5), at_end=st.booleans(), by_value=st.booleans(), clean=st.booleans()
    )
    def ack_a_batch(self, which: int, at_end: bool, by_value: bool, clean: bool) -> None:
        """By the range's end or ack position: the very object, or an equal one that came from
        elsewhere."""
        if not self.batches:
            return
        found = self.batches[which % len(self.batches)]
        stop = found.stop if at_end else found.acked
        if not stop:
            return
        position = found.batch.range.end if at_end else found.batch.range.ack
        if by_value:
            position = Position(position.journal, position.offset, timestamp_s=position.timestamp_s)
        ack = self.store.clean_until if clean else self.store.ack
        if stop <= self.ack or stop > self.got:
            with pytest.raises(AckPositionError):
                ack(position)
            return
        ack(position)
        self.ack = stop
        self.released = max(self.released, stop)
        self.batches = [one for one in self.batches if one.stop > stop]

    @rule()
    def rollback(self) -> None:
        self.store.rollback()
        self.got = self.released
        self.batches = [one for one in self.batches if one.first < self.released]

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def counters_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        ack, released, got, put = self.store.sequences
        assert (ack, released, got, put) == (
            self.ack - 1,
            self.released - 1,
            self.got - 1,
            len(self.log) - 1,
        )
        assert ack <= released <= got <= put
        assert self.store.retained_bytes == sum(self.lengths[self.released :])
        assert self.store.is_drained == (self.has_ended and self.got == len(self.log))
        latest, first = self.store.latest_position(), self.store.first_position()
        assert (latest.offset if latest else None) == (self.log[-1] if self.log else None)
        at = min(self.released, len(self.log) - 1)  # S11
        expected = (self.log[at], 0 < self.released < len(self.log)) if self.log else None
        assert ((first.offset, first.included) if first else None) == expected

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.stop()
