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


def prune_cuts(paths: LakePaths, *, retention: timedelta) -> int:
    """Remove expired cuts; return how many. Safe beside readers and other writers."""
    numbers = list_numbers(paths.cuts)
    if len(numbers) < 2:
        return 0
    oldest_us = now_us() - round(retention.total_seconds() * 1e6)
    removed = 0
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
                removed += 1
        if removed:
            left = list_numbers(paths.cuts)
            oldest = next(number for number in left if number not in kept or number == numbers[-1])
            prune_facts(
                paths, [state.read_cut(paths, number) for number in left if number <= oldest]
            )
    except LakeStateError:
        # Whoever reads a damaged old cut gets the error; no capture stops for it.
        return removed
    return removed
