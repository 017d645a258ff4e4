"""Any store against a plain list: random puts, gets, releases, acks and rollbacks."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.store.contract_suite import Feed, offsets


class StoreMachine(RuleBasedStateMachine):
    """A list of offsets is the model; a subclass gives `make`."""

    def make(self, size: int, *, batch_mode: str, memory_unit_bytes: int) -> Any:
        raise AssertionError(f"no store of {size} {batch_mode} {memory_unit_bytes}")

    @initialize(size=st.sampled_from([8, 16, 64]), in_bytes=st.booleans(), unit=st.sampled_from([8, 64, 512]))
    def begin(self, size: int, in_bytes: bool, unit: int) -> None:
        self.size, self.in_bytes, self.unit = size, in_bytes, unit
        self.store = self.make(size, batch_mode="memsize" if in_bytes else "itemsize", memory_unit_bytes=unit)
        self.store.start()
        self.feed = Feed()
        self.log: list[int] = []  # offset of every event put
        self.lengths: list[int] = []
        self.isolated: dict[int, int] = {}  # sequence of a statement's first event -> events
        self.ack = self.released = self.got = 0  # counts: one more than the sequences
        self.batches: list[tuple[int, Any]] = []  # got count after it, batch

    @rule(sizes=st.lists(st.integers(5, 12), min_size=1, max_size=3), ddl=st.booleans())
    def put(self, sizes: list[int], ddl: bool) -> None:
        parts = [self.feed.ddl()] if ddl else [self.feed.transactions(*sizes)]
        count = sum(part.event_count for part in parts)
        if count > self.size:
            return
        held_bytes = sum(self.lengths[self.released :])
        has_room = len(self.log) - self.released + count <= self.size
        has_room = has_room and (not self.in_bytes or held_bytes < self.size * self.unit)
        assert self.store.try_put(parts) == has_room
        if has_room:
            if ddl:
                self.isolated[len(self.log)] = count
            self.log += offsets(parts)
            self.lengths += [n for part in parts for n in part.events["event_length"].tolist()]

    @rule(size=st.integers(1, 20))
    def get(self, size: int) -> None:
        batch = self.store.try_get(size)
        stop = self.got
        if stop in self.isolated:
            stop += self.isolated[stop]
        else:
            taken = 0
            while (
                stop < len(self.log)
                and stop not in self.isolated
                and taken < size * (self.unit if self.in_bytes else 1)
            ):
                taken += self.lengths[stop] if self.in_bytes else 1
                stop += 1
        assert offsets(batch.slices) == self.log[self.got : stop]
        if stop > self.got:
            assert batch.last_sequence == stop - 1
            assert batch.range.start.offset == self.log[self.got]
            assert batch.range.end.offset == self.log[stop - 1]
            self.batches.append((stop, batch))
        self.got = stop

    @rule()
    def release(self) -> None:
        if self.batches:
            self.released = max(self.released, self.batches[-1][0])
            self.store.release(self.batches[-1][0] - 1)

    @rule(which=st.integers(0, 5))
    def ack_a_batch(self, which: int) -> None:
        if not self.batches:
            return
        stop, batch = self.batches[which % len(self.batches)]
        self.store.ack(batch.range.end)
        self.ack = stop
        self.released = max(self.released, stop)
        self.batches = [entry for entry in self.batches if entry[0] > stop]

    @rule()
    def rollback(self) -> None:
        self.store.rollback()
        self.got = self.released
        self.batches = [entry for entry in self.batches if entry[0] <= self.released]

    @invariant()
    def counters_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        ack, released, got, put = self.store.sequences
        assert (ack, released, got, put) == (self.ack - 1, self.released - 1, self.got - 1, len(self.log) - 1)
        assert ack <= released <= got <= put
        assert self.store.held_bytes == sum(self.lengths[self.released :])
        latest = self.store.latest_position()
        assert (latest.offset if latest else None) == (self.log[-1] if self.log else None)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.stop()
