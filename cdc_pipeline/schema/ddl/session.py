"""Statements of transactions and sessions: BEGIN, ROLLBACK, XA, SET and their like."""

from __future__ import annotations

from typing import Final

from cdc_pipeline.binlog.events.xa import xid_text
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind
from cdc_pipeline.schema.ddl.tokens import TokenKind, TokenReader

_K = StatementKind

_XA: Final = {
    "START": _K.XA_START,
    "BEGIN": _K.XA_START,
    "END": _K.XA_END,
    "PREPARE": _K.XA_PREPARE,
    "COMMIT": _K.XA_COMMIT,
    "ROLLBACK": _K.XA_ROLLBACK,
    "RECOVER": _K.ADMIN,
}


def read_set(tokens: TokenReader) -> Statement:
    """SET: an account's password or role, or variables."""
    tokens.next()
    account = tokens.at("PASSWORD") or tokens.at("ROLE") or tokens.at("DEFAULT", "ROLE")
    # PASSWORD and ROLE are accounts' unless a variable of that name is set, which no server has.
    return Statement(_K.ACCOUNT if account else _K.SET, "SET")


def read_begin(tokens: TokenReader) -> Statement:
    """BEGIN [WORK]; MariaDB's BEGIN NOT ATOMIC is unknown."""
    tokens.next()
    tokens.take("WORK")
    return Statement(_K.BEGIN if tokens.at_end() else _K.UNKNOWN, "BEGIN")


def read_start(tokens: TokenReader) -> Statement:
    """START TRANSACTION, START REPLICA."""
    tokens.next()
    if tokens.at("TRANSACTION"):
        return Statement(_K.BEGIN, "START TRANSACTION")
    known = tokens.at_any("SLAVE", "REPLICA", "ALL", "GROUP_REPLICATION")
    return Statement(_K.ADMIN if known else _K.UNKNOWN, "START")


def read_rollback(tokens: TokenReader) -> Statement:
    """ROLLBACK [WORK] [TO [SAVEPOINT] name]."""
    tokens.next()
    tokens.take("WORK")
    if tokens.take("TO"):
        if tokens.at("SAVEPOINT") and tokens.peek(1).kind is not TokenKind.END:
            tokens.next()
        return Statement(_K.ROLLBACK_TO_SAVEPOINT, "ROLLBACK TO", name=tokens.name() or "")
    return Statement(_K.ROLLBACK, "ROLLBACK")


def read_release(tokens: TokenReader) -> Statement:
    """RELEASE SAVEPOINT name."""
    known = tokens.take("RELEASE", "SAVEPOINT")
    return Statement(
        _K.RELEASE_SAVEPOINT if known else _K.UNKNOWN, "RELEASE", name=tokens.name() or ""
    )


def read_xa(tokens: TokenReader) -> Statement:
    """XA START, END, PREPARE, COMMIT, ROLLBACK, each with its xid."""
    tokens.next()
    word = tokens.next().key
    return Statement(_XA.get(word, _K.UNKNOWN), f"XA {word}".strip(), name=_xid(tokens))


def read_savepoint(tokens: TokenReader) -> Statement:
    tokens.next()
    return Statement(_K.SAVEPOINT, "SAVEPOINT", name=tokens.name() or "")


def canonical_xid(text: str) -> str:
    """Of ``'g'``, ``X'67','b'``, ``0x67,0x62,7``; "" if it is none."""
    return _xid(TokenReader(text))


def _xid(tokens: TokenReader) -> str:
    """global part [, branch [, format id]]; "" if it cannot be read with certainty."""
    parts: list[bytes] = []
    while len(parts) < 2:
        token = tokens.next()
        if token.kind is TokenKind.HEX and len(token.text) % 2 == 0:
            parts.append(bytes.fromhex(token.text))
        elif token.kind in (TokenKind.STRING, TokenKind.QUOTED):
            parts.append(token.text.encode())
        else:
            return ""
        if not tokens.take(","):
            break
    format_id = 1
    if len(parts) == 2 and tokens.peek().kind is TokenKind.NUMBER:
        number = tokens.next().text
        if not number.isdecimal():
            return ""
        format_id = int(number)
    return (
        xid_text(format_id, parts[0], parts[1] if len(parts) == 2 else b"")
        if tokens.at_end()
        else ""
    )
