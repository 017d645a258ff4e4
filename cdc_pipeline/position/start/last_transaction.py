"""Check that a log in which reading goes on by GTID set has the cursor's last transaction (K24: a
GTID that was used twice must not pass for the transaction that was read).

Rules:
- A set says which numbers were executed, and not what they did. A server that was reset or set back
  gives the same numbers to other transactions, and its replicas have these. With another server's
  log, or when the cursor's journal was purged, `same_log` has no journal to compare.
- A cursor therefore records the GTID of the last transaction that was read and its commit time at
  the server that committed it first, which replicas keep: microseconds on MySQL, seconds on
  MariaDB. The transaction of that GTID must have that time.
- On MariaDB a number belongs to one transaction of its domain: the number of another server in its
  place shows another history as well.
- It is searched in the one journal that can hold it; that journal is read up to it. If it was
  purged, there is nothing to compare, and the sets decide alone.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, EventSlice
from cdc_pipeline.binlog.event_types import GTID_TYPES
from cdc_pipeline.errors import ServerSettingError
from cdc_pipeline.position.position import LoggedTransaction, Position
from cdc_pipeline.position.start.executed import journals_before
from cdc_pipeline.position.start.same_log import other_log
from cdc_pipeline.position.start.types import FIRST_OFFSET, StartSource


def last_gtid(piece: EventSlice) -> str:
    """The GTID of the last transaction that begins in `piece`; "" if none with a GTID does."""
    rows = np.flatnonzero(np.isin(piece.events["event_type"], GTID_TYPES))
    return _gtid(piece.chunk, piece.first + int(rows[-1])) if len(rows) else ""


def check_last_transaction(
    source: StartSource, position: Position, *, pipeline_name: str = ""
) -> None:
    """Raise unless the source's transaction of the GTID that was read last is the one that was
    read.

    Args:
        source: a source with GTIDs, which has executed the position's set.
        position: with the last transaction that was read, if it is known.
        pipeline_name: name for the commands in the error.

    Raises:
        SourceIdentityError: it was committed at another time.
        SourceError, BinlogError: the log cannot be read.
    """
    known = position.last_transaction
    if known is None:
        return
    try:
        journal = _journal_of(source, known.gtid)
        logged = _find(source, journal, known) if journal else None
    except ServerSettingError:
        return  # MySQL with GTIDs sends no journal of a time without them
    if logged is None or logged == known:
        return
    raise other_log(
        source,
        position,
        expected=f"{known.gtid} committed at {known.committed_us / 1e6:.6f} (seconds since 1970)",
        got=f"{logged.gtid} committed at {logged.committed_us / 1e6:.6f}, in {journal}",
        pipeline_name=pipeline_name,
    )


def _journal_of(source: StartSource, gtid: str) -> str:
    """The newest journal before which `gtid` was not executed; "" if it was purged."""
    names = [info.journal for info in source.journals()]
    before = journals_before(source, names, gtid)
    return names[before - 1] if before else ""


def _find(source: StartSource, journal: str, known: LoggedTransaction) -> LoggedTransaction | None:
    """The journal's transaction of the GTID of `known`, or else of its number in its domain; None
    if there is neither.
    """
    from cdc_pipeline.binlog.transactions.grouping import TransactionPass

    grouping = TransactionPass()
    other: LoggedTransaction | None = None
    chunks = source.chunks(Position(journal, FIRST_OFFSET), source.end_position())
    with closing(cast(Any, chunks)) as read:
        for chunk in read:
            if chunk.journal != journal:
                break
            grouping.apply(chunk)
            for row in _rows_of_number(chunk, known.gtid):
                gtid, committed_us = _gtid(chunk, row), int(chunk.events["commit_ts_us"][row])
                if gtid == known.gtid:
                    return LoggedTransaction(gtid, committed_us)
                if chunk.journal_format.is_mariadb and _place(gtid) == _place(known.gtid):
                    other = LoggedTransaction(gtid, committed_us)
    return other


def _rows_of_number(chunk: Chunk, gtid: str) -> list[int]:
    """The rows of the GTID events of a chunk that may have the number of `gtid`."""
    from cdc_pipeline.binlog.events.gtid import executed

    number = int(gtid.replace(":", "-").rpartition("-")[2])
    there = executed(chunk, 0, len(chunk.events)).values()
    if not any(number in numbers for numbers in there):
        return []
    return np.flatnonzero(np.isin(chunk.events["event_type"], GTID_TYPES)).tolist()


def _place(gtid: str) -> tuple[str, str]:
    return gtid.partition("-")[0], gtid.rpartition("-")[2]


def _gtid(chunk: Chunk, row: int) -> str:
    """The GTID of an event as text; "" if it executes nothing of its own."""
    from cdc_pipeline.binlog.events.gtid import executed

    separator = "-" if chunk.journal_format.is_mariadb else ":"
    for key, numbers in executed(chunk, row, row + 1).items():
        return f"{key}{separator}{int(numbers[-1])}"
    return ""
