"""The query event: the text of a statement, and the session settings needed to read it.

Rules:
- The text is decoded by the client charset of its session. If it is not valid in it, `sql` has
  U+FFFD, `is_exact` is False and `raw` keeps the bytes.
- An unknown status variable ends the scan of the variables, because they have no length: those
  before it count, and the text after them is found by their total length.
- LOAD DATA in statement format ends in EXECUTE_LOAD_QUERY, an event like a query's with more fields
  at its head.

Source: MySQL `Query_event`, MariaDB "QUERY_EVENT".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import FLAG_COMMIT_ALTER, FLAG_ROLLBACK_ALTER, EventType
from cdc_pipeline.binlog.tables.charsets import decode_text
from cdc_pipeline.binlog.tables.collations import CHARSET_BY_COLLATION
from cdc_pipeline.errors import CdcError, DamagedJournalError

_POST_HEADER_BYTES: Final = 13
_FLAGS2: Final = 0
_NO_FOREIGN_KEY_CHECKS: Final = 1 << 26
_SQL_MODE: Final = 1
_CHARSET: Final = 4
_TIME_ZONE: Final = 5
_EXPLICIT_TIMESTAMP: Final = 16

# Bytes of each status variable of fixed length.
_FIXED: Final = {
    _FLAGS2: 4,
    _SQL_MODE: 8,
    3: 4,
    _CHARSET: 6,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    13: 3,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
    21: 1,
    128: 3,
    129: 8,
    255: 0,
}
_CATALOG: Final = 2  # length, text, zero byte
_TEXT: Final = frozenset({5, 6})  # time zone, catalog: length, text
_INVOKER: Final = 11  # two of them
_DATABASES: Final = 12  # count, texts that end with a zero byte
_DATABASES_MANY: Final = 254
# MariaDB: flags; with 0x4 (commit) or 0x8 (rollback) the number of the transaction that began.
_ALTER_PHASE: Final = 130
_COLLATIONS: Final = 131  # MariaDB 11: count, pairs of two-byte ids; comes before the others
# More fields at the head of EXECUTE_LOAD_QUERY: file id, two indexes into the text, a kind.
_LOAD_BYTES: Final = 13


@dataclass(frozen=True, slots=True)
class Query:
    """A statement.

    Attributes:
        sql: text of the statement.
        database: default database of the session; "" for none.
        thread_id: connection id.
        error_code: error with which the statement ended on its server; 0 for none.
        sql_mode: bits of the session's mode; None if the event lacks it.
        time_zone: time zone of the session; "" if the event lacks it.
        explicit_defaults_for_timestamp: setting of the session (MySQL only); None if the event
            lacks it.
        charset: name of the client charset; "" if the event lacks it.
        server_charset: charset of `collation_server` in the session; "" if the event lacks it.
        raw: bytes of the text.
        is_exact: False if `sql` could not be decoded without loss.
        databases: those of all tables that the statement opened, through triggers, views and
            functions too (MySQL); None if they are not listed, or are too many.
        unknown_variable: code of the status variable that ended the scan; -1 if all are known.
        foreign_key_checks: setting of the session; True if the event lacks it.
    """

    sql: str
    database: str
    thread_id: int
    error_code: int
    sql_mode: int | None
    time_zone: str
    explicit_defaults_for_timestamp: bool | None
    charset: str
    raw: bytes
    is_exact: bool
    server_charset: str = ""
    databases: frozenset[str] | None = None
    unknown_variable: int = -1
    foreign_key_checks: bool = True


def parse_query(chunk: Chunk, row: int) -> Query:
    """Parse the query event or EXECUTE_LOAD_QUERY at `row` of a chunk.
    Raises the errors of `parse`.
    """
    post_header = chunk.journal_format.query_post_header_bytes or _POST_HEADER_BYTES
    if chunk.events["event_type"][row] == EventType.EXECUTE_LOAD_QUERY:
        post_header += _LOAD_BYTES
    return parse(
        chunk.body(row),
        journal=chunk.journal,
        offset=int(chunk.events["offset"][row]),
        is_mariadb=chunk.journal_format.is_mariadb,
        post_header_bytes=post_header,
    )


def parse(
    body: bytes | memoryview,
    *,
    journal: str,
    offset: int,
    is_mariadb: bool = False,
    post_header_bytes: int = _POST_HEADER_BYTES,
) -> Query:
    """Parse a query event from its bytes between header and checksum. Raises DamagedJournalError:
    the body ends too early.
    """
    raw = bytes(body)
    database_bytes = raw[8] if len(raw) > 8 else 0
    variables_bytes = 0
    if post_header_bytes >= _POST_HEADER_BYTES:
        variables_bytes = int.from_bytes(raw[11:13], "little")
    database_at = post_header_bytes + variables_bytes
    sql_at = database_at + database_bytes + 1
    if len(raw) < max(sql_at, _POST_HEADER_BYTES - 2):
        raise DamagedJournalError(
            "a query event is shorter than its own fields",
            at=(journal, offset),
            expected=f"at least {sql_at} bytes",
            got=f"{len(raw)} bytes",
        )
    variables, unknown = _status_variables(raw[post_header_bytes:database_at])
    text = raw[sql_at:]
    charset = server_charset = ""
    if _CHARSET in variables:
        server_charset = CHARSET_BY_COLLATION.get(
            int.from_bytes(variables[_CHARSET][4:6], "little"), ""
        )
        charset = CHARSET_BY_COLLATION.get(int.from_bytes(variables[_CHARSET][:2], "little"), "")
    is_logged = not is_mariadb and _EXPLICIT_TIMESTAMP in variables
    sql, is_exact = _decode(text, charset or "utf8mb4", is_mariadb)
    return Query(
        sql=sql,
        database=raw[database_at : database_at + database_bytes].decode("utf-8", "replace"),
        thread_id=int.from_bytes(raw[:4], "little"),
        error_code=int.from_bytes(raw[9:11], "little"),
        sql_mode=int.from_bytes(variables[_SQL_MODE], "little") if _SQL_MODE in variables else None,
        time_zone=variables.get(_TIME_ZONE, b"\0")[1:].decode("utf-8", "replace"),
        explicit_defaults_for_timestamp=bool(variables[_EXPLICIT_TIMESTAMP][0])
        if is_logged
        else None,
        charset=charset,
        raw=text,
        is_exact=is_exact,
        server_charset=server_charset,
        databases=None if is_mariadb else _databases(variables.get(_DATABASES, b"")),
        unknown_variable=unknown,
        foreign_key_checks=not int.from_bytes(variables.get(_FLAGS2, b""), "little")
        & _NO_FOREIGN_KEY_CHECKS,
    )


def _databases(listed: bytes) -> frozenset[str] | None:
    """Return the names of a list of databases; None if it is none, or holds the empty name, which
    stands for foreign keys that may lead anywhere."""
    names = listed[1:].split(b"\0")[:-1]
    if not names or b"" in names:
        return None
    return frozenset(name.decode("utf-8", "replace") for name in names)


def _decode(text: bytes, charset: str, is_mariadb: bool) -> tuple[str, bool]:
    # utf8mb3 clients may have sent four-byte characters inside literals; the text is still UTF-8.
    if charset not in ("utf8mb3", "utf8mb4", "binary"):
        try:
            return decode_text(text, charset, is_mariadb=is_mariadb), True
        except CdcError:
            pass
    try:
        return text.decode("utf-8"), True
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace"), False


def _status_variables(data: bytes) -> tuple[dict[int, bytes], int]:
    """The values by code, up to the first unknown one, and its code (-1 for none)."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        code = data[at]
        at += 1
        size = _variable_bytes(code, data, at)
        if size is None or at + size > len(data):
            return found, code
        found[code] = data[at : at + size]
        at += size
    return found, -1


def _variable_bytes(code: int, data: bytes, at: int) -> int | None:
    if code in _FIXED:
        return _FIXED[code]
    if at >= len(data):
        return None
    first = data[at]
    if code in _TEXT:
        return 1 + first
    if code == _CATALOG:
        return 2 + first
    if code == _ALTER_PHASE:
        return 9 if first & (FLAG_COMMIT_ALTER | FLAG_ROLLBACK_ALTER) else 1
    if code == _COLLATIONS:
        return 1 + 4 * first
    if code == _INVOKER:
        host_at = at + 1 + first
        return None if host_at >= len(data) else 2 + first + data[host_at]
    if code == _DATABASES:
        if first == _DATABASES_MANY:
            return 1
        end = at + 1
        for _ in range(first):
            zero = data.find(b"\0", end)
            if zero < 0:
                return None
            end = zero + 1
        return end - at
    return None
