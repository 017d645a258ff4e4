"""The file store: the contract, a plain list as its model, its bound, its clean-up, its folder."""

from __future__ import annotations

import itertools
import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.errors import LockError, StoreDamagedError, StoreError
from cdc_pipeline.store.segments.mixed import FileEventStore
from tests.store.contract_suite import DEADLINE_S, Feed, StoreContract, content, in_thread, offsets
from tests.store.segments.crash_helpers import die
from tests.store.store_machine import StoreMachine


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


def segments(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("segment-"))


class TestFileStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _directories(self, tmp_path: Path) -> Iterator[None]:
        self.directories = (tmp_path / str(number) for number in itertools.count())
        self.made: list[FileEventStore] = []
        yield
        for store in self.made:
            store.stop()

    def make(self, ring_events: int = 16, **options: Any) -> FileEventStore:
        options.setdefault("batch_mode", "itemsize")
        store = FileEventStore(
            next(self.directories), ring_events=ring_events, segment_bytes=4096, **options
        )
        self.made.append(store)
        return store

    def test_s3_arithmetic_holds_beyond_32_bits(self) -> None:
        """Lengths are believed only as far as there are bytes: a file holds the bytes
        themselves."""
        store, feed = self.started(16, batch_mode="memsize", memory_unit_bytes=1 << 40), Feed()
        part = feed.marks(4)
        part.chunk.events["event_length"] = 2**32 - 1
        with pytest.raises(StoreError, match="does not have"):
            store.try_put([feed.transaction(5), EventSlice(part.chunk, 0, 4)])
        assert store.sequences == (-1, -1, -1, -1)
        assert store.try_put([feed.transaction(5)])


class FileMachine(StoreMachine):
    def make(self, size: int, **options: Any) -> FileEventStore:
        self.folder = tempfile.TemporaryDirectory(prefix="cdc-store-")
        return FileEventStore(
            Path(self.folder.name) / "store", ring_events=size, segment_bytes=1500, **options
        )

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestFileMachine = FileMachine.TestCase
TestFileMachine.settings = settings(max_examples=40, stateful_step_count=40)


# -- what is stored --------------------------------------------------------------------------------


def test_s15_only_the_slices_own_events_are_stored_and_gaps_between_them_are_closed(
    directory: Path,
) -> None:
    feed = Feed()
    whole = feed.transactions(5, 6, 7).chunk
    # the second transaction left out
    rows = whole.events[[0, 1, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17]]
    rows["parent"][7:9] = 6
    rows["parent"][2] = 1
    part = EventSlice(
        Chunk(whole.journal, whole.journal_format, whole.data, rows, whole.end_offset), 5, 12
    )
    store = FileEventStore(directory)
    store.start()
    gap = EventSlice(part.chunk, 3, 12)
    store.put([part, gap])
    got = store.try_get(100).slices
    assert content(got) == content([part, gap])
    assert len(got[0].chunk.data) == part.event_bytes
    assert [len(one.chunk.events) for one in got] == [7, 9]
    assert got[0].events["parent"].tolist() == [-1, -1, 1, 1, -1, -1, -1]
    assert (
        got[1].events["start"].tolist()
        == (np.cumsum(gap.events["event_length"]) - gap.events["event_length"]).tolist()
    )
    store.stop()


def test_s15_a_parent_outside_of_the_slice_is_still_one(directory: Path) -> None:
    part = Feed().transaction(9)
    part.chunk.events["parent"][3:6] = 1
    store = FileEventStore(directory)
    store.start()
    store.put([EventSlice(part.chunk, 4, 9, SliceKind.LAST_PIECE)])
    assert store.try_get(100).slices[0].events["parent"].tolist() == [0, 1, -1, -1, -1]
    store.stop()


def test_s15_a_slice_in_many_runs_of_bytes(directory: Path) -> None:
    whole = Feed().marks(400).chunk
    chunk = Chunk(
        whole.journal, whole.journal_format, whole.data, whole.events[::2].copy(), whole.end_offset
    )
    part = EventSlice(chunk, 0, 200)
    store = FileEventStore(directory)
    store.start()
    store.put([part])
    assert content(store.try_get(1000).slices) == content([part])
    store.stop()


def test_s15_statements_with_any_text_come_back(directory: Path) -> None:
    part = Feed().ddl()
    odd = EventSlice(
        part.chunk,
        0,
        2,
        SliceKind.STATEMENT,
        sql="ALTER `é\udcff\0`",
        database="größe",
        source="mysql:ü",
    )
    store = FileEventStore(directory)
    store.start()
    store.put([odd])
    assert content(store.try_get(10).slices) == content([odd])
    store.stop()


# -- bound and clean-up ----------------------------------------------------------------------------


