"""Read an archived part of the log on executors, one segment of a journal a task.

    survey the journals | pieces: stretches, and what is read in sequence | waves of a stretch ->
    one batch each

A task runs the stages of this process over its own segment, from its own file: framing, checksums,
transactions, decoding, masks, shapes, staging. The driver plans, joins the staged files to a
record, and publishes; it reads no row.

Rules:
- The result equals that of sequential reading, seq by seq (K1). A wave's tasks begin at one cut,
  stage what sequential reading would stage, and are recorded as one batch that acts like any other
  (K2). Nothing of the record refers to the archive: the batch can be finished when its journals
  have been removed or replaced.
- Whatever cannot be decoded apart is read in sequence, by this process, and the report says why.
  Only speed depends on that choice: if a task refuses, its stretch is read in sequence, which
  reports what is wrong, if anything is.
- Secrets never leave this process: tasks get neither the account of the source nor the salts of
  hashed columns (K14).
- The schema history is written before the record, with what the tasks learned from table maps, in
  the order of the log.
- Staged files are there for this process before a record names them: executors on another machine
  may have a folder of their own under the lake's path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, PipelineConfig, StoreConfig
from cdc_pipeline.config.target_config import HashMask
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.records import BatchRecord, Note
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.run.capture.capture_session import CaptureContext
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.run.capture.in_sequence import read_in_sequence
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.run.capture.segments.join import (
    joined_cursor,
    joined_interval,
    joined_record,
)
from cdc_pipeline.run.capture.segments.pieces import TOO_LITTLE, Segment, pieces
from cdc_pipeline.run.capture.segments.segment import (
    SegmentResult,
    WaveInputs,
    segment_task,
)
from cdc_pipeline.run.capture.segments.survey import JournalSurvey, SurveyRange, survey_task
from cdc_pipeline.run.capture.summary import RunState
from cdc_pipeline.run.decode.schemas import schemas_of
from cdc_pipeline.run.plan.planning import bytes_between
from cdc_pipeline.run.plan.resolved_run import ResolvedRun
from cdc_pipeline.run.plan.server_switch import history_writer
from cdc_pipeline.run.publish import start_metadata
from cdc_pipeline.run.report import ParallelReport
from cdc_pipeline.source.archive.archive import ArchiveSource, journal_files
from cdc_pipeline.source.protocol import ArchivedPart, Source
from cdc_pipeline.targets.masks import without_salts
from cdc_pipeline.targets.routes import Routes

_REASONS_KEPT: Final = 20


def read_in_parallel(
    context: CaptureContext,
    state: RunState,
    run: ResolvedRun,
    *,
    source: Source,
    parallel: Parallel,
) -> tuple[RunState, ParallelReport]:
    """On executors where that is possible, in sequence elsewhere."""
    config = context.config
    if run.plan.bytes_between < parallel.stretch_bytes_min:  # which starts no JVM for nothing
        state = read_in_sequence(context, state, run, source=source)
        return state, ParallelReport(one_after_the_other=(TOO_LITTLE,))
    archived = source.archived(run.start, run.end)
    flavor = source.identity.flavor
    why, wanted = _why_not(config, run, archived, flavor=flavor), config.batch.decode
    lack = why or context.sink.executor_refusal()
    if lack or archived is None:
        text = f"{lack}; all rows are decoded in the driver (batch.decode: {wanted})"
        # With `auto` it is the configuration's own choice, unless the executors are at fault.
        is_odd = wanted == "executors" or not why
        notes = [Note(kind="decoded_in_driver", text=text)] if is_odd else []
        state = read_in_sequence(context, state, run, source=source, notes=notes)
        return state, ParallelReport(one_after_the_other=(lack,))
    reading = _Reading(context, run, source=source, archived=archived, parallel=parallel)
    return reading.read(state), reading.report()


def _why_not(
    config: PipelineConfig, run: ResolvedRun, archived: ArchivedPart | None, *, flavor: Flavor
) -> str:
    """Why nothing of a run can be read on executors; "" if something can."""
    if archived is None:
        return "the log is read from a server, whose journals no executor can read"
    if archived.start.order != run.start.order:
        return "the archive and the server count the start differently"
    if run.limit is not None:
        return "the run ends at a limit that only reading in sequence finds"
    if run.turns_to_another_server or run.overlap_until_us is not None:
        return "the run begins to read another server's log"
    if history_writer(config, start=run.start, end=run.end, flavor=flavor) is not None:
        return "the log has no GTIDs, so that hashes of its last transactions are kept"
    return hashed_table(config, run.plan.tables)


def hashed_table(config: PipelineConfig, tables: Sequence[str]) -> str:
    """A sentence that names a table with hashed columns; "" if none has."""
    routes = Routes(config)
    for name in tables:
        for route in routes.of_table(name):
            if any(isinstance(mask, HashMask) for mask in route.rule.masks.values()):
                return f"{name} has hashed columns, whose salt must not leave this process"
    return ""


class _Reading:
    def __init__(
        self,
        context: CaptureContext,
        run: ResolvedRun,
        *,
        source: Source,
        archived: ArchivedPart,
        parallel: Parallel,
    ) -> None:
        self._context = context
        self._run = run
        self._source = source
        self._archived = archived
        self._parallel = parallel
        self._archive = ArchiveSource(
            archived.directory,
            unpacked_bytes_max=context.config.source.unpacked_bytes_max,
            names=source.identity.names,
        )
        self._at = run.start
        self._has_moved = False
        self._bytes = {True: 0, False: 0}
        self._tasks = self._batches = 0
        self._reasons: list[str] = []

    def report(self) -> ParallelReport:
        reasons = tuple(self._reasons[:_REASONS_KEPT])
        if len(self._reasons) > _REASONS_KEPT:
            reasons += (f"and {len(self._reasons) - _REASONS_KEPT} more",)
        return ParallelReport(
            bytes_parallel=self._bytes[True],
            bytes_sequential=self._bytes[False],
            tasks=self._tasks,
            batches=self._batches,
            one_after_the_other=reasons,
        )

    def read(self, state: RunState) -> RunState:
        surveys = self._surveys(state)
        all_pieces = pieces(surveys, stretch_bytes_min=self._parallel.stretch_bytes_min)
        for piece in all_pieces:
            for wave in _waves(piece.segments, self._parallel.wave_bytes):
                done = self._wave(state, wave)
                if isinstance(done, RunState):
                    state = self._moved(done)
                else:
                    last = wave[-1]
                    state = self._one_after_the_other(state, last.journal, last.stop, why=done)
            if not piece.segments:
                state = self._one_after_the_other(state, piece.journal, piece.stop, why=piece.why)
        if self._at.order < self._run.end.order and not state.read.limit_reached:
            # The last event of a journal, and what only the server has.
            state = self._in_sequence(state, self._section(None))
        return state

    # -- what is read where ------------------------------------------------------------------------

    def _surveys(self, state: RunState) -> list[JournalSurvey]:
        start, end = self._at, self._archived.end
        first, last = journal_number(start.journal), journal_number(end.journal)
        files = {
            journal_number(file.name): file
            for file in journal_files(self._archived.directory)
            if first <= journal_number(file.name) <= last
        }
        if list(files) != list(range(first, last + 1)) or start.order >= end.order:
            return []  # a journal is missing, or nothing is left: reading in sequence says so
        ranges = [
            SurveyRange(
                path=str(file),
                start=start.offset if number == first else 4,
                stop=end.offset if number == last else None,
            )
            for number, file in files.items()
        ]
        targets = {} if state.cursor is None else state.cursor.targets
        followed = {name for target in targets.values() for name in target.source_names}
        work = partial(
            survey_task,
            config=self._shipped(),
            names=self._source.identity.names,
            followed=tuple(sorted(followed)),
        )
        texts = self._context.sink.run_tasks([part.model_dump_json() for part in ranges], work)
        return [JournalSurvey.model_validate_json(text) for text in texts]

    def _section(self, end: Position | None) -> ResolvedRun:
        """The run from here up to a place, by default its own end."""
        run = self._run
        if self._has_moved:
            run = replace(run, start=self._at, decision=None)
        return run if end is None else replace(run, end=end, ends_anywhere=True)

    def _in_sequence(self, state: RunState, section: ResolvedRun) -> RunState:
        return self._moved(read_in_sequence(self._context, state, section, source=self._source))

    def _moved(self, state: RunState) -> RunState:
        if state.cursor is not None:
            self._at, self._has_moved = state.cursor.position, True
        return state

    def _one_after_the_other(
        self, state: RunState, journal: str, stop: int, *, why: str
    ) -> RunState:
        self._reasons.append(f"up to {journal}:{stop}: {why}")
        before = self._at
        section = self._section(Position(journal, stop))
        if before.order < section.end.order:
            state = self._in_sequence(state, section)
        self._bytes[False] += bytes_between(self._archive.journals(), before, self._at)
        return state

    # -- a wave ------------------------------------------------------------------------------------

    def _wave(self, state: RunState, segments: Sequence[Segment]) -> RunState | str:
        context, before = self._context, self._cursor_before(state)
        if before.open_xa or before.suspended:
            return "a prepared XA transaction or a suspended table"
        number = before.batch_number + 1
        batch = context.sink.begin(number)
        results = self._decoded(state, segments, number)
        refused = next((result.refused for result in results if result.refused), "")
        if refused:
            return refused
        keeps_gtids = self._source.uses_gtids
        try:
            cursor = joined_cursor(before, results, number=number, keeps_gtids=keeps_gtids)
            if (
                not any(result.part.targets or result.part.quarantine for result in results)
                and cursor.targets == before.targets
            ):
                return self._move(state, before, results)
            record = joined_record(
                results,
                source=context.config.name,
                cursor=cursor,
                start=before.position,
                run_id=context.run_id,
            )
        except CdcError as error:
            return error.what
        missing = _missing(record, context)
        if missing:
            return f"executors staged {missing} where this process does not find it"
        self._save_schemas(state, results, source_time_us=record.source_time_us)
        batch.put(record)
        metadata = start_metadata(self._run.plan.start_reasons)
        cut = context.merge(record)
        state.main.add(cut)
        context.publish(cut, metadata)
        self._bytes[True] += sum(segment.size_bytes for segment in segments)
        self._tasks += len(segments)
        self._batches += 1
        context.observer.progressed(
            bytes_done=self._bytes[True] + self._bytes[False],
            bytes_total=self._run.plan.bytes_between,
            transactions=0
            if state.main.interval is None
            else state.main.interval.transactions_seen,
            rows=state.main.rows,
        )
        return replace(state, cut=cut, cursor=cut.cursor)

    def _cursor_before(self, state: RunState) -> CursorState:
        if state.cursor is not None:
            return state.cursor
        return cursor_state(
            self._context.config.name, self._source.identity, self._at, epoch=self._run.epoch
        )

    def _decoded(
        self, state: RunState, segments: Sequence[Segment], number: int
    ) -> list[SegmentResult]:
        inputs = WaveInputs(
            config=self._shipped(),
            directory=self._archived.directory,
            cut="" if state.cut is None else state.cut.model_dump_json(),
            cursor="" if state.cursor is None else state.cursor.model_dump_json(),
            identity=self._source.identity,
            uses_gtids=self._source.uses_gtids,
            number=number,
            epoch=self._run.epoch,
        )
        tasks = [segment.model_dump_json() for segment in segments]
        texts = self._context.sink.run_tasks(tasks, partial(segment_task, inputs=inputs))
        return [SegmentResult.model_validate_json(text) for text in texts]

    def _move(
        self, state: RunState, before: CursorState, results: Sequence[SegmentResult]
    ) -> RunState:
        context = self._context
        self._save_schemas(state, results, source_time_us=results[-1].part.source_time_us)
        cursor = joined_cursor(
            before, results, number=before.batch_number, keeps_gtids=self._source.uses_gtids
        )
        interval = joined_interval(results, start=before.position)
        context.move(cursor, interval, start_metadata(self._run.plan.start_reasons))
        context.sink.discard_unrecorded()
        state.main.moved(interval, (), ())
        return replace(state, cursor=cursor)

    def _save_schemas(
        self, state: RunState, results: Sequence[SegmentResult], *, source_time_us: int
    ) -> None:
        cursor = state.cursor
        schemas = schemas_of(
            self._context.config,
            source=self._source,
            run=self._section(None),
            cursor=cursor,
            captured=lambda _database, _table: True,  # no catalog is read
        )
        for result in results:
            for seen in result.observed:
                schemas.observed(
                    TableSchema.from_json(seen.table_schema), seen.journal, seen.offset
                )
        schemas.save(cursor, source_time_us=source_time_us)

    def _shipped(self) -> PipelineConfig:
        """The archive as its source, events in memory, no secret of a mask."""
        config = self._context.config
        store: StoreConfig = config.store.model_copy(update={"kind": "memory"})
        source = config.source
        if not isinstance(source, ArchiveSourceConfig):
            source = ArchiveSourceConfig(
                kind="archive",
                directory=self._archived.directory,
                lower_case_table_names=self._source.identity.names.value,
                unpacked_bytes_max=source.unpacked_bytes_max,
            )
        rules = tuple(
            rule.model_copy(update={"masks": without_salts(rule.masks)}) for rule in config.targets
        )
        return config.model_copy(update={"store": store, "source": source, "targets": rules})


def _missing(record: BatchRecord, context: CaptureContext) -> str:
    """A staged file of a record that is not there; "" if all of them are."""
    lake = context.sink.paths.lake
    files = [file for target in record.targets for file in target.files] + [*record.quarantine]
    for file in files:
        if not storage_of(lake / file.path).exists(lake / file.path):
            return file.path
    return ""


def _waves(segments: Sequence[Segment], wave_bytes: int) -> Iterator[list[Segment]]:
    wave: list[Segment] = []
    for segment in segments:
        if wave and sum(one.size_bytes for one in wave) + segment.size_bytes > wave_bytes:
            yield wave
            wave = []
        wave.append(segment)
    if wave:
        yield wave
