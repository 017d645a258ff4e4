"""What is known of a source's targets at a place of the log: which of them follow which tables.

Rules:
- A source table has one target for each of its routes: a name shows its table (K28). The exceptions
  are targets that follow a renamed table under their old name, by policy (`TargetState.origin`).
- A target keeps its own copy of its source tables' columns, so that a suspended one keeps those
  that held at its position.
- Recorded facts come from the last cut; table maps (`confirmed.py`) and statements
  (`decided.py`) make the next value of them.
- A suspended target does not follow: its rows and statements pass it by (K4). A table can be
  suspended even before it has a target. A source table is suspended if all of its targets are; in a
  catch-up only one target follows.
- A target is exact (K12) from a CREATE TABLE in the log on, if it mirrors that one table unchanged;
  `without_exactness` ends that for good, and so does every statement that may change rows without
  row events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar
from uuid import uuid4

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ContentUnknownError, SchemaError
from cdc_pipeline.lake.paths import application_id
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.cursor import CursorState, Suspension, TargetState
from cdc_pipeline.schema.evolution.statement_context import Shadow
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.masks import Masks
from cdc_pipeline.targets.route_checks import check_recorded, with_present_masks
from cdc_pipeline.targets.routes import Route, Routes
from cdc_pipeline.targets.shape import shape_rows
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import table_name

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Targets:
    """A change makes another value. `configured`: the routes; `by_name`: the targets that have
    columns; `moved`: those that follow a renamed table though the configuration leads elsewhere;
    `shadows`: the online schema changes under way; `unmade`: suspended before their table was made:
    the state that it will have; `news`: what was suspended since the last cut; `forgotten`:
    suspended targets that are gone with their tables; `created_in_log`: tables whose CREATE was
    seen and left to their first table map; `has_lost_exactness`: a target that the last cut calls
    exact is so no more; `catching_up`: a suspended target that alone follows the source;
    `confirmed`: what a table map was found to agree with, by target and source table, in any value:
    all share it.
    """

    config: PipelineConfig
    configured: Routes
    tables: TableFilter
    by_name: Mapping[str, Target] = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    shadows: Mapping[str, Shadow] = field(default_factory=dict)
    suspended: Mapping[str, Suspension] = field(default_factory=dict)
    unmade: Mapping[str, TargetState] = field(default_factory=dict)
    news: Mapping[str, Suspension] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    created_in_log: frozenset[str] = frozenset()
    has_lost_exactness: bool = False
    catching_up: str | None = None
    confirmed: dict[tuple[str, str], tuple[TargetSpec, TableSchema]] = field(
        default_factory=dict, compare=False, repr=False
    )

    # -- routes ------------------------------------------------------------------------------------

    @cached_property
    def followers(self) -> dict[str, list[str]]:
        """The names of `moved` targets by the source table that they follow."""
        followers: dict[str, list[str]] = {}
        for name in self.moved:
            for source, recorded in self.by_name[name].spec.sources.items():
                if not recorded.gone:
                    followers.setdefault(source, []).append(name)
        return followers

    @cached_property
    def masks(self) -> Masks:
        return Masks(self.routes_of)

    def routes_of(self, source: str) -> tuple[Route, ...]:
        """Those of the configuration, except for targets that a rename has moved."""
        followers = self.followers.get(source)
        if followers:
            return tuple(self._route_of(source, self.by_name[name]) for name in followers)
        routes = self.configured.of_table(source)
        if not self.moved:
            return routes
        return tuple(replace(route, target=self._free_name(route)) for route in routes)

    def route_of(self, source: str, target: str) -> Route | None:
        return next((route for route in self.routes_of(source) if route.target == target), None)

    def _route_of(self, source: str, target: Target) -> Route:
        origin, leads_to = target.state.origin or (source, target.name)
        routes = self.configured.of_table(origin)
        route = next((route for route in routes if route.target == leads_to), None)
        if route is None:
            rule = TargetRule(mode=target.spec.mode)
            return Route(source, target.name, rule, self.configured.policy)
        return replace(route, source=source, target=target.name)

    def _free_name(self, route: Route) -> str:
        """The target's name, or ``name__2`` ... if a renamed table took its target along."""
        name, number = route.target, 1
        while True:
            other = self.by_name.get(name)
            if other is None or other.state.origin is None or route.source in other.spec.sources:
                return name
            number += 1
            name = f"{route.target}__{number}"

    # -- who follows -------------------------------------------------------------------------------

    def captured(self, database: str, table: str) -> bool:
        """By its name, or followed after a rename."""
        return self.tables.captured(database, table) or any(
            not self.is_not_following(name)
            for name in self.followers.get(table_name(database, table), ())
        )

    def keeps_history(self, database: str, table: str) -> bool:
        """Shadow tables too: one that is swapped in brings its columns along."""
        tables = self.configured.tables
        return (
            self.captured(database, table)
            or tables.captured(database, table)
            or bool(tables.shadowed(database, table))
        )

    def is_suspended(self, database: str, table: str) -> bool:
        """Whether changes of a captured table are left to the catch-up of all its targets."""
        return all(
            self.is_not_following(route.target)
            for route in self.routes_of(table_name(database, table))
        )

    def left_behind(self, database: str, table: str) -> list[str]:
        """The targets of a table to which its changes come by a catch-up."""
        routes = self.routes_of(table_name(database, table))
        return [route.target for route in routes if self.is_not_following(route.target)]

    def takes(self, database: str, table: str) -> bool:
        return self.captured(database, table) and not self.is_suspended(database, table)

    def following(self, database: str, table: str) -> list[Target]:
        """The recorded targets of a table that follow the source now."""
        source = table_name(database, table)
        targets = (self.by_name.get(route.target) for route in self.routes_of(source))
        return [
            target
            for target in targets
            if target is not None
            and source in target.spec.sources
            and not self.is_not_following(target.name)
        ]

    def is_not_following(self, name: str) -> bool:
        return name in self.suspended or self.catching_up not in (None, name)

    def has_unknown_content(self, name: str) -> bool:
        suspension = self.suspended.get(name)
        return suspension is not None and suspension.error == ContentUnknownError.__name__

    # -- the next value ----------------------------------------------------------------------------

    def having(self, *targets: Target) -> Targets:
        """With these in place of others of their names."""
        moved = dict.fromkeys(self.moved)
        for target in targets:
            if target.state.origin is not None:
                moved[target.name] = None
            else:
                moved.pop(target.name, None)
        named = {target.name: target for target in targets}
        return replace(self, by_name={**self.by_name, **named}, moved=tuple(moved))

    def suspending(
        self, source: str, suspension: Suspension, *, only: Collection[str] | None = None
    ) -> tuple[Targets, list[str]]:
        """Without all or some targets of a source table from now on; and their names."""
        leaving = [
            route
            for route in self.routes_of(source)
            if not self.is_not_following(route.target) and (only is None or route.target in only)
        ]
        unmade = {
            route.target: new_state(self, route, partial=source not in self.created_in_log)
            for route in leaving
            if route.target not in self.by_name
        }
        names = [route.target for route in leaving]
        new = dict.fromkeys(names, suspension)
        suspending = replace(
            self,
            unmade={**self.unmade, **unmade},
            suspended={**self.suspended, **new},
            news={**self.news, **new},
        )
        return suspending, names

    def resumed(self, name: str) -> Targets:
        return replace(
            self,
            suspended=_without(self.suspended, name),
            unmade=_without(self.unmade, name),
            news=_without(self.news, name),
        )

    def at_cut(self, cut: Cut) -> Targets:
        """With what a published cut says of each target."""
        states = cut.cursor.targets
        published = (
            replace(self.by_name[name], state=state, is_new=False, replaces="", carried=None)
            for name, state in states.items()
            if name in self.by_name and state.table_version >= 0
        )
        return _with_suspensions(self.having(*published), states)

    def without_exactness(self, sources: Collection[str] | None = None) -> Targets:
        """Some source tables, by default all, may lack an event, or get one twice (K12)."""
        exact = [
            target
            for target in self.by_name.values()
            if target.state.exact
            and (sources is None or not target.spec.sources.keys().isdisjoint(sources))
        ]
        if not exact:
            return self
        lost = self.has_lost_exactness or any(not target.is_new for target in exact)
        inexact = (target.with_state(exact=False) for target in exact)
        return replace(self.having(*inexact), has_lost_exactness=lost)

    def states(self, created: Collection[str]) -> dict[str, TargetState]:
        """The cursor's part of targets that exist, are in `created`, or are suspended."""
        states = {
            **self.unmade,
            **{
                name: target.state
                for name, target in self.by_name.items()
                if not target.is_new or name in created
            },
        }
        for name in self.suspended.keys() & self.by_name.keys():
            states.setdefault(name, self.by_name[name].state)
        for name, suspension in self.suspended.items():
            states[name] = states[name].model_copy(update={"suspended": suspension})
        return dict(sorted(states.items()))


