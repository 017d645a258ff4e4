"""The log that a cursor came from is recognised by its journal's length, creation time and last
event (K24)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import (
    DamagedJournalError,
    PositionError,
    ServerUnreachableError,
    SourceIdentityError,
)
from cdc_pipeline.position.cursor import CursorState, parse_cursor
from cdc_pipeline.position.position import Flavor, LoggedEvent, Position, ServerIdentity
from cdc_pipeline.position.start.same_log import LOGGED_BYTES_MAX, last_logged_event
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.run.capture.progress import Progress
from cdc_pipeline.source.live import log_positions
from tests.position.start.log import UUID, ListSource
from tests.support.event_builder import MARIADB, MYSQL, JournalBuilder

XID_BYTES = 19 + 8 + 4

CELLS = [
    (flavor, gtids, archive)
    for flavor in ("mysql", "mariadb")
    for gtids in (True, False)
    for archive in (True, False)
    if gtids or flavor == "mysql"
]


def journal(
    flavor: Flavor, *, transactions: int, xid: int = 0, created_s: int = 1_700_000_000
) -> Chunk:
    """One journal; `xid` is in the last event of its second transaction."""
    form = replace(MYSQL if flavor == "mysql" else MARIADB, created_s=created_s)
    builder = JournalBuilder(journal_format=form).fde()
    for number in range(1, transactions + 1):
        if flavor == "mysql":
            builder.gtid(number).query("BEGIN")
        else:
            builder.mariadb_gtid(seq_no=number)
        builder.rows(1).add(EventType.XID, bytes([xid if number == 2 else 0, *bytes(7)]))
    return builder.chunk()


def log_of(chunk: Chunk, gtids: bool, archive: bool) -> ListSource:
    is_mariadb = chunk.journal_format.is_mariadb
    identity = ServerIdentity(
        "mariadb" if is_mariadb else "mysql", 1, "" if is_mariadb else "3f0c-a", "db1:3306"
    )
    sets = "0-1-9" if is_mariadb else f"{UUID}:1-9"
    return ListSource(
        [chunk],
        identity=identity,
        end_gtid_set=sets if gtids else "",
        is_archive=archive,
    )


def cursor_after(chunk: Chunk, source: ListSource) -> CursorState:
    """Behind the second transaction, as a run that read the chunk leaves it."""
    row = np.flatnonzero(chunk.events["event_type"] == EventType.XID)[1]
    at = Position(
        chunk.journal,
        int(chunk.events["next_offset"][row]),
        gtid_set=source.end_gtid_set,
        journal_created_s=chunk.journal_format.created_s,
        last_event=last_logged_event(EventSlice(chunk, 0, int(row) + 1)),
    )
    return cursor_state("shop", source.identity, at)


def start(cursor: CursorState, source: ListSource) -> Position:
    return resolve_start(cursor=cursor, start="earliest", source=source).position


def refused(cursor: CursorState, source: ListSource) -> SourceIdentityError:
    with pytest.raises(SourceIdentityError) as caught:
        start(cursor, source)
    assert not caught.value.retryable
    assert caught.value.next_step
    assert (caught.value.journal, caught.value.offset) == (cursor.journal, cursor.offset)
    return caught.value


@pytest.mark.parametrize(("flavor", "gtids", "archive"), CELLS)
def test_k24_f5_a_log_that_is_another_one_by_now_is_refused_and_the_same_one_is_not(
    flavor: Flavor, gtids: bool, archive: bool
) -> None:
    read = journal(flavor, transactions=3)
    cursor = cursor_after(read, log_of(read, gtids, archive))
    assert cursor.last_event is not None
    assert cursor.last_event.offset + cursor.last_event.size_bytes == cursor.offset
    for same in (read, journal(flavor, transactions=9)):
        assert start(cursor, log_of(same, gtids, archive)) == (
            cursor.position if gtids else replace(cursor.position, gtid_set="")
        )

    shorter = log_of(journal(flavor, transactions=1), gtids, archive)
    # a server begins a new journal when it starts again
    shorter.log.append(replace(read, journal="binlog.000002"))
    error = refused(cursor, shorter)
    assert "restored to an earlier state" in error.what
    assert error.expected == f"a journal of at least {cursor.offset} bytes"
    assert ("is an incomplete copy" in str(error.next_step)) == archive

    other = refused(cursor, log_of(journal(flavor, transactions=9, xid=7), gtids, archive))
    assert f"CRC32 {cursor.last_event.crc32:08x}" in str(other.expected)
    assert "CRC32" in str(other.got)

    created = refused(
        cursor, log_of(journal(flavor, transactions=9, created_s=1_700_000_001), gtids, archive)
    )
    assert "1700000001" in str(created.got)


def test_k24_bytes_that_are_no_event_are_another_log_and_a_server_that_is_away_is_not() -> None:
    """After a power cut a journal may have its length and not its bytes."""
    read = journal("mariadb", transactions=3)
    for failure, expected in (
        (DamagedJournalError("a checksum is wrong"), SourceIdentityError),
        (PositionError("the server finds no complete event at the offset"), SourceIdentityError),
        (ServerUnreachableError("the connection broke"), ServerUnreachableError),
    ):
        source = log_of(read, True, False)
        cursor = cursor_after(read, source)

        def fail(_start: Position, _end: Position, failure: Exception = failure) -> Any:
            raise failure
            yield

        source.chunks = fail  # type: ignore[method-assign]
        with pytest.raises(expected) as caught:
            start(cursor, source)
        assert caught.value is failure or caught.value.got == failure.args[0]


def test_k24_a_cursor_of_an_earlier_version_is_checked_by_length_and_creation_time() -> None:
    read = journal("mariadb", transactions=3)
    source = log_of(read, True, False)
    old = cursor_after(read, source).model_dump_json(exclude={"last_event"})
    cursor = parse_cursor(old, where="the test")
    assert cursor.last_event is None
    assert start(cursor, source) == cursor.position
    assert refused(cursor, log_of(journal("mariadb", transactions=3, created_s=5), True, False))
    shorter = log_of(journal("mariadb", transactions=1), True, False)
    shorter.log.append(replace(read, journal="binlog.000002"))
    assert refused(cursor, shorter)


def test_k24_a_cursor_keeps_the_event_through_its_stored_form() -> None:
    read = journal("mysql", transactions=3)
    cursor = cursor_after(read, log_of(read, True, False))
    again = parse_cursor(cursor.model_dump_json(), where="the test")
    assert again == cursor
    assert again.position.last_event == cursor.last_event == again.last_event


# -- which event is remembered ---------------------------------------------------------------------


def grouped(chunk: Chunk) -> Chunk:
    TransactionPass().step(chunk)
    return chunk


def place_after(*slices: EventSlice) -> Progress:
    place = Progress(Position("binlog.000001", 4), "mysql")
    for piece in slices:
        place.advance([piece])
    return place


def test_k24_the_place_remembers_its_last_small_event_that_stands_in_the_journal_as_it_is_read() -> (  # noqa: E501
    None
):
    """Not a format description, not a large event, nothing from inside a payload, nothing behind
    the place."""
    builder = JournalBuilder().fde()
    builder.gtid(1).query("BEGIN").rows(1).xid()
    builder.gtid(2).add(EventType.QUERY, bytes(LOGGED_BYTES_MAX))
    chunk = grouped(builder.chunk())
    offsets = chunk.events["offset"].tolist()

    def remembered(stop: int, **changes: Any) -> tuple[int, int] | None:
        part = EventSlice(replace(chunk, events=chunk.events.copy()), 0, stop)
        for field, (row, value) in changes.items():
            part.chunk.events[field][row] = value
        event = last_logged_event(part)
        return None if event is None else (event.offset, event.offset + event.size_bytes)

    assert remembered(1) is None, "a format description changes while its journal is open"
    assert remembered(6) == (offsets[2], offsets[6]), "all after the GTID"
    assert remembered(8) == (offsets[6], offsets[7]), (
        "the last one is large: the GTID event in front of it"
    )
    before = (offsets[2], offsets[5])
    assert remembered(6, parent=(5, 1)) == before, "unpacked from a payload"
    assert remembered(6, event_length=(5, 30)) == before, (
        "what is in memory is not what the journal holds"
    )
    assert remembered(6, parent=(4, 1)) == (offsets[5], offsets[6]), "a gap before it"
    assert remembered(6, offset=(5, 1 << 32)) == before, "no dump can begin behind 4 GiB"


def test_k24_pieces_of_an_open_transaction_move_neither_the_place_nor_its_event() -> None:
    builder = JournalBuilder().fde()
    builder.gtid(1).query("BEGIN").rows(1).xid()
    builder.gtid(2).query("BEGIN").rows(4).xid()
    chunk = grouped(builder.chunk())
    whole, piece = EventSlice(chunk, 0, 6), EventSlice(chunk, 6, 10, SliceKind.OPEN_PIECE)
    place = place_after(whole, piece)
    first = place.full_position()
    assert first.last_event == last_logged_event(whole)
    assert first.last_event is not None
    assert first.last_event.offset + first.last_event.size_bytes == first.offset
    both = Progress(Position("binlog.000001", 4), "mysql")
    both.advance([whole, piece])
    assert both.full_position().last_event == first.last_event
    place.advance([EventSlice(chunk, 10, len(chunk.events), SliceKind.LAST_PIECE)])
    end = place.full_position()
    assert end.last_event is not None
    assert end.last_event.offset + end.last_event.size_bytes == end.offset == chunk.end_offset


def test_k24_the_event_stays_where_the_server_left_out_the_rest_and_goes_with_its_journal() -> None:
    builder = JournalBuilder().fde()
    builder.gtid(1).query("BEGIN").rows(1).xid()
    chunk = grouped(builder.chunk())
    place = place_after(EventSlice(chunk, 0, 6))
    event = place.position.last_event
    place.reach(Position("binlog.000001", chunk.end_offset + 100))
    assert place.position.offset == chunk.end_offset + 100
    assert place.position.last_event == event
    assert place.position.journal_created_s == MYSQL.created_s
    place.reach(Position("binlog.000002", 200))
    assert place.position.last_event is None


# -- MariaDB's GTIDs -------------------------------------------------------------------------------


class StateOnly:
    """A MariaDB server of which only its GTID variables are asked."""

    flavor = "mariadb"
    address = "db2:3306"
    begin_again = ""

    def __init__(self, state: str, began_after: str = "") -> None:
        self._values = {"gtid_binlog_state": state, "gtid_slave_pos": began_after}
        last = {
            entry.split("-")[0]: entry
            for entry in sorted(state.split(","), key=lambda e: int(e.split("-")[2]))
        }
        self._end = Position("binlog.000001", 900, gtid_set=",".join(last.values()))

    def text(self, sql: str) -> str:
        return self._values[sql.rpartition(".")[2]]

    def end_position(self) -> Position:
        return self._end

    def journals(self, **_: Any) -> list[Any]:
        return [type("Listed", (), {"journal": "binlog.000001"})]

    def mariadb_gtid_position(self, _at: Position) -> str:
        return ""

    def rows(self, _sql: str, _arguments: object) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("state", "began_after", "got"),
    [
        ("0-1-120", "", ""),
        ("0-1-100,0-2-150", "", ""),
        ("0-2-101", "0-1-100", ""),  # a replica that was made from a backup taken at the cursor
        ("0-1-95,0-2-150", "", "continued without it"),
        ("0-2-150", "", "continued without it"),
        ("0-1-95", "", "has not executed"),  # a standby that lags
        ("0-1-90,0-2-95", "", "has not executed"),
        ("0-1-95,0-2-150,1-1-3", "", "continued without it"),
    ],
)
def test_k24_a_mariadb_server_must_hold_the_very_transaction_and_not_one_of_its_number(
    state: str, began_after: str, got: str
) -> None:
    """A standby that merely lags is told so, as before."""
    server: Any = StateOnly(state, began_after)
    position = Position("binlog.000007", 500, gtid_set="0-1-100")
    if not got:
        log_positions.validate_gtid_set(server, position)
        return
    with pytest.raises(SourceIdentityError, match=got) as caught:
        log_positions.validate_gtid_set(server, position)
    assert ("0-1-100" in str(caught.value.expected)) == (got == "continued without it")


def test_k24_a_remembered_event_is_no_part_of_a_place() -> None:
    at = Position("binlog.000001", 500)
    assert at == replace(at, last_event=LoggedEvent(469, 31, 7))
