"""Input and result of the rules for a start (SPEC P3-P8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.config.pipeline_config import Start
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.position.overlap_result import OverlapResult
from cdc_pipeline.position.position import Position, ServerIdentity

FIRST_OFFSET: Final = 4
SECOND_US: Final = 1_000_000

Overlap = Callable[[Position], OverlapResult]


class ListedJournal(Protocol):
    """A journal as a source lists it."""

    @property
    def journal(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...


class StartSource(Protocol):
    """The part of `source.protocol.Source` that the rules use."""

    @property
    def identity(self) -> ServerIdentity: ...

    @property
    def uses_gtids(self) -> bool:
        """Whether every new transaction has a GTID, so that reading can continue after a GTID
        set.
        """

    @property
    def is_archive(self) -> bool: ...

    def journals(self) -> Sequence[ListedJournal]:
        """All journals that can be read, oldest first."""

    def journal_created_s(self, journal: str) -> int:
        """The creation time in the journal's format description, seconds since 1970."""

    def earliest_position(self) -> Position: ...

    def end_position(self) -> Position: ...

    def validate_position(self, position: Position) -> None: ...

    def chunks(self, start: Position, end: Position) -> Iterator[Chunk]: ...


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
class StartDecision:
    """Where a run starts, and the chain of reasons, first reason first.

    Attributes:
        position: with the full set of executed GTIDs if reading can continue after that set.
        reasons: the first names the row of the table, with its clause.
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
        return read_by_offset(self.position) if self.by_offset else self.position


def read_by_offset(position: Position) -> Position:
    """Return `position` without its GTID set, so that a source reads by offset."""
    return replace(position, gtid_set="") if position.gtid_set else position
