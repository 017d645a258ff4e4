"""The same statements with and without compression on real servers: the same rows, transactions and
places."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.binlog.event_types import PACKED_TYPES, EventType
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.config.pipeline_config import GtidConfig, PositionConfig
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.source.archive.archive import ArchiveSource
from cdc_pipeline.transaction.buffer import TransactionBuffer
from cdc_pipeline.transaction.table_maps import TableMaps
from tests.binlog.framing.test_unpacking import plain
from tests.servers import Server
from tests.support.decoded_journals import decode_journal
from tests.support.live_source import live_source
from tests.support.packing import HEADER, PlainEvent
from tests.support.shown_journals import changes

StartServer = Callable[..., Server]
BIG_ROWS = 4000

SETTINGS = {"mysql": "binlog_transaction_compression", "mariadb": "log_bin_compress"}
TYPES = """CREATE TABLE shop.a (id BIGINT UNSIGNED PRIMARY KEY, price DECIMAL(12,2), happened DATETIME(6),
    stamp TIMESTAMP(3) NULL, word VARCHAR(200), note TEXT, raw VARBINARY(300), state
        ENUM('new','old'), doc JSON,
    number DOUBLE, gone DATE) ENGINE=InnoDB"""  # noqa: E501


def write(server: Server) -> None:
    """Row changes of all kinds, several tables in a transaction, DDL between and inside,
    savepoints, a big one."""
    connection = server.root_connection(autocommit=False)

    def run(*statements: str) -> None:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("COMMIT")

    with connection, connection.cursor() as cursor:
        run("CREATE DATABASE shop")
        run(TYPES)
        run(
            "CREATE TABLE shop.b (id INT PRIMARY KEY, a_id BIGINT UNSIGNED, word "
            "VARCHAR(100)) ENGINE=InnoDB"
        )
        run("CREATE TABLE shop.m (id INT PRIMARY KEY, word VARCHAR(100)) ENGINE=MyISAM")
        values = (
            "({0}, {0}.25, '2024-02-29 12:30:00.12345{0}', '2024-03-01 00:00:00.5', REPEAT('w{0}', "
            "40), REPEAT('n', {0}00), REPEAT(x'00ff', 50), 'new', '{{\"k\": [{0}, "
            "null]}}', {0}e-3, NULL)"
        )
        run(
            "INSERT INTO shop.a VALUES " + ",".join(values.format(n) for n in range(1, 6)),
            "INSERT INTO shop.b SELECT id, id, word FROM shop.a",
            "UPDATE shop.a, shop.b SET shop.a.state='old', shop.b.word=REPEAT('z', 90) WHERE "
            "shop.a.id=shop.b.a_id",
        )
        run(
            "DELETE FROM shop.a WHERE id = 2",
            "SAVEPOINT s",
            "DELETE FROM shop.b",
            "ROLLBACK TO SAVEPOINT s",
        )
        run("INSERT INTO shop.m VALUES (1, REPEAT('m', 80)), (2, NULL)")
        cursor.execute("INSERT INTO shop.b VALUES (77, 77, 'undone')")
        cursor.execute("ROLLBACK")
        run("CREATE TABLE shop.c ENGINE=InnoDB AS SELECT id, word FROM shop.a")
        run(
            "ALTER TABLE shop.b ADD COLUMN more VARCHAR(100) DEFAULT 'a default that is "
            "not short at all'"
        )
        run(
            "INSERT INTO shop.b VALUES (8, 8, REPEAT('x', 50), REPEAT('y', 50))",
            "UPDATE shop.c SET word = NULL",
        )
        big = ",".join(
            f"({n}, NULL, '{n:06d} {'x' * 80}', REPEAT('big {n} ', 20))"
            for n in range(1000, 1000 + BIG_ROWS)
        )
        run(
            "ALTER TABLE shop.b MODIFY more VARCHAR(400)",
            f"INSERT INTO shop.b VALUES {big}",
            "UPDATE shop.b SET a_id = id WHERE id >= 1000",
            "DELETE FROM shop.a WHERE id = 3",
        )
        run("DROP TABLE shop.c")
        run("DROP DATABASE shop")


def record(server: Server, *, compress: bool) -> Path:
    """The journal of one run of `write`."""
    server.flush_journal()
    server.execute(f"SET GLOBAL {SETTINGS[server.flavor]} = {'ON' if compress else 'OFF'}")
    if server.flavor == "mariadb":
        server.execute("SET GLOBAL log_bin_compress_min_len = 10")
    write(server)
    server.flush_journal()
    return server.journals()[-2]


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def journals(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """(flavor, archive of the plain journal, archive of the compressed one, GTID sets before and
    after it)."""
    folder = tmp_path_factory.mktemp(request.param)
    with Server(request.param, {"explicit_defaults_for_timestamp": True}) as server:
        for name in ("plain", "compressed"):
            (folder / name).mkdir()
        shutil.copy2(record(server, compress=False), folder / "plain")
        before = server.gtid_set()
        shutil.copy2(record(server, compress=True), folder / "compressed")
        yield request.param, folder / "plain", folder / "compressed", before, server.gtid_set()


def only(directory: Path) -> Path:
    (file,) = directory.iterdir()
    return file


def lines(directory: Path) -> list[dict[str, object]]:
    """Changes without what tells where and when they were written."""
    found = []
    for line in changes([only(directory)]):
        change = json.loads(line)
        for key in ("journal", "offset", "gtid", "ts"):
            change.pop(key)
        found.append(change)
    return found


def raw_types(file: Path) -> list[int]:
    data = file.read_bytes()
    types = []
    at = 4
    while at < len(data):
        types.append(data[at + 4])
        at += HEADER.unpack_from(data, at)[3]
    return types


def read(directory: Path, *, chunk_bytes: int = 1 << 20) -> list[Chunk]:
    source = ArchiveSource(directory, chunk_bytes=chunk_bytes)
    return list(source.chunks(source.earliest_position(), source.end_position()))


@pytest.mark.mysql
@pytest.mark.mariadb
def test_the_server_did_compress(journals) -> None:
    flavor, without, compressed, *_ = journals
    packed = {int(event_type) for event_type in PACKED_TYPES}
    assert not packed & set(raw_types(only(without)))
    expected = {40} if flavor == "mysql" else {165, 166, 167, 168}
    assert packed & set(raw_types(only(compressed))) == expected
    assert only(compressed).stat().st_size < only(without).stat().st_size / 3


@pytest.mark.mysql
@pytest.mark.mariadb
def test_changes_are_the_same_with_and_without_compression(journals) -> None:
    _, without, compressed, *_ = journals
    expected = lines(without)
    assert len(expected) > 2 * BIG_ROWS
    assert lines(compressed) == expected
    offsets = [json.loads(line)["offset"] for line in changes([only(compressed)])]
    assert offsets == sorted(offsets)
    assert all("gtid" in line and json.loads(line)["gtid"] for line in changes([only(compressed)]))


@pytest.mark.mysql
@pytest.mark.mariadb
def test_k1_seq_is_unique_and_in_order_inside_payloads(journals) -> None:
    _, without, compressed, *_ = journals
    for table in ("shop.a", "shop.m"):
        one, other = decode_journal(only(without), table), decode_journal(only(compressed), table)
        assert one.before.equals(other.before)
        assert one.after.equals(other.after)
        assert one.op.tolist() == other.op.tolist()
        seqs = [int(seq) for seq in other.seq.to_pylist()]
        assert len(seqs) == len(one.op) > 0
        assert seqs == sorted(set(seqs))


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize(("chunk_bytes", "slice_events_max"), [(1 << 20, 1024), (300, 4)])
def test_t1_each_gtid_is_one_transaction_and_the_end_is_the_servers(
    journals, chunk_bytes: int, slice_events_max: int
) -> None:
    flavor, without, compressed, before, after = journals
    source = ArchiveSource(compressed, chunk_bytes=chunk_bytes)
    end = source.end_position()
    assert end.gtid_set == str(parse_gtid_set(after, flavor))
    assert end.offset == only(compressed).stat().st_size
    assert source.earliest_position().gtid_set == str(parse_gtid_set(before, flavor))
    counts = []
    for directory in (without, compressed):
        slices: list[EventSlice] = []
        ends: list[int] = []
        buffer = TransactionBuffer(
            lambda parts, slices=slices: slices.extend(parts) or True,
            is_isolated=lambda query: "ALTER" in query.sql,
            source=str(source.identity),
            slice_events_max=slice_events_max,
            on_position=lambda position, ends=ends: ends.append(position.offset),
        )
        chunks = read(directory, chunk_bytes=chunk_bytes)
        for chunk in chunks:
            buffer.feed(chunk)
        buffer.finish()
        counts.append((buffer.transactions.transactions, buffer.transactions.rolled_back))
        assert sum(piece.event_count for piece in slices) == sum(
            len(chunk.events) for chunk in chunks
        )
        assert sum(piece.journal_bytes for piece in slices) == only(directory).stat().st_size - 4
        assert all(piece.event_count <= slice_events_max for piece in slices)
        statements = [piece.sql for piece in slices if piece.kind is SliceKind.STATEMENT]
        assert len(statements) == 2
        assert all("ALTER" in sql for sql in statements)
        assert ends == sorted(ends)
        maps = TableMaps(lambda database, table: True)
        rows = {group.table for piece in slices for group in maps.resolve(piece)}
        assert rows == {"a", "b", "c", "m"}
        assert (
            sum(piece.kind is SliceKind.OPEN_PIECE for piece in slices) > 0 or slice_events_max > 4
        )
    assert counts[0] == counts[1]
    executed = parse_gtid_set(after, flavor).subtract(parse_gtid_set(before, flavor))
    if flavor == "mysql":
        first, last = str(executed).rpartition(":")[2].split("-")
        assert counts[1][0] + counts[1][1] == int(last) - int(first) + 1


def from_offset(chunks: list[Chunk], offset: int) -> list[PlainEvent]:
    """Events from an offset on, with their parents counted from there: a dump sends the head of the
    journal too."""
    events = plain(chunks)
    first = sum(event.offset < offset for event in events)
    return [event._replace(parent=max(event.parent - first, -1)) for event in events[first:]]


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_live_and_archive_give_the_same_events(
    start_server: StartServer, flavor: str, tmp_path: Path
) -> None:
    """The server is accepted with compression on, and the dump is unpacked like the file, from any
    position."""
    server = start_server(flavor)
    server.execute(f"SET GLOBAL {SETTINGS[flavor]} = ON")
    with closing(live_source(server)) as source:
        source.check()
        start = source.end_position()
        write(server)
        end = source.end_position()
        live = list(source.chunks(start, end))
        by_offset = list(source.chunks(type(start)(start.journal, start.offset), end))
    server.copy_journals(tmp_path)
    archive = ArchiveSource(tmp_path)
    filed = list(archive.chunks(start, type(end)(end.journal, end.offset)))
    expected = from_offset(filed, start.offset)
    assert any(event.parent >= 0 for event in expected) == (flavor == "mysql")
    assert from_offset(live, start.offset) == from_offset(by_offset, start.offset) == expected
    assert live[-1].end_offset == end.offset
    # An end that was fixed earlier: after a transaction whose last event is inside a payload.
    ends = sorted({event.next_offset for event in expected if event.event_type == EventType.XID})
    with closing(live_source(server)) as source:
        middle = replace(end, offset=ends[2], gtid_set="")
        cut = list(source.chunks(replace(start, gtid_set=""), middle))
    assert cut[-1].end_offset == ends[2]
    assert from_offset(cut, start.offset) == [
        event for event in expected if event.next_offset <= ends[2]
    ]


@pytest.mark.mysql
@pytest.mark.mariadb
def test_pitfall_4_a_start_is_found_at_every_transaction_end_and_nowhere_else(journals) -> None:
    flavor, _, compressed, before, _ = journals
    whole = np.concatenate([chunk.events for chunk in grouped(compressed)])
    source = ArchiveSource(compressed)
    name = only(compressed).name
    executed = parse_gtid_set(before, flavor)
    ends = whole["next_offset"][np.isin(whole["event_type"], [EventType.XID])].tolist()
    assert len(ends) == 5
    for offset in ends:
        decision = resolve_start(
            cursor=None, start=PositionConfig(journal=name, offset=offset), source=source
        )
        found = parse_gtid_set(decision.position.gtid_set, flavor)
        assert found.subtract(executed)
        executed = found
        again = resolve_start(cursor=None, start=GtidConfig(gtid_set=str(found)), source=source)
        assert again.position.offset == offset
    inside = whole[whole["tx_ordinal"] > 0]
    for event in inside[:: len(inside) // 8]:  # P7: inside one, it is that one's begin
        start = PositionConfig(journal=name, offset=int(event["offset"]))
        assert (
            resolve_start(cursor=None, start=start, source=source).position.offset
            == event["tx_offset"]
        )


def grouped(directory: Path) -> list[Chunk]:
    transactions = TransactionPass()
    chunks = read(directory)
    for chunk in chunks:
        transactions.apply(chunk)
    return chunks
