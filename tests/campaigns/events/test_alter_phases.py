"""MariaDB's two-phase ALTER: what START ALTER begins takes effect at COMMIT ALTER, and ROLLBACK
ALTER is nothing."""

from __future__ import annotations

import threading
import time

import numpy as np
import pymysql
import pytest

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.binlog.event_types import ROWS_TYPES, EventType
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.schema.ddl.ddl import parse_logged
from cdc_pipeline.text.table_names import NameRule
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.campaigns.events.replay import closed_journal, statements
from tests.servers import Server

ALTER = "ALTER TABLE t ADD COLUMN w INT NOT NULL DEFAULT 7, FORCE, ALGORITHM=INPLACE, LOCK=NONE"


def _phases(chunk: Chunk) -> list[tuple[int, int]]:
    """(row, extra flags) of the GTID events that are a phase of an ALTER."""
    found = []
    for row in np.flatnonzero(chunk.events["event_type"] == EventType.MARIADB_GTID).tolist():
        parsed = gtid.parse_mariadb(
            chunk.body(row), 1, journal=chunk.journal, offset=int(chunk.events["offset"][row])
        )
        if parsed.extra_flags:
            found.append((row, parsed.extra_flags))
    return found


def _slices(chunk: Chunk) -> list[EventSlice]:
    taken: list[EventSlice] = []
    buffer = TransactionBuffer(
        lambda slices: taken.extend(slices) or True,  # type: ignore[func-returns-value]
        is_isolated=lambda query: parse_logged(
            query, is_mariadb=True, names=NameRule.AS_GIVEN
        ).is_isolated(lambda *_: True),
        source="test",
    )
    buffer.feed(chunk)
    buffer.finish()
    return taken


def test_b05_an_alter_in_two_phases_takes_effect_at_its_commit(
    mariadb_server: Server, mariadb_database: str
) -> None:
    """Rows that another session writes meanwhile stand between the phases, and are rows of the old
    table."""
    rows = 20_000
    while True:
        with mariadb_server.root_connection(database=mariadb_database) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB"
            )
            cursor.execute(f"INSERT INTO t SELECT seq, REPEAT('x', 100) FROM seq_1_to_{rows}")
            mariadb_server.flush_journal()
            cursor.execute("SET SESSION binlog_alter_two_phase = ON")
            altering = threading.Thread(target=cursor.execute, args=(ALTER,))
            altering.start()
            journal, deadline = mariadb_server.end_position()[0], time.monotonic() + 60
            shown = f"SHOW BINLOG EVENTS IN '{journal}'"
            while not any("ALTER" in str(event[5]) for event in mariadb_server.query(shown)):
                assert time.monotonic() < deadline
            try:
                mariadb_server.execute(
                    f"INSERT INTO `{mariadb_database}`.t VALUES (-1, 'meanwhile')"
                )
            except pymysql.err.OperationalError:
                # the ALTER was faster: the table has three columns
                mariadb_server.execute(
                    f"INSERT INTO `{mariadb_database}`.t VALUES (-1, 'too late', 1)"
                )
            altering.join()
            cursor.execute("INSERT INTO t VALUES (-2, 'after', 8)")
        chunk = closed_journal(mariadb_server)
        (start, start_flags), (commit, commit_flags) = _phases(chunk)
        assert (start_flags, commit_flags) == (0x02, 0x04)
        written = np.flatnonzero(np.isin(chunk.events["event_type"], list(ROWS_TYPES)))
        if start < written[0] < commit:
            break
        rows *= 2  # more to rebuild, so that there is time for a row
        assert rows < 1_000_000
    maps = np.flatnonzero(chunk.events["event_type"] == EventType.TABLE_MAP).tolist()
    widths = [
        len(
            table_map.parse(
                chunk.body(row), journal=chunk.journal, offset=0, is_mariadb=True
            ).columns
        )
        for row in maps
    ]
    assert widths == [2, 3]
    ((row, said),) = statements(chunk)
    assert row == commit + 1
    assert said.sql == ALTER
    assert said.unknown_variable == -1
    isolated = [piece for piece in _slices(chunk) if piece.kind is SliceKind.STATEMENT]
    assert [piece.events["offset"][-1] for piece in isolated] == [chunk.events["offset"][row]]
    assert maps[0] < row < maps[1]


def test_b05_an_alter_that_fails_in_its_second_phase_changes_nothing(
    mariadb_server: Server, mariadb_database: str
) -> None:
    with mariadb_server.root_connection(database=mariadb_database) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
        cursor.execute("INSERT INTO t VALUES (1, 1), (2, 1)")
        mariadb_server.flush_journal()
        cursor.execute("SET SESSION binlog_alter_two_phase = ON")
        with pytest.raises(pymysql.err.IntegrityError):
            cursor.execute("ALTER TABLE t ADD UNIQUE KEY (v)")
        cursor.execute("INSERT INTO t VALUES (3, 1)")
    chunk = closed_journal(mariadb_server)
    assert [flags for _, flags in _phases(chunk)] == [0x02, 0x08]
    assert statements(chunk) == []
    # Both phases are whole transactions: a capture may stand after each.
    assert sum(piece.event_count for piece in _slices(chunk)) == len(chunk.events)
    executed = gtid.executed(chunk, 0, len(chunk.events))
    assert sum(len(numbers) for numbers in executed.values()) == 3
