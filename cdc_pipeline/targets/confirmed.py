"""What table maps and rows tell of targets: they confirm the record, or make it (K13).

Rules:
- Every table map of a captured table must confirm the record of each target (K13); a target without
  one is created from the table map and labelled partial (K19).
"""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.lake.paths import application_id
from cdc_pipeline.schema.evolution.changes import confirm
from cdc_pipeline.schema.source_table import Comments
from cdc_pipeline.schema.target_spec import RecordedSource, TargetSpec, shard_key
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta.features import allowed
from cdc_pipeline.sink.modes.rescue import check_images, rescued_names
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.keys import check_key_images, identity_of, tracked_by
from cdc_pipeline.targets.route_checks import join_shard
from cdc_pipeline.targets.routes import Route, rule_keys
from cdc_pipeline.targets.row_policies import TablePolicy, policy_of, strictest_policy
from cdc_pipeline.targets.shape import check_rows, recorded_shape, shape_table
from cdc_pipeline.targets.targets import Targets, new_state, recorded_of, route_to, shaped


def confirmed(
    targets: Targets, schema: TableSchema, comments: Comments = ()
) -> tuple[Targets, list[Target]]:
    """The targets of the table that follow the source; one without a record is created, with these
    comments, and partial. Raises SchemaError: the map contradicts what is recorded, or is of
    another table; KeylessTableError; ConfigError: two tables lead to one target;
    FeatureNotAllowedError.
    """
    source, following = schema.full_name, []
    made = RecordedSource(columns=target_columns(schema), key=schema.key_names, comments=comments)
    for route in targets.routes_of(source):
        if targets.is_not_following(route.target):
            continue
        of = route.target, source
        target = targets.by_name.get(route.target)
        recorded = target.spec.sources.get(source) if target is not None else None
        if target is None or recorded is None:
            is_partial = source not in targets.created_in_log
            targets = followed(targets, route, made, partial=is_partial)
        elif recorded.gone:
            targets = replaced(targets, target, source, made)
        elif targets.confirmed.get(of) != (target.spec, schema):
            # Only a target that finds its rows by the source's own key depends on it.
            by_its_key = finds_rows_by_key(target.spec, recorded)
            confirm(recorded.columns, recorded.key if by_its_key else schema.key_names, schema)
            track = tracked_by(route.rule, recorded, target.spec.columns, source=source)
            said = {"track": track, "properties": route.rule.properties}
            if any(getattr(target.spec, name) != value for name, value in said.items()):
                targets = targets.having(target.with_spec(**said))
        following.append(targets.by_name[route.target])
        targets.confirmed[of] = following[-1].spec, schema
    return targets, following


def as_recorded(targets: Targets, schema: TableSchema) -> TableSchema:
    """With UUID, INET4, INET6 as ``binary`` where a target has them so: no type just changes."""
    if not any(column.type.fixed_bytes for column in schema.columns):
        return schema
    recorded = recorded_of(targets, schema.database, schema.table)[:1]
    binary = {
        column.name
        for target in recorded
        for column in target.spec.sources[schema.full_name].columns
        if column.delta_type == "binary"
    }
    columns = tuple(
        replace(column, kind=Kind.BINARY)
        if column.type.fixed_bytes and column.name in binary
        else column
        for column in schema.columns
    )
    return replace(schema, columns=columns)


def accepted(targets: Targets, rows: DecodedRows) -> tuple[Targets, list[Target]]:
    """With what is new about their targets. Raises as `confirmed`; IncompleteRowsError."""
    targets, following = confirmed(targets, rows.schema)
    for target in following:
        route = route_to(targets, rows.schema.full_name, target.name)
        check_rows(rows, route, both_images=MODES[target.spec.mode].rows_are_changes)
        check_key_images(target, rows)
        if rows.invalid or (target.rescued and not rows.all_present):
            targets = _rescuing(targets, target, rows)
    return targets, [targets.by_name[target.name] for target in following]


def table_policy(targets: Targets, schema: TableSchema) -> TablePolicy:
    hidden = {column.name for column in schema.columns if column.masked}
    rules = [route.rule for route in targets.routes_of(schema.full_name)]
    return TablePolicy(
        strictest_policy([policy_of(rule, targets.config.sink) for rule in rules]),
        found_by(targets, schema).union(schema.key_names),
        hidden,
        takes=lambda name: any(rule.takes(name) for rule in rules),
        texts={
            column.name
            for column in schema.columns
            if column.type.is_date
            and all(rule.keeps_text(column.name) for rule in rules if rule.takes(column.name))
        },
    )


