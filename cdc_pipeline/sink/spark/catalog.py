"""Tables of the lake in the catalog of the Spark session (Hive, Unity, Glue ...: the session's own settings).

Rules:
- Registered is where a table lies, nothing else: readers of the catalog see every commit at once.
- Done again it does nothing. A name that means another place is never taken over: two tables would be one.
- Two tables of this lake may come to one name, since the catalog has neither case nor punctuation: the later one gets a
  hash of its own name behind it, the same at each try.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc_pipeline.config.pipeline_config import CatalogConfig
from cdc_pipeline.errors import CatalogError, CatalogNameError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sink.spark.sql import catalog_safe, quoted, text_literal, told_apart
from cdc_pipeline.text.server_messages import said_by
from cdc_pipeline.text.table_names import split_table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _catalog_name(config: CatalogConfig, table: str) -> tuple[str, str]:
    """Return the database and name of a target ``schema.table`` in the catalog, of characters that
    it takes."""
    schema, name = split_table_name(table)

    def filled(template: str) -> str:
        return catalog_safe(template.replace("{schema}", schema).replace("{table}", name))

    return filled(config.database), filled(config.name)


def register(session: SparkSession, paths: LakePaths, config: CatalogConfig, table: str) -> None:
    """Register a table where the catalog does not have it.

    Raises:
        CatalogError: the catalog refuses it.
        CatalogNameError: the catalog has a table of somebody else under its name.
    """
    database, name = _catalog_name(config, table)
    there = _registered(session, paths, table, database, name)
    if there != _place(str(paths.table(table))) and there.startswith(_place(str(paths.lake)) + "/"):
        name = told_apart(name, table)
        there = _registered(session, paths, table, database, name)
    if there != _place(str(paths.table(table))):
        raise CatalogNameError(
            f"the catalog's {quoted(database)}.{quoted(name)} is another table",
            table=table,
            setting="sink.catalog",
            expected=str(paths.table(table)),
            got=there,
            next_step="choose other names by sink.catalog.database and sink.catalog.name, or drop that table from the "
            "catalog",
        )


def register_all(session: SparkSession, paths: LakePaths, config: CatalogConfig, tables: Iterable[str]) -> None:
    """Register tables, each whatever becomes of the others.

    Raises:
        CatalogError: the first of what was refused.
    """
    refused: list[CatalogError] = []
    for table in tables:
        try:
            register(session, paths, config, table)
        except CatalogError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def check_answers(session: SparkSession) -> None:
    """Ask the catalog for its databases. Raises what Spark raises if it does not answer."""
    session.sql("SHOW DATABASES").collect()


def _registered(session: SparkSession, paths: LakePaths, table: str, database: str, name: str) -> str:
    """Register a table under a name that the catalog does not have yet; the place that the name means then."""
    whole = f"{quoted(database)}.{quoted(name)}"
    try:
        session.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}").collect()
        location = text_literal(str(paths.table(table)))
        session.sql(f"CREATE TABLE IF NOT EXISTS {whole} USING delta LOCATION {location}").collect()
        return _place(str(session.sql(f"DESCRIBE DETAIL {whole}").collect()[0]["location"]))
    except Exception as error:
        raise CatalogError(
            f"the table cannot be registered as {whole}",
            table=table,
            setting="sink.catalog",
            got=said_by(error),
            next_step="repair the catalog that sink.spark.settings name, or take sink.catalog out of the file",
        ) from None


def _place(text: str) -> str:
    """Return a location without the differences of its writing: Spark says ``file:/lake`` or
    ``file:///lake`` of ``/lake``."""
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text
