"""What a dump delivers is kept as the server's own files, without holes, whatever cuts it off."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import KeepJournalsConfig
from cdc_pipeline.errors import JournalMissingError, SourceIdentityError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.archive.archive_then_live import ArchiveThenLive
from cdc_pipeline.source.kept_journals import KeptJournals, logs_of
from cdc_pipeline.source.live import journal_keeper
from cdc_pipeline.source.live.journal_keeper import JournalKeeper
from tests.servers import Server
from tests.support.live_source import archived_events, events_of, live_config

StartServer = Callable[..., Server]
FLAVORS = [
    pytest.param(("mysql", {}), id="mysql"),
    pytest.param(
        ("mysql", {"binlog_checksum": "NONE", "binlog_transaction_compression": "ON"}),
        id="mysql-compressed-without-checksums",
        marks=pytest.mark.whole,
    ),
    pytest.param(("mariadb", {"log_bin_compress": "ON"}), id="mariadb-compressed"),
    pytest.param(("mariadb", {"binlog_checksum": "NONE"}), id="mariadb-without-checksums"),
]


class _Killed(BaseException):
    pass


class Keeping:
    """A server with rows in several journals, and sources that keep what they read."""

    def __init__(self, server: Server, folder: Path, *, compress: bool = False) -> None:
        self.server = server
        self.keep = KeepJournalsConfig(path=folder / "kept", compress=compress)
        self.config = live_config(server).model_copy(update={"keep_journals": self.keep})
        server.execute_all(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY, b LONGTEXT)"
        )
        self.rows = 0

    def write(self, count: int = 5) -> None:
        for _ in range(count):
            self.rows += 1
            self.server.execute(
                f"INSERT INTO shop.t VALUES ({self.rows}, REPEAT('text {self.rows}', 500))"
            )

    def source(self) -> ArchiveThenLive:
        return ArchiveThenLive(self.config, pipeline_name="shop")

    def end(self) -> Position:
        with closing(self.source()) as source:
            return source.end_position()

    def run(self, start: Position, end: Position | None = None) -> None:
        with closing(self.source()) as source:
            source.keep_journals()
            for _ in source.chunks(start, end or source.end_position()):
                pass

    @property
    def kept(self) -> KeptJournals:
        (folder,) = logs_of(self.keep.path)
        return KeptJournals(folder, compress=self.keep.compress)

    def check(self, folder: Path, *, sealed: int) -> None:
        """Everything is kept from the first journal on, and is the server's own files."""
        folder.mkdir(exist_ok=True)
        files = {file.name: file for file in self.server.copy_journals(folder / "server")}
        journals = self.kept.journals()
        assert [journal.is_sealed for journal in journals[:sealed]] == [True] * sealed
        for journal in journals:
            ours = self.kept.copy(journal, folder).read_bytes()
            theirs = bytearray(files[journal.name].read_bytes())
            if not journal.is_sealed:
                theirs[21] &= 0xFE  # LOG_EVENT_BINLOG_IN_USE_F, of a journal being written
                assert ours == bytes(theirs[: len(ours)]), journal.name
            else:
                assert ours == bytes(theirs), journal.name


@pytest.fixture(params=FLAVORS)
def keeping(request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path) -> Keeping:
    flavor, options = request.param
    return Keeping(
        start_server(flavor, **options), tmp_path, compress="log_bin_compress" in options
    )


def test_kept_journals_are_the_servers_own_files(keeping: Keeping, tmp_path: Path) -> None:
    keeping.write()
    middle = replace(keeping.end(), gtid_set="")
    keeping.write()
    by_gtid = keeping.end()
    keeping.server.flush_journal()
    keeping.write()
    keeping.run(middle)  # the beginning is fetched
    keeping.check(tmp_path / "first", sealed=1)
    keeping.server.restart()
    keeping.write()
    keeping.server.flush_journal()
    keeping.run(by_gtid)  # it reads again what is kept, and leaves nothing out
    keeping.check(tmp_path / "second", sealed=3)
    keeping.server.restart()
    keeping.write()
    keeping.run(replace(keeping.end(), offset=4, gtid_set=""))  # the journals before were left out
    keeping.check(tmp_path / "third", sealed=4)


def test_a_run_by_gtid_set_keeps_the_head_of_a_journal_as_the_server_has_it(
    keeping: Keeping, tmp_path: Path
) -> None:
    """MySQL clears the creation time in each format description of such a dump."""
    keeping.write()
    middle = keeping.end()
    keeping.write()
    for _ in range(2):
        keeping.server.restart()
        keeping.write()
    keeping.run(middle)
    keeping.check(tmp_path / "copies", sealed=2)


