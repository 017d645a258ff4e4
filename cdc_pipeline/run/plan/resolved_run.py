"""A part of the log that is read, and the plan of a run with the values that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.context import JournalInfo, StartDecision
from cdc_pipeline.run.plan.limits import Limit
from cdc_pipeline.run.report import CapturePlan

LOG_END: Final = "the end of the log at planning time"


@dataclass(frozen=True, slots=True)
class LogRange:
    """`ends_anywhere`: the end may be inside a transaction: whole ones before it count; `decision`:
    how the start was found; `bytes_expected`: 0 if no progress is shown; `is_applied`: all of it
    counts already, but for what waits for an XA COMMIT behind it.
    """

    start: Position
    end: Position
    limit: Limit | None = None
    ends_anywhere: bool = False
    decision: StartDecision | None = None
    epoch: int = 1
    bytes_expected: int = 0
    is_applied: bool = False

    @property
    def read_from(self) -> Position:
        """The start as `Source.chunks` takes it."""
        return self.start if self.decision is None else self.decision.read_from

    @property
    def overlap_until_us(self) -> int | None:
        return None if self.decision is None else self.decision.overlap_until_us

    @property
    def turns_to_another_server(self) -> bool:
        return self.decision is not None and self.decision.epoch_grows


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRun(LogRange):
    """`known`: tables that the source shows; None if it cannot say."""

    plan: CapturePlan
    known: tuple[str, ...] | None = None
    log_end: Position | None = None


def is_within(info: JournalInfo, start: Position, end: Position) -> bool:
    return start.order[0] <= journal_number(info.journal) <= end.order[0]


def bytes_between(journals: Iterable[JournalInfo], start: Position, end: Position) -> int:
    """Of the log, of all that is listed."""
    whole = (
        info.size_bytes
        for info in journals
        if is_within(info, start, end) and info.journal != end.journal
    )
    return max(0, sum(whole) + end.offset - start.offset)
