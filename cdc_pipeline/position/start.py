"""Where a run starts (SPEC P3-P5 as far as one server goes).

Rules:
- The first row of `DECISIONS` whose condition holds decides; each row says why, so that `plan` can show the chain.
- A cursor wins over the configuration. A cursor of another server, or beyond the end of its own server's log, is an
  error and never reads as "nothing new" (pitfall 1).
- A start has the full set of executed GTIDs wherever the log has GTIDs, also when only a journal and an offset are
  configured: a partial set would make the next dump by GTID send all that came before (pitfall 4).
- A start is between two transactions. A configured offset inside one is refused, with the offset of its begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.config import GtidConfig, PositionConfig, Start
from cdc_pipeline.errors import PositionError, SourceIdentityError, UnknownEventError, UnsupportedEventError
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.gtid_sets import MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position, ServerIdentity

FIRST_OFFSET: Final = 4


class StartSource(Protocol):
    """What the rules ask of a source; `source.protocol.Source` has it all."""

    @property
    def identity(self) -> ServerIdentity: ...

    def earliest_position(self) -> Position: ...

    def end_position(self) -> Position: ...

    def validate_position(self, position: Position) -> None: ...

    def tables(self) -> list[str] | None: ...

    def chunks(self, start: Position, end: Position) -> Iterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Where a run starts, and the chain of reasons that led there, first reason first."""

    position: Position
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    cursor: CursorState | None
    start: Start
    source: StartSource


def resolve_start(*, cursor: CursorState | None, start: Start, source: StartSource) -> StartDecision:
    """The position that a run starts from.

    Raises:
        SourceIdentityError: the cursor belongs to another server, or to this server before its log was reset.
        PositionError: a configured start is not between two transactions, or no GTID set of this source.
        JournalMissingError: what the run needs was purged.
    """
    question = _Question(cursor, start, source)
    for applies, decide in DECISIONS:
        if applies(question):
            return decide(question)
    raise PositionError("the configured start is of no known kind", setting="start", got=start)


def _from_cursor(question: _Question) -> StartDecision:
    cursor, source = question.cursor, question.source
    assert cursor is not None
    identity, position = source.identity, cursor.position
    if not cursor.identity.same_server(identity):
        raise SourceIdentityError(
            f"the cursor of {cursor.source} was written for another server",
            journal=cursor.journal,
            offset=cursor.offset,
            expected=_name(cursor.identity),
            got=_name(identity),
            next_step="connect to the server of the cursor again; if the source has moved for good, wipe the cursor "
            "and the lake of this source and load it anew from the new server",
        )
    end = source.end_position()
    _check_not_ahead(cursor, identity, end)
    source.validate_position(position)
    return StartDecision(
        position,
        (
            f"the cursor of batch {cursor.batch_number} stands at {position}",
            f"it was written for this server, {identity}",
            "it stands at the end of the log: nothing is new"
            if position.order == end.order
            else f"the log goes on to {end}",
        ),
    )


def _check_not_ahead(cursor: CursorState, identity: ServerIdentity, end: Position) -> None:
    position = cursor.position
    missing = ""
    if position.gtid_set and end.gtid_set:
        missing = str(_difference(position.gtid_set, end.gtid_set, identity.flavor))
    if position.order <= end.order and not missing:
        return
    raise SourceIdentityError(
        f"the cursor of {cursor.source} is ahead of the log of {_name(identity)}: its journals were numbered anew, or "
        "it was restored to an earlier state",
        journal=position.journal,
        offset=position.offset,
        expected=f"a log that ends at {position} or later" + (f" and holds {missing}" if missing else ""),
        got=f"a log that ends at {end}",
        next_step="wait if this is a replica that lags; if the log was reset (RESET, restore, new instance), wipe the "
        "cursor and the lake of this source and load it anew",
    )


def _from_offset(question: _Question) -> StartDecision:
    source = question.source
    assert isinstance(question.start, PositionConfig)
    wanted = Position(question.start.journal, question.start.offset)
    source.validate_position(wanted)
    position, note = _complete(source, wanted)
    return StartDecision(position, ("there is no cursor", f"the configuration starts at {wanted}", note))


