"""The `sink` section of a pipeline's YAML: where the Delta tables live, and what they may use."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.config.schedules import Scheduled
from cdc_pipeline.config.section import LocalPath, Section, Takes, absolute_folder
from cdc_pipeline.config.spark_config import SparkConfig as SparkConfig
from cdc_pipeline.config.storage_config import LakeUri, StorageConfig, check_lake_path, parse_uri
from cdc_pipeline.config.target_config import RowPolicies, TableProperties
from cdc_pipeline.config.units import Bytes, Days, Duration, Hours, Seconds

# Features of the Delta protocol that a reader must support to read a table at all.
READER_FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "variantType",
    }
)
# Features that concern only writers: they may be named, and exclude no reader.
WRITER_FEATURES: Final = frozenset(
    {"changeDataFeed", "clustering", "generatedColumns", "identityColumns", "rowTracking"}
)
# What readers are known to support (docs/lake/readers.md states the sources and dates).
READER_PRESETS: Final = {
    "delta-rs": frozenset({"timestampNtz"}),
    "duckdb": frozenset({"columnMapping", "deletionVectors", "timestampNtz"}),
    "polars": frozenset({"timestampNtz"}),
    "spark-3.5": frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}),
    "spark-4.0": READER_FEATURES - {"variantType"},
}


class CatalogConfig(Section):
    """Registration of the tables in the Spark session's catalog: ``{schema}`` and ``{table}``
    stand for the parts of the target's name.
    """

    database: str = Field(default="{schema}", min_length=1)
    name: str = Field(default="{table}", min_length=1)

    @field_validator("database", "name")
    @classmethod
    def _template(cls, value: str) -> str:
        if "{" in re.sub(r"\{(schema|table)\}", "", value):
            raise ValueError(f"{value!r} has a placeholder other than {{schema}} and {{table}}")
        return value


class PublishConfig(Section):
    """Views of all tables as of the newest cut, for readers by SQL."""

    database: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=100)
    duckdb: LocalPath | None = None
    catalog: bool = False
    plain: bool = False

    @model_validator(mode="after")
    def _somewhere(self) -> PublishConfig:
        if self.duckdb is None and not self.catalog:
            raise ValueError("expected duckdb: FILE, catalog: true, or both")
        if self.database.lower() in _OWN_DATABASES:
            raise ValueError(
                f"database {self.database!r} is the engine's own: the views need one for themselves"
            )
        return self


_OWN_DATABASES: Final = {
    *("default", "main", "temp", "system", "pg_catalog", "information_schema", "global_temp"),
}


def _lake_path(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str | Path | LakeUri) or not value:
        raise ValueError("expected a path, or an object store URL such as s3a://bucket/folder")
    check_lake_path(str(value))
    lake = (parse_uri(value) or Path(value)) if isinstance(value, str) else value
    if isinstance(lake, Path):
        lake = absolute_folder(lake, info)
        check_lake_path(str(lake))
    return lake


LakePath = Annotated[
    Path,
    PlainValidator(_lake_path, json_schema_input_type=str),
    PlainSerializer(str, when_used="json"),
    Takes("a folder, or an address in an object store such as s3a://bucket/folder"),
]


class SinkConfig(RowPolicies):
    """Where the Delta tables live, and how they follow the source.

    An address in an object store is a `LakeUri`, which has the parts of `Path` that do no
    I/O; for the type checker both are paths, as everywhere in the sink. `cut_retention` is
    also the tables' own log and file retention (K15). The `RowPolicies` here apply to all
    tables whose rules set none.
    """

    lake_path: LakePath
    storage: StorageConfig = StorageConfig()
    mode: Mode = "mirror"
    engine: Literal["auto", "spark"] = "auto"
    merge_threads: int = Field(default=4, ge=1, le=64)
    batch_timeout_s: Seconds = Field(default=24 * 3600, gt=0)
    reader_features: Literal["all"] | tuple[str, ...] = "all"
    cut_retention: Duration = timedelta(days=7)
    properties: TableProperties = Field(default_factory=dict)
    catalog: CatalogConfig | None = None
    publish: PublishConfig | None = None
    spark: SparkConfig = SparkConfig()

    @model_validator(mode="after")
    def _address_with_settings(self) -> SinkConfig:
        at: object = self.lake_path
        if isinstance(at, LakeUri):
            self.__dict__["lake_path"] = replace(at, storage=self.storage)
        elif self.storage != StorageConfig():
            raise ValueError(
                "storage applies only to a lake in an object store, but lake_path is a local folder"
            )
        return self

    @field_validator("reader_features", mode="before")
    @classmethod
    def _features(cls, value: object) -> object:
        known = READER_FEATURES | WRITER_FEATURES | READER_PRESETS.keys()
        if value != "all" and not isinstance(value, list | tuple):
            raise ValueError(f"expected 'all', or a list of {', '.join(sorted(known))}")
        for name in () if isinstance(value, str) else value:
            if name not in known:
                raise ValueError(
                    f"{name!r} is neither a feature nor a reader: use {', '.join(sorted(known))}"
                )
        return value


class MaintenanceConfig(Scheduled):
    """When tables are compacted and vacuumed, and Dagster's schedule for it."""

    small_files: int = Field(default=20, ge=2)
    small_file_bytes: Bytes = Field(default=64 << 20, ge=1)
    file_bytes: Bytes = Field(default=256 << 20, ge=1 << 20)
    deleted_rows: float = Field(default=0.2, gt=0, le=1)
    vacuum_hours: Hours = Field(default=24, ge=0)
    full_vacuum_days: Days = Field(default=30, ge=0)
    run_retention: Duration | None = None
