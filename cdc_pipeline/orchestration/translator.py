"""How a source, its tables and its cursor appear in Dagster. Override a method of `CdcTranslator`
to change it.

Rules:
- Keys depend only on the names of source, schema and table: a table has the same key in definitions
  and events. Names that Dagster cannot carry are escaped by `dagster_name`, one-to-one.
- The kinds of keys never collide: ``[source, "source", schema, table]``, ``[source, schema,
  table]``, ``[source, "cursor"]``, ``[source, "snapshot"]`` and ``[source, "backfill"]``.
- Changing a cursor's key loses nothing: the next run finds no cursor and rebuilds it from the
  lake's last cut (K3).
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import dagster as dg

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.columns import (
    SourceColumns,
    column_origins,
    column_schema,
    described_columns,
)
from cdc_pipeline.orchestration.metadata import (
    Metadata,
    cursor_event_metadata,
    table_event_metadata,
)
from cdc_pipeline.orchestration.names import dagster_name, markdown
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.text.table_names import split_table_name
from cdc_pipeline.version import __version__

# Tags of assets, and of runs: whose they are, and what an asset is or a run does.
SOURCE_TAG: Final = "cdc/source"
ROLE_TAG: Final = "cdc/role"
KIND_TAG: Final = "cdc/kind"
RunKind = Literal[
    "capture",
    "snapshot",
    "backfill",
    "verify",
    "repair",
    "maintenance",
    "plan",
    "reset",
    "cursor_set",
    "cursor_rebuild",
    "quarantine_replay",
    "quarantine_discard",
    "erase",
    "remask",
]


def run_tags(source: str, kind: RunKind) -> dict[str, str]:
    """Of every run; `dead_runs.tag_run` gives them to those that Dagster's pages start."""
    return {SOURCE_TAG: source, KIND_TAG: kind}


def job_of(
    step: dg.OpDefinition, *, name: str, source: str, kind: RunKind, description: str | None = None
) -> dg.JobDefinition:
    """Of one step, in the process of its run; `description`: by default the step's."""
    described = step.description if description is None else description
    return dg.GraphDefinition(name=name, node_defs=[step], description=described).to_job(
        executor_def=dg.in_process_executor, tags=run_tags(source, kind)
    )


def pool_name(source: str) -> str:
    """Its limit of 1 is in dagster.yaml."""
    return f"cdc_{source}"


