"""K5 on a live dump and in an archive: servers that were killed, and journals that lost their end,
of both flavors."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import CdcError, DamagedJournalError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.archive.archive import ArchiveSource
from cdc_pipeline.source.journal_ends import AcceptedEnd
from cdc_pipeline.source.protocol import Source
from tests.servers import Server
from tests.source.proving import proved
from tests.support.live_source import live_source

StartServer = Callable[..., Server]
Place = tuple[str, int]

_GTIDS = (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID)
_CLOSING = (EventType.ROTATE, EventType.STOP)
_KINDS = [
    pytest.param(("mysql", True), id="mysql", marks=pytest.mark.mysql),
    pytest.param(("mysql", False), id="mysql-without-gtids", marks=pytest.mark.mysql),
    pytest.param(("mariadb", True), id="mariadb", marks=pytest.mark.mariadb),
]


@pytest.fixture(scope="module", params=_KINDS)
def killed(request: pytest.FixtureRequest) -> Iterator[tuple[Server, bool]]:
    """A server that was killed and started again, and whether its transactions have GTIDs. Its
    second journal has no end; its third goes on. A test leaves the journals as they were."""
    flavor, gtids = request.param
    options = {} if gtids else {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
    with Server(flavor, options) as server:
        server.execute_all(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (a INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
        )
        server.flush_journal()
        server.execute_all("INSERT INTO shop.t VALUES (2)", "INSERT INTO shop.t VALUES (3)")
        server.kill()
        server.start()
        server.execute("INSERT INTO shop.t VALUES (4)")
        yield server, gtids


def events(
    source: Source, start: Position, **options: object
) -> tuple[list[tuple[Place, int]], CdcError | None]:
    """(journal, offset) and type of what was delivered, and the error that ended it."""
    seen: list[tuple[Place, int]] = []
    try:
        for chunk in proved(source, start, source.end_position(), **options):  # type: ignore[arg-type]
            types = chunk.events["event_type"].tolist()
            seen += [
                ((chunk.journal, at), kind)
                for at, kind in zip(chunk.events["offset"].tolist(), types, strict=True)
            ]
    except CdcError as error:
        return seen, error
    return seen, None


def raw_events(server: Server, journal: str, directory: Path) -> list[tuple[int, int, int]]:
    """(offset, next offset, type) of the events of one journal's file."""
    server.copy_journals(directory)
    source = ArchiveSource(directory)
    start = Position(journal, 4)
    end = Position(journal, (directory / journal).stat().st_size)
    return [
        (int(event["offset"]), int(event["next_offset"]), int(event["event_type"]))
        for chunk in source.chunks(start, end)
        for event in chunk.events
    ]


def test_k5_a_killed_servers_end_is_proved_by_the_next_set(
    killed: tuple[Server, bool], tmp_path: Path
) -> None:
    server, gtids = killed
    journal = server.journals()[1].name
    assert raw_events(server, journal, tmp_path)[-1][2] not in _CLOSING
    source = live_source(server)
    start = source.earliest_position()
    seen, error = events(source, start)
    archive = ArchiveSource(tmp_path)
    _, archived = events(archive, archive.earliest_position())
    assert str(archived) == str(error)
    if gtids:
        assert error is None
        assert seen[-1][0][0] == server.end_position()[0]
        # Also where nothing of the journal is read, live by its set and archived by offset.
        size = (server.datadir / journal).stat().st_size
        at_end = Position(journal, size, gtid_set=_set_at(server, journal, size))
        assert events(source, at_end)[1] is None
        assert events(ArchiveSource(tmp_path), at_end)[1] is None
        return
    assert isinstance(error, DamagedJournalError)
    assert (error.journal, error.setting) == (journal, "accept.unproved_journal_ends")
    assert journal in str(error.next_step)
    assert {place[0] for place, _ in seen} == {path.name for path in server.journals()[:2]}
    acceptances: list[AcceptedEnd] = []
    seen, error = events(source, start, accepted={journal}, acceptances=acceptances)
    assert error is None
    assert [(end.journal, end.following) for end in acceptances] == [
        (journal, server.end_position()[0])
    ]
    assert seen[-1][0][0] == server.end_position()[0]


def test_k5_a_journal_that_lost_its_tail_stops(killed: tuple[Server, bool], tmp_path: Path) -> None:
    """Cut before XID, behind the server's back: it goes on with the next journal, as if whole."""
    server, gtids = killed
    journal = server.journals()[1].name
    rows = raw_events(server, journal, tmp_path)
    begin = max(offset for offset, _, kind in rows if kind in _GTIDS)
    inside = rows[-1][0]
    assert rows[-1][2] == EventType.XID
    file = server.datadir / journal
    content = file.read_bytes()
    source = live_source(server)
    start = source.earliest_position()
    for cut in (inside, begin):
        file.write_bytes(content[:cut])
        seen, error = events(source, start)
        assert isinstance(error, DamagedJournalError), cut
        assert (error.journal, error.offset) == (journal, begin)
        assert (
            "no GTIDs" in str(error)
            if not gtids
            else "does not continue where it ends" in str(error)
        )
        server.copy_journals(tmp_path)
        archive = ArchiveSource(tmp_path)
        _, archived = events(archive, archive.earliest_position())
        assert isinstance(archived, DamagedJournalError)
        assert (archived.journal, archived.offset) == (journal, begin)
        assert {place[0] for place, _ in seen} == {path.name for path in server.journals()[:2]}
        acceptances: list[AcceptedEnd] = []
        seen, error = events(source, start, accepted={journal}, acceptances=acceptances)
        # What GTIDs disprove is a known loss, and cannot be accepted.
        assert (error is None) == (not gtids)
        assert len(acceptances) == (0 if gtids else 1)
    file.write_bytes(content)


