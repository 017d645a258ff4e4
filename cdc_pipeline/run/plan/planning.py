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

from collections.abc import Iterable

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import (
    Bound,
    GtidBoundConfig,
    PipelineConfig,
    PositionConfig,
)
from cdc_pipeline.errors import PositionError, SourceIdentityError
from cdc_pipeline.lake.long_operations import operations_of
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.run_notes import changed_start
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.context import JournalInfo, StartDecision
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.plan.feature_plan import check_masked_columns, with_features
from cdc_pipeline.run.plan.limits import Limit, executed_before, make_limit
from cdc_pipeline.run.plan.needs_snapshot import needing
from cdc_pipeline.run.plan.possible import check_start
from cdc_pipeline.run.plan.preview import planned_targets
from cdc_pipeline.run.plan.reconcile import Reconciled, reconcile
from cdc_pipeline.run.plan.resolved_run import LOG_END, ResolvedRun
from cdc_pipeline.run.plan.server_switch import overlap_of
from cdc_pipeline.run.plan.starting import ChosenServer, choose, start_rules
from cdc_pipeline.run.plan.unmatched import unmatched
from cdc_pipeline.run.report import CapturePlan, needed_position, quarantined
from cdc_pipeline.run.wiring import (
    build_dump_errors,
    build_first_start,
    build_sink,
    build_source,
)
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
    server = choose(config)
    source = build_source(server.config)
    try:
        source.check()
        config = config.comparing(source.identity.names)
        if unfinished is not None:
            # The run will finish the recorded batch first and resume from there.
            after = unfinished.cursor_after
            reason = (
                f"batch {unfinished.batch_number} is recorded but unfinished: the run "
                "finishes it first"
            )
            reconciled = Reconciled(after, reason, True)
        resolved = resolve(
            config,
            source=source,
            reconciled=reconciled,
            cut=cut,
            bound=bound or config.bound,
            unfinished=unfinished,
            server=server,
        ).plan
        ours = set(cut.cursor.targets if cut is not None else ())
        ours.update(
            target.table for target in (unfinished.targets if unfinished is not None else ())
        )
        return with_features(resolved, config=config, cut=cut, source=source, ours=ours)
    finally:
        source.close()


def resolve(
    config: PipelineConfig,
    *,
    source: Source,
    reconciled: Reconciled,
    cut: Cut | None,
    bound: Bound,
    server: ChosenServer,
    unfinished: BatchRecord | None = None,
) -> ResolvedRun:
    """Of a `source` that has passed its check. ConfigError: rules of targets contradict each
    other, or what is recorded; SourceError: the start is gone, of another server, or after the
    end.
    """
    cursor, source_tables = reconciled.cursor, source.tables()
    captured = _captured(config, source_tables, cursor, cut)
    check_routes(config, captured, cut)
    check_masked_columns(config, source=source, tables=captured, cut=cut)
    # Before its first run, the contents of an archive are unknown. A first run that reads old
    # journals may find tables created there; one that begins at the end finds none.
    begun = cut is not None or cursor is not None
    is_seen, is_loaded = source_tables is not None or begun, begun or config.start == "latest"
    decision, reasons, warnings = _start(config, source, reconciled, cut)
    log_end, start = source.end_position(), decision.position
    end, end_reason, limit = _end(bound, start=start, log_end=log_end, source=source)
    journals = [info for info in source.journals() if _within(info, start, end)]
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


def _start(
    config: PipelineConfig, source: Source, reconciled: Reconciled, cut: Cut | None
) -> tuple[StartDecision, tuple[str, ...], tuple[str, ...]]:
    cursor = reconciled.cursor
    if cursor is None:
        check_start(config)
    decision = resolve_start(
        cursor=cursor,
        start=config.start,
        source=source,
        rules=start_rules(config, cut=cut, dump_errors=build_dump_errors(config).read()),
        overlap=overlap_of(config, source=source, cursor=cursor),
    )
    reasons = (*decision.reasons, *source.reasons(decision.read_from))
    if cursor is None:
        return decision, reasons, ()
    reasons = (reconciled.reason, *check_names(source.identity, cursor), *reasons)
    kept = build_first_start(config).read()
    return decision, reasons, changed_start(kept, config.start, pipeline_name=config.name)