class CdcTranslator:
    """Keys, groups and metadata of a pipeline's assets, one method for each idea.

    `table` is a name in the lake, ``schema.table``; None for the cursor. Without a method of yours
    the section `dagster` of the YAML decides, then the defaults here.
    """

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
        """Return the key of the asset whose partitions are tables' snapshots."""
        return dg.AssetKey([source, "snapshot"])

    def backfill_key(self, source: str) -> dg.AssetKey:
        """Return the key of the asset whose partitions are days of changelogs."""
        return dg.AssetKey([source, "backfill"])

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
        """Return the name of the job that takes snapshots."""
        return f"{source}_snapshot"

    def description(
        self,
        config: PipelineConfig,
        table: str | None,
        *,
        sources: Sequence[str] = (),
        mode: str | None = None,
    ) -> str:
        """Return the description of an asset, in Markdown; `sources` and `mode` are a Delta
        table's."""
        if description := config.dagster.of_table(table).description:
            return description
        if table is None:
            return (
                f"How far {config.name} has been applied from {origin_text(config)}. Each event is "
                "written after its batch's cut and holds everything that the next run needs; if it "
                "is lost, the next run rebuilds it from the last cut in the lake."
            )
        origin = markdown(", ".join(sources or (table,)))
        return f"{origin} from {origin_text(config)}, kept as a {mode or config.sink.mode}."

    def owners(self, config: PipelineConfig, table: str | None) -> Sequence[str]:
        """Return the owners of an asset: email addresses, or ``team:name``."""
        return config.dagster.of_table(table).owners or ()

    def tags(self, config: PipelineConfig, table: str | None) -> Mapping[str, str]:
        """Return the tags of an asset. Those named ``cdc/...`` are added by the pipeline."""
        return config.dagster.of_table(table).tags

    def kinds(self, config: PipelineConfig, table: str | None) -> AbstractSet[str]:  # noqa: ARG002
        """Return the kinds that Dagster shows as an asset's icons, at most three."""
        return {"cdc"} if table is None else {"deltalake", "spark"}

    def freshness_policy(
        self, config: PipelineConfig, table: str | None
    ) -> dg.FreshnessPolicy | None:
        """Return when an asset counts as late. One with a policy has a materialization of each run
        that it follows, changed or not."""
        freshness = config.dagster.of_table(table).freshness
        if freshness is None:
            return None
        if freshness.fail_window is not None:
            return dg.FreshnessPolicy.time_window(freshness.fail_window, freshness.warn_window)
        assert freshness.deadline_cron is not None
        assert freshness.lower_bound_delta is not None
        return dg.FreshnessPolicy.cron(
            freshness.deadline_cron, freshness.lower_bound_delta, freshness.timezone
        )

    def automation_condition(
        self, config: PipelineConfig, table: str | None
    ) -> dg.AutomationCondition[Any] | None:
        """Return when Dagster materializes an asset by itself."""
        automation = config.dagster.of_table(table).automation
        if automation is None:
            return None
        if automation == "eager":
            # Captures themselves observe the tables of the database, and snapshots bring their
            # tables up to date: nothing waits for either, or starts because of it.
            return dg.AutomationCondition.eager().ignore(
                dg.AssetSelection.tag(ROLE_TAG, "source_table")
                | dg.AssetSelection.tag(ROLE_TAG, "snapshot")
            )
        # Dagster's own on_cron waits for events of what an asset depends on: a capture is the whole
        # source, and nothing else writes them. Ticks during a run ask for one run after it.
        tick: dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]
        tick = dg.AutomationCondition.cron_tick_passed(automation.on_cron, automation.timezone)
        label = f"on_cron({automation.on_cron}, {automation.timezone})"
        is_due = tick.since_last_handled() & ~dg.AutomationCondition.in_progress()
        return is_due.with_label(label)

    def metadata(self, config: PipelineConfig, table: str | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return further metadata of an asset's definition."""
        return {}

    def code_version(self, config: PipelineConfig, table: str | None) -> str | None:  # noqa: ARG002
        """Return the version that an asset's page shows: of this package, and of the file's
        rules."""
        rules = config.model_dump_json(include={"tables", "targets", "schema_changes"})
        mode = f"{config.sink.mode} {sorted(config.sink.properties.items())}"
        return f"{__version__}-{hashlib.sha256(f'{rules} {mode}'.encode()).hexdigest()[:8]}"

    def table_path(self, config: PipelineConfig, table: str) -> Path:
        """Return the location of the Delta table."""
        return LakePaths.of(config).table(table)

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
            description=f"{markdown(table)} in {origin_text(config)}.",
            group_name=self.source_group_name(config.name),
            owners=self.owners(config, table),
            kinds={self.source_kind(config, cut)},
            # No "dagster/table_name": with the Delta table's own it would make both one storage.
            metadata={"table": table, **_origin_metadata(config), **code_references(config)},
            tags=_tags(config.name, "source_table"),
        )

    def table_spec(
        self, config: PipelineConfig, table: str, cut: Cut | None, *, sources: Sequence[str] = ()
    ) -> dg.AssetSpec:
        """Return the spec of the Delta table, with the columns of the last cut. `sources`: by
        default the table of the same name."""
        path = self.table_path(config, table)
        of_table = cut.tables.get(table) if cut is not None else None
        mode = of_table.spec.mode if of_table is not None else config.sink.mode
        metadata: dict[str, Any] = {
            "dagster/table_name": table,
            "dagster/uri": dg.MetadataValue.url(path.as_uri()),
            "mode": mode,
            **_origin_metadata(config),
            **code_references(config),
        }
        if of_table is not None and of_table.spec.columns:
            metadata["dagster/column_schema"] = column_schema(
                of_table.spec.columns, key=of_table.spec.key, mode=mode
            )
        return dg.AssetSpec(
            self.table_key(config.name, table),
            deps=[self.source_table_key(config.name, source) for source in sources or (table,)],
            metadata={**self.metadata(config, table), **metadata},
            **self._described(config, table, sources, mode),
        )

    def cursor_spec(self, config: PipelineConfig, tables: Sequence[str]) -> dg.AssetSpec:
        """Return the spec of the cursor; the next run resumes from its newest event."""
        return dg.AssetSpec(
            self.cursor_key(config.name),
            deps=[self.table_key(config.name, table) for table in tables],
            metadata={
                **self.metadata(config, None),
                "lake": dg.MetadataValue.path(str(config.sink.lake_path)),
                **_left_out_metadata(config),
                **code_references(config),
            },
            **self._described(config, None),
        )

    def _described(
        self,
        config: PipelineConfig,
        table: str | None,
        sources: Sequence[str] = (),
        mode: str | None = None,
    ) -> dict[str, Any]:
        return {
            "automation_condition": self.automation_condition(config, table),
            "code_version": self.code_version(config, table),
            "description": self.description(config, table, sources=sources, mode=mode),
            "freshness_policy": self.freshness_policy(config, table),
            "group_name": self.group_name(config.name),
            "kinds": set(self.kinds(config, table)),
            "owners": self.owners(config, table),
            "skippable": True,
            "tags": {
                **self.tags(config, table),
                **_tags(config.name, "cursor" if table is None else "table"),
            },
        }

    def table_event_metadata(
        self, config: PipelineConfig, cut: Cut, table: str, row_count: int | None
    ) -> Metadata:
        """Return the metadata of one table's event after the batch of `cut`."""
        return table_event_metadata(
            cut, table, path=self.table_path(config, table), row_count=row_count
        )

    def column_metadata(
        self, config: PipelineConfig, cut: Cut, table: str, at_source: SourceColumns
    ) -> Metadata:
        """Return the columns of a table after the batch of `cut`, with the source's columns that
        each comes from. `at_source`: what the server says of these."""
        of_table = cut.tables[table]
        spec = of_table.spec
        if not spec.columns:
            return {}
        schema = column_schema(
            spec.columns,
            key=spec.key,
            mode=spec.mode,
            rescues=of_table.rescues,
            described=described_columns(table, spec, at_source),
        )
        lineage = dg.TableColumnLineage(
            deps_by_column={
                name: [
                    dg.TableColumnDep(self.source_table_key(config.name, source), column)
                    for source, column in origins
                ]
                for name, origins in column_origins(table, spec).items()
            }
        )
        return {
            "dagster/column_schema": dg.MetadataValue.table_schema(schema),
            "dagster/column_lineage": dg.MetadataValue.column_lineage(lineage),
        }

    def cursor_event_metadata(
        self, cursor: CursorState, cut: Cut | None, given: dict[str, object]
    ) -> Metadata:
        """Return the metadata of the cursor's event, besides the entry `cursor` that the next run
        reads."""
        return cursor_event_metadata(cursor, cut=cut, given=given)


