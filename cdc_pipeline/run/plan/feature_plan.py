"""Determine the Delta features of a plan's tables, which readers they exclude, and which engine
will apply their batches.

Rules:
- A table of the last cut is read itself: it keeps the features that it has, whatever the setting is
  now. A new table's features follow from its columns in the source's catalog, if the source has
  one.
- The rules under `targets` are checked against that catalog, and the places of new targets are
  checked.
- A feature that a table needs but may not use is a warning of the plan, and so is a table whose log
  cannot be read: the run will suspend that table by name.
- A mask of a column that no table has leaves the column that was meant readable. So before anything
  is read, the rules with masks are checked against the catalog, but only while a table of such a
  rule is in no cut. An archive has no catalog: its tables' columns are known from the first cut on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from cdc_pipeline.config.pipeline_config import PipelineConfig, SinkConfig
from cdc_pipeline.errors import FeatureNotAllowedError, LakeStateError, SchemaError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.run.plan.preview import planned_targets
from cdc_pipeline.run.report import CapturePlan, PlannedTarget
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta.engine import engine_of
from cdc_pipeline.sink.delta.features import allowed, excluded, features_of_table
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.route_checks import (
    Columns,
    check_columns,
    check_named_columns,
    check_places,
    columns_of_cut,
)
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.shape import recorded_shape, shape_table
from cdc_pipeline.text.table_names import table_name
from cdc_pipeline.text.wording import listed

_NAMED_MAX = 5


def with_features(
    plan: CapturePlan,
    *,
    config: PipelineConfig,
    cut: Cut | None,
    source: Source,
    ours: Collection[str] = (),
) -> CapturePlan:
    """ConfigError: rules do not fit the columns; LakeStateError: a place is taken."""
    permitted = allowed(config.sink)
    paths = LakePaths.of(config)
    features, engines, warnings = _of_cut(config, cut, paths)
    routes = Routes(config)
    if any(route.target not in features for name in plan.tables for route in routes.of_table(name)):
        check_places(config, plan.tables, paths=paths, ours=ours)
        known = _catalog_columns(source, plan.tables)
        check_columns(config, known)
        for source_name, (columns, key) in known.items():
            for route in routes.of_table(source_name):
                name = route.target
                if name in features:
                    continue
                types = [
                    (column.name, column.delta_type)
                    for column in shape_table(route, columns, key).columns
                ]
                try:
                    permitted.check_types(types, table=name)
                except FeatureNotAllowedError as error:
                    warnings.append(f"{name} will be suspended: {error.what}; {error.next_step}")
                else:
                    features[name] = features_of_table(
                        (delta_type for _, delta_type in types), permitted
                    )
        planned = planned_targets(config, plan.tables, cut, known)
        plan = plan.model_copy(update={"targets": planned})
        for target in planned:
            if target.target not in engines and target.key is not None:
                engines[target.target] = _engine_of_new(routes, target, known, config.sink)
    return plan.model_copy(
        update={
            "features": dict(sorted(features.items())),
            "engines": dict(sorted(engines.items())),
            "warnings": (*plan.warnings, *sorted(warnings)),
        }
    )


def _of_cut(
    config: PipelineConfig, cut: Cut | None, paths: LakePaths
) -> tuple[dict[str, tuple[str, ...]], dict[str, str], list[str]]:
    """Features and engines of its tables, and warnings."""
    features: dict[str, tuple[str, ...]] = {}
    engines: dict[str, str] = {}
    warnings = []
    for name, table in cut.tables.items() if cut is not None else ():
        try:
            log = read_table_log(paths.table(name))
            features[name] = () if log is None else log.reader_features
            engines[name] = str(engine_of(table.spec, log, config.sink))
            if log is None:
                warnings.append(
                    f"{name} will be suspended: its Delta table is gone from the lake; restore it, "
                    f"or take a new snapshot: {new_snapshot(config.name, name)}"
                )
        except LakeStateError as error:
            features[name] = ()
            warnings.append(f"{name} will be suspended: {error.what}; {error.next_step}")
    return features, engines, warnings


def _engine_of_new(
    routes: Routes, target: PlannedTarget, known: Columns, config: SinkConfig
) -> str:
    source = target.sources[0]
    route = next(r for r in routes.of_table(source) if r.target == target.target)
    columns, key = known.get(source, ((), ()))
    spec = TargetSpec(
        mode=target.mode,
        columns=shape_table(route, columns, key).columns if columns else (),
        key=target.key or (),
        shape=recorded_shape(route.rule),
        properties=route.rule.properties,
    )
    return str(engine_of(spec, None, config))


def feature_lines(features: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """For each feature: how many tables have or get it, and who cannot read those."""
    for feature in sorted({feature for of_table in features.values() for feature in of_table}):
        tables = [name for name, of_table in features.items() if feature in of_table]
        kept_out = excluded(feature)
        yield f"{feature}: {listed(tables, most=_NAMED_MAX)}" + (
            f"; cannot be read by {', '.join(kept_out)}" if kept_out else ""
        )


def check_masked_columns(
    config: PipelineConfig, *, source: Source, tables: Collection[str], cut: Cut | None
) -> None:
    """ConfigError: a rule of new tables masks a column that none of them has."""
    named = set(chain.from_iterable(rule.tables for rule in config.targets if rule.masks))
    recorded = {} if cut is None else columns_of_cut(cut, tables)
    new = named.intersection(tables) - recorded.keys()
    if new:
        check_named_columns(config, {**recorded, **_catalog_columns(source, new)})


def _catalog_columns(source: Source, tables: Collection[str]) -> Columns:
    """None if the source has no catalog; SourceError if it cannot be read."""
    placed = source.catalog(
        lambda database, table: table_name(database, table) in tables, since=source.end_position()
    )
    known = {}
    for schema, _ in () if placed is None else placed.catalog.tables.values():
        try:
            known[schema.full_name] = target_columns(schema), schema.key_names
        except SchemaError:
            continue  # stops for another reason, which the run reports
    return known
