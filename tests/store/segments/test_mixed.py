"""The mixed store: the contract, a plain list as its model, and what goes where."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from cdc_pipeline.errors import LockError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.store.segments.mixed import FileEventStore, MixedEventStore
from tests.store.contract_suite import DEADLINE_S, Feed, StoreContract, content, in_thread
from tests.store.segments.crash_helpers import die
from tests.store.store_machine import StoreMachine


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


def segments(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("segment-"))


class TestMixedStore(StoreContract):
    """With a memory of a third of the ring, so that every test meets both halves."""

    @pytest.fixture(autouse=True)
    def _directories(self, tmp_path: Path) -> Iterator[None]:
        self.directories = (tmp_path / str(number) for number in itertools.count())
        self.made: list[MixedEventStore] = []
        yield
        for store in self.made:
            store.stop()

    def make(self, ring_events: int = 16, **options: Any) -> MixedEventStore:
        options.setdefault("batch_mode", "itemsize")
        store = MixedEventStore(
            next(self.directories),
            memory_events=max(5, ring_events // 3),
            memory_bytes=1 << 40,
            ring_events=ring_events,
            segment_bytes=4096,
            **options,
        )
        self.made.append(store)
        return store


class MixedMachine(StoreMachine):
    def make(self, size: int, **options: Any) -> MixedEventStore:
        self.folder = tempfile.TemporaryDirectory(prefix="cdc-store-")
        return MixedEventStore(
            Path(self.folder.name) / "store",
            memory_events=size // 2,
            memory_bytes=700,
            ring_events=size,
            segment_bytes=1500,
            **options,
        )

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestMixedMachine = MixedMachine.TestCase
TestMixedMachine.settings = settings(max_examples=40, stateful_step_count=40)


def test_s15_memory_until_its_budget_is_used_then_files_then_memory_again(directory: Path) -> None:
    store, feed = MixedEventStore(directory, memory_events=30, batch_mode="itemsize"), Feed()
    store.start()
    parts = [feed.transaction(10) for _ in range(12)]
    for part in parts[:3]:
        store.put([part])
    assert (store.spilled_events, segments(directory)) == (0, [])
    for part in parts[3:8]:
        store.put([part])
    assert (store.spilled_events, len(segments(directory))) == (50, 1)
    got = store.try_get(80)
    assert content(got.slices) == content(parts[:8])
    assert got.slices[0] is parts[0]  # memory hands out what was put
    assert got.slices[5] is not parts[5]
    store.release(got.last_sequence)
    assert store.memory_event_bytes == 0
    for part in parts[8:11]:
        store.put([part])
    assert store.spilled_events == 50
    assert store.memory_event_bytes == sum(part.event_bytes for part in parts[8:11])
    assert content(store.try_get(80).slices) == content(parts[8:11])
    store.stop()
    assert segments(directory) == []


def test_s15_memory_is_used_again_when_half_of_its_budget_is_free(directory: Path) -> None:
    """Not slice by slice as it comes free: each would keep its whole chunk in memory."""
    store, feed = MixedEventStore(directory, memory_events=40, batch_mode="itemsize"), Feed()
    store.start()
    parts = [feed.transaction(10) for _ in range(11)]
    for part in parts[:5]:
        store.put([part])
    assert store.spilled_events == 10
    seen = []
    for number, spilled in ((5, 20), (6, 20), (7, 20), (8, 20)):
        batch = store.get(10)  # frees one of the four that are in memory
        seen += batch.slices
        store.release(batch.last_sequence)
        store.put([parts[number]])
        assert store.spilled_events == spilled, number
    assert content([*seen, *store.try_get(100).slices]) == content(parts[:9])
    store.stop()


def test_s15_files_go_when_their_events_are_released(directory: Path) -> None:
    store, feed = (
        MixedEventStore(directory, memory_bytes=1, segment_bytes=2000, batch_mode="itemsize"),
        Feed(),
    )
    store.start()
    for _ in range(20):
        store.put([feed.transaction(10)])
    count = len(segments(directory))
    assert count > 8
    left = []
    while (batch := store.try_get(20)).range is not None:
        store.release(batch.last_sequence)
        left.append(len(segments(directory)))
    assert left == sorted(left, reverse=True)
    assert left[len(left) // 2] < count * 3 // 4
    assert left[-1] == 0
    assert store.disk_bytes == 0
    store.stop()


def test_s15_an_entry_larger_than_the_memory_budget_goes_to_a_file(directory: Path) -> None:
    store, feed = MixedEventStore(directory, memory_bytes=1000, batch_mode="itemsize"), Feed()
    store.start()
    large, small = feed.transaction(60), feed.transaction(5)
    assert large.event_bytes > 1000 > small.event_bytes
    store.put([large, small])
    assert (store.spilled_events, store.memory_event_bytes) == (60, small.event_bytes)
    assert content(store.try_get(100).slices) == content([large, small])
    store.stop()


def test_s15_puts_wait_only_for_the_disk(directory: Path) -> None:
    store, feed = (
        MixedEventStore(directory, memory_bytes=2000, disk_bytes_max=20_000, batch_mode="itemsize"),
        Feed(),
    )
    store.start()
    put = [feed.transaction(10)]
    assert store.try_put(put)
    while store.try_put([part := feed.transaction(10)]):
        put.append(part)
    assert sum(one.event_bytes for one in put) > 6000
    assert 20_000 <= store.disk_bytes < 25_000
    join = in_thread(lambda: store.put([part], timeout_s=DEADLINE_S))
    seen = []
    for _ in range(len(put)):
        batch = store.get(10)
        seen += batch.slices
        store.release(batch.last_sequence)
    assert join()
    seen += store.try_get(100).slices
    assert content(seen) == content([*put, part])
    store.stop()


def test_s15_a_full_disk_still_takes_what_fits_in_memory(directory: Path) -> None:
    store, feed = (
        MixedEventStore(directory, memory_events=10, disk_bytes_max=2000, batch_mode="itemsize"),
        Feed(),
    )
    store.start()
    first, second = feed.transaction(10), feed.transaction(30)
    store.put([first])
    store.put([second])
    assert store.disk_bytes >= 2000
    assert not store.try_put([feed.transaction(5)])
    store.release(store.try_get(10).last_sequence)  # frees memory; the file stays
    third = feed.transaction(10)
    assert not store.try_put([feed.transaction(11)])
    assert store.try_put([third])
    assert store.spilled_events == 30
    assert content(store.try_get(100).slices) == content([second, third])
    store.stop()


def test_k14_nothing_of_a_dead_mixed_store_comes_back(directory: Path) -> None:
    store, feed = MixedEventStore(directory, memory_bytes=1), Feed()
    store.start()
    store.put([feed.transaction(5)])
    with pytest.raises(LockError):
        MixedEventStore(directory).start()
    die(store)
    assert segments(directory)
    again = FileEventStore(directory)
    again.start()
    assert segments(directory) == []
    assert again.sequences == (-1, -1, -1, -1)
    again.stop()


_DIES_IN_SPILL = """
import sys
from cdc_pipeline.fault_points import listening
from cdc_pipeline.store.segments.mixed import MixedEventStore
from tests.store.contract_suite import Feed
from tests.support.kills import AtPoint, sigkill

