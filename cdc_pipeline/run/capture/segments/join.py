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
from typing import Any, Final

from cdc_pipeline.errors import StagingError
from cdc_pipeline.lake.records import BatchRecord, Interval, RecordedTarget
from cdc_pipeline.position.cursor import CursorState, TargetState
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.segments.segment import SegmentResult

# Facts about a target in which all parts must agree.
_SAME: Final = ("spec", "columns_before", "schema_steps")


def joined_cursor(
    before: CursorState, results: Sequence[SegmentResult], *, number: int, keeps_gtids: bool = True
) -> CursorState:
    """Behind all parts, which began with `before`; StagingError if they do not agree."""
    targets: dict[str, TargetState] = {}
    for result in results:
        for name, state in result.part.cursor_after.targets.items():
            there = targets.get(name)
            if there is None:
                targets[name] = state
                continue
            if there.sources != state.sources or there.suspended != state.suspended:
                raise _apart(name)
            update = {
                "partial": there.partial or state.partial,
                "exact": there.exact and state.exact,
            }
            targets[name] = there.model_copy(update=update)
    last = results[-1].part.cursor_after
    return last.model_copy(
        update={
            "batch_number": number,
            "gtid_set": _executed(before, results) if keeps_gtids else "",
            "targets": dict(sorted(targets.items())),
            "open_xa": before.open_xa,
        }
    )


def _executed(before: CursorState, results: Sequence[SegmentResult]) -> str:
    executed: Any = parse_gtid_set(before.gtid_set, before.flavor)
    for result in results:
        executed = executed.union(parse_gtid_set(result.part.cursor_after.gtid_set, before.flavor))
    return str(executed)


def joined_record(
    parts: Sequence[SegmentResult],
    *,
    source: str,
    cursor: CursorState,
    start: Position,
    run_id: str,
) -> BatchRecord:
    """`cursor`: behind the batch; `start`: before it. Raises StagingError if parts do not agree."""
    records = [part.part for part in parts]
    by_target: dict[str, list[RecordedTarget]] = {}
    for record in records:
        for target in record.targets:
            by_target.setdefault(target.table, []).append(target)
    targets = [
        _joined(parts_of_target, cursor.targets[name])
        for name, parts_of_target in sorted(by_target.items())
    ]
    return BatchRecord(
        source=source,
        batch_number=cursor.batch_number,
        run_id=run_id,
        start=start,
        interval=joined_interval(parts, start=start),
        cursor_after=cursor,
        source_time_us=next(
            (record.source_time_us for record in reversed(records) if record.source_time_us >= 0),
            -1,
        ),
        targets=tuple(targets),
        quarantine=tuple(file for record in records for file in record.quarantine),
        ddl=tuple(decision for record in records for decision in record.ddl),
        notes=tuple(note for record in records for note in record.notes),
    )


def joined_interval(parts: Sequence[SegmentResult], *, start: Position) -> Interval:
    intervals = (part.part.interval for part in parts)
    return reduce(Interval.then, intervals, Interval(start=start, end=start))


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
