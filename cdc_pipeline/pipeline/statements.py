"""Statements of the log under a pipeline's rules: which stand alone, and what is decided of each (K13, SPEC S7)."""

from __future__ import annotations

from cdc_pipeline.binlog.query import Query
from cdc_pipeline.pipeline.tables import TableFilter
from cdc_pipeline.pipeline.targets import Targets
from cdc_pipeline.schema.changes import Decision, decide, is_isolated
from cdc_pipeline.schema.ddl_tokens import UNKNOWN_MODES, SqlModes


class StatementRules:
    """The table filter applied to statements. Used by both threads: it keeps no state."""

    def __init__(self, tables: TableFilter, *, is_mariadb: bool) -> None:
        self._tables = tables
        self._is_mariadb = is_mariadb

    def is_isolated(self, sql: str, database: str) -> bool:
        """Whether the statement must be alone in its batch: DDL of a captured table, and the unknown."""
        return is_isolated(sql, database, self._tables.captured, is_mariadb=self._is_mariadb)

    def decide(self, query: Query, *, targets: Targets, journal: str, offset: int) -> Decision:
        """What the statement does to the targets.

        Raises:
            UnsupportedDdlError, UnsupportedEventError: it cannot be applied; with journal, offset and the way out.
        """
        modes = UNKNOWN_MODES
        if query.sql_mode is not None:
            modes = SqlModes.from_bits(
                query.sql_mode,
                is_mariadb=self._is_mariadb,
                explicit_defaults_for_timestamp=query.explicit_defaults_for_timestamp,
                time_zone=query.time_zone,
            )
        return decide(
            query.sql,
            query.database,
            captured=self._tables.captured,
            known=targets.known,
            targets_in=targets.names_in,
            is_mariadb=self._is_mariadb,
            modes=modes,
            journal=journal,
            offset=offset,
        )
