"""Rebuild a table from history (K18): replay its journals beside it, then replace it.

    capture -> side lake at the begin of the range -> replayed to the main cursor -> swapped in at a
    cut -> removed

Rules:
- The range begins before the table's CREATE TABLE, so that all of its contents are known. A table
  that would be partial is refused, with what to do. The range ends at the main cursor: nothing is
  missing, and nothing comes twice.
- The swap is that of a snapshot (`operations/snapshot/swap.py`). Histories and changelogs are
  replaced as a whole as well, because the log contains all of them.
- The table's application id shows from which range it was rebuilt; it is not rebuilt from that
  again unless requested.
- Rows of another numbering of the log (K1) belong to another server: the range uses the numbering
  of the main cursor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import (
    LiveSourceConfig,
    PipelineConfig,
    PositionConfig,
    Start,
)
from cdc_pipeline.errors import ConfigError, SnapshotError, TargetSuspendedError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.long_operations import (
    Operation,
    OperationFolder,
    begin,
    claim,
    new_operation_id,
    operations_lock,
)
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.operations.backfill.lake import (
    archive_of,
    as_text,
    checked_tables,
    parallel_without_archive,
)
from cdc_pipeline.operations.side_lake import SideLake
from cdc_pipeline.operations.snapshot.finish import Finish
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.side import SnapshotLake, side_config
from cdc_pipeline.position.cursor import CursorState, CursorStore, ResumePlace
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.needs_snapshot import TableChoice, choose, joining
from cdc_pipeline.run.report import ParallelReport
from cdc_pipeline.run.wiring import build_sink, build_source


class RebuiltTarget(FrozenModel):
    """`rows`: -1 if unknown; `cut`: the first that has the new content, as `delta_version`."""

    sources: tuple[str, ...]
    rows: int
    delta_version: int
    cut: int


class RebuildReport(FrozenModel):
    """`end` is the main cursor at the swap; `resumed`: an earlier process had begun it."""

    source: str
    outcome: Literal["rebuilt", "nothing_new"]
    reason: str
    tables: tuple[str, ...]
    targets: dict[str, RebuiltTarget] = Field(default_factory=dict)
    start: ResumePlace | None = None
    end: ResumePlace | None = None
    resumed: bool = False
    notes: tuple[Note, ...] = ()
    parallel: ParallelReport | None = None


def rebuild(
    config: PipelineConfig,
    *,
    tables: Sequence[str],
    cursors: CursorStore,
    start: Start = "earliest",
    archive: Path | None = None,
    parallel: Parallel | None = None,
    restart: bool = False,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> RebuildReport:
    """Rebuild tables of the lake from their history, with those that share a target with them.
    `archive`: journals, read before the server's own; `parallel`: decode them in parallel, if that
    can be done; `restart`: discard what an earlier process began or finished.

    Raises ConfigError: tables that are not captured, or an archive that cannot be read;
    SnapshotError: a table would be partial, or cannot be followed; LockError; CdcError: the same
    call resumes where this one stopped.
    """
    observer = observer or RunObserver()
    main = MainLake(config, cursors, observer, run_id)
    directory = archive if archive is not None else getattr(config.source, "directory", None)
    if parallel is not None and directory is None:
        raise parallel_without_archive()
    return _Rebuild(
        with_archive(config, archive),
        checked_tables(config, tables),
        main=main,
        start=start,
        archive=archive,
        directory=directory,
        parallel=parallel,
        run_id=run_id,
    ).run(restart=restart)


@dataclass
class _Rebuild:
    config: PipelineConfig
    tables: Sequence[str]
    main: MainLake
    start: Start
    archive: Path | None
    directory: Path | None
    parallel: Parallel | None
    run_id: str

    _in_parallel: ParallelReport | None = None

    def run(self, *, restart: bool) -> RebuildReport:
        chosen = self._selected_tables(self.main.state()[1])
        self.main.capture(snapshot_of=chosen.targets)
        cursor, cut = self.main.state()
        assert cursor is not None  # a capture leaves one
        with ExitStack() as stack:
            with operations_lock(self.config, on_waiting=self.main.waiting):
                operations = claim(
                    self.config,
                    "rebuild",
                    stack,
                    matches=lambda state: bool(set(state.targets) & set(chosen.targets)),
                    cut=cut,
                    pending=self.main.pending(),
                    restart=(lambda _: None) if restart else None,
                )
                if not restart and self._is_done(cut, chosen):
                    return RebuildReport(
                        source=self.config.name,
                        outcome="nothing_new",
                        reason="the tables were rebuilt from this range before; to rebuild them "
                        "again, give `--restart`",
                        tables=chosen.sources,
                    )
                same = [
                    (folder, state)
                    for folder, state in operations
                    if state.operation_id.endswith(self._mark(chosen))
                    and state.targets == chosen.targets
                ]
                if same and (why := self._other_rules(*same[0])):
                    self.main.observer.step(f"starting the rebuild again{why}")
                    same.pop()[0].remove()
                if same:
                    folder, state = same[0]
                else:
                    state = self._new_state(chosen, cursor)
                    folder = begin(self.config, state, stack)
            self.main.observer.operation_began(state, resumed=bool(same))
            reach("snapshot_begun")
            return self._replay(folder, state, chosen, resumed=bool(same))

    def _selected_tables(self, cut: Cut | None) -> TableChoice:
        """With the tables that share targets with them."""
        return choose(self.config, cut, self._known(cut), self.tables)

    def _known(self, cut: Cut | None) -> set[str]:
        states = {} if cut is None else cut.cursor.targets
        with closing(build_source(self.config)) as source:
            known = {*self.tables, *(source.tables() or ())}
        return known.union(*(state.source_names for state in states.values()))

    # -- which one ---------------------------------------------------------------------------------

    def _mark(self, chosen: TableChoice) -> str:
        text = "\n".join((*chosen.sources, as_text(self.start)))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def _is_done(self, cut: Cut | None, chosen: TableChoice) -> bool:
        states = {} if cut is None else cut.cursor.targets
        target_states = [states.get(name) for name in chosen.targets]
        return bool(target_states) and all(
            state is not None
            and state.suspended is None
            and not state.partial
            and state.app_id.endswith(self._mark(chosen))
            for state in target_states
        )

    def _new_state(self, chosen: TableChoice, cursor: CursorState) -> Operation:
        with closing(build_source(self.config)) as source:
            source.check()
            first = resolve_start(cursor=None, start=self.start, source=source).position
            identity = source.identity
        if first.order >= cursor.position.order:
            raise SnapshotError(
                "the range would end before it begins: a rebuild ends at the cursor",
                at=first,
                expected=f"a beginning before {cursor.position}",
                next_step="give an earlier --from",
            )
        return Operation(
            operation_id=new_operation_id(self._mark(chosen)),
            kind="rebuild",
            source=self.config.name,
            sources=chosen.sources,
            targets=chosen.targets,
            asked={"from": as_text(self.start)},
            archive="" if self.archive is None else str(self.archive.absolute()),
            cursor=cursor_state(self.config.name, identity, first, epoch=cursor.epoch),
            time_us=now_us(),
        )

    def _other_rules(self, folder: OperationFolder, state: Operation) -> str:
        side = SnapshotLake(self.config, folder, state, run_id=self.run_id)
        side.open()
        return side.other_rules()

    # -- replaying it ------------------------------------------------------------------------------

    def _replay(
        self, folder: OperationFolder, state: Operation, chosen: TableChoice, *, resumed: bool
    ) -> RebuildReport:
        if self.parallel is not None:
            self._fill(folder, state)
        side = SnapshotLake(self.config, folder, state, run_id=self.run_id)
        side.open()
        at, check = state.cursor.position, lambda: self._check(folder, side, chosen)
        doing = "replaying the log"
        swapped = Finish(side, self.main, high=at, doing=doing, check=check, is_whole=True).run()
        reach("snapshot_swapped")
        folder.remove()
        reach("snapshot_removed")
        cut = swapped.cut if swapped is not None else self.main.state()[1]
        assert cut is not None
        return self._report(state, chosen, cut, resumed=resumed)

    def _fill(self, folder: OperationFolder, state: Operation) -> None:
        assert self.parallel is not None
        assert self.directory is not None
        config = side_config(self.config, folder, state)
        archive = config.model_copy(update={"source": archive_of(self.config, self.directory)})
        cut = build_sink(archive).last_cut()
        reached = (
            state.cursor.model_copy(update={"source": config.name}) if cut is None else cut.cursor
        )
        source = build_source(archive)
        end = min(
            source.end_position(), self.main.capture().position, key=lambda position: position.order
        )
        if end.order <= reached.position.order:
            return
        bound = PositionConfig(journal=end.journal, offset=end.offset)
        lake = SideLake(
            archive.model_copy(update={"bound": bound}),
            begin=reached,
            observer=RunObserver(),
            run_id=self.run_id,
        )
        with suppress(TargetSuspendedError):  # the next capture says so
            self._in_parallel = lake.capture(parallel=self.parallel).parallel

    def _check(self, folder: OperationFolder, side: SnapshotLake, chosen: TableChoice) -> None:
        cut = side.cut
        states = {} if cut is None else cut.cursor.targets
        joined = joining(self.config, self._known(self.main.state()[1]), chosen.sources)
        for name in chosen.targets:
            state = states.get(name)
            if (
                name not in joined
                and state is not None
                and state.suspended is None
                and not state.partial
                and cut is not None
            ):
                continue
            folder.remove()
            low = side.state.cursor.position
            if name in joined:
                raise SnapshotError(
                    f"{joined[name]} has come to share {name} since its rebuild began",
                    table=name,
                    next_step="run the same command again",
                )
            if state is not None and state.suspended is not None:
                what = f"cannot be followed from its creation on: {state.suspended.cause}"
            elif state is not None:
                what = "would be partial: its CREATE TABLE is not in the range"
            else:
                what = (
                    "is not created in the range, which has neither its CREATE TABLE "
                    "nor a change of it"
                )
            raise SnapshotError(
                f"{name} {what}",
                at=low,
                table=name,
                expected=f"the table's creation after {low}",
                next_step="read it from the server's rows: "
                f"{new_snapshot(self.config.name, chosen.sources[0])}; or add older journals with "
                "--archive",
            )
        if side.left:
            folder.remove()
            raise next(iter(side.left.values()))

    def _report(
        self, state: Operation, chosen: TableChoice, cut: Cut, *, resumed: bool
    ) -> RebuildReport:
        end = cut.cursor.position
        return RebuildReport(
            source=self.config.name,
            outcome="rebuilt",
            reason=f"rebuilt from {state.cursor.position} to the cursor at {end}",
            tables=chosen.sources,
            targets={
                name: RebuiltTarget(
                    sources=cut.cursor.targets[name].source_names,
                    rows=cut.tables[name].rows_inserted,
                    delta_version=cut.tables[name].table_version,
                    cut=cut.batch_number,
                )
                for name in chosen.targets
            },
            start=state.cursor.position,
            end=end,
            resumed=resumed,
            notes=cut.notes,
            parallel=None if self.parallel is None else self._in_parallel or ParallelReport(),
        )


def with_archive(config: PipelineConfig, archive: Path | None) -> PipelineConfig:
    if archive is None:
        return config
    if not isinstance(config.source, LiveSourceConfig):
        raise ConfigError(
            "the pipeline itself reads an archive, and a rebuild of it reads the same one",
            setting="archive",
            got=str(archive),
            next_step="omit --archive, or copy the journals into source.directory",
        )
    return config.model_copy(
        update={
            "source": config.source.model_copy(update={"archive_directory": archive.absolute()})
        }
    )
