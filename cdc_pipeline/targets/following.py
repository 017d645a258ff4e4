"""Track which targets follow which source tables: routes, renames, suspensions (K4).

Rules:
- A source table has the targets of its routes: a name shows its table (K28). The exceptions are
  targets that follow a renamed table under their old name, by policy (`TargetState.origin`).
- A source table is suspended if all of its targets are; in a catch-up only one target follows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar
from uuid import uuid4

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ContentUnknownError, SchemaError
from cdc_pipeline.lake.paths import application_id
from cdc_pipeline.position.cursor import Suspension, TargetState
from cdc_pipeline.schema.evolution.statement_context import Shadow
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.routes import Route, Routes
from cdc_pipeline.targets.shape import shape_rows
from cdc_pipeline.text.table_names import split_table_name, table_name

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class KnownTargets:
    """What is known of a source's targets at a place of the log; a change makes another value.

    Attributes:
        targets: by name.
        moved: names of targets that follow a renamed table though the configuration leads
            elsewhere.
        unmade: suspended before their table was made: the state that it will have.
        news: what was suspended since the last cut, by target.
        forgotten: suspended targets that are gone with their tables, before they were made.
        created_in_log: tables whose CREATE was seen and left to their first table map.
        has_lost_exactness: whether a target that the last cut calls exact is so no more.
        catching_up: a suspended target that alone follows the source.
    """

    targets: Mapping[str, Target] = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    shadows: Mapping[str, Shadow] = field(default_factory=dict)
    suspended: Mapping[str, Suspension] = field(default_factory=dict)
    unmade: Mapping[str, TargetState] = field(default_factory=dict)
    news: Mapping[str, Suspension] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    created_in_log: frozenset[str] = frozenset()
    has_lost_exactness: bool = False
    catching_up: str | None = None

    @cached_property
    def followers(self) -> dict[str, list[str]]:
        """The names of `moved` targets by the source table that they follow."""
        followers: dict[str, list[str]] = {}
        for name in self.moved:
            for source, recorded in self.targets[name].spec.sources.items():
                if not recorded.gone:
                    followers.setdefault(source, []).append(name)
        return followers

    @property
    def carried(self) -> list[Target]:
        """Targets that take over rows of others in the current batch."""
        return [target for target in self.targets.values() if target.carried is not None]

    def is_not_following(self, name: str) -> bool:
        return name in self.suspended or self.catching_up not in (None, name)

    def has_unknown_content(self, name: str) -> bool:
        suspension = self.suspended.get(name)
        return suspension is not None and suspension.error == ContentUnknownError.__name__

    def names_in(self, database: str) -> list[str]:
        """Names (without schema) of a database's tables with a target that is not suspended."""
        going_on = (
            target
            for name, target in self.targets.items()
            if not self.is_not_following(name) or self.has_unknown_content(name)
        )
        names = {source for target in going_on for source in target.spec.sources}
        return sorted(table for schema, table in map(split_table_name, names) if schema == database)

    def followed_tables(self) -> list[tuple[str, str]]:
        """Source tables whose targets follow them, or will from their first row on."""
        names = {
            source
            for name, target in self.targets.items()
            if not self.is_not_following(name)
            for source, of in target.spec.sources.items()
            if not of.gone
        }
        return [split_table_name(name) for name in sorted(names | self.created_in_log)]

    def shadow(self, database: str, table: str) -> Shadow | None:
        return self.shadows.get(table_name(database, table))

    def shadow_texts(self) -> dict[str, str]:
        """As the cursor has them."""
        return {name: shadow.model_dump_json() for name, shadow in sorted(self.shadows.items())}

    def states(self, created: Collection[str]) -> dict[str, TargetState]:
        """The cursor's part of targets that exist, are in `created`, or are suspended."""
        states = {
            **self.unmade,
            **{
                name: target.state
                for name, target in self.targets.items()
                if not target.is_new or name in created
            },
        }
        for name in self.suspended.keys() & self.targets.keys():
            states.setdefault(name, self.targets[name].state)
        for name, suspension in self.suspended.items():
            states[name] = states[name].model_copy(update={"suspended": suspension})
        return dict(sorted(states.items()))

    def having(self, *targets: Target) -> KnownTargets:
        """With these in place of others of their names."""
        moved = dict.fromkeys(self.moved)
        for target in targets:
            if target.state.origin is not None:
                moved[target.name] = None
            else:
                moved.pop(target.name, None)
        named = {target.name: target for target in targets}
        return replace(self, targets={**self.targets, **named}, moved=tuple(moved))

    def resumed(self, name: str) -> KnownTargets:
        return replace(
            self,
            suspended=_without(self.suspended, name),
            unmade=_without(self.unmade, name),
            news=_without(self.news, name),
        )

    def at_cut(self, states: Mapping[str, TargetState]) -> KnownTargets:
        """With the suspensions that a cut says; nothing is new since."""
        return replace(
            self,
            suspended={
                name: state.suspended
                for name, state in states.items()
                if state.suspended is not None and name != self.catching_up
            },
            unmade={name: state for name, state in states.items() if state.table_version < 0},
            news={},
            forgotten=frozenset(),
            has_lost_exactness=False,
        )


