"""Event types one by one: those that no server here writes are made by hand, the others come from
real servers."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import (
    FLAG_IGNORABLE,
    HANDLED,
    HARMLESS,
    STOP_REASONS,
    EventType,
)
from cdc_pipeline.binlog.events import gtid, query
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.errors import BinlogError, CdcError, UnknownEventError, UnsupportedEventError
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.progress import Progress
from cdc_pipeline.run.capture.summary import RunSummary, whole_interval
from cdc_pipeline.source.archive.files import read_head, read_journal
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.campaigns.events.replay import closed_journal
from tests.servers import Server
from tests.support.journal_builder import JournalBuilder
from tests.support.shown_journals import inspect

T = EventType
NAME = "binlog.000001"


def _framed(
    builder: JournalBuilder, **options: bool
) -> tuple[Chunk | None, EventFramer, CdcError | None]:
    framer = EventFramer(NAME, **options)
    chunk, consumed = framer.feed(np.frombuffer(bytes(builder.data[4:]), np.uint8))
    try:
        framer.feed(np.frombuffer(bytes(builder.data[4 + consumed :]), np.uint8))
    except CdcError as error:
        return chunk, framer, error
    return chunk, framer, None


def _builder() -> JournalBuilder:
    builder = JournalBuilder()
    builder.format_description()
    return builder


def test_b04_every_type_is_handled_harmless_or_stops_and_no_two_of_them() -> None:
    assert set(EventType) == HANDLED | HARMLESS | STOP_REASONS.keys()
    assert len(EventType) == len(HANDLED) + len(HARMLESS) + len(STOP_REASONS)
    assert all(len(reason) > 20 for reason in STOP_REASONS.values())


@pytest.mark.parametrize("event_type", [T.TRANSACTION_CONTEXT, T.VIEW_CHANGE, T.IGNORABLE])
def test_b03_events_of_group_replication_are_passed_over_inside_a_transaction(
    event_type: EventType,
) -> None:
    builder = _builder()
    builder.event(33, b"\x01" + bytes(range(16)) + struct.pack("<q", 1))
    builder.event(event_type, b"\x01\x00anything")
    builder.event(2, bytes(8) + b"\x00\x00\x00\x00\x00" + b"\0BEGIN")
    builder.event(16, bytes(8))
    chunk, framer, error = _framed(builder)
    assert error is None
    assert framer.ignored_events == {}
    assert chunk is not None
    pieces: list[int] = []
    buffer = TransactionBuffer(
        lambda slices: pieces.extend(piece.event_count for piece in slices) is None,
        is_isolated=lambda *_: False, source="",
    )  # fmt: skip
    buffer.feed(chunk)
    buffer.finish()
    assert sum(pieces) == 5
    assert buffer.transactions.transactions == 1


def test_b03_b04_an_incident_stops_with_its_number_and_message() -> None:
    builder = _builder()
    offset = builder.offset
    message = b"error writing to the binary log"
    builder.event(26, struct.pack("<HB", 1, len(message)) + message)
    _, _, error = _framed(builder)
    assert isinstance(error, UnsupportedEventError)
    assert "INCIDENT (26)" in error.what
    assert "incident 1 (LOST_EVENTS)" in str(error.got)
    assert message.decode() in str(error.got)
    assert (error.journal, error.offset) == (NAME, offset)
    assert "take new snapshots of the tables" in error.next_step
    short = _builder()
    short.event(26, b"\x07\x00")
    _, _, error = _framed(short)
    assert error is not None
    assert "incident 7 (unknown), message ''" in str(error.got)


def test_b04_unknown_types_stop_or_are_counted_by_type_up_to_the_report(tmp_path: Path) -> None:
    builder = _builder()
    for event_type in (43, 173, 173):
        builder.event(event_type, b"from a newer server", flags=FLAG_IGNORABLE)
    file = tmp_path / NAME
    file.write_bytes(builder.data)
    summary = inspect([file])
    assert summary.error is None
    counted = {"unknown type 43": 1, "unknown type 173": 2}
    assert {name: summary.events_by_type[name] for name in counted} == counted
    (chunk,) = read_journal(file)
    slices = []
    buffer = TransactionBuffer(
        lambda pieces: slices.extend(pieces) is None, is_isolated=lambda *_: False, source=""
    )
    buffer.feed(chunk)
    place = Progress(Position(NAME, 4), "mysql")
    parts = []
    for _ in range(2):  # two batches of one run
        place.advance(slices)
        parts.append(place.take_interval())
    assert parts[0].ignorable_events == counted
    assert place.take_interval().ignorable_events == {}
    resolved = type("Resolved", (), {"start": Position(NAME, 4)})
    done = RunSummary()
    for part in parts:
        done.moved(part, (), ())
    whole = whole_interval(done.interval, resolved)  # type: ignore[arg-type]
    assert whole.ignorable_events == {"unknown type 43": 2, "unknown type 173": 4}
    builder.event(43, b"and now one that matters")
    _, _, error = _framed(builder)
    assert isinstance(error, UnknownEventError)


def test_b02_fragments_of_rows_events_of_mariadb_12_stop_with_the_setting() -> None:
    builder = _builder()
    builder.event(172, struct.pack("<IIB", 2, 1, 0) + b"rows", flags=FLAG_IGNORABLE)
    _, _, error = _framed(builder)
    assert isinstance(error, UnsupportedEventError)
    assert "binlog_row_event_fragment_threshold" in error.next_step


def test_b18_encrypted_journals_are_refused_by_name(tmp_path: Path) -> None:
    """MySQL encrypts the whole file behind a magic number of its own, MariaDB the events behind
    START_ENCRYPTION."""
    mysql = tmp_path / "binlog.000001"
    mysql.write_bytes(b"\xfdbin" + bytes(508))
    with pytest.raises(BinlogError, match="encrypted") as caught:
        list(read_journal(mysql))
    assert "running server" in caught.value.next_step
    builder = _builder()
    builder.event(164, b"\x01" + struct.pack("<I", 1) + bytes(12))
    mariadb = tmp_path / "binlog.000002"
    mariadb.write_bytes(bytes(builder.data) + b"what follows is noise")
    chunks = []
    with pytest.raises(BinlogError, match="encrypted") as stopped:
        chunks.extend(read_journal(mariadb))
    assert "START_ENCRYPTION" in str(stopped.value.got)
    assert "running server" in stopped.value.next_step
    with pytest.raises(BinlogError, match="encrypted"):
        read_head(mariadb)


def test_k32_f77_a_dump_is_in_plain_behind_start_encryption() -> None:
    """It moves the dump forward, or (in a dump from the middle of a journal) tells no position."""
    body = b"\x01" + struct.pack("<I", 1) + bytes(12)
    for position, after in ((None, 40), (0, 0)):
        builder = _builder()
        start = len(builder.data)
        builder.event(164, body, flags=FLAG_IGNORABLE, log_position=position)
        end = start + after
        rest = JournalBuilder(data=bytearray(), base=end)
        rest.event(16, bytes(8))
        framer = EventFramer(NAME, dump=True)
        data = bytes(builder.data[4:]) + bytes(rest.data)
        chunk, consumed = framer.feed(np.frombuffer(data, np.uint8))
        assert chunk is not None
        assert consumed == len(data)
        assert chunk.events["event_type"].tolist() == [15, 16]
        assert chunk.events["offset"].tolist() == [4, start + after]


def _heartbeat_v2(name: bytes, position: int) -> bytes:
    packed = b"\xfe" + position.to_bytes(8, "little")
    return bytes([1, len(name)]) + name + bytes([2, len(packed)]) + packed + b"\0"


@pytest.mark.parametrize("version", [1, 2])
def test_b01_heartbeats_move_a_dump_forward_beyond_four_gibibytes(version: int) -> None:
    """Version 1 tells 32 bits of the position, version 2 all of them."""
    framer = EventFramer(NAME, dump=True)
    builder = _builder()
    framer.feed(np.frombuffer(bytes(builder.data[4:]), np.uint8))
    for position in ((3 << 30) + 55, (5 << 30) + 77, (6 << 30) + 123):
        beat = JournalBuilder(data=bytearray())
        if version == 1:
            # the server beats on its way
            for step in range(framer.offset + (1 << 30), position, 1 << 30):
                beat.event(27, NAME.encode(), log_position=step & 0xFFFFFFFF)
            beat.event(27, NAME.encode(), log_position=position & 0xFFFFFFFF)
        else:
            beat.event(41, _heartbeat_v2(NAME.encode(), position), log_position=0)
        chunk, consumed = framer.feed(np.frombuffer(bytes(beat.data), np.uint8))
        assert (chunk, consumed) == (None, len(beat.data))
        assert framer.offset == position
    after = JournalBuilder(data=bytearray(), base=framer.offset)
    after.event(16, bytes(8))
    chunk, _ = framer.feed(np.frombuffer(bytes(after.data), np.uint8))
    assert chunk is not None
    assert chunk.events["offset"].tolist() == [(6 << 30) + 123]


def test_b05_previous_gtids_in_both_forms() -> None:
    source = bytes(range(16))
    name = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    plain = struct.pack("<Q", 1) + source + struct.pack("<Qqqqq", 2, 1, 6, 9, 10)
    assert gtid.previous_set(plain, T.PREVIOUS_GTIDS, journal="", offset=0) == f"{name}:1-5:9"
    head = struct.pack("<Q", 1 << 56 | 2 << 8 | 1)
    tagged = (
        head
        + source
        + b"\0"
        + struct.pack("<Qqq", 1, 1, 6)
        + source
        + b"\x04tg"
        + struct.pack("<Qqq", 1, 3, 4)
    )
    assert gtid.previous_set(tagged, T.PREVIOUS_GTIDS, journal="", offset=0) == f"{name}:1-5:tg:3"


STATEMENTS = {
    "mysql": [
        "SET SESSION sql_require_primary_key = ON, default_table_encryption = OFF",
        "CREATE TABLE p (a INT PRIMARY KEY)",
        "SET SESSION sql_require_primary_key = OFF",
    ],
    "mariadb": [
        "SET SESSION binlog_alter_two_phase = ON",
        "CREATE TABLE p (a INT PRIMARY KEY)",
        "ALTER TABLE p ADD b INT",
    ],
}


def test_b05_all_status_variables_of_both_servers_are_known(
    server: Server, fresh_database: str
) -> None:
    server.flush_journal()
    with server.root_connection(database=fresh_database, charset="latin1") as connection:
        cursor = connection.cursor()
        for statement in (
            "SET SESSION binlog_format = STATEMENT, time_zone = 'SYSTEM', lc_time_names = 'de_DE', "
            "auto_increment_increment = 3, auto_increment_offset = 2, foreign_key_checks = 0, "
            "unique_checks = 0",
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, at DATETIME(6), n "
            "VARCHAR(30)) ENGINE=InnoDB",
            "INSERT INTO t (at, n) VALUES (NOW(6), DATE_FORMAT(NOW(), '%M'))",
            "UPDATE t SET n = 'é'",
            "CREATE TEMPORARY TABLE tmp (a INT)",
            "INSERT INTO t (n) SELECT 'x' FROM DUAL",
            "CREATE VIEW v AS SELECT * FROM t",
            "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.n = 'trigger'",
            "CREATE PROCEDURE pr() INSERT INTO t (n) VALUES ('p')",
            "CALL pr()",
            "CREATE INDEX i ON t (n)",
            "ALTER TABLE t ADD COLUMN more TIMESTAMP NULL",
            *STATEMENTS[server.flavor],
            "DROP VIEW v",
            "DROP TABLE t, p",
        ):
            cursor.execute(statement)
    chunk = closed_journal(server)
    rows = np.flatnonzero(chunk.events["event_type"] == T.QUERY).tolist()
    said = [query.parse_query(chunk, row) for row in rows]
    assert [(one.sql, one.unknown_variable) for one in said if one.unknown_variable != -1] == []
    assert any(one.sql == "UPDATE t SET n = 'é'" and one.charset == "latin1" for one in said)
    assert len(said) > 15


def test_b05_status_variables_of_newer_servers_do_not_hide_what_follows() -> None:
    """MariaDB 11 writes its collations (131) before the charset; a code that nobody knows costs no
    text."""
    charset = b"\x04" + struct.pack("<HHH", 8, 8, 8)  # latin1
    alter = b"\x82\x04" + (77).to_bytes(8, "little")
    collations = b"\x83\x02" + struct.pack("<HHHH", 33, 192, 45, 224)
    for variables, unknown, name in (
        (collations + alter + charset, -1, "latin1"),
        (b"\x82\x02" + charset + b"\xff\xff", -1, "latin1"),
        (charset + b"\x99secret", 0x99, "latin1"),
        (b"\x99" + charset, 0x99, ""),
        (b"\x82\x04\x01", 0x82, ""),
    ):
        body = (
            bytes(8)
            + b"\1\0\0"
            + len(variables).to_bytes(2, "little")
            + variables
            + b"d\0"
            + b"SELECT 1"
        )
        parsed = query.parse(body, journal="j", offset=4, is_mariadb=True)
        assert (parsed.sql, parsed.database, parsed.charset, parsed.unknown_variable) == (
            "SELECT 1",
            "d",
            name,
            unknown,
        )


def test_b16_an_event_larger_than_can_be_read_is_refused_and_is_no_damage() -> None:
    """Its header is good: the length agrees with the position. Otherwise the length is damage."""
    for length, agrees in (((1 << 31) + 5, True), ((1 << 31) + 5, False)):
        builder = _builder()
        offset = builder.offset
        end = (offset + length) & 0xFFFFFFFF if agrees else 4711
        builder.data += struct.pack("<IBIIIH", 1, 31, 7, length, end, 0) + bytes(100)
        _, _, error = _framed(builder)
        assert error is not None
        assert (error.offset, isinstance(error, UnsupportedEventError)) == (offset, agrees)
        assert str(length) in str(error.got)