def targets_at(
    config: PipelineConfig,
    cut: Cut | None,
    cursor: CursorState | None = None,
    *,
    catching_up: str | None = None,
) -> Targets:
    """`cursor` has the online schema changes under way. ConfigError: their rules have changed."""
    routes = Routes(config)
    tables = routes.tables
    if catching_up is not None:

        def leads_there(source: str) -> bool:
            return bool(routes.sources_of(catching_up, [source]))

        tables = TableFilter(config, only=leads_there)
    shadows = {} if cursor is None else cursor.shadows
    targets = Targets(
        config,
        routes,
        tables,
        shadows={name: Shadow.model_validate_json(text) for name, text in shadows.items()},
        catching_up=catching_up,
    )
    if cut is None:
        return targets
    check_recorded(routes, cut)
    recorded = targets.having(*(_recorded(routes, cut, name) for name in cut.tables))
    return _with_suspensions(recorded, cut.cursor.targets)


def _with_suspensions(targets: Targets, states: Mapping[str, TargetState]) -> Targets:
    """Those that a cut says; nothing is new since."""
    return replace(
        targets,
        suspended={
            name: state.suspended
            for name, state in states.items()
            if state.suspended is not None and name != targets.catching_up
        },
        unmade={name: state for name, state in states.items() if state.table_version < 0},
        news={},
        forgotten=frozenset(),
        has_lost_exactness=False,
    )


