"""Find a place in a log: a transaction's begin with the GTIDs executed before it, a moment, the end
of a GTID set (SPEC P4, P7, P8).

Rules:
- A start is between two transactions. A position inside one moves back to the nearest begin at or
  before it, and a note says so.
- A start has the full set of executed GTIDs wherever the source uses GTIDs, also when only a
  journal and an offset are known: a partial set would make the next dump by GTID send all that came
  before. It is the set at the head of the journal and the GTIDs up to the position. A server with
  gtid_mode ON refuses to send a journal of transactions without GTIDs; such a journal adds none, as
  its head and the head of the next one prove.
- If the source does not use GTIDs now, the position has no set: see `decisions`.

Rules of a search by time (K6: clocks may go back):
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
- Commit times are those of the server where a transaction began, journals have the clock of their
  own. If that is late by more than this minute, all that the scan reads is at or after the moment:
  so if nothing before precedes what was found, the journal before is read too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, Chunks
from cdc_pipeline.errors import (
    PositionError,
    ServerSettingError,
    UnknownEventError,
    UnsupportedEventError,
)
from cdc_pipeline.position.gtid.sets import GtidSet, MariadbGtidSet, executed_set, parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.position.start.context import SECOND_US, Log

_SET_BACK_MAX_US: Final = 60 * SECOND_US
_GTIDS_UNKNOWN_STEP: Final = (
    "run FLUSH BINARY LOGS and start at offset 4 of the next journal, or start at a gtid_set"
)


class _Read(NamedTuple):
    """A journal that was read to a position. `executed`: before it, None if the journal names none;
    `begin`: offset of the transaction that is open there, -1 between two.
    """

    position: Position
    executed: GtidSet | None
    begin: int


def complete(source: Log, wanted: Position) -> tuple[Position, tuple[str, ...]]:
    """`wanted`, an event boundary, as a start, with notes for people; see the module's rules.

    PositionError: the GTIDs are unknown because an event before `wanted` cannot be read.
    """
    uses_gtids = source.uses_gtids
    notes: list[str] = []
    try:
        read = _read_to(source, wanted)
        if read.begin >= 0:
            notes.append(f"{wanted} is inside a transaction: back to its beginning at {read.begin}")
            read = _read_to(source, replace(wanted, offset=read.begin))
    except ServerSettingError:
        executed = _executed_by_heads(source, wanted)
        if executed is None:
            raise
        position = with_created(source, replace(wanted, gtid_set=executed))
        return position, (
            f"{wanted.journal} has no GTIDs: {executed or 'nothing'} was executed before it",
        )
    except (UnsupportedEventError, UnknownEventError) as error:
        if not uses_gtids:
            unchecked = (
                f"an event before it cannot be read ({error.what}): the position was not checked"
            )
            return replace(wanted, gtid_set=""), (unchecked,)
        raise PositionError(
            "the GTIDs executed up to the start are unknown: an event before it cannot be read",
            at=(wanted.journal, error.offset),
            setting="start",
            got=error.what,
            next_step=_GTIDS_UNKNOWN_STEP,
        ) from error
    if not uses_gtids:
        return replace(read.position, gtid_set=""), (*notes, "the source does not use GTIDs")
    gtid_set = _text(read.executed)
    notes.append(
        f"{gtid_set} was executed before it"
        if gtid_set
        else "the log has no GTIDs up to that point"
    )
    return replace(read.position, gtid_set=gtid_set), tuple(notes)


def place_of(chunk: Chunk, row: int, field: str = "offset") -> Position:
    """Where an event begins, or ends (``next_offset``)."""
    event = chunk.events[row]
    return Position(
        chunk.journal,
        int(event[field]),
        timestamp_s=int(event["timestamp_s"]),
        server_id=int(event["server_id"]),
        journal_created_s=chunk.journal_format.created_s,
    )


def with_created(source: Log, position: Position) -> Position:
    if position.journal_created_s:
        return position
    return replace(position, journal_created_s=source.journal_created_s(position.journal))


def _executed_by_heads(source: Log, wanted: Position) -> str | None:
    """Of the journal, if the head of the next one proves that it adds nothing."""
    names = [info.journal for info in source.journals()]
    if wanted.journal not in names[:-1]:
        return None
    following = names[names.index(wanted.journal) + 1]
    here, after = (head_set(source, journal) for journal in (wanted.journal, following))
    return here if here == after else None


def journal_chunks(source: Log, journal: str, end: Position | None = None) -> Chunks:
    with closing(source.chunks(Position(journal), end or source.end_position())) as chunks:
        for chunk in chunks:
            if chunk.journal != journal:
                return
            yield chunk


def head_set(source: Log, journal: str) -> str:
    """The set at the head of a journal; "" if it has none."""
    flavor = source.identity.flavor
    with closing(journal_chunks(source, journal)) as chunks:
        for chunk in chunks:
            listed = _listed(chunk, flavor)
            # A single event is the format description; the set comes next.
            if listed is not None or len(chunk.events) > 1:
                return _text(listed)
    return ""


def journals_before(source: Log, journals: Sequence[str], gtid_set: str) -> int:
    """How many of `journals`, oldest first, begin before all of a GTID set was executed.

    The set at a journal's head only grows from journal to journal, so a few heads are read.
    """
    flavor = source.identity.flavor
    wanted = parse_gtid_set(gtid_set, flavor)

    def has_all(journal: str) -> bool:
        return not wanted.subtract(parse_gtid_set(head_set(source, journal), flavor))

    return bisect_left(journals, True, key=has_all)


def journals_within(source: Log, journals: Sequence[str], gtid_set: str) -> int:
    """How many of `journals`, oldest first, begin before anything outside of a GTID set was."""
    flavor = source.identity.flavor
    wanted = parse_gtid_set(gtid_set, flavor)

    def has_others(journal: str) -> bool:
        return bool(parse_gtid_set(head_set(source, journal), flavor).subtract(wanted))

    return bisect_left(journals, True, key=has_others)


def _text(executed: GtidSet | None) -> str:
    if isinstance(executed, MariadbGtidSet):
        executed = executed.position()
    return str(executed) if executed else ""


def _read_to(source: Log, wanted: Position) -> _Read:
    from cdc_pipeline.binlog.events import gtid
    from cdc_pipeline.binlog.transactions.grouping import TransactionPass

    flavor = source.identity.flavor
    grouping = TransactionPass()
    executed: GtidSet | None = None
    position = replace(wanted, gtid_set="")
    with closing(journal_chunks(source, wanted.journal)) as chunks:
        for chunk in chunks:
            executed = _listed(chunk, flavor) or executed
            rows = int(np.searchsorted(chunk.events["offset"], wanted.offset))
            grouping.apply(replace(chunk, events=chunk.events[:rows]))
            if numbers := gtid.executed(chunk, 0, rows):
                executed = executed_set(numbers, flavor=flavor, after=executed or "")
            here = chunk.events[min(rows, len(chunk.events) - 1)]
            position = replace(
                position,
                timestamp_s=int(here["timestamp_s"]),
                server_id=int(here["server_id"]),
                journal_created_s=chunk.journal_format.created_s,
            )
            # A single event is the format description; the set after it is needed as well.
            if chunk.end_offset >= wanted.offset and len(chunk.events) > 1:
                break
    return _Read(position, executed, grouping.open_offset)


def _listed(chunk: Chunk, flavor: Flavor) -> GtidSet | None:
    """The set at the head of the journal, if the chunk contains it."""
    from cdc_pipeline.binlog.events import gtid

    text = gtid.listed_set(chunk)
    return None if text is None else parse_gtid_set(text, flavor)


def search_by_time(
    source: Log, *, t_us: int, end: Position | None = None, journal: str = ""
) -> Position | None:
    """The begin of the first transaction committed at or after `t_us`, without a GTID set; None if
    there is none. `journal`: search in this one only (P4). BinlogError, SourceError: the log
    cannot be read.
    """
    end = end or source.end_position()
    if journal:
        return _first_commit(journal_chunks(source, journal, end), t_us=t_us).position
    names = [info.journal for info in source.journals()]
    names = names[: names.index(end.journal) + 1] if end.journal in names else names
    journals = journals_to_scan(source, names, t_us=t_us)
    for single in (names[index] for index in journals.single):
        position = _first_commit(journal_chunks(source, single, end), t_us=t_us).position
        if position is not None:
            return position
    found = _first_commit(source.chunks(Position(names[journals.first]), end), t_us=t_us)
    for name in reversed(names[: journals.first]):
        if found.position is None or found.follows_others:
            break
        earlier = _first_commit(journal_chunks(source, name, end), t_us=t_us)
        found = _Found(earlier.position or found.position, earlier.follows_others)
    return found.position


class _Found(NamedTuple):
    """`follows_others`: a transaction before the moment was read before it."""

    position: Position | None
    follows_others: bool


class JournalsToScan(NamedTuple):
    """`single`: indexes of journals after which the clock was set back; `first`: of those all
    read.
    """

    single: tuple[int, ...]
    first: int


def journals_to_scan(source: Log, names: Sequence[str], *, t_us: int) -> JournalsToScan:
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


def _first_commit(chunks: Chunks, *, t_us: int) -> _Found:
    from cdc_pipeline.binlog.transactions.grouping import (
        TransactionPass,  # loads compiled code, so only when a journal is read
    )

    grouping, follows_others = TransactionPass(), False
    with closing(chunks):
        for chunk in chunks:
            starts = grouping.apply(chunk).starts
            rows = starts[chunk.events["commit_ts_us"][starts] >= t_us]
            if len(rows):
                first = int(np.min(rows))
                follows_others |= bool((starts < first).any())
                return _Found(place_of(chunk, first), follows_others)
            follows_others |= len(starts) > 0
    return _Found(None, follows_others)


def locate_gtid_set(
    chunks: Chunks,
    *,
    wanted: str,
    earliest: Position,
    end: Position,
    flavor: Flavor,
    setting: str,
) -> Position:
    """The position after which only transactions outside `wanted` follow. Reading ends as soon as
    all of `wanted` was found: a log has a GTID once. `earliest`: a journal's begin, with its set.

    PositionError: no single position separates them, or the log lacks some.
    """
    from cdc_pipeline.binlog.events import gtid
    from cdc_pipeline.binlog.transactions.grouping import TransactionPass

    skip = parse_gtid_set(wanted, flavor)
    known = parse_gtid_set(earliest.gtid_set, flavor)
    grouping = TransactionPass()
    start: Position | None = None
    for chunk in chunks:
        starts = grouping.apply(chunk).starts
        whole = executed_set(gtid.executed(chunk, 0, len(chunk.events)), flavor=flavor)
        if start is None and skip.contains(whole):
            known = known.union(whole)
            continue
        # Examine single transactions only in a chunk that has both kinds.
        is_mixed = start is None or bool(whole.subtract(whole.subtract(skip)))
        for row in starts.tolist() if is_mixed else ():
            one = executed_set(gtid.executed(chunk, row, row + 1), flavor=flavor)
            if not one:
                continue
            if not skip.contains(one):
                if start is None:
                    offset = int(chunk.events["offset"][row])
                    created_s = chunk.journal_format.created_s
                    start = Position(chunk.journal, offset, journal_created_s=created_s)
                continue
            if start is not None:
                raise PositionError(
                    "transactions of the GTID set come after transactions that are not in it",
                    at=(chunk.journal, int(chunk.events["offset"][row])),
                    setting=setting,
                    expected=f"all of {wanted} before anything else",
                    got=str(one),
                    next_step="start at a journal and an offset",
                )
            known = known.union(one)
        if start is not None and not skip.subtract(known):
            break
    missing = skip.subtract(known)
    if missing or known.subtract(skip):
        raise PositionError(
            "the log does not match the GTID set",
            setting=setting,
            expected=f"a log that begins at or before the end of {wanted} and "
            "contains the rest of it",
            got=f"before its first journal: {earliest.gtid_set or 'nothing'}; not found: "
            f"{missing or 'nothing'}",
            next_step="start at earliest, or take the GTID set from the server that "
            "wrote these journals",
        )
    return replace(start or end, gtid_set=wanted)
