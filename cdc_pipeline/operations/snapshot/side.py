"""The side lake of a snapshot, in which tables are built before they are swapped in (K17).

Rules:
- It begins at the snapshot's low mark, and its cursor stays there while rows are read. Changes that
  came meanwhile are captured afterwards.
- Its source has a name of its own, so that its dumps never end those of the main lake: the server
  ends the first of two readers with one id.
- Rows that are read carry the seq of the side lake's position: every later change is newer. Before
  the first capture each key occurs once, and rows of a plain mirror are appended; after it they are
  merged.
- A table whose change the side lake cannot follow leaves the snapshot and starts again in another
  one. So does a renamed table, because the rows read belong to another table of that name, or there
  are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig, PositionConfig
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    JournalMissingError,
    PositionError,
    SnapshotError,
    SourceIdentityError,
    TargetSuspendedError,
    UnknownXaError,
)
from cdc_pipeline.lake.long_operations import Operation, OperationFolder, Progress
from cdc_pipeline.operations.side_lake import SideLake, beside
from cdc_pipeline.operations.snapshot.rows import ReadPosition, RowPath
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.schema.source_table import Comments
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.data_file import DataLayout
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.decided import created_in_log
from cdc_pipeline.targets.route_checks import check_recorded
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.targets import Targets, targets_at

LOG_IS_GONE: Final = (JournalMissingError, PositionError, SourceIdentityError)


def side_config(
    config: PipelineConfig, folder: OperationFolder, state: Operation
) -> PipelineConfig:
    source = config.source
    if isinstance(source, LiveSourceConfig):
        source = source.model_copy(update={"replica_server_id": None})
    update = {} if state.kind == "rebuild" else _leaving_renamed(config)
    return beside(
        config,
        lake=folder.lake,
        tables=state.sources,
        name=folder.paths.source,
        source=source,
        bound="end_of_log",
        **update,
    )


def _leaving_renamed(config: PipelineConfig) -> dict[str, Any]:
    """Policies that ignore a renamed table's rows, except in a rebuild from the log."""

    def kept(policy: SchemaChangePolicy) -> SchemaChangePolicy:
        return policy.model_copy(update={"rename_table": "keep"})

    policy = config.schema_changes
    targets = tuple(
        rule.model_copy(update={"schema_changes": kept(rule.schema_changes or policy)})
        for rule in config.targets
    )
    return {"schema_changes": kept(policy), "targets": targets}


def log_is_gone(source: str, at: Position, error: CdcError) -> SnapshotError:
    return SnapshotError(
        "the log that the snapshot needs is gone: what changed while its tables were read "
        "cannot be replayed",
        at=at,
        expected=f"the source's log from {at} on",
        got=error.what,
        next_step=f"start again: `cdc-pipeline snapshot {source} --restart`; keep journals for "
        "longer than a snapshot takes",
    )


