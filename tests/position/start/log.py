"""A log in memory, with a source over it: what the tests of the start ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import CdcError, UnsupportedEventError
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.gtid.sets import encode_mysql_binary, parse_gtid_set
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.position.start.same_log import begin_again
from cdc_pipeline.position.start.start import resolve_start
from tests.support.event_builder import MYSQL, JournalBuilder, cut, gtid_body

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
ME = ServerIdentity("mysql", 1, "3f0c-a", "db1:3306")


def journal(number: int, before: str, gnos: list[int], *, ddl: bool = False) -> Chunk:
    """GTIDs as given, all committed at COMMIT_US."""
    builder = JournalBuilder(journal=f"binlog.{number:06}").fde()
    builder.add(EventType.PREVIOUS_GTIDS, encode_mysql_binary(parse_gtid_set(before, "mysql")))
    for gno in gnos:
        builder.gtid(gno).query("BEGIN").rows(2).xid()
    if ddl:
        builder.gtid(gnos[-1] + 1).query("ALTER TABLE t ADD c INT")
    return builder.chunk()


@dataclass
class ListSource:
    """A source over chunks in memory, read by journal and offset as an archive is."""

    log: list[Chunk]
    identity: ServerIdentity = ME
    end_gtid_set: str = f"{UUID}:1-6"
    earliest_gtid_set: str = ""
    validated: list[Position] = field(default_factory=list)
    failure_at: int | None = None
    closed: int = 0
    uses_gtids_: bool | None = None
    is_archive: bool = False
    heads_asked: list[str] = field(default_factory=list)
    oldest_listed: int = 0
    refused: type[CdcError] | None = None

    @property
    def begin_again(self) -> str:
        return begin_again("shop", is_archive=self.is_archive)

    @property
    def uses_gtids(self) -> bool:
        return bool(self.end_gtid_set) if self.uses_gtids_ is None else self.uses_gtids_

    def journals(self, *, since: Position | None = None) -> list[JournalInfo]:
        sizes = {chunk.journal: chunk.end_offset for chunk in self.log}
        return [JournalInfo(*item) for item in sizes.items()][self.oldest_listed :]

    def journal_created_s(self, journal: str) -> int:
        self.heads_asked.append(journal)
        return next(
            chunk.journal_format.created_s for chunk in self.log if chunk.journal == journal
        )

    def earliest_position(self) -> Position:
        return Position(self.log[0].journal, 4, gtid_set=self.earliest_gtid_set)

    def end_position(self) -> Position:
        return Position(self.log[-1].journal, self.log[-1].end_offset, gtid_set=self.end_gtid_set)

    def validate_position(self, position: Position) -> None:
        self.validated.append(position)
        if self.refused is not None:
            raise self.refused("refused", at=position, next_step="none")

    def chunks(self, start: Position, end: Position) -> Iterator[Chunk]:
        try:
            for chunk in self.log:
                if (chunk.journal, chunk.end_offset) <= (start.journal, start.offset):
                    continue
                assert chunk.journal <= end.journal
                if self.failure_at is not None:
                    raise UnsupportedEventError("no", at=(chunk.journal, self.failure_at))
                events = chunk.events
                if chunk.journal == start.journal:
                    events = events[events["offset"] >= start.offset]
                yield replace(chunk, events=events.copy())
        finally:
            self.closed += 1


def source(**options) -> ListSource:
    first, second = journal(1, "", [1, 2, 3]), journal(2, f"{UUID}:1-3", [4, 5], ddl=True)
    return ListSource([*cut(first, [4, 7]), *cut(second, [9])], **options)


def cursor(**changes) -> CursorState:
    values = {
        "source": "shop", "batch_number": 7, "flavor": "mysql", "server_id": 1,
        "server_uuid": "3f0c-a",
        "address": "db1:3306", "journal": "binlog.000001", "offset": 500, "gtid_set": f"{UUID}:1-2",
    }  # fmt: skip
    return CursorState(**(values | changes))


def refusal(expected: type[CdcError], **context) -> CdcError:
    context.setdefault("cursor", None)
    context.setdefault("start", "earliest")
    with pytest.raises(expected) as caught:
        resolve_start(**context)
    assert type(caught.value) is expected
    assert caught.value.next_step
    return caught.value


def timed_journal(
    number: int, commits_us: Sequence[int], *, created_s: int, anonymous: bool = False
) -> Chunk:
    """One transaction of six events for each commit time, after FORMAT_DESCRIPTION and an empty
    PREVIOUS_GTIDS."""
    builder = JournalBuilder(
        journal=f"binlog.{number:06}", journal_format=replace(MYSQL, created_s=created_s)
    ).fde()
    builder.add(EventType.PREVIOUS_GTIDS, encode_mysql_binary(parse_gtid_set("", "mysql")))
    for gno, commit_us in enumerate(commits_us, 1):
        builder.add(
            EventType.ANONYMOUS_GTID if anonymous else EventType.GTID, gtid_body(gno, commit_us)
        )
        builder.query("BEGIN").rows(2).xid()
    return builder.chunk()
