"""Fill a side lake from an archive in parallel, one journal a task on executors (K18).

    survey the journals | pieces: stretches, and what is read in sequence | waves of a stretch ->
    one batch each

Rules:
- The result equals that of sequential reading, seq by seq (K1). A wave's tasks begin at one cut,
  stage what sequential reading would stage, and are recorded as one batch that acts like any other
  (K2). The driver holds the lake's lock.
- Whatever cannot be decoded apart is read in sequence by an ordinary capture, and the report says
  why. Only speed depends on that choice: if a task refuses, the capture reads its stretch and
  reports what is wrong, if anything is.
- Secrets of masks never leave the driver: chosen tables with hashed columns are read in sequence
  (K14).
- A killed backfill resumes at the lake's cursor, in parallel or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import (
    ArchiveSourceConfig,
    PipelineConfig,
    PositionConfig,
    StoreConfig,
)
from cdc_pipeline.errors import CdcError, ConfigError, TargetSuspendedError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.backfill.join import joined_cursor, joined_interval, joined_record
from cdc_pipeline.pipeline.backfill.pieces import Piece, Segment, pieces
from cdc_pipeline.pipeline.backfill.segment import (
    SegmentResult,
    SegmentTask,
    WaveInputs,
    segment_task,
)
from cdc_pipeline.pipeline.backfill.survey import JournalSurvey, SurveyRange, survey_task
from cdc_pipeline.pipeline.plan.reconcile import reconcile
from cdc_pipeline.pipeline.publish import cursor_metadata, publish
from cdc_pipeline.pipeline.side_lake import SideLake
from cdc_pipeline.pipeline.targets.routes import Routes
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.executed import complete
from cdc_pipeline.sink.spark.journal_tasks import run_tasks
from cdc_pipeline.source.archive.archive import ArchiveSource, journal_files
from cdc_pipeline.text.table_names import split_table_name

_REASONS_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a range is divided.

    Attributes:
        stretch_bytes_min: a smaller stretch of journals is read in sequence.
        wave_bytes: journals that become one batch.
    """

    stretch_bytes_min: int = 16 << 20
    wave_bytes: int = 8 << 30