class SnapshotLake(SideLake):
    """The side lake of one snapshot; `left`: why targets cannot be made by it, by name."""

    def __init__(
        self, config: PipelineConfig, folder: OperationFolder, state: Operation, *, run_id: str
    ) -> None:
        of_operation = side_config(config, folder, state)
        begin = state.cursor.model_copy(update={"source": of_operation.name})
        # its cuts are not the source's
        super().__init__(of_operation, begin=begin, observer=RunObserver(), run_id=run_id)
        self.folder = folder
        self.state = state
        self.left: dict[str, CdcError] = {}

    # -- where it stands ---------------------------------------------------------------------------

    def open(self) -> None:
        self.recover()
        self._find_leftover()

    def other_rules(self) -> str:
        """Why what is left in the lake is no use: its rows have other filters or masks (K14)."""
        try:
            if self.cut is not None:
                check_recorded(Routes(self.config), self.cut)
        except ConfigError as error:
            return f": {error.what}"
        return ""

    @property
    def stands_at_begin(self) -> bool:
        return self.cursor.position.order == self.state.cursor.position.order

    def _find_leftover(self) -> None:
        """Targets without source or rows that were read; a rebuild is checked at its end."""
        cut = self.cut
        if cut is None or self.state.kind == "rebuild":
            return
        for name in self.state.targets:
            state = cut.cursor.targets.get(name)
            suspension = state.suspended if state is not None else None
            meanwhile = "while its snapshot was being taken"
            if suspension is not None:
                what, meanwhile = suspension.cause, ""
            elif state is None or state.partial or name not in cut.tables:
                what = "the table was recreated in the log"
            elif state.origin is not None or any(
                one.gone for one in cut.tables[name].spec.sources_of(name).values()
            ):
                what = "its source table was dropped or renamed"
            else:
                continue
            next_step = (suspension.next_step if suspension is not None else "") or None
            self.leave(name, SnapshotError(f"{what} {meanwhile}".strip(), next_step=next_step))

    def leave(self, target: str, error: CdcError) -> None:
        error.table = error.table or target
        self.left.setdefault(target, error)

    def leave_source(self, source: str, error: CdcError) -> None:
        for name in self.targets_of(source):
            self.leave(name, error)

    def targets_of(self, source: str) -> list[str]:
        routes = Routes(self.config).of_table(source)
        return [route.target for route in routes if route.target in self.state.targets]

    def is_left(self, source: str) -> bool:
        """Whether this snapshot makes no target of a source table any more."""
        return all(name in self.left for name in self.targets_of(source))

    # -- rows that are read ------------------------------------------------------------------------

    def create(self, schemas: Mapping[str, TableSchema], comments: Mapping[str, Comments]) -> None:
        """The first batch: all targets, empty, with the source's columns at the low mark."""
        with self.admin_batch(doing="take a new snapshot of the table") as batch:
            targets = created_in_log(targets_at(self.config, None), schemas)
            for name, schema in schemas.items():
                of_table = comments.get(name, ())
                targets, _ = confirmed(targets, targets.masks.schema(schema), of_table)
            for target in targets.by_name.values():
                batch.rows.create(target)
            self.publish(batch, targets, created=list(targets.by_name))

    @contextmanager
    def reading(self) -> Iterator[SideBatch]:
        """A batch for rows that are read; it is discarded unless it is committed."""
        with self.admin_batch(doing="take a new snapshot of the table") as batch:
            targets = targets_at(self.config, batch.last_cut(), batch.cursor)
            yield SideBatch(self, batch, targets)

    def publish(self, batch: AdminBatch, targets: Targets, *, created: Sequence[str] = ()) -> None:
        states = targets.states(created)
        with suppress(TargetSuspendedError):  # what is left behind is left out
            batch.publish(kind="snapshot", targets=states, source_time_us=self.state.time_us)
        self._find_leftover()

    # -- what came meanwhile -----------------------------------------------------------------------

    def capture_to(self, to: Position) -> None:
        """SnapshotError: the log is gone; after another error a retry may help."""
        bound = PositionConfig(journal=to.journal, offset=to.offset)
        self.folder.discard_unrecorded()
        try:
            self.capture(bound)
        except TargetSuspendedError:
            pass
        except LOG_IS_GONE as error:
            at = self.cursor.position
            raise log_is_gone(self.state.source, at, error) from error
        except UnknownXaError as error:  # prepared before an exact view, and not in it
            for name in self.state.targets:
                self.leave(name, error)
            return
        except CdcError as error:
            if error.retryable or error.table is None:
                raise
            for name in self.state.targets:  # no other table was left to go on with
                self.leave(name, error)
            return
        if self.cursor.epoch != self.state.cursor.epoch:
            for name in self.state.targets:
                self.leave(
                    name,
                    SnapshotError("another server answers than the one whose tables were read"),
                )
        self._find_leftover()


class SideBatch:
    def __init__(self, side: SnapshotLake, batch: AdminBatch, targets: Targets) -> None:
        cursor = batch.cursor
        self.place = ReadPosition(cursor.journal, cursor.offset, cursor.seq, side.state.time_us)
        self._side = side
        self._batch = batch
        self._path = RowPath(targets, self.place, as_staged=self._as_staged)
        self._layouts: dict[str, tuple[TargetSpec, DataLayout | None]] = {}

    def take(self, rows: DecodedRows, *, first: int) -> None:
        self._path.take(self._batch.rows, rows, first=first)

    def commit(self, progress: Progress) -> None:
        self._side.folder.write_progress(self._batch.number, progress)
        self._side.publish(self._batch, self._path.targets)
        self._side.folder.tidy_progress(self._batch.number)

    def _as_staged(self, target: Target) -> tuple[Target, DataLayout | None]:
        is_exact = self._side.stands_at_begin and _comes_once(target)
        spec, layout = self._layouts.get(target.name, (None, None))
        if is_exact and spec != target.spec:
            layout = self._side.sink.tables.data_layout(target.name, target.spec)
            self._layouts[target.name] = target.spec, layout
        return target.with_state(exact=is_exact), layout


def _comes_once(target: Target) -> bool:
    """Whether a row of the source, read once, is one row here: the source's key decides."""
    spec = target.spec
    if MODES[spec.mode].keeps_past or len(spec.sources) != 1:
        return False
    (source,) = spec.sources.values()
    is_plain = spec.shape is None or spec.shape.is_exact_possible(spec.key)
    return bool(spec.key) and spec.key == source.key_in_target and is_plain
