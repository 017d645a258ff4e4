"""Publish a cut: tell the observer, write the cursor, clean up (K2, K3).

Rules:
- Every batch ends here: of a capture, a catch-up, a snapshot, a repair, a person.
- The cursor follows the cut. If a run crashes in between, the next one compares cursor and cut and
  repairs the difference (`plan/reconcile.py`). A capture acks after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.records import BatchRecord, Cut, Interval, Note
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.schema.evolution.steps import DdlDecision
from cdc_pipeline.sink.lake_sink import Sink


@dataclass(frozen=True, slots=True)
class Publisher:
    sink: Sink
    cursors: CursorStore
    observer: RunObserver = field(default_factory=RunObserver)
    run_id: str = ""

    def finish(self, record: BatchRecord, metadata: Mapping[str, object] | None = None) -> Cut:
        return self.publish(self.merge(record), metadata)

    def merge(self, record: BatchRecord) -> Cut:
        self.observer.merging()
        return self.sink.finish(record, on_merged=self.observer.merged)

    def publish(self, cut: Cut, metadata: Mapping[str, object] | None = None) -> Cut:
        self.observer.published(cut)
        self.move_to_cut(cut, metadata)
        return cut

    def move(
        self,
        cursor: CursorState,
        interval: Interval,
        metadata: Mapping[str, object] | None = None,
        *,
        ddl: Sequence[DdlDecision] = (),
        notes: Sequence[Note] = (),
    ) -> None:
        """Move the cursor alone, over a part of the log that changes no target."""
        shown, cut = cursor_metadata(interval, None, ddl, notes), self.sink.last_cut()
        at_us = 0 if cut is None else cut.published_at_us
        cursor = cursor.model_copy(update={"cut_published_at_us": at_us})
        self.cursors.write(cursor, {**shown, **(metadata or {})})

    def move_to_cut(self, cut: Cut, metadata: Mapping[str, object] | None = None) -> None:
        reach("before_cursor")
        self.cursors.write(cut.cursor, {**cursor_metadata(cut.interval, cut), **(metadata or {})})
        reach("before_ack")
        self.sink.cleanup(cut)


def cursor_metadata(
    interval: Interval,
    cut: Cut | None,
    ddl: Sequence[DdlDecision] = (),
    notes: Sequence[Note] = (),
) -> dict[str, object]:
    if cut is not None:
        ddl, notes = cut.ddl, cut.notes
    metadata: dict[str, object] = {"interval": interval.model_dump()}
    if ddl or cut is not None:
        metadata["ddl"] = [decision.model_dump() for decision in ddl]
    if notes:
        metadata["notes"] = [note.model_dump() for note in notes]
    if cut is None:
        return metadata
    return metadata | {
        "cut": cut.batch_number,
        "source_time_us": cut.source_time_us,
        "published_at_us": cut.published_at_us,
        "tables": {name: table.table_version for name, table in cut.tables.items()},
        "rows": sum(table.row_changes for table in cut.tables.values()),
    }


def start_metadata(reasons: tuple[str, ...]) -> dict[str, object]:
    return {"start_reasons": list(reasons)} if reasons else {}
