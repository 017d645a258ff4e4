"""The position to read on from, kept in two stores (SPEC P2, T3).

Rules:
- The primary is the position last dumped: the end of the last transaction whose events a store
  accepted (T3), in memory only. The secondary is the oldest position that the consumers have acked.
- A lookup uses the primary first, then the secondary. Within a process reading continues where it
  stopped; after a restart it begins at the acked position.
- A write goes to the primary. If it fails, it goes to the secondary and the primary is cleared: a
  doubtful position must not win over the acked one, from which nothing can be missed.
- Events that were read are not acked: a write to the secondary is noted and moves no consumer.
- Consumers' cursors are cached in memory after they are written to their `CursorStore`, so that
  memory is never ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from cdc_pipeline.errors import CdcError, CursorError, PositionError
from cdc_pipeline.position.cursor import CursorEntry, CursorState, CursorStore, StoredCursor
from cdc_pipeline.position.position import Position

MAIN_CONSUMER = "cursor"


class Consumer(NamedTuple):
    """A consumer that still needs the log from `position` on.

    Attributes:
        name: ``cursor``, or the suspended table as ``schema.table``; with a prefix if there are
            several cursors.
        epoch: epoch of the numbering that `position` belongs to.
    """

    name: str
    epoch: int
    position: Position

    @property
    def order(self) -> tuple[int, tuple[int, int]]:
        return (self.epoch, self.position.order)


def consumers_of(cursor: StoredCursor, *, name: str = MAIN_CONSUMER) -> tuple[Consumer, ...]:
    """The main cursor and every suspended target, each with its position (K4).

    Open XA transactions need no journals: their rows are staged (K8). A cursor that leaves its
    targets to its cut names none.
    """
    prefix = "" if name == MAIN_CONSUMER else f"{name}: "
    consumers = [Consumer(name, cursor.epoch, cursor.position)]
    for table, target in sorted((cursor.targets or {}).items()):
        at = target.suspended
        if at is None or at.needs_snapshot:
            continue  # a table that must be read again by a snapshot needs no journal
        position = Position(
            at.journal, at.offset, gtid_set=at.gtid_set, journal_created_s=at.journal_created_s
        )
        consumers.append(Consumer(prefix + table, at.epoch, position))
    return tuple(consumers)


def oldest(consumers: Iterable[Consumer]) -> Consumer | None:
    """The consumer with the oldest position, before which the log may be purged; None if there is
    none.
    """
    return min(consumers, key=lambda consumer: consumer.order, default=None)


class Positions(Protocol):
    def latest(self) -> Position | None:
        """The position to read on from; None if it is unknown."""

    def persist(self, position: Position) -> None:
        """Note that the log was read up to `position`. Raises CdcError: the store refuses the
        position.
        """


class DumpedPosition:
    """The position last dumped, in memory. Written by the reader's thread, read by any."""

    def __init__(self) -> None:
        self._position: Position | None = None

    def latest(self) -> Position | None:
        return self._position

    def persist(self, position: Position) -> None:
        """Note the end of the last stored transaction. Raises PositionError: it is before the
        previous one: the log was read again, or is another log.
        """
        before = self._position
        if before is not None and position.order < before.order:
            raise PositionError(
                "the log was read backward",
                journal=position.journal,
                offset=position.offset,
                expected=f"a position after {before}",
                next_step="run again: reading continues from the acked position",
            )
        self._position = position

    def forget(self) -> None:
        self._position = None


class AckedPositions:
    """The consumers' cursors in memory, each persisted in a separate store.

    Args:
        stores: consumer name -> store of its cursor.

    Attributes:
        read_up_to: the last position that the primary refused; informative.
    """

    def __init__(self, stores: Mapping[str, CursorStore]) -> None:
        self._stores = dict(stores)
        self._cursors: dict[str, StoredCursor] = {}
        self.read_up_to: Position | None = None

    def load(self) -> None:
        """Read every consumer's cursor from its store. Raises CursorError: a cursor cannot be
        parsed.
        """
        for name, store in self._stores.items():
            self._acked(name, store.read())

    def ack(
        self,
        cursor: CursorState,
        metadata: dict[str, object] | None = None,
        *,
        consumer: str = MAIN_CONSUMER,
        replace: bool = False,
    ) -> None:
        """Persist a consumer's cursor, then cache it; see `CursorStore.write`. Raises CursorError:
        there is no such consumer, or its store refuses the cursor; nothing changes.
        """
        store = self._stores.get(consumer)
        if store is None:
            raise CursorError(
                "the consumer is unknown", expected=", ".join(self._stores), got=consumer
            )
        store.write(cursor, metadata or {}, replace=replace)
        self._cursors[consumer] = cursor

    def store(self, consumer: str = MAIN_CONSUMER) -> CursorStore:
        """A store of one consumer's cursor that keeps the cursor in memory up to date."""
        return _ConsumerStore(self, consumer, self._stores[consumer])

    def _acked(self, consumer: str, cursor: StoredCursor | None) -> None:
        if cursor is None:
            self._cursors.pop(consumer, None)
        else:
            self._cursors[consumer] = cursor

    def consumers(self) -> tuple[Consumer, ...]:
        """All consumers that have a cursor, including suspended targets."""
        return tuple(
            consumer
            for name, cursor in self._cursors.items()
            for consumer in consumers_of(cursor, name=name)
        )

    def latest(self) -> Position | None:
        """The oldest position that a consumer still needs."""
        consumer = oldest(self.consumers())
        return None if consumer is None else consumer.position

    def persist(self, position: Position) -> None:
        """Note the position that was read. No consumer moves: events that were read are not
        acked.
        """
        self.read_up_to = position


class _ConsumerStore:
    """The `CursorStore` of one consumer that `AckedPositions.store` returns."""

    def __init__(self, positions: AckedPositions, consumer: str, store: CursorStore) -> None:
        self._positions = positions
        self._consumer = consumer
        self._store = store

    def read(self) -> StoredCursor | None:
        cursor = self._store.read()
        self._positions._acked(self._consumer, cursor)
        return cursor

    def write(
        self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False
    ) -> None:
        self._positions.ack(cursor, metadata, consumer=self._consumer, replace=replace)

    def history(self, limit: int) -> list[CursorEntry]:
        return self._store.history(limit)


class FailbackPositions:
    def __init__(self, primary: DumpedPosition, secondary: Positions) -> None:
        self._primary = primary
        self._secondary = secondary

    def latest(self) -> Position | None:
        """The position of the primary, or of the secondary if the primary has none."""
        return self._primary.latest() or self._secondary.latest()

    def persist(self, position: Position) -> None:
        """Note that the log was read up to `position`. Raises CdcError: both stores refuse it."""
        try:
            self._primary.persist(position)
        except CdcError:
            self._primary.forget()
            self._secondary.persist(position)