def found_by(targets: Targets, schema: TableSchema) -> frozenset[str]:
    """The columns by which targets, also those that are yet to be made, find a table's rows."""
    keys = rule_keys(targets.routes_of(schema.full_name))
    for target in targets.following(schema.database, schema.table):
        names = dict(target.spec.sources[schema.full_name].names)
        theirs = {names.get(name, name): name for name in schema.column_names}
        keys |= {theirs[name] for name in target.spec.key if name in theirs}
    return keys


def followed(
    targets: Targets, route: Route, source: RecordedSource, *, partial: bool, exact: bool = False
) -> Targets:
    """With a new target at a route, or one that takes the rows of this table, too."""
    existing = targets.by_name.get(route.target)
    spec = spec_of(route, source)
    _check_types(targets, spec, route.source)
    if existing is not None and route.source not in existing.spec.sources:
        join_shard(route, spec, existing.spec)
        sources = {**existing.spec.sources, route.source: source}
        grown = existing.with_state(
            sources=tuple(sources), partial=existing.state.partial or partial, exact=False
        )
        return targets.having(grown.with_spec(sources=sources))
    state = targets.unmade.get(route.target)
    if state is None:
        state = new_state(targets, route, partial=partial).model_copy(update={"exact": exact})
    elif not partial:
        state = state.model_copy(update={"partial": False})
    if not _keeps_exact(spec, source):
        state = state.model_copy(update={"exact": False})
    policy = policy_of(route.rule, targets.config.sink)
    rescued = () if policy.rescued_column == "always" else None
    return targets.having(Target(state, spec, is_new=True, rescued=rescued))


def replaced(targets: Targets, target: Target, source: str, recorded: RecordedSource) -> Targets:
    """Another table has taken the source table's name. SchemaError: the target keeps its past."""
    check_may_replace(target, source)
    spec = spec_of(route_to(targets, source, target.name), recorded)
    _check_types(targets, spec, source)
    app_id = application_id(targets.config.name, target.name, uuid4().hex)
    return targets.having(
        Target(
            target.state.model_copy(update={"app_id": app_id, "partial": False, "exact": False}),
            spec.model_copy(update={"shape": target.spec.shape, "track": target.spec.track}),
            is_new=True,
            replaces=target.replaces if target.is_new else target.state.app_id,
            rescued=None if target.rescued is None else (),
        )
    )


def check_may_replace(target: Target, source: str) -> None:
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


def finds_rows_by_key(spec: TargetSpec, of: RecordedSource) -> bool:
    return bool(spec.key) and spec.key == of.key_in_target + shard_key(spec.shape)


def spec_of(route: Route, source: RecordedSource) -> TargetSpec:
    """By the rule of its route; raises as `identity_of` and `shape_table`."""
    identity = identity_of(
        route.rule,
        source=route.source,
        columns=tuple(column.name for column in source.columns),
        source_key=source.key,
    )
    shape = shape_table(route, source.columns, identity.key)
    return TargetSpec(
        mode=identity.mode,
        columns=shape.columns,
        key=shape.key if identity.key else (),
        key_reason=identity.why,
        track=tracked_by(route.rule, source, shape.columns, source=route.source),
        properties=route.rule.properties,
        sources={route.source: source},
        shape=recorded_shape(route.rule),
    )


def _rescuing(targets: Targets, target: Target, rows: DecodedRows) -> Targets:
    of_target = shaped(targets, rows, target)
    renamed = dict(target.spec.sources[rows.schema.full_name].names)
    names = {renamed.get(name, name) for name in rescued_names(of_target, target.spec.mode)}
    known = names.union(target.rescued or ())
    if not MODES[target.spec.mode].rows_are_changes:
        back = {new: name for name, new in renamed.items()}
        check_images(of_target, {back.get(name, name) for name in known})
    if names and len(known) > len(target.rescued or ()):
        return targets.having(replace(target, rescued=tuple(sorted(known))))
    return targets


def _check_types(targets: Targets, spec: TargetSpec, source: str) -> None:
    columns = [(column.name, column.delta_type) for column in spec.columns]
    allowed(targets.config.sink).check_types(columns, table=source)


def _keeps_exact(spec: TargetSpec, source: RecordedSource) -> bool:
    """K12: a mirror by the source's own key, with a shape that keeps every row."""
    is_plain = spec.shape is None or spec.shape.is_exact_possible(spec.key)
    return not MODES[spec.mode].keeps_past and spec.key == source.key and is_plain
