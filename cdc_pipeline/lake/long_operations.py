"""State of a long operation (a snapshot or a rebuild), as plain JSON in its side lake (K17).

A side lake is in ``<lake>/_cdc/<source>/operations/<id>/`` and is a lake like any other: records,
cuts, tables. The tables, and the cursor that the side lake begins at, are beside it in
``<id>.json``: put if absent, and changed once, when the operation is given up or over. The side
lake's state folder also holds

    operation.lock        held by the process that works on the operation
    progress/<n>.json     how far the reading of each table is with batch n, written before the
                          record of n

Rules:
- Progress n counts from the cut of batch n on. The file of a batch that was never recorded is
  replaced by the next batch of its number.
- An operation is finished when the last cut of the main lake has its tables; its side lake is then
  only left over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeVar
from uuid import uuid4

from pydantic import Field

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import LakeStateError, LockError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import (
    LakePaths,
    application_id,
    list_numbers,
    numbered,
    put_if_absent,
    read_document,
    remove_tree,
    replace_file,
)
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.storage.lock import lock_holder, writer_lock
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import CursorState

OPERATIONS_FOLDER: Final = "operations"
OperationKind = Literal["snapshot", "rebuild"]


class Operation(FrozenModel):
    """Definition of one operation.

    Attributes:
        sources: source tables that are read, ``schema.table``.
        targets: tables that are made of them.
        exact: source tables that are read in one view, at exactly `cursor`.
        cursor: where the side lake begins: every transaction before it is in each view, what comes
            after is replayed.
        time_us: the rows' ``_cdc_ts``: the source's time at `cursor`.
        rows_estimated: of each source table, by the server's catalog.
        started_at_us: when it began.
        kind: whether the tables are read from the server, or rebuilt from the log (K18:
            `operations/backfill/rebuild.py`).
        is_over: it is no longer needed: the rest of its side lake is removed.
    """

    version: Literal[1] = 1
    operation_id: str
    source: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    exact: tuple[str, ...] = ()
    cursor: CursorState
    time_us: int
    rows_estimated: dict[str, int] = Field(default_factory=dict)
    started_at_us: int
    kind: OperationKind = "snapshot"
    is_over: bool = False

    def app_id(self, target: str) -> str:
        """The application id of a target once this operation has replaced it."""
        return application_id(self.source, target, self.operation_id)


class TableProgress(FrozenModel):
    """Progress of reading one source table.

    Attributes:
        after: the last key that was read, as SQL literals (`source.key_ranges`); None before the
            first chunk.
    """

    rows: int = 0
    chunks: int = 0
    after: tuple[str, ...] | None = None
    is_done: bool = False


class Progress(FrozenModel):
    """Progress of an operation with the batch of this number.

    Attributes:
        high_journal, high_offset: the highest end of the log after a view was opened: the tables
            are whole from there on (K17).
    """

    version: Literal[1] = 1
    tables: dict[str, TableProgress] = Field(default_factory=dict)
    high_journal: str = ""
    high_offset: int = 4


def _side_name(source: str, operation_id: str) -> str:
    """Return the source's name in a side lake, so that its dumps have their own server id."""
    return f"{source}__side_{operation_id[-8:]}"


