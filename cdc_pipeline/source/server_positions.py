"""Whether a live server can serve a start position, and where its log begins.

Rules:
- Nothing is snapped or guessed: at an offset stands an event with its own place and checksum, or it is refused.
- What is missing is named: the oldest journal that is left, or the transactions that were purged.
- Sets of MySQL are compared by the server's own functions, so that every form that it writes is understood. A position
  of MariaDB is one sequence number per domain, compared here.

Source: binlog-facts C; MySQL manual "GTID_SUBTRACT", "GTID_SUBSET"; MariaDB "Global Transaction ID".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import (
    BinlogError,
    CdcError,
    JournalMissingError,
    PositionError,
    SourceIdentityError,
    UnknownEventError,
    UnsupportedEventError,
)
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.server import ServerConnection, StatementError, compact_set

_MARIADB_GTID = re.compile(r"(\d+)-(\d+)-(\d+)")
_FIRST_OFFSET = 4
_RENUMBERED_STEP = (
    "load the tables anew and start at `latest`; before that, read what the old journals hold from an archive"
)
_GAP_STEP = (
    "read the missing part from an archive, or load the tables anew and start at `latest`; keep journals longer with "
    "binlog_expire_logs_seconds"
)


def earliest(server: ServerConnection) -> Position:
    """Start of the oldest journal, with the GTID set that precedes it.

    Raises:
        JournalMissingError: the server has no journal.
    """
    journals = server.journals()
    if not journals:
        raise JournalMissingError(
            f"{server.address} lists no journal", setting="log_bin", next_step="switch the binary log on"
        )
    journal = journals[0].journal
    gtid_set = ""
    if server.flavor == "mariadb":
        gtid_set = server.mariadb_gtid_position(journal, _FIRST_OFFSET) or ""
    elif server.uses_gtids:
        gtid_set = server.gtid_purged()
    return Position(journal, _FIRST_OFFSET, gtid_set=gtid_set)


def validate_offset(
    server: ServerConnection, position: Position, *, first_offset: Callable[[Position, Position], int]
) -> None:
    """Check that the journal is there and that the offset is the start of an event in it, or its end.

    SHOW BINLOG EVENTS is no proof: for some offsets inside an event both servers list an event that is none. So the
    event is read, and must carry its own place and a right checksum.

    Args:
        server: control connection.
        position: what to check.
        first_offset: offset of the first event that a dump between two positions delivers; it compares the creation
            time of the journal with that of the first position.

    Raises:
        JournalMissingError, PositionError, SourceIdentityError.
    """
    journals = server.journals()
    sizes = {info.journal: info.size_bytes for info in journals}
    if position.journal not in sizes:
        raise _missing(position, [info.journal for info in journals])
    size_bytes = sizes[position.journal]
    inside = position.offset < size_bytes
    if inside or position.journal_created_s:
        # At the end there is no event: the journal's first one tells whether it is the right journal.
        probe = dataclasses.replace(position, offset=position.offset if inside else _FIRST_OFFSET)
        end = Position(position.journal, max(size_bytes, probe.offset + 1))
        try:
            found = first_offset(probe, end)
        except (UnknownEventError, UnsupportedEventError):
            return  # checksum and place were right: it begins an event, which reading will name
        except BinlogError as error:
            raise _not_a_boundary(position, "the start of an event", error.what) from None
        if found != probe.offset:
            raise _not_a_boundary(position, f"the start of an event; the next one is at {found}", position.offset)
    if position.offset > size_bytes:
        raise _not_a_boundary(position, f"at most {size_bytes}, the end of the journal", "an offset past the end")


def validate_gtid_set(server: ServerConnection, position: Position) -> None:
    """Check that the server still has all that follows the set, and that it has executed the set itself.

    Raises:
        JournalMissingError: transactions that the set lacks were purged.
        SourceIdentityError: the set holds transactions that the server has not executed.
        PositionError: not a GTID set.
    """
    if server.flavor == "mariadb":
        purged, ahead = _mariadb_differences(server, position.gtid_set)
    else:
        purged = _mysql_difference(server, "@@GLOBAL.gtid_purged", "%s", position.gtid_set)
        ahead = _mysql_difference(server, "%s", "@@GLOBAL.gtid_executed", position.gtid_set)
    if ahead:
        raise SourceIdentityError(
            f"the start holds transactions that {server.address} has not executed",
            journal=position.journal,
            offset=position.offset,
            got=ahead,
            next_step="check that source.host is the server that the cursor was written for, or a replica that has "
            "caught up; if its log was reset or it was restored, load the tables anew",
        )
    if purged:
        raise JournalMissingError(
            f"{server.address} has purged transactions that follow the start",
            journal=position.journal,
            offset=position.offset,
            expected=f"all transactions after {position.gtid_set}",
            got=f"{purged} is in no journal any more",
            next_step=_GAP_STEP,
        )


def contains(server: ServerConnection, outer: str, inner: str) -> bool:
    """Whether all transactions of `inner` are in `outer`; False where `inner` is not known ("")."""
    if not inner:
        return False
    if server.flavor == "mariadb":
        reached = mariadb_domains(outer)
        return all(sequence <= reached.get(domain, -1) for domain, sequence in mariadb_domains(inner).items())
    try:
        return bool(server.value("SELECT GTID_SUBSET(%s, %s)", (inner, outer)))
    except StatementError as error:
        raise _not_a_set(outer, error) from None


def mariadb_domains(text: str) -> dict[int, int]:
    """Highest sequence number per domain of a MariaDB GTID position such as ``0-1-42,5-2-7``.

    Raises:
        PositionError: another form.
    """
    domains: dict[int, int] = {}
    for part in filter(None, compact_set(text).split(",")):
        match = _MARIADB_GTID.fullmatch(part)
        if match is None:
            raise PositionError(
                "not a GTID position of MariaDB",
                expected="domain-server-sequence, separated by commas, such as 0-1-42",
                got=text,
                next_step="take it from SELECT @@gtid_binlog_pos, or start at a journal and offset",
            )
        domain, sequence = int(match[1]), int(match[3])
        domains[domain] = max(sequence, domains.get(domain, -1))
    return domains


def renumbered(position: Position, created_s: int) -> SourceIdentityError:
    """Error for a journal that has the position's name and is another one."""
    return SourceIdentityError(
        "the journal is not the one that the position was taken from: the log was reset, or it is another server",
        journal=position.journal,
        offset=position.offset,
        expected=f"a journal created at {position.journal_created_s} (seconds since 1970)",
        got=f"one created at {created_s}",
        next_step=_RENUMBERED_STEP,
    )


