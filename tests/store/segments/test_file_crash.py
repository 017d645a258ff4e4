"""The file store after a crash (SPEC S15, K9): nothing that was put is lost, nothing is made up."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.errors import StoreDamagedError, StoreError
from cdc_pipeline.store.segments.file import FileEventStore
from tests.store.contract_suite import Feed, content, offsets
from tests.store.segments.crash_child import SEGMENT_BYTES, parts, pieces
from tests.store.segments.crash_helpers import copied, die


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


def dead_store(directory: Path, slices: list[EventSlice], *, segment_bytes: int = 1 << 20) -> list[int]:
    """Put each slice and die; the length of the files after each put."""
    store = FileEventStore(directory, segment_bytes=segment_bytes, batch_mode="itemsize")
    store.start()
    lengths = []
    for part in slices:
        store.put([part])
        lengths.append(store.disk_bytes)
    die(store)
    return lengths


def all_of(store: FileEventStore) -> list[EventSlice]:
    """Everything that the store holds, in order, by gets of any size."""
    found: list[EventSlice] = []
    while (batch := store.try_get(1 << 30)).range is not None:
        found += batch.slices
    return found


@pytest.mark.parametrize(
    ("lines", "fsync"), [(1, "never"), (38, "never"), (171, "never"), (400, "segment"), (97, "put")]
)
def test_s15_after_sigkill_everything_since_the_last_ack_is_there(directory: Path, lines: int, fsync: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.store.segments.crash_child", str(directory), fsync], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(lines)]
    child.kill()
    said += child.stdout.read().splitlines(keepends=True)
    child.wait()
    child.stdout.close()
    words = [line.decode().split() for line in said if line.endswith(b"\n")]
    last_put = max(int(number) for word, number in words if word == "put")
    last_ack = max((int(number) for word, number in words if word == "ack"), default=-1)

    recovery = FileEventStore(directory, segment_bytes=SEGMENT_BYTES, batch_mode="itemsize").recover()
    got = all_of(recovery.store)
    put = list(itertools.islice(parts(), last_put + 3))
    # An ack or a put that was done but not yet said may be one further.
    first = next(n for n, part in enumerate(put) if offsets([part])[0] == offsets(got)[0])
    assert first in (last_ack + 1, last_ack + 2)
    assert len(got) >= last_put + 1 - first
    assert first + len(got) <= last_put + 2
    assert content(got) == content(put[first : first + len(got)])
    assert recovery.is_contiguous
    assert recovery.acked is None if first == 0 else recovery.acked.offset == offsets([put[first - 1]])[-1]
    assert recovery.resume.offset == int(got[-1].events["next_offset"][-1])
    assert recovery.store.sequences[0] == sum(part.event_count for part in put[:first]) - 1

    recovery.store.put([put[first + len(got)]])  # and it goes on
    recovery.store.rollback()
    assert content(all_of(recovery.store)) == content(put[first : first + len(got) + 1])
    recovery.store.stop()


def test_s15_a_tail_torn_at_any_byte_is_cut_off_and_said(directory: Path) -> None:
    feed = Feed()
    slices = [feed.transaction(5), feed.ddl(), feed.transaction(6)]
    lengths = dead_store(directory, slices)
    name = "segment-00000001.events"
    for length in range(lengths[1], lengths[2] + 1):
        torn = copied(directory, "torn")
        os.truncate(torn / name, length)
        store = FileEventStore(torn, batch_mode="itemsize")
        recovery = store.recover()
        whole = slices if length == lengths[2] else slices[:2]
        assert recovery.events == sum(part.event_count for part in whole)
        assert content(all_of(store)) == content(whole)
        if length in (lengths[1], lengths[2]):
            assert recovery.torn is None
        else:
            assert (recovery.torn.segment, recovery.torn.offset) == (name, lengths[1])
            assert recovery.torn.cut_bytes == length - lengths[1]
            assert f"{length - lengths[1]} bytes" in str(recovery.torn)
            assert (torn / name).stat().st_size == lengths[1]
        store.stop()


@pytest.mark.parametrize("from_byte", [0, 8, 60, 500])
def test_s15_a_tail_that_the_disk_never_got_is_torn_too(directory: Path, from_byte: int) -> None:
    """After a power cut the file may have its length, and zeros in it."""
    feed = Feed()
    slices = [feed.transaction(5), feed.transaction(6)]
    lengths = dead_store(directory, slices)
    path = directory / "segment-00000001.events"
    raw = bytearray(path.read_bytes())
    raw[lengths[0] + from_byte :] = bytes(lengths[1] - lengths[0] - from_byte)
    path.write_bytes(raw)
    recovery = FileEventStore(directory).recover()
    assert (recovery.events, recovery.torn.offset, recovery.torn.cut_bytes) == (5, lengths[0], lengths[1] - lengths[0])
    assert "checksum" in recovery.torn.reason
    recovery.store.stop()


def test_s15_a_flipped_bit_in_the_middle_is_an_error_that_names_file_and_offset(directory: Path) -> None:
    feed = Feed()
    lengths = dead_store(directory, [feed.transaction(5), feed.transaction(6), feed.ddl()])
    name = "segment-00000001.events"
    original = (directory / name).read_bytes()
    for at in range(lengths[0], lengths[1]):
        raw = bytearray(original)
        raw[at] ^= 1 << at % 8
        (directory / name).write_bytes(raw)
        with pytest.raises(StoreDamagedError, match=name) as caught:
            FileEventStore(directory).recover()
        assert caught.value.offset == lengths[0]
    (directory / name).write_bytes(original)
    recovery = FileEventStore(directory).recover()  # a refused recovery changes nothing
    assert (recovery.events, recovery.torn) == (13, None)
    recovery.store.stop()


def test_s15_a_finished_segment_has_no_torn_tail(directory: Path) -> None:
    feed = Feed()
    dead_store(directory, [feed.transaction(9) for _ in range(4)], segment_bytes=1000)
    names = sorted(path.name for path in directory.glob("segment-*"))
    assert len(names) == 4
    for name, change in itertools.product(names[:3], ("short", "flipped", "gone", "header")):
        damaged = copied(directory, "damaged")
        raw = bytearray((damaged / name).read_bytes())
        if change == "flipped":
            raw[-3] ^= 1
        elif change == "header":
            raw[20] ^= 1
        (damaged / name).write_bytes(raw[:-1] if change == "short" else raw)
        if change == "gone":
            (damaged / name).unlink()
        with pytest.raises(StoreDamagedError, match=name):
            FileEventStore(damaged).recover()
        again = FileEventStore(damaged)  # the way out that the error names
        again.start()
        assert again.sequences == (-1, -1, -1, -1)
        again.stop()


def test_s15_a_segment_out_of_order_is_damage(directory: Path) -> None:
    feed = Feed()
    dead_store(directory, [feed.transaction(9) for _ in range(4)], segment_bytes=1000)
    second, third = (directory / f"segment-0000000{number}.events" for number in (2, 3))
    first_bytes, second_bytes = second.read_bytes(), third.read_bytes()
    assert len(first_bytes) == len(second_bytes)
    second.write_bytes(second_bytes)
    third.write_bytes(first_bytes)
    with pytest.raises(StoreDamagedError, match=r"00000002") as caught:
        FileEventStore(directory).recover()
    assert caught.value.got == "sequence 18 instead of 9"


def test_s15_a_manifest_that_was_changed_anywhere_is_damage(directory: Path) -> None:
    feed = Feed()
    store = FileEventStore(directory, batch_mode="itemsize")
    store.start()
    store.put([feed.transaction(5)])
    store.ack(store.try_get(3).range.end)
    die(store)
    path = directory / "manifest.json"
    original = path.read_bytes()
    for at in range(len(original)):
        raw = bytearray(original)
        raw[at] ^= 1
        path.write_bytes(raw)
        with pytest.raises(StoreDamagedError, match=r"manifest\.json"):
            FileEventStore(directory).recover()


def test_s15_files_that_no_manifest_names_do_not_count(directory: Path) -> None:
    feed = Feed()
    dead_store(directory, [feed.transaction(5)])
    other = directory / "segment-00000007.events"
    other.write_bytes((directory / "segment-00000001.events").read_bytes())
    (directory / "manifest.json.new").write_text("{")
    recovery = FileEventStore(directory).recover()
    assert recovery.events == 5
    assert not other.exists()
    recovery.store.stop()


def test_s15_a_segment_that_died_in_its_own_header_holds_nothing(directory: Path) -> None:
    feed = Feed()
    dead_store(directory, [feed.transaction(9), feed.transaction(9)], segment_bytes=1000)
    os.truncate(directory / "segment-00000002.events", 100)
    recovery = FileEventStore(directory).recover()
    assert (recovery.events, recovery.torn.offset, recovery.torn.cut_bytes) == (9, 0, 100)
    recovery.store.put([feed.transaction(5)])
    assert recovery.store.sequences == (-1, -1, -1, 13)
    recovery.store.stop()


@pytest.mark.parametrize("lines", [2, 40, 120])
def test_k9_after_sigkill_recovery_ends_with_the_last_whole_transaction(directory: Path, lines: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.store.segments.crash_child", str(directory), "never", "pieces"],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(lines)]
    child.kill()
    said += child.stdout.read().splitlines(keepends=True)
    child.wait()
    child.stdout.close()
    last_put = max(int(line.split()[1]) for line in said if line.startswith(b"put") and line.endswith(b"\n"))
    recovery = FileEventStore(directory, segment_bytes=SEGMENT_BYTES, batch_mode="itemsize").recover()
    got = all_of(recovery.store)
    put = list(itertools.islice(pieces(), last_put + 3))
    stop = 0
    if got:
        stop = next(n for n, part in enumerate(put) if offsets([part])[-1] == offsets(got)[-1]) + 1
        assert content(got) == content(put[stop - len(got) : stop])
        assert got[-1].kind is SliceKind.LAST_PIECE
    assert stop % 3 == 0
    assert stop >= (last_put + 1) // 3 * 3 or not got
    assert recovery.dropped_open_events in (0, 400, 700)
    recovery.store.stop()


def test_s1_recovery_of_more_than_the_ring_holds_waits_for_room(directory: Path) -> None:
    """What was released comes back as well: with what was put since, it may be longer than the ring."""
    feed = Feed()
    store = FileEventStore(directory, ring_events=8, batch_mode="itemsize")
    store.start()
    parts = [feed.transaction(8), feed.transaction(6)]
    store.put(parts[:1])
    store.release(store.try_get(7).last_sequence)
    store.put(parts[1:])
    die(store)
    recovery = FileEventStore(directory, ring_events=8, batch_mode="itemsize").recover()
    assert recovery.events == recovery.store.held_events == 14
    assert not recovery.store.try_put([feed.transaction(5)])
    batch = recovery.store.try_get(100)
    assert content(batch.slices) == content(parts)
    recovery.store.ack(batch.range.end)
    assert recovery.store.try_put([feed.transaction(8)])
    recovery.store.stop()


def test_k9_recovery_ends_with_the_last_whole_transaction(directory: Path) -> None:
    feed = Feed()
    whole = [feed.transaction(5), *feed.pieces(6, 6)]
    open_pieces = feed.pieces(7, 7, 7)[:2]
    dead_store(directory, [*whole, *open_pieces], segment_bytes=1000)
    kept = FileEventStore(copied(directory, "kept")).recover(keep_open=True)
    assert (kept.events, kept.dropped_open_events) == (31, 0)
    assert content(all_of(kept.store)) == content([*whole, *open_pieces])
    kept.store.stop()

    recovery = FileEventStore(directory, batch_mode="itemsize").recover()
    assert (recovery.events, recovery.dropped_open_events) == (17, 14)
    assert content(all_of(recovery.store)) == content(whole)
    assert recovery.resume.offset == int(whole[-1].events["next_offset"][-1])
    recovery.store.put(open_pieces)  # read again from there
    assert recovery.store.sequences[3] == 30
    die(recovery.store)
    again = FileEventStore(directory).recover(keep_open=True)
    assert content(all_of(again.store)) == content([*whole, *open_pieces])
    again.store.stop()


def test_s8_the_gtid_of_a_transaction_survives_the_loss_of_its_begin(directory: Path) -> None:
    feed = Feed()
    pieces = feed.pieces(6, 6, 6)
    store = FileEventStore(directory, batch_mode="itemsize", segment_bytes=500)
    store.start()
    for part in pieces[:2]:
        store.put([part])
    store.ack(store.try_get(8).range.end)  # inside the second piece; the first one's file goes
    die(store)
    recovery = FileEventStore(directory, batch_mode="itemsize").recover(keep_open=True)
    assert (recovery.events, recovery.is_contiguous) == (4, True)
    assert recovery.store.sequences == (7, 7, 7, 11)
    assert recovery.store.first_position().offset == offsets(pieces)[8]
    recovery.store.put([pieces[2]])
    batch = recovery.store.try_get(100)
    assert offsets(batch.slices) == offsets(pieces)[8:]
    assert [part.kind for part in batch.slices] == [SliceKind.OPEN_PIECE, SliceKind.LAST_PIECE]
    assert batch.range.ack.gtid_set.endswith(":1")
    recovery.store.ack(batch.range.ack)
    assert recovery.store.sequences == (17, 17, 17, 17)
    recovery.store.stop()


def test_s15_recovery_of_all_acked_and_of_nothing(directory: Path, tmp_path: Path) -> None:
    feed = Feed()
    store = FileEventStore(directory, batch_mode="itemsize")
    store.start()
    part = feed.transaction(5)
    store.put([part])
    store.ack(store.try_get(5).range.end)
    die(store)
    recovery = FileEventStore(directory, batch_mode="itemsize").recover()
    assert (recovery.events, recovery.resume, recovery.acked.offset) == (0, None, offsets([part])[-1])
    assert recovery.store.sequences == (4, 4, 4, 4)
    assert recovery.store.first_position() == recovery.acked
    with pytest.raises(StoreError, match="runs"):
        recovery.store.recover()
    recovery.store.stop()

    nothing = FileEventStore(tmp_path / "new").recover()
    assert (nothing.events, nothing.acked, nothing.store.sequences) == (0, None, (-1, -1, -1, -1))
    nothing.store.stop()
