"""Compiled part of the transaction pass: which events form one transaction.

Rules:
- One loop over the events of a chunk, with a small integer state that is kept between chunks.
- The kernel reads four things from event bodies: the first words of a query's text, the flags of a
  MariaDB GTID event (and the extra flags), the commit timestamps of a MySQL GTID event, and whether
  an XA PREPARE is a one-phase commit.
- The first event that contradicts the protocol ends the pass: it returns its row and a code,
  everything before it is written, and the state is that before it.

Source: MySQL "Replication: binary log events" (`mysql::binlog::event`), MariaDB "GTID_EVENT",
"QUERY_EVENT".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.event_types import FLAG_ROLLBACK_ALTER, FLAG_START_ALTER
from cdc_pipeline.binlog.events.gtid_kernel import NO_TIME, gtid_commit_us
from cdc_pipeline.binlog.kernels.memory import unsigned_at
from cdc_pipeline.binlog.native.compiling import kernel, routine

# Indexes of the state, an int64 array of STATE_SIZE.
OPEN: Final = 0  # 1 inside a transaction
TX_OFFSET: Final = 1  # offset of its first event
ORDINAL: Final = 2  # ordinal that its next event gets
COMMIT_US: Final = 3
BY_GTID: Final = 4  # 1 if a GTID event began it
BODY: Final = 5  # 1 if it lasts until XID, COMMIT or ROLLBACK; 0 if it is only the next statement
# GTID event flags: 0x01 standalone, 0x40 prepared XA, 0x80 completed XA; extra flags << 8.
MARIADB_FLAGS: Final = 6
TRANSACTIONS: Final = 7  # lifetime counters: ended by XID, COMMIT or as one statement
ROLLED_BACK: Final = 8  # ended by ROLLBACK
ABANDONED: Final = 9  # not ended: its journal ended first (K5)
PREPARED: Final = 10  # ended by XA PREPARE: committed or rolled back by a later transaction (K8)
STATE_SIZE: Final = 11

# The effect of an event on its transaction: values of `marks`.
MARK_NONE: Final = 0
MARK_COMMIT: Final = 1  # ends it: XID or COMMIT
MARK_ROLLBACK: Final = 2  # ends it: ROLLBACK
MARK_STATEMENT: Final = 3  # ends it: a statement that is a transaction by itself
MARK_ABANDON: Final = 4  # follows a transaction that never ended
MARK_PREPARE: Final = 5  # ends it: XA PREPARE

_FL_STANDALONE: Final = 0x01
_FL_GROUP_COMMIT: Final = 0x02
_FL_XA: Final = 0xC0  # prepared or completed: an xid follows
# In the state, above the other flags.
_NO_CHANGE: Final = (FLAG_START_ALTER | FLAG_ROLLBACK_ALTER) << 8

# Codes of contradictions.
OK: Final = 0
ROWS_OUTSIDE: Final = 1
END_OUTSIDE: Final = 2
GTID_INSIDE: Final = 3
BEGIN_INSIDE: Final = 4
MARK_INSIDE: Final = 5
SHORT_BODY: Final = 6

# Kinds of a query's text.
_TEXT_OTHER: Final = 0
_TEXT_BEGIN: Final = 1
_TEXT_COMMIT: Final = 2
_TEXT_ROLLBACK: Final = 3
_TEXT_XA_START: Final = 4

_ROLE_OTHER: Final = 0
_ROLE_BEGIN: Final = 1
_ROLE_ROWS: Final = 2
_ROLE_END: Final = 3
_ROLE_ROLLBACK: Final = 4
_ROLE_STATEMENT: Final = 5
_ROLE_HEARTBEAT: Final = 6
_ROLE_JOURNAL: Final = 7
_ROLE_XA_PREPARE: Final = 8

_HEADER: Final = 19
_LOAD_FIELDS: Final = 13  # file id, two indexes into the text, a kind
_XA_PREPARE_BYTES: Final = 13  # one phase u8, format id, lengths of both parts of the xid i32
_WORDS: Final = (b"BEGIN", b"COMMIT", b"ROLLBACK", b"XA", b"START")
_WORD_BYTES: Final = np.frombuffer(b"".join(_WORDS), dtype=np.uint8).copy()
_WORD_AT: Final = np.cumsum([0, *(len(word) for word in _WORDS)]).astype(np.int64)


@routine
def _skip_blanks(data, at, stop):  # type: ignore[no-untyped-def]
    """The index of the first byte from `at` on that is neither blank, nor `;`, nor in a comment.

    A versioned comment (``/*!`` or ``/*M!``) is code, not a comment.
    """
    while at < stop:
        byte = np.int64(data[at])
        if byte == 0x20 or (0x09 <= byte <= 0x0D) or byte == 0x3B:
            at += 1
        elif byte == 0x2F and at + 1 < stop and data[at + 1] == 0x2A:
            after = at + 2
            if after < stop and data[after] == 0x4D:
                after += 1
            if after < stop and data[after] == 0x21:
                return at
            at += 2
            while at + 1 < stop and not (data[at] == 0x2A and data[at + 1] == 0x2F):
                at += 1
            at = min(at + 2, stop)
        elif byte == 0x23 or (
            byte == 0x2D and at + 2 < stop and data[at + 1] == 0x2D and data[at + 2] <= 0x20
        ):
            while at < stop and data[at] != 0x0A:
                at += 1
        else:
            return at
    return at


@routine
def _word(data, at, stop, word):  # type: ignore[no-untyped-def]
    """The index after word number `word` if it is at `at` in upper or lower case, else -1."""
    first = _WORD_AT[word]
    length = _WORD_AT[word + 1] - first
    if at + length > stop:
        return -1
    for k in range(length):
        byte = np.int64(data[at + k])
        if 0x61 <= byte <= 0x7A:
            byte -= 0x20
        if byte != np.int64(_WORD_BYTES[first + k]):
            return -1
    if at + length < stop:
        byte = np.int64(data[at + length])
        is_letter = 0x61 <= (byte | 0x20) <= 0x7A
        if is_letter or 0x30 <= byte <= 0x39 or byte == 0x5F or byte == 0x24 or byte >= 0x80:
            return -1
    return at + length


@routine
def _query_text_kind(data, first, stop):  # type: ignore[no-untyped-def]
    """Return the TEXT_... of the query text in data[first:stop].

    BEGIN, COMMIT and ROLLBACK count only if nothing follows: ``ROLLBACK TO s`` and ``COMMIT AND
    CHAIN`` do not.
    """
    at = _skip_blanks(data, first, stop)
    for word in range(3):
        after = _word(data, at, stop, word)
        if after >= 0 and _skip_blanks(data, after, stop) == stop:
            return word + 1
    after = _word(data, at, stop, 3)
    if after >= 0:
        at = _skip_blanks(data, after, stop)
        if _word(data, at, stop, 4) >= 0 or _word(data, at, stop, 0) >= 0:
            return _TEXT_XA_START
    return _TEXT_OTHER


@routine
def _query_kind(data, body, stop, post_header):  # type: ignore[no-untyped-def]
    """The TEXT_... of the query event in data[body:stop]; -1 if the body is too short."""
    if body + post_header > stop or post_header < 11:
        return -1
    database = np.int64(data[body + 8])
    status = unsigned_at(data, body + 11, 2) if post_header >= 13 else 0
    text = body + post_header + status + database + 1
    if text > stop:
        return -1
    return _query_text_kind(data, text, stop)


@routine
def _extra_flags(data, body, stop, flags):  # type: ignore[no-untyped-def]
    """The extra flags of the MariaDB GTID event in data[body:stop]; 0 if it has none."""
    at = body + 13
    if flags & _FL_GROUP_COMMIT:
        at += 8
    if flags & _FL_XA:
        if at + 6 > stop:
            return np.int64(0)
        at += 6 + np.int64(data[at + 4]) + np.int64(data[at + 5])
    return np.int64(data[at]) if at < stop else np.int64(0)


@kernel
def group_events(data, events, checksum_bytes, query_post_header, state, marks, inside):  # type: ignore[no-untyped-def]
    """Write role, tx_offset, tx_ordinal and commit_ts_us of each event; carry `state`. Returns
    (rows done, code): (n, OK), or the row of the first contradiction and its code.

    Args:
        data: uint8 (bytes,), events: EVENT_DTYPE (n,), of one chunk.
        checksum_bytes: 0 or 4; events inside a payload have none.
        query_post_header: post-header length of query events.
        state: int64 (STATE_SIZE,), changed in place.
        marks: uint8 (n,), written: MARK_... of each event.
        inside: uint8 (n,), written: 1 if a transaction is open after the event.
    """
    for row in range(len(events)):
        event = events[row]
        kind = np.int64(event["event_type"])
        body = np.int64(event["start"]) + _HEADER
        stop = np.int64(event["start"]) + np.int64(event["event_length"])
        if event["parent"] < 0:
            stop -= checksum_bytes
        mark = MARK_NONE
        is_member = state[OPEN] == 1
        role = _ROLE_OTHER

        if (
            (23 <= kind <= 25)
            or (30 <= kind <= 32)
            or kind == 19
            or kind == 39
            or (166 <= kind <= 171)
        ):
            if state[OPEN] == 0:
                return row, ROWS_OUTSIDE
            state[BODY] = 1
            role = _ROLE_ROWS
        elif kind == 16:  # XID
            if state[OPEN] == 0:
                return row, END_OUTSIDE
            role = _ROLE_END
            mark = MARK_COMMIT
        # QUERY; EXECUTE_LOAD_QUERY, a query with more fields at its head.
        elif kind == 2 or kind == 18:
            text = _query_kind(
                data, body, stop, query_post_header + (_LOAD_FIELDS if kind == 18 else 0)
            )
            if text < 0:
                return row, SHORT_BODY
            if text == _TEXT_BEGIN:
                if state[OPEN] == 1 and (state[BY_GTID] == 0 or state[BODY] == 1):
                    return row, BEGIN_INSIDE
                if state[OPEN] == 0:
                    _open(state, event)
                    is_member = True
                state[BODY] = 1
                role = _ROLE_BEGIN if state[BY_GTID] == 0 else _ROLE_OTHER
            elif text in (_TEXT_COMMIT, _TEXT_ROLLBACK):
                if state[OPEN] == 0:
                    return row, END_OUTSIDE
                is_commit = text == _TEXT_COMMIT
                role = _ROLE_END if is_commit else _ROLE_ROLLBACK
                mark = MARK_COMMIT if is_commit else MARK_ROLLBACK
            else:
                role = _ROLE_STATEMENT
                if state[OPEN] == 0:
                    _open(state, event)
                    is_member = True
                if text == _TEXT_XA_START:
                    state[BODY] = 1
                elif state[BODY] == 0:
                    mark = MARK_STATEMENT
                    if state[MARIADB_FLAGS] & _NO_CHANGE:
                        role = _ROLE_END
                        mark = MARK_COMMIT
        elif kind == 33 or kind == 34 or kind == 42 or kind == 162:  # GTID events
            if state[OPEN] == 1:
                return row, GTID_INSIDE
            flags = np.int64(0)
            if kind == 162:
                if stop - body < 13:
                    return row, SHORT_BODY
                flags = np.int64(data[body + 12])
                flags |= _extra_flags(data, body, stop, flags) << 8
            _open(state, event)
            is_member = True
            state[BY_GTID] = 1
            state[MARIADB_FLAGS] = flags
            # MariaDB's GTID event is the BEGIN, unless its flag says that one statement is the
            # whole group.
            state[BODY] = 1 if kind == 162 and flags & _FL_STANDALONE == 0 else 0
            if kind != 162:
                commit_us = gtid_commit_us(data, body, stop - body, kind)
                if commit_us == NO_TIME:
                    return row, SHORT_BODY
                if commit_us > 0:
                    state[COMMIT_US] = commit_us
            role = _ROLE_BEGIN
        # XA PREPARE: ends its group without committing it, except for XA COMMIT ... ONE PHASE (K8).
        elif kind == 38:
            if state[OPEN] == 0:
                return row, END_OUTSIDE
            if stop - body < _XA_PREPARE_BYTES:
                return row, SHORT_BODY
            is_commit = data[body] != 0
            role = _ROLE_END if is_commit else _ROLE_XA_PREPARE
            mark = MARK_COMMIT if is_commit else MARK_PREPARE
        elif kind == 15 or kind == 4 or kind == 3:  # format description, rotate, stop
            role = _ROLE_JOURNAL
            is_member = False
            if state[OPEN] == 1:
                mark = MARK_ABANDON
                state[OPEN] = 0
                state[ABANDONED] += 1
        elif kind == 35 or kind == 163:  # lists of GTIDs, at a journal's head
            if state[OPEN] == 1:
                return row, MARK_INSIDE
            role = _ROLE_JOURNAL
        elif kind == 27 or kind == 41:
            role = _ROLE_HEARTBEAT
            is_member = False

        event["role"] = role
        if is_member:
            event["tx_offset"] = state[TX_OFFSET]
            event["tx_ordinal"] = state[ORDINAL]
            event["commit_ts_us"] = state[COMMIT_US]
            state[ORDINAL] += 1
        else:
            event["tx_offset"] = -1
            event["tx_ordinal"] = 0
            event["commit_ts_us"] = -1
        if mark != MARK_NONE and mark != MARK_ABANDON:
            state[OPEN] = 0
            counter = TRANSACTIONS
            if mark == MARK_ROLLBACK:
                counter = ROLLED_BACK
            elif mark == MARK_PREPARE:
                counter = PREPARED
            state[counter] += 1
        marks[row] = mark
        inside[row] = state[OPEN]
    return len(events), OK


@routine
def _open(state, event):  # type: ignore[no-untyped-def]
    """Open a transaction at `event`, with the header's commit time until a GTID event has a better
    one.
    """
    state[OPEN] = 1
    state[TX_OFFSET] = event["offset"]
    state[ORDINAL] = 0
    state[COMMIT_US] = np.int64(event["timestamp_s"]) * 1_000_000
    state[BY_GTID] = 0
    state[BODY] = 0
    state[MARIADB_FLAGS] = 0
