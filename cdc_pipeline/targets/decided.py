"""What statements are decided on, and what a decision makes of the targets (K13, K28).

Rules:
- A target shows the table of its name (K28): at a RENAME it takes over the rows of the target whose
  table has the name now. If it cannot, it holds rows of another table, and is suspended until its
  snapshot; a name without a target gets a partial one.
- Both are kept by the same rule, names aside, and that rule made the rows. So they are what the new
  name's target would hold if it had followed the table from the beginning.
- A target that several tables share takes over nothing, and gives nothing away: its rows are
  identified by their names.
- A history or a changelog of another table never becomes that of this one. It goes to a name that
  has none; else the name needs a snapshot, which ends the one and begins the other by the rules of
  the mode (`SinkMode.replaced_sql`).
- Who takes over what is judged on the routes before the statement. A target that the statement
  itself moves takes over nothing: its name is suspended, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ContentUnknownError
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.schema.ddl.statement import CREATES, Statement, StatementKind
from cdc_pipeline.schema.evolution.statement_context import (
    Arrival,
    Decision,
    KnownTable,
    Shadow,
    ShadowChange,
    TableChange,
)
from cdc_pipeline.schema.evolution.steps import AddColumn, WidenColumn, left_after, renamed_by
from cdc_pipeline.schema.source_table import SourceTable
from cdc_pipeline.schema.target_spec import shard_key
from cdc_pipeline.sink.delta.features import allowed
from cdc_pipeline.sink.target import Carried, Target
from cdc_pipeline.targets.confirmed import (
    as_recorded,
    check_may_replace,
    finds_rows_by_key,
    followed,
    replaced,
)
from cdc_pipeline.targets.keys import check_reserved, tracked_by
from cdc_pipeline.targets.routes import Route
from cdc_pipeline.targets.shape import recorded_shape
from cdc_pipeline.targets.targets import Targets, new_state, recorded_of
from cdc_pipeline.text.table_names import split_table_name, table_name

_NAMING = {"tables", "except_", "name", "schema_changes"}


# What is recorded of a table's targets, as it was at an earlier place of the log.
AsBefore = Callable[[list[KnownTable]], list[KnownTable]]

_LEAVING: Final = frozenset(
    {StatementKind.DROP_TABLE, StatementKind.DROP_DATABASE, StatementKind.RENAME_TABLE}
)


@dataclass(frozen=True, slots=True)
class StatementTargets:
    """What a statement of a kind meets; `number`: of the targets that each table has."""

    targets: Targets
    kind: StatementKind
    as_before: AsBefore | None = None
    number: int = 0

    def captured(self, database: str, table: str) -> bool:
        """And not suspended."""
        targets = self.targets
        if not targets.captured(database, table):
            return False
        if not targets.is_suspended(database, table):
            return True
        # A snapshot cannot bring rows of a dropped table: a target that waits for one as a RENAME
        # made its contents unknown is treated as that of any dropped table (K28).
        routes = targets.routes_of(table_name(database, table))
        return (
            self.kind in _LEAVING
            and bool(routes)
            and all(targets.has_unknown_content(route.target) for route in routes)
        )

    def shadow(self, database: str, table: str) -> Shadow | None:
        return self.targets.shadows.get(table_name(database, table))

    def names_in(self, database: str) -> list[str]:
        """Names (without schema) of a database's tables with a target that is not suspended."""
        targets = self.targets
        names = {
            split_table_name(source)
            for name, target in targets.by_name.items()
            if not targets.is_not_following(name) or targets.has_unknown_content(name)
            for source in target.spec.sources
        }
        return sorted(table for schema, table in names if schema == database)

    def followed_tables(self) -> list[tuple[str, str]]:
        """Source tables whose targets follow them, or will from their first row on."""
        names = {
            source
            for name, target in self.targets.by_name.items()
            if not self.targets.is_not_following(name)
            for source, of in target.spec.sources.items()
            if not of.gone
        }
        return [split_table_name(name) for name in sorted(names | self.targets.created_in_log)]

    def before(
        self, of_history: Callable[[str, str], SourceTable | None], database: str, table: str
    ) -> SourceTable | None:
        before = of_history(database, table)
        if before is None:
            return None
        return replace(before, schema=as_recorded(self.targets, before.schema))

    def known_all(self, database: str, table: str) -> list[KnownTable]:
        """The records of a source table's targets; without followers, of any target."""
        source = table_name(database, table)
        recorded = recorded_of(self.targets, database, table)
        tables = [_known(self.targets, target, source) for target in recorded]
        return tables if self.as_before is None else self.as_before(tables)

    def known(self, database: str, table: str) -> KnownTable | None:
        tables = self.known_all(database, table)
        return tables[min(self.number, len(tables) - 1)] if tables else None

    def masked(self, database: str, table: str) -> set[str]:
        routes = (
            self.targets.route_of(table_name(database, table), known.name)
            for known in self.known_all(database, table)
        )
        return {name for route in routes if route is not None for name in route.rule.masks}


