"""The order of a source's cuts, by which one of many is found with few reads.

Rules:
- Each cut holds the latest source time of itself and all cuts before it, and the number of the
  oldest cut since which the GTID sets only grow (`ordered_from`). Cuts from there up to it are a
  *section*: within one, whether a cut has a transaction, or is later than a moment, changes once,
  from no to yes.
- A section ends where a GTID set loses something: a person moved the cursor back, the server
  stopped using GTIDs, another server has other transactions. Sections are few, and each one's last
  cut names its first, so that they are found from the newest cut backwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from cdc_pipeline.lake.records import Cut

CutReader = Callable[[int], Cut]


def with_order(cut: Cut, previous: Cut | None) -> Cut:
    latest_us, ordered_from = cut.source_time_us, cut.batch_number
    if previous is not None:
        latest_us = max(latest_us, previous.latest_source_time_us)
        if _only_grows(previous, cut):
            ordered_from = previous.ordered_from
    return cut.model_copy(update={"latest_source_time_us": latest_us, "ordered_from": ordered_from})


def first_cut(numbers: Sequence[int], read: CutReader, holds: Callable[[Cut], bool]) -> int:
    """The index of the first cut for which `holds`; their count if there is none. `holds`: true of
    a cut if it is true of an earlier one of the same section.
    """
    index = len(numbers)
    for low, last, newest in sections(numbers, read):
        if holds(newest):
            index = bisect_left(numbers, True, low, last, key=lambda number: holds(read(number)))
    return index


def sections(numbers: Sequence[int], read: CutReader) -> Iterator[tuple[int, int, Cut]]:
    """Yield the sections, newest first: index of the first cut, index of the last, and that cut."""
    last = len(numbers) - 1
    while last >= 0:
        cut = read(numbers[last])
        low = bisect_left(numbers, cut.ordered_from, 0, last)
        yield low, last, cut
        last = low - 1


def _only_grows(previous: Cut, cut: Cut) -> bool:
    before, after = previous.cursor, cut.cursor
    if before.gtid_set == after.gtid_set or not before.gtid_set:
        return True
    if not after.gtid_set or before.flavor != after.flavor:
        return False
    # Late: it needs numpy, and most readers of cuts compare no GTID sets.
    from cdc_pipeline.position.gtid.sets import parse_gtid_set

    held = parse_gtid_set(before.gtid_set, before.flavor)
    grown = parse_gtid_set(after.gtid_set, after.flavor)
    # A MariaDB position has all servers of its domains, a state only those that it names.
    is_same_form = getattr(held, "is_state", False) == getattr(grown, "is_state", False)
    return is_same_form and grown.contains(held)
