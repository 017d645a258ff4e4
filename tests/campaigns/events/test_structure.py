"""How servers put rows, maps and ends together: as real logs show it, seen and decoded."""

from __future__ import annotations

import numpy as np

from cdc_pipeline.binlog.chunk import Role
from cdc_pipeline.binlog.decoded import INSERT, UPDATE
from cdc_pipeline.binlog.event_types import ROWS_TYPES, EventType
from cdc_pipeline.errors import CdcError
from tests.campaigns.events.replay import closed_journal, decisions, statements
from tests.servers import Server
from tests.support.decoded_journals import decode_journal, select_tables


def _flags(chunk) -> list[int]:  # type: ignore[no-untyped-def]
    rows = np.flatnonzero(np.isin(chunk.events["event_type"], list(ROWS_TYPES)))
    return [int.from_bytes(bytes(chunk.body(row)[6:8]), "little") for row in rows.tolist()]


def test_b08_maps_without_rows_and_many_maps_before_many_rows(
    server: Server, fresh_database: str
) -> None:
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
        "CREATE TABLE quiet (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TRIGGER tr AFTER UPDATE ON b FOR EACH ROW DELETE FROM quiet WHERE id = -1",
        "INSERT INTO a VALUES (1, 1), (2, 2)",
        "INSERT INTO b SELECT * FROM a",
    )
    server.flush_journal()
    server.execute_all(
        "UPDATE a, b SET a.v = 10, b.v = 20 WHERE a.id = b.id",
        "UPDATE a AS x JOIN a AS y ON x.id = y.id + 1 SET x.v = 100, y.v = 200",
    )
    chunk = closed_journal(server)
    tables = select_tables(chunk)
    assert set(tables) == {f"{fresh_database}.a", f"{fresh_database}.b"}
    maps = int(np.count_nonzero(chunk.events["event_type"] == EventType.TABLE_MAP))
    assert maps >= 4  # quiet has a map and no rows
    assert any(flags & 0x01 for flags in _flags(chunk))
    rows = decode_journal(server.journals()[-2], f"{fresh_database}.a")
    assert rows.op.tolist() == [UPDATE] * 4
    after = {row["id"]: row["v"] for row in rows.after.to_pylist()}
    assert after == dict(server.query("SELECT id, v FROM a"))


def test_b08_a_format_description_names_its_types(server: Server, fresh_database: str) -> None:
    chunk = closed_journal(server)
    assert (
        len(chunk.journal_format.post_header_lengths)
        == {"mysql": 42, "mariadb": 171}[server.flavor]
    )


def test_b11_rows_of_a_table_without_transactions_end_with_commit_and_survive_a_rollback(
    server: Server, fresh_database: str
) -> None:
    server.execute(f"CREATE TABLE `{fresh_database}`.m (id INT PRIMARY KEY) ENGINE=MyISAM")
    server.flush_journal()
    with server.root_connection(database=fresh_database, autocommit=False) as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO m VALUES (1)")
        connection.rollback()
    chunk = closed_journal(server)
    assert EventType.XID not in chunk.events["event_type"]
    assert chunk.events["role"].tolist().count(Role.TRANSACTIONEND) == 1
    assert Role.ROLLBACK not in chunk.events["role"]
    rows = decode_journal(server.journals()[-2], f"{fresh_database}.m")
    assert rows.after.to_pylist() == [{"id": 1}]
    assert server.query(f"SELECT id FROM `{fresh_database}`.m") == [(1,)]


def test_b13_create_table_select_is_one_transaction_with_its_rows(
    server: Server, fresh_database: str
) -> None:
    server.execute(f"CREATE TABLE `{fresh_database}`.a (id INT PRIMARY KEY) ENGINE=InnoDB")
    server.execute(f"INSERT INTO `{fresh_database}`.a VALUES (1), (2)")
    server.flush_journal()
    server.execute(
        f"CREATE TABLE `{fresh_database}`.c ENGINE=InnoDB AS SELECT id FROM `{fresh_database}`.a"
    )
    chunk = closed_journal(server)
    ((row, said),) = statements(chunk)
    assert said.sql.upper().startswith("CREATE TABLE")
    transaction = chunk.events["tx_offset"][row]
    assert transaction >= 0
    rows = np.isin(chunk.events["event_type"], list(ROWS_TYPES))
    assert set(chunk.events["tx_offset"][rows].tolist()) == {transaction}
    decoded = decode_journal(server.journals()[-2], f"{fresh_database}.c")
    assert decoded.op.tolist() == [INSERT, INSERT]


def test_b14_a_sequence_writes_inserts_of_a_table_without_a_key(
    mariadb_server: Server, mariadb_database: str
) -> None:
    """They decode like any rows; a capture leaves them out, whatever its pattern (K32)."""
    mariadb_server.execute(f"CREATE SEQUENCE `{mariadb_database}`.s")
    mariadb_server.flush_journal()
    mariadb_server.query(f"SELECT NEXTVAL(`{mariadb_database}`.s)")
    mariadb_server.query(f"SELECT SETVAL(`{mariadb_database}`.s, 5000)")
    chunk = closed_journal(mariadb_server)
    schema, _ = select_tables(chunk)[f"{mariadb_database}.s"]
    assert schema.key_names == ()
    assert schema.columns[0].name == "next_not_cached_value"
    rows = decode_journal(mariadb_server.journals()[-2], f"{mariadb_database}.s")
    assert rows.op.tolist() == [INSERT, INSERT]
    assert rows.after.column(0).to_pylist() == [1001, 5001]
    assert decisions(chunk, lambda *_: True) == []


def test_b14_what_a_session_does_not_log_leaves_no_trace(
    server: Server, fresh_database: str
) -> None:
    server.execute(f"CREATE TABLE `{fresh_database}`.t (id INT PRIMARY KEY)")
    server.flush_journal()
    with server.root_connection(database=fresh_database) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute("INSERT INTO t VALUES (1)")
    chunk = closed_journal(server)
    assert not np.isin(chunk.events["event_type"], list(ROWS_TYPES)).any()
    assert not any(
        isinstance(outcome, CdcError) for _, outcome in decisions(chunk, lambda *_: True)
    )
