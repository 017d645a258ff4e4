"""Read a directory of journals as a source.

Rules:
- Journals are read in the order of their numbers; a number that is missing on the way is an error
  when it is reached.
- The end of a capture is the end of the last journal's last whole transaction. If the last journal
  is damaged or truncated, the end lies behind the damage, so that the run meets and reports it.
- The reader proves the end of every other journal (K5: `source.journal_ends`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, Chunks
from cdc_pipeline.binlog.event_types import CLOSING_TYPES
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.binlog.framing.compressed import EVENT_UNPACKED_BYTES_MAX
from cdc_pipeline.binlog.native.byte_buffer import DEFAULT_CHUNK_BYTES
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import CdcError, JournalMissingError, SourceIdentityError
from cdc_pipeline.position.gtid.sets import executed_set, parse_gtid_set, parse_mariadb
from cdc_pipeline.position.position import Flavor, Position, ServerIdentity
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.position.start.lookup import place_of
from cdc_pipeline.position.start.same_log import begin_again
from cdc_pipeline.source.archive.files import (
    JournalHead,
    boundary_at_or_after,
    is_journal,
    journal_names,
    misplaced,
    read_head,
    read_journal,
)
from cdc_pipeline.source.protocol import ArchivedPart, Source
from cdc_pipeline.text.table_names import NameRule


class ArchiveSource(Source):
    """The files ``<base>.NNNNNN`` of one log. `names`: no journal says how its server compares
    them (K30).
    """

    def __init__(
        self,
        directory: Path,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        unpacked_bytes_max: int = EVENT_UNPACKED_BYTES_MAX,
        names: NameRule = NameRule.AS_GIVEN,
        pipeline_name: str = "",
    ) -> None:
        self.directory = directory
        self._pipeline_name = pipeline_name
        self._names_rule = names
        self._unpacked_bytes_max = unpacked_bytes_max
        self._chunk_bytes = chunk_bytes
        self._closed = threading.Event()
        self._heads: dict[tuple[str, int], JournalHead] = {}
        self._scans: dict[tuple[str, int], JournalScan] = {}

    @property
    def identity(self) -> ServerIdentity:
        """Of the oldest journal. Raises as `check`."""
        head = self._head(self._oldest())
        return ServerIdentity(
            _flavor_of(head),
            head.journal_format.server_id,
            address=str(self.directory),
            names=self._names_rule,
        )

    @property
    def uses_gtids(self) -> bool:
        """Whether the newest journal begins after a GTID set, or holds GTIDs."""
        return bool(preceding_set(self._head(self._newest())) or self.end_position().gtid_set)

    @property
    def is_archive(self) -> bool:
        return True

    @property
    def begin_again(self) -> str:
        return begin_again(self._pipeline_name, is_archive=True)

    def journal_created_s(self, journal: str) -> int:
        return self._head(self._file(journal)).journal_format.created_s

    def check(self) -> None:
        """Check the directory, and the heads of the oldest and the newest journal; those of the
        others are checked when they are read.

        Raises SourceError: the directory cannot be read or holds journals of more than one log;
        JournalMissingError: it holds none; BinlogError: a journal does not begin as it must.
        """
        names = self._names()
        for name in (names[0], names[-1]):
            self._head(self.directory / name)

    def journals(self, *, since: Position | None = None) -> list[JournalInfo]:  # noqa: ARG002
        folder = str(self.directory)
        return [
            JournalInfo(name, os.stat(os.path.join(folder, name)).st_size) for name in self._names()
        ]

    def end_position(self) -> Position:
        file = self._newest()
        size_bytes = file.stat().st_size
        scanned = self._scans.get((file.name, size_bytes))
        if scanned is None:
            scanned = self._scans[file.name, size_bytes] = scan(
                file, self._head(file), unpacked_bytes_max=self._unpacked_bytes_max
            )
        if scanned.failure is not None:
            return replace(scanned.end, offset=max(size_bytes, scanned.end.offset), gtid_set="")
        return scanned.end

    def earliest_position(self) -> Position:
        file = self._oldest()
        head = self._head(file)
        return Position(
            file.name,
            4,
            gtid_set=preceding_set(head),
            journal_created_s=head.journal_format.created_s,
        )

    def validate_position(self, position: Position) -> None:
        file = self._file(position.journal)
        head = self._head(file)
        if position.journal_created_s not in (0, head.journal_format.created_s):
            raise SourceIdentityError(
                "the journal with this name is another one: the log was reset, or the archive is "
                "another server's",
                at=(position.journal, None),
                expected=f"created at {position.journal_created_s} (seconds since 1970)",
                got=f"created at {head.journal_format.created_s}",
                next_step="point source.directory to the right archive; " + self.begin_again,
            )
        size_bytes, at = file.stat().st_size, (position.journal, position.offset)
        if position.offset > size_bytes:
            raise misplaced(at, size_bytes, is_past_end=True)
        boundary = boundary_at_or_after(file, position.offset)
        if boundary != position.offset:
            raise misplaced(at, boundary, is_past_end=False)

    def chunks(self, start: Position, end: Position) -> Chunks:
        assert not self._closed.is_set(), "a closed archive would look like an empty one"
        first, last = journal_number(start.journal), journal_number(end.journal)
        base = start.journal.rpartition(".")[0]
        for number in range(first, last + 1):
            file = self._file(start.journal if number == first else f"{base}.{number:06d}")
            offset = start.offset if number == first else 4
            yield from self._journal(
                file, offset, stop_offset=end.offset if number == last else None
            )
            if self._closed.is_set():
                return

    def archived(self, start: Position, end: Position) -> ArchivedPart:
        return ArchivedPart(self.directory, start, end)

    def ends_closed(self, position: Position) -> bool:
        last_type = -1
        for chunk in read_journal(
            self._file(position.journal),
            stop_offset=position.offset,
            unpacked_bytes_max=self._unpacked_bytes_max,
        ):
            last_type = int(chunk.events["event_type"][-1])
        return last_type in CLOSING_TYPES

    def close(self) -> None:
        self._closed.set()

    def _journal(self, file: Path, offset: int, *, stop_offset: int | None) -> Iterator[Chunk]:
        if stop_offset is not None and offset >= stop_offset:
            return
        head = self._head(file)
        for chunk in read_journal(
            file,
            offset=offset,
            journal_format=head.journal_format if offset > 4 else None,
            chunk_bytes=self._chunk_bytes,
            stop_offset=stop_offset,
            unpacked_bytes_max=self._unpacked_bytes_max,
        ):
            if self._closed.is_set():
                return
            yield chunk

    def _oldest(self) -> Path:
        return self.directory / self._names()[0]

    def _newest(self) -> Path:
        return self.directory / self._names()[-1]

    def _names(self) -> list[str]:
        names = journal_names(self.directory)
        if not names:
            raise JournalMissingError(
                "the archive directory holds no journals",
                setting="source.directory",
                expected="files such as binlog.000001",
                got=str(self.directory),
                next_step="copy the journals into it, with the names that the server gave them",
            )
        return names

    def _file(self, journal: str) -> Path:
        file = self.directory / journal  # no listing: a search asks for hundreds
        if is_journal(journal) and file.is_file():
            return file
        names = self._names()
        for name in names:  # the same number with more digits
            if journal_number(name) == journal_number(journal):
                return self.directory / name
        raise self._missing(journal, names)

    def _missing(self, journal: str, there: list[str]) -> JournalMissingError:
        return JournalMissingError(
            "a journal that must be read is not in the archive",
            at=(journal, None),
            expected=f"{journal} in {self.directory}",
            got=f"{len(there)} journals, {min(there)} to {max(there)}",
            next_step="copy it into the archive directory; if it is lost, a lake cannot pass this "
            f"gap: {self.begin_again}",
        )

    def _head(self, file: Path) -> JournalHead:
        key = (file.name, file.stat().st_mtime_ns)
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = read_head(file)
        return head


@dataclass(frozen=True, slots=True)
class JournalScan:
    """Up to `end` no transaction is unfinished; `failure` stopped the reading there."""

    end: Position
    failure: CdcError | None


def _flavor_of(head: JournalHead) -> Flavor:
    return "mariadb" if head.journal_format.is_mariadb else "mysql"


def scan(
    file: Path, head: JournalHead, *, unpacked_bytes_max: int = EVENT_UNPACKED_BYTES_MAX
) -> JournalScan:
    """Read a journal to its end, or to its first fault."""
    transactions, flavor = TransactionPass(), _flavor_of(head)
    executed = parse_gtid_set(preceding_set(head), flavor)
    opened: list[dict[str, NDArray[np.int64]]] = []  # executed by what is not whole yet
    end = Position(file.name, journal_created_s=head.journal_format.created_s)
    failure: CdcError | None = None
    try:
        for chunk in read_journal(file, unpacked_bytes_max=unpacked_bytes_max):
            bounds = transactions.step(chunk)
            whole = int(bounds.boundaries[-1]) if len(bounds.boundaries) else 0
            if whole:
                numbers = gtid.executed(chunk, 0, whole)
                executed = executed_set(*opened, numbers, flavor=flavor, after=executed)
                opened = []
                end = place_of(chunk, whole - 1, "next_offset")
            opened.append(gtid.executed(chunk, whole, len(bounds.events)))
            if bounds.error is not None:
                raise bounds.error
    except CdcError as error:
        failure = error
    return JournalScan(replace(end, gtid_set=str(executed)), failure)


def preceding_set(head: JournalHead) -> str:
    """MariaDB lists every server of every domain, the latest of a domain last: only that one is
    its position.
    """
    text = head.previous_set or ""
    return str(parse_mariadb(text).position()) if head.journal_format.is_mariadb else text
