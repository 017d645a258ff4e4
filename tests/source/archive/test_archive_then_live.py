"""P5: what the server has purged is read from an archive, then the server's own log, without a gap
or an overlap."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    JournalMissingError,
    SourceIdentityError,
)
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.source.archive import archive_then_live as module
from cdc_pipeline.source.archive.archive_then_live import ArchiveThenLive
from cdc_pipeline.source.archive.files import read_head
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.source.protocol import Source
from tests.source.archive.conftest import MARIADB, MYSQL, WITHOUT_GTIDS, Log, StartServer
from tests.source.proving import proved
from tests.support.live_source import archived_events, events_of
from tests.support.memory_shop import GOLDEN


def test_k24_nothing_private_of_the_live_source_is_replaced() -> None:
    """Two methods of one name once meant different things: a start was checked by offset alone."""
    replaced = vars(ArchiveThenLive).keys() & set(dir(LiveSource)) - set(dir(Source))
    assert not [name for name in replaced if name.startswith("_") and not name.startswith("__")]


def test_the_head_of_a_packed_journal_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = GOLDEN / "mysql-common.000001"
    keep = {"path": tmp_path, "compress": True}
    account = {"kind": "live", "host": "nowhere.example", "user": "cdc", "password": "secret-word"}
    config = LiveSourceConfig.model_validate(account | {"keep_journals": keep})
    assert config.keep_journals is not None
    identity = ServerIdentity("mysql", 1)
    kept = KeptJournals.newest(config.keep_journals, identity)
    journal = KeptJournal("binlog.000001", 0, False, (), 7)
    kept.seal(kept.append(journal, golden.read_bytes()))
    read: list[int] = []

    def beginning(self: KeptJournals, journal: KeptJournal, bytes_max: int) -> bytes:
        read.append(bytes_max)
        return whole(self, journal, bytes_max)

    whole = KeptJournals.beginning
    monkeypatch.setattr(KeptJournals, "beginning", beginning)
    expected = read_head(golden)
    # Enough; in the middle of the format description; right behind it, before the set; in the set.
    for first_bytes in (64 << 10, 100, 126, 140):
        monkeypatch.setattr(module, "_HEAD_BYTES", first_bytes)
        with closing(module._Archive(config, identity, base="binlog", begin_again="")) as archive:
            assert [archive.head(1) for _ in range(2)] == [expected] * 2
        assert read == ([first_bytes] if first_bytes > 1000 else [first_bytes, 4 << 20])
        read.clear()


MARKS = (
    EventType.FORMAT_DESCRIPTION,
    EventType.PREVIOUS_GTIDS,
    EventType.MARIADB_GTID_LIST,
    EventType.MARIADB_BINLOG_CHECKPOINT,
)


def test_p5_purged_journals_are_read_from_the_archive_and_then_the_server(log: Log) -> None:
    source = log.source()
    with pytest.raises(JournalMissingError):
        source.validate_position(log.start)  # an empty archive helps nobody
    end = log.end
    # at first the archive ends right before the server's log; then both have some
    for copies in ((2, 3), (4, 5)):
        log.keep(*copies)
        source.validate_position(log.start)
        (reason,) = source.reasons(log.start)
        assert "binlog.000002 to binlog.000003" in reason
        assert "binlog.000004" in reason
        assert [info.journal[-1] for info in source.journals()] == ["2", "3", "4", "5", "6"]
        expected = archived_events(log.all_files, log.start, end)
        assert events_of(proved(source, log.start, end)) == expected
        # By offset too, where the server has GTIDs.
        assert events_of(proved(source, replace(log.start, gtid_set=""), end)) == expected
        earliest = source.earliest_position()
        assert (earliest.journal, earliest.offset) == ("binlog.000002", 4)
        # By GTID set the marks at the head of the first journal are left out.
        got = events_of(proved(source, earliest, end))
        everything = archived_events(log.all_files, earliest, end)
        assert got == everything[-len(got) :]
        assert all(event.fields[6] in MARKS for event in everything[: -len(got)])
        inside = replace(log.sets[2], gtid_set="")
        assert events_of(source.chunks(log.start, inside)) == archived_events(
            log.all_files, log.start, inside
        )
    # What the catalog says of now holds back to the start: the archive, too, is looked through for
    # DDL.
    log.keep(1)
    for start, ddl in (
        (log.start, {}),
        (source.earliest_position(), {("shop", "t"): "binlog.000001"}),
    ):
        placed = source.catalog(lambda database, _: database == "shop", since=start)
        assert placed is not None
        assert placed.catalog.tables["shop", "t"][0].column_names == ("a",)
        assert {
            table: journal for table, (journal, _) in placed.last_ddl.items() if table[1]
        } == ddl
    # A start that the server can serve does not look into the archive.
    later = log.sets[3]
    shutil.rmtree(log.archive)
    log.archive.mkdir()
    (log.archive / "binlog.000001").write_bytes(b"no journal")
    source.validate_position(later)
    assert source.reasons(later) == ()
    assert (
        events_of(proved(source, later, end))[-1] == archived_events(log.all_files, later, end)[-1]
    )


@pytest.mark.parametrize("shared_log", [MYSQL, MARIADB], indirect=True)
def test_p5_a_gtid_set_is_found_in_the_archive(log: Log) -> None:
    """The place of another server, as after a failover: only the set counts."""
    log.keep(1, 2, 3)
    source = log.source()
    end = log.end
    for own in log.sets[:3]:
        start = Position("mysqld-bin.000077", 4711, gtid_set=own.gtid_set)
        source.validate_position(start)
        assert events_of(proved(source, start, end)) == archived_events(log.all_files, own, end)


@pytest.mark.parametrize("own_log", [MYSQL], indirect=True)
def test_p5_a_journal_that_is_purged_while_the_archive_is_read(own_log: Log) -> None:
    log = own_log
    log.keep(2, 3, 4)
    source = log.source()
    end = log.end
    chunks = proved(source, log.start, end)
    read = [next(chunks)]
    log.server.purge_to("binlog.000005")
    read += chunks
    assert events_of(read) == archived_events(log.all_files, log.start, end)


def test_p5_an_archive_with_a_hole_is_refused(log: Log) -> None:
    for copies, missing in (((3, 4), "binlog.000002"), ((2,), "binlog.000003")):
        shutil.rmtree(log.archive)
        log.archive.mkdir()
        log.keep(*copies)
        source = log.source()
        for read in (
            source.validate_position,
            lambda start, s=source: list(s.chunks(start, log.end)),
        ):
            with pytest.raises(JournalMissingError) as caught:
                read(log.start)
            assert caught.value.setting == "source.archive_directory"
            if not log.start.gtid_set or missing == "binlog.000003":
                assert caught.value.journal == missing
            assert str(log.archive) in str(caught.value.next_step) or str(log.archive) in str(
                caught.value.expected
            )


def test_p5_an_archive_of_another_server_is_refused(log: Log, start_server: StartServer) -> None:
    options = WITHOUT_GTIDS if not log.start.gtid_set and log.server.flavor == "mysql" else {}
    foreign = start_server(log.server.flavor, **options)
    foreign.execute("CREATE DATABASE elsewhere")
    for _ in range(3):
        foreign.flush_journal()
    foreign.copy_journals(log.archive)
    with pytest.raises(CdcError) as caught:
        log.source().validate_position(log.start)
    assert isinstance(caught.value, SourceIdentityError | JournalMissingError)
    # Only one journal of it is another server's: the one that should join.
    shutil.rmtree(log.archive)
    log.archive.mkdir()
    log.keep(2, 3)
    shutil.copy2(foreign.journals()[2], log.archive / "binlog.000003")
    with pytest.raises(SourceIdentityError, match="another server"):
        log.source().validate_position(log.start)
    with pytest.raises(SourceIdentityError, match="another server"):
        list(log.source().chunks(log.start, log.end))


def test_p5_an_archive_whose_last_copy_is_not_whole_is_refused(log: Log) -> None:
    """Copied while the server wrote it, and purged later: it ends early, at an event boundary."""
    log.keep(2, 3)
    journal = log.archive / "binlog.000003"
    cut = max(
        event.fields[0]
        for event in archived_events([log.all_files[2]], Position("binlog.000003", 4), log.sets[3])
    )
    begin = log.sets[2].offset  # between two transactions
    assert begin < cut
    journal.write_bytes(journal.read_bytes()[:begin])
    source = log.source()
    if log.start.gtid_set:
        with pytest.raises(SourceIdentityError, match="does not end where"):
            source.validate_position(log.start)
        return
    source.validate_position(log.start)
    with pytest.raises(DamagedJournalError, match="no GTIDs"):
        list(proved(source, log.start, source.end_position()))


def test_k24_an_archive_that_holds_more_of_a_journal_than_the_server_stops_by_name(
    log: Log,
) -> None:
    """A server that lost the end of its log in a power cut, after the archive had been given it."""
    log.keep(1, 2, 3, 4, 5, 6)
    log.source().validate_position(log.start)
    copy = log.archive / log.all_files[4].name
    longer = copy.read_bytes() + b"x"
    copy.write_bytes(longer)
    with pytest.raises(SourceIdentityError, match="restored to an earlier state") as caught:
        log.source().validate_position(log.start)
    assert caught.value.journal == copy.name
    assert str(len(longer)) in str(caught.value.expected)
