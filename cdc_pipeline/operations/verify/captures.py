"""Main captures that bracket views of the source, and the changes between two of them.

Rules:
- A capture here is an ordinary one, to the end of the log or to a given place. It holds the lock
  only while it runs. Other runs may capture in between: gaps in the batch numbers reveal their
  batches.
- `ChangeLog` keeps the keys of every staged change, so that a key that appeared and disappeared
  between two cuts is known too. It says so if it is incomplete: another process made a batch, or
  one has changes that are not rows (DDL) or that executors decode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from cdc_pipeline.config.pipeline_config import Bound, PositionConfig
from cdc_pipeline.errors import LakeStateError, LockError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.observer import RelayObserver, RunObserver

_RECENT_S: Final = 60.0


@contextmanager
def verify_lock(paths: LakePaths) -> Iterator[None]:
    """Of a source's one verification. Raises LockError: another is under way; RuntimeSetupError."""
    with ExitStack() as stack:
        try:
            lock = writer_lock(paths.state / "verify.lock", on_lost=lambda: None)  # it only reads
            stack.enter_context(lock)
        except LockError as error:
            error.what = "another verification of this source is under way"
            raise
        yield


@dataclass(frozen=True)
class SourceState:
    """The last cut, and the cursor, which may be later in the log."""

    cut: Cut
    cursor: CursorState

    @property
    def position(self) -> Position:
        return self.cursor.position


class ChangeLog(RelayObserver):
    """Observer of batches; `take` receives each record while its staged files exist. `changed`: by
    batch number, targets, and whether all their changes are staged rows.
    """

    def __init__(self, read: Callable[[int], BatchRecord], observer: RunObserver) -> None:
        super().__init__(observer)
        self.take: Callable[[BatchRecord], None] | None = None
        self.changed: dict[int, dict[str, bool]] = {}
        self._read = read

    def published(self, cut: Cut) -> None:
        super().published(cut)
        record = self._read(cut.batch_number)
        if self.take is not None:
            self.take(record)
        self.changed[cut.batch_number] = {
            target.table: not (
                target.alters or target.create or target.replaces or target.content is not None
            )
            for target in record.targets
        }

    def is_whole(self, table: str, *, after: int, upto: int) -> bool:
        """Whether every change of a target in batches (after, upto] was seen as staged rows."""
        numbers = range(after + 1, upto + 1)
        return all(n in self.changed and self.changed[n].get(table, True) for n in numbers)

    def is_quiet(self, table: str, *, after: int, upto: int) -> bool:
        """Whether all batches in (after, upto] were seen and none of them changed a target."""
        numbers = range(after + 1, upto + 1)
        return all(n in self.changed and table not in self.changed[n] for n in numbers)


@dataclass
class Captures(MainLake):
    _captured_s: float | None = None

    def __post_init__(self) -> None:
        read = partial(read_record, LakePaths.of(self.config))
        self.changes = ChangeLog(read, self.observer)

    @contextmanager
    def keeping(self, take: Callable[[BatchRecord], None]) -> Iterator[None]:
        self.changes.take = take
        try:
            yield
        finally:
            self.changes.take = None

    def run(self, upto: Position | None = None) -> SourceState:
        """To the end of the log or a place, by `MainLake.capture_once`. As `source_state`."""
        bound: Bound = "end_of_log"
        if upto is not None:
            bound = PositionConfig(journal=upto.journal, offset=upto.offset)
        self.capture_once(bound, self.changes)
        self._captured_s = time.monotonic()
        return self.source_state()

    def recent(self) -> SourceState:
        """After a capture of the last minute: an earlier C0 is as good, with more changed keys."""
        if self._captured_s is None or time.monotonic() - self._captured_s > _RECENT_S:
            return self.run()
        return self.source_state()

    def run_behind(self, before: SourceState) -> SourceState:
        """After a capture, unless the log still ends where the one before has ended."""
        with SnapshotSource(self.config, role="verify") as source:
            is_same = source.live.identity.same_server(before.cursor.identity)
            if is_same and source.live.end_position().order == before.position.order:
                return before
        return self.run()

    def source_state(self) -> SourceState:
        """LakeStateError: nothing was captured yet, or cursor and lake contradict each other."""
        cursor, cut = self.state()
        if cut is None or cursor is None:
            raise LakeStateError(
                "nothing has been captured yet, so there is no table to verify",
                next_step=f"run `cdc-pipeline run {self.config.name}` first",
            )
        return SourceState(cut, cursor)
