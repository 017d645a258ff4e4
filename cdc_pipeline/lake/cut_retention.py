"""Which cuts are kept (K15).

Rules:
- A cut goes when the one after it is older than the retention: until then it was the state of some
  readable moment. The newest cut always stays, and so does the last one that a suspended table was
  part of.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from cdc_pipeline.clock import now_us
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.table_facts import prune_facts


def prune_cuts(paths: LakePaths, *, retention: timedelta, listed: list[int] | None = None) -> int:
    """Remove expired cuts; return how many. Safe beside readers and other writers.

    Args:
        paths: of the lake.
        retention: how long a cut stays readable.
        listed: the numbers of the cuts that the holder of the lock knows, which then lack those
            that were removed; listed by default.
    """
    numbers = list_numbers(paths.cuts) if listed is None else list(listed)
    if len(numbers) < 2:
        return 0
    oldest_us = now_us() - round(retention.total_seconds() * 1e6)
    gone: list[int] = []
    try:
        kept = {
            target.applied_batch
            for target in state.read_cut(paths, numbers[-1]).cursor.targets.values()
            if target.suspended is not None
        }
        for number, following in pairwise(numbers):
            if state.read_cut(paths, following).published_at_us >= oldest_us:
                break
            if number not in kept:
                paths.cut(number).unlink(missing_ok=True)
                gone.append(number)
        if gone:
            prune_facts(
                paths,
                [state.read_cut(paths, number) for number in _oldest(numbers, set(gone), kept)],
            )
    except LakeStateError:
        # Whoever reads a damaged old cut gets the error; no capture stops for it.
        pass
    if listed is not None:
        for number in gone:  # all near the begin
            listed.remove(number)
    return len(gone)


def _oldest(numbers: list[int], gone: set[int], kept: set[int]) -> list[int]:
    """Return the oldest cut of those without a gap up to the newest, and all older ones."""
    found = []
    for number in numbers:
        if number in gone:
            continue
        found.append(number)
        if number not in kept:
            break
    return found
