"""Side lake of a backfill (K18): an ordinary lake for chosen tables and a fixed range.

Rules:
- Its definition is in ``_cdc/<source>/backfill.json``, written once, before anything is read:
  source, tables, and the range as requested and as found. Another range or other tables are
  refused: they go into another lake.
- The first run fixes the end there: a journal and an offset, or the name of a transaction.
- The main cursor, the main lock and the main lake are never touched.
- ``backfill_done.json`` records that the end was reached: a run that finds it reads no log and
  starts no JVM.
- It has a replica id of its own: a live server ends the first of two readers with one id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

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
from cdc_pipeline.errors import ConfigError, LakeStateError, TargetSuspendedError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import STATE_FOLDER, LakePaths, put_if_absent, read_json
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.side_lake import SideLake, beside
from cdc_pipeline.position.cursor import ResumePlace
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.run.capture.segments.parallel import hashed_table
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import ParallelReport
from cdc_pipeline.targets.table_filter import TableFilter, server_names, tables_named
from cdc_pipeline.text.table_names import split_table_name

M = TypeVar("M", bound=BaseModel)
_START: Final[TypeAdapter[Start]] = TypeAdapter(Start)
_BOUND: Final[TypeAdapter[Bound]] = TypeAdapter(Bound)


class BackfillRecord(FrozenModel):
    """Definition of a side lake.

    Attributes:
        asked_from, asked_to: the range as requested, in the YAML's form, as JSON texts.
        end: None if a transaction's name determines it, or the archive's end is damaged.
    """

    version: Literal[1] = 1
    source: str
    tables: tuple[str, ...]
    asked_from: str
    asked_to: str
    start: ResumePlace
    end: ResumePlace | None
    begun_at_us: int


class BackfillDone(FrozenModel):
    """`batches`: of the side lake's last cut, 0 if no change of the tables was in the range;
    `partial`: targets that lack what was before the range (K19).
    """

    version: Literal[1] = 1
    at: ResumePlace
    batches: int
    partial: tuple[str, ...] = ()
    done_at_us: int


class BackfillLake:
    """A backfill's side lake; `archive`: journals that are read in place of the source.

    Raises:
        ConfigError: a table that is not captured, or a path that is the main lake's.
    """

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
        self.paths = LakePaths(self.config.sink.lake_path.absolute(), config.name)
        _check_apart(LakePaths(config.sink.lake_path.absolute(), config.name), self.paths)

    @property
    def path(self) -> str:
        return str(self.paths.lake)

    @property
    def record_file(self) -> Path:
        return self.paths.state / "backfill.json"

    @property
    def done_file(self) -> Path:
        return self.paths.state / "backfill_done.json"

    def record(self) -> BackfillRecord | None:
        """Raises LakeStateError if it cannot be read."""
        return self._read(self.record_file, BackfillRecord)

    def done(self) -> BackfillDone | None:
        """Raises LakeStateError if it cannot be read."""
        return self._read(self.done_file, BackfillDone)

    def begin(self, record: BackfillRecord) -> BackfillRecord:
        """Record the definition if there is none; LakeStateError if the lake is no backfill."""
        recorded = self.record()
        if recorded is not None:
            return recorded
        storage = storage_of(self.paths.state)
        if storage.names(self.paths.cuts) or storage.names(self.paths.batches):
            raise LakeStateError(
                f"there is a lake of {self.main.name} that no backfill has made",
                expected="an empty folder, or the lake of an unfinished or finished backfill",
                got=self.path,
                next_step="give another folder with --into",
            )
        put_if_absent(self.record_file, record.model_dump_json(indent=1))
        recorded = self.record()
        assert recorded is not None
        return recorded

    def finish(self, done: BackfillDone) -> None:
        put_if_absent(self.done_file, done.model_dump_json(indent=1))

    def check_same(self, record: BackfillRecord, *, asked_from: Start, asked_to: Bound) -> None:
        """Raises ConfigError if the lake was begun with another range, or other tables."""
        asked = [
            ("source", "another source", self.main.name, record.source),
            ("tables", "other tables", ", ".join(self.tables), ", ".join(record.tables)),
            ("from", "another range", as_text(asked_from), record.asked_from),
            ("to", "another range", as_text(asked_to), record.asked_to),
        ]
        for setting, what, now, begun in asked:
            if now != begun:
                raise ConfigError(
                    f"the side lake {self.path} was started with {what}",
                    setting=setting,
                    expected=begun,
                    got=now,
                    next_step="give the values that it was started with, or another folder",
                )

    def filling(self, record: BackfillRecord, *, observer: RunObserver, run_id: str) -> SideLake:
        start = _START.validate_json(record.asked_from)
        bound = _BOUND.validate_json(record.asked_to)
        if not isinstance(start, GtidConfig):
            start = PositionConfig(journal=record.start.journal, offset=record.start.offset)
        if record.end is not None:
            bound = PositionConfig(journal=record.end.journal, offset=record.end.offset)
        elif not isinstance(bound, GtidBoundConfig):
            bound = "end_of_log"
        config = self.config.model_copy(update={"start": start, "bound": bound})
        return SideLake(config, begin=None, observer=observer, run_id=run_id)

    def _read(self, file: Path, model: type[M]) -> M | None:
        if not storage_of(file).exists(file):
            return None
        try:
            return model.model_validate_json(read_json(file))
        except ValidationError as error:
            raise LakeStateError(
                f"a file among a side lake's own records is damaged: {file}",
                expected=f"a {model.__name__} of version 1",
                got=f"{error.error_count()} mistakes",
                next_step="remove the side lake, and start the backfill again",
            ) from None


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
        own_id = _replica_id(f"{config.name}/backfill/{at}")
        source = source.model_copy(update={"standby": None, "replica_server_id": own_id})
    storage = config.sink.storage if isinstance(at, LakeUri) else StorageConfig()
    lake = replace(at, storage=storage) if isinstance(at, LakeUri) else at
    return beside(config, lake=lake, tables=tables, sink={"storage": storage}, source=source)


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


def _replica_id(name: str) -> int:
    """Return a replica server id, 2**31 .. 2**32 - 2."""
    digest = hashlib.sha256(name.encode()).digest()
    return (1 << 31) + int.from_bytes(digest[:8], "big") % ((1 << 31) - 1)


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


def fill_in_parallel(
    lake: SideLake, *, tables: Sequence[str], parallel: Parallel
) -> ParallelReport:
    """Start and end are fixed; a capture after it finds what is left. ConfigError: no archive."""
    config = lake.config
    if not isinstance(config.source, ArchiveSourceConfig):
        raise parallel_without_archive()
    refused = hashed_table(config, tables)
    if not isinstance(config.bound, PositionConfig) or not isinstance(config.start, PositionConfig):
        refused = "the range does not lie between two positions of the journals"
    if refused:
        return ParallelReport(one_after_the_other=(refused,))
    try:
        done = lake.capture(parallel=parallel).parallel
    except TargetSuspendedError as error:
        why = f"{error.what}: the rest, for the tables that continue"
        return ParallelReport(one_after_the_other=(why,))
    return done or ParallelReport()
