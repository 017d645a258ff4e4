"""Columns of tables that no cut has yet: those of the source's catalog.

Rules:
- A mask of a column that no table has leaves the column that was meant readable. So before anything
  is read, the rules with masks are checked against the catalog, as `check_routes` checks them
  against the cut's tables.
- The catalog is read for this only while a table of such a rule is in no cut. An archive has none:
  its tables' columns are known from the first cut on.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.targets.route_checks import Columns, check_named_columns, columns_of_cut
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.text.table_names import table_name


def check_masked_columns(
    config: PipelineConfig, *, source: Source, tables: Collection[str], cut: Cut | None
) -> None:
    """Check that new ones among the known `tables` have the columns that are to be masked.

    Raises:
        ConfigError: a rule masks a column that none of its tables has.
        SourceError: the catalog cannot be read.
    """
    named = set(chain.from_iterable(rule.tables for rule in config.targets if rule.masks))
    recorded = {} if cut is None else columns_of_cut(cut, tables)
    new = named.intersection(tables) - recorded.keys()
    if new:
        check_named_columns(config, {**recorded, **catalog_columns(source, new)})


def catalog_columns(source: Source, tables: Collection[str]) -> Columns:
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
