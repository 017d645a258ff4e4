"""Tables of a million rows and more: made once by Spark, kept in the cache folder, linked into
lakes of their own.

Rules:
- A table of the cache folder is complete or absent: it is made under another name and renamed at
  the end.
- A change of its rows needs a new `_VERSION`, or old tables would be measured.
- Data files are linked, the log is copied: a lake that is measured never writes into the cache.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from benchmarks.decode.workloads import cache_folder
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta.features import allowed, creation_properties
from cdc_pipeline.sink.modes.tables import create_table
from cdc_pipeline.sink.target import Target

_VERSION = 2
ROWS_PER_FILE = 1_000_000
TABLE = "bench.orders"


def _column(name: str, kind: Kind, **rest: Any) -> Column:
    return Column(name=name, kind=kind, wire_type=0, wire_meta=0, nullable=name != "id", **rest)


def schema_of(table: str) -> TableSchema:
    """The six columns of every measured table but W1's."""
    database, _, name = table.partition(".")
    columns = (
        _column("id", Kind.INT64),
        _column("customer", Kind.INT32),
        _column("state", Kind.INT32),
        _column("name", Kind.TEXT, charset="utf8mb4"),
        _column("amount", Kind.DECIMAL, precision=12, scale=2),
        _column("ratio", Kind.DOUBLE),
    )
    return TableSchema(database, name, columns, (0,))


def target_of(table: str) -> Target:
    schema = schema_of(table)
    state = TargetState(
        table=table, app_id=f"cdc_pipeline/bench/{table}", table_version=-1, applied_batch=-1
    )
    return Target(state, TargetSpec(columns=target_columns(schema), key=schema.key_names))


def recorded_of(table: str) -> RecordedTarget:
    target = target_of(table)
    return RecordedTarget(table=table, app_id=target.state.app_id, spec=target.spec)


def create_as_ours(session: Any, path: Path, table: str) -> None:
    """Create a table with the properties that the pipeline gives to a new one."""
    properties = creation_properties(allowed(SinkConfig(lake_path=path.parent)))
    create_table(session, path, recorded_of(table), source="bench", properties=properties)


def base_table(session: Any, rows: int, *, deletion_vectors: bool = True) -> Path:
    """The table with ids 0 to `rows` - 1, made where it is not in the cache."""
    kind = "" if deletion_vectors else "-copy-on-write"
    path = cache_folder() / f"sink-{_VERSION}-{rows}{kind}"
    if path.exists():
        return path
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    own = session.newSession()
    create_as_ours(own, partial, TABLE)
    if not deletion_vectors:
        own.sql(
            f"ALTER TABLE delta.`{partial}` SET TBLPROPERTIES "
            "('delta.enableDeletionVectors' = 'false')"
        )
    files = max(2, rows // ROWS_PER_FILE)
    own.range(0, rows, 1, files).selectExpr(
        "id",
        "CAST(hash(id) AS INT) AS customer",
        "CAST(pmod(id, 7) AS INT) AS state",
        "concat('order ', id, ' of ', hash(id, 1)) AS name",
        "CAST(pmod(hash(id, 2), 1000000) / 100 AS DECIMAL(12,2)) AS amount",
        "hash(id, 3) / 1000D AS ratio",
        "'insert' AS _cdc_op",
        # As a load by 5,000 rows a transaction would number them.
        "CAST(75567087097951178244096 + (id div 5000) * 8796093022208 + pmod(id, 5000) * 2 + 1"
        " AS DECIMAL(38,0)) AS _cdc_seq",
        "timestamp_seconds(1700000000 + id div 5000) AS _cdc_ts",
    ).write.format("delta").mode("append").save(str(partial))
    partial.replace(path)
    return path


def link_table(base: Path, path: Path) -> None:
    """Make `path` a table of its own with the rows of `base`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(base, path, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(".parquet") and "_delta_log" not in source:
        os.link(source, target)
    else:
        shutil.copyfile(source, target)
