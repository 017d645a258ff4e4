"""Show the stored cursor, the lake's view of it, and what the next run would do (K3).

No server is queried, no JVM started.
"""

from __future__ import annotations

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.records import BatchKind, Note
from cdc_pipeline.position.cursor import CursorState, CursorStore, ResumePlace, StoredCursor
from cdc_pipeline.position.failback import Consumer
from cdc_pipeline.position.short_cursor import whole_cursor
from cdc_pipeline.run.plan.reconcile import Reconciled, reconcile
from cdc_pipeline.run.report import needed_position
from cdc_pipeline.run.wiring import build_sink


class CutSummary(FrozenModel):
    batch_number: int
    kind: BatchKind
    published_at_us: int
    place: ResumePlace
    tables: int
    notes: tuple[Note, ...]


class CursorView(FrozenModel):
    """The cursor of a source, whole if the lake has its cut.

    `agrees`: the next run resumes from it; `next_run`: what that does, and why, or the error it
    `stops` on; `unfinished_batch`: which it finishes first.
    """

    source: str
    cursor: StoredCursor | None
    where: str = ""
    written_at_us: int = -1
    run_id: str = ""
    last_cut: CutSummary | None
    agrees: bool
    next_run: str
    stops: bool = False
    unfinished_batch: int | None = None
    oldest_needed: Consumer | None = None


def view_cursor(config: PipelineConfig, *, cursors: CursorStore) -> CursorView:
    """Raises CursorError or LakeStateError if cursor or lake cannot be read."""
    sink = build_sink(config)
    cut, pending = sink.last_cut(), sink.pending_record()
    cursor = cursors.read()
    entry = next(iter(cursors.history(1)), None) if cursor is not None else None
    if cursor is not None and cut is not None:
        cursor = whole_cursor(cursor, cut.cursor) or cursor
    whole = cursor if isinstance(cursor, CursorState) else None
    stops, reconciled = False, Reconciled(whole, "", False)
    try:
        reconciled = reconcile(cursor, cut)
        next_run = reconciled.reason
    except LakeStateError as error:
        stops, next_run = True, str(error)
    if pending is not None:
        next_run += (
            f"; batch {pending.batch_number} is recorded but unfinished: the run finishes it first"
        )
    return CursorView(
        source=config.name,
        cursor=cursor,
        where="" if entry is None else entry.where,
        written_at_us=-1 if entry is None else entry.at_us,
        run_id="" if entry is None else entry.run_id,
        last_cut=None
        if cut is None
        else CutSummary(
            batch_number=cut.batch_number,
            kind=cut.kind,
            published_at_us=cut.published_at_us,
            place=cut.cursor.position,
            tables=len(cut.tables),
            notes=cut.notes,
        ),
        agrees=not stops and not reconciled.emit and pending is None,
        next_run=next_run,
        stops=stops,
        unfinished_batch=None if pending is None else pending.batch_number,
        oldest_needed=needed_position(reconciled.cursor),
    )
