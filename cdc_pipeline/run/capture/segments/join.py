"""Join the parts of a batch that several tasks staged into its record (K2).

Rules:
- The parts come from one cut and follow each other in the log, so that the record equals that of a
  single process: files and counts together, the cursor of the last part, the interval from the
  first begin to the last end.
- A target that several parts create is created once, under the transaction id from the first of
  them.
- Parts that disagree about a target (columns, key, sources ...) are not joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Final

from cdc_pipeline.errors import StagingError
from cdc_pipeline.lake.records import BatchRecord, Interval, RecordedTarget
from cdc_pipeline.position.cursor import CursorState, TargetState
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.run.capture.segments.segment import SegmentResult

# Facts about a target in which all parts must agree.
_SAME: Final = ("spec", "columns_before", "schema_steps")


def joined(
    before: CursorState,
    results: Sequence[SegmentResult],
    *,
    run_id: str = "",
    keeps_gtids: bool = True,
) -> BatchRecord:
    """Of the batch of all parts, which began with `before`; StagingError if they do not agree."""
    parts = [result.part for result in results]
    start, number = before.position, before.batch_number + 1
    states = _states(parts)
    executed = parse_gtid_set(before.gtid_set, before.flavor)
    by_target: dict[str, list[RecordedTarget]] = {}
    for part in parts:
        executed = executed.union(parse_gtid_set(part.cursor_after.gtid_set, before.flavor))
        for target in part.targets:
            by_target.setdefault(target.table, []).append(target)
    cursor = parts[-1].cursor_after.model_copy(
        update={
            "batch_number": number,
            "gtid_set": str(executed) if keeps_gtids else "",
            "targets": states,
            "open_xa": before.open_xa,
        }
    )
    intervals = (part.interval for part in parts)
    times = (part.source_time_us for part in reversed(parts) if part.source_time_us >= 0)
    return BatchRecord(
        source=before.source,
        batch_number=number,
        run_id=run_id,
        start=start,
        interval=reduce(Interval.then, intervals, Interval(start=start, end=start)),
        cursor_after=cursor,
        source_time_us=next(times, -1),
        targets=tuple(_joined(of, states[name]) for name, of in sorted(by_target.items())),
        quarantine=tuple(file for part in parts for file in part.quarantine),
        ddl=tuple(decision for part in parts for decision in part.ddl),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _states(parts: Sequence[BatchRecord]) -> dict[str, TargetState]:
    states: dict[str, TargetState] = {}
    for part in parts:
        for name, state in part.cursor_after.targets.items():
            earlier = states.setdefault(name, state)
            if earlier.sources != state.sources or earlier.suspended != state.suspended:
                raise _apart(name)
            update = {
                "partial": earlier.partial or state.partial,
                "exact": earlier.exact and state.exact,
            }
            states[name] = earlier.model_copy(update=update)
    return dict(sorted(states.items()))


def _joined(found: Sequence[RecordedTarget], state: TargetState) -> RecordedTarget:
    first = found[0]
    if any(getattr(one, name) != getattr(first, name) for one in found[1:] for name in _SAME):
        raise _apart(first.table)
    rescued: Counter[str] = Counter()
    for one in found:
        rescued.update(one.rescued)
    return first.model_copy(
        update={
            "app_id": state.app_id,
            "create": any(one.create for one in found),
            "partial": any(one.partial for one in found),
            "exact": all(one.exact for one in found),
            "all_present": all(one.all_present for one in found),
            "rescues": any(one.rescues for one in found),
            "rescued": {
                name: rescued[name]
                for name in sorted({name for one in found for name in one.rescued})
            },
            "files": tuple(file for one in found for file in one.files),
            **{
                name: sum(getattr(one, name) for one in found)
                for name in (
                    "rows_inserted",
                    "rows_updated",
                    "rows_deleted",
                    "partial_key_updates",
                    "rescued_rows",
                    "rows_gone",
                )
            },
        }
    )


def _apart(table: str) -> StagingError:
    return StagingError(
        "parts of a batch that were staged separately disagree about a target", table=table
    )
