"""Statements of the log under a pipeline's rules: which stand alone, and what is decided of each (K13, SPEC S7)."""

from __future__ import annotations

from collections.abc import Callable

from cdc_pipeline.binlog.query import Query
from cdc_pipeline.pipeline.tables import TableFilter
from cdc_pipeline.pipeline.targets import Targets
from cdc_pipeline.schema.changes import Decision, decide, is_isolated
from cdc_pipeline.schema.ddl_tokens import UNKNOWN_MODES, SqlModes
from cdc_pipeline.schema.statement import StatementKind


def session_modes(query: Query, *, is_mariadb: bool) -> SqlModes:
    """The modes of the session that ran a statement, as far as its event tells them."""
    if query.sql_mode is None:
        return UNKNOWN_MODES
    return SqlModes.from_bits(
        query.sql_mode,
        is_mariadb=is_mariadb,
        explicit_defaults_for_timestamp=query.explicit_defaults_for_timestamp,
        time_zone=query.time_zone,
    )


class StatementRules:
    """The table filter applied to statements. Used by both threads: it keeps no state."""

    def __init__(self, tables: TableFilter, *, is_mariadb: bool) -> None:
        self._tables = tables
        self._is_mariadb = is_mariadb

    def is_isolated(self, sql: str, database: str) -> bool:
        """Whether the statement must be alone in its batch: DDL of a captured table, and the unknown."""
        return is_isolated(sql, database, self._tables.captured, is_mariadb=self._is_mariadb)

    def decide(self, query: Query, *, targets: Targets, journal: str, offset: int) -> Decision:
        """What the statement does to the targets; suspended ones are not concerned (K4).

        Raises:
            UnsupportedDdlError, UnsupportedEventError: it cannot be applied; with journal, offset and the way out.
        """
        modes = session_modes(query, is_mariadb=self._is_mariadb)
        captured = self._tables.captured

        def decide_for(concerned: Callable[[str, str], bool]) -> Decision:
            return decide(
                query.sql,
                query.database,
                captured=concerned,
                known=targets.known,
                targets_in=targets.names_in,
                is_mariadb=self._is_mariadb,
                modes=modes,
                journal=journal,
                offset=offset,
            )

        decision = decide_for(
            lambda database, table: captured(database, table) and not targets.is_suspended(database, table)
        )
        if decision.statement.kind is StatementKind.DML:
            # Rows that are logged as a statement may change other tables too (triggers): no suspension covers them.
            return decide_for(captured)
        return decision
