"""The Delta tables of a source as this run knows them: source tables, columns, key and transaction id of each.

Rules:
- What is recorded comes from the last cut and grows with the run's own decisions.
- A source table has one target for each of its routes; a target knows its source tables' columns by itself, so that one
  that stands still keeps what held where it stands.
- Every table map of a captured table must confirm the record of each target (K13); a target met without one is created
  from the table map and labelled partial (K19).
- A suspended target is not known here: its rows and statements pass it by (K4). Suspended is a table also before it has
  a target. A source table is suspended where all of its targets are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import uuid4

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config import PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.pipeline.rescue import RowPolicyTable, TablePolicy
from cdc_pipeline.pipeline.routes import Route, Routes
from cdc_pipeline.position.cursor import Suspension, TargetState
from cdc_pipeline.schema.changes import Decision, KnownTable, TableChange, confirm
from cdc_pipeline.schema.shadows import Shadow
from cdc_pipeline.schema.statement import StatementKind
from cdc_pipeline.schema.steps import AddColumn, WidenColumn
from cdc_pipeline.schema.types import TargetColumn, key_of, target_columns
from cdc_pipeline.sink.features import allowed
from cdc_pipeline.sink.manifest import Cut, RecordedSource
from cdc_pipeline.sink.rescue import check_images, rescued_names
from cdc_pipeline.target_config import Mode, TargetRule

_CREATES = frozenset({StatementKind.CREATE_TABLE, StatementKind.CREATE_TABLE_LIKE, StatementKind.CREATE_TABLE_SELECT})


@dataclass(frozen=True, slots=True)
class Target:
    """One Delta table.

    Attributes:
        state: what the cursor holds of it; delta_version is -1 until it was created.
        columns, key: of the Delta table.
        mode: how it follows.
        sources: its source tables by name, each with columns and key as they are at the source.
        is_new: not in any cut yet: the next batch creates it.
        rescued: columns of which values were rescued so far; None: the table has no rescue column (`sink/rescue.py`).
        replaces: of a new one, the app_id of the table in whose place it is made; "" else.
    """

    state: TargetState
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    mode: Mode = "mirror"
    sources: Mapping[str, RecordedSource] = field(default_factory=dict)
    is_new: bool = False
    rescued: tuple[str, ...] | None = None
    replaces: str = ""

    @property
    def name(self) -> str:
        """``schema.table`` in the lake."""
        return self.state.table


Snapshot = tuple[dict[str, Target], dict[str, Shadow]]


def _known(target: Target, source: str) -> KnownTable:
    of = target.sources[source]
    same = target.columns == of.columns
    return KnownTable(
        columns=of.columns,
        key=of.key,
        target=() if same else target.columns,
        names=of.names,
        gone=of.gone,
        shared=len(target.sources) > 1,
        name=target.name,
    )


class Targets:
    """All targets of a source, by name.

    Args:
        config: the pipeline, for its routes.
        cut: the last cut.
        catching_up: a suspended target that this run catches up: it alone follows the source in this run.
        shadows: as in the cursor.

    Attributes:
        news: what was suspended since the last cut, by target.
    """

    def __init__(
        self,
        config: PipelineConfig,
        cut: Cut | None,
        *,
        catching_up: str | None = None,
        shadows: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._source = config.name
        self._routes = Routes(config)
        self._allowed = allowed(config.sink)
        self._row_policies = RowPolicyTable(config, self._routes)
        self._catching_up = catching_up
        self._suspended: dict[str, Suspension] = {}
        # Suspended before their table was made: the state that it will have.
        self._unmade: dict[str, TargetState] = {}
        self.news: dict[str, Suspension] = {}
        self._targets: dict[str, Target] = {}
        self._confirmed: dict[tuple[str, str], TableSchema] = {}
        # Tables whose CREATE was seen and left to their first table map.
        self._created_in_log: set[str] = set()
        if cut is not None:
            for name, table in cut.tables.items():
                state = cut.cursor.targets[name]
                rescued = tuple(table.rescued_ever) if table.rescues else None
                self._targets[name] = Target(
                    state, table.columns, table.key, table.mode, table.sources_of(name), rescued=rescued
                )
            self._take_suspended(cut.cursor.targets)
        self._shadows = {name: Shadow.model_validate_json(text) for name, text in shadows.items()}
        # Source tables that a target follows though the configuration leads elsewhere: the names of those targets.
        self._followers: dict[str, list[str]] = {}
        self._has_moved = False
        self._look_for_followers()

    # -- renamed tables -----------------------------------------------------------------------------------------------

    def _look_for_followers(self) -> None:
        self._followers = {}
        self._has_moved = any(target.state.origin is not None for target in self._targets.values())
        for target in self._targets.values():
            if target.state.origin is not None:
                for source, recorded in target.sources.items():
                    if not recorded.gone:
                        self._followers.setdefault(source, []).append(target.name)

    def follows(self, database: str, table: str) -> bool:
        """Whether a target follows a table that came to its name by RENAME, captured or not."""
        return any(not self._stands(name) for name in self._followers.get(f"{database}.{table}", ()))

    def or_followed(self, captured: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
        """`captured`, or followed now."""
        return lambda database, table: captured(database, table) or self.follows(database, table)

    def followed_sources(self) -> list[str]:
        """Names of all such tables."""
        return list(self._followers)

    def _routes_of(self, database: str, table: str) -> tuple[Route, ...]:
        """The routes of a table: where the configuration leads, but for targets that a rename has moved."""
        source = f"{database}.{table}"
        followers = self._followers.get(source)
        if followers:
            return tuple(self._route_of(source, self._targets[name]) for name in followers)
        routes = self._routes.of(database, table)
        if not self._has_moved:
            return routes
        return tuple(replace(route, target=self._free_name(route)) for route in routes)

    def _route_of(self, source: str, target: Target) -> Route:
        origin, leads_to = target.state.origin or (source, target.name)
        routes = self._routes.of(*origin.split(".", 1))
        rule = next((route.rule for route in routes if route.target == leads_to), None)
        return Route(source, target.name, rule or TargetRule(mode=target.mode))

    def _free_name(self, route: Route) -> str:
        """The target's name, or ``name__2`` ... where a renamed table has taken its target along."""
        name, number = route.target, 1
        while True:
            there = self._targets.get(name)
            if there is None or there.state.origin is None or route.source in there.sources:
                return name
            number += 1
            name = f"{route.target}__{number}"

    def shadow(self, database: str, table: str) -> Shadow | None:
        """What is kept of a shadow table."""
        return self._shadows.get(f"{database}.{table}")

    def shadow_texts(self) -> dict[str, str]:
        """The shadow tables, as the cursor has them."""
        return {name: shadow.model_dump_json() for name, shadow in sorted(self._shadows.items())}

    # -- suspended targets --------------------------------------------------------------------------------------------

    def is_suspended(self, database: str, table: str) -> bool:
        """Whether changes of a captured table are left to the catching up of all its targets."""
        return all(self._stands(route.target) for route in self._routes_of(database, table))

    def goes_on_without(self, database: str, table: str) -> bool:
        """Whether any target follows the source that is none of a table's."""
        own = {route.target for route in self._routes_of(database, table)}
        return any(name not in own and not self._stands(name) for name in self._targets)

    def suspend(self, source: str, suspension: Suspension) -> list[str]:
        """Let the targets of a source table stand still from now on; their names."""
        names = []
        for route in self._routes_of(*source.split(".", 1)):
            name = route.target
            if self._stands(name):
                continue
            self._suspended[name] = self.news[name] = suspension
            names.append(name)
            if name not in self._targets:
                self._unmade[name] = self._new_state(route, partial=source not in self._created_in_log)
        return names

    def take_back(self, at: tuple[str, int]) -> None:
        """Let those go on that were suspended since the last cut and stand at `at` (journal, offset)."""
        for name, suspension in list(self.news.items()):
            if (suspension.journal, suspension.offset) == at:
                del self.news[name], self._suspended[name]
                self._unmade.pop(name, None)

    def _stands(self, name: str) -> bool:
        return name in self._suspended or self._catching_up not in (None, name)

    def _take_suspended(self, states: Mapping[str, TargetState]) -> None:
        self.news.clear()
        self._suspended = {
            name: state.suspended
            for name, state in states.items()
            if state.suspended is not None and name != self._catching_up
        }
        self._unmade = {name: state for name, state in states.items() if state.delta_version < 0}

    def _new_state(self, route: Route, *, partial: bool) -> TargetState:
        app_id = f"cdc_pipeline/{self._source}/{route.target}/{uuid4().hex}"
        sources = () if route.source == route.target else (route.source,)
        leads_to = {known.target for known in self._routes.of(*route.source.split(".", 1))}
        origin = None
        if route.target not in leads_to:  # its name was taken along by a renamed table
            origin = route.source, next(name for name in leads_to if route.target.startswith(f"{name}__"))
        return TargetState(
            table=route.target,
            app_id=app_id,
            delta_version=-1,
            applied_batch=-1,
            partial=partial,
            sources=sources,
            origin=origin,
        )

    # -- columns and keys ---------------------------------------------------------------------------------------------

    def following(self, database: str, table: str) -> list[Target]:
        """The recorded targets of a table that follow the source now."""
        source, targets = f"{database}.{table}", self._targets
        names = [route.target for route in self._routes_of(database, table) if not self._stands(route.target)]
        return [targets[name] for name in names if name in targets and source in targets[name].sources]

    def known(self, database: str, table: str) -> KnownTable | None:
        """What is recorded of a source table, or None."""
        source = f"{database}.{table}"
        following = self.following(database, table)
        recorded = [*following, *(target for target in self._targets.values() if source in target.sources)]
        if not recorded:
            return None
        return _known(recorded[0], source)

    def known_all(self, database: str, table: str) -> list[KnownTable]:
        """What is recorded of each target of a source table that follows it; of any where none does."""
        source = f"{database}.{table}"
        found = [_known(target, source) for target in self.following(database, table)]
        if not found:
            known = self.known(database, table)
            return [] if known is None else [known]
        return found

    def names_in(self, database: str) -> list[str]:
        """Names (without the schema) of the source tables of a database that have a target which is not suspended."""
        prefix = f"{database}."
        going_on = (target for name, target in self._targets.items() if not self._stands(name))
        names = {source for target in going_on for source in target.sources}
        return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))

    def decided(self, decision: Decision) -> None:
        """Take over what was decided of a statement."""
        for created in decision.creates:
            source = RecordedSource(columns=created.columns, key=created.key)
            for route in self._routes_of(*created.table):
                if not self._stands(route.target):
                    self._follow(route, source, partial=created.may_exist)
        for change in decision.changes:
            self._change(change)
        for shadowed in decision.shadows:
            name = ".".join(shadowed.name)
            self._shadows.pop(name, None)
            if shadowed.shadow is not None:
                self._shadows[name] = shadowed.shadow
        if decision.changes or decision.creates:
            self._look_for_followers()
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

    def snapshot(self) -> Snapshot:
        """What `restore` takes back."""
        return dict(self._targets), dict(self._shadows)

    def restore(self, snapshot: Snapshot) -> None:
        """Forget everything since `snapshot`."""
        self._targets, self._shadows = dict(snapshot[0]), dict(snapshot[1])
        self._confirmed.clear()
        self._look_for_followers()

    def named(self, name: str) -> Target:
        """A recorded target."""
        return self._targets[name]

    def _follow(self, route: Route, source: RecordedSource, *, partial: bool) -> Target:
        """Record that a target follows a source table from here on; a new one is created by the next batch."""
        there = self._targets.get(route.target)
        if there is not None and route.source not in there.sources:
            raise ConfigError(
                f"{route.source} and {', '.join(there.sources)} lead to one target {route.target}",
                setting="targets",
                expected="a target of its own for each table, or a rule with shard_column that merges them",
                next_step="give their rules other names, or a `shard_column`",
            )
        self._allowed.check_types(((column.name, column.delta_type) for column in source.columns), table=route.source)
        state = self._unmade.get(route.target)
        if state is None:
            state = self._new_state(route, partial=partial)
        elif not partial:
            state = state.model_copy(update={"partial": False})
        target = Target(state, source.columns, source.key, route.rule.mode, sources={route.source: source}, is_new=True)
        self._targets[route.target] = target = replace(target, rescued=self._first_rescued(route.rule))
        self._look_for_followers()
        return target

    def _first_rescued(self, rule: TargetRule) -> tuple[str, ...] | None:
        return () if self._row_policies.of_rule(rule).rescued_column == "always" else None

    def _change(self, change: TableChange) -> None:
        """Record what a DDL does to a target; the columns that it adds need what their types need."""
        known, source, new_source = change.known, ".".join(change.table), ".".join(change.new_name)
        target = self._targets[known.name]
        added = [(step.name, step.delta_type) for step in change.steps if isinstance(step, AddColumn | WidenColumn)]
        self._allowed.check_types(added, table=source)
        for name in (source, new_source):
            self._confirmed.pop((target.name, name), None)
        recorded = RecordedSource(columns=known.columns, key=known.key, names=known.names, gone=known.gone)
        if change.replaces:
            self._replace(target, new_source, recorded)
            return
        sources = {name: of for name, of in target.sources.items() if name != source} | {new_source: recorded}
        update: dict[str, object] = {}
        if change.inexact:
            update["exact"] = False
        if new_source != source:
            update["sources"] = tuple(sources)
            update["origin"] = target.state.origin or (source, target.name)
        self._targets[target.name] = replace(
            target,
            state=target.state.model_copy(update=update),
            columns=known.target_columns,
            key=tuple(known.target_name(name) for name in known.key),
            sources=sources,
        )

    def _replace(self, target: Target, source: str, recorded: RecordedSource) -> Target:
        """Another table has taken the source table's name: the target is made anew by the next batch."""
        self._allowed.check_types(((column.name, column.delta_type) for column in recorded.columns), table=source)
        app_id = f"cdc_pipeline/{self._source}/{target.name}/{uuid4().hex}"
        old = target.replaces if target.is_new else target.state.app_id
        state = target.state.model_copy(update={"app_id": app_id, "partial": False, "exact": True})
        self._targets[target.name] = made = Target(
            state, recorded.columns, recorded.key, target.mode, sources={source: recorded}, is_new=True, replaces=old
        )
        if target.rescued is not None:
            self._targets[target.name] = made = replace(made, rescued=())
        return made

    def confirm(self, schema: TableSchema) -> list[Target]:
        """The targets of a table map's table that follow the source; created from it, and partial, where nothing is
        recorded.

        Raises:
            SchemaError: the table map contradicts what is recorded.
            KeylessTableError: a new table without a key.
            ConfigError: two tables lead to one target.
            FeatureNotAllowedError: a new table with a column that needs a Delta feature that is not permitted.
        """
        source = schema.full_name
        found = []
        for route in self._routes_of(schema.database, schema.table):
            if self._stands(route.target):
                continue
            target = self._targets.get(route.target)
            recorded = target.sources.get(source) if target is not None else None
            if target is None or recorded is None:
                of_source = RecordedSource(columns=target_columns(schema), key=key_of(schema))
                target = self._follow(route, of_source, partial=source not in self._created_in_log)
            elif recorded.gone:
                of_source = RecordedSource(columns=target_columns(schema), key=key_of(schema))
                target = self._replace(target, source, of_source)
            elif self._confirmed.get((route.target, source)) != schema:
                confirm(recorded.columns, recorded.key, schema)
            self._confirmed[route.target, source] = schema
            found.append(target)
        return found

    def policy(self, schema: TableSchema) -> TablePolicy:
        """What becomes of values and rows of a table that cannot be applied."""
        keys = {name for target in self.following(schema.database, schema.table) for name in target.key}
        return TablePolicy(self._row_policies.of(schema), keys.union(schema.key_names))

    def with_rescued(self, found: Sequence[Target], rows: DecodedRows) -> list[Target]:
        """The targets of some rows, with the rescue column that their values ask for (`sink/rescue.py`).

        Raises:
            IncompleteRowsError: a partial image tells of `_cdc_rescued` only in part.
        """
        made = []
        for target in found:
            renamed = dict(target.sources[rows.schema.full_name].names)
            names = {renamed.get(name, name) for name in rescued_names(rows, target.mode)}
            known = names.union(target.rescued or ())
            if target.mode != "changelog":
                back = {new: name for name, new in renamed.items()}
                check_images(rows, {back.get(name, name) for name in known})
            if names and len(known) > len(target.rescued or ()):
                self._targets[target.name] = replace(target, rescued=tuple(sorted(known)))
            made.append(self._targets[target.name])
        return made

    def check(self, schema: TableSchema) -> None:
        """As `confirm`, for rows that may never count: a table without a record stays without one."""
        if self.known(schema.database, schema.table) is not None:
            saved = self.snapshot()
            self.confirm(schema)
            self.restore(saved)
        else:
            target_columns(schema)
            key_of(schema)

    def committed(self, cut: Cut) -> None:
        """Take over what a published cut says of each target."""
        for name, state in cut.cursor.targets.items():
            if name in self._targets and state.delta_version >= 0:
                self._targets[name] = replace(self._targets[name], state=state, is_new=False, replaces="")
        self._take_suspended(cut.cursor.targets)