def test_s15_puts_wait_for_disk_bytes_and_go_on_when_some_are_released(directory: Path) -> None:
    store, feed = FileEventStore(directory, disk_bytes_max=20_000, memory_unit_bytes=1), Feed()
    store.start()
    put = []
    part = feed.transaction(20)
    while store.try_put([part]):
        put.append(part)
        part = feed.transaction(20)
    assert len(put) > 4
    assert 20_000 <= store.disk_bytes < 30_000
    assert not store.put([part], timeout_s=0.01)
    assert store.get(1_000_000, timeout_s=0).event_count == sum(one.event_count for one in put)
    join = in_thread(lambda: store.put([part], timeout_s=DEADLINE_S))
    batch = in_thread(lambda: store.get(1))()  # S13: it does not wait for the put that waits
    assert batch.slices == ()
    store.release(store.sequences[2])
    assert join()
    assert store.disk_bytes < 20_000
    assert content(store.try_get(1_000_000).slices) == content([part])
    store.stop()


def test_s15_segments_go_as_acks_pass(directory: Path) -> None:
    store, feed = FileEventStore(directory, segment_bytes=3000, batch_mode="itemsize"), Feed()
    store.start()
    for _ in range(30):
        store.put([feed.transaction(5)])
    assert len(segments(directory)) > 8
    left = [len(segments(directory))]
    for _ in range(30):
        store.ack(store.try_get(5).range.end)
        left.append(len(segments(directory)))
    assert left == sorted(left, reverse=True)
    assert left[15] <= left[0] // 2 + 1
    assert left[-1] <= 1
    store.stop()


def test_s15_a_failed_write_stores_nothing_and_leaves_what_was_there(directory: Path) -> None:
    store, feed = FileEventStore(directory), Feed()
    store.start()
    kept = [feed.transaction(5), feed.transaction(6)]
    store.put(kept)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (store.disk_bytes + 1000, hard))
    try:
        with pytest.raises(StoreError, match="cannot be written") as caught:
            store.put([feed.transaction(5), feed.transaction(50)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.setting == "store.directory"
    assert store.sequences == (-1, -1, -1, 10)
    late = feed.transaction(7)
    store.put([late])
    assert content(store.try_get(100).slices) == content([*kept, late])
    store.stop()


def test_s15_a_damaged_entry_stops_a_get_and_nothing_moves(directory: Path) -> None:
    store, feed = FileEventStore(directory, batch_mode="itemsize"), Feed()
    store.start()
    store.put([feed.transaction(5)])
    at = store.disk_bytes
    store.put([feed.transaction(5)])
    path = directory / segments(directory)[0]
    raw = bytearray(path.read_bytes())
    raw[at + 500] ^= 4
    path.write_bytes(raw)
    with pytest.raises(StoreDamagedError, match=path.name) as caught:
        store.try_get(10)
    assert caught.value.offset == at
    assert store.sequences == (-1, -1, -1, 9)
    assert store.try_get(5).event_count == 5
    store.stop()


# -- the folder (K14) ------------------------------------------------------------------------------


def test_k14_the_spill_is_private_and_gone_after_stop(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    store, feed = FileEventStore(directory, segment_bytes=2000), Feed()
    store.start()
    for _ in range(8):
        store.put([feed.transaction(5)])
    assert len(segments(directory)) > 2
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    store.stop()
    assert [path.stat().st_size for path in directory.iterdir()] == [0]  # the lock


def test_k14_the_next_start_removes_what_a_crash_left(directory: Path) -> None:
    """K9: nothing of a dead store is used again; its events are read again from the cursor."""
    store, feed = FileEventStore(directory), Feed()
    store.start()
    store.put([feed.transaction(5)])
    die(store)
    assert segments(directory)
    again = FileEventStore(directory)
    again.start()
    assert os.listdir(directory) == ["store.lock"]
    assert again.sequences == (-1, -1, -1, -1)
    again.stop()


def test_k14_a_directory_with_files_of_others_is_left_alone(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    (directory / "mine.txt").write_text("mine")
    (directory / "segment-00000001.events").write_text("x")
    with pytest.raises(StoreError, match="files that are not the store's") as caught:
        FileEventStore(directory).start()
    assert "mine.txt" in str(caught.value)
    assert sorted(os.listdir(directory)) == ["mine.txt", "segment-00000001.events"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_a_directory_that_is_a_file_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        FileEventStore(tmp_path / "file").start()


def test_k16_two_stores_never_share_a_directory(directory: Path) -> None:
    store, feed = FileEventStore(directory), Feed()
    store.start()
    store.put([feed.transaction(5)])
    with pytest.raises(LockError, match="another store"):
        FileEventStore(directory).start()
    assert store.try_get(5).event_count == 5
    store.stop()
    again = FileEventStore(directory)
    again.start()
    again.stop()


def test_s1_without_a_ring_size_only_the_disk_bounds_it(directory: Path) -> None:
    store, feed = FileEventStore(directory), Feed()
    store.start()
    part = feed.marks(20_000)
    assert store.try_put([part])
    assert store.try_put([part])
    assert len(offsets(store.try_get(1 << 20).slices)) == 40_000
    store.stop()
