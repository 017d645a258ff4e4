"""Read purged journals from an archive, and then the live server without a gap (SPEC P5).

Rules:
- The server is the source; the archive is used only for what the start needs and the server has
  purged. A run that the server can serve alone does not read the archive.
- The archive is `source.archive_directory`, or what runs have kept (`source.keep_journals`). Kept
  journals that are no plain files are copied to a private folder one by one, as they are read.
- Archived journals are read whole, in the order of their numbers, up to the first that the server
  still has; that one is read from its first byte by offset. So the stream is the log itself: no gap
  and no overlap.
- The join is proved before anything is read. Where both have a journal, its format description is
  the same (server id, creation time). Otherwise the last archived journal is of this server, its
  number is the one before the server's oldest, it is not younger, and with GTIDs the transactions
  up to its end are exactly those that the server purged. While the archive is read, the end of each
  journal is proved as usual (`source.journal_ends`).
- What is read of the archive was created in the order of its numbers, by this server.
- By GTID set, the start is searched in the archive: a place that separates the set's transactions
  from all others.
- The end of a run is the server's.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cdc_pipeline.binlog.chunk import Chunks, JournalFormat
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import CdcError, JournalMissingError, SourceIdentityError
from cdc_pipeline.position.gtid.sets import MariadbGtidSet, parse_gtid_set
from cdc_pipeline.position.position import FIRST_OFFSET, Position
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.position.start.lookup import locate_gtid_set
from cdc_pipeline.position.start.same_log import begin_again
from cdc_pipeline.source.archive.archive import ArchiveSource, preceding_set, scan
from cdc_pipeline.source.archive.files import JournalHead, journal_files, read_head
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals, newest_log, place_named
from cdc_pipeline.source.live import log_positions
from cdc_pipeline.source.live.live import CapturedBy, LiveSource, all_captured
from cdc_pipeline.source.protocol import ArchivedPart


class _Directory:
    """Copies of journals under their original names."""

    setting = "source.archive_directory"
    is_in_place = True

    def __init__(self, path: Path) -> None:
        self.where = self.path = path

    def journals(self) -> list[JournalInfo]:
        return [JournalInfo(file.name, file.stat().st_size) for file in journal_files(self.path)]

    def file(self, journal: str) -> Path:
        return self.path / journal

    def origin(self, journal: str) -> tuple[int, int]:
        journal_format = read_head(self.path / journal).journal_format
        return journal_format.created_s, journal_format.server_id

    def release(self, journal: str) -> None:
        """It was read."""

    def close(self) -> None:
        """Nothing was copied."""


class _KeptFolder:
    """Journals that runs have kept and sealed."""

    setting = "source.keep_journals"

    def __init__(self, kept: KeptJournals) -> None:
        self._kept = kept
        self.where = kept.folder
        self.is_in_place = kept.is_readable_in_place()
        self._copies = (
            None if self.is_in_place else tempfile.TemporaryDirectory(prefix="cdc-journals-")
        )
        self.path = kept.folder if self._copies is None else Path(self._copies.name)
        self._sealed: dict[str, KeptJournal] = {}  # as listed last

    def journals(self) -> list[JournalInfo]:
        with place_named(self.where):
            self._sealed = {one.name: one for one in self._kept.journals() if one.is_sealed}
        return [JournalInfo(name, sealed.size_bytes) for name, sealed in self._sealed.items()]

    def origin(self, journal: str) -> tuple[int, int]:
        """When it was created, and the server id."""
        return self._kept.origin_of(self._sealed[journal])

    def file(self, journal: str) -> Path:
        file = self.path / journal
        if not self.is_in_place and not file.exists():
            return self._kept.copy(self._sealed[journal], self.path)
        return file

    def release(self, journal: str) -> None:
        if not self.is_in_place:
            (self.path / journal).unlink(missing_ok=True)

    def close(self) -> None:
        if self._copies is not None:
            self._copies.cleanup()


@dataclass(frozen=True, slots=True)
class _Way:
    """From `start` through the archive up to journal number `last`, then the server's `oldest`."""

    start: Position
    last: int
    oldest: str


