"""The position to read on from (SPEC P2, T3).

Rules:
- The primary is the position last dumped: the end of the last transaction whose events a store
  accepted (T3), in memory only. The secondary is the oldest position that a consumer has acked,
  from which nothing can be missed: after a restart reading begins there.
- A position before the last one is refused: the log was read again, or is another log. The primary
  is cleared then: a doubtful position must not win over the acked one.
- Events that were read are not acked: what is noted here moves no consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.position.cursor import CursorStore, ResumePlace, StoredCursor
from cdc_pipeline.position.position import Position


class Consumer(FrozenModel):
    """It needs the log from `position` on. `name`: ``cursor``, or the suspended
    ``schema.table``.
    """

    name: str
    epoch: int
    position: ResumePlace


def consumers_of(cursor: StoredCursor) -> tuple[Consumer, ...]:
    """The main cursor and every suspended target, each with its position (K4).

    Open XA transactions need no journals: their rows are staged (K8). A cursor that leaves its
    targets to its cut names none.
    """
    return (
        Consumer(name="cursor", epoch=cursor.epoch, position=cursor.position),
        *(
            Consumer(name=table, epoch=target.suspended.epoch, position=target.suspended.position)
            for table, target in sorted((cursor.targets or {}).items())
            # a table that must be read again by a snapshot needs no journal
            if target.suspended is not None and not target.suspended.needs_snapshot
        ),
    )


def oldest(consumers: Iterable[Consumer]) -> Consumer | None:
    return min(consumers, key=lambda it: it.position.seq(it.epoch), default=None)


class FailbackPositions:
    """`dumped`, the primary, is written by the reader's thread and read by any."""

    def __init__(self, cursors: CursorStore) -> None:
        self._cursors = cursors
        self.dumped: Position | None = None

    def latest(self) -> Position | None:
        """None if nothing was read or acked."""
        if self.dumped is not None:
            return self.dumped
        cursor = self._cursors.read()
        consumer = None if cursor is None else oldest(consumers_of(cursor))
        return None if consumer is None else consumer.position

    def persist(self, position: Position) -> None:
        """Note the end of the last stored transaction."""
        is_backward = self.dumped is not None and position.order < self.dumped.order
        self.dumped = None if is_backward else position
