"""The Delta tables of a source as this run knows them: recorded columns, key and transaction id of each.

Rules:
- What is recorded comes from the last cut and grows with the run's own decisions.
- Every table map of a captured table must confirm the record (K13); a table met without one is created from its table
  map and labelled partial (K19).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import uuid4

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.schema.changes import Decision, KnownTable, confirm
from cdc_pipeline.schema.decisions import AddedColumn
from cdc_pipeline.schema.statement import StatementKind
from cdc_pipeline.schema.types import TargetColumn, key_of, target_columns
from cdc_pipeline.sink.manifest import Cut

_CREATES = frozenset({StatementKind.CREATE_TABLE, StatementKind.CREATE_TABLE_LIKE, StatementKind.CREATE_TABLE_SELECT})


@dataclass(frozen=True, slots=True)
class Target:
    """One Delta table.

    Attributes:
        state: what the cursor holds of it; delta_version is -1 until it was created.
        is_new: not in any cut yet: the next batch creates it.
    """

    state: TargetState
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    is_new: bool = False


class Targets:
    """All targets of a source, by ``schema.table``."""

    def __init__(self, source: str, cut: Cut | None) -> None:
        self._source = source
        self._targets: dict[str, Target] = {}
        self._confirmed: dict[str, TableSchema] = {}
        # Tables whose CREATE was seen and left to their first table map.
        self._created_in_log: set[str] = set()
        if cut is not None:
            for name, table in cut.tables.items():
                self._targets[name] = Target(cut.cursor.targets[name], table.columns, table.key)

    def known(self, database: str, table: str) -> KnownTable | None:
        """What is recorded of a table, or None."""
        target = self._targets.get(f"{database}.{table}")
        return None if target is None else KnownTable(columns=target.columns, key=target.key)

    def names_in(self, database: str) -> list[str]:
        """Names (without the schema) of the tables of a database that have a target."""
        prefix = f"{database}."
        return [name.removeprefix(prefix) for name in self._targets if name.startswith(prefix)]

    def decided(self, decision: Decision) -> None:
        """Take over what was decided of a statement."""
        for created in decision.creates:
            self.create(".".join(created.table), created.columns, created.key, partial=created.may_exist)
        for added in decision.add_columns:
            self.add_columns(".".join(added.table), added.columns)
        if decision.statement.kind in _CREATES and not decision.creates and not decision.statement.if_not_exists:
            self._created_in_log.update(decision.ddl.tables)

    def states(self, created: Collection[str]) -> dict[str, TargetState]:
        """The cursor's part of every target that exists, or is in `created`."""
        return {
            name: target.state for name, target in sorted(self._targets.items()) if not target.is_new or name in created
        }

    def snapshot(self) -> dict[str, Target]:
        """What `restore` takes back."""
        return dict(self._targets)

    def restore(self, snapshot: dict[str, Target]) -> None:
        """Forget everything since `snapshot`."""
        self._targets = dict(snapshot)
        self._confirmed.clear()

    def __getitem__(self, name: str) -> Target:
        return self._targets[name]

    def create(self, name: str, columns: tuple[TargetColumn, ...], key: tuple[str, ...], *, partial: bool) -> Target:
        """Record a new table; the next batch creates it."""
        app_id = f"cdc_pipeline/{self._source}/{name}/{uuid4().hex}"
        state = TargetState(table=name, app_id=app_id, delta_version=-1, applied_batch=-1, partial=partial)
        self._targets[name] = target = Target(state, columns, key, is_new=True)
        return target

    def add_columns(self, name: str, added: tuple[AddedColumn, ...]) -> Target:
        """Record columns that a DDL adds."""
        target = self._targets[name]
        columns = target.columns + tuple(TargetColumn(name=c.name, delta_type=c.delta_type) for c in added)
        self._targets[name] = target = replace(target, columns=columns)
        self._confirmed.pop(name, None)
        return target

    def confirm(self, schema: TableSchema) -> Target:
        """The target of a table map's table; created from it, and partial, where nothing is recorded.

        Raises:
            SchemaError: the table map contradicts what is recorded.
            KeylessTableError: a new table without a key.
        """
        name = schema.full_name
        target = self._targets.get(name)
        if target is None:
            partial = name not in self._created_in_log
            target = self.create(name, target_columns(schema), key_of(schema), partial=partial)
        elif self._confirmed.get(name) != schema:
            confirm(target.columns, target.key, schema)
        self._confirmed[name] = schema
        return target

    def check(self, schema: TableSchema) -> None:
        """As `confirm`, for rows that may never count: a table without a record stays without one."""
        if schema.full_name in self._targets:
            self.confirm(schema)
        else:
            target_columns(schema)
            key_of(schema)

    def committed(self, cut: Cut) -> None:
        """Take over what a published cut says of each target."""
        for name, state in cut.cursor.targets.items():
            self._targets[name] = replace(self._targets[name], state=state, is_new=False)