def origin_text(config: PipelineConfig) -> str:
    source = config.source
    if isinstance(source, LiveSourceConfig):
        return markdown(source.address)
    return "archived journals"


def _origin_metadata(config: PipelineConfig) -> dict[str, dg.MetadataValue]:
    source = config.source
    if isinstance(source, LiveSourceConfig):
        return {"server": dg.MetadataValue.text(source.address)}
    return {"journals": dg.MetadataValue.path(str(source.directory))}


def code_references(config: PipelineConfig) -> dict[str, Any]:
    """The pipeline's file."""
    if config.file is None:
        return {}
    return {"dagster/code_references": _file_reference(config.file.absolute())}


@cache
def _file_reference(file: Path) -> dg.CodeReferencesMetadataValue:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=str(file), label=file.name)
        return dg.CodeReferencesMetadataValue(code_references=[reference])


def _left_out_metadata(config: PipelineConfig) -> dict[str, dg.MetadataValue]:
    """Sections without which Dagster does nothing by itself, if a variable is unset."""
    mistakes = "\n".join(map(str, config.left_out))
    return {"left_out": dg.MetadataValue.text(mistakes)} if mistakes else {}


def _tags(source: str, role: str) -> dict[str, str]:
    return {SOURCE_TAG: source, ROLE_TAG: role}
