"""Side lake of a backfill (K18): an ordinary lake for chosen tables and a fixed range.

Rules:
- Source, tables and range are fixed once, before anything is read, as requested and as found.
  Another range or other tables are refused: they go into another lake.
- ``_cdc/<source>/operation`` names the operation that fills it (`lake/long_operations.py`): a lake
  that another has made is refused, and one that was removed is filled again.
- The main cursor, the main lock and the main lake's tables are never touched.
- It has a replica id of its own: a live server ends the first of two readers with one id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from cdc_pipeline.config.pipeline_config import (
    ArchiveSourceConfig,
    Bound,
    GtidBoundConfig,
    GtidConfig,
    PipelineConfig,
    PositionConfig,
    Start,
)
from cdc_pipeline.config.storage_config import LakeUri, StorageConfig, parse_uri
from cdc_pipeline.errors import ConfigError, LakeStateError
from cdc_pipeline.lake.long_operations import Operation
from cdc_pipeline.lake.paths import STATE_FOLDER, LakePaths, replace_file
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.side_lake import SideLake, beside
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.source.live.live import replica_name
from cdc_pipeline.targets.table_filter import TableFilter, server_names, tables_named
from cdc_pipeline.text.table_names import split_table_name

_START: Final[TypeAdapter[Start]] = TypeAdapter(Start)
_BOUND: Final[TypeAdapter[Bound]] = TypeAdapter(Bound)
_FIXED: Final = {"tables": "other tables", "from": "another range", "to": "another range"}


class BackfillLake:
    """`archive`: journals that are read in place of the source. Raises ConfigError."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        path: str | Path,
        tables: Sequence[str],
        archive: Path | None = None,
    ) -> None:
        self.main = config
        self.tables = checked_tables(config, tables)
        self.config = _side_config(config, path, self.tables, archive)
        self.paths = LakePaths.of(self.config)
        _check_apart(LakePaths.of(config), self.paths)

    @property
    def path(self) -> str:
        return str(self.paths.lake)

    def check_same(self, state: Operation, asked: Mapping[str, str]) -> None:
        now = {"tables": ", ".join(self.tables), **asked}
        begun = {"tables": ", ".join(state.sources), **state.asked}
        for setting, what in _FIXED.items():
            if now[setting] != begun[setting]:
                raise ConfigError(
                    f"the side lake {self.path} was started with {what}",
                    setting=setting,
                    expected=begun[setting],
                    got=now[setting],
                    next_step="give the values that it was started with, or another folder",
                )

    @property
    def _mark(self) -> Path:
        return self.paths.state / "operation"

    @property
    def made_by(self) -> str:
        """The id of the operation that fills the lake; "" if none does."""
        at = self._mark
        return at.read_text(encoding="utf-8") if at.exists() else ""

    def is_of(self, state: Operation) -> bool:
        return state.asked["into"] == self.path

    def is_begun(self) -> bool:
        storage = storage_of(self.paths.state)
        return bool(storage.names(self.paths.cuts) or storage.names(self.paths.batches))

    def mark(self, operation_id: str) -> None:
        """Name the operation that fills the lake. LakeStateError: it holds something else."""
        if self.is_begun():
            raise LakeStateError(
                f"there is a lake of {self.main.name} that no backfill of this pipeline has made",
                expected="an empty folder, or the lake of an unfinished or finished backfill",
                got=self.path,
                next_step="give another folder with --into",
            )
        replace_file(self._mark, operation_id.encode())

    def filling(self, state: Operation, *, observer: RunObserver, run_id: str) -> SideLake:
        start = _START.validate_json(state.asked["from"])
        bound = _BOUND.validate_json(state.asked["to"])
        if not isinstance(start, GtidConfig):
            start = PositionConfig(journal=state.cursor.journal, offset=state.cursor.offset)
        if state.end is not None:
            bound = PositionConfig(journal=state.end.journal, offset=state.end.offset)
        elif not isinstance(bound, GtidBoundConfig):
            bound = "end_of_log"
        config = self.config.model_copy(update={"start": start, "bound": bound})
        return SideLake(config, begin=None, observer=observer, run_id=run_id)


def as_text(asked: Start | Bound) -> str:
    """In one form, so that texts can be compared."""
    adapter: TypeAdapter[Start | Bound] = TypeAdapter(Start | Bound)
    return adapter.dump_json(asked).decode()


def checked_tables(config: PipelineConfig, tables: Sequence[str]) -> tuple[str, ...]:
    captured, tables = TableFilter(config).captured, tables_named(config, tables)
    unknown = [name for name in tables if "." not in name or not captured(*split_table_name(name))]
    if unknown or not tables:
        raise ConfigError(
            f"these tables are not captured: {', '.join(unknown)}"
            if unknown
            else "no table was given",
            setting="table",
            expected="tables as schema.table that tables.include captures",
            next_step="name tables with --table schema.table; `cdc-pipeline plan "
            f"{config.name}` lists them",
        )
    return tuple(sorted(set(tables)))


def _side_config(
    config: PipelineConfig, path: str | Path, tables: tuple[str, ...], archive: Path | None
) -> PipelineConfig:
    at = _lake_path(path)
    source = config.source
    if archive is not None:
        source = archive_of(config, archive)
    elif not isinstance(source, ArchiveSourceConfig):
        # A range of one server's journals means nothing on its standby.
        source = source.model_copy(update={"standby": None, "replica_server_id": None})
        own_id = replica_name(source, f"{config.name}/backfill/{at}").server_id
        source = source.model_copy(update={"replica_server_id": own_id})
    storage = config.sink.storage if isinstance(at, LakeUri) else StorageConfig()
    lake = replace(at, storage=storage) if isinstance(at, LakeUri) else at
    sink = {"storage": storage}
    return beside(
        config, lake=lake, tables=tables, is_numbered_apart=True, sink=sink, source=source
    )


def archive_of(config: PipelineConfig, directory: Path) -> ArchiveSourceConfig:
    return ArchiveSourceConfig(
        kind="archive",
        directory=directory.absolute(),
        lower_case_table_names=server_names(config).value,
    )


def _lake_path(path: str | Path) -> Path | LakeUri:
    if not isinstance(path, str):
        return path
    try:
        return parse_uri(path) or Path(path).expanduser().resolve()
    except ValueError as error:
        raise ConfigError(
            "--into names a place that cannot hold a lake",
            setting="into",
            expected=str(error),
            got=path,
        ) from None


def _check_apart(main: LakePaths, side: LakePaths) -> None:
    ours, theirs = (at.lake if is_object(at.lake) else at.lake.resolve() for at in (main, side))
    inside = ours in theirs.parents and (ours / STATE_FOLDER) not in theirs.parents
    if ours == theirs or inside or theirs in ours.parents:
        raise ConfigError(
            "the side lake and the lake of the pipeline must be separate",
            setting="into",
            expected="a folder that is neither in the lake nor contains it",
            got=f"{theirs}; the lake is {ours}",
            next_step="give a separate folder with --into: rows of old journals must never "
            "enter a table that is being captured",
        )


def parallel_without_archive() -> ConfigError:
    return ConfigError(
        "only archives can be decoded in parallel",
        setting="parallel",
        expected="a directory of journals",
        got="a running server",
        next_step="name the directory with --archive, or omit --parallel",
    )
