"""Which Delta features the tables of a plan have or will get, and whom that keeps out.

Rules:
- A table of the last cut is asked itself: what it has it keeps, whatever the setting says now. A new one is told by its
  columns in the source's catalog, where the source has one.
- What a table needs and may not get is a warning of the plan: the run will suspend that table by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdc_pipeline.config import PipelineConfig
from cdc_pipeline.errors import FeatureNotAllowedError, SchemaError
from cdc_pipeline.pipeline.report import CapturePlan
from cdc_pipeline.pipeline.routes import Routes
from cdc_pipeline.pipeline.tables import TableFilter
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta_log import reader_features
from cdc_pipeline.sink.features import allowed, excluded, features_of_table
from cdc_pipeline.sink.lake import LakePaths
from cdc_pipeline.sink.manifest import Cut
from cdc_pipeline.source.protocol import Source

_NAMED_MAX = 5


def with_features(plan: CapturePlan, *, config: PipelineConfig, cut: Cut | None, source: Source) -> CapturePlan:
    """The plan with the features of its tables, and a warning for each table that needs one that is not permitted."""
    permitted = allowed(config.sink)
    paths = LakePaths(config.sink.lake_path.absolute(), config.name)
    found = {name: reader_features(paths.table(name)) for name in (cut.tables if cut is not None else ())}
    warnings = []
    routes = Routes(config)
    routed = {route.target for table in plan.tables for route in routes.of(*table.split(".", 1))}
    if routed - found.keys():
        placed = source.catalog(TableFilter(config.tables).captured, since=source.end_position())
        for schema, _ in placed.catalog.tables.values() if placed is not None else ():
            new = [r.target for r in routes.of(schema.database, schema.table) if r.target not in found]
            if not new:
                continue
            try:
                columns = target_columns(schema)
                permitted.check_types(((c.name, c.delta_type) for c in columns), table=schema.full_name)
            except FeatureNotAllowedError as error:
                warnings.append(f"{', '.join(new)} will be suspended: {error.what}; {error.next_step}")
            except SchemaError:
                continue  # stops for another reason, which the run tells
            else:
                found.update(dict.fromkeys(new, features_of_table((c.delta_type for c in columns), permitted)))
    return plan.model_copy(
        update={"features": dict(sorted(found.items())), "warnings": (*plan.warnings, *sorted(warnings))}
    )


def feature_lines(features: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """A line for each feature: how many tables have or get it, and who cannot read those."""
    for feature in sorted({feature for held in features.values() for feature in held}):
        tables = [name for name, held in features.items() if feature in held]
        named = ", ".join(tables[:_NAMED_MAX]) + (
            f" and {len(tables) - _NAMED_MAX} more" if tables[_NAMED_MAX:] else ""
        )
        kept_out = excluded(feature)
        yield f"{feature}: {named}" + (f"; cannot be read by {', '.join(kept_out)}" if kept_out else "")