def _complete(source: StartSource, wanted: Position) -> tuple[Position, str]:
    """`wanted` with the GTIDs executed up to it, after a check that no transaction is open there."""
    from cdc_pipeline.binlog import gtid  # compiled code is loaded only where a journal is read
    from cdc_pipeline.binlog.event_types import EventType
    from cdc_pipeline.binlog.grouping import TransactionPass

    flavor = source.identity.flavor
    end = source.end_position()
    grouping = TransactionPass()
    executed: MysqlGtidSet | MariadbGtidSet | None = None
    created_s = 0
    try:
        # Chunks are generators: closing one ends the dump behind it.
        with closing(cast(Any, source.chunks(Position(wanted.journal, FIRST_OFFSET), end))) as chunks:
            for chunk in chunks:
                if chunk.journal != wanted.journal:
                    break
                created_s = chunk.journal_format.created_s
                types = chunk.events["event_type"]
                for row in np.flatnonzero((types == EventType.PREVIOUS_GTIDS) | (types == EventType.MARIADB_GTID_LIST)):
                    where = int(chunk.events["offset"][row])
                    text = gtid.previous_set(chunk.body(int(row)), int(types[row]), journal=chunk.journal, offset=where)
                    executed = parse_gtid_set(text, flavor)
                rows = int(np.searchsorted(chunk.events["offset"], wanted.offset))
                grouping.apply(replace(chunk, events=chunk.events[:rows]))
                for key, numbers in gtid.executed(chunk, 0, rows).items():
                    executed = parse_gtid_set("", flavor) if executed is None else executed
                    executed = executed.add_many(key, numbers)
                if chunk.end_offset >= wanted.offset and len(types) > 1:
                    break
    except (UnsupportedEventError, UnknownEventError) as error:
        if not end.gtid_set:
            return replace(wanted, journal_created_s=created_s), "its place among the transactions was not checked"
        raise PositionError(
            "the GTIDs executed up to the configured start cannot be told: an event before it cannot be read",
            journal=wanted.journal,
            offset=error.offset,
            setting="start",
            got=error.what,
            next_step="run FLUSH BINARY LOGS and start at offset 4 of the next journal, or start at a gtid_set",
        ) from error
    if grouping.is_open:
        raise PositionError(
            "the configured start lies inside a transaction",
            journal=wanted.journal,
            offset=wanted.offset,
            setting="start.offset",
            expected=f"a place between two transactions, such as {grouping.open_offset}, where this one begins",
            next_step=f"set start.offset to {grouping.open_offset}",
        )
    if isinstance(executed, MariadbGtidSet):
        executed = executed.position()
    gtid_set = str(executed) if executed else ""
    note = f"{gtid_set} was executed before it" if gtid_set else "the log has no GTIDs up to there"
    return replace(wanted, gtid_set=gtid_set, journal_created_s=created_s), note


def _from_gtid_set(question: _Question) -> StartDecision:
    source = question.source
    assert isinstance(question.start, GtidConfig)
    flavor = source.identity.flavor
    wanted = parse_gtid_set(question.start.gtid_set, flavor)
    if isinstance(wanted, MariadbGtidSet):
        wanted = wanted.position()
    text = str(wanted)
    earliest, end = source.earliest_position(), source.end_position()
    if not end.gtid_set and not earliest.gtid_set:
        raise PositionError(
            "the configured start is a GTID set, but the log has no GTIDs",
            setting="start.gtid_set",
            got=text,
            next_step="start at a journal and an offset, at earliest or at latest",
        )
    if source.tables() is None:  # an archive: nobody leaves out what was executed, so the place must be found
        with closing(cast(Any, source.chunks(earliest, end))) as chunks:
            position = locate_gtid_set(chunks, wanted=text, earliest=earliest, end=end, flavor=flavor)
    else:
        position = replace(earliest, gtid_set=text)
    source.validate_position(position)
    return StartDecision(position, ("there is no cursor", f"the configuration starts after the GTID set {text}"))


