"""One canonical text of an xid, from the prepare event and from the statements, on real servers
(K8)."""

from __future__ import annotations

import struct

import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events.query import parse_query
from cdc_pipeline.binlog.events.xa import parse_prepare, xid_text
from cdc_pipeline.errors import DamagedJournalError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.session import canonical_xid
from cdc_pipeline.source.archive.files import read_journal
from tests.servers import Server
from tests.support.event_builder import JournalBuilder
from tests.support.xa_session import XaSession

XIDS = {
    "'x'": "X'78',X'',1",
    "'a''b','\"`'": "X'612762',X'2260',1",
    "'q\\\\n'": "X'715c6e',X'',1",
    "X'00ff27',X'0102',7": "X'00ff27',X'0102',7",
    "'g','b',0": "X'67',X'62',0",
    "'g','',2147483647": "X'67',X'',2147483647",
    "'日本'": "X'e697a5e69cac',X'',1",
    "0x" + "ab" * 64 + ",0x" + "cd" * 64 + ",9": f"X'{'ab' * 64}',X'{'cd' * 64}',9",
}
# MySQL alone takes these; of a format id the prepare event holds 32 bits.
MYSQL_XIDS = {
    "''": "X'',X'',1",
    "'g','',4294967295": "X'67',X'',4294967295",
    "'g','',5000000000": "X'67',X'',705032704",
}


def test_k8_prepare_and_statement_give_one_text(server: Server, fresh_database: str) -> None:
    server.execute(f"CREATE TABLE `{fresh_database}`.t (id INT PRIMARY KEY)")
    server.flush_journal()
    xids = XIDS | (MYSQL_XIDS if server.flavor == "mysql" else {})
    for number, xid in enumerate(xids):
        session = (
            XaSession(server, fresh_database, xid).run(f"INSERT INTO t VALUES ({number})").prepare()
        )
        session.commit() if number % 2 else session.rollback()
    journal = server.journals()[-1]
    prepared, ended = [], []
    for chunk in read_journal(journal):
        for row, event in enumerate(chunk.events):
            if event["event_type"] == EventType.XA_PREPARE:
                prepared.append(parse_prepare(chunk, row))
            elif event["event_type"] == EventType.QUERY:
                statement = parse_statement(parse_query(chunk, row).sql, "")
                if statement.kind in ("xa_commit", "xa_rollback"):
                    ended.append(statement.name)
    assert [one.xid for one in prepared] == list(xids.values())
    assert not any(one.one_phase for one in prepared)
    assert ended == list(xids.values())


@pytest.mark.parametrize(("sql", "xid"), [*XIDS.items(), *MYSQL_XIDS.items()])
def test_k8_xids_of_the_configuration_are_read_as_statements_write_them(sql: str, xid: str) -> None:
    assert canonical_xid(sql) == xid
    assert canonical_xid(xid) == xid


@pytest.mark.parametrize(
    "text", ["", "x", "'a',", "'a','b','c'", "X'0',''", "'a','b',1.5", "'a' 'b'"]
)
def test_k8_what_is_no_xid_has_no_text(text: str) -> None:
    assert canonical_xid(text) == ""


@pytest.mark.parametrize(
    "body",
    [
        bytes(12),
        struct.pack("<Biii", 0, 1, 5, 0) + b"abcd",
        struct.pack("<Biii", 0, 1, -1, 1) + b"a",
    ],
)
def test_k8_a_prepare_that_ends_early_is_damage(body: bytes) -> None:
    chunk = JournalBuilder().add(EventType.XA_PREPARE, body).chunk()
    with pytest.raises(DamagedJournalError):
        parse_prepare(chunk, 0)


def test_k8_the_format_id_is_unsigned() -> None:
    assert xid_text(-1, b"a", b"") == "X'61',X'',4294967295"