def new_operation_id() -> str:
    """An id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


_Document = TypeVar("_Document", Operation, Progress)


class OperationFolder:
    """The files of one operation.

    Attributes:
        lake: root of the side lake.
        relative: the same, relative to the main lake.
    """

    def __init__(self, config: PipelineConfig, operation_id: str) -> None:
        self._source = config.name
        main = LakePaths(config.sink.lake_path.absolute(), config.name)
        self.operation_id = operation_id
        self.lake = main.state / OPERATIONS_FOLDER / operation_id
        self.relative = str(self.lake)[len(str(main.lake)) :].strip("/")
        self.paths = LakePaths(self.lake, _side_name(config.name, operation_id))
        self._state = main.state / OPERATIONS_FOLDER / f"{operation_id}.json"
        self._progress = self.paths.state / "progress"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises LockError: another process holds it."""
        try:
            with writer_lock(self._lock):
                yield
        except LockError as error:
            error.what = f"the snapshot {self.operation_id} is under way in another process"
            raise

    @property
    def _lock(self) -> Path:
        return self.paths.state / "operation.lock"

    @property
    def is_running(self) -> bool:
        """Whether a process works on this operation, as far as the system shows; takes no lock."""
        return bool(lock_holder(self._lock))

    def is_locked(self) -> bool:
        """Whether a process works on this operation; takes the lock briefly."""
        try:
            with self.locked():
                return False
        except LockError:
            return True

    def read(self) -> Operation | None:
        """The definition; None if the operation was killed before that was written. Raises
        LakeStateError: the file is damaged.
        """
        if not storage_of(self._state).exists(self._state):
            return None
        return _read(Operation, self._state, source=self._source)

    def create(self, state: Operation) -> None:
        if not put_if_absent(self._state, state.model_dump_json(indent=1)):
            raise LakeStateError(f"there is already a snapshot with this id: {self._state}")

    def write_progress(self, number: int, progress: Progress) -> None:
        """Write the progress with batch `number`, before that is recorded."""
        replace_file(numbered(self._progress, number), progress.model_dump_json(indent=1).encode())

    def read_progress(self) -> Progress:
        """The progress with the side lake's last cut."""
        cuts = list_numbers(self.paths.cuts)
        last = cuts[-1] if cuts else 0
        counted = [number for number in list_numbers(self._progress) if number <= last]
        if not counted:
            return Progress()
        return _read(Progress, numbered(self._progress, counted[-1]), source=self._source)

    def tidy_progress(self, number: int) -> None:
        for earlier in list_numbers(self._progress):
            if earlier < number:
                path = numbered(self._progress, earlier)
                storage_of(path).remove(path)

    def remove(self) -> None:
        """Remove the whole side lake; safe to be killed in between."""
        state = self.read()
        if state is not None and not state.is_over:
            over = state.model_copy(update={"is_over": True})
            replace_file(self._state, over.model_dump_json(indent=1).encode())
        self.forget()

    def forget(self) -> None:
        """Remove the side lake and its definition file, whatever that contains."""
        remove_tree(self.lake)
        storage_of(self._state).remove(self._state)


def remove_damaged(config: PipelineConfig) -> list[str]:
    """Remove operations with an unreadable definition and no worker; return their ids.

    Call this only while no process begins or looks for operations, and no recorded batch is to be
    finished.
    """
    removed = []
    for operation_id in operation_ids(config):
        folder = OperationFolder(config, operation_id)
        try:
            folder.read()
        except LakeStateError:
            if not folder.is_locked():
                folder.forget()
                removed.append(operation_id)
    return removed


def _read(kind: type[_Document], path: Path, *, source: str) -> _Document:
    next_step = (
        "use the version of the program that wrote it; or start again with "
        f"`cdc-pipeline snapshot {source} --restart`, or for a rebuild "
        f"`cdc-pipeline backfill {source} --table SCHEMA.TABLE --rebuild --restart`"
    )
    return read_document(path, kind.model_validate_json, next_step=next_step)


def operation_ids(config: PipelineConfig) -> list[str]:
    """Ids of all operations of a pipeline, oldest first, including those over but not removed."""
    folder = LakePaths(config.sink.lake_path.absolute(), config.name).state / OPERATIONS_FOLDER
    return sorted(
        name.removesuffix(".json")
        for name in storage_of(folder).names(folder)
        if name.endswith(".json")
    )


@contextmanager
def operations_lock(config: PipelineConfig) -> Iterator[None]:
    """Lock the search for operations to begin or resume, for one process. Raises LockError: another
    process holds it.
    """
    folder = LakePaths(config.sink.lake_path.absolute(), config.name).state / OPERATIONS_FOLDER
    with writer_lock(folder / "operations.lock"):
        yield


def is_finished(state: Operation, cut: Cut | None) -> bool:
    """Whether the main lake's last cut has all of its tables, or it was given up."""
    if state.is_over:
        return True
    targets = {} if cut is None else cut.cursor.targets
    return all(
        name in targets and targets[name].app_id == state.app_id(name) for name in state.targets
    )


