"""Check whether a live server can serve a start position, and find where its log begins.

Rules:
- Nothing is rounded or guessed: an offset must hold an event with its own place and checksum, or it
  is refused.
- What is missing is named: the oldest journal that is left, or the transactions that were purged.

Source: both servers' answers; MySQL manual "gtid_purged"; MariaDB "Global Transaction ID".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import (
    BinlogError,
    CdcError,
    JournalMissingError,
    PositionError,
    SourceIdentityError,
    StatementError,
    UnknownEventError,
    UnsupportedEventError,
)
from cdc_pipeline.position.gtid.sets import (
    GtidSet,
    MariadbGtidSet,
    encode_mysql_binary,
    parse_gtid_set,
    parse_mariadb,
)
from cdc_pipeline.position.position import FIRST_OFFSET, Flavor, Position
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.server_errors import BOUNDARY, NOT_THERE, SKIP_GAP

_HEADER_BYTES = 19
_UNLISTED: Final = "name a journal that SHOW BINARY LOGS lists; for what was purged: "


def earliest(server: ServerConnection, state: MariadbGtidSet | None = None) -> Position:
    """With the GTID set that precedes it. `state`: of MariaDB, if it was read."""
    journal = server.journals()[0].journal
    gtid_set = ""
    if server.flavor == "mariadb":
        before = parse_mariadb(server.mariadb_gtid_position(Position(journal)))
        gtid_set = str(before.within(state or _state(server)))
    elif server.uses_gtids:
        gtid_set = server.gtid_purged()
    return Position(journal, gtid_set=gtid_set)


def validate_offset(
    server: ServerConnection,
    position: Position,
    *,
    first_offset: Callable[[Position, Position], int],
) -> None:
    """Check that the journal is there and that the offset is the start of an event in it, or its
    end.

    SHOW BINLOG EVENTS is no proof: for some offsets inside an event both servers list an event that
    does not exist. So the event is read, and must carry its own place and a correct checksum.

    `first_offset` is that of the first event that a dump between two positions delivers; it
    compares the creation time of the journal with that of the first position. Raises
    JournalMissingError, PositionError, SourceIdentityError.
    """
    sizes = {info.journal: info.size_bytes for info in server.journals()}
    if position.journal not in sizes:
        raise _missing(server, position, list(sizes))
    size_bytes = sizes[position.journal]
    inside = position.offset < size_bytes
    if inside or position.journal_created_s:
        # At the end there is no event: the journal's first one shows whether it is the right
        # journal.
        probe = dataclasses.replace(position, offset=position.offset if inside else FIRST_OFFSET)
        end = Position(position.journal, max(size_bytes, probe.offset + 1))
        try:
            event_offset = first_offset(probe, end)
        except (UnknownEventError, UnsupportedEventError):
            return  # checksum and place were correct: it begins an event, which reading will name
        except BinlogError as error:
            raise _not_a_boundary(position, "the start of an event", error.what) from None
        if event_offset != probe.offset:
            raise _not_a_boundary(
                position,
                f"the start of an event; the next one is at {event_offset}",
                position.offset,
            )
    if position.offset > size_bytes:
        raise _not_a_boundary(
            position, f"at most {size_bytes}, the end of the journal", "an offset beyond the end"
        )


def validate_gtid_set(server: ServerConnection, position: Position) -> None:
    """Check that the server still has all that follows the set, and that it has executed the set
    itself.

    Raises:
        JournalMissingError: transactions that the set lacks were purged.
        SourceIdentityError: the set holds transactions that the server has not executed; servers
            notice only some.
        PositionError: not a GTID set.
    """
    start, state = parse_gtid_set(position.gtid_set, server.flavor), _state(server)
    executed: GtidSet = state.highest()
    if isinstance(start, MariadbGtidSet):
        start = start.position()
    else:
        executed = parse_gtid_set(server.end_position().gtid_set, server.flavor)
    ahead = start.subtract(executed)
    if ahead:
        raise SourceIdentityError(
            f"the start holds transactions that {server.address} has not executed",
            at=position,
            got=ahead,
            next_step="check that source.host is the server that the cursor was written for, "
            "or a replica that has caught up; if its log was reset or it was "
            f"restored, {server.begin_again}",
        )
    purged = purged_after(server, position.gtid_set, state)
    if purged:
        raise JournalMissingError(
            f"{server.address} has purged transactions that follow the start",
            at=position,
            expected=f"all transactions after {position.gtid_set}",
            got=f"{purged} is no longer in any journal",
            next_step=_gap_step(server),
        )
    if isinstance(start, MariadbGtidSet):
        _check_holds(server, position, start, state)


def purged_after(
    server: ServerConnection, gtid_set: str, state: MariadbGtidSet | None = None
) -> GtidSet:
    """The last transactions that follow a set and are in no journal."""
    oldest, lists = earliest(server, state), ""
    if server.flavor == "mariadb":
        rows = server.rows("SHOW BINLOG EVENTS IN %s LIMIT 3", (oldest.journal,))
        lists = "".join(row.text("info") for row in rows if row.text("event_type") == "Gtid_list")
    start, last = (parse_gtid_set(text, server.flavor) for text in (gtid_set, oldest.gtid_set))
    return behind(start, last, parse_gtid_set(lists.strip("[]"), server.flavor))


def behind(start: GtidSet, last: GtidSet, listed: GtidSet) -> GtidSet:
    """Which of the `last` transactions before a journal come after `start`. The head of MariaDB's
    has `listed` those of each server: a list that has start's own GTID of a domain is not before
    it, whatever the numbers.
    """
    if not isinstance(start, MariadbGtidSet):
        return last.subtract(start)
    assert isinstance(last, MariadbGtidSet)
    assert isinstance(listed, MariadbGtidSet)
    lost: dict[tuple[int, int], int] = {}
    of_domain = {key[0]: (key, number) for key, number in start.position().last.items()}
    for key, number in last.last.items():
        own, own_number = of_domain.get(key[0], (key, 0))
        is_later = listed.last.get(own, 0) < own_number
        if not is_later and (own, own_number) != (key, number):
            lost[key] = number
    return MariadbGtidSet(lost)


def _state(server: ServerConnection) -> MariadbGtidSet:
    """MariaDB's GTIDs by server; of domains that were deleted from the log it has none."""
    is_mariadb = server.flavor == "mariadb"
    return parse_mariadb(server.text("SELECT @@GLOBAL.gtid_binlog_state") if is_mariadb else "")


