"""Where reading stands, looked up in two places (SPEC P2, T3).

Rules:
- The primary is the position last dumped: the end of the last transaction whose events a store accepted (T3), in
  memory alone. The secondary is what the consumers have acked: the oldest of all their positions.
- A lookup asks the primary first, then the secondary. Within a process the log is read on from where it was read to;
  after a restart it is read again from what is acked.
- A write goes to the primary. One that fails there goes to the secondary, and the primary forgets what it knew: a place
  in doubt must not answer before the acked one, from which nothing can be missed.
- What was read is not acked: a write to the secondary is noted, and moves no consumer.
- Consumers' cursors are held in memory; each goes to its `CursorStore` first. What memory says is always persisted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from cdc_pipeline.errors import CdcError, CursorError, PositionError
from cdc_pipeline.position.cursor import CursorEntry, CursorState, CursorStore
from cdc_pipeline.position.position import Position

MAIN_CONSUMER = "cursor"


class Consumer(NamedTuple):
    """One who still needs the log from `position` on.

    Attributes:
        name: ``cursor``, or the suspended table as ``schema.table``; with a prefix where there are several cursors.
        epoch: of the numbering that `position` belongs to.
    """

    name: str
    epoch: int
    position: Position

    @property
    def order(self) -> tuple[int, tuple[int, int]]:
        """Sort key: by epoch, then by place."""
        return (self.epoch, self.position.order)


def consumers_of(cursor: CursorState, *, name: str = MAIN_CONSUMER) -> tuple[Consumer, ...]:
    """The main cursor, and every suspended target with its own position (K4).

    Open XA transactions need nothing: their rows are staged (K8).
    """
    prefix = "" if name == MAIN_CONSUMER else f"{name}: "
    found = [Consumer(name, cursor.epoch, cursor.position)]
    for table, target in sorted(cursor.targets.items()):
        at = target.suspended
        if at is None or at.needs_reload:
            continue  # a table that must be loaded anew needs no journal
        position = Position(at.journal, at.offset, gtid_set=at.gtid_set, journal_created_s=at.journal_created_s)
        found.append(Consumer(prefix + table, at.epoch, position))
    return tuple(found)


def oldest(consumers: Iterable[Consumer]) -> Consumer | None:
    """The consumer whose position is the oldest: what lies before it may be purged. None where there is nobody."""
    return min(consumers, key=lambda consumer: consumer.order, default=None)


class Positions(Protocol):
    """One place that knows where reading stands."""

    def latest(self) -> Position | None:
        """Where to read on; None where it knows nothing."""

    def persist(self, position: Position) -> None:
        """The log was read up to `position`.

        Raises:
            CdcError: it cannot take that.
        """


class DumpedPosition:
    """The position last dumped, in memory. Written by the reader's thread, read by any."""

    def __init__(self) -> None:
        self._position: Position | None = None

    def latest(self) -> Position | None:
        return self._position

    def persist(self, position: Position) -> None:
        """Take the end of the last transaction that was stored.

        Raises:
            PositionError: it lies before the last one: the log was read anew, or is another one.
        """
        before = self._position
        if before is not None and position.order < before.order:
            raise PositionError(
                "the log was read backward",
                journal=position.journal,
                offset=position.offset,
                expected=f"a position after {before}",
                next_step="start again: reading goes on from the acked position",
            )
        self._position = position

    def forget(self) -> None:
        """Know nothing any more."""
        self._position = None


class AckedPositions:
    """What the consumers have acked: their cursors in memory, each persisted in a store of its own.

    Args:
        stores: name of each consumer -> where its cursor lives.

    Attributes:
        read_up_to: the last position that the primary could not take; informative.
    """

    def __init__(self, stores: Mapping[str, CursorStore]) -> None:
        self._stores = dict(stores)
        self._cursors: dict[str, CursorState] = {}
        self.read_up_to: Position | None = None

    def load(self) -> None:
        """Read every consumer's cursor from its store.

        Raises:
            CursorError: one of them cannot be understood.
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
        """Persist a consumer's cursor, then hold it; see `CursorStore.write`.

        Raises:
            CursorError: there is no such consumer, or its store refuses the cursor; nothing changes.
        """
        store = self._stores.get(consumer)
        if store is None:
            raise CursorError("there is no such consumer", expected=", ".join(self._stores), got=consumer)
        store.write(cursor, metadata or {}, replace=replace)
        self._cursors[consumer] = cursor

    def store(self, consumer: str = MAIN_CONSUMER) -> CursorStore:
        """The consumer's store, for one who writes cursors without knowing of the others: memory follows it."""
        return _ConsumerStore(self, consumer, self._stores[consumer])

    def _acked(self, consumer: str, cursor: CursorState | None) -> None:
        if cursor is None:
            self._cursors.pop(consumer, None)
        else:
            self._cursors[consumer] = cursor

    def consumers(self) -> tuple[Consumer, ...]:
        """All consumers that have a cursor, suspended targets included."""
        return tuple(one for name, cursor in self._cursors.items() for one in consumers_of(cursor, name=name))

    def latest(self) -> Position | None:
        """The oldest position that a consumer still needs."""
        found = oldest(self.consumers())
        return None if found is None else found.position

    def persist(self, position: Position) -> None:
        """Note what was read. No consumer moves: what was read is not acked."""
        self.read_up_to = position


class _ConsumerStore:
    """One consumer's `CursorStore`, as `AckedPositions` hands it out."""

    def __init__(self, positions: AckedPositions, consumer: str, store: CursorStore) -> None:
        self._positions = positions
        self._consumer = consumer
        self._store = store

    def read(self) -> CursorState | None:
        cursor = self._store.read()
        self._positions._acked(self._consumer, cursor)
        return cursor

    def write(self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False) -> None:
        self._positions.ack(cursor, metadata, consumer=self._consumer, replace=replace)

    def history(self, limit: int) -> list[CursorEntry]:
        return self._store.history(limit)


class FailbackPositions:
    """Primary and secondary as one (SPEC P2)."""

    def __init__(self, primary: DumpedPosition, secondary: Positions) -> None:
        self._primary = primary
        self._secondary = secondary

    def latest(self) -> Position | None:
        """Where to read on: what the primary knows, else what the secondary knows."""
        return self._primary.latest() or self._secondary.latest()

    def persist(self, position: Position) -> None:
        """Note that the log was read up to `position`.

        Raises:
            CdcError: neither takes it.
        """
        try:
            self._primary.persist(position)
        except CdcError:
            self._primary.forget()
            self._secondary.persist(position)