def known(targets: Targets, database: str, table: str) -> KnownTable | None:
    recorded = recorded_of(targets, database, table)
    return _known(targets, recorded[0], table_name(database, table)) if recorded else None


def _known(targets: Targets, target: Target, source: str) -> KnownTable:
    spec = target.spec
    of = spec.sources[source]
    route = targets.route_of(source, target.name)
    return KnownTable(
        source=of,
        target=spec.columns,
        shape=spec.shape,
        others=tuple(other for name, other in spec.sources.items() if name != source),
        name=target.name,
        setting="" if route is None or route.number < 0 else route.setting,
        policy=targets.configured.policy if route is None else route.policy,
        by_key=finds_rows_by_key(spec, of),
        follows=target.state.origin is not None,
        rescued=target.rescued or (),
    )


def placed(targets: Targets, decision: Decision) -> Decision:
    """If old and new name lead to one target, it stays with its table, and no rows move."""
    stay = [
        change
        for change in decision.changes
        if change.is_carried
        and any(
            route.target == change.known.name and not route.rule.shard_column
            for route in targets.configured.of_table(table_name(*change.new_name))
        )
    ]
    if not stay:
        return decision
    staying = {(change.table, change.known.name) for change in stay}
    of_others = (
        change for change in decision.changes if (change.table, change.known.name) not in staying
    )
    go_on = (replace(change, is_carried=False) for change in stay)
    return replace(decision, changes=(*go_on, *of_others))


def decided(
    targets: Targets, decision: Decision, *, may_carry: bool = True
) -> tuple[Targets, list[ContentUnknownError]]:
    """An error for each table whose targets hold rows of another one from now on.

    `may_carry`: the last cut has all rows that came before the statement, so that a target can
    take over those of another one.
    """
    for created in decision.creates:
        for route in targets.routes_of(table_name(*created.table)):
            if not targets.is_not_following(route.target):
                exact = decision.row_logged and not created.may_exist and _is_plain(route.rule)
                targets = followed(
                    targets, route, created.source, partial=created.may_exist, exact=exact
                )
    if not decision.row_logged:
        targets = targets.without_exactness(decision.ddl.tables)
    before = targets
    heirs, unknown = _heirs(before, decision) if may_carry else ({}, set())
    unknown |= {
        arrival.before
        for arrival in decision.arrivals
        if any(
            route.target in before.suspended
            for route in before.routes_of(table_name(*arrival.before))
        )
    }
    for change in decision.changes:
        if not change.is_carried:
            targets = _changed(targets, change)
        elif (heir := heirs.get(change.known.name)) is not None:
            targets = _carried(targets, change, heir, before)
    errors = []
    for arrival in decision.arrivals:
        is_created = table_name(*arrival.before) in before.created_in_log
        targets = _with_creation(targets, table_name(*arrival.name), is_created=is_created)
        lost = _lost(
            targets, arrival, before, is_overlap=not may_carry, is_unknown=arrival.before in unknown
        )
        if lost:
            errors.append(_content_unknown(targets, arrival, lost, decision))
    targets = _without_unmade(targets, decision.statement)
    if decision.shadows:
        targets = replace(targets, shadows=_shadows(targets, decision.shadows))
    is_creation = decision.statement.kind in CREATES and not decision.ignored
    if is_creation and not decision.creates and not decision.statement.if_not_exists:
        targets = created_in_log(targets, decision.ddl.tables)
    return targets, errors


def created_in_log(targets: Targets, sources: Iterable[str]) -> Targets:
    """All rows of these tables come: targets made of them are not partial (K17, K19)."""
    return replace(targets, created_in_log=targets.created_in_log.union(sources))


