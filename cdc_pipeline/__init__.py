"""cdc_pipeline: MySQL and MariaDB tables kept as Delta Lake tables by bounded, scheduled capture
runs.

Importing the package is cheap: neither Dagster, Spark nor numba is loaded before a function that
needs it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cdc_pipeline.sink.read.cuts import AsOf, CutSummary
    from cdc_pipeline.sink.read.read import DataFrame, SparkSession

__version__ = "0.1.0"

__all__ = ["cuts", "read"]


def read(
    spark: SparkSession,
    lake: str | Path,
    table: str,
    *,
    as_of: AsOf = None,
    source: str | None = None,
    allow_suspended: bool = False,
) -> DataFrame:
    """A table of a lake as of one cut: all tables that are read as of the same cut are at one
    source transaction.

    Args:
        spark: a session with Delta.
        lake: the lake's folder or address; `sink.lake_path` of a pipeline's configuration brings
            the settings of an object store with it, text leaves them to the environment.
        table: its name in the lake, ``schema.table``.
        as_of: the newest cut by default. A cut or its number; a GTID set (text or set): the first
            cut that contains it; a time with its zone (datetime, or text such as
            ``2026-01-31T08:00:00+00:00``): the last cut before anything that was committed after
            it.
        source: the pipeline that the table belongs to; by default the table's own properties tell.
        allow_suspended: read a table that is suspended in the cut where it stands, instead of
            refusing it.

    Raises:
        CutNotFoundError: no such cut; says which range there is.
        TableNotInCutError: the cut has no such table, it is suspended there, or its version was
            removed.
        LakeStateError: a cut or the table's log is damaged.
    """
    from cdc_pipeline.sink.read.read import read as read_table

    return read_table(
        spark, lake, table, as_of=as_of, source=source, allow_suspended=allow_suspended
    )


def cuts(lake: str | Path, source: str, *, limit: int | None = None) -> list[CutSummary]:
    """The cuts of a source that a lake keeps, oldest first. Needs no Spark.

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
