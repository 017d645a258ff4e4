"""Preview the targets of a run: recorded ones, and those that the configuration will make."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import ConfigError, SchemaError
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.run.report import PlannedTarget
from cdc_pipeline.targets.keys import SOURCE_KEY, check_recorded, identity_by_rule, identity_of
from cdc_pipeline.targets.route_checks import Columns
from cdc_pipeline.targets.routes import Route, Routes

_LATER = {
    "changelog": "without a key: a changelog",
    "row_hash": "without a key: a mirror by all values",
    "stop": "without a key: it stops",
}


def planned_targets(
    config: PipelineConfig,
    captured: Sequence[str],
    cut: Cut | None,
    catalog: Columns = MappingProxyType({}),
) -> tuple[PlannedTarget, ...]:
    """By name; ConfigError: two rules with one target, or a rule against what is recorded."""
    routes = Routes(config)
    planned: dict[str, PlannedTarget] = {}
    for source in captured:
        for route in routes.of_table(source):
            table = cut.tables.get(route.target) if cut is not None else None
            if table is None:
                other = planned.get(route.target)
                sources = (*(other.sources if other is not None else ()), source)
                target = _new(route, sources, catalog)
            else:
                target = _recorded(route, table)
            planned[route.target] = target.model_copy(
                update={"schema_changes": route.policy.effect}
            )
    return tuple(planned[name] for name in sorted(planned))


def _new(route: Route, sources: tuple[str, ...], catalog: Columns) -> PlannedTarget:
    rule, source, shard = route.rule, sources[0], route.rule.shard_column
    identity = identity_by_rule(rule)
    key = None if identity is None else identity.key
    reason = f"{SOURCE_KEY}; {_LATER[rule.keyless]}"
    if identity is None and source in catalog:
        columns, source_key = catalog[source]
        names = tuple(column.name for column in columns)
        try:
            identity = identity_of(rule, source=source, columns=names, source_key=source_key)
            shard = shard if identity.key else None
            key = (*identity.key, shard) if shard else identity.key
        except SchemaError as error:
            reason, shard = error.what, None
        except ConfigError:
            pass  # the run reports it
    if identity is not None:
        reason = identity.why
    return PlannedTarget(
        target=route.target,
        sources=sources,
        mode=rule.mode if identity is None else identity.mode,
        key=key,
        reason=reason + (f"; with {shard}, which distinguishes its tables" if shard else ""),
        is_recorded=False,
    )


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
