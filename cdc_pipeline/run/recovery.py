"""Bring lake and cursor to one state: finish what is recorded, remove what is not (K2, K3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc_pipeline.errors import CdcError, LakeStateError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.schema_history import SchemaHistoryFile
from cdc_pipeline.position.cursor import CursorState, TargetState
from cdc_pipeline.run.plan.reconcile import Reconciled, reconcile
from cdc_pipeline.run.publish import Publisher


@dataclass(frozen=True, slots=True)
class Recovered:
    """`finished`: the cut of a batch that an earlier run had recorded; `failing`: targets that are
    not as the last cut says, and that no batch has left behind yet; `suspended_before` that batch.
    """

    cut: Cut | None
    cursor: CursorState | None
    cursor_reason: str
    finished: Cut | None
    failing: Mapping[str, CdcError]
    suspended_before: frozenset[str]


def recover(
    publisher: Publisher, *, leaves: Callable[[TargetState], bool] | None = None
) -> Recovered:
    """Finish what is recorded, remove what is not, and move the cursor to the last cut. `leaves`:
    targets that the batch leaves behind. Raises LakeStateError: cursor and lake contradict each
    other, or are of a newer version; SinkError: the record stays and the next run finishes it.
    """
    sink = publisher.sink
    cut, pending, stored = sink.last_cut(), sink.pending_record(), publisher.cursors.read()
    if pending is not None:
        # what a newer version wrote is refused before anything is
        SchemaHistoryFile(sink.paths.schema_history).read()
    reconciled = reconcile(stored, cut)
    sink.discard_unrecorded()
    states = {} if cut is None else cut.cursor.targets
    failing: dict[str, LakeStateError] = {}
    if cut is not None and leaves is not None:
        failures = sink.failing_targets(cut)
        failing = {name: error for name, error in failures.items() if leaves(states[name])}
    suspended = set() if cut is None else set(cut.cursor.suspended)
    finished = None
    if pending is not None:
        suspended.update(pending.cursor_after.suspended)
        tables = {target.table for target in pending.targets}
        given_up = {name: error for name, error in failing.items() if name in tables}
        failing = {name: error for name, error in failing.items() if name not in tables}
        cut = finished = sink.finish(pending, recovered=True, given_up=given_up)
        reason = (
            f"batch {cut.batch_number} was recorded but unfinished; it was finished "
            "from its own files"
        )
        reconciled = Reconciled(cut.cursor, reason, True)
    metadata = {"cursor_reason": reconciled.reason}
    if finished is not None:
        publisher.publish(finished, metadata)
    elif cut is not None and reconciled.emit:
        publisher.move_to_cut(cut, metadata)
    elif cut is not None:
        sink.cleanup(cut)
    return Recovered(
        cut, reconciled.cursor, reconciled.reason, finished, failing, frozenset(suspended)
    )