def test_k5_an_unfinished_transaction_at_a_proved_end_never_was(
    killed: tuple[Server, bool], tmp_path: Path
) -> None:
    """The server was killed while it wrote: the next journal does not know the transaction."""
    server, gtids = killed
    journal = server.journals()[1].name
    rows = raw_events(server, journal, tmp_path)
    # The last transaction without its end, copied behind itself under a number that was never
    # given.
    first = server.journals()[0].name
    begin = max(offset for offset, _, kind in rows if kind in _GTIDS)
    tail = rows[-1][1]
    other = [row for row in rows if row[0] >= begin]
    source = live_source(server)
    start = source.earliest_position()
    file = server.datadir / journal
    content = file.read_bytes()
    with file.open("ab") as handle:
        handle.write(
            _moved(content[begin : other[-1][0]], tail - begin, flavor=server.flavor, gtids=gtids)
        )
    acceptances: list[AcceptedEnd] = []
    seen, error = events(source, start, accepted={journal}, acceptances=acceptances)
    assert error is None
    assert len(acceptances) == (0 if gtids else 1)
    assert max(place[1] for place, _ in seen if place[0] == journal) > tail
    assert seen[0][0][0] == first
    file.write_bytes(content)


def test_an_orderly_end_needs_no_proof(start_server: StartServer, tmp_path: Path) -> None:
    """Also where the reading begins right behind ROTATE or STOP, so that it is not read again."""
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)")
    server.flush_journal()
    server.restart()
    server.execute("INSERT INTO shop.t VALUES (4)")
    source = live_source(server)
    server.copy_journals(tmp_path)
    archive = ArchiveSource(tmp_path)
    assert events(source, source.earliest_position())[1] is None
    for journal in server.journals()[:-1]:
        at_end = Position(journal.name, journal.stat().st_size)
        inside = Position(
            journal.name, max(row[0] for row in raw_events(server, journal.name, tmp_path))
        )
        assert source.ends_closed(at_end)
        assert archive.ends_closed(at_end)
        assert not source.ends_closed(inside)
        assert not archive.ends_closed(inside)
        assert events(source, at_end)[1] is None
        assert events(archive, at_end)[1] is None


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_dump_by_gtid_set_from_anywhere_is_no_false_alarm(
    flavor: str, start_server: StartServer
) -> None:
    server = start_server(flavor)
    server.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)")
    sets = [server.gtid_set()]
    for number, ending in enumerate(
        [server.flush_journal, server.restart, _crash(server), server.flush_journal]
    ):
        server.execute(f"INSERT INTO shop.t VALUES ({number})")
        sets.append(server.gtid_set())
        ending()
        server.execute(f"INSERT INTO shop.t VALUES ({number + 100})")
        sets.append(server.gtid_set())
    source = live_source(server)
    end = source.end_position()
    for text in sets:
        # As after a failover: journal and offset are another server's.
        start = Position("binlog.000077", 4711, gtid_set=text)
        seen = list(proved(source, start, end))
        assert seen or text == sets[-1]


def _crash(server: Server) -> Callable[[], None]:
    def crash() -> None:
        server.kill()
        server.start()

    return crash


def _set_at(server: Server, journal: str, offset: int) -> str:
    if server.flavor == "mariadb":
        return str(server.query(f"SELECT BINLOG_GTID_POS('{journal}', {offset})")[0][0])
    (row,) = server.query(f"SHOW BINLOG EVENTS IN '{server.journals()[2].name}' LIMIT 1, 1")
    return str(row[5]).replace("\n", "")


def _moved(piece: bytes, by: int, *, flavor: str, gtids: bool) -> bytes:
    """Later places, the first transaction number raised by 1000, and new checksums."""
    moved = b""
    at = 0
    while at < len(piece):
        (length,) = struct.unpack_from("<I", piece, at + 9)
        event = bytearray(piece[at : at + length])
        (position,) = struct.unpack_from("<I", event, 13)
        struct.pack_into("<I", event, 13, position + by)
        if at == 0 and gtids:
            number_at = 19 if flavor == "mariadb" else 19 + 17
            (number,) = struct.unpack_from("<Q", event, number_at)
            struct.pack_into("<Q", event, number_at, number + 1000)
        struct.pack_into("<I", event, length - 4, zlib.crc32(event[:-4]))
        moved += bytes(event)
        at += length
    return moved
