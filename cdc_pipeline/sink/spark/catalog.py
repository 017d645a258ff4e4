"""Register tables of the lake in the catalog of the Spark session (Hive, Unity, Glue ...: by the
session's own settings).

Rules:
- Only a table's location is registered: readers of the catalog see every commit at once.
- Repeating it does nothing. A name that points to another location is never taken over: two tables
  would become one.
- Two tables of this lake may map to one name, since the catalog ignores case and punctuation: the
  later one gets a hash of its own name as a suffix, the same at each try.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc_pipeline.config.pipeline_config import CatalogConfig
from cdc_pipeline.errors import CatalogError, CatalogNameError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sink.spark.sql import catalog_safe, quoted, text_literal, unique_name
from cdc_pipeline.text.server_messages import said_by
from cdc_pipeline.text.table_names import split_table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _catalog_name(config: CatalogConfig, table: str) -> tuple[str, str]:
    schema, name = split_table_name(table)

    def filled(template: str) -> str:
        return catalog_safe(template.replace("{schema}", schema).replace("{table}", name))

    return filled(config.database), filled(config.name)


def register(session: SparkSession, paths: LakePaths, config: CatalogConfig, table: str) -> None:
    """Raises CatalogError: the catalog refuses it; CatalogNameError: it has another table there."""
    database, name = _catalog_name(config, table)
    there = _registered(session, paths, table, database, name)
    if there != _plain_location(str(paths.table(table))) and there.startswith(
        _plain_location(str(paths.lake)) + "/"
    ):
        name = unique_name(name, table)
        there = _registered(session, paths, table, database, name)
    if there != _plain_location(str(paths.table(table))):
        raise CatalogNameError(
            f"the catalog's {quoted(database)}.{quoted(name)} is another table",
            table=table,
            setting="sink.catalog",
            expected=str(paths.table(table)),
            got=there,
            next_step="choose other names with sink.catalog.database and sink.catalog.name, "
            "or drop that table from the catalog",
        )


def register_all(
    session: SparkSession, paths: LakePaths, config: CatalogConfig, tables: Iterable[str]
) -> None:
    """Register tables, each regardless of the others. Raises CatalogError: the first refusal."""
    refused: list[CatalogError] = []
    for table in tables:
        try:
            register(session, paths, config, table)
        except CatalogError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def check_answers(session: SparkSession) -> None:
    session.sql("SHOW DATABASES").collect()


def _registered(
    session: SparkSession, paths: LakePaths, table: str, database: str, name: str
) -> str:
    """Register a table under a free name; return the location that the name then has."""
    whole = f"{quoted(database)}.{quoted(name)}"
    try:
        session.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}").collect()
        location = text_literal(str(paths.table(table)))
        session.sql(f"CREATE TABLE IF NOT EXISTS {whole} USING delta LOCATION {location}").collect()
        return _plain_location(
            str(session.sql(f"DESCRIBE DETAIL {whole}").collect()[0]["location"])
        )
    except Exception as error:
        raise CatalogError(
            f"the table cannot be registered as {whole}",
            table=table,
            setting="sink.catalog",
            got=said_by(error),
            next_step="repair the catalog that sink.spark.settings names, or remove "
            "sink.catalog from the file",
        ) from None


def _plain_location(text: str) -> str:
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text
