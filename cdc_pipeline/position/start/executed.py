"""Complete a journal position: move it to its transaction's begin and add the executed GTIDs (SPEC
P4, P7).

Rules:
- A start is between two transactions. A position inside one moves back to the nearest begin at or
  before it, and a note says so.
- A start has the full set of executed GTIDs wherever the source uses GTIDs, also when only a
  journal and an offset are known: a partial set would make the next dump by GTID send all that came
  before. It is the set at the head of the journal and the GTIDs up to the position. A server with
  gtid_mode ON refuses to send a journal of transactions without GTIDs; such a journal adds none, as
  its head and the head of the next one prove.
- If the source does not use GTIDs now, the position has no set: see `history`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.errors import (
    PositionError,
    ServerSettingError,
    UnknownEventError,
    UnsupportedEventError,
)
from cdc_pipeline.position.gtid.sets import MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.position.start.types import FIRST_OFFSET, StartSource

_GTIDS_UNKNOWN_STEP: Final = (
    "run FLUSH BINARY LOGS and start at offset 4 of the next journal, or start at a gtid_set"
)


@dataclass(frozen=True, slots=True)
class _Read:
    """A journal that was read from its head to a position.

    Attributes:
        position: the position, with creation time, timestamp and server id of the event there.
        executed: all transactions before the position; None if the journal names none.
        begin: offset of the begin of the transaction that is open at the position; -1 between two.
    """

    position: Position
    executed: MysqlGtidSet | MariadbGtidSet | None
    begin: int


def complete(source: StartSource, wanted: Position) -> tuple[Position, tuple[str, ...]]:
    """Return `wanted`, an event boundary, as a start; see the module's rules.

    Returns:
        The position, with journal creation time, timestamp and server id if known, and notes for
        people.

    Raises:
        PositionError: the source uses GTIDs, and they are unknown because an event before
            `wanted` cannot be read.
    """
    uses_gtids = source.uses_gtids
    notes: list[str] = []
    try:
        read = _read_to(source, wanted)
        if read.begin >= 0:
            notes.append(
                f"{wanted} is inside a transaction: back to its beginning at {read.begin} (P7)"
            )
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
            journal=wanted.journal,
            offset=error.offset,
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


def with_created(source: StartSource, position: Position) -> Position:
    """Return `position` with the creation time of its journal, which identifies a reset log."""
    if position.journal_created_s:
        return position
    return replace(position, journal_created_s=source.journal_created_s(position.journal))


def _executed_by_heads(source: StartSource, wanted: Position) -> str | None:
    """The set at the head of the journal if the head of the next one proves that it adds
    nothing.
    """
    names = [info.journal for info in source.journals()]
    if wanted.journal not in names[:-1]:
        return None
    following = names[names.index(wanted.journal) + 1]
    here, after = (head_set(source, journal) for journal in (wanted.journal, following))
    return here if here == after else None


def head_set(source: StartSource, journal: str) -> str:
    """The set at the head of a journal; "" if it has none."""
    flavor = source.identity.flavor
    with closing(
        cast(Any, source.chunks(Position(journal, FIRST_OFFSET), source.end_position()))
    ) as chunks:
        for chunk in chunks:
            if chunk.journal != journal:
                break
            listed = _listed(chunk, flavor)
            # A single event is the format description; the set comes next.
            if listed is not None or len(chunk.events) > 1:
                return _text(listed)
    return ""


def journals_before(source: StartSource, journals: Sequence[str], gtid_set: str) -> int:
    """How many of `journals`, oldest first, begin before all of a GTID set was executed.

    The set at a journal's head only grows from journal to journal, so a few heads are read.
    """
    flavor = source.identity.flavor
    wanted: Any = parse_gtid_set(gtid_set, flavor)

    def has_all(journal: str) -> bool:
        return not wanted.subtract(parse_gtid_set(head_set(source, journal), flavor))

    return bisect_left(journals, True, key=has_all)


def _text(executed: MysqlGtidSet | MariadbGtidSet | None) -> str:
    if isinstance(executed, MariadbGtidSet):
        executed = executed.position()
    return str(executed) if executed else ""


def _read_to(source: StartSource, wanted: Position) -> _Read:
    from cdc_pipeline.binlog.events import gtid
    from cdc_pipeline.binlog.transactions.grouping import TransactionPass

    flavor = source.identity.flavor
    grouping = TransactionPass()
    executed: MysqlGtidSet | MariadbGtidSet | None = None
    position = replace(wanted, gtid_set="")
    # Chunks are generators: closing one ends its dump.
    with closing(
        cast(Any, source.chunks(Position(wanted.journal, FIRST_OFFSET), source.end_position()))
    ) as chunks:
        for chunk in chunks:
            if chunk.journal != wanted.journal:
                break
            executed = _listed(chunk, flavor) or executed
            rows = int(np.searchsorted(chunk.events["offset"], wanted.offset))
            grouping.apply(replace(chunk, events=chunk.events[:rows]))
            for key, numbers in gtid.executed(chunk, 0, rows).items():
                executed = parse_gtid_set("", flavor) if executed is None else executed
                executed = executed.add_many(key, numbers)
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


def _listed(chunk: Chunk, flavor: Flavor) -> MysqlGtidSet | MariadbGtidSet | None:
    """The set at the head of the journal, if the chunk contains it."""
    from cdc_pipeline.binlog.event_types import EventType
    from cdc_pipeline.binlog.events import gtid

    types = chunk.events["event_type"]
    found: MysqlGtidSet | MariadbGtidSet | None = None
    for row in np.flatnonzero(
        (types == EventType.PREVIOUS_GTIDS) | (types == EventType.MARIADB_GTID_LIST)
    ):
        where = int(chunk.events["offset"][row])
        text = gtid.previous_set(
            chunk.body(int(row)), int(types[row]), journal=chunk.journal, offset=where
        )
        found = parse_gtid_set(text, flavor)
    return found
