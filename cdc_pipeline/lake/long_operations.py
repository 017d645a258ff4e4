"""State of the long operations, as plain JSON in the main lake (K17, K18).

Snapshots, rebuilds, backfills, filled gaps and rows that are read again are one kind of value: what
is asked of which tables, over which range of the log, and how far it is. It is in
``<lake>/_cdc/<source>/operations/<id>.json``: put if absent, and changed only when a range is done,
or the operation is given up or over. Beside it is a folder, the side lake of a snapshot or a
rebuild: a lake like any other. Its state folder, of the other kinds too, also holds

    operation.lock       held by the process that works on the operation
    progress/<n>.json    how far it is with batch n of the side lake, written before n is recorded

Rules:
- An operation is claimed under one lock, then locked itself: two processes never work on one. The
  same command resumes what a killed process left.
- Progress n counts from the cut of batch n on. The file of a batch that was never recorded is
  replaced by the next batch of its number, or removed before a capture gets that. Without a side
  lake here n is 0, and the file is written when its rows are in a cut: what was done after it is
  done again.
- A snapshot or rebuild is finished when the last cut of the main lake has its tables; its side lake
  is then only left over. Filled ranges are remembered in ``<id>.done``: the same command
  finds nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Final, Literal, TypeVar
from uuid import uuid4

from pydantic import Field

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, LakeStateError, LockError
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
from cdc_pipeline.lake.state import last_cut, read_cut
from cdc_pipeline.lake.storage.lock import lock_holder, wait_for_lock, writer_lock
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import CursorState, ResumePlace
from cdc_pipeline.position.failback import Consumer
from cdc_pipeline.text.wording import listed

OPERATIONS_FOLDER: Final = "operations"
GAP_FILLED_NOTE: Final = "gap_filled"  # its text ends with the operation's id
OperationKind = Literal["snapshot", "rebuild", "backfill", "gap", "reread"]
_IS_REMEMBERED: Final = ("backfill", "gap")
_REMEMBERED: Final = ".done"


class Operation(FrozenModel):
    """Definition of one operation.

    Attributes:
        sources: source tables that are read, ``schema.table``.
        targets: tables whose content is replaced.
        asked: what else was asked for, by setting: the same command has the same.
        archive: directory of journals that it reads.
        cursor: where the range begins. Of a side lake: every transaction before it is in each view,
            what comes after is replayed.
        end: where the range ends, unless that is the main cursor, or a transaction's name tells.
        exact: source tables that are read in one view, at exactly `cursor`.
        time_us: the rows' ``_cdc_ts``: the source's time at `cursor`.
        rows_estimated: of each source table, by the server's catalog.
        partial: targets of a finished backfill that lack what was before the range (K19).
        filled: rows that a gap's batch appends, by changelog; 0 if the range has none of it.
        is_over: it is done or given up: what is left of its side lake is removed.
    """

    version: Literal[1] = 1
    operation_id: str
    kind: OperationKind = "snapshot"
    source: str
    sources: tuple[str, ...]
    targets: tuple[str, ...] = ()
    asked: dict[str, str] = Field(default_factory=dict)
    archive: str = ""
    cursor: CursorState
    end: ResumePlace | None = None
    exact: tuple[str, ...] = ()
    time_us: int = 0
    rows_estimated: dict[str, int] = Field(default_factory=dict)
    partial: tuple[str, ...] = ()
    filled: dict[str, int] = Field(default_factory=dict)
    started_at_us: int = Field(default_factory=now_us)
    is_over: bool = False

    @property
    def command(self) -> str:
        """That continues it; a condition is not kept (K26)."""
        words = [self.source]
        for table in self.sources:
            words += "--table", table
        if self.kind == "gap":
            words += "--gap", "--from", f"{self.cursor.position}", "--until", f"{self.end}"
        elif self.kind != "snapshot":
            words += {"rebuild": ["--rebuild"], "reread": ["--where", "..."]}.get(self.kind, [])
            words += ["--into", self.asked["into"]] if "into" in self.asked else []
            for option, setting in (("--from", "from"), ("--until", "to")):
                words += [option, _as_word(self.asked[setting])] if setting in self.asked else []
        words += ["--archive", self.archive] if self.archive else []
        rest = " ".join(map(quote, words))
        is_snapshot = self.kind in ("snapshot", "reread")
        return f"cdc-pipeline snapshot {rest}" if is_snapshot else f"cdc-pipeline backfill {rest}"

    def is_same(self, other: Operation) -> bool:
        """Whether the same was asked for."""
        return (self.sources, self.asked) == (other.sources, other.asked)

    def gives_up(self, other: Operation) -> bool:
        """Whether a restart gives up the other: unfinished, of the same tables in any range."""
        return self.sources == other.sources and not other.is_over

    def app_id(self, target: str) -> str:
        """The application id of a target once this operation has replaced it."""
        return application_id(self.source, target, self.operation_id)


def _as_word(asked: str) -> str:
    """An end of a range, from a model's JSON, as commands take it."""
    end = json.loads(asked)
    if isinstance(end, str):
        return end
    if "offset" in end:
        return f"{end['journal']}:{end['offset']}"
    return str(end.get("time") or end.get("gtid_set") or end["gtid"])


