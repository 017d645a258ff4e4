"""A lake as its readers see it: its address and the keys of its store, nothing of the database.

Nothing here needs a JVM, except reading with a session that the caller gives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.config.storage_config import LakeUri, StorageConfig, parse_uri
from cdc_pipeline.errors import ConfigError, SparkNeededError
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.sink.read.cuts import (
    AsOf,
    CutSummary,
    check_readable,
    find_cut,
    list_cuts,
    paths_of,
    source_of,
    sources_of,
    version_in,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from cdc_pipeline.sink.delta.replay import TableState
    from cdc_pipeline.sink.read.changes import Changes
    from cdc_pipeline.sink.read.read import SparkSession
    from cdc_pipeline.sink.read.rows import Filters

# Names of `storage_options` as deltalake, Polars and the clouds' own variables have them, in lower
# case and without ``aws_``, ``azure_`` or ``google_`` -> field of StorageConfig.
_OPTIONS: Final = {
    "endpoint_url_s3": "endpoint",
    "endpoint_url": "endpoint",
    "endpoint": "endpoint",
    "base_url": "endpoint",
    "region": "region",
    "default_region": "region",
    "access_key_id": "access_key_id",
    "secret_access_key": "secret_access_key",
    "session_token": "session_token",
    "storage_account_key": "account_key",
    "account_key": "account_key",
    "storage_sas_token": "sas_token",
    "storage_sas_key": "sas_token",
    "sas_token": "sas_token",
    "sas_key": "sas_token",
    "service_account": "service_account_file",
    "service_account_path": "service_account_file",
    "application_credentials": "service_account_file",
}
_PREFIXES: Final = ("aws_", "azure_", "google_")
# The address tells these: the account, and by its scheme whether TLS is used.
_TOLD_BY_ADDRESS: Final = {"allow_http", "storage_account_name", "account_name"}


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake to read, of `open_lake`. Everything that is read as of one cut is at one transaction
    of the source.

    Attributes:
        path: its folder, or its address with the settings of its store.
    """

    path: Path

    def sources(self) -> list[str]:
        """Return the names of the pipelines that have cuts in it."""
        return sources_of(self.path)

    def cuts(self, source: str, *, limit: int | None = None) -> list[CutSummary]:
        """Return cuts as `cdc_pipeline.cuts` does."""
        return list_cuts(self.path, source, limit=limit)

    def read(
        self,
        table: str,
        *,
        as_of: AsOf = None,
        columns: Collection[str] | None = None,
        filters: Filters | None = None,
        source: str | None = None,
        allow_suspended: bool = False,
        spark: SparkSession | None = None,
    ) -> Any:
        """Return what `cdc_pipeline.read` does."""
        paths = paths_of(self.path, source if source is not None else source_of(self.path, table))
        cut = find_cut(paths, as_of)
        version = version_in(cut, table, allow_suspended=allow_suspended)
        state = check_readable(paths, cut, table)
        if spark is None:
            return _reader(paths.table(table), table, state, columns, filters)
        if columns is not None or filters is not None:
            raise ConfigError(
                "columns and filters are for reading without Spark",
                table=table,
                next_step="use select and where of the frame",
            )
        from cdc_pipeline.sink.read.read import old_frame

        return old_frame(spark, paths.table(table), version)

    def changes(
        self,
        tables: str | Sequence[str] | None,
        from_cut: AsOf,
        to_cut: AsOf = None,
        *,
        net: bool = True,
        source: str | None = None,
        allow_suspended: bool = False,
    ) -> Changes:
        """Return what `cdc_pipeline.changes` does."""
        from cdc_pipeline.sink.read.changes import changes_between

        tables = [tables] if isinstance(tables, str) else tables
        if source is None:
            source = source_of(self.path, tables[0]) if tables else self._only_source()
        paths = paths_of(self.path, source)
        return changes_between(
            paths, tables, from_cut, to_cut, net=net, allow_suspended=allow_suspended
        )

    def _only_source(self) -> str:
        sources = self.sources()
        if len(sources) != 1:
            raise ConfigError(
                "the lake does not have one source alone",
                setting="source",
                expected=f"one of {', '.join(sources) or 'none: nothing was captured'}",
                next_step="give source=",
            )
        return sources[0]

    def table_uri(self, table: str) -> str:
        """Return a table's folder or address, for other readers of Delta."""
        return paths_of(self.path, "_").table(table).as_posix()

    def storage_options(self) -> dict[str, str]:
        """Return the store's settings, secrets too, in the form of deltalake and Polars; for a
        folder none."""
        from cdc_pipeline.lake.storage.storage_settings import delta_options

        return delta_options(self.path) if is_object(self.path) else {}


def open_lake(path: str | Path | Lake, storage_options: Mapping[str, str] | None = None) -> Lake:
    """See `cdc_pipeline.open_lake`."""
    if isinstance(path, Lake):
        return path
    at: Any = path
    if storage_options:
        uri: LakeUri | None = at if isinstance(at, LakeUri) else parse_uri(str(path))
        if uri is None:
            raise ConfigError(
                "a folder has no settings of a store",
                setting="storage_options",
                got=str(path),
                next_step="leave storage_options out, or give the address of an object store",
            )
        at = LakeUri(uri.scheme, uri.authority, uri.parts, _storage_of(storage_options))
    return Lake(paths_of(at, "_").lake)


def _storage_of(options: Mapping[str, str]) -> StorageConfig:
    fields: dict[str, Any] = {}
    for given_name, value in options.items():
        name = given_name.lower()
        name = next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name)
        if name in ("virtual_hosted_style_request", "s3_force_path_style"):
            is_true = str(value).lower() == "true"
            fields["path_style"] = is_true == (name == "s3_force_path_style")
        elif name in _OPTIONS:
            fields[_OPTIONS[name]] = value
        elif name not in _TOLD_BY_ADDRESS:
            raise ConfigError(
                "this option of an object store is unknown",
                setting=f"storage_options: {given_name}",
                expected=", ".join(sorted(set(_OPTIONS) | {"virtual_hosted_style_request"})),
                next_step="give one of these, with or without the cloud's prefix, or set it in the "
                "environment",
            )
    try:
        return StorageConfig(**fields)
    except ValueError:  # its text may hold a secret (K26)
        raise ConfigError(
            "an option of the object store has a wrong value",
            setting="storage_options",
            expected="an endpoint such as https://store.example:9000, and texts",
            next_step="correct it",
        ) from None


def _reader(
    path: Path,
    table: str,
    state: TableState,
    columns: Collection[str] | None,
    filters: Filters | None,
) -> pa.RecordBatchReader:
    import pyarrow as pa

    from cdc_pipeline.sink.read.rows import open_rows, reader_of

    try:
        rows = open_rows(path, state, columns=columns, filters=filters)
    except SparkNeededError as error:
        error.table, error.next_step = table, "give a session with Delta: spark="
        raise
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise ConfigError(
            "the columns or filters do not fit the table",
            table=table,
            expected="its columns, and filters such as [('id', '>=', 10)]",
            got=str(error),
            next_step="correct columns or filters",
        ) from None
    return reader_of(table, rows.schema, rows.batches())
