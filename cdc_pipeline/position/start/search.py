"""Find the first transaction committed at or after a moment (SPEC P8; K6: clocks may go back).

Rules:
- Commit times are those of the transaction pass: the original commit timestamp of the GTID event if
  it has one, else the header's. They are not monotonic: the first in log order counts, and
  everything after it is read.
- A transaction is committed before the next journal is created. So the scan begins in the journal
  before the first one created after the moment, to the second.
- If the clock was set back, a journal is older than its predecessor: that predecessor may contain
  any time and is scanned by itself, before the journals after it. Every head up to the scan's begin
  is read, also if each costs a dump: a binary search passes over a clock that was set forward and
  back again, and whatever followed would be lost.
- Heads do not show a clock that was set back within one journal by less than its duration. Most
  of that is covered: a journal created in the minute up to the moment counts as created after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, cast

import numpy as np

from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.types import FIRST_OFFSET, SECOND_US, StartSource

_SET_BACK_MAX_US: Final = 60 * SECOND_US


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
    created_s: list[int] = []
    for name in names:
        created_s.append(source.journal_created_s(name))
        if created_s[-1] * SECOND_US + _SET_BACK_MAX_US > t_us:
            break
    else:
        created_s.append(created_s[-1])  # the end of the log, after which nothing is created
    first = max(0, len(created_s) - 2)
    set_back = (index for index in range(first) if created_s[index + 1] < created_s[index])
    return JournalsToScan(tuple(set_back), first)


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
