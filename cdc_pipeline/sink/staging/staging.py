"""Stage decoded changes as Parquet files per target, then record the batch (K2, K9).

Rules:
- Nothing takes effect before the record: files without a record are garbage, which the next start
  removes.
- Pieces of a transaction whose end is not known yet ("open") are in separate files; `close_open`
  adds them to the batch, and `drop_open` removes them. `undo_open` removes from them what a
  ROLLBACK TO undid.
- A file holds rows of one layout; when a target's layout changes (images become partial) a new file
  begins.
- DDL that changes a target is alone: its batch has no rows of that target.
- Inserts that the table need not be asked about may be staged as the data files that they become
  (`DATA_FILES`): whoever applies the batch gives these the table's name, or makes staged rows of
  them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq_columns import event_ordinals
from cdc_pipeline.errors import LakeStateError, SinkError, StagingError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.paths import LakePaths, put_if_absent, remove_tree
from cdc_pipeline.lake.records import (
    BatchRecord,
    QuarantineFile,
    RecordedContent,
    RecordedTarget,
    StagedFile,
)
from cdc_pipeline.lake.staged_file import HashingFile, StagedFileWriter, recorded_file
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.schema.evolution.steps import Step
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.data_file import FILE_BYTES, DataFileWriter, DataLayout
from cdc_pipeline.sink.modes.expand import ARRIVE, DELETE, INSERT, LEAVE, UPDATE, StagedRows
from cdc_pipeline.sink.modes.mirror_rows import mirror_rows, staged_pieces, staged_rows
from cdc_pipeline.sink.modes.mode_columns import RESCUED
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import (
    counted,
    rows_counted,
    undone_counts,
    with_rescued,
)
from cdc_pipeline.sink.staging.fitting import fitted
from cdc_pipeline.sink.target import Target
from cdc_pipeline.text.server_messages import said_by
from cdc_pipeline.transaction.savepoints import is_undone

DATA_FILES: Final = ".data.parquet"  # how names of staged files end that are data files


class _DataFile(DataFileWriter):
    def __init__(self, path: Path, layout: DataLayout) -> None:
        self._hashed = HashingFile(path)
        super().__init__(self._hashed, layout)

    def close(self, *, lake: Path) -> StagedFile:
        self.end(is_told=True)
        return recorded_file(self._hashed, rows=self.rows, lake=lake)


@dataclass
class StagedPart:
    closed: list[StagedFile] = field(default_factory=list)
    writer: StagedFileWriter | _DataFile | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    partial: bool = False
    partial_key_updates: int = 0
    gone: int = 0
    rescued: Counter[str] = field(default_factory=Counter)
    rescued_rows: int = 0

    @property
    def staged_bytes(self) -> int:
        written = self.writer.staged_bytes if self.writer else 0
        return sum(file.size_bytes for file in self.closed) + written

    @property
    def staged_rows(self) -> int:
        return sum(file.rows for file in self.closed) + (self.writer.rows if self.writer else 0)

    def count(self, staged: StagedRows) -> None:
        self.inserted += staged.rows_inserted
        self.updated += staged.rows_updated
        self.deleted += staged.rows_deleted
        self.partial |= staged.partial
        self.partial_key_updates += staged.partial_key_updates
        self.gone += int(np.isin(staged.table.column("_op").to_numpy(), (DELETE, LEAVE)).sum())

    def join(self, other: StagedPart) -> None:
        self.closed += other.closed
        self.inserted += other.inserted
        self.updated += other.updated
        self.deleted += other.deleted
        self.partial |= other.partial
        self.partial_key_updates += other.partial_key_updates
        self.gone += other.gone
        self.rescued += other.rescued
        self.rescued_rows += other.rescued_rows


@dataclass
class StagedTarget:
    target: Target
    create: bool = False
    changed: bool = False
    before: tuple[TargetColumn, ...] = ()
    steps: tuple[Step, ...] = ()
    content: RecordedContent | None = None
    restores: int = -1
    erases: bool = False
    part: StagedPart = field(default_factory=StagedPart)
    open: StagedPart | None = None


_QUARANTINE: Final = "quarantine of "  # no target's name has a space before its first dot


class StagedBatch:
    """Batch `number` of a source, from its first row to its record. Not thread-safe."""

    def __init__(
        self, number: int, *, paths: LakePaths, check_lock: Callable[[], None], part: str = ""
    ) -> None:
        """`part`: a folder in the batch's own, if several processes stage parts of it."""
        self.number = number
        self._paths = paths
        self._check_lock = check_lock
        self._folder = paths.staging(number) / part if part else paths.staging(number)
        self._targets: dict[str, StagedTarget] = {}
        self._files = 0
        self._recorded = False
        remove_tree(self._folder)
        storage_of(self._folder).make_folder(self._folder)

    # -- what the batch holds ----------------------------------------------------------------------

    @property
    def has_open(self) -> bool:
        """Whether pieces of an open transaction wait for `close_open` or `drop_open`."""
        return any(target.open is not None for target in self._targets.values())

    @property
    def has_work(self) -> bool:
        """Whether the batch changes any target (open pieces do not count)."""
        return any(
            t.create or t.changed or t.content or t.part.staged_rows for t in self._targets.values()
        )

    @property
    def staged_bytes(self) -> int:
        """In files, those of open pieces included; rows still in memory count uncompressed."""
        return sum(part.staged_bytes for part in self._parts())

    @property
    def staged_rows(self) -> int:
        return sum(part.staged_rows for part in self._parts())

    def _parts(self) -> list[StagedPart]:
        return [
            part for t in self._targets.values() for part in (t.part, t.open) if part is not None
        ]

    # -- filling it --------------------------------------------------------------------------------

    def create(self, target: Target) -> None:
        """Rows of another table of that name are gone with it: a CREATE OR REPLACE TABLE ... SELECT
        that has row events is part of a batch with others.
        """
        there = self._targets.get(target.name)
        if there is not None and there.target.state.app_id != target.state.app_id:
            self.drop_open(target.name)
            _discard(self._targets.pop(target.name).part, self._paths.lake)
        self._staged(target).create = True

    def change(
        self, target: Target, before: tuple[TargetColumn, ...], steps: tuple[Step, ...]
    ) -> None:
        """`target.spec` is as it is after. StagingError: the batch has rows of it."""
        there = self._targets.get(target.name)
        if there is not None and (
            there.part.staged_rows or there.open is not None or there.changed
        ):
            raise StagingError(
                "a target is changed in a batch that has rows of the same table",
                table=target.name,
                expected="DDL in a batch of its own",
            )
        self._targets[target.name] = StagedTarget(target, changed=True, before=before, steps=steps)

    def replace(
        self,
        target: Target,
        content: RecordedContent,
        *,
        before: tuple[TargetColumn, ...] = (),
        steps: tuple[Step, ...] = (),
    ) -> None:
        """By a side table's rows, or another target's, see `replacement`; `steps` change these,
        which have the columns `before`. StagingError: the batch does something else to this target.
        """
        if target.name in self._targets:
            raise StagingError(
                "a target is replaced in a batch that also changes it", table=target.name
            )
        self._targets[target.name] = StagedTarget(
            target, content=content, before=before, steps=steps
        )

    def restore(self, target: Target, version: int) -> None:
        self._targets[target.name] = StagedTarget(target, changed=True, restores=version)

    def erase(self, target: Target, keys: pa.Table, *, rows: int) -> None:
        """Of texts by column, and nothing else to the target; `rows`: how many there are."""
        staged = StagedTarget(target, changed=True, erases=True)
        staged.part.writer = StagedFileWriter(
            self._new_file(".parquet"), keys.schema, key_columns=[]
        )
        staged.part.writer.write(keys)
        staged.part.deleted = staged.part.gone = rows
        self._targets[target.name] = staged

    def add_staged(self, rows: StagedRows, target: Target) -> None:
        """In the staged layout, shaped, `_cdc_rescued` last. SinkError: the disk is full."""
        staged = self._staged(target)
        self._write(staged, staged.part, rows)
        staged.part.count(rows)
        reach("staging")
        self._check_lock()

    def add(
        self,
        rows: DecodedRows,
        target: Target,
        *,
        open_transaction: bool = False,
        transactions: pa.Array | None = None,
        layout: DataLayout | None = None,
    ) -> None:
        """Stage n changes; `open_transaction` if their transaction's end is not known yet.
        `transactions`: of each, for a changelog; `layout`: of the data files that the rows,
        inserts, are to become. Raises StagingError: as `expand`, or whole transactions come while
        one is open; SinkError: the disk is full.
        """
        if not len(rows):
            return
        staged, spec = self._staged(target), target.spec
        if staged.changed or staged.content or (not open_transaction and self.has_open):
            raise StagingError(
                "rows arrive when they cannot be staged",
                table=target.name,
                expected="DDL in a batch of its own, and an open transaction closed or dropped "
                "before the next one",
                got="rows after a DDL"
                if staged.changed
                else "complete transactions while one is open",
            )
        source = spec.sources.get(rows.schema.full_name)
        if source is not None:
            rows = fitted(rows, spec.columns, source.names)
        values, rows_with_values = counted(rows), rows_counted(rows)
        rows = with_rescued(rows, target.rescued, mode=spec.mode)
        if target.rescued is not None:
            spec, layout = spec.with_columns((*spec.columns, RESCUED)), None
        of_mode = SINK_MODES[spec.mode].stage(rows, spec, transactions)
        part = staged.part
        if open_transaction:
            part = staged.open = staged.open or StagedPart()
        self._write(staged, part, of_mode, layout)
        part.count(of_mode)
        part.rescued += values
        part.rescued_rows += rows_with_values
        reach("staging")
        self._check_lock()

    def quarantine(self, table: str, entries: pa.Table, *, open_transaction: bool = False) -> None:
        """Stage rows of a source table that cannot be applied (`quarantine.SCHEMA`)."""
        name = f"{_QUARANTINE}{table}"
        state = TargetState(table=name, app_id="", table_version=-1, applied_batch=-1)
        staged = self._targets.setdefault(name, StagedTarget(Target(state, TargetSpec())))
        part = staged.part
        if open_transaction:
            part = staged.open = staged.open or StagedPart()
        if part.writer is None:
            part.writer = self._rows_writer(staged, entries.schema)
        part.writer.write(entries)

    def undo_open(self, undone: NDArray[np.int64]) -> None:
        """Rows of the open transaction with these event ordinals (`Savepoints.undone`)."""
        for target in self._targets.values():
            if target.open is None or not len(undone):
                continue
            self._close(target.open)
            for at in reversed(range(len(target.open.closed))):
                self._undo(target, target.open, at, undone)

    def close_open(self) -> None:
        for target in self._targets.values():
            if target.open is not None:
                self._close(target.open)
                target.part.join(target.open)
                target.open = None

    def drop_open(self, table: str | None = None) -> None:
        """It was rolled back or never ended; `table` alone if only that no longer follows (K4)."""
        sources = self._targets[table].target.spec.sources if table in self._targets else {}
        dropped = {table, *(f"{_QUARANTINE}{source}" for source in (*sources, table))}
        for name, target in self._targets.items():
            if target.open is not None and (table is None or name in dropped):
                _discard(target.open, self._paths.lake)
                target.open = None

    # -- recording it ------------------------------------------------------------------------------

    def record(self, head: BatchRecord, *, is_part: bool = False) -> BatchRecord:
        """Make the staged files durable and write the batch's record: from now on it will be
        finished. If it `is_part` the record is only returned: who joins the parts passes the joined
        one to `put`. Raises StagingError: a transaction is still open; LakeStateError: there is
        such a record.
        """
        numbers = {head.batch_number, head.cursor_after.batch_number}
        if self.has_open or self._recorded or numbers != {self.number}:
            raise StagingError(
                f"batch {self.number} cannot be recorded",
                expected="no open transaction, not recorded before, a cursor of "
                f"batch {self.number}",
                got=f"open: {self.has_open}, recorded: {self._recorded}, cursor of "
                f"{head.cursor_after.batch_number}",
            )
        targets: list[RecordedTarget] = []
        quarantine: list[QuarantineFile] = []
        for name, staged in sorted(self._targets.items()):
            part = staged.part
            self._close(part)
            if name.startswith(_QUARANTINE):
                source = name.removeprefix(_QUARANTINE)
                quarantine += (
                    QuarantineFile(**file.model_dump(), table=source) for file in part.closed
                )
            elif staged.create or staged.changed or staged.content or part.closed:
                targets.append(_recorded(staged))
        storage_of(self._folder).make_durable(self._folder, self._folder.parent)
        record = head.model_copy(
            update={"targets": tuple(targets), "quarantine": tuple(quarantine)}
        )
        return record if is_part else self.put(record)

    def put(self, record: BatchRecord) -> BatchRecord:
        """Raises LakeStateError: there is a record of this number already."""
        reach("before_record")
        self._check_lock()
        if not put_if_absent(self._paths.batch(self.number), record.model_dump_json(indent=1)):
            raise LakeStateError(
                f"another writer has recorded batch {self.number}",
                expected="one writer per source",
                got=str(self._paths.batch(self.number)),
                next_step="make sure that only one host runs this source on this lake, then "
                "start the run again",
            )
        self._recorded = True
        reach("after_record")
        self._check_lock()
        return record

    def _staged(self, target: Target) -> StagedTarget:
        staged = self._targets.setdefault(target.name, StagedTarget(target))
        before, spec = staged.target, target.spec
        if (target.state.app_id, spec.key) != (before.state.app_id, before.spec.key) or (
            spec.columns != before.spec.columns
            and staged.part.staged_rows + (staged.open is not None)
        ):
            raise StagingError(
                "a target changes within a batch", table=target.name, expected=before.spec, got=spec
            )
        staged.target = target
        return staged

    def _write(
        self,
        staged: StagedTarget,
        part: StagedPart,
        rows: StagedRows,
        layout: DataLayout | None = None,
    ) -> None:
        table, schema = rows.table, rows.table.schema
        if layout is not None:
            table, schema = mirror_rows(table, staged.target.spec), layout.schema
        try:
            if part.writer is not None and part.writer.schema != schema:
                self._close(part)
            if part.writer is None:
                part.writer = (
                    self._rows_writer(staged, schema)
                    if layout is None
                    else _DataFile(self._new_file(DATA_FILES), layout)
                )
            part.writer.write(table)
            if layout is not None and part.writer.staged_bytes >= FILE_BYTES:
                self._close(part)
        except OSError as error:
            raise SinkError(
                f"batch {self.number} cannot be staged in {self._folder}",
                table=staged.target.name,
                got=f"{type(error).__name__}: {error.strerror or error}",
                next_step="free space in the lake's file system, or lower batch.merge_staged_bytes",
            ) from error
        except pa.ArrowInvalid as error:
            raise StagingError(
                "rows do not fit the data files that they are to become",
                table=staged.target.name,
                got=said_by(error),
                next_step="take a new snapshot of the table",
            ) from None

    def _undo(
        self, staged: StagedTarget, part: StagedPart, at: int, undone: NDArray[np.int64]
    ) -> None:
        """Rewrite the file at `part.closed[at]` without undone rows, row group by row group."""
        path = self._paths.lake / part.closed[at].path
        writer: StagedFileWriter | None = None
        removed = np.zeros(ARRIVE + 1, np.int64)
        with pq.ParquetFile(storage_of(path).arrow_source(path)) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                gone = is_undone(event_ordinals(rows.column("_seq").combine_chunks()), undone)
                _uncount(
                    part, rows.filter(pa.array(gone)), rescued=f"c{len(staged.target.spec.columns)}"
                )
                removed += np.bincount(rows.column("_op").to_numpy()[gone], minlength=len(removed))
                if not gone.all():
                    writer = writer or self._rows_writer(staged, rows.schema)
                    writer.write(rows.filter(pa.array(~gone)))
        part.inserted -= int(removed[INSERT])
        part.updated -= int(removed[UPDATE] + removed[ARRIVE])
        part.deleted -= int(removed[DELETE])
        path.unlink()
        part.closed[at : at + 1] = [] if writer is None else [writer.close(lake=self._paths.lake)]

    def _rows_writer(self, staged: StagedTarget, schema: pa.Schema) -> StagedFileWriter:
        key_columns = _key_columns(staged.target.spec)
        return StagedFileWriter(self._new_file(".parquet"), schema, key_columns=key_columns)

    def _new_file(self, end: str) -> Path:
        self._files += 1
        return self._folder / storage_of(self._folder).unique(f"{self._files:06d}{end}")

    def _close(self, part: StagedPart) -> None:
        if part.writer is not None:
            part.closed.append(part.writer.close(lake=self._paths.lake))
            part.writer = None


