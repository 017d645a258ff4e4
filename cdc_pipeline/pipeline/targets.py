"""The Delta tables of a source as this run knows them: recorded columns, key and transaction id of each.

Rules:
- What is recorded comes from the last cut and grows with the run's own decisions.
- Every table map of a captured table must confirm the record (K13); a table met without one is created from its table
  map and labelled partial (K19).
- A suspended target is not known here: its rows and statements pass it by (K4). Suspended is a table also before it has
  a target.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config import SinkConfig
from cdc_pipeline.position.cursor import Suspension, TargetState
from cdc_pipeline.schema.changes import Decision, KnownTable, confirm
from cdc_pipeline.schema.decisions import AddedColumn
from cdc_pipeline.schema.statement import StatementKind
from cdc_pipeline.schema.types import TargetColumn, key_of, target_columns
from cdc_pipeline.sink.features import ALL_ALLOWED, allowed
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
    """All targets of a source, by ``schema.table``.

    Args:
        source: the source's name.
        cut: the last cut.
        catching_up: a suspended target that this run catches up: to this run it is like any other.
        sink: says which Delta features new columns may bring on; all without it.

    Attributes:
        news: what was suspended since the last cut, by table.
    """

    def __init__(
        self, source: str, cut: Cut | None, *, catching_up: str | None = None, sink: SinkConfig | None = None
    ) -> None:
        self._source = source
        self._allowed = ALL_ALLOWED if sink is None else allowed(sink)
        self._catching_up = catching_up
        self._suspended: dict[str, Suspension] = {}
        # Suspended before their table was made: the state that it will have.
        self._unmade: dict[str, TargetState] = {}
        self.news: dict[str, Suspension] = {}
        self._targets: dict[str, Target] = {}
        self._confirmed: dict[str, TableSchema] = {}
        # Tables whose CREATE was seen and left to their first table map.
        self._created_in_log: set[str] = set()
        if cut is not None:
            for name, table in cut.tables.items():
                self._targets[name] = Target(cut.cursor.targets[name], table.columns, table.key)
            self._take_suspended(cut.cursor.targets)

    # -- suspended targets --------------------------------------------------------------------------------------------

    def is_suspended(self, database: str, table: str) -> bool:
        """Whether changes of a table are left to its catching up."""
        return f"{database}.{table}" in self._suspended

    def going_on(self) -> set[str]:
        """Names of the targets that are not suspended."""
        return self._targets.keys() - self._suspended.keys()

    def suspend(self, name: str, suspension: Suspension) -> None:
        """Let a table stand still from now on."""
        self._suspended[name] = self.news[name] = suspension
        if name not in self._targets:
            self._unmade[name] = self._new_state(name, partial=name not in self._created_in_log)

    def take_back(self, at: tuple[str, int]) -> None:
        """Let those go on that were suspended since the last cut and stand at `at` (journal, offset)."""
        for name, suspension in list(self.news.items()):
            if (suspension.journal, suspension.offset) == at:
                del self.news[name], self._suspended[name]
                self._unmade.pop(name, None)

    def _take_suspended(self, states: Mapping[str, TargetState]) -> None:
        self.news.clear()
        self._suspended = {
            name: state.suspended
            for name, state in states.items()
            if state.suspended is not None and name != self._catching_up
        }
        self._unmade = {name: state for name, state in states.items() if state.delta_version < 0}

    def _new_state(self, name: str, *, partial: bool) -> TargetState:
        app_id = f"cdc_pipeline/{self._source}/{name}/{uuid4().hex}"
        return TargetState(table=name, app_id=app_id, delta_version=-1, applied_batch=-1, partial=partial)

    # -- columns and keys ---------------------------------------------------------------------------------------------

    def known(self, database: str, table: str) -> KnownTable | None:
        """What is recorded of a table, or None."""
        target = self._targets.get(f"{database}.{table}")
        return None if target is None else KnownTable(columns=target.columns, key=target.key)

    def names_in(self, database: str) -> list[str]:
        """Names (without the schema) of the tables of a database that have a target."""
        prefix = f"{database}."
        return [name.removeprefix(prefix) for name in self.going_on() if name.startswith(prefix)]

    def decided(self, decision: Decision) -> None:
        """Take over what was decided of a statement."""
        for created in decision.creates:
            self.create(".".join(created.table), created.columns, created.key, partial=created.may_exist)
        for added in decision.add_columns:
            self.add_columns(".".join(added.table), added.columns)
        if decision.statement.kind in _CREATES and not decision.creates and not decision.statement.if_not_exists:
            self._created_in_log.update(decision.ddl.tables)

    def states(self, created: Collection[str]) -> dict[str, TargetState]:
        """The cursor's part of every target that exists, is in `created`, or is suspended."""
        states = self._unmade | {
            name: target.state for name, target in self._targets.items() if not target.is_new or name in created
        }
        for name in self._suspended.keys() & self._targets.keys():
            states.setdefault(name, self._targets[name].state)
        for name, suspension in self._suspended.items():
            states[name] = states[name].model_copy(update={"suspended": suspension})
        return dict(sorted(states.items()))

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
        """Record a new table; the next batch creates it.

        Raises:
            FeatureNotAllowedError: a column needs a Delta feature that is not permitted.
        """
        self._allowed.check_types(((column.name, column.delta_type) for column in columns), table=name)
        state = self._unmade.get(name)
        if state is None:
            state = self._new_state(name, partial=partial)
        elif not partial:
            state = state.model_copy(update={"partial": False})
        self._targets[name] = target = Target(state, columns, key, is_new=True)
        return target

    def add_columns(self, name: str, added: tuple[AddedColumn, ...]) -> Target:
        """Record columns that a DDL adds.

        Raises:
            FeatureNotAllowedError: a column needs a Delta feature that is not permitted.
        """
        self._allowed.check_types(((column.name, column.delta_type) for column in added), table=name)
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
            FeatureNotAllowedError: a new table with a column that needs a Delta feature that is not permitted.
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
            if name in self._targets and state.delta_version >= 0:
                self._targets[name] = replace(self._targets[name], state=state, is_new=False)
        self._take_suspended(cut.cursor.targets)
