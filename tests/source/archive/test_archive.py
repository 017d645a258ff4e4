"""The archive source on journals that real servers wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import (
    BinlogError,
    CdcError,
    DamagedJournalError,
    JournalMissingError,
    PositionError,
    SourceError,
    SourceIdentityError,
    TruncatedJournalError,
)
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.source.archive.archive import ArchiveSource
from tests.servers import Server
from tests.source.proving import proved

StartServer = Callable[..., Server]


@pytest.fixture(params=["mysql", "mariadb"])
def flavor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def write(server: Server, *, journals: int = 3) -> None:
    server.execute_all(
        "CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY, b VARCHAR(100))"
    )
    for number in range(journals):
        for row in range(5):
            server.execute(
                f"INSERT INTO shop.t VALUES ({number * 5 + row}, REPEAT('x', {row * 20}))"
            )
        if number < journals - 1:
            server.flush_journal()


def offsets(source: ArchiveSource) -> list[tuple[str, int]]:
    return [
        (chunk.journal, offset)
        for chunk in source.chunks(source.earliest_position(), source.end_position())
        for offset in chunk.events["offset"].tolist()
    ]


def fails(source: ArchiveSource) -> tuple[list[tuple[str, int]], CdcError]:
    """Events that were delivered, and the error after them."""
    seen: list[tuple[str, int]] = []
    try:
        for chunk in proved(source, source.earliest_position(), source.end_position()):
            seen += [(chunk.journal, offset) for offset in chunk.events["offset"].tolist()]
    except CdcError as error:
        return seen, error
    raise AssertionError("nothing failed")


class Recorded(NamedTuple):
    """An archive, and what its server said at its end."""

    directory: Path
    flavor: str
    server_id: int
    end: tuple[str, int]
    gtid_set: str


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.whole]),
    ],
)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("recorded")
    with Server(request.param) as server:
        write(server)
        server.copy_journals(directory)
        (directory / "binlog.index").write_text("not a journal")
        end, gtid_set = server.end_position(), server.gtid_set()
        return Recorded(directory, request.param, server.server_id, end, gtid_set)


@pytest.fixture
def archive(recorded: Recorded, tmp_path: Path) -> Path:
    """A copy of the journals, for this test alone."""
    return Path(shutil.copytree(recorded.directory, tmp_path / "archive"))


def test_it_ends_where_the_server_ends(recorded: Recorded) -> None:
    source = ArchiveSource(recorded.directory, chunk_bytes=512)
    source.check()
    end = source.end_position()
    assert (end.journal, end.offset) == recorded.end
    assert end.gtid_set == str(parse_gtid_set(recorded.gtid_set, recorded.flavor))
    assert source.identity.flavor == recorded.flavor
    assert source.identity.server_id == recorded.server_id
    assert [info.journal for info in source.journals()] == [
        "binlog.000001",
        "binlog.000002",
        "binlog.000003",
    ]
    assert source.earliest_position().offset == 4
    assert source.tables() is None


def test_chunks_join_whatever_the_block_size(archive: Path) -> None:
    whole = offsets(ArchiveSource(archive))
    for chunk_bytes in (64, 1000):
        assert offsets(ArchiveSource(archive, chunk_bytes=chunk_bytes)) == whole
    source = ArchiveSource(archive)
    for journal, offset in whole[:: max(1, len(whole) // 20)]:
        start = replace(
            source.earliest_position(), journal=journal, offset=offset, journal_created_s=0
        )
        source.validate_position(start)
        rest = [
            (chunk.journal, at)
            for chunk in source.chunks(start, source.end_position())
            for at in chunk.events["offset"].tolist()
        ]
        assert rest == whole[whole.index((journal, offset)) :]
        head = [
            (chunk.journal, at)
            for chunk in source.chunks(source.earliest_position(), start)
            for at in chunk.events["offset"].tolist()
        ]
        assert head == whole[: whole.index((journal, offset))]


def test_positions_inside_events_past_the_end_and_of_other_journals(
    archive: Path,
) -> None:
    source = ArchiveSource(archive)
    start = source.earliest_position()
    size = (archive / start.journal).stat().st_size
    boundaries = {offset for journal, offset in offsets(source) if journal == start.journal} | {
        size
    }
    for offset in range(4, size + 1):
        position = replace(start, offset=offset)
        if offset in boundaries:
            source.validate_position(position)
        else:
            with pytest.raises(PositionError):
                source.validate_position(position)
    with pytest.raises(PositionError, match="beyond the end"):
        source.validate_position(replace(start, offset=size + 1))
    with pytest.raises(SourceIdentityError):
        source.validate_position(replace(start, journal_created_s=start.journal_created_s + 1))
    with pytest.raises(JournalMissingError):
        source.validate_position(replace(start, journal="binlog.000009"))


def test_a_gap_in_the_numbers_stops_after_what_is_before_it(
    archive: Path,
) -> None:
    (archive / "binlog.000002").unlink()
    seen, error = fails(ArchiveSource(archive))
    assert isinstance(error, JournalMissingError)
    assert error.journal == "binlog.000002"
    assert {journal for journal, _ in seen} == {"binlog.000001"}


def test_damage_and_truncation_of_the_last_journal_are_met_by_the_run(
    archive: Path,
) -> None:
    source = ArchiveSource(archive)
    whole = offsets(source)
    last = archive / "binlog.000003"
    data = last.read_bytes()
    event_offset = whole[-3][1]
    last.write_bytes(data[: event_offset + 25])
    seen, error = fails(ArchiveSource(archive))
    assert isinstance(error, TruncatedJournalError)
    assert (error.journal, error.offset) == (last.name, event_offset)
    assert seen == whole[:-3]
    last.write_bytes(
        data[: event_offset + 25] + bytes([data[event_offset + 25] ^ 1]) + data[event_offset + 26 :]
    )
    seen, error = fails(ArchiveSource(archive))
    assert isinstance(error, DamagedJournalError)
    assert error.offset == event_offset
    assert seen == whole[:-3]


def test_an_unfinished_transaction_at_the_end_waits(archive: Path) -> None:
    source = ArchiveSource(archive)
    whole = source.end_position()
    last = archive / "binlog.000003"
    types = [
        (int(event["event_type"]), int(event["offset"]))
        for chunk in source.chunks(source.earliest_position(), whole)
        if chunk.journal == last.name
        for event in chunk.events
    ]
    assert types[-1][0] == EventType.XID
    last.write_bytes(last.read_bytes()[: types[-1][1]])
    gtids = (EventType.GTID, EventType.MARIADB_GTID)
    begin = max(offset for event_type, offset in types if event_type in gtids)
    cut = ArchiveSource(archive)
    assert cut.end_position().offset == begin
    assert cut.end_position().gtid_set != whole.gtid_set
    assert offsets(cut)[-1][1] < begin


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        ArchiveSource(tmp_path / "nowhere").check()
    with pytest.raises(JournalMissingError):
        ArchiveSource(tmp_path).check()
    journal = tmp_path / "binlog.000001"
    for content, error in (
        (b"", TruncatedJournalError),
        (b"\xfeb", TruncatedJournalError),
        (b"PK\3\4" + bytes(100), DamagedJournalError),
        (b"\xfdbin" + bytes(600), BinlogError),
        (b"\xfebin" + bytes(10), TruncatedJournalError),
        (b"\xfebin" + bytes(200), DamagedJournalError),
    ):
        journal.write_bytes(content)
        with pytest.raises(error) as caught:
            ArchiveSource(tmp_path).check()
        assert caught.value.journal == journal.name
        assert caught.value.next_step
    shutil.copy(journal, tmp_path / "relay-bin.000001")
    with pytest.raises(SourceError, match="more than one log"):
        ArchiveSource(tmp_path).check()


def test_close_stops_the_chunks(archive: Path) -> None:
    source = ArchiveSource(archive, chunk_bytes=256)
    chunks = source.chunks(source.earliest_position(), source.end_position())
    assert np.all(next(chunks).events["offset"] >= 4)
    source.close()
    assert list(chunks) == []