class ArchiveThenLive(LiveSource):
    """The directory has copies of the server's journals, under their original names."""

    def __init__(
        self, config: LiveSourceConfig, *, pipeline_name: str, captured: CapturedBy = all_captured
    ) -> None:
        super().__init__(config, pipeline_name=pipeline_name, captured=captured)
        self._ways: dict[tuple[Position, str], _Way] = {}
        self._names: dict[int, str] = {}  # as listed last

    @cached_property
    def _folder(self) -> _Directory | _KeptFolder:
        directory, keep = self.config.archive_directory, self.config.keep_journals
        if directory is not None:
            return _Directory(directory)
        assert keep is not None
        with place_named(keep.path):
            path = newest_log(keep.path, self.identity)
            return _KeptFolder(KeptJournals(path, compress=keep.compress))

    @cached_property
    def _archive(self) -> ArchiveSource:
        return ArchiveSource(self._folder.path, unpacked_bytes_max=self.config.unpacked_bytes_max)

    def journal_created_s(self, journal: str) -> int:
        if any(info.journal == journal for info in self.server.journals()):
            return super().journal_created_s(journal)
        return read_head(self._file(journal_number(journal))).journal_format.created_s

    def journals(self) -> list[JournalInfo]:
        """The server's, preceded by those that only the archive has."""
        listed = self.server.journals()
        oldest = journal_number(listed[0].journal) if listed else 0
        return [*(info for info in self._files() if info.number < oldest), *listed]

    def earliest_position(self) -> Position:
        """Of the oldest archived journal that joins the server's log, else of that log."""
        oldest = log_positions.earliest(self.server)
        numbers = {info.number for info in self._files()}
        first = journal_number(oldest.journal)
        while first - 1 in numbers:
            first -= 1
        if first == journal_number(oldest.journal):
            return oldest
        return _begin_of(self._file(first))

    def validate_position(self, position: Position) -> None:
        """Check as the server does; what it has purged must be in the archive, and the archive must
        join its log. Raises JournalMissingError: a journal is in neither; SourceIdentityError: the
        archive is of another server, or of this one before its log was reset.
        """
        if self._needs_archive(position):
            self._way(position)
        else:
            super().validate_position(position)

    def reasons(self, start: Position) -> tuple[str, ...]:
        if not self._needs_archive(start):
            return super().reasons(start)
        way = self._way(start)
        names = [
            info.journal for info in self._files() if way.start.order[0] <= info.number <= way.last
        ]
        what = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        return (
            f"the server has purged what follows {start.gtid_set or start}: {what} in "
            f"{self._folder.where} are read from {way.start} on, then the server's own journals "
            f"from {way.oldest} on",
        )

    def chunks(self, start: Position, end: Position) -> Chunks:
        if not self._needs_archive(start):
            yield from super().chunks(start, end)
            return
        way = self._way(start)
        offset = way.start.offset
        for number in range(way.start.order[0], end.order[0] + 1):
            listed = {journal_number(info.journal): info.journal for info in self.server.journals()}
            if number in listed:
                head = self._live_format(listed[number])
                at = Position(listed[number], journal_created_s=head.created_s)
                yield from super().chunks(at, replace(end, gtid_set=""))
                return
            # The journal may have been purged since the run began: then it must now be in the
            # archive.
            self._files()
            file = self._file(number)
            self._check_server(file, read_head(file).journal_format)
            stop = end.offset if number == end.order[0] else file.stat().st_size
            yield from self._archive.chunks(Position(file.name, offset), Position(file.name, stop))
            self._folder.release(file.name)
            offset = FIRST_OFFSET

    def archived(self, start: Position, end: Position) -> ArchivedPart | None:
        if not self._folder.is_in_place or not self._needs_archive(start):
            return None
        way = self._way(start)
        last = self._file(way.last)
        for number in range(way.start.order[0], way.last + 1):
            file = self._file(number)
            self._check_server(file, read_head(file).journal_format)
        upto = Position(last.name, last.stat().st_size)
        return ArchivedPart(self._folder.path, way.start, min(upto, end, key=lambda at: at.order))

    def ends_closed(self, position: Position) -> bool:
        if any(info.journal == position.journal for info in self.server.journals()):
            return super().ends_closed(position)
        if not any(info.journal == position.journal for info in self._files()):
            return False
        self._folder.file(position.journal)
        return self._archive.ends_closed(position)

    def close(self) -> None:
        if "_archive" in vars(self):
            self._archive.close()
        if "_folder" in vars(self):
            self._folder.close()
        super().close()

    # -- whether, and from where -------------------------------------------------------------------

    def _needs_archive(self, start: Position) -> bool:
        oldest = log_positions.earliest(self.server)
        if self._joins_by_gtid(start):
            return bool(self._set(oldest.gtid_set).subtract(self._set(start.gtid_set)))
        return start.order[0] < oldest.order[0]

    def _joins_by_gtid(self, start: Position) -> bool:
        return bool(start.gtid_set) and bool(self.server.end_position().gtid_set)

    def _way(self, start: Position) -> _Way:
        oldest = log_positions.earliest(self.server)
        key = (start, oldest.journal)
        if key not in self._ways:
            try:
                self._ways[key] = self._find_way(start, oldest)
            except CdcError as error:
                if error.setting in (None, "source.directory"):
                    error.setting = self._folder.setting
                raise
        return self._ways[key]

    def _find_way(self, start: Position, oldest: Position) -> _Way:
        last = journal_number(oldest.journal) - 1
        self._check_base(oldest.journal)
        by_gtid = self._joins_by_gtid(start)
        first = (
            self._first_by_gtid(start.gtid_set, last) if by_gtid else journal_number(start.journal)
        )
        if isinstance(self._folder, _KeptFolder):
            self._check_order([self._name(number) for number in range(first, last + 1)])
        self._check_join(last, oldest)
        if last != first:
            self._folder.release(self._name(last))
        if by_gtid:
            return _Way(self._locate(start.gtid_set, self._file(first)), last, oldest.journal)
        self._file(first)
        self._archive.validate_position(start)
        return _Way(start, last, oldest.journal)

    def _first_by_gtid(self, gtid_set: str, last: int) -> int:
        """The latest archived journal before which only transactions of the set were executed."""
        wanted = self._set(gtid_set)
        numbers = [info.number for info in self._files() if info.number <= last]
        for number in reversed(numbers):
            if not self._set(preceding_set(read_head(self._file(number)))).subtract(wanted):
                return number
            self._folder.release(self._name(number))
        raise JournalMissingError(
            "the server has purged transactions that follow the start, and the archive does not "
            "hold all of them",
            expected=f"a journal that begins after no more than {gtid_set}",
            got=f"the oldest begins after {preceding_set(read_head(self._file(numbers[0])))}"
            if numbers
            else "no journal",
            next_step=f"copy the older journals into {self._folder.where}; if they are lost, "
            + begin_again(),
        )

    def _locate(self, gtid_set: str, file: Path) -> Position:
        """The place in the journal that only transactions outside the set follow."""
        begin = _begin_of(file)
        end = replace(begin, offset=file.stat().st_size, gtid_set="")
        flavor = self.identity.flavor
        with closing(self._archive.chunks(begin, end)) as chunks:
            return locate_gtid_set(chunks, wanted=gtid_set, earliest=begin, end=end, flavor=flavor)

    # -- the join ----------------------------------------------------------------------------------

    def _check_join(self, last: int, oldest: Position) -> None:
        """The archive is of the server's log, and `last` directly before `oldest`."""
        file = self._file(last)
        head = read_head(file)
        self._check_server(file, head.journal_format)
        live = self._live_format(oldest.journal)
        if head.journal_format.created_s > live.created_s:
            raise self._other_log(
                file.name,
                f"one created at {live.created_s} or earlier",
                head.journal_format.created_s,
            )
        archived = {info.journal: info.size_bytes for info in self._files()}
        self._check_tails(archived)
        common = [info.journal for info in self.server.journals() if info.journal in archived]
        if common:
            theirs = self._live_format(common[-1])
            created_s, server_id = self._folder.origin(common[-1])
            if (server_id, created_s) != (theirs.server_id, theirs.created_s):
                raise self._other_log(
                    common[-1],
                    f"server id {theirs.server_id}, created at {theirs.created_s}, "
                    "as on the server",
                    f"server id {server_id}, created at {created_s}",
                )
        if self.server.end_position().gtid_set:
            self._check_sets(file, head, oldest)

    def _check_order(self, journals: list[str]) -> None:
        """All that was kept is of the server, and none was created after the next one: two logs of
        one numbering are not joined.
        """
        before_s = 0
        for journal in journals:
            created_s, server_id = self._folder.origin(journal)
            if server_id != self.identity.server_id or created_s < before_s:
                raise self._other_log(
                    journal,
                    f"one of server id {self.identity.server_id}, created at {before_s} or later",
                    f"server id {server_id}, created at {created_s}",
                )
            before_s = created_s

    def _check_tails(self, archived_bytes: dict[str, int]) -> None:
        """A copy longer than the server's journal: the server has lost its end (K24)."""
        for info in self.server.journals():
            if archived_bytes.get(info.journal, 0) > info.size_bytes:
                raise SourceIdentityError(
                    "the archive holds more of a journal than the server: the server was restored "
                    "to an earlier state",
                    journal=info.journal,
                    offset=info.size_bytes,
                    setting=self._folder.setting,
                    expected=f"at least {archived_bytes[info.journal]} bytes, as in "
                    f"{self._folder.where}",
                    got=f"{info.size_bytes} bytes",
                    next_step=f"remove the copies of {info.journal} and later journals from "
                    f"the archive; if changes from them were applied, {begin_again()}",
                )

    def _check_sets(self, file: Path, head: JournalHead, oldest: Position) -> None:
        scanned = scan(file, head, unpacked_bytes_max=self.config.unpacked_bytes_max)
        if scanned.failure is not None:
            raise scanned.failure
        ours, purged = self._set(scanned.end.gtid_set), self._set(oldest.gtid_set)
        missing, unknown = purged.subtract(ours), ours.subtract(purged)
        if missing or unknown:
            raise SourceIdentityError(
                "the archive does not end where the server's log begins",
                journal=file.name,
                offset=scanned.end.offset,
                setting=self._folder.setting,
                expected="a journal that ends with the transactions that the server has "
                f"purged, {purged}",
                got=f"not in the archive: {missing or 'nothing'}; unknown to the server: "
                f"{unknown or 'nothing'}",
                next_step=f"copy the whole {file.name} into {self._folder.where}; if the server's "
                f"log was reset, {begin_again()}",
            )

    def _check_server(self, file: Path, journal_format: JournalFormat) -> None:
        identity = self.identity
        flavor = "mariadb" if journal_format.is_mariadb else "mysql"
        if (flavor, journal_format.server_id) != (identity.flavor, identity.server_id):
            raise self._other_log(
                file.name,
                f"a journal of {identity.flavor} with server id {identity.server_id}",
                f"{flavor} with server id {journal_format.server_id}",
            )

    def _check_base(self, oldest: str) -> None:
        base = oldest.rpartition(".")[0]
        for info in self._files():
            if info.journal.rpartition(".")[0] != base:
                raise self._other_log(
                    info.journal, f"journals named {base}.NNNNNN, as on the server", info.journal
                )

    def _other_log(self, journal: str, expected: str, got: object) -> SourceIdentityError:
        return SourceIdentityError(
            "the archive does not belong to this server's log: it is another server's, or "
            "the log was reset",
            journal=journal,
            setting=self._folder.setting,
            expected=expected,
            got=got,
            next_step=f"put copies of this server's journals into {self._folder.where}; if its "
            f"log was reset, {begin_again()}",
        )

    def _live_format(self, journal: str) -> JournalFormat:
        begin = Position(journal)
        sizes = {info.journal: info.size_bytes for info in self.server.journals()}
        end = Position(journal, max(sizes.get(journal, 0), FIRST_OFFSET + 1))
        with closing(self.dumped(begin, end)) as chunks:
            live_format: JournalFormat = next(chunks).journal_format
            return live_format

    # -- files -------------------------------------------------------------------------------------

    def _files(self) -> list[JournalInfo]:
        try:
            files = self._folder.journals()
        except CdcError as error:
            error.setting = self._folder.setting
            raise
        self._names = {info.number: info.journal for info in files}
        return files

    def _file(self, number: int) -> Path:
        return self._folder.file(self._name(number))

    def _name(self, number: int) -> str:
        if number not in self._names:
            self._files()
        names = self._names
        if number in names:
            return names[number]
        there = f"{len(names)} journals" + (
            f", {min(names):06d} to {max(names):06d}" if names else ""
        )
        raise JournalMissingError(
            "a journal that must be read is neither on the server nor in the archive",
            setting=self._folder.setting,
            journal=f"{log_positions.earliest(self.server).journal.rpartition('.')[0]}.{number:06d}",
            expected=f"it in {self._folder.where}",
            got=there,
            next_step=f"copy it into the archive directory; if it is lost, {begin_again()}",
        )

    def _set(self, text: str) -> Any:
        # Any: all sets of one source are of its flavor, which types cannot express.
        parsed = parse_gtid_set(text, self.identity.flavor)
        return parsed.position() if isinstance(parsed, MariadbGtidSet) else parsed


def _begin_of(file: Path) -> Position:
    head = read_head(file)
    return Position(
        file.name,
        gtid_set=preceding_set(head),
        journal_created_s=head.journal_format.created_s,
    )