# -- a target of a table ---------------------------------------------------------------------------


def _changed(targets: Targets, change: TableChange) -> Targets:
    known = change.known
    source, new_source = table_name(*change.table), table_name(*change.new_name)
    target = targets.by_name[known.name]
    added = _added(change)
    allowed(targets.config.sink).check_types(added, table=source)
    check_reserved(target.spec.mode, [name for name, _ in added], source=source)
    if change.empties:
        check_may_replace(target, source)
    if change.replaces:
        return replaced(targets, target, new_source, known.source)
    sources = {
        name: of.model_copy(update={"left": left_after(of.left, change.steps)})
        for name, of in target.spec.sources.items()
        if name != source
    } | {new_source: known.source}
    update: dict[str, object] = {}
    if change.inexact:
        update["exact"] = False
    if known.source.gone:
        targets = _with_creation(targets, source, is_created=False)
        if targets.has_unknown_content(target.name):
            targets = targets.resumed(target.name)
            update["suspended"] = None
    if new_source != source:
        update["sources"] = tuple(sources)
        leads_there = any(
            route.target == target.name for route in targets.configured.of_table(new_source)
        )
        if target.state.origin is not None or not leads_there:
            update["origin"] = target.state.origin or (source, target.name)
    return targets.having(
        target.with_state(**update).with_spec(
            columns=known.target_columns, key=_key_after(target, change), sources=sources
        )
    )


def _added(change: TableChange) -> list[tuple[str, str]]:
    steps = (step for step in change.steps if isinstance(step, AddColumn | WidenColumn))
    return [(step.name, step.delta_type) for step in steps]


def _key_after(target: Target, change: TableChange) -> tuple[str, ...]:
    """The source's if that finds its rows, else its own, under the columns' new names."""
    spec = target.spec
    if finds_rows_by_key(spec, spec.sources[table_name(*change.table)]):
        return tuple(
            change.known.target_name(name) for name in change.known.source.key
        ) + shard_key(spec.shape)
    return tuple(renamed_by(change.steps, name) for name in spec.key)


def _with_creation(targets: Targets, source: str, *, is_created: bool) -> Targets:
    others = targets.created_in_log - {source}
    return replace(targets, created_in_log=others | {source} if is_created else others)


# -- rows of a renamed table -----------------------------------------------------------------------


def _heirs(before: Targets, decision: Decision) -> tuple[dict[str, Route], set[tuple[str, str]]]:
    """The route that takes over each target's rows; and tables that lead to a moved target."""
    moved = {
        change.known.name
        for change in decision.changes
        if not change.is_carried and change.new_name != change.table
    }
    heirs: dict[str, Route] = {}
    unknown = set()
    for change in decision.changes:
        if not change.is_carried or before.is_not_following(change.known.name):
            continue
        routes = before.routes_of(table_name(*change.new_name))
        staying = [route for route in routes if route.target not in moved]
        heir = _heir(before, change, staying)
        if heir is not None:
            heirs[change.known.name] = heir
        if len(staying) < len(routes):
            unknown.add(change.table)
    return heirs, unknown


def _heir(targets: Targets, change: TableChange, routes: Sequence[Route]) -> Route | None:
    origin = targets.by_name[change.known.name]
    route = targets.route_of(table_name(*change.table), origin.name)
    if (
        route is None
        or origin.is_new
        or origin.state.table_version < 0
        or origin.state.origin is not None
        or set(origin.spec.sources) != {route.source}
        or origin.spec.sources[route.source].gone
        or route.rule.shard_column
    ):
        return None
    alike = [
        other
        for other in routes
        if _is_same(other.rule, route.rule) and recorded_shape(other.rule) == origin.spec.shape
    ]
    alike.sort(key=lambda other: other.number != route.number)
    heirs = (
        other for other in alike if _may_take(targets.by_name.get(other.target), origin, other)
    )
    heir = next(heirs, None)
    is_left_out = heir is not None and targets.catching_up not in (None, heir.target)
    return None if is_left_out else heir


def _is_same(rule: TargetRule, other: TargetRule) -> bool:
    return rule.model_dump(exclude=_NAMING) == other.model_dump(exclude=_NAMING)


