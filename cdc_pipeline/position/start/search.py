"""The first transaction that was committed at or after a moment (SPEC P8, K6).

Rules:
- Commit times are those of the transaction pass: the original commit timestamp of the GTID event where it has one,
  else the header's. They are not monotone: the first in the order of the log counts, and all that follows it is read.
- A transaction of a journal was committed before the next journal was created. So the scan begins in the journal
  before the first one that was created after the moment, and a journal created in the moment's own second counts as
  created after it.
- Where the clock was set back, a journal is created before its predecessor: that predecessor may hold any time, and is
  scanned by itself, before the journals after it.
- Such a place hides from a binary search. Where heads are local, or journals few, all are asked; else those next to the
  place found, and all of them as soon as two of those asked contradict each other. A clock that was set back within one
  journal, by less than the journal took, does not show in heads: the fallback interval is for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, cast

import numpy as np

from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.types import FIRST_OFFSET, SECOND_US, StartSource

ALL_ASKED_MAX: Final = 32
_NEIGHBOURS_ASKED: Final = 8


def search_by_time(
    source: StartSource, *, t_us: int, end: Position | None = None, journal: str = ""
) -> Position | None:
    """Begin of the first transaction with a commit time at or after `t_us`; None where there is none.

    Args:
        source: the log.
        t_us: microseconds since 1970 UTC.
        end: where the search ends; the end of the log by default.
        journal: search in this journal only (P4).

    Returns:
        Position with the journal's creation time, and timestamp and server id of the transaction's first event; without
        a GTID set.

    Raises:
        BinlogError, SourceError: the log cannot be read.
    """
    end = end or source.end_position()
    if journal:
        return _scan(source, Position(journal, FIRST_OFFSET), end, t_us=t_us, only=journal)
    names = [info.journal for info in source.journals()]
    names = names[: names.index(end.journal) + 1] if end.journal in names else names
    places = places_to_scan(source, names, t_us=t_us)
    for alone in (names[index] for index in places.alone):
        found = _scan(source, Position(alone, FIRST_OFFSET), end, t_us=t_us, only=alone)
        if found is not None:
            return found
    return _scan(source, Position(names[places.first], FIRST_OFFSET), end, t_us=t_us, only="")


class Places(NamedTuple):
    """Where the transactions that were committed at or after a moment can be.

    Attributes:
        alone: indexes of journals before `first`, in order, after which the clock was set back.
        first: index of the journal from which on all are read.
    """

    alone: tuple[int, ...]
    first: int


def places_to_scan(source: StartSource, names: Sequence[str], *, t_us: int) -> Places:
    """What to scan of the journals `names`, oldest first, for the moment `t_us`."""
    created: dict[int, int] = {}

    def is_after(index: int) -> bool:
        if index not in created:
            created[index] = source.journal_created_s(names[index])
        return (created[index] + 1) * SECOND_US > t_us

    if not source.heads_are_local and len(names) > ALL_ASKED_MAX:
        low, high = 0, len(names)
        while low < high:
            middle = (low + high) // 2
            if is_after(middle):
                high = middle
            else:
                low = middle + 1
        for index in range(max(0, low - _NEIGHBOURS_ASKED), min(len(names), low + 1)):
            is_after(index)
        times = [created[index] for index in sorted(created)]
        if times == sorted(times):
            return Places((), max(0, low - 1))
    after = [is_after(index) for index in range(len(names))]
    first = max(0, (after.index(True) if True in after else len(names)) - 1)
    return Places(tuple(index for index in range(first) if created[index + 1] < created[index]), first)


def _scan(source: StartSource, start: Position, end: Position, *, t_us: int, only: str) -> Position | None:
    from cdc_pipeline.binlog.transactions.grouping import (
        TransactionPass,  # compiled code is loaded only where a journal is read
    )

    grouping = TransactionPass()
    with closing(cast(Any, source.chunks(start, end))) as chunks:
        for chunk in chunks:
            if only and chunk.journal != only:
                break
            starts = grouping.apply(chunk).starts
            found = starts[chunk.events["commit_ts_us"][starts] >= t_us]
            if not len(found):
                continue
            event = chunk.events[int(np.min(found))]
            return Position(
                chunk.journal,
                int(event["offset"]),
                timestamp_s=int(event["timestamp_s"]),
                server_id=int(event["server_id"]),
                journal_created_s=chunk.journal_format.created_s,
            )
    return None
