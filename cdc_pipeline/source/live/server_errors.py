"""Map a server's error numbers to errors of a capture: one table for connections, one for the
dump stream, and one for reading a table.

Rules:
- Every error of a server becomes a CdcError whose class says what the caller can do, whose `got`
  holds the server's own words and whose `next_step` is an action. Passwords are in none of them.
- Number 1236 has many causes: its text decides. The texts were collected from MySQL 9.7 and MariaDB
  10.11.

Source: MySQL 9.7 "Server Error Message Reference", MariaDB "Error Codes".
"""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    DamagedJournalError,
    HasPlace,
    JournalMissingError,
    LoginError,
    MissingGrantError,
    PositionError,
    ReplicaIdError,
    ServerSettingError,
    ServerUnreachableError,
    SourceError,
    SourceIdentityError,
    TableChangedError,
    TableReadError,
    TableReadInterruptedError,
    TruncatedJournalError,
)
from cdc_pipeline.position.start.same_log import FILE_GONE_STEP, begin_again
from cdc_pipeline.text.server_messages import said_by_server
from cdc_pipeline.text.table_names import quoted_table

PARSE_ERROR: Final = 1064
_FILE_NOT_FOUND: Final = 29
_TORN_TEXT: Final = "truncated in the middle of event"
UNKNOWN_VARIABLE: Final = 1193
ACCESS_DENIED_PRIVILEGE: Final = 1227
LOST_NUMBERS: Final = frozenset(
    {2006, 2013, 2055, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1317, 1927}
)
DENIED_NUMBERS: Final = frozenset(
    {1044, 1045, 1130, 1698, 1820, 1862, 3118, 3878, 3879, 3880, 4151}
)
# OpenSSL's reasons that come again: certificates, protocols and ciphers that do not fit. Any other
# is how a connection looks that breaks during the handshake.
_TLS_DISAGREEMENTS: Final = re.compile(
    "CERT|PROTOCOL|CIPHER|HANDSHAKE_FAILURE|UNKNOWN_CA|SECURITY|KEY_TOO_SMALL|ACCESS_DENIED"
)


@dataclass(frozen=True, slots=True)
class _Cause:
    """An error of the dump stream, known by pieces of the server's text in lower case."""

    error: type[CdcError]
    what: str
    next_step: str
    texts: tuple[str, ...]


NOT_THERE: Final = "the journal is not on the server: it was purged, or never existed"
SKIP_GAP: Final = (
    "read the missing part from an archive (source.archive_directory), and keep journals "
    "longer with binlog_expire_logs_seconds; without an archive, {begin_again}"
)
BOUNDARY: Final = "start at an offset that SHOW BINLOG EVENTS lists for that journal"
OTHER_PROGRAM_STEP: Final = (
    "check that source.host and source.port lead to your server and not to another program, and "
    "look into the server's error log; set source.tls.mode to verify, so that nobody in between "
    "can answer in its place"
)
_FILE_GONE: Final = _Cause(
    JournalMissingError,
    "the server lists the journal, but its file is gone",
    FILE_GONE_STEP,
    ("could not open log file", "errcode: 2"),
)

# In this order: the first cause with a piece in the text applies.
_STREAM_CAUSES: Final = (
    _Cause(
        JournalMissingError,
        NOT_THERE,
        SKIP_GAP,
        ("could not find first log file",),
    ),
    _Cause(
        JournalMissingError,
        "the server has purged transactions that are still needed",
        SKIP_GAP,
        ("purged required", "purged binary logs containing", "could not find gtid state"),
    ),
    _FILE_GONE,
    _Cause(
        SourceIdentityError,
        "the start holds transactions that this server never had",
        "check that source.host is the server that the cursor was written for; if its log was "
        "reset or it was restored, {begin_again}",
        ("more gtids than", "not in the master's binlog", "diverged"),
    ),
    _Cause(
        ReplicaIdError,
        "another reader with the same server id has connected to the server",
        "give this pipeline its own source.replica_server_id; run only one capture of a "
        "pipeline at a time",
        ("same server_uuid/server_id", "same server_id"),  # since MariaDB 11 without a uuid
    ),
    _Cause(
        DamagedJournalError,
        "an event on the server does not match its checksum",
        "repair or replace the journal on the server; everything before the event was delivered",
        ("crc check",),
    ),
    _Cause(
        ServerSettingError,
        "the server sends no transactions without a GTID while its gtid_mode is ON, and there are "
        "some after the start",
        "SET GLOBAL gtid_mode = 'ON_PERMISSIVE' and run again; when the run has passed them, set "
        "it to 'ON' again",
        ("anonymous transaction when @@global.gtid_mode = on",),
    ),
    _Cause(
        ServerSettingError,
        "the server sends no transactions with a GTID while its gtid_mode is OFF, and there are "
        "some after the start",
        "SET GLOBAL gtid_mode = 'OFF_PERMISSIVE' and run again; when the run has passed them, set "
        "it to 'OFF' again",
        ("gtid-transaction when @@global.gtid_mode = off",),
    ),
    _Cause(
        ServerSettingError,
        "the log holds transactions without GTIDs in the range that is read by GTID",
        "SET GLOBAL gtid_mode = 'ON_PERMISSIVE' and run again: they are then read by journal "
        "and offset; when the run has passed them, set it to 'ON' again",
        ("anonymous",),
    ),
    _Cause(
        PositionError,
        "the offset is not in the journal",
        BOUNDARY,
        ("impossible position", "position < 4", "position > file size"),
    ),
    _Cause(
        PositionError,
        "the server finds no complete event at the offset",
        f"{BOUNDARY}; if it lists the offset, raise max_allowed_packet on the server",
        ("bogus data", "truncated in the middle", "max_allowed_packet"),
    ),
    _Cause(
        PositionError,
        "the server cannot read the GTID position of the start",
        "write it as the server prints it, such as 0-1-42",
        ("could not parse gtid",),
    ),
)


