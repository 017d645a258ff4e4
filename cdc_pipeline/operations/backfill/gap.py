"""Append the changes of a range that a changelog lacks, once (K18).

Rules:
- Only a changelog that holds no change of the range is filled: old rows conflict with nothing
  there, and nothing comes twice. They never go into a mirror or a history.
- It is one recorded batch under the source's lock, and the cursor does not move. Its rows have the
  seq of their place in the log, and a note records them.
- The range is written to ``_cdc/<source>/gaps/`` with the number of its batch, before that is
  recorded. It counts once the cut of that number names it. The same range again is nothing new.
- A range over a DDL of the table, or with prepared XA transactions, is refused: rows of other
  columns have no place.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal

from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, Start
from cdc_pipeline.errors import ConfigError, SnapshotError, TransactionError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import read_json, replace_file
from cdc_pipeline.lake.records import BatchRecord, Interval, Note
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.backfill.backfill import last_of
from cdc_pipeline.operations.backfill.lake import as_text, checked_tables
from cdc_pipeline.operations.backfill.rebuild import with_archive
from cdc_pipeline.operations.runs import DirectRuns, Runs
from cdc_pipeline.operations.side_lake import only_tables
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.position.cursor import CursorStore, MemoryCursorStore, ResumePlace
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.capture.capture_session import CaptureContext, ReadRange, open_session
from cdc_pipeline.run.capture.drain import Drain
from cdc_pipeline.run.capture.segments.segment import SegmentCommitter
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.resolved_run import LogRange
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import split_table_name

GAP_FILLED_NOTE: Final = "gap_filled"


class _Filled(FrozenModel):
    """Record of a range; `is_done` once the batch is known to be finished."""

    version: Literal[1] = 1
    table: str
    start: ResumePlace
    end: ResumePlace
    batch_number: int
    at_us: int
    is_done: bool = False


class GapReport(FrozenModel):
    """Changes by changelog; `cut`: the first that has them, -1 if nothing was new."""

    source: str
    outcome: Literal["applied", "nothing_new"]
    reason: str
    table: str
    start: ResumePlace
    end: ResumePlace
    rows: dict[str, int]
    cut: int = -1


def fill_gap(
    config: PipelineConfig,
    *,
    table: str,
    cursors: CursorStore,
    start: Start,
    end: Bound,
    archive: Path | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
    runs: Runs | None = None,
) -> GapReport:
    """Append a range's changes to those changelogs of a table that have none of it.

    `end` is a position or a time; `archive`: journals, read before the server's own.

    Raises:
        ConfigError: no changelog of such a table, or a range that is not between two places.
        SnapshotError: the changelog has changes of the range, or does not fit them.
        CdcError: everything else; nothing was appended, or the next run of the source finishes it.
    """
    observer = observer or RunObserver()
    main = MainLake(config, runs=runs or DirectRuns(config, cursors, run_id), observer=observer)
    return main.locked(lambda batch: _Gap(config, table, batch, archive=archive).fill(start, end))


class _Gap:
    def __init__(
        self, config: PipelineConfig, table: str, batch: AdminBatch, *, archive: Path | None
    ) -> None:
        (self._table,) = checked_tables(config, [table])
        tables = only_tables(config, [self._table])
        self._config = with_archive(config, archive).model_copy(update={"tables": tables})
        self._batch = batch
        self._sink = batch.sink

    def fill(self, start: Start, end: Bound) -> GapReport:
        names = self._changelogs()
        source = build_source(self._config)
        try:
            source.check()
            first = resolve_start(cursor=None, start=start, source=source).position
            last = last_of(
                self._config, end, first=first, log_end=source.end_position(), source=source
            )
            cursor = self._batch.cursor.position
            if last is None or last.order > cursor.order:
                raise ConfigError(
                    "the range must end at a position that the pipeline has passed",
                    setting="to",
                    expected=f"a journal and an offset, or a time, up to {cursor}",
                    got=as_text(end),
                    next_step="give the position where the changelog continues",
                )
            what = "the range was filled before"
            if not self._is_filled(first, last):
                for name in names:
                    self._check_empty(name, first, last)
                parts = self._staged(source, first, last)
                record = self._record(parts, names, first, last)
                if record is not None:
                    return self._commit(record, first, last)
                what = "the range has no change of the table"
        finally:
            source.close()
        return self._report("nothing_new", what, first, last, dict.fromkeys(names, 0))

    def _changelogs(self) -> list[str]:
        cut = self._batch.cut
        routes = Routes(self._config).of_table(*split_table_name(self._table))
        tables = {} if cut is None else cut.tables
        names = [
            route.target
            for route in routes
            if route.target in tables and MODES[tables[route.target].spec.mode].rows_are_changes
        ]
        if not names or cut is None:
            raise ConfigError(
                f"{self._table} has no changelog in the lake, and old changes can be added to no "
                "other kind of target",
                setting="table",
                expected="a target of mode changelog",
                next_step="rebuild the table (--rebuild), or replay the range into a "
                "separate lake (--into)",
            )
        for name in names:
            if cut.cursor.targets[name].suspended is not None:
                raise SnapshotError(
                    "a suspended changelog catches up by itself",
                    table=name,
                    next_step="if its journals are gone, set source.archive_directory; then "
                    "run the pipeline",
                )
        return names

    def _check_empty(self, name: str, first: Position, last: Position) -> None:
        epoch = self._batch.cursor.epoch
        low, high = (seq_of_place(epoch, at.journal, at.offset) for at in (first, last))
        rows = self._sink.rows_within(name, low=low, high=high - 1).rows
        if rows:
            raise SnapshotError(
                "the changelog already has changes of the range, which would be duplicated",
                journal=first.journal,
                offset=first.offset,
                table=name,
                expected=f"no row between {first} and {last}",
                got=f"{rows} rows",
                next_step="give only the range that is missing, or rebuild the changelog",
            )

    def _staged(self, source: Source, first: Position, last: Position) -> BatchRecord:
        config, batch = self._config, self._batch
        context = CaptureContext(
            self._sink, MemoryCursorStore(batch.cursor), run_id=batch.run_id, config=config
        )
        run = LogRange(first, last, ends_anywhere=True, epoch=batch.cursor.epoch)
        session = open_session(
            context,
            ReadRange(run, source, TableFilter(config), batch.cursor),
            targets=Targets(config, batch.cut),
            parking=self._sink.parking(epoch=batch.cursor.epoch),
            begin=lambda _number: batch.rows,
        )
        committer = SegmentCommitter(context, session)
        try:
            Drain(context, session, committer).run()
        except TransactionError as error:
            raise SnapshotError(
                "the range cannot be appended as it is",
                journal=first.journal,
                offset=first.offset,
                table=self._table,
                got=error.what,
                next_step="give a range between two statements that change the table, or "
                "replay it with --into",
            ) from error
        assert committer.part is not None  # a range that ends well has one
        return committer.part

    def _record(
        self, part: BatchRecord, names: list[str], first: Position, last: Position
    ) -> BatchRecord | None:
        cursor = self._batch.cursor
        targets = [target for target in part.targets if target.table in names]
        if not targets:
            return None
        if part.quarantine or any(target.create for target in targets):
            raise SnapshotError(
                "changes of the range do not fit the changelog",
                table=self._table,
                expected="rows that can be applied, with the changelog's columns",
                next_step="replay the range into a separate lake (--into), and examine it there",
            )
        number = cursor.batch_number + 1
        notes = [
            Note(
                kind=GAP_FILLED_NOTE,
                text=f"{target.rows_inserted + target.rows_updated + target.rows_deleted} changes "
                f"between {first} and {last} were appended",
                journal=first.journal,
                offset=first.offset,
                table=target.table,
            )
            for target in targets
        ]
        return part.model_copy(
            update={
                "kind": "replay",
                "run_id": self._batch.run_id,
                "start": cursor.position,
                "interval": Interval(start=cursor.position, end=cursor.position),
                "cursor_after": cursor.model_copy(update={"batch_number": number}),
                "source_time_us": -1 if self._batch.cut is None else self._batch.cut.source_time_us,
                "targets": tuple(target.model_copy(update={"exact": False}) for target in targets),
                "dropped": (),
                "ddl": (),
                "notes": tuple(notes),
            }
        )

    def _commit(self, record: BatchRecord, first: Position, last: Position) -> GapReport:
        filled = _Filled(
            table=self._table,
            start=first,
            end=last,
            batch_number=record.batch_number,
            at_us=now_us(),
        )
        self._write_down(filled, first, last)
        cut = self._batch.finish(self._batch.rows.put(record))
        self._write_down(filled.model_copy(update={"is_done": True}), first, last)
        rows = {target.table: cut.tables[target.table].row_changes for target in record.targets}
        return self._report(
            "applied", "the changes of the range were appended", first, last, rows, cut.batch_number
        )

    def _is_filled(self, first: Position, last: Position) -> bool:
        mark = self._mark(first, last)
        if not storage_of(mark).exists(mark):
            return False
        filled = _Filled.model_validate_json(read_json(mark))
        if filled.is_done:
            return True
        if not self._sink.paths.cut(filled.batch_number).exists():
            # never finished, or long ago by another run: the changelog's own rows decide
            return False
        notes = self._sink.read_cut(filled.batch_number).notes
        if not any(
            note.kind == GAP_FILLED_NOTE and note.table in self._changelogs() for note in notes
        ):
            return False
        self._write_down(filled.model_copy(update={"is_done": True}), first, last)
        return True

    def _write_down(self, filled: _Filled, first: Position, last: Position) -> None:
        replace_file(self._mark(first, last), filled.model_dump_json(indent=1).encode())

    def _mark(self, first: Position, last: Position) -> Path:
        text = f"{self._table} {first} {last} {self._batch.cursor.epoch}"
        return (
            self._sink.paths.state
            / "gaps"
            / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        )

    def _report(
        self,
        outcome: Literal["applied", "nothing_new"],
        reason: str,
        first: Position,
        last: Position,
        rows: dict[str, int],
        cut: int = -1,
    ) -> GapReport:
        return GapReport(
            source=self._config.name,
            outcome=outcome,
            reason=reason,
            table=self._table,
            start=first,
            end=last,
            rows=rows,
            cut=cut,
        )
