"""Sealed journals are the server's bytes, whatever the runs that read them were set to."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_pipeline.errors import SourceIdentityError
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals


@pytest.mark.parametrize("seed", range(8))
def test_a_journal_is_sealed_whole_whichever_of_its_parts_are_compressed(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    content = rng.randbytes(5000) + bytes(5000)
    cuts = [0, *sorted(rng.sample(range(1, len(content)), 3)), len(content)]
    journal = KeptJournal("binlog.000001", 0, False, (), 7)
    for start, stop in itertools.pairwise(cuts):
        kept = KeptJournals(tmp_path / "kept", compress=rng.random() < 0.5)
        journal = kept.append(journal, content[start:stop])
    compress = bool(seed % 2)
    kept = KeptJournals(tmp_path / "kept", compress=compress)
    kept.seal(journal)
    (sealed,) = kept.journals()
    assert sealed.files == (f"binlog.000001.{len(content)}.zst" if compress else "binlog.000001",)
    assert kept.copy(sealed, tmp_path).read_bytes() == content
    # Files decide how they are read, not what the next run is set to.
    assert KeptJournals(tmp_path / "kept").is_readable_in_place() is not compress


def test_parts_that_are_shorter_than_their_names_say_are_not_sealed(tmp_path: Path) -> None:
    kept = KeptJournals(tmp_path)
    journal = kept.append(KeptJournal("binlog.000001", 0, False, (), 7), bytes(1000))
    (tmp_path / journal.files[0]).write_bytes(bytes(999))
    with pytest.raises(SourceIdentityError):
        kept.seal(journal)
    assert [file.name for file in tmp_path.iterdir()] == list(journal.files)


def test_a_part_that_exists_is_compared_and_one_that_does_not_join_is_removed(
    tmp_path: Path,
) -> None:
    kept, begin = KeptJournals(tmp_path), KeptJournal("binlog.000001", 0, False, (), 7)
    kept.append(begin, bytes(100))
    kept.append(replace(begin, size_bytes=150), bytes(100))
    kept.tidy()
    (journal,) = kept.journals()
    assert journal.size_bytes == 100
    assert [file.name for file in tmp_path.iterdir()] == list(journal.files)
    assert kept.append(begin, bytes(100)) == journal
    with pytest.raises(SourceIdentityError) as caught:
        kept.append(begin, bytes(60) + b"x" + bytes(39))
    assert caught.value.offset == 60