def locate_gtid_set(
    chunks: Iterator[Chunk], *, wanted: str, earliest: Position, end: Position, flavor: Flavor
) -> Position:
    """The place in a log that is read by offset after which only transactions outside `wanted` come.

    Args:
        chunks: all chunks from `earliest` to `end`.
        wanted: the transactions that count as executed.

    Raises:
        PositionError: executed and other transactions are mixed, so that no one place parts them; or the log lacks
            some.
    """
    from cdc_pipeline.binlog import gtid
    from cdc_pipeline.binlog.grouping import TransactionPass

    skip: Any = parse_gtid_set(wanted, flavor)
    known: Any = parse_gtid_set(earliest.gtid_set, flavor)
    grouping = TransactionPass()
    place: Position | None = None
    for chunk in chunks:
        starts = grouping.apply(chunk).starts
        whole: Any = _set_of(gtid.executed(chunk, 0, len(chunk.events)), flavor)
        if place is None and skip.contains(whole):
            known = known.union(whole)
            continue
        # Only where both kinds are in one chunk is each transaction looked at.
        is_mixed = place is None or bool(whole.subtract(whole.subtract(skip)))
        for row in starts.tolist() if is_mixed else ():
            one: Any = _set_of(gtid.executed(chunk, row, row + 1), flavor)
            if not one:
                continue
            if not skip.contains(one):
                if place is None:
                    offset, created_s = int(chunk.events["offset"][row]), chunk.journal_format.created_s
                    place = Position(chunk.journal, offset, journal_created_s=created_s)
                continue
            if place is not None:
                raise _unparted(wanted, chunk.journal, int(chunk.events["offset"][row]), str(one))
            known = known.union(one)
    missing = skip.subtract(known)
    if missing or known.subtract(skip):
        raise PositionError(
            "the log does not join the configured GTID set",
            setting="start.gtid_set",
            expected=f"a log that begins after no more than {wanted} and holds all of it",
            got=f"before its first journal: {earliest.gtid_set or 'nothing'}; not found: {missing or 'nothing'}",
            next_step="start at earliest, or take the GTID set from the server that wrote these journals",
        )
    return replace(place or end, gtid_set=wanted)


def _unparted(wanted: str, journal: str, offset: int, found: str) -> PositionError:
    return PositionError(
        "transactions of the configured GTID set come after transactions that are not in it",
        journal=journal,
        offset=offset,
        setting="start.gtid_set",
        expected=f"all of {wanted} before anything else",
        got=found,
        next_step="start at a journal and an offset",
    )


def _earliest(question: _Question) -> StartDecision:
    position = question.source.earliest_position()
    return StartDecision(
        position, ("there is no cursor", f"the configuration starts at the earliest journal: {position}")
    )


def _latest(question: _Question) -> StartDecision:
    position = question.source.end_position()
    return StartDecision(
        position, ("there is no cursor", f"the configuration starts at the end of the log: {position}")
    )


def _set_of(executed: dict[str, NDArray[np.int64]], flavor: Flavor) -> MysqlGtidSet | MariadbGtidSet:
    found = parse_gtid_set("", flavor)
    for key, numbers in executed.items():
        found = found.add_many(key, numbers)
    return found


def _difference(inner: str, outer: str, flavor: Flavor) -> MysqlGtidSet | MariadbGtidSet:
    own: Any = parse_gtid_set(inner, flavor)
    left: MysqlGtidSet | MariadbGtidSet = own.subtract(parse_gtid_set(outer, flavor))
    return left


def _name(identity: ServerIdentity) -> str:
    where = f" at {identity.address}" if identity.address else ""
    return f"{identity} (server id {identity.server_id}){where}"


# Rows are tried in order. A later issue widens the first one: another server's cursor with a GTID set or a timestamp.
DECISIONS: Final[tuple[tuple[Callable[[_Question], bool], Callable[[_Question], StartDecision]], ...]] = (
    (lambda q: q.cursor is not None, _from_cursor),
    (lambda q: isinstance(q.start, PositionConfig), _from_offset),
    (lambda q: isinstance(q.start, GtidConfig), _from_gtid_set),
    (lambda q: q.start == "earliest", _earliest),
    (lambda q: q.start == "latest", _latest),
)
