"""Find where in the log a read view lies (K17: a snapshot joins the log at exactly one place).

A server first writes a transaction to its log (flush), then its engines commit it. In between the
transaction precedes the end of the log but is in no view. So a view and the log's end, read one
after the other, do not match. A view lies between two marks:

- *Low mark*: everything before it is in the view. A cursor's position C is a low mark as soon as
  every transaction up to C is proved to be committed (`committed`, `wait_committed`) before the
  view is opened. The proof:
  - MySQL with GTIDs: a GTID enters @@gtid_executed after the commit in the engines; C's set must be
    a subset of it.
  - MariaDB: START TRANSACTION WITH CONSISTENT SNAPSHOT reports the exact place of its own view in
    the log (binlog_snapshot_file, binlog_snapshot_position): it must be at C or after it.
  - MySQL without GTIDs: a session holds a metadata lock of type COMMIT from before its flush until
    after its commit in the engines. If the account may see these locks
    (`source/rows/commit_locks.py`), C is proved once all sessions that held one after C was flushed
    have released it. If it may not: a server does not change to a new journal before everything in
    the old one is committed, so the beginning of its newest journal is always proved.
    `wait_committed` returns that earlier boundary instead of C. The overlap is read twice, which is
    harmless in keyed mirrors.
- *End mark*: nothing after it is in the view. The log's end (`ServerConnection.end_position`), read
  after the view was opened, is one.

An *exact view* (`exact_view`) is one whose low and end mark are the same place. It is needed if
changes cannot be applied twice (history, changelog, tables without a key).

- MariaDB's snapshot is always exact, whatever is written meanwhile.
- MySQL with GTIDs: try until nothing was between flush and commit while the view was opened. In
  this order: E = gtid_executed, open the view, P = the log's end, O = gtid_owned, E' =
  gtid_executed. A transaction has an owner from before its flush until after its commit, then it is
  executed. So each transaction that was flushed before P is in O, or left it before O was read and
  is in E'. If O is empty and E' = E, all of them are in E: committed before the view was opened.
  None after P can be in the view, since it was not flushed then. So the view is exactly what
  precedes P, and E is its set. Sessions that hold a GTID without writing (appliers of a replica,
  gtid_next) and a server that is never idle for the time of five small statements make it fail,
  never make it wrong. If the caller names the tables, the log itself is then searched
  (`log_tail.py`): what precedes P and is not in E may or may not be in the view, and if none of it
  touches these tables, the view of them is exactly what precedes P. So only writers of these tables
  can interfere, and only while one of them commits.
- MySQL without GTIDs: A = the log's end, no session holds a lock of type COMMIT, open the view, P =
  the log's end. If P = A the view holds exactly what precedes A: what was flushed before is
  committed, and nothing was flushed since. If the locks are not visible, an exact view is refused.

Only tables of transactional engines have views; MyISAM and the like are read in their state of that
moment.

Source: MySQL manual "gtid_executed", "gtid_owned", "The metadata_locks Table"; `ha_commit_trans`
and `MYSQL_BIN_LOG::ordered_commit` of its sources; MariaDB "START TRANSACTION", "Enhancements for
START TRANSACTION WITH CONSISTENT SNAPSHOT".
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final

from cdc_pipeline.errors import ServerSettingError, TableReadInterruptedError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.answers import number_of
from cdc_pipeline.source.live.connection import ServerConnection, compact_set, place_of_status
from cdc_pipeline.source.rows.commit_locks import CommitLocks, MetadataLocksHiddenError
from cdc_pipeline.source.rows.log_tail import LogTail
from cdc_pipeline.source.rows.table_reader import TableReader

_POLL_S: Final = 0.05
_PAUSE_S: Final = 0.0007
_PAUSES: Final = 23
_PAUSE_MAX_S: Final = 0.02
_SNAPSHOT_STATUS: Final = "SHOW STATUS LIKE 'binlog\\_snapshot\\_%'"


def committed(server: ServerConnection, position: Position) -> bool:
    """Whether every transaction before `position` is proved to be committed in the engines, and
    so is in each view opened from now on. Raises SourceError, ServerUnreachableError: as the
    server answered.
    """
    if server.flavor == "mariadb":
        # The control connection may be reopened, which would silently end the snapshot.
        with TableReader(server.config) as reader:
            reader.begin_view()
            return _place_of_view(reader).order >= position.order
    return _committed_by_mysql(server, position)


def wait_committed(
    server: ServerConnection, position: Position, *, timeout_s: float = 30
) -> Position:
    """The low mark for a snapshot from `position`: that itself as soon as it is proved; for MySQL
    without GTIDs the beginning of the newest journal, if that is earlier. Raises
    TableReadInterruptedError: a transaction before it is not committed in time; SourceError,
    ServerUnreachableError: as the server answered.
    """
    deadline_s = time.monotonic() + timeout_s
    while not committed(server, position):
        if server.flavor == "mysql" and not (position.gtid_set and server.uses_gtids):
            return _proved_without_gtids(server, position, timeout_s=timeout_s)
        if time.monotonic() > deadline_s:
            raise TableReadInterruptedError(
                f"a transaction in the log of {server.address} is not committed",
                at=position,
                expected=f"everything before the position to be committed within {timeout_s:g} s",
                next_step="look in SHOW PROCESSLIST for a commit that hangs (a full disk, a "
                "semi-synchronous replica that does not answer), then run again",
            )
        time.sleep(_POLL_S)
    return position


def _committed_by_mysql(server: ServerConnection, position: Position) -> bool:
    if position.gtid_set and server.uses_gtids:
        with server.no_refusal():
            return bool(
                server.value("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (position.gtid_set,))
            )
    if position.order <= _newest_journal(server).order:
        return True
    if position.order > server.end_position().order:
        return False
    try:
        return not CommitLocks(server.rows).held()
    except MetadataLocksHiddenError:
        return False


def _newest_journal(server: ServerConnection) -> Position:
    return Position(server.journals()[-1].journal)


def _proved_without_gtids(
    server: ServerConnection, position: Position, *, timeout_s: float
) -> Position:
    """`position` as soon as all commits that were under way after it are done; an earlier
    boundary if that cannot be seen or takes too long.
    """
    if position.order <= server.end_position().order:
        with suppress(MetadataLocksHiddenError):
            if CommitLocks(server.rows).wait_over(timeout_s=timeout_s):
                return position
    return _newest_journal(server)


def exact_view(
    reader: TableReader,
    *,
    timeout_s: float = 60,
    tables: Collection[tuple[str, str]] = (),
    since: Position | None = None,
) -> Position:
    """Open a view on `reader` that holds exactly the transactions before the returned mark.

    Args:
        tables: (database, table) of those that are read in it; the view may hold later changes of
            others.
        since: with tables, a place near the log's end with the set of all transactions before it.

    Raises:
        ServerSettingError: MySQL without GTIDs, if its locks cannot be seen.
        TableReadInterruptedError: the server was never idle for long enough (MySQL).
        SourceError, ServerUnreachableError: as the server answered.
    """
    if reader.flavor == "mariadb":
        reader.begin_view()
        place = _place_of_view(reader)
        return replace(place, gtid_set=reader.mariadb_gtid_position(place))
    mode = reader.text("SELECT @@GLOBAL.gtid_mode")
    attempt = _exact_by_gtids if mode.upper() == "ON" else _exact_by_locks
    deadline_s = time.monotonic() + timeout_s
    tail = LogTail(reader, tables, since) if tables and since is not None else None
    tries = 0
    while True:
        tries += 1
        try:
            mark, owned = attempt(reader, tail)
        except MetadataLocksHiddenError as error:
            raise ServerSettingError(
                "on MySQL, a view at an exactly known position needs GTIDs, or access to its locks",
                setting="gtid_mode",
                expected="ON",
                got=f"{mode}; {error.what}",
                next_step="switch GTIDs on (enforce_gtid_consistency = ON, then gtid_mode step by "
                "step to ON); or GRANT SELECT ON performance_schema.* TO the account, with "
                "performance_schema = ON; or keep the table as a mirror with a key",
            ) from None
        if mark is not None:
            return mark
        if time.monotonic() > deadline_s:
            raise TableReadInterruptedError(
                f"{reader.address} always had a transaction in flight",
                expected="no transaction that is between log and engine while a view is opened",
                got=f"{tries} tries in {timeout_s:g} s"
                + (f"; owned at the last try: {owned[:200]}" if owned else ""),
                next_step="run again when the server is less busy; or read from a replica "
                "whose applier is stopped; or keep the table as a mirror with a "
                "key, which needs no exact position",
            )
        # Not in step with a periodic writer.
        time.sleep(min(_PAUSE_MAX_S, _PAUSE_S * (tries % _PAUSES)))


def _exact_by_gtids(reader: TableReader, tail: LogTail | None) -> tuple[Position | None, str]:
    """Try once: the mark of the view that is then open, or None and what prevented it."""
    before = _value(reader, "SELECT @@GLOBAL.gtid_executed")
    reader.begin_view()
    place = place_of_status(reader.log_status())
    owned = _value(reader, "SELECT @@GLOBAL.gtid_owned")
    if not owned and _value(reader, "SELECT @@GLOBAL.gtid_executed") == before:
        return replace(place, gtid_set=before), ""
    if tail is not None and (whole := tail.set_at(before, place)) is not None:
        return replace(place, gtid_set=whole), ""
    reader.end_view()
    return None, owned


def _exact_by_locks(reader: TableReader, _tail: LogTail | None) -> tuple[Position | None, str]:
    """The same without GTIDs and for all tables. Raises MetadataLocksHiddenError."""
    place = place_of_status(reader.log_status())
    committing = CommitLocks(reader.rows).held()
    if not committing:
        reader.begin_view()
        if place_of_status(reader.log_status()).order == place.order:
            return place, ""
        reader.end_view()
    return None, f"{len(committing)} commits"


def _place_of_view(reader: TableReader) -> Position:
    """In the log (MariaDB)."""
    variables = reader.pairs(_SNAPSHOT_STATUS)
    journal = variables.get("binlog_snapshot_file", "")
    if not journal:
        raise ServerSettingError(
            "the server does not report the position of its snapshots",
            setting="log_bin",
            expected="status variables binlog_snapshot_file and binlog_snapshot_position",
            next_step="set log_bin = binlog in the server's configuration and restart it",
        )
    offset = variables.get("binlog_snapshot_position")
    return Position(journal, number_of(offset, address=reader.address, asked=_SNAPSHOT_STATUS))


def _value(reader: TableReader, sql: str) -> str:
    return compact_set(reader.text(sql))
