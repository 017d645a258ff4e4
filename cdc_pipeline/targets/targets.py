"""Delta tables of a source as this run knows them: sources, columns, keys, ids.

Rules:
- Recorded facts come from the last cut and grow with the run's own decisions.
- A source table has one target for each of its routes. A target keeps its own copy of its source
  tables' columns, so that a suspended one keeps those that held at its position.
- Every table map of a captured table must confirm the record of each target (K13); a target without
  one is created from the table map and labelled partial (K19).
- A target is exact (K12) from a CREATE TABLE in the log on, if it mirrors that one table unchanged;
  `lose_exactness` ends that for good, and so does every statement that may change rows without row
  events.
- A target shows the table of its name (K28): at a RENAME it takes over the rows of the target whose
  table has the name now, if both are kept by the same rule (`carrying.heir`). If it cannot, it
  holds rows of another table, and is suspended until its snapshot; a name without a target gets a
  partial one.
- Who takes over what is judged on the routes before the statement. A target that the statement
  itself moves takes over nothing: its name is suspended, too.
- A suspended target is not known here: its rows and statements pass it by (K4). A table can be
  suspended even before it has a target. A source table is suspended if all of its targets are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ContentUnknownError, SchemaError
from cdc_pipeline.lake.paths import application_id
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.schema.ddl.statement import CREATES, Statement, StatementKind
from cdc_pipeline.schema.evolution.changes import Decision, KnownTable, TableChange, confirm
from cdc_pipeline.schema.evolution.statement_context import Arrival, Shadow
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    DdlDecision,
    RenameColumn,
    WidenColumn,
    left_after,
)
from cdc_pipeline.schema.target_spec import RecordedSource, TargetSpec, shard_key
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta.features import allowed
from cdc_pipeline.sink.modes.rescue import check_images, rescued_names
from cdc_pipeline.sink.target import Carried
from cdc_pipeline.sink.target import Target as Target
from cdc_pipeline.targets.carrying import heir
from cdc_pipeline.targets.following import FollowedTargets
from cdc_pipeline.targets.keys import check_key_images, check_reserved, identity_of
from cdc_pipeline.targets.masks import Masks
from cdc_pipeline.targets.route_checks import check_recorded, join_shard
from cdc_pipeline.targets.routes import Route
from cdc_pipeline.targets.row_policies import TablePolicy, policy_of, strictest_policy
from cdc_pipeline.targets.shape import check_rows, recorded_shape, shape_table
from cdc_pipeline.text.table_names import split_table_name, table_name


class Targets(FollowedTargets):
    """`cursor` has the online schema changes under way. `catching_up`: a suspended target that
    alone follows the source in this run.
    """

    def __init__(
        self,
        config: PipelineConfig,
        cut: Cut | None,
        cursor: CursorState | None = None,
        *,
        catching_up: str | None = None,
    ) -> None:
        super().__init__(config, catching_up=catching_up)
        self.masks = Masks(self.routes_of)
        self._allowed = allowed(config.sink)
        self._sink = config.sink
        # Compared with these table maps: targets by name and source table.
        self._confirmed: dict[tuple[str, str], tuple[Target, TableSchema]] = {}
        shadows = {} if cursor is None else cursor.shadows
        known = {name: Shadow.model_validate_json(text) for name, text in shadows.items()}
        self.now = replace(self.now, shadows=known)
        if cut is not None:
            check_recorded(self._routes, cut)
            self.now = self.now.having(*(_recorded(cut, name) for name in cut.tables)).at_cut(
                cut.cursor.targets
            )

    # -- columns and keys --------------------------------------------------------------------------

    def following(self, database: str, table: str) -> list[Target]:
        """The recorded targets of a table that follow the source now."""
        source, targets = table_name(database, table), self.now.targets
        names = [
            route.target
            for route in self.routes_of(source)
            if not self.now.is_not_following(route.target)
        ]
        return [
            targets[name]
            for name in names
            if name in targets and source in targets[name].spec.sources
        ]

    def known(self, database: str, table: str) -> KnownTable | None:
        source = table_name(database, table)
        following = self.following(database, table)
        # A target whose table came to the name by RENAME and is gone is unrelated to a later table
        # of that name.
        led_to = {route.target for route in self.routes_of(source)}
        recorded = [
            *following,
            *(
                target
                for target in self.now.targets.values()
                if (of := target.spec.sources.get(source)) is not None
                and (target.name in led_to or not of.gone)
                # Those of the same table are ahead of the one that catches up.
                and self.now.catching_up not in led_to
            ),
        ]
        if not recorded:
            return None
        return self._known(recorded[0], source)

    def known_all(self, database: str, table: str) -> list[KnownTable]:
        """The records of a source table's targets; without followers, of any target."""
        source = table_name(database, table)
        records = [self._known(target, source) for target in self.following(database, table)]
        if not records:
            known = self.known(database, table)
            return [] if known is None else [known]
        return records

    def _known(self, target: Target, source: str) -> KnownTable:
        spec = target.spec
        of = spec.sources[source]
        route = self.route_of(source, target.name)
        return KnownTable(
            source=of,
            target=spec.columns,
            shape=spec.shape,
            others=tuple(other for name, other in spec.sources.items() if name != source),
            name=target.name,
            setting="" if route is None or route.number < 0 else route.setting,
            policy=self._routes.policy if route is None else route.policy,
            by_key=_by_key(spec, of),
            follows=target.state.origin is not None,
        )

    def decided(self, decision: Decision, *, may_carry: bool = True) -> list[ContentUnknownError]:
        """Take over a decision; an error for each table whose targets hold rows of another one
        from now on.

        `may_carry`: the last cut has all rows that came before the statement, so that a target can
        take over those of another one.
        """
        for created in decision.creates:
            source = RecordedSource(columns=created.columns, key=created.key)
            for route in self.routes_of(table_name(*created.table)):
                if not self.now.is_not_following(route.target):
                    exact = decision.row_logged and not created.may_exist and _is_plain(route.rule)
                    self._follow(route, source, partial=created.may_exist, exact=exact)
        if not decision.row_logged:
            self.lose_exactness(decision.ddl.tables)
        before, new_in_log = self.now.targets, self.now.created_in_log
        standing = {name for name in before if self.now.is_not_following(name)}
        unknown = {
            arrival.before
            for arrival in decision.arrivals
            if any(
                route.target in self.now.suspended
                for route in self.routes_of(table_name(*arrival.before))
            )
        }
        moved = {
            change.known.name
            for change in decision.changes
            if not change.is_carried and change.new_name != change.table
        }
        heirs = {}
        for change in [change for change in decision.changes if change.is_carried]:
            if may_carry and change.known.name not in standing:
                routes = self.routes_of(table_name(*change.new_name))
                staying = [route for route in routes if route.target not in moved]
                heirs[change.known.name] = self._heir(change, staying)
                if len(staying) < len(routes):
                    unknown.add(change.table)
        for change in decision.changes:
            if not change.is_carried:
                self._change(change)
            elif (takes := heirs.get(change.known.name)) is not None:
                self._carry(change, takes, before)
        arrived = [
            self._arrive(
                arrival,
                before,
                new_in_log,
                decision.ddl,
                is_overlap=not may_carry,
                is_unknown=arrival.before in unknown,
            )
            for arrival in decision.arrivals
        ]
        self._forget_unmade(decision.statement)
        if decision.shadows:
            shadows = dict(self.now.shadows)
            for shadowed in decision.shadows:
                name = table_name(*shadowed.name)
                shadows.pop(name, None)
                if shadowed.shadow is not None:
                    shadows[name] = shadowed.shadow
            self.now = replace(self.now, shadows=shadows)
        is_creation = decision.statement.kind in CREATES and not decision.ignored
        if is_creation and not decision.creates and not decision.statement.if_not_exists:
            self.created(decision.ddl.tables)
        return [error for error in arrived if error is not None]

    def lose_exactness(self, sources: Collection[str] | None = None) -> None:
        """Of some source tables, by default all: they may lack an event, or get one twice (K12)."""
        exact = [
            target
            for target in self.now.targets.values()
            if target.state.exact
            and (sources is None or not target.spec.sources.keys().isdisjoint(sources))
        ]
        if exact:
            lost = self.now.has_lost_exactness or any(not target.is_new for target in exact)
            inexact = (target.with_state(exact=False) for target in exact)
            self.now = replace(self.now.having(*inexact), has_lost_exactness=lost)

    def _follow(
        self, route: Route, source: RecordedSource, *, partial: bool, exact: bool = False
    ) -> Target:
        existing = self.now.targets.get(route.target)
        spec = spec_of(route, source)
        self._allowed.check_types(
            ((column.name, column.delta_type) for column in spec.columns), table=route.source
        )
        if existing is not None and route.source not in existing.spec.sources:
            join_shard(route, spec, existing.spec)
            sources = {**existing.spec.sources, route.source: source}
            grown = existing.with_state(
                sources=tuple(sources), partial=existing.state.partial or partial, exact=False
            )
            return self._put(grown.with_spec(sources=sources))
        state = self.now.unmade.get(route.target)
        if state is None:
            state = self._new_state(route, partial=partial).model_copy(update={"exact": exact})
        elif not partial:
            state = state.model_copy(update={"partial": False})
        if not _keeps_exact(spec, source):
            state = state.model_copy(update={"exact": False})
        policy = policy_of(route.rule, self._sink)
        rescued = () if policy.rescued_column == "always" else None
        return self._put(Target(state, spec, is_new=True, rescued=rescued))

    def _put(self, target: Target) -> Target:
        self.now = self.now.having(target)
        return target

    def _forget_creation(self, source: str) -> None:
        self.now = replace(self.now, created_in_log=self.now.created_in_log - {source})

    def _change(self, change: TableChange) -> None:
        known = change.known
        source = table_name(*change.table)
        new_source = table_name(*change.new_name)
        target = self.now.targets[known.name]
        added = _added(change)
        self._allowed.check_types(added, table=source)
        check_reserved(target.spec.mode, (name for name, _ in added), source=source)
        if change.empties:
            _check_may_replace(target, source)
        if change.replaces:
            self._replace(target, new_source, known.source)
            return
        sources = {
            name: of.model_copy(update={"left": left_after(of.left, change.steps)})
            for name, of in target.spec.sources.items()
            if name != source
        } | {new_source: known.source}
        update: dict[str, object] = {}
        if change.inexact:
            update["exact"] = False
        if known.source.gone:
            self._forget_creation(source)
            if self.now.has_unknown_content(target.name):
                self.now = self.now.resumed(target.name)
                update["suspended"] = None
        if new_source != source:
            update["sources"] = tuple(sources)
            if target.state.origin is not None or not self._leads(new_source, target.name):
                update["origin"] = target.state.origin or (source, target.name)
        self._put(
            target.with_state(**update).with_spec(
                columns=known.target_columns, key=self._key_after(target, change), sources=sources
            )
        )

    def placed(self, decision: Decision) -> Decision:
        """If old and new name lead to one target, it stays with its table, and no rows move."""
        stay = {
            (change.table, change.known.name)
            for change in decision.changes
            if change.is_carried
            and self._leads(table_name(*change.new_name), change.known.name, alone=True)
        }
        of_others = [
            change for change in decision.changes if (change.table, change.known.name) not in stay
        ]
        go_on = [
            replace(change, is_carried=False)
            for change in decision.changes
            if change.is_carried and (change.table, change.known.name) in stay
        ]
        return replace(decision, changes=(*go_on, *of_others)) if stay else decision

    def _leads(self, source: str, target: str, *, alone: bool = False) -> bool:
        """`alone`: without sharing the target."""
        routes = self._routes.of_table(source)
        return any(
            route.target == target and not (alone and route.rule.shard_column) for route in routes
        )

    def _heir(self, change: TableChange, routes: Sequence[Route]) -> Route | None:
        origin = self.now.targets[change.known.name]
        left = self.route_of(table_name(*change.table), origin.name)
        route = left and heir(left, origin, routes, self.now.targets)
        is_left_out = route is not None and self.now.catching_up not in (None, route.target)
        return None if is_left_out else route

    def _carry(self, change: TableChange, route: Route, before: Mapping[str, Target]) -> None:
        """`before`: tables may exchange names."""
        origin, name = before[change.known.name], table_name(*change.new_name)
        existing, known = before.get(route.target), change.known
        self._allowed.check_types(_added(change), table=name)
        state = self._new_state(route, partial=origin.state.partial)
        if existing is not None:
            update = {
                name: getattr(existing.state, name) for name in ("table_version", "applied_batch")
            }
            state = state.model_copy(update=update)
        self.now = self.now.resumed(route.target)
        self._forget_creation(name)
        carried = Carried(
            origin=origin.name,
            app_id=origin.state.app_id,
            version=origin.state.table_version,
            columns=origin.spec.columns,
            steps=change.steps,
            keeps_rows=existing is not None and MODES[existing.spec.mode].marks_deleted_rows,
        )
        is_new = existing is None or existing.is_new
        self._put(
            replace(origin, state=state, is_new=is_new, carried=carried).with_spec(
                columns=known.target_columns,
                key=self._key_after(origin, change),
                sources={name: known.source.model_copy(update={"gone": False})},
                track=route.rule.track,
                properties=route.rule.properties,
            )
        )

    def _arrive(
        self,
        arrival: Arrival,
        before: Mapping[str, Target],
        created: Collection[str],
        ddl: DdlDecision,
        *,
        is_overlap: bool,
        is_unknown: bool,
    ) -> ContentUnknownError | None:
        """An error if targets of the name could not take over its rows: they hold those of another
        table, or the rows were not known under the earlier name either.
        """
        name, came_from = table_name(*arrival.name), table_name(*arrival.before)
        self._forget_creation(name)
        if came_from in created:
            self.created([name])
        lost = []
        for route in self.routes_of(name):
            existing = self.now.targets.get(route.target)
            if self.now.is_not_following(route.target):
                continue
            if existing is None and is_unknown:
                lost.append(route.target)
            if existing is None or existing.carried is not None:
                continue
            old = before.get(existing.name)
            old_sources = {} if old is None else old.spec.sources
            if old is not None and name in existing.spec.sources and name not in old_sources:
                continue  # it was the target of the table under its earlier name, and continues
            if is_overlap and name in old_sources and not old_sources[name].gone:
                continue  # the statement was applied before the switch to this server
            lost.append(existing.name)
        if not lost:
            return None
        return ContentUnknownError(
            f"{came_from} has taken the name {name}, and its rows cannot be taken over",
            targets=tuple(lost),
            table=name,
            journal=ddl.journal,
            offset=ddl.offset,
            expected=f"a table that was captured completely as {came_from}, by the same rule "
            f"as {name}, into its own target that continues, and no history of "
            "another table under this name",
            next_step=f"take a snapshot of the table: `cdc-pipeline snapshot {self._source} "
            f"--table {name}`",
        )

    def _forget_unmade(self, statement: Statement) -> None:
        """For unknown contents of tables that are gone, and never had a target."""
        gone = {old for old, _ in statement.renames} - {new for _, new in statement.renames}
        if statement.kind is StatementKind.DROP_TABLE and not statement.temporary:
            gone.update(statement.tables)
        for name, state in self.now.unmade.items():
            sources = [split_table_name(source) for source in state.sources or (name,)]
            if self.now.has_unknown_content(name) and all(
                table in gone or (statement.drops_database and table[0] == statement.database)
                for table in sources
            ):
                now = self.now.resumed(name)
                self.now = replace(now, forgotten=now.forgotten | {name})

    def _replace(self, target: Target, source: str, recorded: RecordedSource) -> Target:
        """In the next batch: another table has taken the source table's name."""
        _check_may_replace(target, source)
        spec = spec_of(self._route_to(source, target.name), recorded)
        self._allowed.check_types(
            ((column.name, column.delta_type) for column in spec.columns), table=source
        )
        app_id = application_id(self._source, target.name, uuid4().hex)
        return self._put(
            Target(
                target.state.model_copy(
                    update={"app_id": app_id, "partial": False, "exact": False}
                ),
                spec.model_copy(update={"shape": target.spec.shape, "track": target.spec.track}),
                is_new=True,
                replaces=target.replaces if target.is_new else target.state.app_id,
                rescued=None if target.rescued is None else (),
            )
        )

    def _key_after(self, target: Target, change: TableChange) -> tuple[str, ...]:
        """The source's if that finds its rows, else its own, under the columns' new names."""
        spec = target.spec
        if _by_key(spec, spec.sources[table_name(*change.table)]):
            return tuple(
                change.known.target_name(name) for name in change.known.source.key
            ) + shard_key(spec.shape)
        renamed = {
            step.name: step.new_name for step in change.steps if isinstance(step, RenameColumn)
        }
        return tuple(renamed.get(name, name) for name in spec.key)

    def created(self, sources: Collection[str]) -> None:
        """All rows of these tables come: targets made of them are not partial (K17, K19)."""
        self.now = replace(self.now, created_in_log=self.now.created_in_log.union(sources))

    def confirm(self, schema: TableSchema) -> list[Target]:
        """The targets of the table that follow the source; one without a record is created, and
        partial.

        Raises SchemaError: the map contradicts what is recorded, or is of another table than a
        target keeps; KeylessTableError; ConfigError: two tables lead to one target;
        FeatureNotAllowedError.
        """
        source = schema.full_name
        confirmed = []
        for route in self.routes_of(schema.full_name):
            if self.now.is_not_following(route.target):
                continue
            target = self.now.targets.get(route.target)
            recorded = target.spec.sources.get(source) if target is not None else None
            if target is None or recorded is None:
                is_partial = source not in self.now.created_in_log
                target = self._follow(route, _as_recorded(schema), partial=is_partial)
            elif recorded.gone:
                target = self._replace(target, source, _as_recorded(schema))
            elif not self._is_confirmed(target, schema):
                # Only a target that finds its rows by the source's own key depends on it.
                by_its_key = _by_key(target.spec, recorded)
                confirm(recorded.columns, recorded.key if by_its_key else schema.key_names, schema)
                said = {"track": route.rule.track, "properties": route.rule.properties}
                if any(getattr(target.spec, name) != value for name, value in said.items()):
                    target = self._put(target.with_spec(**said))
            self._confirmed[target.name, source] = target, schema
            confirmed.append(target)
        return confirmed

    def _is_confirmed(self, target: Target, schema: TableSchema) -> bool:
        known, compared = self._confirmed.get((target.name, schema.full_name), (None, None))
        return known is target and compared == schema

    def policy(self, schema: TableSchema) -> TablePolicy:
        """For values and rows of a table that cannot be applied."""
        keys = {
            name
            for target in self.following(schema.database, schema.table)
            for name in target.spec.key
        }
        hidden = {column.name for column in schema.columns if column.masked}
        rules = [route.rule for route in self.routes_of(schema.full_name)]
        return TablePolicy(
            strictest_policy([policy_of(rule, self._sink) for rule in rules]),
            keys.union(schema.key_names),
            hidden,
            takes=lambda name: any(rule.takes(name) for rule in rules),
        )

    def accept(self, rows: DecodedRows) -> list[Target]:
        """What is new about the targets of the rows is known then. Raises as `confirm`;
        IncompleteRowsError: images lack what a target needs.
        """
        confirmed = self.confirm(rows.schema)
        for target in confirmed:
            route = self._route_to(rows.schema.full_name, target.name)
            check_rows(rows, route, both_images=MODES[target.spec.mode].rows_are_changes)
            check_key_images(target, rows)
            if rows.invalid or (target.rescued and not rows.all_present):
                self._rescue(target, rows)
        return [self.now.targets[target.name] for target in confirmed]

    def _rescue(self, target: Target, rows: DecodedRows) -> None:
        shaped = self.shaped(rows, target)
        renamed = dict(target.spec.sources[rows.schema.full_name].names)
        names = {renamed.get(name, name) for name in rescued_names(shaped, target.spec.mode)}
        known = names.union(target.rescued or ())
        if not MODES[target.spec.mode].rows_are_changes:
            back = {new: name for name, new in renamed.items()}
            check_images(shaped, {back.get(name, name) for name in known})
        if names and len(known) > len(target.rescued or ()):
            self._put(replace(target, rescued=tuple(sorted(known))))

    def check(self, rows: DecodedRows) -> None:
        """As `accept`, of rows that may never count: nothing is known by them."""
        before = self.now
        try:
            self.accept(rows)
        finally:
            self.now = before

    def committed(self, cut: Cut) -> None:
        """Take over what a published cut says of each target."""
        states, known = cut.cursor.targets, self.now.targets
        published = (
            replace(known[name], state=state, is_new=False, replaces="", carried=None)
            for name, state in states.items()
            if name in known and state.table_version >= 0
        )
        self.now = self.now.having(*published).at_cut(states)


