"""Sealed journals are the server's bytes, whatever the runs that read them were set to."""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import KeepJournalsConfig
from cdc_pipeline.errors import SourceIdentityError
from cdc_pipeline.fault_points import listening
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


def test_what_does_not_join_is_removed(tmp_path: Path) -> None:
    kept, begin = KeptJournals(tmp_path), KeptJournal("binlog.000001", 0, False, (), 7)
    journal = kept.append(begin, bytes(100))
    (tmp_path / "binlog.000001.7.150-250.part").write_bytes(bytes(100))
    (tmp_path / "binlog.000001.7.0-0.part").write_bytes(bytes(100))
    kept.tidy()
    assert kept.journals() == [journal]
    assert [file.name for file in tmp_path.iterdir()] == list(journal.files)


def test_k24_nothing_is_pruned_while_a_consumer_may_need_another_log(tmp_path: Path) -> None:
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
    newest = Position("binlog.000002", journal_created_s=8)
    assert KeptJournals.newest(keep, identity).folder == logs[1].folder
    for needed in ([newest, replace(newest, journal_created_s=7)], [Position("binlog.000003")]):
        prune(keep, identity, needed=needed)
        assert [len(kept.journals()) for kept in logs] == [2, 2]
    prune(keep, identity, needed=[newest])
    assert [[one.name for one in kept.journals()] for kept in logs] == [[], ["binlog.000002"]]
