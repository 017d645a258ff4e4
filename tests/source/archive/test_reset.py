"""A log that was reset: journals and GTIDs are numbered again, and must never read as nothing
new.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from cdc_pipeline.errors import JournalMissingError, SourceIdentityError
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.capture.commit import cursor_state
from tests.source.archive.conftest import Log
from tests.support.waits import wait_until


def test_p5_a_reset_log_never_reads_as_nothing_new(own_log: Log) -> None:
    """Numbered again, the old copies would fit, and the server has the cursor's set."""
    log = own_log
    log.keep(1, 2, 3, 4, 5)
    server = log.server
    cursor = cursor_state("shop", log.live().identity, log.start)
    late = replace(log.sets[4], journal_created_s=log.start.journal_created_s)

    def refused(*positions: Position) -> None:
        for source in (log.live(), log.source()):
            for position in positions:
                own = cursor_state("shop", source.identity, position)
                with pytest.raises((SourceIdentityError, JournalMissingError)):
                    resolve_start(cursor=own, start="latest", source=source)

    assert resolve_start(cursor=cursor, start="latest", source=log.source()).position == log.start
    # until the clock shows another second
    wait_until(lambda: int(time.time()) > log.start.journal_created_s + 1)
    server.reset_log()
    refused(log.start, late)
    for number in range(40):
        server.execute(f"INSERT INTO shop.t VALUES ({1000 + number})")
    refused(log.start, late)
    for _ in range(5):
        server.flush_journal()
        server.execute("DELETE FROM shop.t LIMIT 1")
    if log.start.gtid_set:  # sets alone do not tell
        log.live().validate_position(log.start)
    refused(log.start, late)
    server.purge_to("binlog.000004")
    with pytest.raises(SourceIdentityError):
        resolve_start(cursor=cursor, start="latest", source=log.source())