def _without(values: Mapping[str, _Value], name: str) -> Mapping[str, _Value]:
    if name not in values:
        return values
    return {other: value for other, value in values.items() if other != name}


class FollowedTargets:
    """`now`: what is known; whoever puts back an earlier value forgets what was learned since."""

    def __init__(self, config: PipelineConfig, *, catching_up: str | None = None) -> None:
        self.now = KnownTargets(catching_up=catching_up)
        self._source = config.name
        self._routes = Routes(config)

    # -- renamed tables ----------------------------------------------------------------------------

    def follows(self, database: str, table: str) -> bool:
        """Whether a target follows a table that was renamed to its name, captured or not."""
        return any(
            not self.now.is_not_following(name)
            for name in self.now.followers.get(table_name(database, table), ())
        )

    def followed_sources(self) -> list[str]:
        """Tables that a target follows after a rename."""
        return list(self.now.followers)

    def routes_of(self, source: str) -> tuple[Route, ...]:
        """Those of the configuration, except for targets that a rename has moved."""
        followers = self.now.followers.get(source)
        if followers:
            return tuple(self._route_of(source, self.now.targets[name]) for name in followers)
        routes = self._routes.of_table(source)
        if not self.now.moved:
            return routes
        return tuple(replace(route, target=self._free_name(route)) for route in routes)

    def _route_of(self, source: str, target: Target) -> Route:
        origin, leads_to = target.state.origin or (source, target.name)
        routes = self._routes.of_table(origin)
        route = next((route for route in routes if route.target == leads_to), None)
        if route is None:
            rule = TargetRule(mode=target.spec.mode)
            return Route(source, target.name, rule, self._routes.policy)
        return replace(route, source=source, target=target.name)

    def route_of(self, source: str, target: str) -> Route | None:
        return next((route for route in self.routes_of(source) if route.target == target), None)

    def _free_name(self, route: Route) -> str:
        """The target's name, or ``name__2`` ... if a renamed table took its target along."""
        name, number = route.target, 1
        while True:
            other = self.now.targets.get(name)
            if other is None or other.state.origin is None or route.source in other.spec.sources:
                return name
            number += 1
            name = f"{route.target}__{number}"

    # -- suspended targets -------------------------------------------------------------------------

    def is_suspended(self, database: str, table: str) -> bool:
        """Whether changes of a captured table are left to the catch-up of all its targets."""
        return all(
            self.now.is_not_following(route.target)
            for route in self.routes_of(table_name(database, table))
        )

    def goes_on_without(self, database: str, table: str) -> bool:
        """Whether a target follows the source although it belongs to no table."""
        own = {route.target for route in self.routes_of(table_name(database, table))}
        return any(
            name not in own and not self.now.is_not_following(name) for name in self.now.targets
        )

    def suspend(
        self, source: str, suspension: Suspension, *, only: Collection[str] | None = None
    ) -> list[str]:
        """Suspend all or some targets of a source table from now on; return their names."""
        names = []
        for route in self.routes_of(source):
            name = route.target
            if self.now.is_not_following(name) or (only is not None and name not in only):
                continue
            names.append(name)
            if name not in self.now.targets:
                partial = source not in self.now.created_in_log
                unmade = {**self.now.unmade, name: self._new_state(route, partial=partial)}
                self.now = replace(self.now, unmade=unmade)
        new = dict.fromkeys(names, suspension)
        self.now = replace(
            self.now, suspended={**self.now.suspended, **new}, news={**self.now.news, **new}
        )
        return names

    def awaits_snapshot(self, database: str, table: str) -> bool:
        """Whether all targets of a table wait, as a RENAME made their contents unknown (K28)."""
        routes = self.routes_of(table_name(database, table))
        return bool(routes) and all(self.now.has_unknown_content(route.target) for route in routes)

    def take_back(self, at: tuple[str, int]) -> None:
        """Resume those that were suspended since the last cut at `at` (journal, offset)."""
        for name, suspension in self.now.news.items():
            if (suspension.journal, suspension.offset) == at:
                self.now = self.now.resumed(name)

    def _new_state(self, route: Route, *, partial: bool) -> TargetState:
        app_id = application_id(self._source, route.target, uuid4().hex)
        sources = () if route.source == route.target else (route.source,)
        leads_to = {known.target for known in self._routes.of_table(route.source)}
        origin = None
        if route.target not in leads_to:  # a renamed table took its name along
            origin = (
                route.source,
                next(name for name in leads_to if route.target.startswith(f"{name}__")),
            )
        return TargetState(
            table=route.target,
            app_id=app_id,
            table_version=-1,
            applied_batch=-1,
            partial=partial,
            sources=sources,
            origin=origin,
        )

    # -- shapes ------------------------------------------------------------------------------------

    def shaped(self, rows: DecodedRows, target: Target) -> DecodedRows:
        """A source table's masked rows as a target's; SchemaError: it has no such target."""
        return shape_rows(rows, self._route_to(rows.schema.full_name, target.name))

    def _route_to(self, source: str, target: str) -> Route:
        route = self.route_of(source, target)
        if route is None:
            raise SchemaError(
                f"{target} is no longer a target of {source}",
                table=source,
                next_step="take a snapshot of the table under its present name",
            )
        return route
