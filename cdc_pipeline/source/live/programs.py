"""Read the triggers, views, routines and cascading foreign keys of a live server (K29).

Rules:
- An account that may not see all of them sees none: an empty answer proves nothing. Both servers
  show all with SELECT, TRIGGER and SHOW VIEW on everything.
- They hold for an earlier place of the log, except for what DDL since then has taken away: the log
  is searched for it, as for the columns of tables (`catalog.py`).
- A routine in another language than SQL may build its statements: its body is unknown.

Source: MySQL 9.7 and MariaDB 10.11, answers for accounts with each of these privileges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.programs import Disturbance, Program, ProgramKind, StoredPrograms
from cdc_pipeline.source.live.answers import AnswerRow
from cdc_pipeline.source.live.catalog import logged_statements
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.protocol import Source

_K = StatementKind
_NEEDED: Final = frozenset({"SELECT", "TRIGGER", "SHOW VIEW"})
_EVERYWHERE: Final = re.compile(r"GRANT (.+) ON \*\.\* TO ")
_QUERIES: Final = (
    (
        ProgramKind.TRIGGER,
        "SELECT EVENT_OBJECT_TABLE AS name, ACTION_STATEMENT AS body FROM "
        "information_schema.TRIGGERS",
    ),
    (
        ProgramKind.VIEW,
        "SELECT TABLE_NAME AS name, VIEW_DEFINITION AS body FROM information_schema.VIEWS",
    ),
    (
        ProgramKind.ROUTINE,
        "SELECT ROUTINE_NAME AS name, CASE WHEN ROUTINE_BODY = 'SQL' THEN ROUTINE_DEFINITION END "
        "AS body FROM information_schema.ROUTINES",
    ),
    (
        ProgramKind.TRIGGER,
        "SELECT REFERENCED_TABLE_NAME AS name, TABLE_NAME AS body FROM "
        "information_schema.REFERENTIAL_CONSTRAINTS WHERE DELETE_RULE NOT IN ('RESTRICT', "
        "'NO ACTION') OR UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION')",
    ),
)
_CHANGES: Final = frozenset({_K.VIEW, _K.TRIGGER, _K.ROUTINE, _K.UNKNOWN})
_MOVES: Final = frozenset({_K.DROP_TABLE, _K.RENAME_TABLE, _K.ALTER_TABLE})


def placed_programs(
    server: ServerConnection, source: Source, *, since: Position
) -> StoredPrograms | None:
    """All programs, with what changed them between `since` and now; None if the account may not
    see all. Raises what reading the log raises: SourceError, BinlogError; no connection.
    """
    with server.no_refusal():
        if not _sees_all(server):
            return None
        programs = [
            Program.of(kind, row.text("name"), _body(row))
            for kind, sql in _QUERIES
            for row in server.rows(sql)
        ]
        is_mariadb, end = server.flavor == "mariadb", server.end_position()
        return StoredPrograms(programs, _disturbances(source, since, end, is_mariadb=is_mariadb))


def _body(row: AnswerRow) -> str | None:
    body = row.get("body")  # may be no UTF-8: its words are compared, nothing else
    return str(body) if body else None


def _sees_all(server: ServerConnection) -> bool:
    granted: set[str] = set()
    for (text,) in server.query("SHOW GRANTS")[1]:
        if str(text).startswith("REVOKE"):  # MySQL's partial revokes
            return False
        match = _EVERYWHERE.match(str(text))
        if match is not None:
            granted.update(part.strip() for part in match[1].split(","))
    return granted >= _NEEDED or "ALL PRIVILEGES" in granted


def _disturbances(
    source: Source, since: Position, end: Position, *, is_mariadb: bool
) -> Iterator[Disturbance]:
    for query, statement, place in logged_statements(source, since, end, is_mariadb=is_mariadb):
        is_new = statement.verb.startswith("CREATE") and not statement.or_replace
        if statement.drops_database or (statement.kind in _CHANGES and not is_new):
            yield Disturbance(*place, "")
        elif statement.kind in _MOVES and not statement.temporary:
            # A key that is dropped no longer leads from its parent, whose name is not in the text.
            keys = "FOREIGN" in query.sql.upper()
            if keys or statement.kind is not _K.ALTER_TABLE or statement.renames:
                for _, table in (("", ""),) if keys else statement.tables:
                    yield Disturbance(*place, table)
