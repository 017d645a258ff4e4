"""What comparing the log after a switch with what was applied already gave (K7)."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.position.position import Position


@dataclass(frozen=True, slots=True)
class OverlapResult:
    """Where reading goes on after a switch by time.

    Attributes:
        position: the begin of the first transaction that is not known to be applied.
        until_us: commit time (microseconds since 1970 UTC) up to which transactions may have been applied already, so
            that no cut is published before it is passed; None where nothing is in doubt.
        reason: one sentence for the chain of reasons.
    """

    position: Position
    until_us: int | None
    reason: str