def _added(change: TableChange) -> list[tuple[str, str]]:
    """Names and types of columns that a change adds or widens."""
    steps = (step for step in change.steps if isinstance(step, AddColumn | WidenColumn))
    return [(step.name, step.delta_type) for step in steps]


def _as_recorded(schema: TableSchema) -> RecordedSource:
    return RecordedSource(columns=target_columns(schema), key=schema.key_names)


def _recorded(cut: Cut, name: str) -> Target:
    table, state = cut.tables[name], cut.cursor.targets[name]
    if state.suspended is not None:
        state = state.model_copy(update={"exact": False})
    rescued = tuple(table.rescued_ever) if table.rescues else None
    return Target(state, table.spec.expanded(name), rescued=rescued)


def _by_key(spec: TargetSpec, of: RecordedSource) -> bool:
    return bool(spec.key) and spec.key == of.key_in_target + shard_key(spec.shape)


def _check_may_replace(target: Target, source: str) -> None:
    """SchemaError: the target keeps its past, and cannot be made again for another table."""
    mode = target.spec.mode
    if MODES[mode].keeps_past:
        raise SchemaError(
            f"another table replaces {source}, whose target keeps the past",
            table=source,
            expected="a mirror, which is recreated",
            got=f"{target.name}, a {mode}",
            next_step=f"give the rule of {target.name} another `name`: the new table's target "
            "is created there",
        )


def spec_of(route: Route, source: RecordedSource) -> TargetSpec:
    """By the rule of its route; raises as `identity_of` and `shape_table`."""
    identity = identity_of(
        route.rule,
        source=route.source,
        columns=tuple(column.name for column in source.columns),
        source_key=source.key,
    )
    shaped = shape_table(route, source.columns, identity.key)
    return TargetSpec(
        mode=identity.mode,
        columns=shaped.columns,
        key=shaped.key if identity.key else (),
        key_reason=identity.why,
        track=route.rule.track,
        properties=route.rule.properties,
        sources={route.source: source},
        shape=recorded_shape(route.rule),
    )


def _keeps_exact(spec: TargetSpec, source: RecordedSource) -> bool:
    """K12: a mirror by the source's own key, with a shape that keeps every row."""
    is_plain = spec.shape is None or spec.shape.is_exact_possible(spec.key)
    return not MODES[spec.mode].keeps_past and spec.key == source.key and is_plain


def _is_plain(rule: TargetRule) -> bool:
    naming = {"tables", "except_", "name", "properties"}
    return rule.model_dump(exclude=naming) == TargetRule().model_dump(exclude=naming)