def is_needed(state: Operation, pending: BatchRecord | None) -> bool:
    """Whether an unfinished recorded batch takes its rows from the operation's side lake."""
    targets = () if pending is None else pending.targets
    return any(target.app_id == state.app_id(target.table) for target in targets)


def unfinished(
    config: PipelineConfig, cut: Cut | None
) -> Iterator[tuple[OperationFolder, Operation]]:
    """Operations that are not over, oldest first. Raises LakeStateError: a file is damaged."""
    for operation_id in operation_ids(config):
        folder = OperationFolder(config, operation_id)
        state = folder.read()
        if state is not None and not is_finished(state, cut):
            yield folder, state


def resumable(
    config: PipelineConfig,
    kind: OperationKind,
    *,
    cut: Cut | None,
    pending: BatchRecord | None,
    targets: Collection[str] | None = None,
) -> list[tuple[OperationFolder, Operation]]:
    """Unfinished operations of a kind that share one of `targets`; those that are over are removed,
    unless a recorded batch still takes its rows from one. Call it under `operations_lock`.
    """
    operations = []
    for operation_id in operation_ids(config):
        folder = OperationFolder(config, operation_id)
        state = folder.read()
        if state is None or state.kind != kind or is_needed(state, pending):
            continue
        if is_finished(state, cut):
            if not folder.is_locked():
                folder.remove()
        elif targets is None or set(targets) & set(state.targets):
            operations.append((folder, state))
    return operations


class OperationStatus(FrozenModel):
    """An operation that is under way, or waits to be resumed.

    Attributes:
        is_running: a process works on it now.
        percent: of the rows that the catalog estimates; -1 unknown.
        damaged: why it cannot be resumed, and what to do; nothing else is known of it then.
    """

    operation_id: str
    tables: tuple[str, ...]
    targets: tuple[str, ...]
    started_at_us: int
    is_running: bool
    journal: str
    offset: int
    gtid_set: str = ""
    kind: OperationKind = "snapshot"
    rows: int = 0
    chunks: int = 0
    percent: float = -1
    progress: dict[str, TableProgress] = Field(default_factory=dict)
    damaged: str = ""


def operations_of(config: PipelineConfig, cut: Cut | None) -> list[OperationStatus]:
    """The unfinished operations of a pipeline, oldest first; reads only the lake."""
    operations = []
    for operation_id in operation_ids(config):
        folder = OperationFolder(config, operation_id)
        try:
            state = folder.read()
            if state is None or is_finished(state, cut):
                continue
            progress = folder.read_progress()
        except LakeStateError as error:  # it stops no capture
            operations.append(_damaged(folder, error))
            continue
        rows = sum(table.rows for table in progress.tables.values())
        estimated = sum(
            max(
                state.rows_estimated.get(name, 0),
                progress.tables[name].rows if name in progress.tables else 0,
            )
            for name in state.sources
        )
        done = all(
            name in progress.tables and progress.tables[name].is_done for name in state.sources
        )
        operations.append(
            OperationStatus(
                operation_id=operation_id,
                tables=state.sources,
                targets=state.targets,
                started_at_us=state.started_at_us,
                is_running=folder.is_running,
                journal=state.cursor.journal,
                offset=state.cursor.offset,
                gtid_set=state.cursor.gtid_set,
                kind=state.kind,
                rows=rows,
                chunks=sum(table.chunks for table in progress.tables.values()),
                percent=100.0 if done else min(99.0, 100.0 * rows / estimated) if estimated else -1,
                progress=progress.tables,
            )
        )
    return operations


def _damaged(folder: OperationFolder, error: LakeStateError) -> OperationStatus:
    return OperationStatus(
        operation_id=folder.operation_id,
        tables=(),
        targets=(),
        started_at_us=-1,
        is_running=folder.is_running,
        journal="",
        offset=0,
        damaged=f"{error.what}; {error.next_step}",
    )


def rows_time_us(cursor: CursorState, cut: Cut | None) -> int:
    """The time of rows that are brought in at the cursor, in microseconds since 1970.

    That is the latest time known of what was applied; now, if none is known.
    """
    known = max(cursor.timestamp_s * 1_000_000, cut.source_time_us if cut is not None else 0)
    return known if known > 0 else now_us()
