"""Check that a cursor's log is still the source's log (K24: a replaced log must not be read on).

Rules:
- A server that was set back (a disk snapshot, a power cut, a restore) writes other transactions
  under the same journal names and GTIDs. Journal, offset and GTID set may all match, and rows of
  the lost transactions would stay in the lake forever.
- A cursor therefore records the last events that were read before it: offset, length and CRC32.
  Before a run reads on, the journal must reach the cursor's offset, have the cursor's creation time
  and contain those events. Reading them costs one short dump.
- They are several, because the last one alone says little: it ends a transaction, and two
  transactions that differ in their rows end alike if they end in the same second. They begin after
  a GTID: by offset a server may refuse to send those of a time when its gtid_mode was another one.
- Only small events are recorded, so that the check never transfers a large transaction again: after
  a compressed transaction the last is the GTID event before the payload, which contains the
  payload's length.
- A cursor without a recorded event (set by a person, or before anything was read) is checked by
  length and creation time. The next read records one.
- A purged journal cannot be compared; then GTID sets decide (`source.live.log_positions`), within
  one numbering: journals of another base name, or a log that ends before the cursor's number, were
  renumbered, so that their changes would have lower seqs than the lake's rows.

Rules of a log in which reading goes on by GTID set (a GTID can be used twice):
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

import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, EventSlice
from cdc_pipeline.binlog.event_types import GTID_TYPES, EventType
from cdc_pipeline.binlog.seq import may_follow
from cdc_pipeline.errors import (
    BinlogError,
    JournalMissingError,
    PositionError,
    ServerSettingError,
    SourceIdentityError,
)
from cdc_pipeline.position.position import LoggedEvent, LoggedTransaction, Position
from cdc_pipeline.position.start.context import Log
from cdc_pipeline.position.start.lookup import journal_chunks, journals_before

LOGGED_BYTES_MAX: Final = 64 << 10
_LOGGED_EVENTS_MAX: Final = 64
FILE_GONE_STEP: Final = (
    "put the file back; if it is lost, have the server forget it, by PURGE BINARY LOGS TO the "
    "journal after it, and run again: the run goes on, or says what is missing"
)
_OFFSET_MAX: Final = (1 << 32) - 1  # the largest offset at which a dump can begin
_BEGINS: Final = (*GTID_TYPES, EventType.ANONYMOUS_GTID)
# A server rewrites the first while its journal is open and when sending it, and never sends the
# second.
_UNSTABLE: Final = (EventType.FORMAT_DESCRIPTION, EventType.MARIADB_START_ENCRYPTION)


def last_logged_event(piece: EventSlice) -> LoggedEvent | None:
    """As one; None if there are none. They follow each other, are small, are equal in the journal
    and in memory (unlike a compressed payload), and never change.
    """
    for events in (piece.events[-_LOGGED_EVENTS_MAX:], piece.events):  # nearly always the first
        size_bytes = events["next_offset"] - events["offset"]
        matches = (
            (events["parent"] < 0)
            & (events["event_length"] == size_bytes)
            & (size_bytes <= LOGGED_BYTES_MAX)
        )
        matches &= (events["offset"] <= _OFFSET_MAX) & ~np.isin(events["event_type"], _UNSTABLE)
        rows = np.flatnonzero(matches)
        if not len(rows):
            continue
        last = first = int(rows[-1])
        is_gtid = np.isin(events["event_type"], _BEGINS)
        offsets, ends = events["offset"], events["next_offset"]
        while (
            first
            and last - first + 1 < _LOGGED_EVENTS_MAX
            and matches[first - 1]
            and not is_gtid[first - 1 : first + 1].any()
            and ends[first - 1] == offsets[first]
            and ends[last] - offsets[first - 1] <= LOGGED_BYTES_MAX
        ):
            first -= 1
        before = piece.stop - len(events)
        crc32 = _crc32(piece.chunk, range(before + first, before + last + 1))
        return LoggedEvent(int(offsets[first]), int(ends[last] - offsets[first]), crc32)
    return None


def check_same_log(source: Log, position: Position) -> None:
    """JournalMissingError: the journal is listed, and its file is gone; SourceIdentityError: it is
    shorter, was created at another time, or has another event there, or the log was renumbered;
    ServerUnreachableError, MissingGrantError.
    """
    sizes = {info.journal: info.size_bytes for info in source.journals(since=position)}
    another = partial(other_log, source, position)
    if sizes and not may_follow(newest := list(sizes)[-1], position.journal):
        raise another(expected=f"{position.journal}, or a journal after it", got=f"up to {newest}")
    if position.journal not in sizes:
        return
    if position.offset > sizes[position.journal]:
        if not sizes[position.journal]:  # a server says so of a file that it does not find
            raise JournalMissingError(
                "the server lists the journal, but its file is gone",
                at=position,
                expected=f"a journal of at least {position.offset} bytes",
                got="0 bytes",
                next_step=FILE_GONE_STEP,
            )
        error = another(
            expected=f"a journal of at least {position.offset} bytes",
            got=f"{sizes[position.journal]} bytes",
        )
        if source.is_archive:  # files
            error.next_step = (
                f"if {position.journal} is an incomplete copy, copy it again; {error.next_step}"
            )
        raise error
    event = position.last_event
    if event is None:
        created_s = source.journal_created_s(position.journal) if position.journal_created_s else 0
        _check_created(position, created_s, another)
        return
    begin = Position(position.journal, event.offset, journal_created_s=position.journal_created_s)
    end = replace(begin, offset=event.offset + event.size_bytes)
    expected = _described(event)
    found = None
    try:
        with closing(source.chunks(begin, end)) as chunks:
            for chunk in chunks:
                if chunk.journal != position.journal or not len(chunk.events):
                    break
                if found is None:
                    _check_created(position, chunk.journal_format.created_s, another)
                found = _with(found, chunk, stop_offset=end.offset)
    except (BinlogError, PositionError) as error:
        raise another(expected=expected, got=error.what) from None
    if found != event:
        got = "no events there" if found is None else _described(found)
        raise another(expected=expected, got=got)


def _described(event: LoggedEvent) -> str:
    return f"events of {event.size_bytes} bytes at {event.offset} with CRC32 {event.crc32:08x}"


def other_log(source: Log, position: Position, *, expected: str, got: str) -> SourceIdentityError:
    return SourceIdentityError(
        f"the log of {source.identity} is not the one that the cursor came from: the server was "
        "restored to an earlier state, or its log was reset; the lake may have changes that "
        "the server has lost",
        at=position,
        expected=expected,
        got=got,
        next_step=source.begin_again,
    )


def begin_again(pipeline_name: str = "", *, is_archive: bool = False) -> str:
    """See `Log`."""
    # A second connection of a run has a name of its own below the pipeline's.
    name = pipeline_name.partition("/")[0] or "SOURCE"
    if is_archive:  # it has no tables to read
        return (
            "to follow these journals from now on, abandon the old log and build each table from "
            f"them: `cdc-pipeline cursor set {name} --from latest`, then "
            f"`cdc-pipeline backfill {name} --table SCHEMA.TABLE --rebuild`; if they do not go "
            "back to its CREATE TABLE, follow the server itself (source.kind: live), and read its "
            f"tables by `cdc-pipeline snapshot {name} --restart` after the `cursor set`"
        )
    return (
        "abandon the old log and read the tables again, if this server and its current state are "
        f"correct: `cdc-pipeline cursor set {name} --from latest`, then `cdc-pipeline "
        f"snapshot {name} --restart`"
    )


def _check_created(
    position: Position, created_s: int, another: Callable[..., SourceIdentityError]
) -> None:
    if position.journal_created_s not in (0, created_s):
        raise another(
            expected=f"a journal created at {position.journal_created_s} (seconds since 1970)",
            got=f"one created at {created_s}",
        )


def _with(found: LoggedEvent | None, chunk: Chunk, *, stop_offset: int) -> LoggedEvent | None:
    """The events of a chunk before an offset, after those that came before it, as one."""
    events = chunk.events
    rows = np.flatnonzero((events["parent"] < 0) & (events["offset"] < stop_offset))
    if not len(rows):
        return found
    offset = int(events["offset"][0]) if found is None else found.offset
    crc32 = _crc32(chunk, rows.tolist(), 0 if found is None else found.crc32)
    return LoggedEvent(offset, int(events["next_offset"][rows[-1]]) - offset, crc32)


def _crc32(chunk: Chunk, rows: Iterable[int], crc32: int = 0) -> int:
    # Computed without the stored checksums, so that journals without checksums match as well.
    checksum_bytes = chunk.journal_format.checksum_bytes
    data = memoryview(chunk.data)  # type: ignore[arg-type]
    for row in rows:
        event = chunk.events[row]
        start = int(event["start"])
        crc32 = zlib.crc32(data[start : start + int(event["event_length"]) - checksum_bytes], crc32)
    return crc32


def last_gtid(piece: EventSlice) -> str:
    """The GTID of the last transaction that begins in `piece`; "" if none with a GTID does."""
    rows = np.flatnonzero(np.isin(piece.events["event_type"], GTID_TYPES))
    return _gtid(piece.chunk, piece.first + int(rows[-1])) if len(rows) else ""


def check_last_transaction(source: Log, position: Position) -> None:
    """SourceIdentityError: the last GTID was committed at another time. `source` has executed all
    of the position's set.
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
    )


def _journal_of(source: Log, gtid: str) -> str:
    """The newest journal before which `gtid` was not executed; "" if it was purged."""
    names = [info.journal for info in source.journals()]
    before = journals_before(source, names, gtid)
    return names[before - 1] if before else ""


def _find(source: Log, journal: str, known: LoggedTransaction) -> LoggedTransaction | None:
    """By its GTID, else by its number in its domain."""
    from cdc_pipeline.binlog.transactions.grouping import TransactionPass

    grouping = TransactionPass()
    other: LoggedTransaction | None = None
    with closing(journal_chunks(source, journal)) as chunks:
        for chunk in chunks:
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
