"""Tables of the lake in the catalog of the Spark session (Hive, Unity, Glue ...: the session's own settings).

Rules:
- Registered is where a table lies, nothing else: readers of the catalog see every commit at once.
- Done again it does nothing. A name that means another place stops: two tables would be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc_pipeline.config import CatalogConfig
from cdc_pipeline.errors import CatalogError
from cdc_pipeline.foreign_words import said_by
from cdc_pipeline.sink.lake import LakePaths
from cdc_pipeline.sink.sql import catalog_safe, quoted, text_literal
from cdc_pipeline.table_names import split_table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def catalog_name(config: CatalogConfig, table: str) -> tuple[str, str]:
    """Database and name of a target ``schema.table`` in the catalog, of characters that it takes."""
    schema, name = split_table_name(table)

    def filled(template: str) -> str:
        return catalog_safe(template.replace("{schema}", schema).replace("{table}", name))

    return filled(config.database), filled(config.name)


def register(session: SparkSession, paths: LakePaths, config: CatalogConfig, tables: Iterable[str]) -> None:
    """Register tables where the catalog does not have them.

    Raises:
        CatalogError: the catalog refuses one, or has another table of its name.
    """
    for table in tables:
        database, name = catalog_name(config, table)
        whole = f"{quoted(database)}.{quoted(name)}"
        try:
            session.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}").collect()
            location = text_literal(str(paths.table(table)))
            session.sql(f"CREATE TABLE IF NOT EXISTS {whole} USING delta LOCATION {location}").collect()
            there = session.sql(f"DESCRIBE DETAIL {whole}").collect()[0]["location"]
        except Exception as error:
            raise CatalogError(
                f"the table cannot be registered as {whole}",
                table=table,
                setting="sink.catalog",
                got=said_by(error),
                next_step="mend the catalog that sink.spark.settings name, or take sink.catalog out of the file",
            ) from None
        if _place(str(there)) != _place(str(paths.table(table))):
            raise CatalogError(
                f"the catalog's {whole} is another table",
                table=table,
                setting="sink.catalog",
                expected=str(paths.table(table)),
                got=there,
                next_step="choose other names by sink.catalog.database and sink.catalog.name, or drop that table",
            )


def _place(text: str) -> str:
    """A location without the differences of its writing: Spark says ``file:/lake`` or ``file:///lake`` of ``/lake``."""
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text