@pytest.mark.parametrize("keeping", FLAVORS[::2], indirect=True)
def test_a_dump_by_offset_brings_the_heads_itself(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping.write()
    begin = Position(keeping.end().journal)
    for _ in range(2):
        keeping.server.flush_journal()
        keeping.write()
    keeping.server.restart()
    keeping.write()
    fetched: list[str] = []
    fill = JournalKeeper._fill

    def counted(keeper: JournalKeeper, writer: Any, end: Position) -> bool:
        fetched.append(writer.journal.name)
        return fill(keeper, writer, end)

    monkeypatch.setattr(JournalKeeper, "_fill", counted)
    keeping.run(begin)
    assert set(fetched) <= {begin.journal}
    keeping.check(tmp_path / "copies", sealed=3)


def test_runs_that_are_cut_anywhere_and_killed_join(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_keeper, "WRITE_BYTES", 3000)
    for _ in range(3):
        keeping.write(4)
        keeping.server.flush_journal()
    end, rng = keeping.end(), random.Random(7)
    with closing(keeping.source()) as source:
        begin = source.earliest_position()
        boundaries = [
            Position(chunk.journal, int(offset))
            for chunk in source.chunks(begin, end)
            for offset in chunk.events["next_offset"][chunk.events["parent"] < 0]
        ]
    points: list[str] = []
    for step in range(12):
        left = rng.randrange(1, 12)

        def kill(point: str) -> None:
            nonlocal left
            points.append(point)
            left -= 1
            if not left:
                raise _Killed

        start, stop = sorted(rng.sample(boundaries, 2), key=lambda place: place.order)
        with listening(kill), suppress(_Killed):
            keeping.run(start, stop)
        keeping.check(tmp_path / str(step), sealed=0)
    assert {"journal_written", "journal_part", "journal_sealing", "journal_sealed"} <= set(points)
    keeping.run(begin, end)
    keeping.check(tmp_path / "end", sealed=3)


def test_purged_journals_are_read_from_what_was_kept(keeping: Keeping, tmp_path: Path) -> None:
    keeping.write()
    start = keeping.end()
    keeping.write()
    for _ in range(3):
        keeping.server.flush_journal()
        keeping.write()
    files = keeping.server.copy_journals(tmp_path / "server")
    end = keeping.end()
    keeping.run(start)
    keeping.server.purge_to(end.journal)
    for begin in (start, replace(start, gtid_set="")):
        with closing(keeping.source()) as source:
            source.validate_position(begin)
            got = events_of(source.chunks(begin, end))
            assert got == archived_events(files, begin, end)
    first, second = (keeping.kept.folder / one.files[0] for one in keeping.kept.journals()[:2])
    if first.suffix != ".zst":
        content, following = first.read_bytes(), second.read_bytes()
        # A journal has the time at which the statement that filled the one before began.
        first.write_bytes(_created_later(content))
        with closing(keeping.source()) as source:
            source.validate_position(replace(start, gtid_set="", journal_created_s=0))
        first.write_bytes(following)
        second.write_bytes(content)
        with closing(keeping.source()) as source, pytest.raises(SourceIdentityError) as refused:
            # Without the second of its creation, which two journals may share or not.
            source.validate_position(replace(start, gtid_set="", journal_created_s=0))
        assert refused.value.setting == "source.keep_journals"
        first.write_bytes(content)
        second.write_bytes(following)
    keeping.kept.remove(keeping.kept.journals()[1])
    with closing(keeping.source()) as source, pytest.raises(JournalMissingError) as caught:
        source.validate_position(replace(start, gtid_set=""))
    assert caught.value.setting == "source.keep_journals"


def _created_later(journal: bytes) -> bytes:
    changed = bytearray(journal)
    end = 4 + int.from_bytes(journal[13:17], "little")  # of the format description
    changed[4:8] = (int.from_bytes(journal[4:8], "little") + 1000).to_bytes(4, "little")
    changed[end - 4 : end] = zlib.crc32(changed[4 : end - 4]).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize("keeping", FLAVORS[:1], indirect=True)
def test_other_bytes_under_the_same_name_are_refused(keeping: Keeping) -> None:
    keeping.write()
    begin = Position(keeping.end().journal)
    keeping.run(begin)
    (journal,) = keeping.kept.journals()
    (part,) = journal.files
    content = bytearray((keeping.kept.folder / part).read_bytes())
    content[1000] ^= 1
    (keeping.kept.folder / part).write_bytes(content)
    with pytest.raises(SourceIdentityError) as caught:
        keeping.run(begin)
    assert caught.value.offset == 1000


@pytest.mark.parametrize("keeping", FLAVORS[:1], indirect=True)
def test_a_purged_beginning_is_a_hole_and_a_reset_log_is_another(
    keeping: Keeping, caplog: pytest.LogCaptureFixture
) -> None:
    keeping.write()
    keeping.run(Position("binlog.000001"))
    keeping.write()
    keeping.server.flush_journal()
    end = keeping.end()
    keeping.server.purge_to(end.journal)
    keeping.write()
    keeping.run(end)
    (hole, following) = keeping.kept.journals()
    assert not hole.is_sealed
    assert following.size_bytes == keeping.end().offset
    assert "binlog.000001" in caplog.text
    time.sleep(1.1)  # journals are told apart by the second of their creation
    keeping.server.reset_log()
    keeping.write()
    keeping.run(Position("binlog.000001"))
    assert [folder.name[-2:] for folder in logs_of(keeping.keep.path)][-1] == ".2"


@pytest.mark.parametrize("journals", [1, 2, 4])
@pytest.mark.parametrize("keeping", FLAVORS[::2], indirect=True)
def test_a_reset_log_is_another_wherever_a_run_begins_in_it(
    keeping: Keeping, journals: int
) -> None:
    keeping.write()
    keeping.server.flush_journal()
    keeping.write()
    keeping.run(replace(keeping.end(), offset=4, gtid_set=""))
    keeping.server.flush_journal()
    keeping.run(replace(keeping.end(), offset=4, gtid_set=""))
    before = keeping.kept.journals()
    assert [journal.is_sealed for journal in before] == [True, False]
    time.sleep(1.1)  # journals are told apart by the second of their creation
    keeping.server.reset_log()
    for _ in range(journals - 1):
        keeping.write()
        keeping.server.flush_journal()
    keeping.write()
    for _ in range(2):
        end = keeping.end()
        keeping.run(replace(end, offset=4, gtid_set=""), end)
        old, new = (KeptJournals(folder) for folder in logs_of(keeping.keep.path))
        assert old.journals() == before
        assert [journal.name for journal in new.journals()] == [end.journal]
