"""Preview the targets of a run: recorded ones, and those that the configuration will make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ConfigError, SchemaError
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.run.report import PlannedTarget
from cdc_pipeline.targets.keys import SOURCE_KEY, check_recorded, identity_by_rule, identity_of
from cdc_pipeline.targets.routes import Route, Routes
from cdc_pipeline.text.table_names import split_table_name

_LATER = {
    "changelog": "without a key: a changelog",
    "row_hash": "without a key: a mirror by all values",
    "stop": "without a key: it stops",
}


def planned_targets(
    config: PipelineConfig, captured: Sequence[str], cut: Cut | None
) -> tuple[PlannedTarget, ...]:
    """By name; ConfigError: two rules with one target, or a rule against what is recorded."""
    routes = Routes(config)
    planned: dict[str, PlannedTarget] = {}
    for source in captured:
        for route in routes.of_table(*split_table_name(source)):
            table = cut.tables.get(route.target) if cut is not None else None
            if table is None:
                other = planned.get(route.target)
                sources = (*(other.sources if other is not None else ()), source)
                planned[route.target] = _new(route, sources)
            else:
                planned[route.target] = _recorded(route, table)
    return tuple(planned[name] for name in sorted(planned))


def with_keys(
    config: PipelineConfig,
    targets: Sequence[PlannedTarget],
    known: Mapping[str, tuple[Sequence[str], tuple[str, ...]]],
) -> tuple[PlannedTarget, ...]:
    """With mode and key from the catalog, of tables that are in `known`."""
    routes = Routes(config)
    return tuple(_with_key(routes, target, known) for target in targets)


def _with_key(
    routes: Routes,
    target: PlannedTarget,
    known: Mapping[str, tuple[Sequence[str], tuple[str, ...]]],
) -> PlannedTarget:
    source = target.sources[0]
    if target.key is not None or source not in known:
        return target
    rule = next(
        route.rule
        for route in routes.of_table(*split_table_name(source))
        if route.target == target.target
    )
    columns, key = known[source]
    try:
        identity = identity_of(rule, source=source, columns=tuple(columns), source_key=key)
    except SchemaError as error:
        return target.model_copy(update={"reason": error.what})
    except ConfigError:
        return target  # which the run reports
    shard = (rule.shard_column,) if rule.shard_column and identity.key else ()
    return target.model_copy(
        update={
            "mode": identity.mode,
            "key": (*identity.key, *shard),
            "reason": identity.why + (_shard_reason(rule) if shard else ""),
        }
    )


def _new(route: Route, sources: tuple[str, ...]) -> PlannedTarget:
    rule = route.rule
    identity = identity_by_rule(rule)
    reason = f"{SOURCE_KEY}; {_LATER[rule.keyless]}" if identity is None else identity.why
    return PlannedTarget(
        target=route.target,
        sources=sources,
        mode=rule.mode,
        key=None if identity is None else identity.key,
        reason=reason + _shard_reason(rule),
        is_recorded=False,
    )


def _shard_reason(rule: TargetRule) -> str:
    column = rule.shard_column
    return f"; with {column}, which distinguishes its tables" if column else ""


def _recorded(route: Route, table: CutTable) -> PlannedTarget:
    sources = table.spec.sources_of(route.target)
    of_source = sources.get(route.source)
    if of_source is not None:
        check_recorded(
            route.rule,
            target=route.target,
            mode=table.spec.mode,
            key=tuple(
                name
                for name in table.spec.key
                if table.spec.shape is None or name != table.spec.shape.shard_column
            ),
            source=route.source,
            source_key=of_source.key,
        )
    reason = table.spec.key_reason or (SOURCE_KEY if table.spec.key else "no key")
    return PlannedTarget(
        target=route.target,
        sources=tuple(sources),
        mode=table.spec.mode,
        key=table.spec.key,
        reason=reason,
    )
