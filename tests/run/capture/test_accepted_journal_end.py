"""An acceptance that a run uses is recorded by it, at its place in the log (K5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, TransactionsBoundConfig
from cdc_pipeline.errors import DamagedJournalError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import live


def config_of(server: Server, lake: Path, **sections: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": live(server),
            "start": "earliest",
            # No table of the log is captured: no JVM is started.
            "tables": {"include": ["elsewhere.*"], "allow_empty": True},
            "sink": {"lake_path": lake},
            **sections,
        }
    )


@pytest.mark.mysql
def test_k5_an_acceptance_that_is_used_is_recorded(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute_all(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (a INT PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (1)",
    )
    config = config_of(server, tmp_path / "lake")
    server.kill()
    server.start()
    server.execute("INSERT INTO shop.t VALUES (2)")
    first, second = (journal.name for journal in server.journals())
    cursors = MemoryCursorStore()
    with pytest.raises(DamagedJournalError, match="no GTIDs"):
        capture(config, cursors=cursors)
    # The cursor stands before the end that is not proved, and the next run says the same.
    assert cursors.cursor is not None
    assert cursors.cursor.journal == first
    with pytest.raises(DamagedJournalError, match="no GTIDs"):
        capture(config, cursors=cursors)
    accepting = config_of(server, tmp_path / "lake", accept={"unproved_journal_ends": [first]})
    fresh = MemoryCursorStore()
    early = capture(accepting, cursors=fresh, bound=TransactionsBoundConfig(transactions=2))
    assert early.notes == ()
    report = capture(accepting, cursors=cursors)
    (note,) = report.notes
    assert (note.kind, note.journal, note.offset) == (
        "accepted_unproved_end",
        first,
        server.journals()[0].stat().st_size,
    )
    assert second in note.text
    assert cursors.metadata["notes"] == [note.model_dump()]
    assert cursors.cursor.journal == second
    assert capture(accepting, cursors=cursors).notes == ()