def _missing(position: Position, names: list[str]) -> CdcError:
    expected = f"one of {names[0]} to {names[-1]}" if names else "a journal"
    if names and position.journal_created_s and journal_number(position.journal) > journal_number(names[-1]):
        # A journal that was read once has a number above the newest: numbering began again (pitfall 1).
        return SourceIdentityError(
            "the server's journals are numbered anew: its log was reset, or it is another server",
            journal=position.journal,
            offset=position.offset,
            expected=expected,
            next_step=_RENUMBERED_STEP,
        )
    return JournalMissingError(
        "the journal is not on the server: purged, or never there",
        journal=position.journal,
        offset=position.offset,
        expected=expected,
        next_step=_GAP_STEP,
    )


def _not_a_boundary(position: Position, expected: str, got: object) -> PositionError:
    return PositionError(
        "the position is not an event boundary",
        journal=position.journal,
        offset=position.offset,
        expected=expected,
        got=got,
        next_step="start at an offset that SHOW BINLOG EVENTS lists for that journal",
    )


def _mysql_difference(server: ServerConnection, left: str, right: str, gtid_set: str) -> str:
    try:
        return compact_set(server.value(f"SELECT GTID_SUBTRACT({left}, {right})", (gtid_set,)))
    except StatementError as error:
        raise _not_a_set(gtid_set, error) from None


def _not_a_set(gtid_set: str, error: StatementError) -> PositionError:
    return PositionError(
        "not a GTID set of MySQL",
        expected="uuid:1-5, separated by commas",
        got=f"{gtid_set} (error {error.number}: {error.text})",
        next_step="take it from SELECT @@GLOBAL.gtid_executed, or start at a journal and offset",
    )


def _mariadb_differences(server: ServerConnection, gtid_set: str) -> tuple[str, str]:
    """(purged transactions that follow the position, transactions of the position that were not executed), as text."""
    start = mariadb_domains(gtid_set)
    executed = mariadb_domains(server.end_position().gtid_set)
    first = mariadb_domains(earliest(server).gtid_set)
    # Before the oldest journal: a domain that the position lacks, or has reached less of.
    purged = [
        f"domain {domain}: {start.get(domain, 0) + 1} to {sequence}"
        for domain, sequence in first.items()
        if start.get(domain, 0) < sequence
    ]
    ahead = [
        f"domain {domain}: {executed.get(domain, 0) + 1} to {sequence}"
        for domain, sequence in start.items()
        if executed.get(domain, 0) < sequence
    ]
    return ", ".join(purged), ", ".join(ahead)


def has_tags(gtid_set: str) -> bool:
    """Whether a MySQL GTID set holds tags (``uuid:tag:1-5``), which need a binary form of their own."""
    return re.search(r":\s*[A-Za-z_]", gtid_set) is not None
