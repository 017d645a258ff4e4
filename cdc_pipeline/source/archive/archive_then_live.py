"""Read purged journals from an archive, and then the live server without a gap (SPEC P5).

Rules:
- The server is the source; the archive is used only for what the start needs and the server has
  purged. A run that the server can serve alone does not read the archive.
- The archive is `source.archive_directory`, copies of journals under their original names, or what
  runs have kept and sealed (`source.keep_journals`). Kept journals that are no plain files are
  copied to a private folder one by one, as they are read. A run that does not need the archive does
  not ask for it.
- Archived journals are read whole, in the order of their numbers, up to the first that the server
  still has; that one is read from its first byte by offset. So the stream is the log itself: no gap
  and no overlap.
- The join is proved before anything is read. Where both have a journal, its format description is
  the same (server id, creation time). Otherwise the last archived journal is of this server, its
  number is the one before the server's oldest, and the transactions up to its end are exactly
  those that the server purged; without GTIDs it is not younger. While the archive is read, the end
  of each journal is proved as usual (`source.journal_ends`).
- What is read of the archive is of this server, and no journal begins after fewer transactions than
  the one before it. Creation times prove nothing: a journal has the time at which the statement
  that filled the one before began.
- By GTID set, the start is searched in the archive: a place that separates the set's transactions
  from all others.
- The end of a run is the server's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from cdc_pipeline.binlog.chunk import Chunks
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import CdcError, JournalMissingError, SourceIdentityError
from cdc_pipeline.position.gtid.sets import GtidSet, MariadbGtidSet, parse_gtid_set
from cdc_pipeline.position.position import FIRST_OFFSET, Position, ServerIdentity
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.position.start.lookup import locate_gtid_set
from cdc_pipeline.source.archive.archive import ArchiveSource, preceding_set, scan
from cdc_pipeline.source.archive.files import JournalHead, journal_names, read_head
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals, place_named
from cdc_pipeline.source.live import log_positions
from cdc_pipeline.source.live.live import CapturedBy, LiveSource, all_captured
from cdc_pipeline.source.protocol import ArchivedPart

# A journal's first events: of nearly all, and of those with large sets.
_HEAD_BYTES: Final = 64 << 10
_HEAD_BYTES_MAX: Final = 4 << 20


class _Archive:
    """The archive's journals. `base`: of their names on the server."""

    def __init__(
        self, config: LiveSourceConfig, identity: ServerIdentity, *, base: str, begin_again: str
    ) -> None:
        directory, keep = config.archive_directory, config.keep_journals
        self._directory, self._base = directory, base
        self.begin_again = begin_again
        self.setting = "source.keep_journals" if directory is None else "source.archive_directory"
        if directory is not None:
            self._kept, self.is_in_place = KeptJournals(directory), True
        else:
            assert keep is not None
            with place_named(keep.path):
                self._kept = KeptJournals.newest(keep, identity)
                self.is_in_place = self._kept.is_readable_in_place()
        self.where = self.path = self._kept.folder
        self._copies = (
            None if self.is_in_place else tempfile.TemporaryDirectory(prefix="cdc-journals-")
        )
        if self._copies is not None:
            self.path = Path(self._copies.name)
        self._listed: dict[int, KeptJournal] = {}  # the last time
        self._heads: dict[KeptJournal, JournalHead] = {}

    def journals(self) -> list[JournalInfo]:
        """By number. Raises SourceError: no readable directory, or of more than one log;
        SinkError, LakeUnreachableError.
        """
        if self._directory is not None:
            with self.named():
                journal_names(self._directory)
            listed = self._kept.journals()
        else:
            with place_named(self.where):
                listed = self._kept.journals()
        self._listed = {
            journal.number: journal
            for journal in listed
            if journal.is_sealed and (self._directory is None or journal.files == (journal.name,))
        }
        return [JournalInfo(one.name, one.size_bytes) for one in self._listed.values()]

    @contextmanager
    def named(self) -> Iterator[None]:
        """An error of reading it names its setting."""
        try:
            yield
        except CdcError as error:
            if error.setting in (None, "source.directory"):
                error.setting = self.setting
            raise

    def name(self, number: int) -> str:
        return self._journal(number).name

    def file(self, number: int) -> Path:
        journal = self._journal(number)
        file = self.path / journal.name
        if not self.is_in_place and not file.exists():
            return self._kept.copy(journal, self.path)
        return file

    def head(self, number: int) -> JournalHead:
        journal = self._journal(number)
        file = self.path / journal.name
        if self.is_in_place or file.exists():
            return read_head(file)
        if journal not in self._heads:
            with tempfile.TemporaryDirectory(prefix="cdc-journals-") as folder:
                file, head = Path(folder) / journal.name, None
                file.write_bytes(self._kept.beginning(journal, _HEAD_BYTES))
                with suppress(CdcError):
                    head = read_head(file)
                if head is None or head.previous_set is None:  # it may be cut off
                    file.write_bytes(self._kept.beginning(journal, _HEAD_BYTES_MAX))
                    head = read_head(file)
                self._heads[journal] = head
        return self._heads[journal]

    def begin(self, number: int) -> Position:
        head = self.head(number)
        return Position(
            self.name(number),
            gtid_set=preceding_set(head),
            journal_created_s=head.journal_format.created_s,
        )

    def release(self, number: int) -> None:
        """It was read."""
        if not self.is_in_place:
            (self.path / self.name(number)).unlink(missing_ok=True)

    def close(self) -> None:
        if self._copies is not None:
            self._copies.cleanup()

    def _journal(self, number: int) -> KeptJournal:
        if number not in self._listed:
            self.journals()
        listed = self._listed
        if number in listed:
            return listed[number]
        between = f", {min(listed):06d} to {max(listed):06d}" if listed else ""
        raise JournalMissingError(
            "a journal that must be read is neither on the server nor in the archive",
            setting=self.setting,
            at=(f"{self._base}.{number:06d}", None),
            expected=f"it in {self.where}",
            got=f"{len(listed)} journals{between}",
            next_step=f"copy it into the archive directory; if it is lost, {self.begin_again}",
        )