def connect_error(error: Exception, *, address: str, user: str) -> CdcError:
    """`error`, pymysql's or TLS's, kept the connection from being made."""
    number, text = error_parts(error)
    original = getattr(error, "original_exception", error)
    if isinstance(original, ssl.SSLError):
        got = f"{original.reason or ''} {getattr(original, 'verify_message', '')}".strip() or text
        if not _TLS_DISAGREEMENTS.search(original.reason or ""):
            return ServerUnreachableError(
                f"the connection to {address} broke while TLS was being established",
                setting="source.tls",
                got=got,
                next_step="run again; if it breaks again, check that nothing between this machine "
                "and the server ends or changes TLS connections",
            )
        return LoginError(
            f"cannot establish a TLS connection to {address}",
            setting="source.tls",
            got=got,
            next_step="set source.tls.ca_file to the certificate of the server's CA and "
            "connect by the name in the server's certificate; source.tls.mode "
            "verify_ca does not check the name, and required checks nothing",
        )
    if number == 2026:
        return LoginError(
            f"{address} offers no TLS",
            setting="source.tls.mode",
            got=text,
            next_step="give the server a certificate (ssl_cert, ssl_key); if it has one, find out "
            "what between this machine and the server takes TLS out of its greeting",
        )
    if number == 3159:
        return LoginError(
            f"{address} accepts encrypted connections only",
            setting="source.tls.mode",
            got=text,
            next_step="set source.tls.mode to verify, verify_ca or required",
        )
    if number in DENIED_NUMBERS:
        return LoginError(
            f"{address} refuses the account {user!r}",
            setting="source.user, source.password",
            # "(using password: YES)" is no secret, but looks like one in a log.
            got=f"error {number}: {text.partition(' (using password')[0]}",
            next_step="check user and password (and the environment variable that holds it), that "
            "the account may connect from this machine, and whether it requires TLS "
            "(source.tls.mode)",
        )
    if number in (1251, 1524, 2059, 2061) or isinstance(error, RuntimeError):
        return LoginError(
            f"{address} asks for an authentication method that is not available",
            setting="source.user",
            got=text,
            next_step="ALTER USER ... IDENTIFIED WITH caching_sha2_password (MySQL) or "
            "mysql_native_password (MariaDB)",
        )
    said = text if number is None else f"error {number}: {text}"
    if isinstance(original, socket.gaierror):
        return ServerUnreachableError(
            f"no connection to {address}: nobody knows this host name",
            setting="source.host",
            got=original.strerror or said,
            next_step="correct source.host; `getent hosts NAME` shows whether this machine knows "
            "a name",
        )
    if isinstance(original, ConnectionRefusedError):
        return ServerUnreachableError(
            f"no connection to {address}: nothing listens there",
            setting="source.host, source.port",
            got=original.strerror or said,
            next_step="correct source.host and source.port (3306 is the default), or start the "
            "server; bind_address may keep it from listening on this address",
        )
    return ServerUnreachableError(
        f"no connection to {address}",
        setting="source.host, source.port",
        got=said,
        next_step="check source.host and source.port, that the server is running, and that no "
        "firewall blocks the connection",
    )


