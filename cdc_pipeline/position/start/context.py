"""What decides a start, each fact queried from the source only when needed, and the decision (SPEC
P3-P8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

from cdc_pipeline.binlog.chunk import Chunks
from cdc_pipeline.binlog.seq import journal_number, may_follow
from cdc_pipeline.config.pipeline_config import GtidConfig, Start
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.position.position import Position, ServerIdentity

SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class JournalInfo:
    journal: str
    size_bytes: int

    @property
    def number(self) -> int:
        return journal_number(self.journal)


class Log(Protocol):
    """The part of `source.protocol.Source` that is read to find a start."""

    @property
    def identity(self) -> ServerIdentity:
        """The server that wrote the journals."""

    @property
    def uses_gtids(self) -> bool:
        """Whether every new transaction has a GTID, so that reading can continue after a set."""

    @property
    def is_archive(self) -> bool:
        """Whether all is read from files: no server knows the tables or skips transactions."""

    @property
    def begin_again(self) -> str:
        """The commands that bring the lake up to date after this log was replaced."""

    def journals(self, *, since: Position | None = None) -> list[JournalInfo]:
        """All that can be read, oldest first; those before `since` may be left out."""

    def journal_created_s(self, journal: str) -> int:
        """In seconds since 1970. JournalMissingError: purged, deleted or never there."""

    def end_position(self) -> Position:
        """With the executed GTIDs; of an archive the end of its last whole transaction."""

    def earliest_position(self) -> Position:
        """The start of the oldest journal, with the GTID set that precedes it."""

    def validate_position(self, position: Position) -> None:
        """Check that `position` is an event boundary of a journal that still exists. Raises
        JournalMissingError: purged, deleted or never there; PositionError: inside an event, or past
        the end; SourceIdentityError: the log was reset, its journal is another one.
        """

    def chunks(self, start: Position, end: Position) -> Chunks:
        """By GTID set if `start` has one and the server is live and uses GTIDs, else by offset.
        BinlogError, SourceError: with journal and offset; everything before was delivered.
        """


@dataclass(frozen=True, slots=True)
class StartRules:
    """Further facts from the configuration and earlier runs.

    Attributes:
        addresses: ``host:port`` of the primary and of the standby, if configured, in this order;
            empty for an archive. They are compared with the addresses of the cursor and of the
            source (P5, P6).
        standby_start: the standby's own configured start (P4).
        fallback_interval_us: how long before the last commit a search after a switch begins.
        dump_errors_max: after more consecutive errors another server at the same address counts as
            moved (P5).
        dump_errors: dump errors of earlier runs.
        last_commit_us: commit time of the last applied transaction, microseconds since 1970; -1 if
            unknown.
    """

    addresses: tuple[str, ...] = ()
    standby_start: Start | None = None
    fallback_interval_us: int = 60 * SECOND_US
    dump_errors_max: int = 2
    dump_errors: DumpErrors = field(default_factory=DumpErrors)
    last_commit_us: int = -1


@dataclass(frozen=True, slots=True)
class OverlapResult:
    """Of comparing another server's log with the applied transactions (K7: none is applied twice).

    Attributes:
        position: begin of the first that is not known to be applied.
        until_us: commit time (microseconds since 1970 UTC) up to which some may already be applied,
            so that no cut is published before it; None if nothing is in doubt.
    """

    position: Position
    until_us: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Where a run starts, and the chain of reasons, first reason first.

    Attributes:
        position: with the full set of executed GTIDs if reading can continue after that set.
        reasons: the first is the row's of the table.
        by_offset: read by journal and offset even if the position has a GTID set.
        epoch_grows: the source's identity or numbering has changed, so that a new epoch begins
            (K1: order spans servers).
        overlap_until_us: no cut may be published before a transaction with a later commit time,
            microseconds since 1970 (K7); None if nothing is read twice.
        resets_dump_errors: the decision used the count of dump errors (P5).
    """

    position: Position
    reasons: tuple[str, ...]
    by_offset: bool = True
    epoch_grows: bool = False
    overlap_until_us: int | None = None
    resets_dump_errors: bool = False

    @property
    def read_from(self) -> Position:
        """The position for `Source.chunks`: without its GTID set if reading is by offset."""
        return self.position.by_offset if self.by_offset else self.position


@dataclass
class StartContext:
    """The facts for one decision."""

    history: CursorState | None
    primary_start: Start
    source: Log
    rules: StartRules
    overlap: Callable[[Position, int], OverlapResult] | None

    @property
    def cursor(self) -> CursorState:
        """The cursor; rows that need it apply only if there is one."""
        assert self.history is not None
        return self.history

    @cached_property
    def identity(self) -> ServerIdentity:
        return self.source.identity

    @cached_property
    def end(self) -> Position:
        return self.source.end_position()

    @cached_property
    def uses_gtids(self) -> bool:
        return self.source.uses_gtids

    # -- history -----------------------------------------------------------------------------------

    @property
    def same_server(self) -> bool:
        return self.cursor.identity.same_server(self.identity)

    @property
    def same_address(self) -> bool:
        """Whether the cursor was written through the connected address."""
        return self.cursor.address == self.identity.address

    @property
    def goes_by_gtid(self) -> bool:
        """Whether the cursor has a GTID set and the source uses GTIDs (P3)."""
        return bool(self.cursor.gtid_set) and self.uses_gtids

    @property
    def switched(self) -> bool:
        """Whether the cursor is from one configured address and the other is connected (P6)."""
        addresses = self.rules.addresses
        return (
            not self.same_address
            and self.cursor.address in addresses
            and self.identity.address in addresses
        )

    @property
    def is_only_address(self) -> bool:
        """Whether no standby is configured and the cursor is from the only address (P5)."""
        return self.rules.addresses == (self.identity.address,) and self.same_address

    @property
    def is_purged(self) -> bool:
        """Whether the cursor's journal was removed while the numbering continued."""
        names = [info.journal for info in self.source.journals(since=self.cursor.position)]
        journal = self.cursor.journal
        return bool(names) and journal not in names and may_follow(names[-1], journal)

    # -- configuration -----------------------------------------------------------------------------

    @property
    def configured(self) -> Start | None:
        """The start configured for the connected server; None for a standby without one.

        A GTID set of the primary's start means the same on its standby (P3); journals, offsets
        and words do not (P4).
        """
        addresses = self.rules.addresses
        at_standby = len(addresses) > 1 and self.identity.address == addresses[1] != addresses[0]
        if not at_standby:
            return self.primary_start
        if self.rules.standby_start is not None:
            return self.rules.standby_start
        return self.primary_start if isinstance(self.primary_start, GtidConfig) else None
