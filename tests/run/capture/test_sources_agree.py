"""Live dump and archived journals give the same rows once artificial events are dropped."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.source.archive.archive import ArchiveSource
from tests.servers import Server
from tests.support.live_source import events_of, live_source, position
from tests.support.workload import Workload, create_tables


def test_live_and_archive_agree(server: Server, fresh_database: str, tmp_path: Path) -> None:
    source = live_source(server)
    start = position(server)
    create_tables(server, fresh_database)
    workload = Workload(server, fresh_database, seed=11)
    workload.run(15)
    server.flush_journal()
    workload.large_transaction(300)
    workload.close()
    end = position(server)
    # A closed last journal: an archive's own end is the end of its last whole transaction.
    server.flush_journal()
    server.copy_journals(tmp_path)
    live = events_of(source.chunks(start, end))
    source.close()
    archived = events_of(ArchiveSource(tmp_path, chunk_bytes=4096).chunks(start, end))
    assert len(live) > 600
    assert {event.journal for event in live} == {start.journal, end.journal}
    assert live == archived
