"""The schema history of a run: the one stored with the lake, up to the run's start.

`schemas` has the rules."""

from __future__ import annotations

from collections.abc import Callable

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.schema_history import SchemaHistoryFile
from cdc_pipeline.pipeline.decode.schemas import Schemas
from cdc_pipeline.pipeline.plan.resolved_run import ResolvedRun
from cdc_pipeline.pipeline.targets.table_filter import TableFilter
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.schema.evolution.changes import KnownTable
from cdc_pipeline.schema.history.history import LogPosition, SchemaHistory
from cdc_pipeline.source.protocol import Source


def history_file(config: PipelineConfig) -> SchemaHistoryFile:
    return SchemaHistoryFile(
        LakePaths(config.sink.lake_path.absolute(), config.name).schema_history
    )


def schemas_of(
    config: PipelineConfig,
    *,
    source: Source,
    run: ResolvedRun,
    cursor: CursorState | None,
    recorded: Callable[[str, str], KnownTable | None] = lambda _database, _table: None,
    follows: Callable[[str, str], bool] = lambda _database, _table: False,
    left: LogPosition | None = None,
) -> Schemas:
    """The schema history for a run from `run.start` on; damaged on disk: LakeStateError.

    Args:
        cursor: up to which the history is complete.
        recorded: returns the target of a table.
        follows: returns whether a target follows a table that is not captured by its name.
        left: where another server's log was left that the run goes on from.
    """
    file, start = history_file(config), run.start
    # Without a cursor it is unknown what lies between a leftover history and the start.
    history = SchemaHistory()
    if cursor is not None:
        history = file.read().up_to(LogPosition(cursor.epoch, *cursor.position.order))
    tables = TableFilter(config)

    def captured(database: str, table: str) -> bool:
        # Shadow tables as well: one that is swapped in brings its columns along.
        return (
            tables.captured(database, table)
            or bool(tables.shadowed(database, table))
            or follows(database, table)
        )

    return Schemas(
        history,
        file=file,
        captured=captured,
        epoch=run.epoch,
        start=start,
        ask=lambda: source.catalog(captured, since=run.read_from),
        ask_programs=lambda: source.programs(since=run.read_from),
        recorded=recorded,
        left=left,
        names=source.identity.names,
        # Twice the interval, as for the history of the last transactions
        # (pipeline/plan/server_switch.py).
        kept_us=2 * round(getattr(config.source, "fallback_interval_s", 0.0) * 1_000_000),
    )
