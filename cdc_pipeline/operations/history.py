"""The past of a source as its lake tells it: what each batch did. Reads cuts alone: no source, no
JVM."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cdc_pipeline.clock import time_of
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import BatchKind, Cut

_WHAT: Final[dict[BatchKind, str]] = {
    "batch": "capture",
    "catch_up": "state or catch-up",
    "cursor_set": "cursor moved",
    "replay": "quarantine replayed",
    "snapshot": "snapshot",
    "repair": "repair",
    "erase": "rows erased",
}


class PastBatch(FrozenModel):
    """`what`: the kind in words; `transactions`: with changes of captured tables; `changed`: row
    changes by table; `notes`: what was decided or done by hand, in words.
    """

    number: int
    kind: BatchKind
    what: str
    published_at: datetime
    source_time: datetime | None
    start: str
    end: str
    transactions: int
    changed: dict[str, int]
    suspended: tuple[str, ...]
    notes: tuple[str, ...]


def past_batches(config: PipelineConfig, *, limit: int) -> list[PastBatch]:
    """Those that the lake still names, newest first; raises LakeStateError if a cut is damaged."""
    paths = LakePaths.of(config)
    batches = []
    for number in reversed(list_numbers(paths.cuts)[-limit:]):
        try:
            batches.append(_past(state.read_cut(paths, number)))
        except LakeStateError:
            if number in list_numbers(paths.cuts):
                raise
            # its retention has ended meanwhile
    return batches


def _past(cut: Cut) -> PastBatch:
    interval = cut.interval
    return PastBatch(
        number=cut.batch_number,
        kind=cut.kind,
        what=_WHAT[cut.kind],
        published_at=time_of(cut.published_at_us),
        source_time=None if cut.source_time_us < 0 else time_of(cut.source_time_us),
        start=str(interval.start),
        end=str(interval.end),
        transactions=interval.transactions_applied,
        changed={
            name: table.row_changes for name, table in cut.tables.items() if table.row_changes
        },
        suspended=tuple(sorted(cut.cursor.suspended)),
        notes=tuple(f"{note.table + ': ' if note.table else ''}{note.text}" for note in cut.notes),
    )
