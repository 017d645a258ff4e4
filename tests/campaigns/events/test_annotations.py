"""The statements of rows: ROWS_QUERY and ANNOTATE_ROWS of real servers, whole, in pieces and
compressed."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import ROWS_TYPES, EventType
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.operations.inspect.annotations import StatementReader
from cdc_pipeline.source.archive.files import read_journal
from tests.servers import Server

LONG = "INSERT INTO t VALUES (9, '" + "long " * 100 + "')"


def _session(server: Server, database: str) -> list[str | None]:
    """Statements whose rows are logged; returns the texts that their rows events must have, in the
    order of the log."""
    switch = (
        "binlog_rows_query_log_events" if server.flavor == "mysql" else "binlog_annotate_row_events"
    )
    with (
        server.root_connection(database=database, autocommit=False) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(900)) ENGINE=InnoDB")
        cursor.execute("CREATE TABLE seen (id INT, v VARCHAR(900)) ENGINE=InnoDB")
        cursor.execute(
            "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW INSERT INTO seen VALUES "
            "(NEW.id, 'trigger')"
        )
        cursor.execute(f"SET SESSION {switch} = ON")
        insert, update = (
            "INSERT INTO t VALUES (1, 'a'), (2, 'ü€😀')",
            "UPDATE t SET v = 'b' WHERE id = 1",
        )
        for statement in (insert, update, LONG):
            cursor.execute(statement)
        cursor.execute("COMMIT")
        cursor.execute(f"SET SESSION {switch} = OFF")
        cursor.execute("DELETE FROM t WHERE id = 1")
        cursor.execute("COMMIT")
        cursor.execute(f"SET SESSION {switch} = ON")
        cursor.execute("DELETE FROM t WHERE id = 2")
        cursor.execute("COMMIT")
        cursor.execute("DROP TABLE t, seen")
    return [insert, update, LONG, None, "DELETE FROM t WHERE id = 2"]


def _texts(chunks: list[Chunk]) -> list[str | None]:
    reader, grouping, texts = StatementReader(), TransactionPass(), []
    for chunk in chunks:
        grouping.apply(chunk)
        rows = np.flatnonzero(np.isin(chunk.events["event_type"], list(ROWS_TYPES)))
        texts += reader.read(chunk).take(rows).to_pylist()
    return texts


@pytest.mark.mysql
@pytest.mark.mariadb
def test_b01_b02_annotations_name_the_statement_of_every_rows_event(
    server: Server, fresh_database: str
) -> None:
    server.flush_journal()
    expected = _session(server, fresh_database)
    server.flush_journal()
    file = server.journals()[-2]
    texts = _texts(list(read_journal(file)))
    assert [text for text, _ in groupby(texts)] == expected
    assert _texts(list(read_journal(file, chunk_bytes=64))) == texts  # nearly an event to a chunk
    (chunk,) = read_journal(file)
    for cut in range(len(chunk.events)):  # slices of one chunk, as the buffer hands them out
        reader, found = StatementReader(), []
        TransactionPass().apply(chunk)
        for first, stop in ((0, cut), (cut, len(chunk.events))):
            rows = np.flatnonzero(np.isin(chunk.events["event_type"][first:stop], list(ROWS_TYPES)))
            found += reader.read(chunk, first, stop).take(rows).to_pylist()
        assert found == texts


def test_b01_rows_query_inside_a_payload_and_bytes_that_are_no_utf8(
    mysql_server: Server, mysql_database: str
) -> None:
    connection = mysql_server.root_connection(database=mysql_database, charset="latin1")
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)) ENGINE=InnoDB")
        mysql_server.flush_journal()
        cursor.execute(
            "SET SESSION binlog_rows_query_log_events = ON, SESSION "
            "binlog_transaction_compression = ON"
        )
        cursor.execute("INSERT INTO t VALUES (1, 'é')")
    mysql_server.flush_journal()
    chunks = list(read_journal(mysql_server.journals()[-2]))
    assert any(EventType.TRANSACTION_PAYLOAD in chunk.events["event_type"] for chunk in chunks)
    assert _texts(chunks) == ["INSERT INTO t VALUES (1, '�')"]


def test_a_run_without_annotations_has_no_texts(tmp_path: Path, mysql_server: Server) -> None:
    mysql_server.flush_journal()
    (chunk,) = read_journal(mysql_server.journals()[-2])
    TransactionPass().apply(chunk)
    found = StatementReader().read(chunk)
    assert found.null_count == len(found) == len(chunk.events)