class TableProgress(FrozenModel):
    """Progress of reading one source table.

    Attributes:
        after: the last key that was read, as SQL literals (`source.key_ranges`); None before the
            first chunk.
        layout: of the key that it is of (`source.key_ranges.key_layout`).
    """

    rows: int = 0
    chunks: int = 0
    after: tuple[str, ...] | None = None
    layout: str = ""
    is_done: bool = False


class Progress(FrozenModel):
    """Progress of an operation with the batch of this number.

    Attributes:
        high_journal, high_offset: the highest end of the log after a view was opened: the tables
            are whole from there on (K17); of a backfill, where its lake is.
        batch_number: of the main lake, that brings a gap's changes.
    """

    version: Literal[1] = 1
    tables: dict[str, TableProgress] = Field(default_factory=dict)
    high_journal: str = ""
    high_offset: int = 4
    batch_number: int = -1


def new_operation_id(mark: str = "") -> str:
    """An id that sorts by time; `mark`: its last eight digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{mark or uuid4().hex[:8]}"


_Document = TypeVar("_Document", Operation, Progress)


class OperationFolder:
    """The files of one operation; `lake`: root of the side lake."""

    def __init__(self, config: PipelineConfig, operation_id: str) -> None:
        self._source = config.name
        main = LakePaths.of(config)
        self.operation_id = operation_id
        self.lake = main.state / OPERATIONS_FOLDER / operation_id
        # A name of its own, so that its dumps have their own server id.
        self.paths = LakePaths(self.lake, f"{config.name}__side_{operation_id[-8:]}")
        self._state = main.state / OPERATIONS_FOLDER / f"{operation_id}.json"
        self._remembered = self._state.with_name(operation_id + _REMEMBERED)
        self._progress = self.paths.state / "progress"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises LockError: another process holds it."""
        try:
            with writer_lock(self._lock):
                yield
        except LockError as error:
            error.what = f"the operation {self.operation_id} is under way in another process"
            error.next_step = "wait for it to end, or stop it: the same command then continues it"
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
        for path in (self._state, self._remembered):
            if path.exists():
                return _read(Operation, path, source=self._source)
        return None

    def create(self, state: Operation) -> None:
        if not put_if_absent(self._state, state.model_dump_json(indent=1)):
            raise LakeStateError(f"there is already an operation with this id: {self._state}")

    def change(self, state: Operation) -> None:
        replace_file(self._state, state.model_dump_json(indent=1).encode())

    def write_progress(self, number: int, progress: Progress) -> None:
        """Write the progress with batch `number`, before that is recorded."""
        replace_file(numbered(self._progress, number), progress.model_dump_json(indent=1).encode())

    def read_progress(self) -> Progress:
        """The progress with the side lake's last cut."""
        last = self._last_number()
        counted = [number for number in list_numbers(self._progress) if number <= last]
        if not counted:
            return Progress()
        return _read(Progress, numbered(self._progress, counted[-1]), source=self._source)

    def _last_number(self) -> int:
        return max(list_numbers(self.paths.cuts), default=0)

    def tidy_progress(self, number: int) -> None:
        self._remove_progress(lambda earlier: earlier < number)

    def discard_unrecorded(self) -> None:
        """Progress with a batch that was never recorded, before one without rows that were read
        gets its number.
        """
        last = self._last_number()
        self._remove_progress(
            lambda number: number > last and not self.paths.batch(number).exists()
        )

    def _remove_progress(self, is_left: Callable[[int], bool]) -> None:
        for number in filter(is_left, list_numbers(self._progress)):
            path = numbered(self._progress, number)
            storage_of(path).remove(path)

    def remove(self) -> None:
        """Remove the whole side lake; safe to be killed in between. A kind that is remembered when
        it is over is never marked so.
        """
        state = self.read()
        if state is not None and not state.is_over and state.kind not in _IS_REMEMBERED:
            self.change(state.model_copy(update={"is_over": True}))
        self.forget()

    def finish(self, state: Operation) -> None:
        """Remember that it is done, where no capture and no status reads it (K25); safe to be
        killed in between.
        """
        state = state.model_copy(update={"is_over": True})
        self.change(state)
        replace_file(self._remembered, state.model_dump_json(indent=1).encode())
        remove_tree(self.lake)
        storage_of(self._state).remove(self._state)

    @contextmanager
    def leaving_nothing(self, *, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Forget an operation that fails before it has done anything; never one that is over."""
        try:
            yield
        except CdcError:
            state = self.read()
            is_over = state is not None and state.is_over
            if not is_over and self.read_progress() == Progress() and not unless():
                self.forget()
            raise

    def forget(self) -> None:
        """Remove the side lake and its definition file, whatever that contains."""
        remove_tree(self.lake)
        for path in (self._remembered, self._state):
            storage_of(path).remove(path)


def _read(kind: type[_Document], path: Path, *, source: str) -> _Document:
    next_step = (
        "use the version of the program that wrote it; or start again with "
        f"`cdc-pipeline snapshot {source} --restart`, or for a rebuild "
        f"`cdc-pipeline backfill {source} --table SCHEMA.TABLE --rebuild --restart`"
    )
    return read_document(path, kind.model_validate_json, next_step=next_step)


def operation_ids(config: PipelineConfig, suffixes: tuple[str, ...] = (".json",)) -> list[str]:
    """Ids of all operations of a pipeline, oldest first, including those over but not removed."""
    folder = LakePaths.of(config).state / OPERATIONS_FOLDER
    names = storage_of(folder).names(folder)
    return sorted({name.rpartition(".")[0] for name in names if name.endswith(suffixes)})


@contextmanager
def operations_lock(
    config: PipelineConfig, *, on_waiting: Callable[[str], None] = lambda _holder: None
) -> Iterator[None]:
    """Lock the search for operations to begin or resume, for one process. Raises LockError: another
    process holds it for longer than `snapshot.lock_wait_s`.
    """
    folder = LakePaths.of(config).state / OPERATIONS_FOLDER
    with ExitStack() as stack:
        wait_for_lock(
            lambda: stack.enter_context(writer_lock(folder / "operations.lock")),
            wait_s=config.snapshot.lock_wait_s,
            on_waiting=on_waiting,
        )
        yield


def is_finished(state: Operation, cut: Cut | None) -> bool:
    """Whether the main lake's last cut has all tables that it replaces, or it is over."""
    if state.is_over or not state.targets:
        return state.is_over
    targets = {} if cut is None else cut.cursor.targets
    return all(
        name in targets and targets[name].app_id == state.app_id(name) for name in state.targets
    )


def is_appended(config: PipelineConfig, state: Operation, progress: Progress) -> bool:
    """Whether the batch of its number is a gap's own: an unrecorded one leaves that to another.
    Without the cut it was never finished, or long ago: the changelog's own rows decide.
    """
    paths, number = LakePaths.of(config), progress.batch_number
    if number < 0 or not paths.cut(number).exists():
        return False
    own = f" {state.operation_id}"
    notes = read_cut(paths, number).notes
    return any(note.kind == GAP_FILLED_NOTE and note.text.endswith(own) for note in notes)


def _is_needed(state: Operation, pending: BatchRecord | None) -> bool:
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


def remembered(config: PipelineConfig, kind: OperationKind) -> Iterator[Operation]:
    """Those that are done, oldest first. Raises LakeStateError: a file is damaged."""
    for operation_id in operation_ids(config, (".json", _REMEMBERED)):
        state = OperationFolder(config, operation_id).read()
        if state is not None and state.kind == kind and state.is_over:
            yield state


def consumers_beside(config: PipelineConfig, cut: Cut | None) -> list[Consumer]:
    """What unfinished snapshots and rebuilds still need of the log. Others fix their own ranges."""
    consumers = []
    for folder, operation in unfinished(config, cut):
        if operation.targets:
            last = last_cut(folder.paths)  # of the side lake; none before its first chunk
            at = operation.cursor if last is None else last.cursor
            name = f"the snapshot of {listed(list(operation.sources))}"
            consumers.append(Consumer(name=name, epoch=at.epoch, position=at.position))
    return consumers


def claim(
    config: PipelineConfig,
    kind: OperationKind,
    stack: ExitStack,
    *,
    matches: Callable[[Operation], bool],
    cut: Cut | None = None,
    pending: BatchRecord | None = None,
    restart: Callable[[str], None] | None = None,
) -> list[tuple[OperationFolder, Operation]]:
    """Operations of a kind that can be resumed, oldest first; call it under `operations_lock`.

    They are locked for as long as `stack` is open. With `restart` the id of each is passed to that
    and the operation given up, and so is one with a damaged file. Those that are over are removed,
    unless a recorded batch still takes its rows from one, or are returned too if they are
    remembered. Raises LockError: another process works on one; LakeStateError: a file is damaged.
    """
    operations = []
    is_remembered, unfinished_ids = kind in _IS_REMEMBERED, operation_ids(config)
    suffixes = (".json", _REMEMBERED) if is_remembered else (".json",)
    for operation_id in operation_ids(config, suffixes):
        folder = OperationFolder(config, operation_id)
        try:
            state = folder.read()
        except LakeStateError:
            if restart is None or pending is not None or folder.is_locked():
                raise
            restart(operation_id)
            folder.forget()
            continue
        if state is None or state.kind != kind or _is_needed(state, pending):
            continue
        is_over = is_finished(state, cut)
        if is_over and operation_id in unfinished_ids and not folder.is_locked():
            if is_remembered:
                folder.finish(state)  # a process was killed before it did that
            else:
                folder.remove()
        if (is_over and not is_remembered) or not matches(state):
            continue
        if not state.is_over:
            try:
                stack.enter_context(folder.locked())
            except LockError as error:
                error.table = ", ".join(state.targets or state.sources)
                raise
            state = folder.read()  # what held the lock may have ended it
            if state is None or (state.is_over and not is_remembered):
                folder.remove()
                continue
            if not matches(state):
                continue
        if restart is None:
            operations.append((folder, state))
        else:
            restart(operation_id)
            folder.remove()
    return operations


def give_up(
    config: PipelineConfig,
    *kinds: OperationKind,
    sources: Collection[str],
    cut: Cut | None,
    pending: BatchRecord | None,
) -> None:
    """Forget what is unfinished of some source tables: the rows that it has read are no use any
    more. Raises as `claim`.
    """
    with ExitStack() as stack, operations_lock(config):
        for kind in kinds:
            claim(
                config,
                kind,
                stack,
                matches=lambda one: not one.is_over and not set(sources).isdisjoint(one.sources),
                cut=cut,
                pending=pending,
                restart=lambda _: None,
            )


def begin(config: PipelineConfig, state: Operation, stack: ExitStack) -> OperationFolder:
    """Lock a new operation for as long as `stack` is open, and write it down; see `claim`."""
    folder = OperationFolder(config, state.operation_id)
    stack.enter_context(folder.locked())
    folder.create(state)
    return folder


@contextmanager
def claimed(
    config: PipelineConfig,
    kind: OperationKind,
    new: Callable[[], Operation],
    *,
    matches: Callable[[Operation], bool],
    restart: bool = False,
    on_waiting: Callable[[str], None] = lambda _holder: None,
) -> Iterator[tuple[OperationFolder, Operation]]:
    """The one operation that `matches`, or a new one, locked; see `claim`."""
    with ExitStack() as stack:
        with operations_lock(config, on_waiting=on_waiting):
            drop = (lambda _: None) if restart else None
            operations = claim(config, kind, stack, matches=matches, restart=drop)
            if not operations:
                state = new()
                operations = [(begin(config, state, stack), state)]
        yield operations[0]


class OperationStatus(FrozenModel):
    """An operation that is under way, or waits to be resumed.

    Attributes:
        is_running: a process works on it now; else `command` continues it.
        start: where its range begins, ``journal:offset``; `at`: where a backfill's lake is.
        percent: of the rows that the catalog estimates; -1 unknown.
        damaged: why it cannot be resumed, and what to do; nothing else is known of it then.
    """

    operation_id: str
    kind: OperationKind = "snapshot"
    tables: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    started_at_us: int = -1
    is_running: bool
    command: str = ""
    start: str = ""
    at: str = ""
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
            if state.kind == "gap" and is_appended(config, state, progress):
                continue  # its own command says so
        except LakeStateError as error:  # it stops no capture
            operations.append(
                OperationStatus(
                    operation_id=operation_id,
                    is_running=folder.is_running,
                    damaged=f"{error.what}; {error.next_step}",
                )
            )
            continue
        tables = {name: progress.tables.get(name, TableProgress()) for name in state.sources}
        rows = sum(table.rows for table in progress.tables.values())  # a backfill's: by target
        estimated = sum(
            max(state.rows_estimated.get(name, 0), table.rows) for name, table in tables.items()
        )
        percent = min(99.0, 100.0 * rows / estimated) if state.rows_estimated and estimated else -1
        is_backfill = state.kind == "backfill" and progress.high_journal
        operations.append(
            OperationStatus(
                operation_id=operation_id,
                kind=state.kind,
                tables=state.sources,
                targets=state.targets,
                started_at_us=state.started_at_us,
                is_running=folder.is_running,
                command=state.command,
                start=str(state.cursor.position),
                at=f"{progress.high_journal}:{progress.high_offset}" if is_backfill else "",
                rows=rows,
                chunks=sum(table.chunks for table in tables.values()),
                percent=100.0 if all(table.is_done for table in tables.values()) else percent,
                progress=progress.tables,
            )
        )
    return operations


def rows_time_us(cursor: CursorState, cut: Cut | None) -> int:
    """Of rows that are brought in at the cursor: the latest known of what was applied, or now."""
    latest = max(cursor.timestamp_s * 1_000_000, cut.source_time_us if cut is not None else 0)
    return latest if latest > 0 else now_us()
