"""A stretch of the log, and the state that advances while its changes are applied.

The stretch of a run, of a target that catches up (K4), and of a backfill's segment are built alike.
They differ in their committer and in `of_plan`.

Rules of the overlap with another server's log, after a switch without GTIDs (K7):
- Until a transaction appears that was committed later than everything applied before the switch, no
  cut is published and no cursor moved: a cut there would go back in time.
- A target that keeps every change must not get one twice there, unless a person accepts that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import OverlapUndecidedError, PositionError
from cdc_pipeline.lake.prepared import XaParking
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.failback import FailbackPositions
from cdc_pipeline.position.position import ServerIdentity
from cdc_pipeline.run.capture.progress import Progress
from cdc_pipeline.run.capture.stager import Stager
from cdc_pipeline.run.decode.schemas import Schemas, schemas_of
from cdc_pipeline.run.plan.resolved_run import LogRange
from cdc_pipeline.run.plan.server_switch import HistoryWriter, history_writer
from cdc_pipeline.run.publish import Publisher
from cdc_pipeline.run.wiring import build_store
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.sink.target import Target
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.store.ring import RingStore
from cdc_pipeline.targets.targets import Targets


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureContext(Publisher):
    """`positions`: how far the source's own log was stored (SPEC T3), noted by the reader."""

    config: PipelineConfig
    positions: FailbackPositions | None = None
    began_s: float = field(default_factory=time.monotonic)
    began_cpu_s: float = field(default_factory=time.process_time)


@dataclass(slots=True)
class CaptureSession:
    """A stretch of the log with the state of its stages. `cursor`: of the source before it;
    `of_plan`: tables that the plan of the source's own run knows: a failure of one alone suspends
    it (K4), and the stretch may begin in an overlap (K7); None: a failure stops it; `targets`: as
    of the staged changes; `place`: how far its transactions are staged; `schemas`, `history`:
    written before what refers to them; no `history` with GTIDs.
    """

    run: LogRange
    source: Source
    cursor: CursorState | None
    of_plan: Collection[str] | None
    identity: ServerIdentity
    store: RingStore
    targets: Targets
    parking: XaParking
    place: Progress
    overlap: Overlap
    stager: Stager
    schemas: Schemas
    history: HistoryWriter | None

    @property
    def epoch(self) -> int:
        return self.run.epoch

    def drop_open(self) -> None:
        self.parking.drop_pieces()
        self.stager.drop_open()


def open_session(
    context: CaptureContext,
    run: LogRange,
    source: Source,
    cursor: CursorState | None,
    *,
    targets: Targets,
    parking: XaParking,
    begin: Callable[[int], StagedBatch] | None = None,
    left: int | None = None,
    of_plan: Collection[str] | None = None,
) -> CaptureSession:
    """`begin` begins a batch of a number. `left`: where another server's log was left that this
    one goes on from without an overlap (K7). LakeStateError: the schema history is damaged.
    """
    config, identity = context.config, source.identity
    until_us = history = None
    if of_plan is not None:
        until_us = run.overlap_until_us
        history = history_writer(config, start=run.start, end=run.end, flavor=identity.flavor)
    if until_us is not None:
        targets = targets.without_exactness()  # what the overlap does not skip may come twice (K12)

    return CaptureSession(
        run=run,
        source=source,
        cursor=cursor,
        of_plan=of_plan,
        identity=identity,
        store=build_store(config),
        targets=targets,
        parking=parking,
        place=Progress(run.start, identity.flavor, keeps_gtids=source.uses_gtids),
        overlap=Overlap(until_us=until_us, accepted=config.accept.overlap),
        stager=Stager(
            number=(0 if cursor is None else cursor.batch_number) + 1,
            sink=context.sink,
            begin=begin,
        ),
        schemas=schemas_of(
            config,
            source=source,
            run=run,
            cursor=cursor,
            captured=targets.keeps_history,
            left=left,
        ),
        history=history,
    )


class Overlap:
    """It ends after `until_us`. `accepted`: targets that may keep its changes twice."""

    def __init__(self, *, until_us: int | None, accepted: Collection[str]) -> None:
        self._until_us = until_us
        self._accepted = frozenset(accepted)

    @property
    def is_held(self) -> bool:
        return self._until_us is not None

    def reach(self, commit_us: int) -> None:
        """Leave the overlap if a transaction that was committed at this time lies after it."""
        if self._until_us is not None and commit_us > self._until_us:
            self._until_us = None

    def check_changes(self, targets: Sequence[Target], source: str, *, first_us: int = -1) -> None:
        """OverlapUndecidedError: a target which keeps every change might get one of these twice.
        `first_us`: commit time of the first; -1 not known.
        """
        if self._until_us is None or first_us > self._until_us:
            return
        undecided = [
            target.name
            for target in targets
            if keeps_every_change(target.spec.mode, target.spec.key)
            and target.name not in self._accepted
        ]
        if undecided:
            names = ", ".join(undecided)
            raise OverlapUndecidedError(
                "changes that may have been applied before the switch to this server "
                "would be stored twice",
                targets=tuple(undecided),
                table=source,
                setting="accept.overlap",
                expected="a log that matches the applied changes up to the switch, or a decision",
                got=f"an overlap without GTIDs, in {names}",
                next_step=f"list {names} in accept.overlap to keep these changes, perhaps "
                "twice; or start again",
            )

    def check_passed(self, place: Progress) -> None:
        """Publishing inside the overlap is a PositionError: the log has nothing later yet."""
        if self._until_us is None:
            return
        at = place.position
        raise PositionError(
            "the new server's log has nothing later than the changes applied before the "
            "switch: a cut here would go back in time",
            at=at,
            expected=f"a transaction committed after {self._until_us} (microseconds since 1970)",
            got=f"the last one was committed at {place.source_time_us}",
            next_step="run again when the server has written later transactions; if it is a "
            "replica, wait until it has caught up; nothing was published",
        )
