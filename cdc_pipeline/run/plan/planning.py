"""Plan what a run will read: start and why, end fixed in advance, tables (SPEC P3 to P5).

Rules:
- Planning writes nothing and starts no JVM.
- The end is fixed before the first event is read: the present end of the log, or the bound's
  position if that comes first. A bound that is found while reading is a limit (`limits`) before
  that end.
- An end before the start on the same server is an error, never "nothing new": the log was
  renumbered.
"""

from __future__ import annotations

from cdc_pipeline.config.pipeline_config import (
    Bound,
    GtidBoundConfig,
    PipelineConfig,
    PositionConfig,
)
from cdc_pipeline.errors import PositionError
from cdc_pipeline.lake.long_operations import operations_of
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.plan.feature_plan import check_masked_columns, with_features
from cdc_pipeline.run.plan.limits import Limit, executed_before, make_limit
from cdc_pipeline.run.plan.needs_snapshot import needing
from cdc_pipeline.run.plan.preview import planned_targets
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.plan.resolved_run import LOG_END, ResolvedRun, bytes_between, is_within
from cdc_pipeline.run.plan.starting import ChosenServer, choose, start_of
from cdc_pipeline.run.plan.unmatched import unmatched
from cdc_pipeline.run.report import CapturePlan, needed_position, quarantined
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.route_checks import check_routes
from cdc_pipeline.targets.table_filter import TableFilter


def plan(
    config: PipelineConfig, *, cursors: CursorStore, bound: Bound | None = None
) -> CapturePlan:
    """Nothing is written; raises what would keep the run from starting."""
    sink = build_sink(config)
    cut = sink.last_cut()
    unfinished = sink.pending_record()
    reconciled = reconcile(cursors.read(), cut)
    cursor, cursor_reason = reconciled.cursor, reconciled.reason
    server = choose(config)
    source = build_source(server.config)
    try:
        source.check()
        config = config.comparing(source.identity.names)
        if unfinished is not None:
            # The run will finish the recorded batch first and resume from there.
            cursor = unfinished.cursor_after
            number = unfinished.batch_number
            cursor_reason = f"batch {number} is recorded but unfinished: the run finishes it first"
        resolved = resolve(
            config,
            source=source,
            cursor=cursor,
            cursor_reason=cursor_reason,
            cut=cut,
            bound=bound or config.bound,
            unfinished=unfinished,
            server=server,
        ).plan
        ours = set(() if cut is None else cut.cursor.targets)
        ours.update(() if unfinished is None else (target.table for target in unfinished.targets))
        return with_features(resolved, config=config, cut=cut, source=source, ours=ours)
    finally:
        source.close()


def resolve(
    config: PipelineConfig,
    *,
    source: Source,
    cursor: CursorState | None,
    cursor_reason: str,
    cut: Cut | None,
    bound: Bound,
    server: ChosenServer,
    unfinished: BatchRecord | None = None,
) -> ResolvedRun:
    """Of a checked `source`. ConfigError: rules contradict each other, or what is recorded;
    SourceError: the start is gone, of another server, or after the end.
    """
    source_tables = source.tables()
    captured = captured_tables(config, source_tables, cursor, cut)
    check_routes(config, captured, cut)
    check_masked_columns(config, source=source, tables=captured, cut=cut)
    # Before its first run, the contents of an archive are unknown. A first run that reads old
    # journals may find tables created there; one that begins at the end finds none.
    begun = cut is not None or cursor is not None
    is_seen, is_loaded = source_tables is not None or begun, begun or config.start == "latest"
    decision, reasons, warnings = start_of(
        config, source=source, cursor=cursor, cursor_reason=cursor_reason, cut=cut
    )
    log_end, start = source.end_position(), decision.position
    end, end_reason, limit = _end(bound, start=start, log_end=log_end, source=source)
    journals = [info for info in source.journals(since=start) if is_within(info, start, end)]
    plan = CapturePlan(
        source=config.name,
        identity=str(source.identity),
        start=start,
        start_reasons=((server.reason,) if server.reason else ()) + reasons,
        end=end,
        end_reason=end_reason,
        limit="" if limit is None else limit.text,
        bytes_between=bytes_between(journals, start, end),
        journals=tuple(info.journal for info in journals),
        tables=tuple(captured),
        targets=planned_targets(config, captured, cut),
        partial_tables=() if cursor is None else _partial(cursor),
        unfinished_batch=None if unfinished is None else unfinished.batch_number,
        oldest_needed=needed_position(cursor),
        open_xa=() if cursor is None else cursor.open_xa,
        suspended={} if cursor is None else cursor.suspended,
        quarantine=quarantined(cut),
        unseen=unmatched(TableFilter(config), source_tables or (), cursor) if is_seen else (),
        needs_snapshot=needing(config, cut, source_tables or ()) if is_loaded else {},
        operations=tuple(operations_of(config, cut)),
        warnings=warnings + source.warnings(captured),
    )
    return ResolvedRun(
        start,
        end,
        limit,
        plan=plan,
        bytes_expected=plan.bytes_between,
        ends_anywhere=isinstance(bound, PositionConfig),
        decision=decision,
        epoch=(1 if cursor is None else cursor.epoch) + decision.epoch_grows,
        known=None if source_tables is None else tuple(source_tables),
        log_end=log_end,
    )


def _end(
    bound: Bound, *, start: Position, log_end: Position, source: Source
) -> tuple[Position, str, Limit | None]:
    end, reason, limit, flavor = log_end, LOG_END, None, source.identity.flavor
    if isinstance(bound, PositionConfig):
        end, reason = Position(bound.journal, bound.offset), "the configured bound"
        if end.order > log_end.order:
            raise PositionError(
                "the bound lies beyond the end of the log",
                at=bound,
                expected=f"at most {log_end}",
                next_step="omit the bound: a run stops at the end of the log by itself",
            )
        source.validate_position(end)
    elif isinstance(bound, GtidBoundConfig) and executed_before(
        bound, start=start, log_end=log_end, flavor=flavor
    ):
        end, reason = start, f"the transaction {bound.gtid} was executed before the start"
    elif limit := make_limit(bound, flavor):
        reason = f"{limit.text}, or at the latest at the end of the log"
    if end.order < start.order:
        raise PositionError(
            "the run would end before it starts",
            expected=f"an end at or after {start}",
            got=f"{end} ({reason})",
            next_step="choose a later bound; a log that ends before the cursor was reset or "
            "belongs to another server",
        )
    return end, reason, limit


def captured_tables(
    config: PipelineConfig, known: list[str] | None, cursor: CursorState | None, cut: Cut | None
) -> list[str]:
    """Of the source and of what is recorded."""
    tables = TableFilter(config)
    names = {*tables.exact_names, *(known or ())}
    for state in (cursor, None if cut is None else cut.cursor):
        targets = {} if state is None else state.targets
        names.update(*(target.source_names for target in targets.values()))
    return tables.captured_names(list(names))


def _partial(cursor: CursorState) -> tuple[str, ...]:
    return tuple(sorted(name for name, target in cursor.targets.items() if target.partial))
