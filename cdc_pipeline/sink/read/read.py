"""Read tables of the lake with Spark.

Rules:
- Delta refuses versions that were *committed* longer ago than the table's retention, even if they
  were current until a moment ago. A cut's version is checked by its files instead, and Delta's
  refusal is switched off while it is resolved; the session keeps its own setting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote
from uuid import uuid4

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CutNotFoundError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.sink.modes.mode_columns import live_rows_sql
from cdc_pipeline.sink.spark.own_session import is_remote
from cdc_pipeline.sink.spark.sql import catalog_safe, quoted, table_at, unique_name
from cdc_pipeline.text.table_names import split_table_name

if TYPE_CHECKING:
    # The package itself uses these names too, since it may not import Spark.
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession


REFUSE_OLD_COMMITS: Final = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
)


def old_frame(spark: SparkSession, path: Path, version: int) -> DataFrame:
    """As of a version that may have been committed longer ago than the table's retention."""
    with old_commits_readable(spark):
        frame = table_frame(spark, path, version=version)
        if is_remote(spark):  # which resolves a frame at each use of it, but a view now
            frame.createOrReplaceTempView(view := f"cdc_{uuid4().hex}")
            frame = spark.table(view)
        return frame


@contextmanager
def old_commits_readable(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(REFUSE_OLD_COMMITS, None)
    spark.conf.set(REFUSE_OLD_COMMITS, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(REFUSE_OLD_COMMITS)
        else:
            spark.conf.set(REFUSE_OLD_COMMITS, before)


def table_frame(spark: SparkSession, path: Path, *, version: int | None = None) -> DataFrame:
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(str(path))


_SET: Final = f"SET {REFUSE_OLD_COMMITS} = false"


def view_statements(
    paths: LakePaths,
    cut: Cut,
    *,
    schema: str | None = None,
    plain: bool = False,
    dialect: Literal["spark", "duckdb"] = "spark",
) -> list[str]:
    """SQL that makes a view for each table of a cut but suspended ones: lasting ones in `schema`,
    else temporary. `plain`: of the rows that the source has and without the mode's columns; a
    changelog then has none. Spark's first statement lets Delta read versions that were committed
    longer ago than its retention: each session that reads lasting views needs it. Raises
    CutNotFoundError: `schema` holds ``${``.
    """
    name_of, table_of = _DIALECTS[dialect]
    statements = [_SET] if dialect == "spark" else []
    if schema is not None:
        # These may run with Spark's variable substitution, which is on by default.
        if "${" in schema:
            raise CutNotFoundError(
                "the views' schema has a name that Spark reads as a variable",
                got=schema,
                next_step="name another schema with --schema",
            )
        statements.append(f"CREATE SCHEMA IF NOT EXISTS {name_of(schema)}")
    for table, view in view_names(list(cut.tables)).items():
        if table in cut.cursor.suspended:
            continue
        kind = "VIEW" if schema is not None else "TEMPORARY VIEW"
        name = name_of(view) if schema is None else f"{name_of(schema)}.{name_of(view)}"
        of, columns, rows = cut.tables[table], "*", ""
        if plain:
            mode = MODES[of.spec.mode]
            if mode.rows_are_changes:
                continue
            live = live_rows_sql(mode)
            columns = ", ".join(name_of(column.name) for column in of.spec.columns)
            rows = f" WHERE {live}" if live else ""
        statements.append(
            f"CREATE OR REPLACE {kind} {name} AS SELECT {columns} FROM "  # noqa: S608
            f"{table_of(paths.table(table), of.table_version)}{rows}"
        )
    return statements


def _duckdb_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _duckdb_table(path: Path, version: int) -> str:
    # In a URL: the kernel misreads a plain path that is not ASCII.
    text = str(path)
    url = text.replace("s3a://", "s3://", 1) if is_object(path) else f"file://{quote(text)}"
    literal = "'" + url.replace("'", "''") + "'"
    return f"delta_scan({literal}, version => {version})"


# How each writes a name, and a table as of a version.
_DIALECTS: Final[Mapping[str, tuple[Callable[[str], str], Callable[[Path, int], str]]]] = {
    "spark": (quoted, lambda path, version: f"{table_at(path)} VERSION AS OF {version}"),
    "duckdb": (_duckdb_name, _duckdb_table),
}


def view_names(tables: list[str]) -> dict[str, str]:
    """By table ``schema.table``, with the schema before it (``shop_orders``) if there are several.
    Catalogs ignore case and punctuation: of a name that several tables would share, each gets a
    hash of its own name as a suffix. So a view never changes to another table when a second one is
    added.
    """
    parts = {name: split_table_name(name) for name in tables}
    is_one = len({schema for schema, _ in parts.values()}) == 1
    names = {name: catalog_safe(parts[name][1] if is_one else name) for name in tables}
    times = Counter(name.lower() for name in names.values())
    return {
        table: name if times[name.lower()] == 1 else unique_name(name, table)
        for table, name in names.items()
    }