def _may_take(existing: Target | None, origin: Target, route: Route) -> bool:
    if existing is None:
        return True
    if existing.state.origin is not None or not set(existing.spec.sources) <= {route.source}:
        return False
    spec, other = existing.spec, origin.spec
    if MODES[spec.mode].marks_deleted_rows:
        return (spec.mode, spec.key) == (other.mode, other.key)
    return not MODES[spec.mode].keeps_past


def _carried(targets: Targets, change: TableChange, heir: Route, before: Targets) -> Targets:
    """`before`: tables may exchange names."""
    origin, name = before.by_name[change.known.name], table_name(*change.new_name)
    existing, known = before.by_name.get(heir.target), change.known
    allowed(targets.config.sink).check_types(_added(change), table=name)
    state = new_state(targets, heir, partial=origin.state.partial)
    if existing is not None:
        update = {
            field: getattr(existing.state, field) for field in ("table_version", "applied_batch")
        }
        state = state.model_copy(update=update)
    carried = Carried(
        origin=origin.name,
        app_id=origin.state.app_id,
        version=origin.state.table_version,
        columns=origin.spec.columns,
        steps=change.steps,
        keeps_rows=existing is not None and MODES[existing.spec.mode].marks_deleted_rows,
    )
    is_new = existing is None or existing.is_new
    return _with_creation(targets.resumed(heir.target), name, is_created=False).having(
        replace(origin, state=state, is_new=is_new, carried=carried).with_spec(
            columns=known.target_columns,
            key=_key_after(origin, change),
            sources={name: known.source.model_copy(update={"gone": False})},
            track=tracked_by(heir.rule, known.source, known.target_columns, source=name),
            properties=heir.rule.properties,
        )
    )


def _lost(
    targets: Targets, arrival: Arrival, before: Targets, *, is_overlap: bool, is_unknown: bool
) -> list[str]:
    """Targets of the name that could not take over its rows, and hold those of another table."""
    name, lost = table_name(*arrival.name), []
    for route in targets.routes_of(name):
        existing = targets.by_name.get(route.target)
        if targets.is_not_following(route.target):
            continue
        if existing is None and is_unknown:
            lost.append(route.target)
        if existing is None or existing.carried is not None:
            continue
        old = before.by_name.get(existing.name)
        old_sources = {} if old is None else old.spec.sources
        if old is not None and name in existing.spec.sources and name not in old_sources:
            continue  # it was the target of the table under its earlier name, and continues
        if is_overlap and name in old_sources and not old_sources[name].gone:
            continue  # the statement was applied before the switch to this server
        lost.append(existing.name)
    return lost


def _content_unknown(
    targets: Targets, arrival: Arrival, lost: Sequence[str], decision: Decision
) -> ContentUnknownError:
    name, came_from = table_name(*arrival.name), table_name(*arrival.before)
    return ContentUnknownError(
        f"{came_from} has taken the name {name}, and its rows cannot be taken over",
        targets=tuple(lost),
        table=name,
        at=decision.ddl,
        expected=f"a table that was captured completely as {came_from}, by the same rule "
        f"as {name}, into its own target that continues, and no history of "
        "another table under this name",
        next_step=f"take a snapshot of the table: {new_snapshot(targets.config.name, name)}",
    )


# -- what is not a target --------------------------------------------------------------------------


def _without_unmade(targets: Targets, statement: Statement) -> Targets:
    """For unknown contents of tables that are gone, and never had a target."""
    gone = {old for old, _ in statement.renames} - {new for _, new in statement.renames}
    if statement.kind is StatementKind.DROP_TABLE and not statement.temporary:
        gone.update(statement.tables)
    for name, state in targets.unmade.items():
        sources = [split_table_name(source) for source in state.sources or (name,)]
        if targets.has_unknown_content(name) and all(
            table in gone or (statement.drops_database and table[0] == statement.database)
            for table in sources
        ):
            targets = replace(targets.resumed(name), forgotten=targets.forgotten | {name})
    return targets


def _shadows(targets: Targets, changes: Sequence[ShadowChange]) -> dict[str, Shadow]:
    shadows = dict(targets.shadows)
    for change in changes:
        name = table_name(*change.name)
        shadows.pop(name, None)
        if change.shadow is not None:
            shadows[name] = change.shadow
    return shadows


def _is_plain(rule: TargetRule) -> bool:
    naming = {"tables", "except_", "name", "properties"}
    return rule.model_dump(exclude=naming) == TargetRule().model_dump(exclude=naming)