def stream_error(
    number: int,
    text: str,
    *,
    at: HasPlace,
    address: str,
    has_moved: bool = False,
    begin_again: str = begin_again(),
) -> CdcError:
    """For an error packet that ended a dump; `at` tells how far it had been read, `has_moved`
    whether that is behind its start.
    """
    got = f"error {number}: {text}"
    if number == ACCESS_DENIED_PRIVILEGE:
        return MissingGrantError(
            "the account may not read the log",
            setting="REPLICATION SLAVE",
            got=got,
            next_step="GRANT REPLICATION SLAVE ON *.* TO the account of source.user",
        )
    if number in LOST_NUMBERS:
        return lost_connection(address, got, at=at)
    lowered = text.lower()
    if number == _FILE_NOT_FOUND:
        lowered = _FILE_GONE.texts[0]
    if has_moved and _TORN_TEXT in lowered:
        return TruncatedJournalError(
            "the server's journal ends in the middle of an event: a power cut or a crash has cost "
            "it its end",
            at=at,
            got=got,
            next_step="run again: everything before was delivered, and reading goes on with the "
            "next journal, if its GTIDs prove that nothing else is missing; then run "
            "`cdc-pipeline verify`: the tables may have changes that the log has lost",
        )
    for cause in _STREAM_CAUSES:
        if any(piece in lowered for piece in cause.texts):
            next_step = cause.next_step.format(begin_again=begin_again)
            return cause.error(cause.what, at=at, got=got, next_step=next_step)
    return SourceError(
        f"{address} ended the dump with an error",
        at=at,
        got=got,
        next_step="look the error up in the server's error log; everything before this "
        "position was delivered",
    )


def lost_connection(address: str, got: object, *, at: HasPlace) -> ServerUnreachableError:
    return ServerUnreachableError(
        f"the connection to {address} broke while the log was being read",
        at=at,
        got=got,
        next_step="run again: reading continues after the last complete transaction; if it "
        "breaks again, see the server's error log and net_write_timeout",
    )


def asks_for_file(address: str) -> SourceError:
    """The server answers a statement by asking for a file of this machine (LOAD DATA LOCAL)."""
    return SourceError(
        f"{address} answered a statement by requesting a local file, which is refused",
        expected="rows, or an error",
        got="a request like that of LOAD DATA LOCAL",
        next_step=OTHER_PROGRAM_STEP,
    )


def lost_table_connection(
    address: str, got: object, *, table: str | None = None
) -> ServerUnreachableError:
    """For a broken connection over which tables are read."""
    return ServerUnreachableError(
        f"the connection to {address} broke while tables were being read",
        table=table,
        got=got,
        next_step="run again; if it breaks again, see the server's error log and net_write_timeout",
    )


def error_parts(error: BaseException) -> tuple[int | None, str]:
    """Number and words of a pymysql error; (None, words) for any other. No value is among them."""
    # The operating system's errors have numbers too, which are not the server's.
    if not isinstance(error, OSError) and len(error.args) >= 2 and isinstance(error.args[0], int):
        return error.args[0], said_by_server(error.args[0], str(error.args[1]))
    return None, said_by_server(None, str(error)) or type(error).__name__


# Lock wait, deadlock, interrupted (killed), max_execution_time, max_statement_time, row limits of
# the moment.
_INTERRUPTED: Final = frozenset({1205, 1213, 1317, 3024, 1969, 3572})
_DENIED: Final = frozenset({1142, 1143})
# No such table, unknown column, definition changed, needs a new preparation, no such database.
_CHANGED: Final = frozenset({1146, 1054, 1412, 1615, 1049, 1051, 1932})
_UNKNOWN_COLUMN: Final = 1054
_IN_WHERE: Final = re.compile(r" in '(where clause|WHERE)'$")
_OF_THE_CONDITION: Final = frozenset(
    {1064, 1305, 1370, 1111, 1242, 1241, 1267, 1149, 1630, 4161, 1253}
)


def table_error(number: int, text: str, *, address: str, table: str, where: str = "") -> CdcError:
    """For a SELECT of `table` that the server refused or broke off; `where` is the user's."""
    got = f"error {number}: {said_by_server(number, text)}"
    if where and (
        number in _OF_THE_CONDITION or (number == _UNKNOWN_COLUMN and _IN_WHERE.search(text))
    ):
        return ConfigError(
            f"the server does not accept the condition for {table}",
            setting="where",
            expected="a condition in the server's SQL over the table's columns",
            got=got,
            next_step=f"try it on the server: SELECT COUNT(*) FROM {quoted_table(table)} "  # noqa: S608
            "WHERE (the condition)",
        )
    if number in _DENIED:
        return MissingGrantError(
            "the account may not read the table",
            table=table,
            setting="SELECT",
            got=got,
            next_step=f"GRANT SELECT ON {quoted_table(table)} TO the account",
        )
    if number in _INTERRUPTED:
        return TableReadInterruptedError(
            f"{address} interrupted the reading of the table",
            table=table,
            got=got,
            next_step="run again; rows that were read and kept are not read again",
        )
    if number in _CHANGED:
        return TableChangedError(
            "the table was altered, renamed or dropped, before or while it was being read",
            table=table,
            got=got,
        )
    if number in LOST_NUMBERS:
        return lost_table_connection(address, got, table=table)
    return TableReadError(
        f"{address} refuses to read the table",
        table=table,
        got=got,
        next_step="see the server's documentation of this error",
    )
