"""Decide DDL inside the overlap after a switch (K7: it may be applied already)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.errors import CdcError
from cdc_pipeline.pipeline.decode.schemas import Schemas
from cdc_pipeline.pipeline.decode.statements import AsBefore, StatementRules
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.schema.evolution.statement_context import Decision, KnownTable, RowPosition
from cdc_pipeline.schema.evolution.steps import AddColumn, FillColumns
from cdc_pipeline.schema.types import TargetColumn


def decide_in_overlap(
    rules: StatementRules,
    query: Query,
    *,
    targets: Targets,
    journal: str,
    offset: int,
    schemas: Schemas | None = None,
    place: RowPosition | None = None,
) -> Decision:
    """Decide as `rules.decide`, but record a statement as applied if its result exists."""
    try:
        return rules.decide(
            query, targets=targets, journal=journal, offset=offset, schemas=schemas, place=place
        )
    except CdcError as refused:
        # The tables as they were: without the columns that the statement names, or not there.
        earlier: tuple[AsBefore, ...] = (
            partial(_without_named, query.sql.lower()),
            lambda _known: [],
        )
        for as_before in earlier:
            try:
                decision = rules.decide(
                    query, targets=targets, journal=journal, offset=offset, as_before=as_before
                )
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


def _without_named(sql: str, known: list[KnownTable]) -> list[KnownTable]:
    without = []
    for now in known:
        source = now.source
        columns = tuple(
            c for c in source.columns if c.name in source.key or c.name.lower() not in sql
        )
        without.append(
            replace(now, source=source.model_copy(update={"columns": columns}), target=())
        )
    return without


def _is_applied(decision: Decision, targets: Targets) -> bool:
    """Whether the targets have all that a decision would make, with the same types.

    A decision that makes nothing does not count.
    """

    def has(database: str, table: str, columns: Sequence[TargetColumn]) -> bool:
        now = targets.known(database, table)
        there = (
            {column.name: column.delta_type for column in now.source.columns}
            if now is not None
            else {}
        )
        return all(there.get(column.name) == column.delta_type for column in columns)

    if any(
        not isinstance(step, AddColumn | FillColumns)
        for change in decision.changes
        for step in change.steps
    ):
        return False
    wanted = [
        (*change.table, [TargetColumn(name=step.name, delta_type=step.delta_type)])
        for change in decision.changes
        for step in change.steps
        if isinstance(step, AddColumn)
    ]
    wanted += [(*part.table, list(part.columns)) for part in decision.creates]
    return bool(wanted) and all(has(*part) for part in wanted)
