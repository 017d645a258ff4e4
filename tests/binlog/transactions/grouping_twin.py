"""The transaction pass again, slow and in plain Python: the compiled kernel must agree with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cdc_pipeline.binlog.chunk import Chunk, Role
from cdc_pipeline.binlog.event_types import EventType as T

ROWS = {19, 39, *range(23, 26), *range(30, 33), *range(166, 172)}
GTIDS = {T.GTID, T.ANONYMOUS_GTID, T.GTID_TAGGED, T.MARIADB_GTID}
_BLANK = r"(?:[\s;]|/\*(?!M?!).*?(?:\*/|\Z)|#[^\n]*|--[\s][^\n]*)*"
_WORD = re.compile(_BLANK + r"(BEGIN|COMMIT|ROLLBACK)" + _BLANK, re.I | re.S | re.A)
_XA_START = re.compile(
    _BLANK + r"XA(?![\w$])" + _BLANK + r"(?:START|BEGIN)(?![\w$\x80-\xff])", re.I | re.S | re.A
)


class Contradiction(Exception):
    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


@dataclass
class Twin:
    open: bool = False
    offset: int = -1
    ordinal: int = 0
    commit_us: int = -1
    by_gtid: bool = False
    body: bool = False
    no_change: bool = False
    committed: int = 0
    rolled_back: int = 0
    abandoned: int = 0
    prepared: int = 0
    # role, tx_offset, tx_ordinal, commit_ts_us
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)

    def apply(self, chunk: Chunk) -> None:
        for row in range(len(chunk.events)):
            self._event(chunk, row)

    def _begin(self, event, by_gtid: bool, commit_us: int) -> None:
        self.open, self.offset, self.ordinal = True, int(event["offset"]), 0
        self.commit_us, self.by_gtid, self.body = commit_us, by_gtid, False

    def _event(self, chunk: Chunk, row: int) -> None:
        event = chunk.events[row]
        kind = int(event["event_type"])
        header_us = int(event["timestamp_s"]) * 1_000_000
        body = bytes(chunk.body(row))
        role, ends, member = Role.OTHER, "", True
        if kind in ROWS:
            if not self.open:
                raise Contradiction(row)
            self.body, role = True, Role.ROWDATA
        elif kind == T.XID:
            if not self.open:
                raise Contradiction(row)
            role, ends = Role.TRANSACTIONEND, "commit"
        elif kind == T.XA_PREPARE:
            if not self.open:
                raise Contradiction(row)
            role, ends = (
                (Role.TRANSACTIONEND, "commit") if body[0] else (Role.XA_PREPARE, "prepare")
            )
        elif kind in GTIDS:
            if self.open:
                raise Contradiction(row)
            self._begin(event, True, header_us)
            self.no_change = False
            if kind == T.MARIADB_GTID:
                self.body = not body[12] & 1
                at = 13 + (8 if body[12] & 2 else 0)
                if body[12] & 0xC0:
                    at += 6 + body[at + 4] + body[at + 5]
                self.no_change = at < len(body) and bool(body[at] & 0x0A)
            elif int.from_bytes(body[42:49], "little"):
                self.commit_us = int.from_bytes(body[42:49], "little")
            role = Role.TRANSACTIONBEGIN
        elif kind in (T.QUERY, T.EXECUTE_LOAD_QUERY):
            database, status = body[8], int.from_bytes(body[11:13], "little")
            more = 13 if kind == T.EXECUTE_LOAD_QUERY else 0
            text = body[13 + more + status + database + 1 :].decode("latin1")
            word = _WORD.fullmatch(text)
            verb = word[1].upper() if word else ""
            if verb == "BEGIN":
                if self.open and (self.body or not self.by_gtid):
                    raise Contradiction(row)
                if not self.open:
                    self._begin(event, False, header_us)
                    role = Role.TRANSACTIONBEGIN
                self.body = True
            elif verb:
                if not self.open:
                    raise Contradiction(row)
                role, ends = (
                    (Role.TRANSACTIONEND, "commit")
                    if verb == "COMMIT"
                    else (Role.ROLLBACK, "rollback")
                )
            else:
                role = Role.STATEMENT
                if not self.open:
                    self._begin(event, False, header_us)
                if _XA_START.match(text):
                    self.body = True
                elif not self.body:
                    ends = "commit"
                    role = Role.TRANSACTIONEND if self.by_gtid and self.no_change else role
        elif kind in (T.FORMAT_DESCRIPTION, T.ROTATE, T.STOP):
            role, member = Role.JOURNAL, False
            self.abandoned += self.open
            self.open = False
        elif kind in (T.PREVIOUS_GTIDS, T.MARIADB_GTID_LIST):
            if self.open:
                raise Contradiction(row)
            role = Role.JOURNAL
        elif kind in (T.HEARTBEAT, T.HEARTBEAT_V2):
            role, member = Role.HEARTBEAT, False
        if self.open and member:
            self.rows.append((int(role), self.offset, self.ordinal, self.commit_us))
            self.ordinal += 1
        else:
            self.rows.append((int(role), -1, 0, -1))
        if ends:
            self.open = False
            self.committed += ends == "commit"
            self.rolled_back += ends == "rollback"
            self.prepared += ends == "prepare"
