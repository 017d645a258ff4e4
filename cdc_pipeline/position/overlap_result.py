"""Result of comparing a new server's log with the applied transactions (K7: none applied twice)."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.position.position import Position


@dataclass(frozen=True, slots=True)
class OverlapResult:
    """Where reading continues after a switch by time.

    Attributes:
        position: begin of the first transaction that is not known to be applied.
        until_us: commit time (microseconds since 1970 UTC) up to which transactions may already be
            applied, so that no cut is published before reading has passed it; None if nothing is in
            doubt.
        reason: one sentence for the chain of reasons.
    """

    position: Position
    until_us: int | None
    reason: str
