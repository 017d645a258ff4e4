"""Check that the intervals read by a source's runs join without a gap, from the cursor's events.

Rules:
- Each event records the contiguous part of the log that its batch covered; the next one's begins
  where it ended. A batch that moved no cursor covers an empty interval at the cursor.
- When a person has moved the cursor, the chain starts again: that is reported and is not a gap. The
  same holds for another epoch, because offsets of two servers are unrelated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import dagster as dg

EVENTS_MAX: Final = 500
_MOVED: Final = frozenset({"cursor_set", "cursor_rebuilt"})  # kinds of notes
_NAMED_MAX: Final = 20


@dataclass(frozen=True)
class _Joined:
    """`passed`: None if there are fewer than two events; `values`: figures and the gaps."""

    passed: bool | None
    text: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Covered:
    batch_number: int
    epoch: int
    start: str
    end: str
    is_moved: bool


def check_intervals_join(instance: dg.DagsterInstance, cursor_key: dg.AssetKey) -> _Joined:
    """Compare the newest `EVENTS_MAX` events of a cursor asset."""
    records = instance.fetch_materializations(cursor_key, limit=EVENTS_MAX).records
    intervals = [
        covered
        for record in records
        if (covered := _covered(record.asset_materialization)) is not None
    ]
    intervals.reverse()
    if len(intervals) < 2:
        return _Joined(
            None,
            "fewer than two batches have recorded what they covered",
            {"events": len(intervals)},
        )
    gaps = [
        (
            f"batch {before.batch_number} ended at {before.end}, batch {after.batch_number} begins "
            f"at {after.start}"
        )
        for before, after in pairwise(intervals)
        if after.start != before.end and after.epoch == before.epoch and not after.is_moved
    ]
    moved = sum(one.is_moved for one in intervals)
    values = {
        "events": len(intervals),
        "gaps": len(gaps),
        "moved_by_a_person": moved,
        "named": gaps[:_NAMED_MAX],
    }
    if gaps:
        return _Joined(
            False,
            f"{len(gaps)} of {len(intervals)} batches do not begin where the previous one ended",
            values,
        )
    return _Joined(
        True,
        f"{len(intervals)} batches join, from {intervals[0].start} to {intervals[-1].end}",
        values,
    )


def _covered(materialization: dg.AssetMaterialization | None) -> _Covered | None:
    entries = {} if materialization is None else materialization.metadata
    interval, cursor = entries.get("interval"), entries.get("cursor")
    if not isinstance(interval, dg.TextMetadataValue) or not isinstance(
        cursor, dg.JsonMetadataValue
    ):
        return None
    start, dash, end = str(interval.value).partition(" - ")
    state = cursor.value
    if not dash or not isinstance(state, dict):
        return None
    return _Covered(
        batch_number=int(state.get("batch_number", 0)),
        epoch=int(state.get("epoch", 1)),
        start=start,
        end=end,
        is_moved=not _MOVED.isdisjoint(_note_kinds(entries.get("notes"))),
    )


def _note_kinds(value: object) -> list[str]:
    notes = value.value if isinstance(value, dg.JsonMetadataValue) else None
    if isinstance(value, dg.TextMetadataValue):
        notes = json.loads(value.value or "[]")
    return (
        [str(note.get("kind")) for note in notes if isinstance(note, dict)]
        if isinstance(notes, list)
        else []
    )
