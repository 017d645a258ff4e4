"""Append the changes of a range that a changelog lacks, once (K18).

Rules:
- Only a changelog that holds no change of the range is filled: old rows conflict with nothing
  there, and nothing comes twice. They never go into a mirror or a history.
- It is one recorded batch under the source's lock, and the cursor does not move. Its rows have the
  seq of their place in the log, and a note records them.
- The number of its batch is in the operation's progress before the batch is recorded: the range is
  filled once the cut of that number has its note. The same range again, or a part of it, is nothing
  new for changelogs that the operation names and that still have as many rows of it.
- A range over a DDL of the table, or with prepared XA transactions, is refused: rows of other
  columns have no place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, Start, TimeConfig
from cdc_pipeline.errors import ConfigError, SnapshotError, TransactionError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.long_operations import (
    GAP_FILLED_NOTE,
    Operation,
    OperationFolder,
    Progress,
    claimed,
    is_appended,
    new_operation_id,
    remembered,
    unfinished,
)
from cdc_pipeline.lake.records import BatchRecord, Note, RecordedTarget
from cdc_pipeline.operations.backfill.backfill import last_of
from cdc_pipeline.operations.backfill.lake import as_text, checked_tables
from cdc_pipeline.operations.backfill.rebuild import with_archive
from cdc_pipeline.operations.side_lake import only_tables
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.position.cursor import CursorStore, MemoryCursorStore, ResumePlace
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.context import StartDecision
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.capture.capture_session import CaptureContext, open_session
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.run.capture.drain import Drain
from cdc_pipeline.run.capture.segments.segment import SegmentCommitter
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.resolved_run import LogRange
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.targets import targets_at
from cdc_pipeline.text.wording import moment_text


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
    restart: bool = False,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> GapReport:
    """Append a range's changes to those changelogs of a table that have none of it. `end` is a
    position or a time; `archive`: journals, read before the server's own; `restart`: give up what
    is unfinished of the table.

    Raises ConfigError: no changelog, or no such range; SnapshotError: the changelog has changes of
    the range, or does not fit them; CdcError: nothing was appended, or the source's next run
    finishes it.
    """
    observer = observer or RunObserver()
    main = MainLake(config, cursors, observer, run_id)
    (table,) = checked_tables(config, [table])
    config = with_archive(config, archive)
    config = config.model_copy(update={"tables": only_tables(config, [table])})
    with closing(build_source(config)) as source:
        source.check()
        decision = resolve_start(cursor=None, start=start, source=source)
        first = decision.position
        _check_reached(start, source)
        last = last_of(config, end, first=first, log_end=source.end_position(), source=source)
        epoch = main.cursor().epoch
        new = Operation(
            operation_id=new_operation_id(),
            kind="gap",
            source=config.name,
            sources=(table,),
            asked={"from": str(first), "to": str(last), "epoch": str(epoch)},
            archive="" if archive is None else str(archive.absolute()),
            cursor=cursor_state(config.name, source.identity, first, epoch=epoch),
            end=last,
        )

        def filled(folder: OperationFolder, state: Operation) -> GapReport | None:
            return main.locked(
                lambda batch: _Filling(config, folder, state, batch).fill(
                    source, decision, last, asked=as_text(end)
                )
            )

        report = None
        while report is None:  # again if a killed process had appended it: others may lack it
            with (
                claimed(
                    config,
                    "gap",
                    lambda: new,
                    matches=new.gives_up
                    if restart
                    else lambda other: not other.is_over and new.is_same(other),
                    restart=restart,
                    on_waiting=main.waiting,
                ) as (folder, state),
                folder.leaving_nothing(),
            ):
                report = filled(folder, state)
        return report


def _contains(filled: Operation, new: Operation) -> bool:
    if filled.end is None or new.end is None:
        return False
    starts, ends = filled.cursor.position.order, filled.end.order
    return (filled.sources, filled.cursor.epoch) == (new.sources, new.cursor.epoch) and (
        starts <= new.cursor.position.order and new.end.order <= ends
    )


def _check_reached(start: Start, source: Source) -> None:
    """A search by time begins at the oldest journal, whatever was before it."""
    if not isinstance(start, TimeConfig) or start.journal is not None:
        return
    oldest = source.journals()[0].journal
    created_s = source.journal_created_s(oldest)
    if start.time.timestamp() < created_s:
        raise SnapshotError(
            f"the log begins after the range does: the oldest journal, {oldest}, is younger",
            setting="from",
            expected=f"a time from {moment_text(datetime.fromtimestamp(created_s, UTC))} on",
            got=start.time.isoformat(),
            next_step="add older journals with --archive; or, if none is missing, begin at "
            f"{oldest}:4",
        )


def _seqs(epoch: int, *places: ResumePlace) -> Iterator[int]:
    return (seq_of_place(epoch, place.journal, place.offset) for place in places)


def _row_changes(target: RecordedTarget) -> int:
    return target.rows_inserted + target.rows_updated + target.rows_deleted


@dataclass(frozen=True)
class _Filling:
    config: PipelineConfig
    folder: OperationFolder
    state: Operation
    batch: AdminBatch

    @property
    def _table(self) -> str:
        return self.state.sources[0]

    def fill(
        self, source: Source, begin: StartDecision, last: Position | None, *, asked: str
    ) -> GapReport | None:
        """None: a process that was killed had appended it, which is remembered now."""
        first, cursor = begin.position, self.batch.cursor
        if (
            last is None
            or last.order > cursor.position.order
            or cursor.epoch != self.state.cursor.epoch
        ):
            raise ConfigError(
                "the range must end at a position that the pipeline has passed",
                setting="to",
                expected=f"a journal and an offset, or a time, up to {cursor.position}",
                got=asked,
                next_step="give the position where the changelog continues",
            )
        names = self._changelogs()
        if is_appended(self.config, self.state, self.folder.read_progress()):
            self.folder.finish(self.state)
            return None
        for folder, other in unfinished(self.config, self.batch.cut):
            if other.kind == "gap" and is_appended(self.config, other, folder.read_progress()):
                folder.finish(other)  # of another range: its process was killed
        over = [each for each in remembered(self.config, "gap") if _contains(each, self.state)]
        left = [name for name in names if not any(self._has_rows(name, each) for each in over)]
        if not left:
            self.folder.forget()
            return self._report("the range was filled before", dict.fromkeys(names, 0))
        for name in left:
            self._check_empty(name, first, last)
        targets = self._fitting(self._staged(source, begin, last), left)
        rows = dict.fromkeys(left, 0) | {each.table: _row_changes(each) for each in targets}
        state = self.state.model_copy(update={"filled": rows})
        rows = dict.fromkeys(names, 0) | rows
        if not targets:
            self.folder.finish(state)
            return self._report("the range has no change of the table", rows)
        self.folder.change(state)
        self.folder.write_progress(0, Progress(batch_number=self.batch.number))
        between = f"changes between {first} and {last} were appended by {state.operation_id}"
        at = {"journal": first.journal, "offset": first.offset}
        notes = [
            Note(kind=GAP_FILLED_NOTE, text=f"{_row_changes(of)} {between}", table=of.table, **at)
            for of in targets
        ]
        cut = self.batch.publish(kind="replay", notes=notes, part=targets)
        self.folder.finish(state)
        return self._report("the changes of the range were appended", rows, cut.batch_number)

    def _changelogs(self) -> list[str]:
        cut = self.batch.cut
        routes = Routes(self.config).of_table(self._table)
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
        epoch = self.batch.cursor.epoch
        low, high = _seqs(epoch, first, last)
        rows = self.batch.sink.tables.rows_within(name, low=low, high=high - 1).rows
        if rows:
            raise SnapshotError(
                "the changelog already has changes of the range, which would be duplicated",
                at=first,
                table=name,
                expected=f"no row between {first} and {last}",
                got=f"{rows} rows",
                next_step="give only the range that is missing, or rebuild the changelog",
            )
        # Another server's log before this one may have had the same transactions, at other places.
        begin = seq_of_place(epoch, "journal.000000", 0)
        if epoch > 1 and not self.batch.sink.tables.rows_within(name, low=begin, high=low).rows:
            earlier = self.batch.sink.tables.rows_within(name, low=0, high=begin - 1).rows
            if earlier:
                raise SnapshotError(
                    "the range begins before the changelog's first change from this server's log, "
                    "and may hold what was captured from another server",
                    at=first,
                    table=name,
                    expected="a range behind a change that was captured from this server",
                    got=f"{earlier} rows from the logs of earlier servers",
                    next_step="rebuild the changelog (--rebuild), or replay the range into a "
                    "separate lake (--into)",
                )

    def _staged(self, source: Source, begin: StartDecision, last: Position) -> BatchRecord:
        config, batch, first = self.config, self.batch, begin.position
        context = CaptureContext(
            batch.sink, MemoryCursorStore(batch.cursor), run_id=batch.run_id, config=config
        )
        run = LogRange(first, last, ends_anywhere=True, decision=begin, epoch=batch.cursor.epoch)
        session = open_session(
            context,
            run,
            source,
            batch.cursor,
            targets=targets_at(config, batch.cut),
            parking=self.batch.sink.parking(epoch=batch.cursor.epoch),
            begin=lambda _number: batch.rows,
        )
        committer = SegmentCommitter(context, session)
        try:
            Drain(context, session, committer).run()
        except TransactionError as error:
            raise SnapshotError(
                "the range cannot be appended as it is",
                at=first,
                table=self._table,
                got=error.what,
                next_step="give a range between two statements that change the table, or "
                "replay it with --into",
            ) from error
        assert committer.part is not None  # a range that ends well has one
        return committer.part

    def _fitting(self, part: BatchRecord, names: list[str]) -> list[RecordedTarget]:
        targets = [
            target.model_copy(update={"exact": False})
            for target in part.targets
            if target.table in names
        ]
        if targets and (part.quarantine or any(target.create for target in targets)):
            raise SnapshotError(
                "changes of the range do not fit the changelog",
                table=self._table,
                expected="rows that can be applied, with the changelog's columns",
                next_step="replay the range into a separate lake (--into), and examine it there",
            )
        return targets

    def _has_rows(self, name: str, filled: Operation) -> bool:
        """By the changelog's own rows: it may have been created again since."""
        if name not in filled.filled or filled.end is None:
            return False
        low, high = _seqs(filled.cursor.epoch, filled.cursor.position, filled.end)
        rows = self.batch.sink.tables.rows_within(name, low=low, high=high - 1).rows
        return rows >= filled.filled[name]

    def _report(self, reason: str, rows: dict[str, int], cut: int = -1) -> GapReport:
        assert self.state.end is not None
        return GapReport(
            source=self.config.name,
            outcome="nothing_new" if cut < 0 else "applied",
            reason=reason,
            table=self._table,
            start=self.state.cursor.position,
            end=self.state.end,
            rows=rows,
            cut=cut,
        )
