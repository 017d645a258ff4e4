"""Take snapshots of tables without locking the source or delaying the sync of others (K17).

    capture -> low mark -> side lake -> chunks -> capture -> side lake captured to the cursor ->
    swapped in -> removed

Rules:
- Until the swap nothing in the main lake changes: its rows stay readable and its runs continue. The
  source's lock is held only for captures and for the swap.
- A table is swapped in when the side lake is exactly at the main cursor, behind the end of the log
  that was read after the last chunk's view was opened.
- A table that comes to share a target of the snapshot meanwhile, such as a new shard, is not in the
  side lake: that target starts again, too.
- A killed snapshot resumes where it stopped: the same call finds its side lake. The next run,
  whatever it is, finishes a recorded batch of the main lake.
- If a side lake cannot follow a change (a DDL that changes values, another server), only the tables
  concerned start again in a new one, at most `snapshot.attempts_max` times in all.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    SnapshotError,
    UnrepresentableValueError,
)
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.long_operations import (
    Operation,
    OperationFolder,
    begin,
    claim,
    operations_lock,
)
from cdc_pipeline.lake.records import Note
from cdc_pipeline.operations.snapshot.begin import SnapshotBegin, Started
from cdc_pipeline.operations.snapshot.chunks import SnapshotChunks
from cdc_pipeline.operations.snapshot.finish import Finish, Swapped
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.report import SnapshotReport, SnapshotTarget
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.operations.snapshot.side import SnapshotLake
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.needs_snapshot import (
    TableChoice,
    apart_from,
    choose,
    joining,
    needing,
    past_lost,
    suspended_still,
    targets_of,
)
from cdc_pipeline.run.plan.unmatched import nothing_matched

_GONE_NOTE: Final = "snapshot_gone"  # a table was dropped or renamed before it was read


def take_snapshot(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    tables: Sequence[str] | None = None,
    restart: bool = False,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> SnapshotReport:
    """Take snapshots, or resume snapshots that were killed.

    `tables`: source tables or targets to read whether they need it or not, by default all that need
    it; `restart`: start those of these tables again.

    Raises ConfigError: a table without a snapshot, or an archive as source; LockError;
    SnapshotError: a snapshot cannot be finished; NothingMatchedError: a pattern has never matched a
    table, everything else is done; CdcError: the same call resumes where this one stopped.
    """
    if not isinstance(config.source, LiveSourceConfig):
        raise ConfigError(
            "only a running server can provide the rows of its tables",
            setting="source.kind",
            expected="live",
            got=config.source.kind,
            next_step="rebuild tables of an archive from its journals: "
            f"`cdc-pipeline backfill {config.name} --table SCHEMA.TABLE --rebuild`",
        )
    observer = observer or RunObserver()
    with SnapshotSource(config) as source:
        config = config.comparing(source.live.identity.names)
        main = MainLake(config, cursors, observer, run_id)
        return _Snapshot(main, source).run(tables, restart=restart)


@dataclass
class _Done:
    targets: dict[str, SnapshotTarget] = field(default_factory=dict)
    resumed: list[str] = field(default_factory=list)
    restarted: dict[str, list[str]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    left: dict[str, CdcError] = field(default_factory=dict)  # by target, of the current snapshot
    # targets that no longer have a source table
    gone: dict[str, CdcError] = field(default_factory=dict)
    refused: list[CdcError] = field(default_factory=list)  # why tables get no snapshot
    unreadable: set[str] = field(default_factory=set)  # targets of some of these


@dataclass
class _Snapshot:
    main: MainLake
    source: SnapshotSource
    _done: _Done = field(default_factory=_Done)

    def run(self, tables: Sequence[str] | None, *, restart: bool) -> SnapshotReport:
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        chosen = self._first(tables, restart=restart)
        for _ in range(self.main.config.snapshot.attempts_max):
            if not chosen.targets:
                break
            self._begin_and_fill(chosen)
            left = self._without_unreadable()
            if not left:
                break
            for name, error in left.items():
                self._done.restarted.setdefault(name, []).append(error.what)
            chosen, last = self._choose_again(left, tables), next(iter(left.values()))
            if not chosen.targets:
                break
            self.main.observer.step(
                f"taking the snapshot of {', '.join(chosen.targets)} again: {last.what}"
            )
        else:
            raise SnapshotError(
                f"the snapshot was started {self.main.config.snapshot.attempts_max} times and "
                "could not be finished",
                table=last.table,
                got=last.what,
                next_step=last.next_step
                or "take the snapshot when its columns are not being changed",
            ) from last
        if self._done.gone and tables is not None:
            name = next(iter(self._done.gone))
            raise SnapshotError(
                f"before the snapshot was finished, {', '.join(self._done.gone)} disappeared at "
                "the source, or from the rules",
                table=name,
                got=self._done.gone[name].what,
                next_step="everything else has its snapshot; take that of a renamed table under "
                "its new name",
            )
        if self._done.refused:
            raise self._done.refused[0]
        if tables is None:  # as a run does at its end; everything else is done
            cursor, _ = self.main.state()
            unmatched = nothing_matched(self.main.config, self.source.tables(), cursor)
            if unmatched is not None:
                raise unmatched
        return self._report(tables, began_s, began_cpu_s)

    # -- what is to be done ------------------------------------------------------------------------

    def _without_unreadable(self) -> dict[str, CdcError]:
        """What this snapshot left, but for targets of a value that it would meet again."""
        left, self._done.left = self._done.left, {}
        for name, error in list(left.items()):
            if isinstance(error, UnrepresentableValueError):
                self._done.unreadable.add(name)
                self._done.refused.append(left.pop(name))
                self.main.observer.step(f"{name} gets no snapshot: {error.what}")
        return left

    def _first(self, tables: Sequence[str] | None, *, restart: bool) -> TableChoice:
        known = self.source.tables()
        _, cut = self.main.state()
        wanted = choose(self.main.config, cut, known, tables)
        self.main.capture(snapshot_of=wanted.targets)
        targets = wanted.targets if tables is not None else None
        with ExitStack() as stack:
            with operations_lock(self.main.config, on_waiting=self.main.waiting):
                unfinished = self._unfinished(stack, targets, restart=restart)
            for folder, state in unfinished:
                self._resume(folder, state)
        taken = {name for name in self._done.targets if name not in self._done.left}
        left = self._without_unreadable()
        if tables is not None:
            left.update(
                (name, SnapshotError("its source table is gone, or was renamed", table=name))
                for name in wanted.targets
                if name not in taken and name not in left and name not in self._done.unreadable
            )
        return self._choose_again(left, tables)

    def _choose_again(
        self, left: Mapping[str, CdcError], tables: Sequence[str] | None
    ) -> TableChoice:
        """Those tables, left over or in need of a snapshot, that the source still has."""
        _, cut = self.main.state()
        known = self.source.tables()
        wanted = (
            set(left) if tables is not None else {*left, *needing(self.main.config, cut, known)}
        )
        wanted -= self._done.unreadable
        existing = targets_of(self.main.config, known)
        for name in sorted(wanted - existing):
            self._done.gone[name] = left[name]
            self._done.restarted.pop(name, None)
            self._done.notes.append(
                Note(kind=_GONE_NOTE, text=f"it has no snapshot: {left[name].what}", table=name)
            )
            self.main.observer.step(f"{name} has no snapshot: its source table is gone")
        targets = sorted(wanted & existing)
        return choose(self.main.config, cut, known, targets) if targets else TableChoice()

    def _unfinished(
        self, stack: ExitStack, targets: Collection[str] | None, *, restart: bool = False
    ) -> list[tuple[OperationFolder, Operation]]:
        _, cut = self.main.state()
        return claim(
            self.main.config,
            "snapshot",
            stack,
            matches=lambda state: targets is None or bool(set(targets) & set(state.targets)),
            cut=cut,
            pending=self.main.pending(),
            restart=(lambda name: self.main.observer.step(f"discarding the snapshot {name}"))
            if restart
            else None,
        )

    # -- one snapshot ------------------------------------------------------------------------------

    def _begin_and_fill(self, chosen: TableChoice) -> None:
        with ExitStack() as stack:
            with operations_lock(self.main.config, on_waiting=self.main.waiting):
                if self._unfinished(stack, chosen.targets):
                    raise SnapshotError(
                        f"another snapshot of {', '.join(chosen.targets)} was started in the "
                        "meantime",
                        next_step="run the same command again: it continues that snapshot",
                    )
                started = self._started(chosen, stack)
                folder = begin(self.main.config, started.state, stack)
            self.main.observer.operation_began(started.state, resumed=False)
            reach("snapshot_begun")
            side = self._side(folder, started.state)
            side.open()
            side.create(started.schemas, started.comments)
            reach("snapshot_created")
            self._fill(side, started)

    def _started(self, chosen: TableChoice, stack: ExitStack) -> Started:
        """Without the tables that have no exact view, or cannot be read."""
        search = SnapshotBegin(self.main, self.source)
        try:
            return stack.enter_context(search.start(chosen))
        except CdcError as error:
            others = apart_from(self.main.config, chosen, search.refused) if search.refused else []
            if not others:
                raise
            error.table = ", ".join(search.refused)
            error.next_step = f"all other tables have theirs; for these: {error.next_step}"
            self._done.refused.append(error)
            self.main.observer.step(f"{error.table} gets no snapshot: {error.what}")
        _, cut = self.main.state()
        return self._started(choose(self.main.config, cut, self.source.tables(), others), stack)

    def _resume(self, folder: OperationFolder, state: Operation) -> None:
        side = self._side(folder, state)
        side.open()
        progress = folder.read_progress()
        unread = [
            name
            for name in state.exact
            if name not in progress.tables or not progress.tables[name].is_done
        ]
        why = side.other_rules()
        if side.cut is None or unread or why:
            # Nothing was read, or the view cannot be opened again, or the filters or masks changed
            # (K14).
            self.main.observer.step(f"starting the snapshot {state.operation_id} again{why}")
            folder.remove()
            return
        for name, error in past_lost(side.config, self.main.state()[1], state.targets).items():
            side.leave(name, error)
        self.main.observer.operation_began(state, resumed=True)
        self._done.resumed.append(state.operation_id)
        self.source.check_log(side)
        self._fill(side, None)

    def _side(self, folder: OperationFolder, state: Operation) -> SnapshotLake:
        return SnapshotLake(self.main.config, folder, state, run_id=self.main.run_id)

    def _fill(self, side: SnapshotLake, started: Started | None) -> None:
        chunks = SnapshotChunks(side, self.main, self.source)
        chunks.run(started)
        reach("snapshot_read")
        doing = "capturing what changed while the tables were read"
        swapped = Finish(side, self.main, chunks.high, doing, partial(self._check, side)).run()
        reach("snapshot_swapped")
        if swapped is not None:
            self._keep(side, swapped, chunks.high)
            self.main.observer.step(f"replaced {', '.join(swapped.names)}")
        side.folder.remove()
        reach("snapshot_removed")
        self._done.left.update(side.left)

    def _check(self, side: SnapshotLake) -> None:
        """A target lacks the rows of a table that has come to share it: it starts again."""
        joined = joining(self.main.config, self.source.tables(), side.state.sources)
        for name in joined.keys() & set(side.state.targets):
            side.leave(name, SnapshotError(f"{joined[name]} has come to share the target"))

    # -- what was done -----------------------------------------------------------------------------

    def _keep(self, side: SnapshotLake, swapped: Swapped, high: Position) -> None:
        progress = side.folder.read_progress()
        side_cut, cut = side.cut, swapped.cut
        assert side_cut is not None
        self._done.notes += cut.notes
        for name in swapped.names:
            sources = side_cut.cursor.targets[name].source_names
            read = [progress.tables[source] for source in sources if source in progress.tables]
            self._done.targets[name] = SnapshotTarget(
                operation_id=side.state.operation_id,
                sources=sources,
                rows=cut.tables[name].rows_inserted,
                rows_read=sum(table.rows for table in read),
                chunks=sum(table.chunks for table in read),
                rows_quarantined=sum(
                    cut.quarantine[one].rows for one in sources if one in cut.quarantine
                ),
                delta_version=cut.tables[name].table_version,
                low=side.state.cursor.position,
                high=high,
                cut=cut.batch_number,
            )

    def _report(
        self, tables: Sequence[str] | None, began_s: float, began_cpu_s: float
    ) -> SnapshotReport:
        done = self._done
        asked = "the tables that need a snapshot" if tables is None else ", ".join(tables)
        count = len(done.targets)
        reason = (
            f"{asked}: {count} read from the server"
            if count
            else "no captured table of the source needs a snapshot"
        )
        if tables is None and (still := suspended_still(self.main.state()[0])):
            reason += f"; {still}"
        return SnapshotReport(
            source=self.main.config.name,
            outcome="taken" if count else "nothing_to_do",
            reason=reason,
            targets=dict(sorted(done.targets.items())),
            resumed=tuple(done.resumed),
            restarted={name: tuple(why) for name, why in done.restarted.items()},
            notes=tuple(done.notes),
            rows=sum(target.rows_read for target in done.targets.values()),
            seconds=time.monotonic() - began_s,
            cpu_seconds=time.process_time() - began_cpu_s,
        )
