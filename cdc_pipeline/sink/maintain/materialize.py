"""Copy all tables at one cut, to keep it longer than the tables' own retention (K15).

Rules:
- The copy is a complete lake: plain tables at ``<to>/<schema>/<table>`` and the cut's manifest, so
  that `cdc_pipeline.read` reads it like any other.
- A table is copied in one commit, and the manifest is written last: a copy without one is
  incomplete, and is resumed.
- The manifest names only what is durable (K21).
- Suspended tables are left out, and named in the manifest as they are in the cut.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.config.storage_config import LakeUri, parse_uri
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths, application_id
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage_settings import spark_storage
from cdc_pipeline.lake.table_facts import put_cut
from cdc_pipeline.sink.delta.table_log import (
    APP_ID_PROPERTY,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    read_table_log,
)
from cdc_pipeline.sink.durable.durability import Commits, make_durable
from cdc_pipeline.sink.read.cuts import check_readable, paths_of
from cdc_pipeline.sink.read.read import old_frame
from cdc_pipeline.sink.spark.session import SparkProvider, new_session
from cdc_pipeline.sink.spark.sql import properties_sql, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CUT_PROPERTY: Final = "cdc.materialized_cut"


def provider_for(config: SinkConfig, to: str | Path) -> SparkProvider:
    """It can reach an object store if either lies in one. CutNotFoundError: `to` can be no lake."""
    lake, copy = paths_of(config.lake_path, "_").lake, paths_of(to, "_").lake
    if is_object(copy) and not is_object(lake):
        return SparkProvider(config.spark, spark_storage(copy))
    return SparkProvider.from_config(config)


def materialize(
    spark: SparkSession,
    paths: LakePaths,
    cut: Cut,
    to: str | Path,
    *,
    on_table: Callable[[str], None] = lambda _table: None,
) -> LakePaths:
    """Copy a cut, or resume a copy of it. A text address of the lake's kind is reached with the
    lake's settings. Raises TableNotInCutError: a version of the cut is gone; LakeStateError:
    something else lies in the way; MergeError: the disk cannot store the files.
    """
    copy = paths_of(_with_settings(paths.lake, to), paths.source)
    names = [name for name in cut.tables if name not in cut.cursor.suspended]
    for name in names:
        check_readable(paths, cut, name)
    versions = {}
    for name in names:
        on_table(name)
        versions[name] = _copied(spark, paths, copy, cut, name)
    new = {name: Commits(copy.table(name), -1, version) for name, version in versions.items()}
    for error in make_durable(new, lake=copy.lake).values():
        raise error
    copied_cut = cut.model_copy(
        update={
            "tables": {
                name: cut.tables[name].model_copy(
                    update={"table_version": version, "transaction_version": -1, "facts": ""}
                )
                for name, version in versions.items()
            },
            "cursor": cut.cursor.model_copy(
                update={
                    "targets": {
                        name: target.model_copy(
                            update={
                                "app_id": _app_id(copy, cut, name),
                                "table_version": versions.get(name, -1),
                            }
                        )
                        for name, target in cut.cursor.targets.items()
                    }
                }
            ),
        }
    )
    if put_cut(copy, copied_cut) is None:
        there = state.read_cut(copy, cut.batch_number)
        tables = {
            name: table.model_copy(update={"facts": ""}) for name, table in there.tables.items()
        }
        if there.model_copy(update={"tables": tables}) != copied_cut:
            raise _in_the_way(f"{copy.cut(cut.batch_number)} belongs to another copy", "")
    return copy


def _with_settings(lake: Path, to: str | Path) -> str | Path:
    if isinstance(to, str) and is_object(lake):
        with suppress(ValueError):  # `paths_of` says what is wrong with it
            at: LakeUri | None = parse_uri(to)
            if at is not None and at.scheme == lake.scheme:
                configured: Any = replace(at, storage=lake.storage)
                return configured  # type: ignore[no-any-return]
    return to


def _copied(spark: SparkSession, paths: LakePaths, copy: LakePaths, cut: Cut, name: str) -> int:
    path = copy.table(name)
    there = read_table_log(path)
    if there is not None:
        if there.app_id != _app_id(copy, cut, name):
            raise _in_the_way(f"{path} holds another table", name)
        return there.version
    frame = old_frame(spark, paths.table(name), cut.tables[name].table_version)
    properties = {
        SOURCE_PROPERTY: paths.source,
        TABLE_PROPERTY: name,
        APP_ID_PROPERTY: _app_id(copy, cut, name),
        _CUT_PROPERTY: str(cut.batch_number),
    }
    settings = properties_sql(properties)
    session = new_session(spark)
    frame.createOrReplaceGlobalTempView(view := f"cdc_copy_{uuid4().hex}")
    try:
        session.sql(
            f"CREATE TABLE {table_at(path)} USING delta TBLPROPERTIES ({settings}) AS "  # noqa: S608
            f"SELECT * FROM global_temp.{view}"
        ).collect()
    finally:
        spark.catalog.dropGlobalTempView(view)
    copied_log = read_table_log(path)
    assert copied_log is not None, "it was created by the statement before"
    return copied_log.version


def _app_id(copy: LakePaths, cut: Cut, name: str) -> str:
    """Differs from the original's, so that no pipeline takes a copy for its own table."""
    return application_id(copy.source, name, "copy", cut.batch_number)


def _in_the_way(what: str, name: str) -> LakeStateError:
    return LakeStateError(
        f"a cut cannot be copied there: {what}",
        table=name or None,
        expected="an empty folder, or an unfinished copy of the same cut",
        next_step="name another folder with --into",
    )