@dataclass(frozen=True, slots=True)
class _Way:
    """From `start` through the archive up to journal number `last`, then the server's `oldest`."""

    start: Position
    last: int
    oldest: str


class ArchiveThenLive(LiveSource):
    def __init__(
        self, config: LiveSourceConfig, *, pipeline_name: str, captured: CapturedBy = all_captured
    ) -> None:
        super().__init__(config, pipeline_name=pipeline_name, captured=captured)
        self._ways: dict[tuple[Position, str], _Way] = {}

    @cached_property
    def _archive(self) -> _Archive:
        base = self.server.journals()[-1].journal.rpartition(".")[0]
        return _Archive(self.config, self.identity, base=base, begin_again=self.server.begin_again)

    @cached_property
    def _files(self) -> ArchiveSource:
        return ArchiveSource(self._archive.path, unpacked_bytes_max=self.config.unpacked_bytes_max)

    def journal_created_s(self, journal: str) -> int:
        if any(info.journal == journal for info in self.server.journals()):
            return super().journal_created_s(journal)
        return self._archive.head(journal_number(journal)).journal_format.created_s

    def journals(self, *, since: Position | None = None) -> list[JournalInfo]:
        """The server's, preceded by those that only the archive has."""
        listed = self.server.journals()
        if since is not None and any(info.journal == since.journal for info in listed):
            return listed
        oldest = listed[0].number if listed else 0
        return [*(info for info in self._archive.journals() if info.number < oldest), *listed]

    def earliest_position(self) -> Position:
        """Of the oldest archived journal that joins the server's log, else of that log."""
        oldest = log_positions.earliest(self.server)
        numbers = {info.number for info in self._archive.journals()}
        first = journal_number(oldest.journal)
        while first - 1 in numbers:
            first -= 1
        return oldest if first == journal_number(oldest.journal) else self._archive.begin(first)

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
        first, last = map(self._archive.name, (way.start.order[0], way.last))
        what = first if first == last else f"{first} to {last}"
        return (
            f"the server has purged what follows {start.gtid_set or start}: {what} in "
            f"{self._archive.where} are read from {way.start} on, then the server's own journals "
            f"from {way.oldest} on",
        )

    def chunks(self, start: Position, end: Position) -> Chunks:
        if not self._needs_archive(start):
            yield from super().chunks(start, end)
            return
        way = self._way(start)
        offset = way.start.offset
        for number in range(way.start.order[0], end.order[0] + 1):
            # One may have been purged since the run began: then it must now be in the archive.
            listed = {info.number: info.journal for info in self.server.journals()}
            if number in listed:
                head = self.journal_format(listed[number])
                at = Position(listed[number], journal_created_s=head.created_s)
                yield from super().chunks(at, replace(end, gtid_set=""))
                return
            file = self._archive.file(number)
            self._check_server(number)  # by the copy, if there is one
            stop = end.offset if number == end.order[0] else file.stat().st_size
            yield from self._files.chunks(Position(file.name, offset), Position(file.name, stop))
            self._archive.release(number)
            offset = FIRST_OFFSET

    def archived(self, start: Position, end: Position) -> ArchivedPart | None:
        if not self._archive.is_in_place or not self._needs_archive(start):
            return None
        way = self._way(start)
        last = self._archive.file(way.last)
        upto = Position(last.name, last.stat().st_size)
        return ArchivedPart(self._archive.path, way.start, min(upto, end, key=lambda at: at.order))

    def ends_closed(self, position: Position) -> bool:
        if any(info.journal == position.journal for info in self.server.journals()):
            return super().ends_closed(position)
        if not any(info.journal == position.journal for info in self._archive.journals()):
            return False
        self._archive.file(position.order[0])
        return self._files.ends_closed(position)

    def close(self) -> None:
        if "_files" in vars(self):
            self._files.close()
        if "_archive" in vars(self):
            self._archive.close()
        super().close()

    # -- whether, and from where -------------------------------------------------------------------

    def _needs_archive(self, start: Position) -> bool:
        if self._joins_by_gtid(start):
            return bool(log_positions.purged_after(self.server, start.gtid_set))
        return start.order[0] < log_positions.earliest(self.server).order[0]

    def _joins_by_gtid(self, start: Position) -> bool:
        return bool(start.gtid_set) and bool(self.server.end_position().gtid_set)

    def _way(self, start: Position) -> _Way:
        oldest = log_positions.earliest(self.server)
        key = (start, oldest.journal)
        if key not in self._ways:
            with self._archive.named():
                self._ways[key] = self._find_way(start, oldest)
        return self._ways[key]

    def _find_way(self, start: Position, oldest: Position) -> _Way:
        last = journal_number(oldest.journal) - 1
        self._check_base(oldest.journal)
        by_gtid = self._joins_by_gtid(start)
        first = (
            self._first_by_gtid(start.gtid_set, last) if by_gtid else journal_number(start.journal)
        )
        self._check_order(first, last)
        self._check_join(last, oldest)
        if last != first:
            self._archive.release(last)
        if by_gtid:
            return _Way(self._locate(start.gtid_set, first), last, oldest.journal)
        self._archive.file(first)
        self._files.validate_position(start)
        return _Way(start, last, oldest.journal)

    def _first_by_gtid(self, gtid_set: str, last: int) -> int:
        """The latest archived journal before which only transactions of the set were executed."""
        wanted = self._set(gtid_set)
        numbers = [info.number for info in self._archive.journals() if info.number <= last]
        for number in reversed(numbers):
            if not log_positions.behind(wanted, self._preceding(number), self._listed(number)):
                return number
        raise JournalMissingError(
            "the server has purged transactions that follow the start, and the archive does not "
            "hold all of them",
            expected=f"a journal that begins after no more than {gtid_set}",
            got=f"the oldest begins after {self._preceding(numbers[0])}"
            if numbers
            else "no journal",
            next_step=f"copy the older journals into {self._archive.where}; if they are lost, "
            + self._archive.begin_again,
        )

    def _preceding(self, number: int) -> GtidSet:
        return self._set(preceding_set(self._archive.head(number)))

    def _listed(self, number: int) -> GtidSet:
        return self._set(self._archive.head(number).previous_set or "")

    def _locate(self, gtid_set: str, number: int) -> Position:
        """The place in the journal that only transactions outside the set follow."""
        begin = self._archive.begin(number)
        if self._set(begin.gtid_set) == self._set(gtid_set):
            return begin
        end = replace(begin, offset=self._archive.file(number).stat().st_size, gtid_set="")
        with closing(self._files.chunks(begin, end)) as chunks:
            return locate_gtid_set(
                chunks,
                wanted=gtid_set,
                earliest=begin,
                end=end,
                flavor=self.identity.flavor,
                setting="cursor.gtid_set",
            )

    # -- the join ----------------------------------------------------------------------------------

    def _check_join(self, last: int, oldest: Position) -> None:
        """The archive is of the server's log, and `last` directly before `oldest`."""
        archived = {info.journal: info for info in self._archive.journals()}
        self._check_tails(archived)
        common = [info for info in self.server.journals() if info.journal in archived]
        if common:
            theirs = self.journal_format(common[-1].journal)
            ours = self._archive.head(common[-1].number).journal_format
            if (ours.server_id, ours.created_s) != (theirs.server_id, theirs.created_s):
                raise self._other_log(
                    common[-1].journal,
                    f"server id {theirs.server_id}, created at {theirs.created_s}, "
                    "as on the server",
                    f"server id {ours.server_id}, created at {ours.created_s}",
                )
        if self.server.end_position().gtid_set:
            self._check_sets(last, oldest)
            return
        created_s = self._archive.head(last).journal_format.created_s
        live_s = self.journal_format(oldest.journal).created_s
        if created_s > live_s:
            raise self._other_log(
                self._archive.name(last), f"one created at {live_s} or earlier", created_s
            )

    def _check_order(self, first: int, last: int) -> None:
        """Two logs of one numbering are not joined, as far as GTIDs tell."""
        before = self._set("")
        for number in range(first, last + 1):
            self._check_server(number)
            preceding = self._listed(number)
            if isinstance(preceding, MariadbGtidSet):  # numbers grow by server, if at all
                preceding = preceding.by_server()
            lost = before.subtract(preceding)
            # A domain may have been deleted from the log; where none is left, the log was reset.
            if isinstance(lost, MariadbGtidSet) and preceding:
                lost = lost.within(preceding)
            if lost:
                raise self._other_log(
                    self._archive.name(number),
                    f"a journal that begins after {before}, as the one before it",
                    f"one that begins after {preceding}",
                )
            before = preceding

    def _check_tails(self, archived: dict[str, JournalInfo]) -> None:
        """A copy longer than the server's journal: the server has lost its end (K24)."""
        for info in self.server.journals():
            copy = archived.get(info.journal, info)
            if copy.size_bytes > info.size_bytes:
                raise SourceIdentityError(
                    "the archive holds more of a journal than the server: the server was restored "
                    "to an earlier state",
                    at=(info.journal, info.size_bytes),
                    setting=self._archive.setting,
                    expected=f"at least {copy.size_bytes} bytes, as in {self._archive.where}",
                    got=f"{info.size_bytes} bytes",
                    next_step=f"remove the copies of {info.journal} and later journals from "
                    f"the archive; if changes from them were applied, {self.server.begin_again}",
                )

    def _check_sets(self, last: int, oldest: Position) -> None:
        file = self._archive.file(last)
        scanned = scan(file, read_head(file), unpacked_bytes_max=self.config.unpacked_bytes_max)
        if scanned.failure is not None:
            raise scanned.failure
        ours, purged = self._set(scanned.end.gtid_set), self._set(oldest.gtid_set)
        missing, unknown = purged.subtract(ours), ours.subtract(purged)
        if missing or unknown:
            raise SourceIdentityError(
                "the archive does not end where the server's log begins",
                at=(file.name, scanned.end.offset),
                setting=self._archive.setting,
                expected="a journal that ends with the transactions that the server has "
                f"purged, {purged}",
                got=f"not in the archive: {missing or 'nothing'}; unknown to the server: "
                f"{unknown or 'nothing'}",
                next_step=f"copy the whole {file.name} into {self._archive.where}; if the server's "
                f"log was reset, {self.server.begin_again}",
            )

    def _check_server(self, number: int) -> None:
        identity, journal_format = self.identity, self._archive.head(number).journal_format
        flavor = "mariadb" if journal_format.is_mariadb else "mysql"
        if (flavor, journal_format.server_id) != (identity.flavor, identity.server_id):
            raise self._other_log(
                self._archive.name(number),
                f"a journal of {identity.flavor} with server id {identity.server_id}",
                f"{flavor} with server id {journal_format.server_id}",
            )

    def _check_base(self, oldest: str) -> None:
        base = oldest.rpartition(".")[0]
        for info in self._archive.journals():
            if info.journal.rpartition(".")[0] != base:
                raise self._other_log(
                    info.journal, f"journals named {base}.NNNNNN, as on the server", info.journal
                )

    def _other_log(self, journal: str, expected: str, got: object) -> SourceIdentityError:
        return SourceIdentityError(
            "the archive does not belong to this server's log: it is another server's, or "
            "the log was reset",
            at=(journal, None),
            setting=self._archive.setting,
            expected=expected,
            got=got,
            next_step=f"put copies of this server's journals into {self._archive.where}; if its "
            f"log was reset, {self.server.begin_again}",
        )

    def _set(self, text: str) -> GtidSet:
        return parse_gtid_set(text, self.identity.flavor)