class ParallelReport(BaseModel):
    """Result of the parallel part.

    Attributes:
        bytes_parallel, bytes_sequential: of the journals.
        tasks, batches: of the parallel part.
        one_after_the_other: why parts were not decoded in parallel, each with the place where it
            ends.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes_parallel: int = 0
    bytes_sequential: int = 0
    tasks: int = 0
    batches: int = 0
    one_after_the_other: tuple[str, ...] = ()


def fill_in_parallel(
    lake: SideLake, *, tables: Sequence[str], parallel: Parallel
) -> ParallelReport:
    """Bring a side lake near the end of its range; an ordinary capture does the rest.

    Args:
        lake: of an archive, with start and end fixed.
        tables: the chosen ones.

    Raises:
        ConfigError: the range is not that of an archive.
        CdcError: see `capture`.
    """
    run = _Parallel(lake, parallel)
    run.fill(tables)
    return run.report()


class _Parallel:
    def __init__(self, lake: SideLake, parallel: Parallel) -> None:
        config = lake.config
        if not isinstance(config.source, ArchiveSourceConfig):
            raise ConfigError(
                "only archives can be decoded in parallel",
                setting="parallel",
                expected="a directory of journals",
                got="a running server",
                next_step="name the directory with --archive, or omit --parallel",
            )
        self._config = config
        self._directory = config.source.directory
        self._lake = lake
        self._parallel = parallel
        self._sink = lake.sink
        self._archive = ArchiveSource(
            self._directory, unpacked_bytes_max=config.source.unpacked_bytes_max
        )
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

    def fill(self, tables: Sequence[str]) -> None:
        refused = self._why_not(tables)
        if refused:
            self._reasons.append(refused)
            return
        try:
            # nothing to read: it finishes what was recorded, and leaves a cursor
            self._lake.capture(self._stands_at())
            for piece in self._pieces():
                for wave in _waves(piece.segments, self._parallel.wave_bytes):
                    self._wave(wave)
                if not piece.segments:
                    self._one_after_the_other(piece.journal, piece.stop, why=piece.why)
        except TargetSuspendedError as error:
            self._reasons.append(f"{error.what}: the rest, for the tables that continue")

    def _stands_at(self) -> PositionConfig:
        """Return the side lake's cursor, once what was recorded is finished."""
        pending, start = self._sink.pending_record(), self._config.start
        assert isinstance(start, PositionConfig)
        known = reconcile(self._lake.cursors.read(), self._sink.last_cut()).cursor
        at = pending.cursor_after if pending is not None else known
        return start if at is None else PositionConfig(journal=at.journal, offset=at.offset)

    def _why_not(self, tables: Sequence[str]) -> str:
        """Return why nothing can be decoded in parallel; "" if something can."""
        if not isinstance(self._config.bound, PositionConfig) or not isinstance(
            self._config.start, PositionConfig
        ):
            return "the range does not lie between two positions of the journals"
        routes = Routes(self._config)
        for name in tables:
            for route in routes.of_table(*split_table_name(name)):
                if any(mask.kind == "hash" for mask in route.rule.masks.values()):
                    return f"{name} has hashed columns, whose salt must not leave this process"
        return ""

    def _pieces(self) -> list[Piece]:
        """Return the pieces between the cursor and the end."""
        end, cursor = self._config.bound, self._lake.cursor
        assert isinstance(end, PositionConfig)
        first, last = journal_number(cursor.journal), journal_number(end.journal)
        files = [
            file
            for file in journal_files(self._directory)
            if first <= journal_number(file.name) <= last
        ]
        numbers = [journal_number(file.name) for file in files]
        if numbers != list(range(first, last + 1)) or cursor.position.order >= (last, end.offset):
            # a journal is missing, which the capture reports; or there is nothing to read
            return []
        looks = [
            SurveyRange(
                path=str(file),
                start=cursor.offset if number == first else 4,
                stop=end.offset if number == last else None,
            )
            for number, file in zip(numbers, files, strict=True)
        ]
        followed = tuple(
            sorted({name for state in cursor.targets.values() for name in state.source_names})
        )
        work = partial(survey_task, config=self._shipped(), followed=followed)
        texts = run_tasks(
            self._sink.spark.session(), [part.model_dump_json() for part in looks], work
        )
        surveys = [JournalSurvey.model_validate_json(text) for text in texts]
        if not surveys:
            return []
        return pieces(surveys, stretch_bytes_min=self._parallel.stretch_bytes_min)

    def _one_after_the_other(self, journal: str, stop: int, *, why: str) -> None:
        self._reasons.append(f"up to {journal}:{stop}: {why}")
        before = self._lake.cursor.position
        self._lake.capture(PositionConfig(journal=journal, offset=stop))
        after = self._lake.cursor.position
        if before.journal == after.journal:
            self._bytes[False] += after.offset - before.offset
        else:
            sizes = {
                journal_number(info.journal): info.size_bytes for info in self._archive.journals()
            }
            between = sum(sizes.get(number, 0) for number in range(before.order[0], after.order[0]))
            self._bytes[False] += between - before.offset + after.offset

    def _wave(self, segments: Sequence[Segment]) -> None:
        """Return segments that become one batch."""
        with self._sink.lock():
            refused = self._try(segments)
        if refused:
            last = segments[-1]
            self._one_after_the_other(last.journal, last.stop, why=refused)

    def _try(self, segments: Sequence[Segment]) -> str:
        """Decode and commit a wave; return why it cannot be done, or ""."""
        sink, before = self._sink, self._lake.cursor
        cut = sink.last_cut()
        if cut is not None and cut.cursor.batch_number != before.batch_number:
            return "cursor and cut disagree"
        if before.open_xa or before.suspended:
            return "a prepared XA transaction or a suspended table"
        number = before.batch_number + 1
        batch = sink.begin(number)
        results = self._decoded(segments, cut, before, number)
        refused = next((result.refused for result in results if result.refused), "")
        if refused:
            return refused
        try:
            cursor = joined_cursor(before, results, number=number)
            has_work = (
                any(result.record is not None for result in results)
                or cursor.targets != before.targets
            )
            if not has_work:
                self._move(before, results)
                return ""
            record = joined_record(
                results,
                source=self._config.name,
                cursor=cursor,
                start=before.position,
                run_id=self._lake.run_id,
            )
        except CdcError as error:
            return error.what
        batch.put(record)
        self._lake.observer.merging()
        cut = sink.finish(record)
        publish(cut, sink=sink, cursors=self._lake.cursors, observer=self._lake.observer)
        self._bytes[True] += sum(segment.size_bytes for segment in segments)
        self._tasks += len(segments)
        self._batches += 1
        return ""

    def _decoded(
        self, segments: Sequence[Segment], cut: Cut | None, cursor: CursorState, number: int
    ) -> list[SegmentResult]:
        inputs = WaveInputs(
            config=self._shipped(),
            directory=self._directory,
            cut="" if cut is None else cut.model_dump_json(),
            cursor=cursor.model_dump_json(),
            identity=self._archive.identity,
            uses_gtids=self._archive.uses_gtids,
            number=number,
            epoch=cursor.epoch,
        )
        last = segments[-1]
        # Only the last one's end becomes a cursor, which contains the executed GTIDs.
        at, _ = complete(self._archive, Position(last.journal, last.start))
        tasks = [
            SegmentTask(journal=one.journal, start=one.start, stop=one.stop)
            for one in segments[:-1]
        ]
        tasks.append(
            SegmentTask(
                journal=last.journal,
                start=last.start,
                stop=last.stop,
                gtid_set=at.gtid_set,
                journal_created_s=at.journal_created_s,
            )
        )
        work = partial(segment_task, inputs=inputs)
        texts = run_tasks(
            self._sink.spark.session(), [task.model_dump_json() for task in tasks], work
        )
        return [SegmentResult.model_validate_json(text) for text in texts]

    def _move(self, before: CursorState, results: Sequence[SegmentResult]) -> None:
        """No target changes: only the cursor moves."""
        cursor = joined_cursor(before, results, number=before.batch_number)
        interval = joined_interval(results, start=before.position, end=cursor.position)
        self._lake.cursors.write(cursor, cursor_metadata(interval, None))
        self._sink.discard_unrecorded()

    def _shipped(self) -> PipelineConfig:
        """Return the executors' configuration: events stay in memory, and it holds no salt."""
        store: StoreConfig = self._config.store.model_copy(update={"kind": "memory"})
        rules = tuple(
            rule.model_copy(update={"masks": {}})
            if any(mask.kind == "hash" for mask in rule.masks.values())
            else rule
            for rule in self._config.targets
        )
        return self._config.model_copy(update={"store": store, "targets": rules})


def _waves(segments: Sequence[Segment], wave_bytes: int) -> Iterator[list[Segment]]:
    """Group consecutive segments to about so many bytes."""
    wave: list[Segment] = []
    for segment in segments:
        if wave and sum(one.size_bytes for one in wave) + segment.size_bytes > wave_bytes:
            yield wave
            wave = []
        wave.append(segment)
    if wave:
        yield wave