def _key_columns(spec: TargetSpec) -> list[str]:
    names = [column.name for column in spec.columns]
    return [f"c{names.index(name)}" for name in spec.key]


def as_rows(file: StagedFile, spec: TargetSpec, *, lake: Path) -> StagedFile:
    """A data file of a batch as staged rows, in a file beside it."""
    if not file.path.endswith(DATA_FILES):
        return file
    path = lake / file.path
    to = path.with_name(path.name.removesuffix(DATA_FILES) + ".parquet")
    to.unlink(missing_ok=True)  # of an earlier try
    writer: StagedFileWriter | None = None
    for piece in staged_pieces([path]):
        rows = staged_rows(piece)
        writer = writer or StagedFileWriter(to, rows.schema, key_columns=_key_columns(spec))
        writer.write(rows)
    assert writer is not None, "no file is without rows"
    return writer.close(lake=lake)


def _discard(part: StagedPart, lake: Path) -> None:
    if part.writer is not None:
        part.writer.discard()
    for file in part.closed:
        (lake / file.path).unlink()


def _uncount(part: StagedPart, gone: pa.Table, *, rescued: str) -> None:
    if rescued in gone.column_names:
        arriving = pa.array(np.isin(gone.column("_op").to_numpy(), (INSERT, UPDATE, ARRIVE)))
        rows, values = undone_counts(gone.filter(arriving).column(rescued))
        part.rescued_rows -= rows
        part.rescued -= values


def _recorded(staged: StagedTarget) -> RecordedTarget:
    target, part, content = staged.target, staged.part, staged.content
    is_filtered = target.spec.shape is not None and bool(target.spec.shape.filter)
    return RecordedTarget(
        table=target.name,
        app_id=target.state.app_id,
        spec=target.spec.compact(target.name),
        exact=target.state.exact,
        create=staged.create,
        partial=target.state.partial,
        columns_before=staged.before,
        schema_steps=staged.steps,
        replaces=target.replaces,
        files=tuple(part.closed),
        rows_inserted=part.inserted if content is None else max(content.rows, 0),
        rows_updated=part.updated,
        rows_deleted=part.deleted,
        all_present=not part.partial,
        partial_key_updates=part.partial_key_updates,
        rows_gone=part.gone + is_filtered * (part.inserted + part.updated),
        rescues=target.rescued is not None,
        rescued={
            name: part.rescued[name] for name in sorted({*part.rescued, *(target.rescued or ())})
        },
        rescued_rows=part.rescued_rows,
        content=content,
        restores=staged.restores,
        erases=staged.erases,
    )
