"""The content hash: equal on both servers of a pair without GTIDs, different where a transaction
differs (K7)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Role
from cdc_pipeline.binlog.transactions import content_hash
from cdc_pipeline.binlog.transactions.content_hash import ContentHasher
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.source.archive.files import journal_files, read_journal
from tests.binlog.transactions.content_hash_twin import Twin
from tests.servers import ReplicaPair, Server

pytestmark = [pytest.mark.mysql]


class Hashed(NamedTuple):
    hashes: list[tuple[int, int]]
    commit_us: list[int]
    rolled_back: int


def workload(server: Server) -> None:
    server.execute_all(
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200), b BLOB)",
        "CREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL)",
        "CREATE TABLE keyless (a INT, b TEXT)",
        "CREATE TABLE log_of_t (id INT PRIMARY KEY AUTO_INCREMENT, what VARCHAR(200))",
        "CREATE TRIGGER watch AFTER INSERT ON t FOR EACH ROW INSERT INTO log_of_t "
        "(what) VALUES (NEW.v)",
        "INSERT INTO counter VALUES (1, 0), (2, 0)",
    )
    for _ in range(3):
        server.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
    # More than one rows event, each statement with its own maps, two tables in turn.
    many = ", ".join(
        f"({number}, REPEAT('x', {number % 190}), REPEAT('y', {number * 7 % 2000}))"
        for number in range(300)
    )
    server.execute(f"INSERT INTO t VALUES {many}")
    server.execute("BEGIN")
    for number in range(5):
        server.execute(f"INSERT INTO keyless VALUES ({number}, 'a'), ({number}, 'b')")
        server.execute("UPDATE counter SET n = n + 10")
    server.execute("SAVEPOINT s")
    server.execute("DELETE FROM t WHERE id < 100")
    server.execute("COMMIT")
    server.execute("BEGIN")
    server.execute("UPDATE counter SET n = -1")
    server.execute("ROLLBACK")
    server.execute_all(
        "SET SESSION binlog_rows_query_log_events = ON",
        "UPDATE counter SET n = n + 1 WHERE id = 2",
        "SET SESSION binlog_transaction_compression = ON",
        "UPDATE t SET v = REPEAT('z', 100)",
        "SET SESSION binlog_transaction_compression = OFF",
        "ALTER TABLE t ADD COLUMN extra INT NOT NULL DEFAULT 7",
        "INSERT INTO t (id, v) VALUES (1000, 'new')",
        "CREATE TABLE copy AS SELECT * FROM counter",
    )
    server.execute("DELETE FROM keyless")


def hashed(directory: Path, *, chunk_bytes: int = 1 << 20, twin: bool = False) -> Hashed:
    transactions, hasher, slow = TransactionPass(), ContentHasher(), Twin()
    hashes: list[tuple[int, int]] = []
    times: list[int] = []
    rolled_back = 0
    for file in journal_files(directory):
        for chunk in read_journal(file, chunk_bytes=chunk_bytes):
            bounds = transactions.step(chunk)
            found = hasher.feed(chunk, 0, len(bounds.events), bounds.ends)
            hashes += [(int(a), int(b)) for a, b in found.hashes]
            times += chunk.events["commit_ts_us"][found.rows].tolist()
            rolled_back += int(np.count_nonzero(chunk.events["role"] == Role.ROLLBACK))
            if twin:
                slow.feed(chunk, set(bounds.ends.tolist()))
            if bounds.error is not None:
                break
    if twin:
        assert slow.found == hashes
    return Hashed(hashes, times, rolled_back)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Copies of the journals of a primary and of its replica, both without GTIDs."""
    directory = tmp_path_factory.mktemp("logs")
    with ReplicaPair("mysql", gtid=False) as pair:
        workload(pair.primary)
        pair.wait_caught_up()
        pair.primary.copy_journals(directory / "primary")
        pair.replica.copy_journals(directory / "replica")
    return directory / "primary", directory / "replica"


def test_k7_primary_and_replica_agree(logs: tuple[Path, Path]) -> None:
    primary, replica = hashed(logs[0], twin=True), hashed(logs[1], twin=True)
    assert len(primary.hashes) >= 20
    # The replica's log begins with its own statements, which made it one.
    ours = replica.hashes[-len(primary.hashes) :]
    differing = [at for at, (a, b) in enumerate(zip(primary.hashes, ours, strict=True)) if a != b]
    assert differing == []
    assert replica.commit_us[-len(primary.hashes) :] == primary.commit_us


def test_k7_what_differs_has_another_hash(logs: tuple[Path, Path]) -> None:
    primary = hashed(logs[0])
    # Each UPDATE of the counter has its own images; nothing in the workload happens twice.
    assert len(set(primary.hashes)) == len(primary.hashes)
    assert (
        len({a for a, _ in primary.hashes})
        == len({b for _, b in primary.hashes})
        == len(primary.hashes)
    )


@pytest.mark.parametrize("chunk_bytes", [64, 1000])
def test_k7_the_hash_does_not_depend_on_chunks(logs: tuple[Path, Path], chunk_bytes: int) -> None:
    assert hashed(logs[0], chunk_bytes=chunk_bytes) == hashed(logs[0])


def test_k7_room_for_table_maps_grows(
    logs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = hashed(logs[0])
    monkeypatch.setattr(content_hash, "_MAPS_FIRST", 1)
    assert hashed(logs[0]) == expected
