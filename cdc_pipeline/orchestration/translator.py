"""How a source, its tables and its cursor appear in Dagster. Override a method of `CdcTranslator`
to change it.

Rules:
- Keys depend only on the names of source, schema and table: a table has the same key in definitions
  and events. Names that Dagster cannot carry are escaped by `dagster_name`, one-to-one.
- The kinds of keys never collide: ``[source, "source", schema, table]``, ``[source, schema,
  table]``, ``[source, "cursor"]`` and ``[source, "snapshot"]``.
- Changing a cursor's key loses nothing: the next run finds no cursor and rebuilds it from the
  lake's last cut (K3).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.metadata import (
    Metadata,
    column_schema,
    cursor_event_metadata,
    table_event_metadata,
)
from cdc_pipeline.orchestration.names import dagster_name, markdown
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.text.table_names import split_table_name

# Tags by which the command line finds a source's assets among all definitions of a project.
SOURCE_TAG = "cdc/source"
ROLE_TAG = "cdc/role"


class CdcTranslator:
    """Keys, groups and metadata of a pipeline's assets. `table` is always ``schema.table`` (see
    `table_names`)."""

    def source_table_key(self, source: str, table: str) -> dg.AssetKey:
        """Return the key of a table in the database."""
        return dg.AssetKey([source, "source", *map(dagster_name, split_table_name(table))])

    def table_key(self, source: str, table: str) -> dg.AssetKey:
        """Return the key of a Delta table."""
        return dg.AssetKey([source, *map(dagster_name, split_table_name(table))])

    def cursor_key(self, source: str) -> dg.AssetKey:
        """Return the key of the source's cursor."""
        return dg.AssetKey([source, "cursor"])

    def snapshot_key(self, source: str) -> dg.AssetKey:
        """Return the key of the asset whose partitions are loads of the source's tables."""
        return dg.AssetKey([source, "snapshot"])

    def group_name(self, source: str) -> str:
        """Return the asset group of a source's Delta tables and its cursor."""
        return source

    def source_group_name(self, source: str) -> str:
        """Return the asset group of the tables in the database."""
        return f"{source}_source"

    def job_name(self, source: str) -> str:
        """Return the name of the job that captures a source."""
        return f"{source}_capture"

    def snapshot_job_name(self, source: str) -> str:
        """Return the name of the job that loads tables of a source."""
        return f"{source}_snapshot"

    def owners(self, source: str) -> Sequence[str]:  # noqa: ARG002
        """Return the owners of a source's assets: email addresses, or ``team:name``."""
        return ()

    def table_path(self, config: PipelineConfig, table: str) -> Path:
        """Return the location of the Delta table."""
        return LakePaths(config.sink.lake_path, config.name).table(table)

    def source_kind(self, config: PipelineConfig, cut: Cut | None) -> str:
        """Return ``mysql`` or ``mariadb``: from the last cut, else the configuration, else
        ``mysql``."""
        if cut is not None:
            return cut.cursor.flavor
        if isinstance(config.source, LiveSourceConfig) and config.source.flavor != "auto":
            return config.source.flavor
        return "mysql"

    def source_table_spec(
        self, config: PipelineConfig, table: str, cut: Cut | None
    ) -> dg.AssetSpec:
        """Return the spec of the upstream table, external to Dagster."""
        return dg.AssetSpec(
            self.source_table_key(config.name, table),
            description=f"{markdown(table)} in {_origin(config)}.",
            group_name=self.source_group_name(config.name),
            kinds={self.source_kind(config, cut)},
            # No "dagster/table_name": with the Delta table's own it would make both one storage.
            metadata={"table": table, **_origin_metadata(config)},
            tags=_tags(config.name, "source_table"),
        )

    def table_spec(
        self, config: PipelineConfig, table: str, cut: Cut | None, *, sources: Sequence[str] = ()
    ) -> dg.AssetSpec:
        """Return the spec of the Delta table, with its columns once a cut has recorded them.
        `sources` are its source tables; by default the one of the same name."""
        path = self.table_path(config, table)
        of_table = cut.tables.get(table) if cut is not None else None
        mode = of_table.spec.mode if of_table is not None else config.sink.mode
        metadata: dict[str, Any] = {
            "dagster/table_name": table,
            "dagster/uri": dg.MetadataValue.url(path.as_uri()),
            "mode": mode,
            **_origin_metadata(config),
        }
        if of_table is not None and of_table.spec.columns:
            metadata["dagster/column_schema"] = column_schema(
                of_table.spec.columns, key=of_table.spec.key, mode=mode
            )
        return dg.AssetSpec(
            self.table_key(config.name, table),
            deps=[self.source_table_key(config.name, source) for source in sources or (table,)],
            description=f"{markdown(', '.join(sources or (table,)))} from {_origin(config)}, "
            f"kept as a {mode}.",
            group_name=self.group_name(config.name),
            kinds={"deltalake", "spark"},
            metadata=metadata,
            owners=self.owners(config.name),
            skippable=True,
            tags=_tags(config.name, "table"),
        )

    def cursor_spec(self, config: PipelineConfig, tables: Sequence[str]) -> dg.AssetSpec:
        """Return the spec of the cursor; the next run resumes from its newest event."""
        return dg.AssetSpec(
            self.cursor_key(config.name),
            deps=[self.table_key(config.name, table) for table in tables],
            description=(
                f"How far {config.name} has been applied. Each event is written after its "
                "batch's cut and holds everything that the next run needs; if it is lost, the "
                "next run rebuilds it from the last cut in the lake."
            ),
            group_name=self.group_name(config.name),
            kinds={"cdc"},
            metadata={"lake": dg.MetadataValue.path(str(config.sink.lake_path))},
            owners=self.owners(config.name),
            skippable=True,
            tags=_tags(config.name, "cursor"),
        )

    def table_event_metadata(
        self, config: PipelineConfig, cut: Cut, table: str, row_count: int | None
    ) -> Metadata:
        """Return the metadata of one table's event after the batch of `cut`."""
        return table_event_metadata(
            cut, table, path=self.table_path(config, table), row_count=row_count
        )

    def cursor_event_metadata(
        self, cursor: CursorState, cut: Cut | None, given: dict[str, object]
    ) -> Metadata:
        """Return the metadata of the cursor's event, to which the recorder adds the entry `cursor`:
        the next run reads it."""
        return cursor_event_metadata(cursor, cut=cut, given=given)


def _origin(config: PipelineConfig) -> str:
    return "a live server" if isinstance(config.source, LiveSourceConfig) else "archived journals"


def _origin_metadata(config: PipelineConfig) -> dict[str, dg.MetadataValue]:
    """Return the address of a live server, or the directory of archived journals."""
    source = config.source
    if isinstance(source, LiveSourceConfig):
        return {"server": dg.MetadataValue.text(f"{source.host}:{source.port}")}
    return {"journals": dg.MetadataValue.path(str(source.directory))}


def _tags(source: str, role: str) -> dict[str, str]:
    return {SOURCE_TAG: source, ROLE_TAG: role}
