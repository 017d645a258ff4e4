"""Decode and stage one segment of a journal on an executor.

Rules:
- The steps are those of sequential reading, from the same cut on, so that each change has the same
  seq (K1) and the same staged row. Nothing is recorded and nothing acts: the staged part goes back
  to the driver.
- Files are in the task's own folder below the batch's: files of a failed try are garbage of that
  batch (K2).
- A segment that depends on others ends the task with the reason: a statement that concerns a
  target, a prepared XA transaction, a shadow table, any error. The driver then reads the stretch in
  sequence.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, PipelineConfig
from cdc_pipeline.config.target_config import HashMask
from cdc_pipeline.errors import CdcError, TransactionError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.prepared import XaParking
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.run.capture.capture_session import (
    CaptureContext,
    open_session,
)
from cdc_pipeline.run.capture.commit import Committer
from cdc_pipeline.run.capture.drain import Drain
from cdc_pipeline.run.capture.segments.survey import Segment
from cdc_pipeline.run.plan.resolved_run import LogRange
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.source.archive.archive import ArchiveSource
from cdc_pipeline.targets.masks import without_salts
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.targets import targets_at
from cdc_pipeline.text.table_names import NameRule


class ObservedTable(FrozenModel):
    """A table map that the schema history does not agree with; the schema is JSON text."""

    table_schema: str
    journal: str
    offset: int

    def table(self) -> TableSchema:
        return TableSchema.from_json(self.table_schema)


class SegmentResult(FrozenModel):
    """`record`: with the segment's GTIDs alone; `observed`: what the schema history has to learn,
    in order; `refused`: why nothing of it counts.
    """

    record: BatchRecord | None = None
    observed: tuple[ObservedTable, ...] = ()
    refused: str = ""

    @property
    def part(self) -> BatchRecord:
        assert self.record is not None
        return self.record


@dataclass(frozen=True)
class WaveInputs:
    """For all tasks of a wave: the archive as source, no secret, cut and cursor as JSON."""

    config: PipelineConfig
    directory: Path
    cut: str
    cursor: str
    identity: ServerIdentity
    uses_gtids: bool
    number: int
    epoch: int


def hashed_table(config: PipelineConfig, tables: Sequence[str]) -> str:
    """A sentence that names a table with hashed columns; "" if none has."""
    routes = Routes(config)
    for name in tables:
        for route in routes.of_table(name):
            if any(isinstance(mask, HashMask) for mask in route.rule.masks.values()):
                return f"{name} has hashed columns, whose salt must not leave this process"
    return ""


def shipped(config: PipelineConfig, directory: Path, names: NameRule) -> PipelineConfig:
    """The archive as its source, events in memory, no secret of a mask."""
    store = config.store.model_copy(update={"kind": "memory"})
    source = config.source
    if not isinstance(source, ArchiveSourceConfig):
        source = ArchiveSourceConfig(
            kind="archive",
            directory=directory,
            lower_case_table_names=names.value,
            unpacked_bytes_max=source.unpacked_bytes_max,
        )
    rules = tuple(
        rule.model_copy(update={"masks": without_salts(rule.masks)}) for rule in config.targets
    )
    return config.model_copy(update={"store": store, "source": source, "targets": rules})


def task_of(segment: str, *, work: Callable[[Segment], FrozenModel]) -> str:
    """Work on a `Segment`; both are JSON text, so that a task and its result are small."""
    return work(Segment.model_validate_json(segment)).model_dump_json()


def decode_segment(task: Segment, inputs: WaveInputs) -> SegmentResult:
    try:
        return _decoded(task, inputs)
    except CdcError as error:
        return SegmentResult(refused=f"{task.journal}:{error.offset or task.start}: {error.what}")


def _decoded(task: Segment, inputs: WaveInputs) -> SegmentResult:
    config = inputs.config
    cut = Cut.model_validate_json(inputs.cut) if inputs.cut else None
    cursor = CursorState.model_validate_json(inputs.cursor) if inputs.cursor else None
    shadows = {} if cursor is None else cursor.shadows
    source = _SegmentSource(inputs)
    if source.journal_created_s(task.journal) != task.created_s:
        raise _apart("another journal has taken its place in the archive")
    start = Position(task.journal, task.start, journal_created_s=task.created_s)
    sink = build_sink(config)  # the driver holds its lock, and nothing acts here
    cursors = MemoryCursorStore(cursor, source=config.name)
    context = CaptureContext(sink, cursors, config=config)
    run = LogRange(start, replace(start, offset=task.stop), epoch=inputs.epoch)
    session = open_session(
        context,
        run,
        source,
        cursor,
        targets=targets_at(config, cut, cursor),
        parking=XaParking(sink.paths, epoch=inputs.epoch, check_lock=lambda: None),
        begin=lambda number: StagedBatch(
            number, paths=sink.paths, check_lock=lambda: None, part=f"part-{uuid.uuid4().hex}"
        ),
    )
    committer = SegmentCommitter(context, session)
    drained = Drain(context, session, committer).run()
    part = committer.part
    if part is None or drained.dropped:
        raise _apart("its end is not the end of a complete transaction")
    if part.cursor_after.shadows != shadows:
        raise _apart("a shadow table of an online schema change")
    observed = [
        ObservedTable(table_schema=schema.to_json(), journal=journal, offset=offset)
        for schema, journal, offset in session.schemas.corrections
    ]
    return SegmentResult(record=part, observed=tuple(observed))


def _apart(what: str) -> TransactionError:
    return TransactionError(f"{what}: it cannot be decoded separately from what comes before it")


class SegmentCommitter(Committer):
    """Keeps what was staged as a part of a batch; `part` is set at the segment's end."""

    part: BatchRecord | None = None

    def is_due(self) -> bool:
        """A segment is one part."""
        return False

    def commit(self, *, final: bool = False) -> bool:
        if not final:
            raise _apart("a statement that changes a target")
        stager, parking = self._session.stager, self._session.parking
        if stager.is_in_doubt:
            return False
        if parking.begin_of_oldest() is not None or len(parking) or parking.has_pieces:
            raise _apart("a prepared XA transaction")
        collected = stager.collect()
        head = self._head(collected)
        if collected.staged is not None and collected.staged.has_work:
            head = collected.staged.record(head, is_part=True)
        self.part = head
        return True


class _SegmentSource(ArchiveSource):
    """One archive with known facts: a task reads its own journal and no other."""

    def __init__(self, inputs: WaveInputs) -> None:
        unpacked_bytes_max = inputs.config.source.unpacked_bytes_max
        super().__init__(inputs.directory, unpacked_bytes_max=unpacked_bytes_max)
        self._inputs = inputs

    @property
    def identity(self) -> ServerIdentity:
        return self._inputs.identity

    @property
    def uses_gtids(self) -> bool:
        return self._inputs.uses_gtids