def _recorded(routes: Routes, cut: Cut, name: str) -> Target:
    table, state = cut.tables[name], cut.cursor.targets[name]
    if state.suspended is not None:
        state = state.model_copy(update={"exact": False})
    rescued = tuple(table.rescued_ever) if table.rescues else None
    spec = with_present_masks(routes, cut, name).expanded(name)
    return Target(state, spec, rescued=rescued)


def new_state(targets: Targets, route: Route, *, partial: bool) -> TargetState:
    """Of a target whose table is not made yet."""
    leads_to = {known.target for known in targets.configured.of_table(route.source)}
    origin = None
    if route.target not in leads_to:  # a renamed table took its name along
        origin = (
            route.source,
            next(name for name in leads_to if route.target.startswith(f"{name}__")),
        )
    return TargetState(
        table=route.target,
        app_id=application_id(targets.config.name, route.target, uuid4().hex),
        table_version=-1,
        applied_batch=-1,
        partial=partial,
        sources=() if route.source == route.target else (route.source,),
        origin=origin,
    )


def recorded_of(targets: Targets, database: str, table: str) -> list[Target]:
    """Those of a table that follow; without followers, one that has its record."""
    following = targets.following(database, table)
    if following:
        return following
    source = table_name(database, table)
    # A target whose table came to the name by RENAME and is gone is unrelated to a later table of
    # that name. Those of the same table are ahead of the one that catches up.
    led_to = {route.target for route in targets.routes_of(source)}
    others = (
        target
        for target in targets.by_name.values()
        if (of := target.spec.sources.get(source)) is not None
        and (target.name in led_to or not of.gone)
        and targets.catching_up not in led_to
    )
    return list(islice(others, 1))


def route_to(targets: Targets, source: str, target: str) -> Route:
    """SchemaError: the table has no such target."""
    route = targets.route_of(source, target)
    if route is None:
        raise SchemaError(
            f"{target} is no longer a target of {source}",
            table=source,
            next_step="take a snapshot of the table under its present name",
        )
    return route


def shaped(targets: Targets, rows: DecodedRows, target: Target) -> DecodedRows:
    """A source table's masked rows as a target's; raises as `route_to`."""
    return shape_rows(rows, route_to(targets, rows.schema.full_name, target.name))


def _without(values: Mapping[str, _Value], name: str) -> Mapping[str, _Value]:
    if name not in values:
        return values
    return {other: value for other, value in values.items() if other != name}
