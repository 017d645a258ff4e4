"""Put a filled side lake's tables in their targets' place, for a snapshot (K17) or rebuild (K18).

    capture -> side lake captured to the cursor -> locked: swapped in if the cursor is still there,
    else again

Rules:
- Tables are swapped in when the side lake is exactly at the main cursor and behind a given place:
  the end of the log that was read after the last chunk's view was opened.
- The main lake is locked for the swap only. If it has moved on in several rounds, the side lake
  catches up under the lock, so that frequent captures cannot delay a snapshot without end.
- The swap waits for prepared XA transactions whose rows only the side lake has parked, up to
  `snapshot.lock_wait_s`.
- Targets that an earlier process, or a run of the source, has already replaced stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.errors import SnapshotError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.side import SnapshotLake
from cdc_pipeline.operations.snapshot.swap import swap, unparked
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.admin_batch import AdminBatch, UnfinishedBatchError

# Number of rounds in which the main lake may move on between the side lake's capture and the lock;
# after that the side lake catches up while the lock is held.
_FREE_ROUNDS: Final = 2
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Swapped:
    """`cut`: the first main one with the new content."""

    names: tuple[str, ...]
    cut: Cut


@dataclass
class Finish:
    """The tables are whole from `high` on. `doing`: in words; `check`, called after each capture,
    raises if they must not be swapped in; `is_whole`: see `content.replacement`.
    """

    side: SnapshotLake
    main: MainLake
    high: Position
    doing: str
    check: Callable[[], None] = lambda: None
    is_whole: bool = False

    def run(self) -> Swapped | None:
        """None if no table is left. SnapshotError: the wait was too long, or a swap failed."""
        side, rounds = self.side, 0
        until_s = time.monotonic() + self.main.config.snapshot.lock_wait_s
        while names := self._unswapped():
            cursor = self.main.capture(snapshot_of=names)
            if cursor.position.order < self.high.order:
                self._waits(until_s, f"the capture to reach {self.high}")
                continue
            self.main.observer.step(self.doing)
            self._capture(cursor.position)
            reach("snapshot_caught_up")
            names = self._unswapped()
            if not names:
                break
            if parked := unparked(side.cursor, cursor):
                xids = ", ".join(xa.xid for xa in parked)
                what = f"the prepared XA transactions {xids} to be committed or rolled back"
                self._waits(until_s, what)
                continue
            self.main.observer.step(f"replacing {', '.join(names)}")
            insist = rounds >= _FREE_ROUNDS
            try:
                swapped = self.main.locked(lambda locked: self._swap(locked, insist=insist))  # noqa: B023
            except UnfinishedBatchError:
                continue
            if swapped is not None:
                return swapped
            rounds += 1
        return None

    def _capture(self, to: Position) -> None:
        self.side.capture_to(to)
        self.check()

    def _swap(self, locked: AdminBatch, *, insist: bool) -> Swapped | None:
        """None if the main lake has moved on."""
        side = self.side
        reach("snapshot_swapping")
        here, there = side.cursor, locked.cursor
        if (here.position.order, here.epoch) != (there.position.order, there.epoch):
            if not insist:
                return None
            self._capture(locked.cursor.position)
        names = self._unswapped()
        if not names or unparked(side.cursor, locked.cursor):
            return None
        cut = swap(locked, side, names, is_whole=self.is_whole)
        return Swapped(tuple(names), cut)

    def _unswapped(self) -> list[str]:
        _, cut = self.main.state()
        states = {} if cut is None else cut.cursor.targets
        operation = self.side.state
        swapped = {name for name, of in states.items() if of.app_id == operation.app_id(name)}
        done = swapped | self.side.left.keys()
        return [name for name in operation.targets if name not in done]

    def _waits(self, until_s: float, what: str) -> None:
        if time.monotonic() >= until_s:
            raise SnapshotError(
                f"the snapshot has waited too long for {what}",
                setting="snapshot.lock_wait_s",
                next_step="run the same command again when that has happened; it "
                "continues the snapshot",
            )
        self.main.observer.step(f"waiting for {what}")
        time.sleep(_POLL_S)
