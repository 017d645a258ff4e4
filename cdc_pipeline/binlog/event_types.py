"""All event types by number: their names, and how a capture treats them.

Source: MySQL `mysql::binlog::event::Log_event_type` (9.7 ends at 42), MariaDB `log_event.h` (10.11
ends at 171, 12.3 at 172). Numbers from 160 are MariaDB's.

Rules:
- HANDLED types are decoded. HARMLESS types change no row and are skipped. STOP types may contain
  changes that cannot be applied, so they stop the run (`STOP_REASONS` says how to continue).
- An unknown number stops the run too, unless the event's ignorable flag (0x80) is set; then it is
  counted.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

FLAG_IN_USE: Final = 0x0001
FLAG_ARTIFICIAL: Final = 0x0020
FLAG_RELAY_LOG: Final = 0x0040
FLAG_IGNORABLE: Final = 0x0080
HEADER_BYTES: Final = 19
# Phases of an ALTER of MariaDB: extra flags of its GTID event, and the status variable 130 of its
# query. Only the commit changes anything.
FLAG_START_ALTER: Final = 0x02
FLAG_COMMIT_ALTER: Final = 0x04
FLAG_ROLLBACK_ALTER: Final = 0x08
MAGIC: Final = b"\xfebin"
ENCRYPTED_MAGIC: Final = b"\xfdbin"


class EventType(IntEnum):
    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS_V2 = 30
    UPDATE_ROWS_V2 = 31
    DELETE_ROWS_V2 = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171
    MARIADB_PARTIAL_ROW_DATA = 172


_T = EventType

GTID_TYPES: Final = (_T.GTID, _T.GTID_TAGGED, _T.MARIADB_GTID)
SET_TYPES: Final = (_T.PREVIOUS_GTIDS, _T.MARIADB_GTID_LIST)  # at the head of a journal
CLOSING_TYPES: Final = (_T.ROTATE, _T.STOP)

ROWS_TYPES: Final = frozenset(
    {
        _T.WRITE_ROWS_V1, _T.UPDATE_ROWS_V1, _T.DELETE_ROWS_V1,
        _T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2, _T.DELETE_ROWS_V2, _T.PARTIAL_UPDATE_ROWS,
    }
)  # fmt: skip

# Compressed events and the type that they are rewritten to. A payload event stays, followed by its
# events.
PACKED_TYPES: Final[dict[EventType, EventType]] = {
    _T.TRANSACTION_PAYLOAD: _T.TRANSACTION_PAYLOAD,
    _T.MARIADB_QUERY_COMPRESSED: _T.QUERY,
    _T.MARIADB_WRITE_ROWS_COMPRESSED_V1: _T.WRITE_ROWS_V1,
    _T.MARIADB_UPDATE_ROWS_COMPRESSED_V1: _T.UPDATE_ROWS_V1,
    _T.MARIADB_DELETE_ROWS_COMPRESSED_V1: _T.DELETE_ROWS_V1,
    _T.MARIADB_WRITE_ROWS_COMPRESSED: _T.WRITE_ROWS_V2,
    _T.MARIADB_UPDATE_ROWS_COMPRESSED: _T.UPDATE_ROWS_V2,
    _T.MARIADB_DELETE_ROWS_COMPRESSED: _T.DELETE_ROWS_V2,
}

# What only a transaction has, behind its GTID: neither made up by a server, nor skipped alone.
IN_TRANSACTIONS: Final = (
    ROWS_TYPES | PACKED_TYPES.keys() | {_T.TABLE_MAP, _T.XID, _T.QUERY, _T.XA_PREPARE}
)

HANDLED: Final = (
    ROWS_TYPES
    | PACKED_TYPES.keys()
    | {
        _T.QUERY,
        _T.STOP,
        _T.ROTATE,
        _T.FORMAT_DESCRIPTION,
        _T.XID,
        _T.TABLE_MAP,
        _T.HEARTBEAT,
        _T.HEARTBEAT_V2,
        _T.GTID,
        _T.ANONYMOUS_GTID,
        _T.GTID_TAGGED,
        _T.PREVIOUS_GTIDS,
        _T.MARIADB_GTID,
        _T.MARIADB_GTID_LIST,
        _T.XA_PREPARE,
        _T.EXECUTE_LOAD_QUERY,
    }
)

# Change no row of any table: comments, checkpoints, group replication's bookkeeping; variables and
# file blocks of statements (the statement itself, LOAD DATA's EXECUTE_LOAD_QUERY too, is classified
# by its text).
HARMLESS: Final = frozenset(
    {
        _T.IGNORABLE,
        _T.ROWS_QUERY,
        _T.TRANSACTION_CONTEXT,
        _T.VIEW_CHANGE,
        _T.MARIADB_ANNOTATE_ROWS,
        _T.MARIADB_BINLOG_CHECKPOINT,
        _T.INTVAR,
        _T.RAND,
        _T.USER_VAR,
        _T.BEGIN_LOAD_QUERY,
        _T.APPEND_BLOCK,
        _T.DELETE_FILE,
    }
)

_STATEMENTS = (
    "statement-format changes carry no rows: SET GLOBAL binlog_format = 'ROW' and start after them"
)

# Only the server has the key of a file's events, and its dump has them in plain.
ENCRYPTED_STEP: Final = "read the journal from the running server, which decrypts what it sends"

STOP_REASONS: Final[dict[EventType, str]] = {
    _T.UNKNOWN: "the journal is damaged or was written by an unknown program",
    _T.START_V3: "journals of servers before MySQL 5.0 cannot be read",
    _T.LOAD: _STATEMENTS,
    _T.SLAVE: "an obsolete event of MySQL 4; the journal cannot be read",
    _T.CREATE_FILE: _STATEMENTS,
    _T.EXEC_LOAD: _STATEMENTS,
    _T.NEW_LOAD: _STATEMENTS,
    _T.PRE_GA_WRITE_ROWS: "rows events of MySQL 5.1 before its release; the journal cannot be read",
    _T.PRE_GA_UPDATE_ROWS: (
        "rows events of MySQL 5.1 before its release; the journal cannot be read"
    ),
    _T.PRE_GA_DELETE_ROWS: (
        "rows events of MySQL 5.1 before its release; the journal cannot be read"
    ),
    _T.INCIDENT: (
        "the server lost events here (see its error log); take new snapshots of the tables and "
        "start "
        "after the incident"
    ),
    _T.MARIADB_START_ENCRYPTION: ENCRYPTED_STEP,  # in a file; a dump is not encrypted
    _T.MARIADB_PARTIAL_ROW_DATA: "a fragmented rows event (MariaDB 12.3 and newer): SET "
    "GLOBAL binlog_row_event_fragment_threshold above the "
    "largest row, and start after these events",
}


def event_name(event_type: int) -> str:
    try:
        return f"{EventType(event_type).name} ({event_type})"
    except ValueError:
        return f"unknown type {event_type}"