store, feed = MixedEventStore(sys.argv[1], memory_bytes=4000, segment_bytes=20_000), Feed()
store.start()
with listening(AtPoint("spill", sigkill, int(sys.argv[2]))):
    while True:
        store.put([feed.transaction(20)])
        if store.waiting_events > 600:
            store.release(store.try_get(4).last_sequence)
"""


@pytest.mark.parametrize("spills", [1, 90])
def test_k14_killed_in_spill_it_leaves_private_files_and_the_next_start_removes_them(
    directory: Path, spills: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIES_IN_SPILL, str(directory), str(spills)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert segments(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE((directory / name).stat().st_mode) for name in segments(directory)} == {
        0o600
    }
    store, feed = MixedEventStore(directory, memory_bytes=1), Feed()
    store.start()
    assert segments(directory) == []
    part = feed.transaction(9)
    store.put([part])
    assert content(store.try_get(100).slices) == content([part])
    store.stop()
    assert segments(directory) == []


def test_s15_the_memory_budget_counts_the_events_rows_as_well(directory: Path) -> None:
    feed = Feed()
    part = feed.transaction(20)
    rows_bytes = 20 * part.events.dtype.itemsize
    told: list[str] = []
    store = MixedEventStore(directory, memory_bytes=2 * (part.event_bytes + rows_bytes))
    store.start()
    with listening(told.append):
        store.put([part])
        store.put([feed.transaction(20)])
        assert (store.spilled_events, told) == (0, [])
        store.put([feed.marks(1)])
    assert (store.spilled_events, told) == (1, ["spill"])
    store.stop()


_LARGE_TRANSACTION = """
import resource, sys
import numpy as np
from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.store.segments.mixed import MixedEventStore
from tests.store.contract_suite import Feed

store = MixedEventStore(sys.argv[1], memory_bytes=8 << 20, segment_bytes=8 << 20)
store.start()
chunk = Feed().marks(20_000).chunk
piece = EventSlice(chunk, 0, 20_000, SliceKind.OPEN_PIECE)
warm = store.try_put([piece]) and store.try_get(1 << 20)
store.clean_all()
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pieces = int(sys.argv[2])
for number in range(pieces - 1):
    store.put([EventSlice(chunk, 0, 20_000, SliceKind.OPEN_PIECE)])
store.put([EventSlice(chunk, 0, 20_000, SliceKind.LAST_PIECE)])
store.end_of_input()
spilled = store.disk_bytes
events = places = 0
while not store.is_drained:
    batch = store.get(4096)
    events += batch.event_count
    places += sum(int(one.events["offset"].sum()) for one in batch.slices)
    store.release(batch.last_sequence)
assert events == pieces * 20_000
assert places == pieces * int(chunk.events["offset"].sum())
store.stop()
print(spilled, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle) * 1024)
"""


def test_s15_a_large_transaction_passes_in_bounded_memory(directory: Path) -> None:
    """150 MB and more, put whole before the first get, with 8 MiB of memory and gets of 4 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _LARGE_TRANSACTION, str(directory), "80"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    spilled, grown = map(int, done.stdout.split())
    assert spilled > 150_000_000
    assert grown < 48 << 20
