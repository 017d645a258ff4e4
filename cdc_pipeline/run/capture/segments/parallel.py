"""Read an archived part of the log on executors, one segment of a journal a task.

    survey the journals | pieces: stretches, and what is read in sequence | waves of a stretch ->
    one batch each

A task runs the stages of this process over its own segment, from its own file (`segment.py`). The
driver plans, joins the staged files to a record, and publishes; it reads no row.

Rules:
- The result equals that of sequential reading, seq by seq (K1). A wave's tasks begin at one cut,
  stage what sequential reading would stage, and are recorded as one batch that acts like any other
  (K2). Nothing of the record refers to the archive: the batch can be finished when its journals
  have been removed or replaced.
- Whatever cannot be decoded apart, and a stretch of which a task refuses, is read in sequence, by
  this process, and the report says why.
- Secrets never leave this process: tasks get neither the account of the source nor the salts of
  hashed columns (K14).
- The schema history is written before the record, with what the tasks learned from table maps, in
  the order of the log.
- Staged files are there for this process before a record names them: executors on another machine
  may have a folder of their own under the lake's path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.records import BatchRecord, Note
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.run.capture.capture_session import CaptureContext
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.run.capture.in_sequence import read_in_sequence
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.run.capture.segments.join import joined
from cdc_pipeline.run.capture.segments.pieces import TOO_LITTLE, pieces
from cdc_pipeline.run.capture.segments.segment import (
    SegmentResult,
    WaveInputs,
    decode_segment,
    hashed_table,
    shipped,
    task_of,
)
from cdc_pipeline.run.capture.segments.survey import JournalSurvey, Segment, survey
from cdc_pipeline.run.capture.summary import RunState
from cdc_pipeline.run.decode.schemas import schemas_of
from cdc_pipeline.run.plan.resolved_run import ResolvedRun, bytes_between
from cdc_pipeline.run.plan.server_switch import history_writer
from cdc_pipeline.run.publish import start_metadata
from cdc_pipeline.run.report import ParallelReport
from cdc_pipeline.source.archive.files import journal_files
from cdc_pipeline.source.protocol import ArchivedPart, Source

_REASONS_KEPT: Final = 20
_Result = TypeVar("_Result", JournalSurvey, SegmentResult)


def read_in_parallel(
    context: CaptureContext,
    state: RunState,
    run: ResolvedRun,
    *,
    source: Source,
    parallel: Parallel,
) -> RunState:
    """On executors where that is possible, in sequence elsewhere."""
    config = context.config
    if run.plan.bytes_between < parallel.stretch_bytes_min:  # which starts no JVM for nothing
        state = read_in_sequence(context, state, run, source=source)
        return replace(state, parallel=ParallelReport(one_after_the_other=(TOO_LITTLE,)))
    archived = source.archived(run.start, run.end)
    why, wanted = _why_not(config, run, archived, source.identity.flavor), config.batch.decode
    lack = why or context.sink.tables.executor_refusal()
    if lack or archived is None:
        text = f"{lack}; all rows are decoded in the driver (batch.decode: {wanted})"
        # With `auto` it is the configuration's own choice, unless the executors are at fault.
        is_odd = wanted == "executors" or not why
        notes = [Note(kind="decoded_in_driver", text=text)] if is_odd else []
        state = read_in_sequence(context, state, run, source=source, notes=notes)
        return replace(state, parallel=ParallelReport(one_after_the_other=(lack,)))
    reading = _Reading(context, run, source=source, archived=archived, parallel=parallel)
    return replace(reading.read(state), parallel=reading.report())


def _why_not(
    config: PipelineConfig, run: ResolvedRun, archived: ArchivedPart | None, flavor: Flavor
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
        self._config = shipped(context.config, archived.directory, source.identity.names)
        self._at = run.start
        self._has_moved = False
        self._counts: Counter[str] = Counter()
        self._reasons: list[str] = []

    def report(self) -> ParallelReport:
        reasons, more = self._reasons[:_REASONS_KEPT], len(self._reasons) - _REASONS_KEPT
        if more > 0:
            reasons.append(f"and {more} more")
        return ParallelReport(**self._counts, one_after_the_other=tuple(reasons))

    def read(self, state: RunState) -> RunState:
        surveys = self._surveys(state)
        for piece in pieces(surveys, stretch_bytes_min=self._parallel.stretch_bytes_min):
            for wave in _waves(piece.segments, self._parallel.wave_bytes):
                done = self._wave(state, wave)
                if isinstance(done, RunState):
                    state = self._moved(done)
                else:
                    stop = Position(wave[-1].journal, wave[-1].stop)
                    state = self._one_after_the_other(state, stop, why=done)
            if not piece.segments:
                state = self._one_after_the_other(state, piece.stop, why=piece.why)
        if self._at.order < self._run.end.order and not state.read.limit_reached:
            # The last event of a journal, and what only the server has.
            state = self._in_sequence(state, self._section(None))
        return state

    # -- what is read where ------------------------------------------------------------------------

    def _on_executors(
        self, segments: Iterable[Segment], work: Callable[[Segment], _Result], result: type[_Result]
    ) -> list[_Result]:
        tasks = [segment.model_dump_json() for segment in segments]
        texts = self._context.sink.tables.run_tasks(tasks, partial(task_of, work=work))
        return [result.model_validate_json(text) for text in texts]

    def _surveys(self, state: RunState) -> list[JournalSurvey]:
        start, end = self._at, self._archived.end
        first, last = journal_number(start.journal), journal_number(end.journal)
        names = {
            number: file.name
            for file in journal_files(self._archived.directory)
            if first <= (number := journal_number(file.name)) <= last
        }
        if list(names) != list(range(first, last + 1)) or start.order >= end.order:
            return []  # a journal is missing, or nothing is left: reading in sequence says so
        journals = [
            Segment(
                journal=name,
                start=start.offset if number == first else 4,
                stop=end.offset if number == last else 0,
            )
            for number, name in names.items()
        ]
        targets = {} if state.cursor is None else state.cursor.targets
        work = partial(
            survey,
            directory=self._archived.directory,
            config=self._config,
            names=self._source.identity.names,
            followed={name for target in targets.values() for name in target.source_names},
        )
        return self._on_executors(journals, work, JournalSurvey)

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

    def _one_after_the_other(self, state: RunState, stop: Position, *, why: str) -> RunState:
        self._reasons.append(f"up to {stop.journal}:{stop.offset}: {why}")
        before = self._at
        section = self._section(stop)
        if before.order < section.end.order:
            state = self._in_sequence(state, section)
        passed = bytes_between(self._source.journals(since=before), before, self._at)
        self._counts["bytes_sequential"] += passed
        return state

    # -- a wave ------------------------------------------------------------------------------------

    def _wave(self, state: RunState, segments: Sequence[Segment]) -> RunState | str:
        context, source = self._context, self._source
        before = state.cursor or cursor_state(
            context.config.name, source.identity, self._at, epoch=self._run.epoch
        )
        if before.open_xa or before.suspended:
            return "a prepared XA transaction or a suspended table"
        batch = context.sink.begin(before.batch_number + 1)
        inputs = WaveInputs(
            config=self._config,
            directory=self._archived.directory,
            cut="" if state.cut is None else state.cut.model_dump_json(),
            cursor="" if state.cursor is None else state.cursor.model_dump_json(),
            identity=source.identity,
            uses_gtids=source.uses_gtids,
            number=before.batch_number + 1,
            epoch=self._run.epoch,
        )
        work = partial(decode_segment, inputs=inputs)
        results = self._on_executors(segments, work, SegmentResult)
        refused = next((result.refused for result in results if result.refused), "")
        if refused:
            return refused
        try:
            record = joined(before, results, run_id=context.run_id, keeps_gtids=source.uses_gtids)
        except CdcError as error:
            return error.what
        missing = _missing(record, context)
        if missing:
            return f"executors staged {missing} where this process does not find it"
        self._save_schemas(state, results, source_time_us=record.source_time_us)
        metadata = start_metadata(self._run.plan.start_reasons)
        has_rows = record.targets or record.quarantine
        if not has_rows and record.cursor_after.targets == before.targets:
            update = {"batch_number": before.batch_number}
            cursor = record.cursor_after.model_copy(update=update)
            context.move(cursor, record.interval, metadata)
            context.sink.discard_unrecorded()
            state.main.moved(record.interval, (), ())
            return replace(state, cursor=cursor)
        batch.put(record)
        cut = context.finish(record, metadata)
        state.main.add(cut)
        size_bytes = sum(segment.size_bytes for segment in segments)
        self._counts.update(bytes_parallel=size_bytes, tasks=len(segments), batches=1)
        done = state.main.interval
        context.observer.progressed(
            bytes_done=self._counts["bytes_parallel"] + self._counts["bytes_sequential"],
            bytes_total=self._run.plan.bytes_between,
            transactions=0 if done is None else done.transactions_seen,
            rows=state.main.rows,
        )
        # What a session knew before is older than what was saved here.
        return replace(state, cut=cut, cursor=cut.cursor, schemas=None)

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
        for observed in (table for result in results for table in result.observed):
            schemas.observed(observed.table(), observed.journal, observed.offset)
        schemas.save(cursor, source_time_us=source_time_us)


def _missing(record: BatchRecord, context: CaptureContext) -> str:
    """A staged file of a record that is not there; "" if all of them are."""
    lake = context.sink.paths.lake
    files = [file for target in record.targets for file in target.files] + [*record.quarantine]
    for file in files:
        if not (lake / file.path).exists():
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
