"""Statements of transactions and sessions: BEGIN, ROLLBACK, XA, SET and their like."""

from __future__ import annotations

from typing import Final

from cdc_pipeline.schema.ddl_tokens import TokenReader
from cdc_pipeline.schema.statement import Statement, StatementKind

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
    if tokens.at("TO"):
        return Statement(_K.ROLLBACK_TO_SAVEPOINT, "ROLLBACK TO")
    return Statement(_K.ROLLBACK, "ROLLBACK")


def read_release(tokens: TokenReader) -> Statement:
    """RELEASE SAVEPOINT."""
    known = tokens.take("RELEASE", "SAVEPOINT")
    return Statement(_K.RELEASE_SAVEPOINT if known else _K.UNKNOWN, "RELEASE")


def read_xa(tokens: TokenReader) -> Statement:
    """XA START, END, PREPARE, COMMIT, ROLLBACK."""
    tokens.next()
    word = tokens.next().key
    return Statement(_XA.get(word, _K.UNKNOWN), f"XA {word}".strip())
