"""cdc_pipeline: MySQL and MariaDB tables kept as Delta Lake tables by bounded, scheduled capture
runs.

Importing the package is cheap: neither Dagster, Spark nor numba is loaded before a function that
needs it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, overload

from cdc_pipeline.version import __version__ as __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, load_config
    from cdc_pipeline.orchestration.changes import cdc_changes
    from cdc_pipeline.orchestration.component import CdcComponent
    from cdc_pipeline.orchestration.definitions import build_definitions, cdc_assets
    from cdc_pipeline.orchestration.resource import CdcResource
    from cdc_pipeline.orchestration.translator import CdcTranslator
    from cdc_pipeline.position.cursor import CursorStore
    from cdc_pipeline.run.bounds import bound_of
    from cdc_pipeline.run.observer import RunObserver
    from cdc_pipeline.run.report import CaptureReport
    from cdc_pipeline.sink.read.changes import Changes
    from cdc_pipeline.sink.read.cuts import AsOf, CutSummary
    from cdc_pipeline.sink.read.lake import Lake
    from cdc_pipeline.sink.read.read import DataFrame, SparkSession
    from cdc_pipeline.sink.read.rows import Filters

__all__ = [
    "CdcComponent",
    "CdcResource",
    "CdcTranslator",
    "bound_of",
    "build_definitions",
    "capture",
    "cdc_assets",
    "cdc_changes",
    "changes",
    "cuts",
    "load_config",
    "open_lake",
    "read",
]

# Public name -> the module that has it, below cdc_pipeline. Loaded when first used. Those of
# `orchestration` need the extra [dagster]. `dg` finds CdcComponent through `__dir__`.
_LAZY = {
    "CdcComponent": "orchestration.component",
    "CdcResource": "orchestration.resource",
    "CdcTranslator": "orchestration.translator",
    "bound_of": "run.bounds",
    "build_definitions": "orchestration.definitions",
    "cdc_assets": "orchestration.definitions",
    "cdc_changes": "orchestration.changes",
    "load_config": "config.pipeline_config",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "dagster":
            raise
        raise ImportError(
            f"cdc_pipeline.{name} needs Dagster; pip install 'cdc-pipeline[dagster]'",
            name="dagster",
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def capture(
    config: PipelineConfig | str | Path,
    *,
    cursors: CursorStore | None = None,
    bound: Bound | None = None,
    tables: Sequence[str] | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> CaptureReport:
    """Capture a source once, from its cursor to the bound, and bring the lake's tables up to it.

    Needs no Dagster: call it from any scheduler, once at a time for a source. To repeat a failed
    call is safe: it continues from the last cut.

    Args:
        config: a pipeline, or its YAML file.
        cursors: where the cursor is kept; in the lake by default.
        bound: where to stop, ``"end_of_log"`` or of `bound_of`; the configuration's by default.
        tables: only catch these up, if suspended; the cursor does not move.
        observer: receives the progress.
        run_id: of the scheduler's run, kept in the lake's records.

    Raises:
        ConfigError: mistakes in the file.
        LockError: another capture of this source is running.
        TargetSuspendedError: some tables are suspended; all else is done.
        CdcError: all else; it says what to do. What came before is in the lake.
    """
    from cdc_pipeline.config.pipeline_config import PipelineConfig, load_config
    from cdc_pipeline.operations.verify.proved_run import capture_and_prove as run
    from cdc_pipeline.run.wiring import build_lake_cursors

    if not isinstance(config, PipelineConfig):
        config = load_config(config)
    return run(
        config,
        cursors=build_lake_cursors(config) if cursors is None else cursors,
        bound=bound,
        tables=tables,
        observer=observer,
        run_id=run_id,
    )


@overload
def read(
    lake: str | Path | Lake,
    table: str,
    *,
    as_of: AsOf = ...,
    columns: Collection[str] | None = ...,
    filters: Filters | None = ...,
    source: str | None = ...,
    allow_suspended: bool = ...,
    spark: None = ...,
) -> pa.RecordBatchReader: ...


@overload
def read(
    lake: str | Path | Lake,
    table: str,
    *,
    as_of: AsOf = ...,
    source: str | None = ...,
    allow_suspended: bool = ...,
    spark: SparkSession,
) -> DataFrame: ...


def read(
    lake: str | Path | Lake,
    table: str,
    *,
    as_of: AsOf = None,
    columns: Collection[str] | None = None,
    filters: Filters | None = None,
    source: str | None = None,
    allow_suspended: bool = False,
    spark: SparkSession | None = None,
) -> pa.RecordBatchReader | DataFrame:
    """Return a table as of a cut: all tables of one cut are at one source transaction. Arrow's
    reader opens each file when its rows are wanted, without a JVM.

    Args:
        lake: its folder or address, or `open_lake`'s.
        table: its name in the lake, ``schema.table``.
        as_of: a cut or its number, a GTID set, or a time with its zone; the newest cut by default.
        columns: all by default.
        filters: as of `pyarrow.parquet`: ``[("id", ">=", 10)]``; files that they exclude stay
            closed.
        source: the pipeline; by default the table's own.
        allow_suspended: read a suspended table where it stands.
        spark: a session with Delta, for a frame of Spark's.

    Raises:
        CutNotFoundError: no such cut; with the range that there is.
        TableNotInCutError: the cut lacks the table, or it is suspended, or its version was removed.
        SparkNeededError: only Spark reads the table.
        ConfigError: columns or filters do not fit the table.
        LakeStateError: a cut, the table's log or a file is damaged.
    """
    from cdc_pipeline.sink.read.lake import open_lake as opened

    return opened(lake).read(
        table,
        as_of=as_of,
        columns=columns,
        filters=filters,
        source=source,
        allow_suspended=allow_suspended,
        spark=spark,
    )


def changes(
    lake: str | Path | Lake,
    tables: str | Sequence[str] | None,
    from_cut: AsOf,
    to_cut: AsOf = None,
    *,
    net: bool = True,
    source: str | None = None,
    allow_suspended: bool = False,
) -> Changes:
    """Return the row changes of tables between two cuts: `read(table)` gives those of one, from the
    files that differ, without a JVM. The next ones begin after its `bookmark`.

    Args:
        lake: as of `read`.
        tables: names in the lake; None for all of the source.
        from_cut: they begin after it: the last ones' `bookmark`, or as ``as_of`` of `read`; None:
            every row is an insert.
        to_cut: they end with it; the newest by default.
        net: False for every change, of changelogs alone.
        source, allow_suspended: as of `read`.

    Raises:
        CutsNotComparableError: mode, key or a type has changed.
        ConfigError: `net` does not fit the mode.
        SinkError: as of `read`; if a version was removed, with the oldest cut to go on from.
    """
    from cdc_pipeline.sink.read.lake import open_lake as opened

    return opened(lake).changes(
        tables,
        from_cut,
        to_cut,
        net=net,
        source=source,
        allow_suspended=allow_suspended,
    )


def open_lake(path: str | Path, storage_options: Mapping[str, str] | None = None) -> Lake:
    """Return a lake to read: its place and the keys of its store.

    Args:
        path: its folder or address.
        storage_options: as of deltalake and Polars; the rest comes from the environment.

    Raises:
        CutNotFoundError: the text cannot be a lake.
        ConfigError: an option is unknown.
    """
    from cdc_pipeline.sink.read.lake import open_lake as opened

    return opened(path, storage_options)


def cuts(lake: str | Path, source: str, *, limit: int | None = None) -> list[CutSummary]:
    """Return the cuts of a source that a lake keeps, oldest first, each with its tables' Delta
    versions. Needs no Spark.

    Args:
        lake: its folder or address.
        source: the pipeline's name.
        limit: only so many of the newest are read and returned.

    Raises:
        CutNotFoundError: the lake has none of the source.
        LakeStateError: a cut is damaged.
    """
    from cdc_pipeline.sink.read.cuts import list_cuts

    return list_cuts(lake, source, limit=limit)
