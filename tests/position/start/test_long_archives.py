"""Planning over an archive of many journals reads the heads of few, and one journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.backlog.journals import UUID, Archive, created_s, name_of, write_archive
from benchmarks.backlog.planning import ways
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, PositionError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.start import decisions, lookup
from cdc_pipeline.position.start.decisions import after_gtid_set
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.source.archive.archive import ArchiveSource

JOURNALS = 64


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """All journals but three are holes behind their heads: reading on in one is an error."""
    return write_archive(tmp_path_factory.mktemp("archive") / "journals", JOURNALS)


@pytest.mark.parametrize(
    "way",
    [
        "earliest",
        "a journal and an offset",
        "a GTID set",
        "a time",
        "a time in a journal",
        "the cursor",
        "a cursor of another server, by GTID set",
    ],
)
def test_every_way_to_start_reads_no_journal_that_it_does_not_need(
    archive: Archive, tmp_path: Path, way: str
) -> None:
    start, cursor, bound = ways(archive)[way]
    config = PipelineConfig.model_validate(
        {
            "name": "bench",
            "source": {"kind": "archive", "directory": archive.folder},
            "tables": {"include": ["shop.*"]},
            "start": start,
            "bound": bound,
            "sink": {"lake_path": tmp_path / "lake"},
        }
    )
    made = plan(config, cursors=MemoryCursorStore(cursor))
    expected = (name_of(1), 4) if way == "earliest" else (archive.journal, archive.offset)
    assert (made.start.journal, made.start.offset) == expected


def test_a_gtid_set_is_found_by_few_heads(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(source: decisions.Log, journal: str) -> str:
        asked.append(journal)
        return lookup.head_set(source, journal)

    monkeypatch.setattr(decisions, "head_set", counted)
    found = after_gtid_set(ArchiveSource(archive.folder), archive.gtid_set, setting="start")
    assert (found.journal, found.offset, found.gtid_set) == (
        archive.journal,
        archive.offset,
        archive.gtid_set,
    )
    assert found.journal_created_s == created_s(JOURNALS * 7 // 10)
    assert len(asked) <= 7


def test_a_set_that_lacks_what_comes_first_or_has_what_comes_later_is_refused(
    archive: Archive,
) -> None:
    source = ArchiveSource(archive.folder)
    last = archive.gtid_set.rpartition("-")[2]
    with pytest.raises(PositionError, match="come after"):
        after_gtid_set(source, f"{UUID}:2-{last}", setting="start")
    with pytest.raises(PositionError, match="come after"):
        after_gtid_set(source, f"{archive.gtid_set}:{int(last) + 2}", setting="start")
    with pytest.raises(CdcError):
        after_gtid_set(source, f"{UUID}:1-{10**9}", setting="start")
