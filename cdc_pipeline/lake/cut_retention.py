"""Which cuts are kept (K15).

Rules:
- A cut goes when the one after it is older than the retention: until then it was the state of some
  readable moment. The newest cut always stays, and so does the last one that a suspended table was
  part of.
- Times are of a clock that may have been wrong when a cut was published. One that is in the future,
  or before that of an earlier cut, says nothing: such a cut counts as published with the next one
  whose time is plausible. So a clock that was set back takes no young cut, and one that was ahead
  keeps none for longer than the cuts after it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

from cdc_pipeline.clock import now_us
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.table_facts import prune_facts


def prune_cuts(
    paths: LakePaths, *, retention: timedelta, numbers: state.Numbers | None = None
) -> int:
    """Remove cuts that are older than `retention`; return how many. Safe beside readers and other
    writers. `numbers`: what the holder of the lock knows, which then lacks those that were removed.
    """
    numbers = numbers or state.Numbers(list_numbers(paths.cuts), [], [])
    if len(numbers.cuts) < 2:
        return 0
    gone: list[int] = []
    try:
        newest = state.last_cut(paths, numbers)
        assert newest is not None
        kept = {
            target.applied_batch
            for target in newest.cursor.targets.values()
            if target.suspended is not None
        }
        for number in _expired(paths, numbers.cuts, retention)[0]:
            if number not in kept:
                paths.cut(number).unlink(missing_ok=True)
                gone.append(number)
        if gone:
            prune_facts(
                paths,
                [
                    state.read_cut(paths, number)
                    for number in _oldest(numbers.cuts, set(gone), kept)
                ],
            )
    except LakeStateError:
        # Whoever reads a damaged old cut gets the error; no capture stops for it.
        pass
    for number in gone:  # all near the begin
        numbers.cuts.remove(number)
    return len(gone)


def oldest_kept(paths: LakePaths, *, retention: timedelta) -> tuple[int, int] | None:
    """The oldest cut that its age keeps, and a time before which it was not published, 0 if none is
    known; None if the newest cut alone is kept (or others only for a suspended table).
    """
    numbers = list_numbers(paths.cuts)
    expired, since_us = _expired(paths, numbers, retention)
    kept = numbers[len(expired) :]
    return (kept[0], since_us) if len(kept) > 1 else None


def _expired(paths: LakePaths, numbers: list[int], retention: timedelta) -> tuple[list[int], int]:
    """The oldest cuts, which those after them have outlived by the retention; a time before which
    the next one was not published, 0 if none is known. A damaged cut ends the search.
    """
    at_us, latest_us = now_us(), 0
    oldest_us = at_us - round(retention.total_seconds() * 1e6)
    expired: list[int] = []
    undated: list[int] = []
    with suppress(LakeStateError):
        published_us = state.read_cut(paths, numbers[0]).published_at_us if numbers else 0
        latest_us = published_us if published_us <= at_us else 0
        for number, following in pairwise(numbers):
            undated.append(number)
            published_us = state.read_cut(paths, following).published_at_us
            if not latest_us <= published_us <= at_us:
                continue
            if published_us >= oldest_us:
                break
            latest_us = published_us
            expired += undated
            undated.clear()
    return expired, latest_us


def _oldest(numbers: list[int], gone: set[int], kept: set[int]) -> list[int]:
    """The oldest cut of those without a gap up to the newest, and all older ones."""
    found = []
    for number in numbers:
        if number in gone:
            continue
        found.append(number)
        if number not in kept:
            break
    return found
