"""Start positions on a live server: which are refused, and as what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from cdc_pipeline.errors import BinlogError, JournalMissingError, PositionError, SourceIdentityError
from cdc_pipeline.position.position import Position
from tests.servers import Flavor, Server
from tests.support.live_source import archived_events, events_of, live_source, place, position

FLAVORS = pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)


def fill(server: Server, rows: int = 3) -> None:
    """A table `a.t` with one transaction per row."""
    server.execute("CREATE DATABASE IF NOT EXISTS a")
    server.execute("CREATE TABLE IF NOT EXISTS a.t (k INT PRIMARY KEY AUTO_INCREMENT)")
    for _ in range(rows):
        server.execute("INSERT INTO a.t VALUES ()")


def by_offset(position_: Position) -> Position:
    return dataclasses.replace(position_, gtid_set="")


def test_every_offset_is_a_boundary_or_refused(server: Server, fresh_database: str) -> None:
    """For some offsets both servers list, and send, events that are none; only own ones pass."""
    server.flush_journal()
    source = live_source(server, tls={"mode": "off"})
    server.execute(f"CREATE TABLE {fresh_database}.t (a INT PRIMARY KEY)")
    start = position(server)
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (1)")
    end = by_offset(source.end_position())
    events = archived_events(server.journals()[-1:], start, end)
    boundaries = {event.fields[0] for event in events} | {end.offset}
    passed, refused = set(), []
    near = {boundary + step for boundary in boundaries for step in (-1, 0, 1)}
    for offset in sorted(near | set(range(start.offset, end.offset + 9, 7))):
        try:
            source.validate_position(Position(end.journal, offset))
        except PositionError as error:
            refused.append(error)
        else:
            passed.add(offset)
    assert passed == boundaries
    assert all(error.journal == end.journal and error.next_step for error in refused)


def test_the_end_of_a_closed_journal_is_a_boundary(server: Server) -> None:
    end = position(server)
    server.flush_journal()
    source = live_source(server)
    size = {info.journal: info.size_bytes for info in source.journals()}[end.journal]
    source.validate_position(Position(end.journal, size))
    with pytest.raises(PositionError, match="boundary"):
        source.validate_position(Position(end.journal, size + 1))


@FLAVORS
def test_a_purged_journal_is_named_with_the_oldest(
    start_server: Callable[..., Server], flavor: Flavor
) -> None:
    """Before reading, by offset and by GTID set; a dump that is started anyway says the same."""
    server = start_server(flavor)
    source = live_source(server)
    fill(server, 1)
    first = source.end_position()
    fill(server)
    server.flush_journal()
    second = source.end_position()
    fill(server)
    server.flush_journal()
    server.purge_to(server.end_position()[0])
    end = source.end_position()
    with pytest.raises(JournalMissingError) as caught:
        source.validate_position(by_offset(first))
    assert caught.value.journal == first.journal
    assert end.journal in str(caught.value.expected)
    with pytest.raises(JournalMissingError, match="purged"):
        list(source.chunks(by_offset(first), end))
    for behind in (first, second):
        with pytest.raises(JournalMissingError, match="purged"):
            source.validate_position(behind)
        with pytest.raises(JournalMissingError, match="purged"):
            list(source.chunks(behind, end))
    missing = {"mysql": f"{source.identity.server_uuid}:", "mariadb": f"0-{server.server_id}-"}[
        flavor
    ]
    with pytest.raises(JournalMissingError) as named:
        source.validate_position(first)
    assert missing in str(named.value.got)
    # What is left can be read from its own beginning.
    earliest = source.earliest_position()
    source.validate_position(earliest)
    assert earliest.gtid_set == end.gtid_set
    assert (earliest.journal, earliest.offset) == (end.journal, 4)
    fill(server, 1)
    end = source.end_position()
    got = [
        event for event in events_of(source.chunks(earliest, end)) if place(event) >= earliest.order
    ]
    assert got == archived_events(server.journals(), earliest, end)


@FLAVORS
def test_k6_the_creation_time_of_each_journal(
    start_server: Callable[..., Server], flavor: Flavor
) -> None:
    server = start_server(flavor)
    fill(server)
    created = [0]
    source = live_source(server)
    while len(set(created)) < 3:  # until journals of different seconds are there
        server.flush_journal()
        created = [source.journal_created_s(info.journal) for info in source.journals()]
    assert created == sorted(created)
    assert created == [
        int.from_bytes(path.read_bytes()[4:8], "little") for path in server.journals()
    ]
    with pytest.raises(JournalMissingError):
        source.journal_created_s("binlog.009999")
    assert source.uses_gtids
    assert not source.is_archive


@FLAVORS
def test_a_journal_deleted_from_disk_is_named(
    start_server: Callable[..., Server], flavor: Flavor
) -> None:
    server = start_server(flavor)
    source = live_source(server)
    fill(server)
    start = by_offset(source.end_position())
    server.flush_journal()
    fill(server)
    (server.datadir / start.journal).unlink()
    with pytest.raises(JournalMissingError) as caught:
        list(source.chunks(start, source.end_position()))
    assert caught.value.journal == start.journal


def test_a_journal_that_never_was(server: Server) -> None:
    source = live_source(server)
    with pytest.raises(JournalMissingError, match=r"binlog\.099999"):
        source.validate_position(Position("binlog.099999", 4))


@FLAVORS
def test_a_reset_log_is_another_log(start_server: Callable[..., Server], flavor: Flavor) -> None:
    """Numbering restarts, the names are there again, and nothing may look like "nothing new"."""
    server = start_server(flavor)
    fill(server)
    for _ in range(3):
        server.flush_journal()
    fill(server)
    source = live_source(server)
    end = source.end_position()
    first = next(source.chunks(Position("binlog.000001", 4), by_offset(end)))
    old_s = first.journal_format.created_s
    boundary = int(first.events["next_offset"][0])
    while True:  # until the clock shows another second
        server.reset_log()
        chunk = next(source.chunks(Position("binlog.000001", 4), by_offset(source.end_position())))
        if chunk.journal_format.created_s != old_s:
            break
    fill(server, 1)
    source = live_source(server)
    now = source.end_position()
    # The journal is there, and so is the offset: its creation time tells.
    stale = Position("binlog.000001", boundary, journal_created_s=old_s)
    with pytest.raises(SourceIdentityError, match="not the one"):
        source.validate_position(stale)
    with pytest.raises(SourceIdentityError) as caught:
        list(source.chunks(stale, now))
    assert str(old_s) in str(caught.value.expected)
    # Also where other journals follow, and at the end of the journal, where no event of it is sent.
    server.flush_journal()
    fill(server, 1)
    now = source.end_position()
    size = source.journals()[0].size_bytes
    for place_ in (
        stale,
        dataclasses.replace(stale, offset=4),
        dataclasses.replace(stale, offset=size),
    ):
        with pytest.raises(SourceIdentityError, match="not the one"):
            source.validate_position(place_)
        with pytest.raises(SourceIdentityError, match="not the one"):
            list(source.chunks(place_, now))
    # Its number is above the newest.
    with pytest.raises(SourceIdentityError, match="were renumbered"):
        source.validate_position(Position(end.journal, end.offset, journal_created_s=old_s))
    # By GTID set: the server has not executed what the cursor has.
    with pytest.raises(SourceIdentityError, match="not executed"):
        source.validate_position(end)
    source.validate_position(
        Position("binlog.000001", boundary, journal_created_s=chunk.journal_format.created_s)
    )


def test_a_set_from_another_server_is_ahead(server: Server) -> None:
    source = live_source(server)
    end = source.end_position()
    ahead = {
        "mysql": [
            f"{source.identity.server_uuid}:1-{10**9}",
            f"{end.gtid_set},11111111-2222-3333-4444-555555555555:1-5",
        ],
        "mariadb": [f"0-{server.server_id}-{10**9}", f"{end.gtid_set},77-1-5"],
    }[server.flavor]
    for gtid_set in ahead:
        with pytest.raises(SourceIdentityError, match="not executed"):
            source.validate_position(dataclasses.replace(end, gtid_set=gtid_set))
    # The server itself notices only some of them.
    with pytest.raises(SourceIdentityError):
        list(
            source.chunks(
                dataclasses.replace(end, gtid_set=ahead[0]),
                dataclasses.replace(end, offset=end.offset + 1, gtid_set=""),
            )
        )
    source.validate_position(end)


def test_a_dump_that_starts_inside_an_event_never_delivers_rows_silently(
    server: Server, fresh_database: str
) -> None:
    """`validate_position` refuses such a start; a dump started anyway ends with an error."""
    server.execute(f"CREATE TABLE {fresh_database}.t (k INT PRIMARY KEY)")
    source = live_source(server)
    end = by_offset(source.end_position())
    with pytest.raises((PositionError, JournalMissingError, BinlogError)):
        list(source.chunks(Position(end.journal, end.offset - 7), end))


@pytest.mark.mysql
def test_without_gtids_positions_have_none(start_server: Callable[..., Server]) -> None:
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    fill(server)
    source = live_source(server)
    source.check()
    start, end = source.earliest_position(), source.end_position()
    assert (start.gtid_set, end.gtid_set) == ("", "")
    # A set in the start (from before GTIDs were switched off) does not count.
    marked = dataclasses.replace(start, gtid_set=f"{source.identity.server_uuid}:1-5")
    source.validate_position(marked)
    for begin in (start, marked):
        assert events_of(source.chunks(begin, end)) == archived_events(
            server.journals(), start, end
        )


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_k24_journals_with_and_without_checksums(
    start_server: Callable[..., Server], flavor: Flavor
) -> None:
    server = start_server(flavor, binlog_checksum="NONE")
    fill(server, 1)
    server.execute("SET GLOBAL binlog_checksum = 'CRC32'")
    fill(server, 1)
    server.execute("SET GLOBAL binlog_checksum = 'NONE'")
    fill(server, 1)
    source = live_source(server)
    start, end = by_offset(source.earliest_position()), source.end_position()
    chunks = list(source.chunks(start, end))
    assert [chunk.journal_format.checksum_bytes for chunk in chunks] == [0, 4, 0]
    assert events_of(chunks) == archived_events(server.journals(), start, end)
    # In the middle of a journal the format description is not the journal's own, and without
    # checksums its stored one does not fit.
    for chunk in chunks:
        middle = Position(chunk.journal, int(chunk.events["offset"][-1]))
        source.validate_position(middle)
        assert events_of(source.chunks(middle, end)) == archived_events(
            server.journals(), middle, end
        )


@pytest.mark.mysql
def test_tagged_gtids_are_a_start(start_server: Callable[..., Server]) -> None:
    """The library cannot encode them: the request is our own, and nothing is sent twice."""
    server = start_server("mysql")  # other tests' sets have no tags
    fill(server, 1)
    with server.root_connection() as connection, connection.cursor() as cursor:
        cursor.execute("SET gtid_next = 'AUTOMATIC:billing'")
        cursor.execute("INSERT INTO a.t VALUES ()")
        cursor.execute("INSERT INTO a.t VALUES ()")
    source = live_source(server)
    start = source.end_position()
    assert ":billing:" in start.gtid_set
    fill(server, 2)
    end = source.end_position()
    source.validate_position(start)
    got = [event for event in events_of(source.chunks(start, end)) if place(event) >= start.order]
    assert got == archived_events(server.journals(), start, end)


@pytest.mark.mysql
def test_a_dump_by_gtid_set_goes_through_journals_without_checksums(
    start_server: Callable[..., Server],
) -> None:
    """MySQL clears the creation time in each format description that it sends after a set, and
    leaves the stored checksum as it was.
    """
    server = start_server("mysql", binlog_checksum="NONE")
    fill(server, 1)
    server.restart()
    fill(server, 1)
    server.flush_journal()
    source = live_source(server)
    start = dataclasses.replace(
        source.earliest_position(), gtid_set=f"{source.identity.server_uuid}:1"
    )
    end = source.end_position()
    chunks = list(source.chunks(start, end))
    assert [chunk.journal for chunk in chunks] == [path.name for path in server.journals()]
    head, first_transaction = 2, 2  # events of the first journal, of which the set has the latter
    stored = archived_events(server.journals(), start, end)
    assert events_of(chunks) == stored[:head] + stored[head + first_transaction :]
