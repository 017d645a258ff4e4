"""What the rules of the start ask, and what they answer (SPEC P3-P8)."""

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
    """What the rules ask of a source; `source.protocol.Source` has it all."""

    @property
    def identity(self) -> ServerIdentity: ...

    @property
    def uses_gtids(self) -> bool:
        """Whether every new transaction has a GTID, so that reading can go on after a GTID set."""

    @property
    def heads_are_local(self) -> bool:
        """Whether `journal_created_s` costs no connection, so that every journal may be asked for."""

    def journals(self) -> Sequence[ListedJournal]:
        """All journals that can be read, oldest first."""

    def journal_created_s(self, journal: str) -> int:
        """Creation time in the journal's format description, seconds since 1970."""

    def earliest_position(self) -> Position: ...

    def end_position(self) -> Position: ...

    def validate_position(self, position: Position) -> None: ...

    def tables(self) -> list[str] | None: ...

    def chunks(self, start: Position, end: Position) -> Iterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class StartRules:
    """What the configuration and earlier runs add to the question.

    Attributes:
        addresses: ``host:port`` of the primary and, where one is configured, of the standby, in this order; empty for
            an archive. The cursor's address is compared with them, and with that of the source (P5, P6).
        standby_start: the standby's own configured start (P4).
        fallback_interval_us: how far before the last commit a search after a switch begins.
        dump_errors_max: after more consecutive errors another server at the same address counts as moved (P5).
        dump_errors: those of the runs before.
        last_commit_us: commit time of the last applied transaction, microseconds since 1970; -1 unknown.
    """

    addresses: tuple[str, ...] = ()
    standby_start: Start | None = None
    fallback_interval_us: int = 60 * SECOND_US
    dump_errors_max: int = 2
    dump_errors: DumpErrors = field(default_factory=DumpErrors)
    last_commit_us: int = -1


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Where a run starts, and the chain of reasons that led there, first reason first.

    Attributes:
        position: with the full set of executed GTIDs where reading can go on after it.
        reasons: the first names the row of the table, with its clause.
        by_offset: reading is by journal and offset, although the position may have a GTID set.
        epoch_grows: the source's identity or its numbering has changed: the cursor's next epoch begins (K1).
        overlap_until_us: no cut may be published before a transaction was committed after this time (K7), microseconds
            since 1970; None where nothing is read twice.
        resets_dump_errors: the count of dump errors was acted on and begins anew (P5).
    """

    position: Position
    reasons: tuple[str, ...]
    by_offset: bool = True
    epoch_grows: bool = False
    overlap_until_us: int | None = None
    resets_dump_errors: bool = False

    @property
    def read_from(self) -> Position:
        """The position as `Source.chunks` takes it: without its GTID set where reading is by offset."""
        return read_by_offset(self.position) if self.by_offset else self.position


def read_by_offset(position: Position) -> Position:
    """`position` without its GTID set, by which a source would read otherwise."""
    return replace(position, gtid_set="") if position.gtid_set else position
