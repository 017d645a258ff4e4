"""Values that need several packets, decoded from a live dump: their lengths and hashes are the
server's."""

from __future__ import annotations

import hashlib

import numpy as np

from cdc_pipeline.binlog.event_types import ROWS_TYPES, EventType
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.tables.table_map import parse
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from tests.servers import Server
from tests.support.live_source import live_source, position


def test_b16_values_around_and_above_a_packet_have_the_servers_hash(
    server: Server, fresh_database: str
) -> None:
    table = f"`{fresh_database}`.t"
    server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, b LONGBLOB) ENGINE=MyISAM")
    start = position(server)
    lengths = [16_777_155, 17 << 20, 3]
    for number, length in enumerate(lengths):
        value = f"LEFT(REPEAT('0123456789abcde', {length // 15 + 1}), {length})"
        server.execute(f"INSERT INTO {table} VALUES ({number}, {value})")
    server.execute(f"UPDATE {table} SET b = CONCAT(b, 'x') WHERE id = 1")
    source, grouping, schema = live_source(server), TransactionPass(), None
    found = {}
    for chunk in source.chunks(start, position(server)):
        grouping.apply(chunk)
        for row, event in enumerate(chunk.events):
            if event["event_type"] == EventType.TABLE_MAP:
                is_mariadb = chunk.journal_format.is_mariadb
                schema = parse(
                    chunk.body(row), journal=chunk.journal, offset=0, is_mariadb=is_mariadb
                )
            elif int(event["event_type"]) in ROWS_TYPES:
                assert schema is not None
                rows = decode_rows([RowsSelection(chunk, np.array([row]))], schema, epoch=1)
                (value,) = rows.after.column(1).to_pylist()
                found[rows.after.column(0)[0].as_py()] = (
                    len(value),
                    hashlib.sha256(value).hexdigest(),
                )
    source.close()
    expected = server.query(f"SELECT id, LENGTH(b), SHA2(b, 256) FROM {table}")
    assert found == {number: (int(length), digest) for number, length, digest in expected}
    assert found[1][0] == (17 << 20) + 1
