"""Find the first transaction committed at or after a moment (SPEC P8; K6: clocks may go back).

Rules:
- Commit times are those of the transaction pass: the original commit timestamp of the GTID event if
  it has one, else the header's. They are not monotonic: the first in log order counts, and
  everything after it is read.
- A transaction is committed before the next journal is created. So the scan begins in the journal
  before the first one created after the moment. A journal created in the same second counts as
  created after it.
- If the clock was set back, a journal is older than its predecessor: that predecessor may contain
  any time and is scanned by itself, before the journals after it.
- A binary search may miss such a journal. If heads are local or journals few, all heads are read;
  otherwise each `_STRIDE`-th, which shows a clock that was set back by more than so many journals
  take, and those next to the one found, which show one that was set back by less. All are read once
  two heads contradict each other. Heads do not show a clock that was set back within one journal by
  less than its duration, which the fallback interval covers; nor, if not all are read, one that was
  set forward and back again within `_STRIDE` journals.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, cast

import numpy as np

from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.types import FIRST_OFFSET, SECOND_US, StartSource

ALL_READ_MAX: Final = 32
_STRIDE: Final = 8
_NEIGHBOURS_READ: Final = 2 * _STRIDE


def search_by_time(
    source: StartSource, *, t_us: int, end: Position | None = None, journal: str = ""
) -> Position | None:
    """The begin of the first transaction committed at or after `t_us`; None if there is none.

    Args:
        t_us: microseconds since 1970 UTC.
        end: where the search ends; the end of the log by default.
        journal: search in this journal only (P4).

    Returns:
        A position with the journal's creation time, and timestamp and server id of the
        transaction's first event, but without a GTID set.

    Raises:
        BinlogError, SourceError: the log cannot be read.
    """
    end = end or source.end_position()
    if journal:
        return _scan(source, Position(journal, FIRST_OFFSET), end, t_us=t_us, only=journal)
    names = [info.journal for info in source.journals()]
    names = names[: names.index(end.journal) + 1] if end.journal in names else names
    journals = journals_to_scan(source, names, t_us=t_us)
    for single in (names[index] for index in journals.single):
        position = _scan(source, Position(single, FIRST_OFFSET), end, t_us=t_us, only=single)
        if position is not None:
            return position
    return _scan(source, Position(names[journals.first], FIRST_OFFSET), end, t_us=t_us, only="")


class JournalsToScan(NamedTuple):
    """The journals that may contain transactions committed at or after a moment.

    Attributes:
        single: indexes of journals before `first`, in order, after which the clock was set back.
        first: index of the first of the journals that are all read.
    """

    single: tuple[int, ...]
    first: int


def journals_to_scan(source: StartSource, names: Sequence[str], *, t_us: int) -> JournalsToScan:
    """Which of the journals `names`, oldest first, to scan for the moment `t_us`."""
    created: dict[int, int] = {}

    def is_after(index: int) -> bool:
        if index not in created:
            created[index] = source.journal_created_s(names[index])
        return (created[index] + 1) * SECOND_US > t_us

    if not source.heads_are_local and len(names) > ALL_READ_MAX:
        low, high = 0, len(names)
        while low < high:
            middle = (low + high) // 2
            if is_after(middle):
                high = middle
            else:
                low = middle + 1
        nearby = range(max(0, low - _NEIGHBOURS_READ), min(len(names), low + 1))
        for index in (*nearby, *range(0, len(names), _STRIDE)):
            is_after(index)
        times = [created[index] for index in sorted(created)]
        if times == sorted(times):
            return JournalsToScan((), max(0, low - 1))
    after = [is_after(index) for index in range(len(names))]
    first = max(0, (after.index(True) if True in after else len(names)) - 1)
    return JournalsToScan(
        tuple(index for index in range(first) if created[index + 1] < created[index]), first
    )


def _scan(
    source: StartSource, start: Position, end: Position, *, t_us: int, only: str
) -> Position | None:
    from cdc_pipeline.binlog.transactions.grouping import (
        TransactionPass,  # loads compiled code, so only when a journal is read
    )

    grouping = TransactionPass()
    with closing(cast(Any, source.chunks(start, end))) as chunks:
        for chunk in chunks:
            if only and chunk.journal != only:
                break
            starts = grouping.apply(chunk).starts
            rows = starts[chunk.events["commit_ts_us"][starts] >= t_us]
            if not len(rows):
                continue
            event = chunk.events[int(np.min(rows))]
            return Position(
                chunk.journal,
                int(event["offset"]),
                timestamp_s=int(event["timestamp_s"]),
                server_id=int(event["server_id"]),
                journal_created_s=chunk.journal_format.created_s,
            )
    return None
