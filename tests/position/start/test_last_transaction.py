"""A log in which reading goes on by GTIDs has the last transaction that was read, not another one
of its GTID (K24)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import ServerSettingError, SourceIdentityError
from cdc_pipeline.position.cursor import parse_cursor
from cdc_pipeline.position.position import LoggedTransaction, Position, ServerIdentity
from cdc_pipeline.position.start.same_log import check_last_transaction
from cdc_pipeline.position.start.start import resolve_start
from tests.position.start.log import ME, UUID, ListSource, cursor, journal, source
from tests.support.event_builder import COMMIT_US, MARIADB, JournalBuilder, gtid_body

OTHER = replace(ME, server_uuid="other", server_id=2)
READ = LoggedTransaction(f"{UUID}:2", COMMIT_US)


def other_second() -> Chunk:
    """The first journal, in which another transaction has the second GTID."""
    builder = JournalBuilder(journal="binlog.000001").fde()
    builder.add(EventType.PREVIOUS_GTIDS, bytes(8))
    for gno, commit_us in ((1, COMMIT_US), (2, COMMIT_US + 1), (3, COMMIT_US + 2)):
        builder.add(EventType.GTID, gtid_body(gno, commit_us)).query("BEGIN").rows(1).xid()
    return builder.chunk()


def test_k24_another_server_with_the_last_transaction_is_read_on_and_keeps_it() -> None:
    known = cursor(last_transaction=READ)
    log = source(identity=OTHER)
    decision = resolve_start(cursor=known, start="earliest", source=log)
    assert decision.epoch_grows
    assert decision.position.last_transaction == READ
    assert log.closed, "the log was read"


def test_k24_another_server_with_another_transaction_of_that_gtid_is_refused() -> None:
    log = ListSource([other_second()], identity=OTHER, end_gtid_set=f"{UUID}:1-3")
    with pytest.raises(SourceIdentityError, match="restored to an earlier state") as caught:
        resolve_start(cursor=cursor(last_transaction=READ), start="earliest", source=log)
    assert not caught.value.retryable
    assert READ.gtid in str(caught.value.expected)
    assert "binlog.000001" in str(caught.value.got)
    assert "cursor set shop --from latest" in str(caught.value.next_step)


def test_k24_a_reset_log_that_has_passed_the_cursors_journal_is_refused() -> None:
    """The journal's name is gone, its GTIDs were given again."""
    log = ListSource([replace(other_second(), journal="binlog.000900")], end_gtid_set=f"{UUID}:1-3")
    with pytest.raises(SourceIdentityError, match="restored to an earlier state"):
        resolve_start(cursor=cursor(last_transaction=READ), start="earliest", source=log)


def test_k24_a_transaction_that_was_purged_or_is_not_sent_cannot_be_compared() -> None:
    position = Position("binlog.000001", 500, gtid_set=f"{UUID}:1-2", last_transaction=READ)
    check_last_transaction(ListSource([journal(2, f"{UUID}:1-3", [4, 5])]), position)
    check_last_transaction(ListSource([other_second()]), replace(position, last_transaction=None))
    refusing = ListSource([other_second()])

    def refuse(_start: Position, _end: Position) -> object:
        raise ServerSettingError("no transactions without a GTID")

    refusing.chunks = refuse  # type: ignore[method-assign, assignment]
    check_last_transaction(refusing, position)


@pytest.mark.parametrize(("server", "is_refused"), [(1, False), (2, True)])
def test_k24_a_number_of_mariadb_belongs_to_one_server(server: int, is_refused: bool) -> None:
    builder = JournalBuilder(journal_format=MARIADB).fde()
    builder.add(EventType.MARIADB_GTID_LIST, bytes(4))
    for number in (1, 2, 3):
        builder.mariadb_gtid(seq_no=number).rows(1).xid()
    chunk = builder.chunk()
    written_by = int(chunk.events["server_id"][2])
    identity = ServerIdentity("mariadb", 7)
    log = ListSource([chunk], identity=identity, end_gtid_set=f"0-{written_by}-3")
    committed_us = int(chunk.events["timestamp_s"][6]) * 1_000_000
    gtid = f"0-{written_by + server - 1}-2"
    position = Position(
        "binlog.000001",
        500,
        gtid_set=gtid,
        last_transaction=LoggedTransaction(gtid, committed_us),
    )
    if not is_refused:
        check_last_transaction(log, position)
        return
    with pytest.raises(SourceIdentityError, match="restored to an earlier state"):
        check_last_transaction(log, position)


def test_k24_a_cursor_keeps_its_last_transaction_through_its_stored_form() -> None:
    known = cursor(last_transaction=READ)
    again = parse_cursor(known.model_dump_json(), where="the test")
    assert again == known
    assert again.position.last_transaction == READ
    old = known.model_dump_json(exclude={"last_transaction"})
    assert parse_cursor(old, where="the test").position.last_transaction is None
