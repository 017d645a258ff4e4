"""Savepoints and XA statements of slices, case by case (K8, T4)."""

from __future__ import annotations

import struct

import pytest

from cdc_pipeline.binlog.chunk import EventSlice, Role, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events.query import parse_query
from cdc_pipeline.errors import TransactionError
from cdc_pipeline.run.decode.transaction_control import (
    ControlReader,
    DecidedStatement,
    Ending,
    TransactionControl,
)
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import StatementContext
from cdc_pipeline.store.positions import last_ackable_row
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.support.event_builder import MARIADB, JournalBuilder, mariadb_gtid_body

PREPARE = struct.pack("<Biii", 0, 1, 1, 0) + b"a"


def slices_of(builder: JournalBuilder, *, slice_events_max: int = 1024) -> list[EventSlice]:
    taken: list[EventSlice] = []
    buffer = TransactionBuffer(
        lambda parts: taken.extend(parts) or True,  # type: ignore[func-returns-value]
        is_isolated=lambda _query: False,
        source="",
        slice_events_max=slice_events_max,
    )
    buffer.feed(builder.chunk())
    return taken


def stated(piece: EventSlice) -> list[DecidedStatement]:
    found = []
    for row in range(piece.first, piece.stop):
        if piece.chunk.events["role"][row] == Role.STATEMENT:
            query = parse_query(piece.chunk, row)
            decision = decide(
                StatementContext(
                    parse_statement(query.sql, "shop"),
                    captured=lambda *_: True,
                    known=lambda *_: None,
                )
            )
            found.append(DecidedStatement(piece, row, decision))
    return found


def read_all(
    pieces: list[EventSlice], reader: ControlReader | None = None
) -> list[TransactionControl]:
    """Read slices one by one."""
    reader = reader or ControlReader()
    return [reader.read([piece], stated(piece)) for piece in pieces]


def test_k8_undone_ranges_belong_to_their_own_transaction() -> None:
    builder = JournalBuilder(journal_format=MARIADB).mariadb_gtid(8).query("SAVEPOINT `s`").rows(2)
    builder.query("ROLLBACK TO `S`").rows().xid().mariadb_gtid(8).query(
        "SAVEPOINT `s`"
    ).rows().xid()
    (piece,) = slices_of(builder)
    (controls,) = read_all([piece])
    assert {key: ranges.tolist() for key, ranges in controls.undone.items()} == {
        ("binlog.000001", 4): [[2, 5]]
    }
    with pytest.raises(TransactionError, match="has not set: S"):
        ControlReader().read([piece], stated(piece)[1:])


def test_k8_xa_ends_carry_the_place_of_their_own_transaction() -> None:
    builder = (
        JournalBuilder().gtid().query("XA COMMIT X'61',X'',1").query("XA ROLLBACK X'62',X'00',7")
    )
    (piece,) = slices_of(builder)
    events = piece.events
    commit, rollback = read_all([piece])[0].xa_ends
    assert (commit.xid, commit.is_commit, commit.tx_offset, commit.offset) == (
        "X'61',X'',1", True, 4, int(events["offset"][1]),
    )  # fmt: skip
    assert (rollback.xid, rollback.is_commit, rollback.tx_offset) == (
        "X'62',X'00',7",
        False,
        rollback.offset,
    )
    inside = slices_of(
        JournalBuilder().gtid().query("BEGIN").rows().query("XA COMMIT X'61',X'',1").xid()
    )
    with pytest.raises(TransactionError, match="is inside a transaction"):
        read_all(inside)


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_k8_t4_a_prepared_transaction_in_pieces_is_known_before_its_first_row(flavor: str) -> None:
    if flavor == "mysql":
        builder = JournalBuilder().gtid().query("XA START X'61',X'',1")
    else:
        body = mariadb_gtid_body(0x4C)[:13] + struct.pack("<IBB", 1, 1, 0) + b"a"
        builder = JournalBuilder(journal_format=MARIADB).add(EventType.MARIADB_GTID, body)
    builder.rows(6).query("XA END X'61',X'',1").add(EventType.XA_PREPARE, PREPARE)
    pieces = slices_of(builder, slice_events_max=2)
    assert {piece.kind for piece in pieces[:-1]} == {SliceKind.OPEN_PIECE}
    assert pieces[-1].kind is SliceKind.LAST_PIECE
    reader = ControlReader()
    read = read_all(pieces, reader)
    for piece, controls in zip(pieces, read, strict=True):
        assert controls.waiting or not (piece.events["role"] == Role.ROWDATA).any()
    (part,) = read[-1].waiting
    assert (part.xid, part.tx_offset, part.ending) == ("X'61',X'',1", 4, Ending.PREPARED)
    assert [controls.ending for controls in read[:-1]] == [None] * (len(read) - 1)
    assert last_ackable_row(pieces[-1], 0, pieces[-1].event_count) == pieces[-1].event_count - 1
    plain = slices_of(JournalBuilder().gtid().query("BEGIN").rows(6).xid(), slice_events_max=2)
    assert not any(controls.waiting for controls in read_all(plain, reader))
    unannounced = JournalBuilder().gtid().query("BEGIN").rows(6).add(EventType.XA_PREPARE, PREPARE)
    with pytest.raises(TransactionError, match="did not announce it"):
        read_all(slices_of(unannounced, slice_events_max=2), reader)


@pytest.mark.parametrize("slice_events_max", [1, 2, 4, 8, 1024])
def test_k34_f71_where_slices_are_cut_changes_nothing_of_what_is_read(
    slice_events_max: int,
) -> None:
    """Ends of XA, prepares, savepoints and rollbacks, each cut at every event."""
    builder = JournalBuilder().gtid().query("XA START X'61',X'',1").rows(2).query("SAVEPOINT `s`")
    builder.rows(2).query("ROLLBACK TO `s`").query("XA END X'61',X'',1")
    builder.add(EventType.XA_PREPARE, PREPARE)
    builder.gtid().query("XA COMMIT X'61',X'',1").gtid().query("BEGIN").rows(3).query("ROLLBACK")
    builder.gtid().query("XA ROLLBACK X'62',X'',1").gtid().query("BEGIN").rows().xid()
    read = read_all(slices_of(builder, slice_events_max=slice_events_max))
    ends = [end for controls in read for end in controls.xa_ends]
    assert [(end.xid, end.is_commit) for end in ends] == [
        ("X'61',X'',1", True),
        ("X'62',X'',1", False),
    ]
    prepared = [
        (part.xid, part.tx_offset, part.undone.tolist())
        for controls in read
        for part in controls.waiting
        if part.ending is not None
    ]
    assert prepared == [("X'61',X'',1", 4, [[6, 9]])]


def test_s8_an_xa_prepare_is_a_place_for_a_cursor() -> None:
    builder = (
        JournalBuilder()
        .transaction()
        .gtid()
        .query("XA START X'61',X'',1")
        .rows()
        .add(EventType.XA_PREPARE, PREPARE)
    )
    (piece,) = slices_of(builder)
    assert last_ackable_row(piece, 0, piece.event_count) == piece.event_count - 1
