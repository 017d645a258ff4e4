"""Decide DDL inside the overlap after a switch (K7: it may be applied already)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import CdcError
from cdc_pipeline.pipeline.decode.schemas import Schemas
from cdc_pipeline.pipeline.decode.statements import StatementRules
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.schema.evolution.shadows import Shadow
from cdc_pipeline.schema.evolution.statement_context import Decision, KnownTable, RowPlace, TableChange
from cdc_pipeline.schema.evolution.steps import AddColumn, FillColumns
from cdc_pipeline.schema.types import TargetColumn


class _Before:
    """Targets as they were before a statement (see `StatementTargets`).

    They lack the columns that it names, or the table.
    """

    def __init__(self, targets: Targets, sql: str, *, has_table: bool) -> None:
        self._now = targets
        self._text = sql.lower()
        self._has_table = has_table

    def known_all(self, database: str, table: str) -> list[KnownTable]:
        return [self._without(known) for known in self._now.known_all(database, table)] if self._has_table else []

    def _without(self, now: KnownTable) -> KnownTable:
        source = now.source
        columns = tuple(c for c in source.columns if c.name in source.key or c.name.lower() not in self._text)
        return replace(now, source=source.model_copy(update={"columns": columns}), target=())

    def follows(self, database: str, table: str) -> bool:
        return self._now.follows(database, table)

    def rule_of(self, database: str, table: str, target: str) -> TargetRule | None:
        return self._now.rule_of(database, table, target)

    def shadow(self, database: str, table: str) -> Shadow | None:
        return self._now.shadow(database, table)

    def names_in(self, database: str) -> list[str]:
        return self._now.names_in(database)

    def is_suspended(self, database: str, table: str) -> bool:
        return self._now.is_suspended(database, table)

    def awaits_load(self, database: str, table: str) -> bool:
        return self._now.awaits_load(database, table)

    def shaped_change(self, change: TableChange) -> TableChange:
        return change  # columns of the source's table are compared

    def placed(self, decision: Decision) -> Decision:
        return self._now.placed(decision)


def decide_in_overlap(
    rules: StatementRules,
    query: Query,
    *,
    targets: Targets,
    journal: str,
    offset: int,
    schemas: Schemas | None = None,
    place: RowPlace | None = None,
) -> Decision:
    """Decide as `rules.decide`, but record a statement as applied if its result exists.

    Raises:
        CdcError: as `rules.decide`.
    """
    try:
        return rules.decide(query, targets=targets, journal=journal, offset=offset, schemas=schemas, place=place)
    except CdcError as refused:
        for has_table in (True, False):
            before = _Before(targets, query.sql, has_table=has_table)
            try:
                decision = rules.decide(query, targets=before, journal=journal, offset=offset)
            except CdcError:
                continue
            if _is_applied(decision, targets):
                ddl = decision.ddl.model_copy(
                    update={
                        "decision": "recorded",
                        "reason": f"already applied before the switch: {decision.ddl.reason}",
                    }
                )
                return replace(decision, ddl=ddl, changes=(), creates=())
        raise refused


def _is_applied(decision: Decision, targets: Targets) -> bool:
    """Return whether the targets have all that a decision would make, with the same types.

    A decision that makes nothing does not count.
    """

    def has(database: str, table: str, columns: Sequence[TargetColumn]) -> bool:
        now = targets.known(database, table)
        there = {column.name: column.delta_type for column in now.source.columns} if now is not None else {}
        return all(there.get(column.name) == column.delta_type for column in columns)

    if any(not isinstance(step, AddColumn | FillColumns) for change in decision.changes for step in change.steps):
        return False
    wanted = [
        (*change.table, [TargetColumn(name=step.name, delta_type=step.delta_type)])
        for change in decision.changes
        for step in change.steps
        if isinstance(step, AddColumn)
    ]
    wanted += [(*part.table, list(part.columns)) for part in decision.creates]
    return bool(wanted) and all(has(*part) for part in wanted)