def _check_holds(
    server: ServerConnection, position: Position, start: MariadbGtidSet, state: MariadbGtidSet
) -> None:
    """Check that the very transactions that `start` names are in the log of a MariaDB server (K24).

    A number is a place in its domain, regardless of the server that wrote it: a server that
    continued without the last transactions of another one has the same numbers with other
    transactions. Raises SourceIdentityError.
    """
    # The place that a replica started after (a restored backup) need not be in its own log.
    began_after = parse_mariadb(server.text("SELECT @@GLOBAL.gtid_slave_pos")).last
    reached = {domain: number for (domain, _), number in state.highest().last.items()}
    missing = {
        key: number
        for key, number in start.last.items()
        if state.last.get(key, 0) < number <= reached.get(key[0], 0)
        and began_after.get(key) != number
    }
    if missing:
        raise SourceIdentityError(
            f"the log of {server.address} does not hold the last transaction that was read: it "
            "continued without it",
            at=position,
            setting="gtid_binlog_state",
            expected=f"{MariadbGtidSet(missing)} in it",
            got=str(state),
            next_step=server.begin_again,
        )


def ends_closed(server: ServerConnection, position: Position) -> bool:
    """Whether the event that ends at `position`, its journal's end, is ROTATE or STOP. Only
    these two are searched, at the places that their lengths imply.
    """
    rotate_bytes = {_HEADER_BYTES + 8 + len(position.journal) + longer for longer in (0, 1)}
    for length in sorted({_HEADER_BYTES, *rotate_bytes}):
        for checksum_bytes in (4, 0):
            offset = position.offset - length - checksum_bytes
            if offset < FIRST_OFFSET:
                continue
            try:
                rows = server.rows(
                    f"SHOW BINLOG EVENTS IN %s FROM {offset:d} LIMIT 1", (position.journal,)
                )
            except StatementError:
                continue  # no event begins there
            if rows and (rows[0].number("pos"), rows[0].number("end_log_pos")) == (
                offset,
                position.offset,
            ):
                return str(rows[0]["event_type"]).lower() in ("rotate", "stop")
    return False


def contains(flavor: Flavor, outer: str, inner: str) -> bool:
    """Whether a log that ends at `inner`, "" if unknown, has nothing behind `outer`, which it has
    executed. Raises PositionError: not a GTID set.
    """
    end, start = parse_gtid_set(inner, flavor), parse_gtid_set(outer, flavor)
    if isinstance(start, MariadbGtidSet):  # of another server, a lower number may come later
        start = start.position().by_server()
    return bool(inner) and not end.subtract(start)


def dump_set(flavor: Flavor, gtid_set: str) -> tuple[str, bytes]:
    """A dump request's text of a set, and its binary form if it has tags, which the library
    cannot encode. Raises PositionError: not a GTID set.
    """
    parsed = parse_gtid_set(gtid_set, flavor)
    if isinstance(parsed, MariadbGtidSet):
        return str(parsed.position()), b""
    return str(parsed), encode_mysql_binary(parsed) if parsed.is_tagged else b""


def renumbered(server: ServerConnection, position: Position, created_s: int) -> SourceIdentityError:
    """The error for a journal that has the position's name but is another one."""
    return SourceIdentityError(
        "the journal is not the one that the position was taken from: the log was reset, or it "
        "is another server",
        at=position,
        expected=f"a journal created at {position.journal_created_s} (seconds since 1970)",
        got=f"one created at {created_s}",
        next_step=server.begin_again,
    )


def _gap_step(server: ServerConnection) -> str:
    return SKIP_GAP.format(begin_again=server.begin_again)


def _missing(server: ServerConnection, position: Position, names: list[str]) -> CdcError:
    expected = f"one of {names[0]} to {names[-1]}" if names else "a journal"
    if (
        names
        and position.journal_created_s
        and journal_number(position.journal) > journal_number(names[-1])
    ):
        # A journal that was read before has a number above the newest: numbering restarted.
        return SourceIdentityError(
            "the server's journals were renumbered: its log was reset, or it is another server",
            at=position,
            expected=expected,
            next_step=server.begin_again,
        )
    return JournalMissingError(
        NOT_THERE,
        at=position,
        expected=expected,
        # What no run has read was named by a person.
        next_step=("" if position.journal_created_s else _UNLISTED) + _gap_step(server),
    )


def _not_a_boundary(position: Position, expected: str, got: object) -> PositionError:
    return PositionError(
        "the position is not an event boundary",
        at=position,
        expected=expected,
        got=got,
        next_step=BOUNDARY,
    )
