"""What a comparison with the history of the last transactions gives (K7)."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.position.position import Position


@dataclass(frozen=True, slots=True)
class OverlapResult:
    """Where to read on from in the log of another server.

    Attributes:
        position: after the transactions that are in the history as well.
        until_us: None where that is all of the history; else commit time of its last transaction, microseconds since
            1970 UTC: no cut may be published before a transaction with a later one.
        reason: one sentence for people.
    """

    position: Position
    until_us: int | None
    reason: str
