"""Sealed journals are the server's bytes, whatever the runs that read them were set to."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import KeepJournalsConfig
from cdc_pipeline.errors import SinkError, SourceIdentityError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.position.failback import Consumer
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals, prune


@pytest.mark.parametrize("seed", range(8))
def test_a_journal_is_sealed_whole_whatever_the_runs_are_set_to(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    content = rng.randbytes(5000) + bytes(5000)
    cuts = [0, *sorted(rng.sample(range(1, len(content)), 3)), len(content)]
    journal = KeptJournal("binlog.000001", 0, False, (), 7)
    compress = [bool(seed % 2), *(rng.random() < 0.5 for _ in range(3))]
    for (start, stop), is_packed in zip(itertools.pairwise(cuts), compress, strict=True):
        kept = KeptJournals(tmp_path / "kept", compress=is_packed)
        journal = kept.append(journal, content[start:stop])
        assert kept.journals() == [journal]
        assert len(journal.files) == 1
    kept.seal(journal)
    (sealed,) = kept.journals()
    is_packed = compress[0]
    assert sealed.files == (f"binlog.000001.{len(content)}.zst" if is_packed else "binlog.000001",)
    assert kept.copy(sealed, tmp_path).read_bytes() == content
    assert (kept.folder / sealed.files[0]).stat().st_mode & 0o777 == 0o600
    # Files decide how they are read, not what the next run is set to.
    assert KeptJournals(tmp_path / "kept").is_readable_in_place() is not is_packed


@pytest.mark.parametrize("compress", [False, True])
def test_what_a_killed_run_has_left_behind_the_promised_bytes_is_written_over(
    compress: bool, tmp_path: Path
) -> None:
    kept = KeptJournals(tmp_path / "kept", compress=compress)
    begin = KeptJournal("binlog.000001", 0, False, (), 7)

    def kill(point: str) -> None:
        if point == "journal_written":
            raise KeyboardInterrupt

    for start in (0, 1000):
        with listening(kill), pytest.raises(KeyboardInterrupt):
            kept.append(begin, bytes(3000))
        kept.tidy()
        begin = kept.append(next(iter(kept.journals()), begin), bytes([start & 0xFF]) * 1000)
        assert kept.journals() == [begin]
        assert kept.copy(begin, tmp_path).read_bytes()[start:] == bytes([start & 0xFF]) * 1000
    with listening(kill), pytest.raises(KeyboardInterrupt):
        kept.append(begin, bytes(3000))
    kept.seal(begin)
    (sealed,) = kept.journals()
    assert kept.copy(sealed, tmp_path).stat().st_size == sealed.size_bytes == 2000


def test_a_file_that_is_shorter_than_its_name_says_is_refused(tmp_path: Path) -> None:
    kept = KeptJournals(tmp_path)
    journal = kept.append(KeptJournal("binlog.000001", 0, False, (), 7), bytes(1000))
    (tmp_path / journal.files[0]).write_bytes(bytes(999))
    for use in (
        kept.seal,
        lambda journal: kept.append(journal, b"more"),
        lambda journal: kept.compare(journal, 500, bytes(500)),
    ):
        with pytest.raises(SourceIdentityError, match="shorter"):
            use(journal)
        assert [file.name for file in tmp_path.iterdir()] == list(journal.files)
    with pytest.raises(SourceIdentityError, match="shorter") as caught:
        kept.copy(journal, tmp_path / "..")
    assert caught.value.offset == 999
    # As copied from an object store: several files, which are joined.
    following = "binlog.000001.7.1000-1100.part"
    (tmp_path / journal.files[0]).write_bytes(bytes(1000))
    (tmp_path / following).write_bytes(bytes(99))
    (journal,) = kept.journals()
    with pytest.raises(SourceIdentityError, match="shorter"):
        kept.seal(journal)
    assert {file.name for file in tmp_path.iterdir()} == set(journal.files)


@pytest.mark.parametrize("compress", [False, True])
def test_k24_a_folder_is_not_taken_for_empty_because_of_one_entry(
    compress: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptJournals(tmp_path, compress=compress)
    journal = kept.append(KeptJournal("binlog.000001", 0, False, (), 7), bytes(1000))
    (tmp_path / "binlog.000009").symlink_to(tmp_path / "absent")
    (tmp_path / "notes").symlink_to(tmp_path / "absent")
    (tmp_path / "old.000001").mkdir()
    reader = KeptJournals(tmp_path)
    assert reader.journals() == [journal]
    assert reader.is_readable_in_place() is not compress

    scan = os.scandir

    def renamed_meanwhile(folder: Path) -> object:
        nonlocal journal
        listed = list(scan(folder))
        monkeypatch.undo()
        journal = kept.append(journal, bytes(1000))
        return listed

    monkeypatch.setattr(os, "scandir", renamed_meanwhile)
    (found,) = reader.journals()
    assert found == journal
    assert found.size_bytes == 2000


def test_k16_a_run_that_was_paused_cuts_nothing_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another took the source's lock over, and has promised more of the same file."""
    kept = KeptJournals(tmp_path)
    journal = kept.append(KeptJournal("binlog.000001", 0, False, (), 7), bytes(1000))
    flock = fcntl.flock

    def pause(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        kept.append(journal, b"a" * 1000)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", pause)
    with pytest.raises(SinkError, match="another run"):
        kept.append(journal, b"b" * 10)
    (journal,) = kept.journals()

    def come_back(point: str) -> None:
        if point == "journal_written":
            with pytest.raises(SinkError, match="another run"):
                kept.append(before, b"b" * 10)

    before = journal
    with listening(come_back):
        kept.append(journal, b"a" * 1000)
    (journal,) = kept.journals()
    assert kept.copy(journal, tmp_path).read_bytes() == bytes(1000) + b"a" * 2000


def test_a_journal_that_got_another_name_is_copied_as_far_as_it_was_listed(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    kept = KeptJournals(folder)
    head = bytes(4) + (7).to_bytes(4, "little") + bytes(92)
    before = kept.append(KeptJournal("binlog.000001", 0, False, (), 7), head)
    kept.seal(kept.append(before, bytes(100)))
    assert kept.copy(before, tmp_path).read_bytes() == head
    for other in (replace(before, created_s=8), replace(before, size_bytes=300)):
        with pytest.raises(FileNotFoundError):
            kept.copy(other, tmp_path)


def test_k24_a_copy_that_fails_is_not_taken_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run of the same process asks whether the copy is there."""
    kept = KeptJournals(tmp_path / "kept")
    journal = kept.append(KeptJournal("binlog.000001", 0, False, (), 7), bytes(1000))
    blocks = KeptJournals._blocks

    def full(self: KeptJournals, *given: Any) -> Iterator[bytes]:
        yield next(blocks(self, *given))
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(KeptJournals, "_blocks", full)
    with pytest.raises(OSError, match="full"):
        kept.copy(journal, tmp_path)
    assert not (tmp_path / journal.name).exists()


def test_what_does_not_join_is_removed(tmp_path: Path) -> None:
    kept, begin = KeptJournals(tmp_path), KeptJournal("binlog.000001", 0, False, (), 7)
    journal = kept.append(begin, bytes(100))
    (tmp_path / "binlog.000001.7.150-250.part").write_bytes(bytes(100))
    (tmp_path / "binlog.000001.7.0-0.part").write_bytes(bytes(100))
    kept.tidy()
    assert kept.journals() == [journal]
    assert [file.name for file in tmp_path.iterdir()] == list(journal.files)


def test_k24_nothing_is_pruned_while_a_consumer_may_need_another_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor in the log before a reset, whose files the server no longer has."""
    keep = KeepJournalsConfig(path=tmp_path, retention=timedelta(seconds=1))
    identity = ServerIdentity("mysql", 1)
    before = KeptJournals.newest(keep, identity)
    logs = (before, before.after_reset())
    for created_s, kept in enumerate(logs, 7):
        for number in (1, 2):
            journal = KeptJournal(f"binlog.{number:06d}", 0, False, (), created_s)
            head = bytes(4) + created_s.to_bytes(4, "little") + bytes(15)
            kept.seal(kept.append(journal, head))
            os.utime(kept.folder / journal.name, (0, 0))
        (kept.folder / "note").symlink_to(tmp_path / "absent")
    newest = Position("binlog.000002", journal_created_s=8)

    def run(*needed: Position) -> list[list[str]]:
        consumers = [Consumer(name="shop.t", epoch=0, position=place) for place in needed]
        prune(keep, identity, needed=consumers)
        return [[journal.name for journal in kept.journals()] for kept in logs]

    whole = [["binlog.000001", "binlog.000002"]] * 2
    assert KeptJournals.newest(keep, identity).folder == logs[1].folder
    for needed in ([newest, replace(newest, journal_created_s=7)], [Position("binlog.000003")]):
        assert run(*needed) == whole
    assert "shop.t needs binlog.000003" in caplog.text
    file = logs[1].folder / newest.journal
    content = file.read_bytes()
    file.write_bytes(b"")
    with pytest.raises(SinkError, match="shorter"):
        run(newest)
    file.write_bytes(content)
    # Only a journal that is needed is read, and only if the place says when it was created.
    monkeypatch.setattr(KeptJournals, "beginning", None)
    assert run(replace(newest, journal_created_s=0)) == [[], ["binlog.000002"]]
    monkeypatch.undo()
    assert run(newest) == [[], ["binlog.000002"]]