def check_names(identity: ServerIdentity, cursor: CursorState) -> tuple[str, ...]:
    """Of another name comparison than the cursor's (K30); SourceIdentityError if it cannot be."""
    before = cursor.lower_case_table_names
    if identity.names.same_as(before):
        return ()
    known = {name for state in cursor.targets.values() for name in state.source_names}
    differing = sorted(name for name in known if identity.names.fold(name) != name)
    change = f"lower_case_table_names was {before:d} and is {identity.names:d} now"
    if not differing:
        return (f"{change}: the names of all tables are in lower case, and stay",)
    raise SourceIdentityError(
        f"the server compares names of tables otherwise than before: {change}",
        table=differing[0],
        setting="source.lower_case_table_names",
        expected=f"{before:d}, under which the lake has {', '.join(differing[:5])}",
        got=f"{identity.names:d}, under which no table has such a name",
        next_step="read a server whose lower_case_table_names is as before (an archive: set "
        "source.lower_case_table_names), or give this one a lake of its own (sink.lake_path) and "
        "take a snapshot",
    )


def _end(
    bound: Bound, *, start: Position, log_end: Position, source: Source
) -> tuple[Position, str, Limit | None]:
    end, reason, limit = _bounded(bound, start=start, log_end=log_end, source=source)
    if end.order < start.order:
        raise PositionError(
            "the run would end before it starts",
            expected=f"an end at or after {start}",
            got=f"{end} ({reason})",
            next_step="choose a later bound; a log that ends before the cursor was reset or "
            "belongs to another server",
        )
    return end, reason, limit


def _bounded(
    bound: Bound, *, start: Position, log_end: Position, source: Source
) -> tuple[Position, str, Limit | None]:
    if isinstance(bound, PositionConfig):
        end = Position(journal=bound.journal, offset=bound.offset)
        if end.order > log_end.order:
            raise PositionError(
                "the bound lies beyond the end of the log",
                journal=bound.journal,
                offset=bound.offset,
                expected=f"at most {log_end}",
                next_step="omit the bound: a run stops at the end of the log by itself",
            )
        source.validate_position(end)
        return end, "the configured bound", None
    flavor = source.identity.flavor
    if isinstance(bound, GtidBoundConfig) and executed_before(
        bound, start=start, log_end=log_end, flavor=flavor
    ):
        return start, f"the transaction {bound.gtid} was executed before the start", None
    limit = make_limit(bound, flavor)
    if limit is None:
        return log_end, LOG_END, None
    return log_end, f"{limit.text}, or at the latest at the end of the log", limit


def _within(info: JournalInfo, start: Position, end: Position) -> bool:
    return start.order[0] <= journal_number(info.journal) <= end.order[0]


def bytes_between(journals: Iterable[JournalInfo], start: Position, end: Position) -> int:
    """Of the log, of all that is listed."""
    whole = (
        info.size_bytes
        for info in journals
        if _within(info, start, end) and info.journal != end.journal
    )
    return max(0, sum(whole) + end.offset - start.offset)


def _captured(
    config: PipelineConfig, known: list[str] | None, cursor: CursorState | None, cut: Cut | None
) -> list[str]:
    tables = TableFilter(config)
    names = {*tables.exact_names, *(known or ())}
    for state in (cursor, None if cut is None else cut.cursor):
        targets = {} if state is None else state.targets
        names.update(*(target.source_names for target in targets.values()))
    return tables.captured_names(list(names))


def _partial(cursor: CursorState) -> tuple[str, ...]:
    return tuple(sorted(name for name, target in cursor.targets.items() if target.partial))
